//! The operators as kernels for NVIDIA GPUs, compute capability 8.0 or later. Their CUDA C sources are
//! in `kernels/`, one file per operator, with formulas and shapes.
//!
//! A [`Place`] allocates memory ([`Values`]), launches kernels and multiplies matrices. With the feature
//! `cuda` it is a GPU. With the feature `host-kernels` it is the CPU: the same sources compiled as C++
//! check every kernel without a GPU. Only [`device`](self) needs one, for memory, launches and cuBLAS.
//!
//! Work on a GPU runs in one stream, in the order of the calls. Calls do not wait for it.

/// Arguments of a kernel.
macro_rules! arguments {
    ($($argument:expr),* $(,)?) => {
        [$($crate::gpu::Argument::from($argument)),*]
    };
}

#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "host-kernels")]
pub(crate) mod host;
mod kernels;
mod muon;
mod operators;
mod optimiser;
#[cfg(all(test, feature = "host-kernels"))]
mod tests;
mod trunk;

pub(crate) use muon::muon;
pub(crate) use operators::{
    blocks, embed, fits, fits_norm, gelu, kronecker_sum, layer_norm, patchify, soft_cross_entropy,
};
pub(crate) use optimiser::{adamw, squared_norm};

use crate::arithmetic::Precision;
use candle_core::{DType, Device, Result, Shape, Storage, Tensor, op::BackpropOp};
use std::marker::PhantomData;

/// The type of stored values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    Bf16,
    /// Raw bytes: sums of squares, and tables.
    Bytes,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::Bf16 => 2,
            Kind::Bytes => 1,
        }
    }

    /// The suffix of kernel names.
    fn name(self) -> &'static str {
        match self {
            Kind::F32 => "f32",
            Kind::Bf16 => "bf16",
            Kind::Bytes => "bytes",
        }
    }
}

/// The kind of the factors of products.
impl From<Precision> for Kind {
    fn from(precision: Precision) -> Kind {
        match precision {
            Precision::F32 => Kind::F32,
            Precision::Bf16 => Kind::Bf16,
        }
    }
}

/// A GPU, or the CPU in its place.
#[derive(Clone)]
pub(crate) enum Place {
    #[cfg(feature = "cuda")]
    Cuda(device::Gpu),
    #[cfg(feature = "host-kernels")]
    Host,
}

/// The place of tensors: the GPU that holds all of them, in `f32`.
pub(crate) fn place(tensors: &[&Tensor]) -> Result<Option<Place>> {
    let Some(first) = tensors.first() else {
        return Ok(None);
    };
    let fits = |t: &&Tensor| t.dtype() == DType::F32 && t.device().same_device(first.device());
    if !tensors.iter().all(fits) {
        return Ok(None);
    }
    match first.device() {
        #[cfg(feature = "cuda")]
        Device::Cuda(gpu) => Ok(Some(Place::Cuda(device::Gpu::new(gpu)?))),
        #[cfg(feature = "host-kernels")]
        Device::Cpu if host::wanted() => Ok(Some(Place::Host)),
        _ => Ok(None),
    }
}

/// Values on a place. Only kernels read and write them, in launch order.
pub(crate) struct Values {
    kind: Kind,
    len: usize,
    memory: Memory,
}

enum Memory {
    #[cfg(feature = "cuda")]
    Cuda(device::Memory),
    #[cfg(feature = "host-kernels")]
    Host(host::Memory),
}

impl Values {
    /// A view of all values, to be read or written.
    pub(crate) fn view(&self) -> View<'_> {
        let pointer = match &self.memory {
            #[cfg(feature = "cuda")]
            Memory::Cuda(memory) => memory.pointer(),
            #[cfg(feature = "host-kernels")]
            Memory::Host(memory) => memory.pointer(),
        };
        View {
            pointer,
            kind: self.kind,
            len: self.len,
            of: PhantomData,
        }
    }

    /// The storage of a tensor with these `f32` values.
    fn into_storage(self, shape: &Shape) -> Result<Storage> {
        if self.kind != Kind::F32 || shape.elem_count() != self.len {
            candle_core::bail!(
                "{} values of {:?} cannot be f32 of shape {shape:?}",
                self.len,
                self.kind
            );
        }
        match self.memory {
            #[cfg(feature = "cuda")]
            Memory::Cuda(memory) => Ok(Storage::Cuda(memory.into_storage()?)),
            #[cfg(feature = "host-kernels")]
            Memory::Host(memory) => {
                let values = memory.values::<f32>(self.len);
                Ok(Storage::Cpu(candle_core::CpuStorage::F32(values)))
            }
        }
    }

    /// A tensor of `f32` values, without a graph.
    pub(crate) fn into_tensor(self, shape: &Shape) -> Result<Tensor> {
        let storage = self.into_storage(shape)?;
        Ok(Tensor::from_storage(
            storage,
            shape,
            BackpropOp::none(),
            false,
        ))
    }
}

