//! Kernels on a GPU, in candle's stream.
//!
//! Pointers are taken from candle's slices without waiting for events. All work is in the single stream
//! of a device, in launch order.

use super::{Argument, Factor, Kind, Products, View};
use candle_core::cuda_backend::cudarc::cublas::{result, sys as blas};
use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaSlice, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg, sys,
};
use candle_core::cuda_backend::{CudaStorage, DeviceId, WrapErr};
use candle_core::{CudaDevice, Result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex};

const PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// Required compute capability, major and minor: the first with bf16 tensor cores.
const NEEDED: (i32, i32) = (8, 0);

/// The kernels launched so far on a device, by name: looking one up in its module takes as long as launching it.
type Kernels = Arc<Mutex<HashMap<String, CudaFunction>>>;

/// The devices on which [`prepare`] has run.
static PREPARED: LazyLock<Mutex<HashMap<DeviceId, Kernels>>> = LazyLock::new(Mutex::default);

#[derive(Clone)]
pub(crate) struct Gpu {
    device: CudaDevice,
    kernels: Kernels,
}

/// GPU memory.
pub(super) struct Memory {
    gpu: Gpu,
    slice: Slice,
}

enum Slice {
    F32(CudaSlice<f32>),
    /// All other kinds: CUDA aligns all allocations alike.
    Bytes(CudaSlice<u8>),
}

/// Refuses an unsupported GPU, and makes its allocator keep freed memory: a step needs as much as the one
/// before, and otherwise every synchronisation would return it to the driver.
fn prepare(device: &CudaDevice) -> Result<Kernels> {
    let mut prepared = PREPARED.lock().expect("nothing panics with the lock");
    if let Some(kernels) = prepared.get(&device.id()) {
        return Ok(kernels.clone());
    }
    let stream = device.cuda_stream();
    let context = stream.context();
    let found = context.compute_capability().w()?;
    if found < NEEDED {
        candle_core::bail!(
            "cuda:{}: the GPU has compute capability {}.{}; expected {}.{} or later; compute on the processor \
             with --device cpu",
            context.ordinal(),
            found.0,
            found.1,
            NEEDED.0,
            NEEDED.1
        );
    }
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    // SAFETY: the pool is written before it is read, and the attribute is a u64. Devices without pools
    // return an error, and are used without.
    unsafe {
        if sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device())
            .result()
            .is_ok()
        {
            let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            let value = std::ptr::from_mut(&mut threshold).cast::<c_void>();
            sys::cuMemPoolSetAttribute(pool, attribute, value)
                .result()
                .w()?;
        }
    }
    Ok(prepared.entry(device.id()).or_default().clone())
}

impl Memory {
    pub(super) fn pointer(&self) -> u64 {
        match &self.slice {
            Slice::F32(slice) => self.gpu.address(slice),
            Slice::Bytes(slice) => self.gpu.address(slice),
        }
    }

    pub(super) fn into_storage(self) -> Result<CudaStorage> {
        match self.slice {
            Slice::F32(slice) => Ok(CudaStorage::wrap_cuda_slice(slice, self.gpu.device)),
            _ => candle_core::bail!("only f32 values of kernels are candle's"),
        }
    }

    /// A copy on the host; waits for the device.
    pub(super) fn download(&self) -> Result<Vec<u8>> {
        let device = &self.gpu.device;
        match &self.slice {
            Slice::F32(slice) => {
                let values = device.clone_dtoh(slice)?;
                Ok(values.iter().flat_map(|v| v.to_ne_bytes()).collect())
            }
            Slice::Bytes(slice) => device.clone_dtoh(slice),
        }
    }
}

impl Gpu {
    pub(super) fn new(device: &CudaDevice) -> Result<Gpu> {
        Ok(Gpu {
            device: device.clone(),
            kernels: prepare(device)?,
        })
    }

    fn address<T>(&self, slice: &CudaSlice<T>) -> u64 {
        slice.device_ptr(&self.device.cuda_stream()).0
    }

    /// The address of a tensor's `f32` values.
    pub(super) fn pointer(&self, storage: &CudaStorage) -> Result<u64> {
        Ok(self.address(storage.as_cuda_slice::<f32>()?))
    }

