//! Operators of up to three arguments, without candle's wrappers.

use crate::storage::{fused, slice, tensor};
use candle_core::{CpuStorage, CudaStorage, CustomOp3, Error, Layout, Result, Shape, Tensor};

/// The values of a result, and their shape.
pub(crate) type Output = (Vec<f32>, Shape);

/// A result in candle's storage, and its shape.
pub(crate) type Stored<S> = Result<(S, Shape)>;

/// The gradients of `N` arguments; `None` for an argument that needs none.
pub(crate) type Gradients<const N: usize> = Result<[Option<Tensor>; N]>;

/// A function of `N` contiguous `f32` tensors on the CPU, and its gradient.
pub(crate) trait Operator<const N: usize>: Send + Sync + 'static {
    /// The name in candle's messages.
    const NAME: &'static str;

    /// The result, computed from the arguments' values and layouts.
    fn forward(&self, values: [&[f32]; N], layouts: [&Layout; N]) -> Result<Output>;

    /// The gradients of the arguments, given the gradient of the result.
    fn backward(&self, arguments: [&Tensor; N], dy: &Tensor) -> Gradients<N>;
}

/// The same for tensors on any device, contiguous or not.
pub(crate) trait Custom<const N: usize>: Send + Sync + 'static {
    fn name(&self) -> &'static str;

    fn on_cpu(&self, storages: [&CpuStorage; N], layouts: [&Layout; N]) -> Stored<CpuStorage>;

    fn on_cuda(&self, _: [&CudaStorage; N], _: [&Layout; N]) -> Stored<CudaStorage> {
        Err(Error::Msg(format!(
            "{} is not implemented on GPUs",
            self.name()
        )))
    }

    /// See [`Operator::backward`].
    fn gradients(&self, arguments: [&Tensor; N], dy: &Tensor) -> Gradients<N>;
}

impl<const N: usize, T: Operator<N>> Custom<N> for T {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn on_cpu(&self, storages: [&CpuStorage; N], layouts: [&Layout; N]) -> Stored<CpuStorage> {
        let mut values = [&[] as &[f32]; N];
        for (i, values) in values.iter_mut().enumerate() {
            *values = slice(storages[i], layouts[i])?;
        }
        let (values, shape) = self.forward(values, layouts)?;
        Ok((CpuStorage::F32(values), shape))
    }

    fn gradients(&self, arguments: [&Tensor; N], dy: &Tensor) -> Gradients<N> {
        self.backward(arguments, dy)
    }
}

/// The result of an operator, for any layout of its arguments.
pub(crate) fn custom<const N: usize>(
    op: impl Custom<N>,
    arguments: [&Tensor; N],
) -> Result<Tensor> {
    // The last argument is repeated up to three; only `N` are used.
    let at = |i: usize| arguments[i.min(N - 1)];
    at(0).apply_op3(at(1), at(2), Wrapped::<_, N>(op))
}

/// The result of an operator.
pub(crate) fn call<const N: usize>(
    op: impl Operator<N>,
    arguments: [&Tensor; N],
) -> Result<Tensor> {
    let contiguous = arguments.into_iter().map(Tensor::contiguous);
    let contiguous = contiguous.collect::<Result<Vec<_>>>()?;
    custom(op, std::array::from_fn(|i| &contiguous[i]))
}

/// The result of an operator, or of `stock` where fused operators do not apply.
pub(crate) fn apply<const N: usize>(
    op: impl Operator<N>,
    arguments: [&Tensor; N],
    stock: impl FnOnce() -> Result<Tensor>,
) -> Result<Tensor> {
    match fused(&arguments)? {
        true => call(op, arguments),
        false => stock(),
    }
}

/// Gradients of arguments, computed from their values; `None` where there are no values.
pub(crate) fn gradients<const N: usize>(
    arguments: [&Tensor; N],
    values: [Option<Vec<f32>>; N],
) -> Gradients<N> {
    let mut all = [const { None }; N];
    for ((gradient, argument), values) in all.iter_mut().zip(arguments).zip(values) {
        *gradient = values.map(|v| tensor(v, argument.shape())).transpose()?;
    }
    Ok(all)
}

/// Adapts an operator to candle's interface.
struct Wrapped<T, const N: usize>(T);

/// The first `N` of three.
fn first<T: Copy, const N: usize>(all: [T; 3]) -> [T; N] {
    std::array::from_fn(|i| all[i])
}

impl<const N: usize, T: Custom<N>> CustomOp3 for Wrapped<T, N> {
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
        self.0.on_cpu(first([a, b, c]), first([la, lb, lc]))
    }

    fn cuda_fwd(
        &self,
        a: &CudaStorage,
        la: &Layout,
        b: &CudaStorage,
        lb: &Layout,
        c: &CudaStorage,
        lc: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.0.on_cuda(first([a, b, c]), first([la, lb, lc]))
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let mut all = self.0.gradients(first([a, b, c]), dy)?.into_iter();
        let mut next = || all.next().flatten();
        Ok((next(), next(), next()))
    }
}