/// Values that a kernel reads or writes.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pointer: u64,
    kind: Kind,
    len: usize,
    of: PhantomData<&'a ()>,
}

impl<'a> View<'a> {
    /// `len` values starting at `start`.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn part(self, start: usize, len: usize) -> View<'a> {
        assert!(start + len <= self.len, "{start} + {len} of {}", self.len);
        View {
            pointer: self.pointer + (start * self.kind.bytes()) as u64,
            len,
            ..self
        }
    }

    /// Layer `l` of a slab of `depth` layers.
    fn layer(self, l: usize, depth: usize) -> View<'a> {
        let size = self.len / depth;
        self.part(l * size, size)
    }

    /// Panics unless the number and kind of values are those that a kernel expects.
    fn expect(self, kind: Kind, len: usize) -> View<'a> {
        assert!(
            self.kind == kind && self.len == len,
            "a kernel expects {len} values of {kind:?}; found {} of {:?}",
            self.len,
            self.kind
        );
        self
    }
}

/// Calls `f` with the `f32` values of tensors on a place, made contiguous if necessary.
pub(crate) fn with_views<R, const N: usize>(
    place: &Place,
    tensors: [&Tensor; N],
    f: impl FnOnce([View<'_>; N]) -> Result<R>,
) -> Result<R> {
    let contiguous = tensors.into_iter().map(Tensor::contiguous);
    let contiguous = contiguous.collect::<Result<Vec<_>>>()?;
    let guards: Vec<_> = contiguous.iter().map(Tensor::storage_and_layout).collect();
    let mut views = [View {
        pointer: 0,
        kind: Kind::F32,
        len: 0,
        of: PhantomData,
    }; N];
    for (view, (storage, layout)) in views.iter_mut().zip(&guards) {
        view.len = layout.shape().elem_count();
        view.pointer = match (place, &**storage) {
            #[cfg(feature = "cuda")]
            (Place::Cuda(gpu), Storage::Cuda(storage)) => gpu.pointer(storage)?,
            #[cfg(feature = "host-kernels")]
            (Place::Host, Storage::Cpu(storage)) => storage.as_slice::<f32>()?.as_ptr() as u64,
            _ => candle_core::bail!("a kernel was given a tensor on another device"),
        };
        view.pointer += (layout.start_offset() * Kind::F32.bytes()) as u64;
    }
    f(views)
}

/// An argument of a kernel.
#[derive(Clone, Copy)]
enum Argument {
    Pointer(u64),
    I32(i32),
    I64(i64),
    F32(f32),
}

impl From<View<'_>> for Argument {
    fn from(view: View<'_>) -> Argument {
        Argument::Pointer(view.pointer)
    }
}

/// No values: a null pointer.
impl From<Option<View<'_>>> for Argument {
    fn from(view: Option<View<'_>>) -> Argument {
        Argument::Pointer(view.map_or(0, |view| view.pointer))
    }
}

impl From<f32> for Argument {
    fn from(x: f32) -> Argument {
        Argument::F32(x)
    }
}

impl From<bool> for Argument {
    fn from(x: bool) -> Argument {
        Argument::I32(x.into())
    }
}

/// A size that a kernel takes as an `int`.
///
/// # Panics
/// If it is too large for one.
fn int(x: usize) -> Argument {
    Argument::I32(i32::try_from(x).expect("sizes on a GPU fit into 31 bits"))
}

/// A number of values.
fn long(x: usize) -> Argument {
    Argument::I64(x as i64)
}

