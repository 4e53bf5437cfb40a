//! Fused operators of three arguments, without the wrapping in which candle calls them.

use crate::storage::{fused, slice, tensor};
use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

/// The values of a result, and their shape.
pub(crate) type Output = (Vec<f32>, Shape);

/// A function of three contiguous `f32` tensors on the CPU, and its gradient.
pub(crate) trait Operator {
    /// The name in candle's messages.
    fn name(&self) -> &'static str;

    /// The result, from the arguments' values and layouts.
    fn forward(&self, values: [&[f32]; 3], layouts: [&Layout; 3]) -> Result<Output>;

    /// The gradients of the arguments from that of the result.
    fn backward(&self, arguments: [&Tensor; 3], dy: &Tensor) -> Result<[Option<Tensor>; 3]>;
}

/// The result of an operator.
pub(crate) fn call(
    op: impl Operator + Send + Sync + 'static,
    [a, b, c]: [&Tensor; 3],
) -> Result<Tensor> {
    a.contiguous()?
        .apply_op3(&b.contiguous()?, &c.contiguous()?, Fused(op))
}

/// The result of an operator, or of `stock` where the fused ones do not apply.
pub(crate) fn apply(
    op: impl Operator + Send + Sync + 'static,
    [a, b, c]: [&Tensor; 3],
    stock: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    match fused(&[a, b, c])? {
        true => call(op, [a, b, c]),
        false => stock(a, b, c),
    }
}

/// Gradients of three arguments from their values; none where there are no values.
pub(crate) fn gradients(
    arguments: [&Tensor; 3],
    values: [Option<Vec<f32>>; 3],
) -> Result<[Option<Tensor>; 3]> {
    let mut all = [None, None, None];
    for ((gradient, argument), values) in all.iter_mut().zip(arguments).zip(values) {
        *gradient = values.map(|v| tensor(v, argument.shape())).transpose()?;
    }
    Ok(all)
}

/// An [`Operator`] as candle takes it.
struct Fused<T>(T);

impl<T: Operator> CustomOp3 for Fused<T> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        la: &Layout,
        b: &CpuStorage,
        lb: &Layout,
        c: &CpuStorage,
        lc: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let values = [slice(a, la)?, slice(b, lb)?, slice(c, lc)?];
        let (values, shape) = self.0.forward(values, [la, lb, lc])?;
        Ok((CpuStorage::F32(values), shape))
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        Ok(self.0.backward([a, b, c], dy)?.into())
    }
}
