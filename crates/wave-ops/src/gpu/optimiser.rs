//! AdamW and norms over all tensors in one launch.

use super::{Kind, Place, Values, with_views};
use crate::optimiser::{BETA1, BETA2, EPS, Move};
use candle_core::{CpuStorage, CudaStorage, InplaceOp1, Layout, Result, Tensor};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Values per block; see `adamw.cu`.
const CHUNK: usize = 4096;

/// A row of the table, `Moved` in `adamw.cu`.
#[derive(Default)]
struct Line {
    /// Values, gradient, two moments.
    pointers: [u64; 4],
    len: usize,
    learning_rate: f32,
    weight_decay: f32,
}

/// The table, and its number of blocks.
fn table(place: &Place, lines: &[Line]) -> Result<(Values, usize)> {
    let (mut bytes, mut blocks) = (Vec::new(), 0);
    for line in lines {
        for pointer in line.pointers {
            bytes.extend(pointer.to_ne_bytes());
        }
        for size in [line.len, blocks] {
            bytes.extend((size as i64).to_ne_bytes());
        }
        bytes.extend(line.learning_rate.to_ne_bytes());
        bytes.extend(line.weight_decay.to_ne_bytes());
        blocks += line.len.div_ceil(CHUNK);
    }
    Ok((place.upload(Kind::Bytes, &bytes)?, blocks))
}

/// One step, see [`crate::adamw_steps`], for tensors on one place and their moments: `scale` is applied to
/// gradients, `correction` to the two moments.
pub(crate) fn adamw(
    place: &Place,
    all: &[(&Move, [&Tensor; 2])],
    correction: (f32, f32),
    scale: f32,
) -> Result<()> {
    // Kept until the end, since they include copies of gradients that are not contiguous.
    let (mut lines, mut gradients) = (Vec::new(), Vec::new());
    for (moved, [first, second]) in all {
        let len = moved.var.elem_count();
        let gradient = moved.gradient.contiguous()?;
        let line = Line {
            pointers: [
                address(place, moved.var)?,
                with_views(place, [&gradient], |[g]| {
                    Ok(g.expect(Kind::F32, len).pointer)
                })?,
                address(place, first)?,
                address(place, second)?,
            ],
            len,
            learning_rate: moved.learning_rate,
            weight_decay: moved.weight_decay,
        };
        gradients.push(gradient);
        if len > 0 {
            lines.push(line);
        }
    }
    let (table, blocks) = table(place, &lines)?;
    let numbers = [BETA1, BETA2, EPS, correction.0, correction.1, scale];
    place.adamw(table.view(), lines.len(), blocks, numbers)
}

/// The sum of squares of all values of tensors on one place. Waits for the result.
pub(crate) fn squared_norm(place: &Place, tensors: &[&Tensor]) -> Result<f64> {
    let (mut lines, mut contiguous) = (Vec::new(), Vec::new());
    for tensor in tensors.iter().filter(|t| t.elem_count() > 0) {
        let tensor = tensor.contiguous()?;
        let mut line = Line {
            len: tensor.elem_count(),
            ..Line::default()
        };
        line.pointers[1] = with_views(place, [&tensor], |[x]| Ok(x.pointer))?;
        lines.push(line);
        contiguous.push(tensor);
    }
    if lines.is_empty() {
        return Ok(0.0);
    }
    let (table, blocks) = table(place, &lines)?;
    let sum = place.squares(table.view(), lines.len(), blocks)?;
    let bytes = place.download(&sum)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| f64::from_ne_bytes(*word)).sum())
}

/// The address of a contiguous tensor's values, for writing.
pub(super) fn address(place: &Place, tensor: &Tensor) -> Result<u64> {
    let found = Address {
        place,
        pointer: AtomicU64::new(0),
    };
    tensor.inplace_op1(&found)?;
    Ok(found.pointer.into_inner())
}

struct Address<'a> {
    place: &'a Place,
    pointer: AtomicU64,
}

impl Address<'_> {
    fn found(&self, base: Option<u64>, layout: &Layout) -> Result<()> {
        let Some(base) = base else {
            candle_core::bail!("an optimiser's kernel was given values on another device");
        };
        if !layout.is_contiguous() {
            candle_core::bail!("an optimiser needs contiguous variables");
        }
        let start = (layout.start_offset() * Kind::F32.bytes()) as u64;
        self.pointer.store(base + start, Relaxed);
        Ok(())
    }
}

impl InplaceOp1 for Address<'_> {
    fn name(&self) -> &'static str {
        "address"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let base = match (self.place, storage) {
            #[cfg(feature = "host-kernels")]
            (Place::Host, CpuStorage::F32(values)) => Some(values.as_mut_ptr() as u64),
            _ => None,
        };
        self.found(base, layout)
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> Result<()> {
        let base = match (self.place, storage) {
            #[cfg(feature = "cuda")]
            (Place::Cuda(gpu), storage) => Some(gpu.pointer(storage)?),
            #[cfg(feature = "host-kernels")]
            (Place::Host, _) => None,
        };
        self.found(base, layout)
    }
}