/// A factor of a product, row-major.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a> {
    view: View<'a>,
    transposed: bool,
}

/// The matrix as stored.
pub(crate) fn plain(view: View<'_>) -> Factor<'_> {
    Factor {
        view,
        transposed: false,
    }
}

/// The transpose of the stored matrix.
pub(crate) fn transposed(view: View<'_>) -> Factor<'_> {
    Factor {
        view,
        transposed: true,
    }
}

impl Place {
    /// Memory with arbitrary contents.
    pub(crate) fn values(&self, kind: Kind, len: usize) -> Result<Values> {
        let bytes = len * kind.bytes();
        let memory = match self {
            #[cfg(feature = "cuda")]
            Place::Cuda(gpu) => Memory::Cuda(gpu.memory(kind, bytes)?),
            #[cfg(feature = "host-kernels")]
            Place::Host => Memory::Host(host::Memory::new(bytes)),
        };
        Ok(Values { kind, len, memory })
    }

    /// A copy of host memory.
    pub(crate) fn upload(&self, kind: Kind, bytes: &[u8]) -> Result<Values> {
        let memory = match self {
            #[cfg(feature = "cuda")]
            Place::Cuda(gpu) => Memory::Cuda(gpu.upload(kind, bytes)?),
            #[cfg(feature = "host-kernels")]
            Place::Host => Memory::Host(host::Memory::of(bytes)),
        };
        Ok(Values {
            kind,
            len: bytes.len() / kind.bytes(),
            memory,
        })
    }

    /// The same for `f32`.
    pub(crate) fn upload_f32(&self, values: &[f32]) -> Result<Values> {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        self.upload(Kind::F32, &bytes)
    }

    /// A copy on the host. Waits for all previous work.
    pub(crate) fn download(&self, values: &Values) -> Result<Vec<u8>> {
        match &values.memory {
            #[cfg(feature = "cuda")]
            Memory::Cuda(memory) => memory.download(),
            #[cfg(feature = "host-kernels")]
            Memory::Host(memory) => Ok(memory.values::<u8>(values.len * values.kind.bytes())),
        }
    }

    /// Launches a kernel on blocks of `threads` threads.
    fn launch(
        &self,
        name: &str,
        grid: [usize; 3],
        threads: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let grid = grid.map(|n| u32::try_from(n).expect("a grid fits into 32 bits"));
        assert!(grid[1] < 1 << 16 && grid[2] < 1 << 16, "a grid of {grid:?}");
        match self {
            #[cfg(feature = "cuda")]
            Place::Cuda(gpu) => gpu.launch(name, grid, threads, arguments),
            #[cfg(feature = "host-kernels")]
            Place::Host => host::launch(name, grid, threads, arguments),
        }
    }

    /// `C = A B`, row-major, with factors of one kind; sums are in `f32`.
    ///
    /// # Panics
    /// If the sizes are not `(m, n, k)`: `A` (m, k), `B` (k, n), `C` (m, n).
    pub(crate) fn product(
        &self,
        size: (usize, usize, usize),
        a: Factor,
        b: Factor,
        c: View,
    ) -> Result<()> {
        let one = Products {
            count: 1,
            size,
            tf32: false,
        };
        self.products(one, a, b, c)
    }

    /// [`Place::product`] for a batch of consecutive matrices.
    fn products(&self, how: Products, a: Factor, b: Factor, c: View) -> Result<()> {
        let (count, (m, n, k)) = (how.count, how.size);
        a.view.expect(b.view.kind, count * m * k);
        b.view.expect(a.view.kind, count * k * n);
        c.expect(c.kind, count * m * n);
        match self {
            #[cfg(feature = "cuda")]
            Place::Cuda(gpu) => gpu.products(how, a, b, c),
            #[cfg(feature = "host-kernels")]
            Place::Host => {
                host::products(how, a, b, c);
                Ok(())
            }
        }
    }
}

/// A batch of products of consecutive matrices.
#[derive(Clone, Copy)]
struct Products {
    count: usize,
    size: (usize, usize, usize),
    /// True if a GPU rounds `f32` factors to TF32, with ten bits of mantissa.
    tf32: bool,
}
