//! Conversion between candle tensors and plain slices.

use candle_core::{
    CpuStorage, DType, Device, Error, InplaceOp2, Layout, Result, Shape, Storage, Tensor, Var,
};
use std::cell::Cell;

/// True if the fused operators apply. An error if `WAVE_SIMD` names a path that does not exist.
pub(crate) fn fused(tensors: &[&Tensor]) -> Result<bool> {
    crate::cpu::simd().map_err(Error::wrap)?;
    let fits = |t: &&Tensor| t.device().is_cpu() && t.dtype() == DType::F32;
    Ok(tensors.iter().all(fits))
}

/// The values of a contiguous `f32` CPU tensor.
pub(crate) fn slice<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        candle_core::bail!("a fused operator was given a tensor that is not contiguous");
    };
    Ok(&storage.as_slice::<f32>()?[start..end])
}

/// Calls `f` on the values of a CPU tensor, copying first if it is not contiguous.
pub(crate) fn with_slice<R>(t: &Tensor, f: impl FnOnce(&[f32]) -> R) -> Result<R> {
    with_slices([t], |[t]| f(t))
}

/// Calls `f` on the values of several CPU tensors, copying first if one is not contiguous.
pub fn with_slices<R, const N: usize>(
    tensors: [&Tensor; N],
    f: impl FnOnce([&[f32]; N]) -> R,
) -> Result<R> {
    let tensors = tensors.into_iter().map(Tensor::contiguous);
    let tensors = tensors.collect::<Result<Vec<_>>>()?;
    let guards: Vec<_> = tensors.iter().map(Tensor::storage_and_layout).collect();
    let mut slices = [&[] as &[f32]; N];
    for (to, (storage, layout)) in slices.iter_mut().zip(&guards) {
        match &**storage {
            Storage::Cpu(storage) => *to = slice(storage, layout)?,
            _ => candle_core::bail!("a fused operator was given a tensor on another device"),
        }
    }
    Ok(f(slices))
}

/// Calls `f` on the values of a CPU variable, mutably, and on those of its gradient.
pub(crate) fn in_place(
    name: &'static str,
    var: &Var,
    gradient: &Tensor,
    f: impl FnOnce(&mut [f32], &[f32]),
) -> Result<()> {
    let f = Cell::new(Some(f));
    var.inplace_op2(&gradient.contiguous()?, &InPlace { name, f })
}

struct InPlace<F> {
    name: &'static str,
    f: Cell<Option<F>>,
}

impl<F: FnOnce(&mut [f32], &[f32])> InplaceOp2 for InPlace<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, p: &mut CpuStorage, lp: &Layout, g: &CpuStorage, lg: &Layout) -> Result<()> {
        let (Some((start, end)), CpuStorage::F32(p)) = (lp.contiguous_offsets(), p) else {
            candle_core::bail!("{} needs a contiguous f32 variable", self.name);
        };
        let g = slice(g, lg)?;
        if let Some(f) = self.f.take() {
            f(&mut p[start..end], g);
        }
        Ok(())
    }
}

/// A CPU tensor that owns `values`.
pub(crate) fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
    Tensor::from_vec(values, shape, &Device::Cpu)
}