    pub(super) fn memory(&self, kind: Kind, bytes: usize) -> Result<Memory> {
        let slice = match kind {
            Kind::F32 => Slice::F32(self.alloc(bytes / 4)?),
            Kind::Bf16 | Kind::Bytes => Slice::Bytes(self.alloc(bytes)?),
        };
        let gpu = self.clone();
        Ok(Memory { gpu, slice })
    }

    /// Allocates at least one value, since CUDA rejects an empty allocation.
    fn alloc<T: DeviceRepr>(&self, len: usize) -> Result<CudaSlice<T>> {
        // SAFETY: kernels and products write memory before anything reads it.
        unsafe { self.device.alloc(len.max(1)) }
    }

    pub(super) fn upload(&self, kind: Kind, bytes: &[u8]) -> Result<Memory> {
        let slice = match kind {
            Kind::F32 => {
                let (words, _) = bytes.as_chunks::<4>();
                let values: Vec<f32> = words.iter().map(|w| f32::from_ne_bytes(*w)).collect();
                Slice::F32(self.device.clone_htod(&values)?)
            }
            Kind::Bf16 | Kind::Bytes => Slice::Bytes(self.device.clone_htod(bytes)?),
        };
        let gpu = self.clone();
        Ok(Memory { gpu, slice })
    }

    pub(super) fn launch(
        &self,
        name: &str,
        grid: [u32; 3],
        threads: u32,
        arguments: &[Argument],
    ) -> Result<()> {
        let mut kernels = self.kernels.lock().expect("nothing panics with the lock");
        if !kernels.contains_key(name) {
            let kernel = self
                .device
                .get_or_load_custom_func(name, "wave-kernels", PTX)?;
            kernels.insert(name.into(), kernel.into_cuda_function());
        }
        let stream = self.device.cuda_stream();
        let mut builder = stream.launch_builder(&kernels[name]);
        for argument in arguments {
            match argument {
                Argument::Pointer(x) => builder.arg(x),
                Argument::I32(x) => builder.arg(x),
                Argument::I64(x) => builder.arg(x),
                Argument::F32(x) => builder.arg(x),
            };
        }
        let size = LaunchConfig {
            grid_dim: grid.into(),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the callers, in `kernels.rs`, name a kernel with as many arguments of these types, and
        // memory of the sizes that it expects, which is freed in the same stream.
        unsafe { builder.launch(size) }.w()?;
        Ok(())
    }

    /// See [`super::Place::product`]. cuBLAS is column-major: it computes `C^T = B^T A^T`, so
    /// row-major matrices need no copy.
    pub(super) fn products(&self, how: Products, a: Factor, b: Factor, c: View) -> Result<()> {
        let (count, (m, n, k)) = (how.count, how.size);
        if count * m * n == 0 {
            return Ok(());
        }
        let operation = |factor: &Factor| match factor.transposed {
            false => blas::cublasOperation_t::CUBLAS_OP_N,
            true => blas::cublasOperation_t::CUBLAS_OP_T,
        };
        let kind = |view: View| match view.kind {
            Kind::Bf16 => blas::cudaDataType::CUDA_R_16BF,
            _ => blas::cudaDataType::CUDA_R_32F,
        };
        let size = |n: usize| i32::try_from(n).map_err(candle_core::Error::wrap);
        let (one, zero) = (1f32, 0f32);
        let blas = self.device.cublas_handle();
        // SAFETY: the views are of the sizes (`Place::products`), of memory that is freed in the same stream;
        // the constants are f32, as the sums are.
        unsafe {
            result::gemm_strided_batched_ex(
                *blas.handle(),
                operation(&b),
                operation(&a),
                size(n)?,
                size(m)?,
                size(k)?,
                std::ptr::from_ref(&one).cast(),
                b.view.pointer as *const c_void,
                kind(b.view),
                size(if b.transposed { k } else { n })?,
                (k * n) as i64,
                a.view.pointer as *const c_void,
                kind(a.view),
                size(if a.transposed { m } else { k })?,
                (m * k) as i64,
                std::ptr::from_ref(&zero).cast(),
                c.pointer as *mut c_void,
                kind(c),
                size(n)?,
                (m * n) as i64,
                size(count)?,
                match how.tf32 {
                    false => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                    true => blas::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
                },
                blas::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .w()
    }
}
