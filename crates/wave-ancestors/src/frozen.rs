//! Operators for inference-only networks: no gradient flows through them.
//!
//! On the CPU in `f32` they are fused with bias, residual and activation, and run over plain slices
//! ([`wave_ops::slices`]), split between the threads of the current rayon pool. Elsewhere they are stock
//! candle operators (`frozen/stock.rs`). Images are channels-last, (b, rows, columns, channels), so that the
//! inputs of one row of a convolution's window are contiguous.
//!
//! Letters: `b` images, `n` matrix rows or tokens, `c` channels, `k` kernel, `s` side.

mod kernels;
mod stock;

use self::kernels::{activate, depthwise_row, gather};
use crate::Activation;
use crate::fold::Affine;
use candle_core::{DType, Device, Result, Tensor};
use rayon::prelude::*;
use wave_ops::misfit;
use wave_ops::slices::{
    Right, StartValue, multiply, multiply_copied, reads_in_place, rows, softmax, transposed,
    vectorised, with_slices,
};

/// Images per thread and forward pass: enough rows for efficient matrix products, few enough that activations
/// stay in the cache.
pub(crate) const IMAGES_PER_THREAD: usize = 8;

/// Maximum rows of a matrix product whose results are passed through the activation while still in the cache.
const ROWS: usize = 512;

/// Rows per task: tasks are of about the same size, with equally many for every thread.
fn rows_of_task(rows: usize) -> usize {
    let threads = rayon::current_num_threads();
    rows.div_ceil(rows.div_ceil(threads * ROWS).max(1) * threads)
        .max(1)
}

/// The window of a convolution along a side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Side of the window.
    pub kernel: usize,
    /// Pixels between neighbouring windows.
    pub stride: usize,
    /// Zeros before the first pixel.
    pub before: usize,
    /// Number of window positions.
    pub out: usize,
}

impl Window {
    /// Windows with `padding` zeros on both sides of `size` pixels.
    pub fn padded(size: usize, kernel: usize, stride: usize, padding: usize) -> Window {
        let out = (size + 2 * padding).saturating_sub(kernel) / stride + 1;
        Window {
            kernel,
            stride,
            before: padding,
            out,
        }
    }

    /// TensorFlow's "same" padding: the fewest zeros that give `ceil(size / stride)` windows, the odd one last.
    pub fn same(size: usize, kernel: usize, stride: usize) -> Window {
        let out = size.div_ceil(stride);
        let zeros = ((out - 1) * stride + kernel).saturating_sub(size);
        Window {
            kernel,
            stride,
            before: zeros / 2,
            out,
        }
    }

    /// The taps of window `i` that fall within `size` pixels, and the pixel of the first.
    fn taps(&self, i: usize, size: usize) -> (std::ops::Range<usize>, usize) {
        let start = i * self.stride; // in padded coordinates
        let first = self.before.saturating_sub(start).min(self.kernel);
        let end = (size + self.before)
            .saturating_sub(start)
            .clamp(first, self.kernel);
        (first..end, (start + first).saturating_sub(self.before))
    }
}

/// The columns of a token matrix that hold one part of attention: those of head `h` start at
/// `h * per_head + offset`.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Tokens (b, n, heads x per_head).
    pub tokens: &'a Tensor,
    /// First column of the part within a head.
    pub offset: usize,
    /// Columns per head.
    pub per_head: usize,
}

impl<'a> Columns<'a> {
    /// The columns of `tokens` that start at `offset` in each group of `per_head`.
    pub fn new(tokens: &'a Tensor, offset: usize, per_head: usize) -> Columns<'a> {
        Columns {
            tokens,
            offset,
            per_head,
        }
    }
}

impl Affine {
    /// `activation(x W + bias)` with a weight (in, out): `x` (.., in) gives (.., out).
    pub fn linear(&self, x: &Tensor, activation: Activation) -> Result<Tensor> {
        self.product(x, None, activation)
    }

    /// `x W + bias + residual`, with a residual (.., out).
    pub fn onto(&self, residual: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.product(x, Some(residual), Activation::Identity)
    }

    /// `activation(x W + bias [+ residual])`: `x` (.., in), `W` (in, out), `bias` (out), the others (.., out).
    fn product(
        &self,
        x: &Tensor,
        residual: Option<&Tensor>,
        activation: Activation,
    ) -> Result<Tensor> {
        if !fused(x)? {
            return stock::linear(x, self, residual, activation);
        }
        let Affine { weight, bias } = self;
        let (k, n) = weight.dims2()?;
        let mut shape = x.dims().to_vec();
        if shape.last() != Some(&k) || bias.dims() != [n] {
            return misfit("linear", [x, weight, bias].map(Tensor::dims), "");
        }
        shape.pop();
        shape.push(n);
        let mut y = begun(residual, &shape)?;
        let chunk = rows_of_task(y.len() / n.max(1));
        slices([x, weight, bias], |[x, w, bias]| {
            let right = Weight::new(w, (k, n), chunk);
            y.par_chunks_mut((chunk * n).max(1))
                .zip(x.par_chunks((chunk * k).max(1)))
                .for_each(|(y, x)| {
                    right.multiply(x, start(residual.is_some(), bias, y), y);
                    activate(activation, y);
                });
        })?;
        Tensor::from_vec(y, shape, x.device())
    }

    /// `activation(conv(x) [+ residual])`: `x` (b, s, s, c), `weight` (k k c, out) with its inputs in
    /// the order row, column, channel, `bias` (out); `residual` and the result are (b, s', s', out).
    pub fn convolve(
        &self,
        x: &Tensor,
        window: Window,
        residual: Option<&Tensor>,
        activation: Activation,
    ) -> Result<Tensor> {
        let Affine { weight, bias } = self;
        let (b, s, _, c) = x.dims4()?;
        let (inputs, n) = weight.dims2()?;
        if inputs != window.kernel * window.kernel * c || bias.dims() != [n] {
            return misfit("convolution", [x, weight, bias].map(Tensor::dims), "");
        }
        if !fused(x)? {
            return stock::convolve(x, self, window, residual, activation);
        }
        let out = window.out;
        let mut y = begun(residual, &[b, out, out, n])?;
        // A few rows of windows at a time, so that the gathered inputs stay in the cache.
        let rows = rows_of_task(b * out * out).div_ceil(out);
        slices([x, weight, bias], |[x, w, bias]| {
            let right = Weight::new(w, (inputs, n), rows * out);
            y.par_chunks_mut(rows * out * n).enumerate().for_each_init(
                Vec::new,
                |gathered, (task, y)| {
                    let first = task * rows;
                    let of_task = first..first + y.len() / (out * n);
                    gather(x, (s, c), window, of_task, gathered);
                    right.multiply(gathered, start(residual.is_some(), bias, y), y);
                    activate(activation, y);
                },
            );
        })?;
        Tensor::from_vec(y, (b, out, out, n), x.device())
    }

    /// `activation` of a depthwise convolution: `x` (b, s, s, c), `weight` (k k, c), `bias` (c), result (b, s', s', c).
    pub fn depthwise(&self, x: &Tensor, window: Window, activation: Activation) -> Result<Tensor> {
        let Affine { weight, bias } = self;
        let (b, s, _, c) = x.dims4()?;
        if weight.dims() != [window.kernel * window.kernel, c] || bias.dims() != [c] {
            let found = [x, weight, bias].map(Tensor::dims);
            return misfit("depthwise convolution", found, "");
        }
        if !fused(x)? {
            return stock::depthwise(x, self, window, activation);
        }
        let out = window.out;
        let mut y = vec![0.0; b * out * out * c];
        slices([x, weight, bias], |[x, w, bias]| {
            y.par_chunks_mut(out * c).enumerate().for_each(|(row, y)| {
                let image = &x[row / out * s * s * c..][..s * s * c];
                vectorised(
                    #[inline(always)]
                    || depthwise_row(image, (s, c), w, bias, window, row % out, y),
                );
                activate(activation, y);
            });
        })?;
        Tensor::from_vec(y, (b, out, out, c), x.device())
    }
}

/// Initial values of the given shape for a product to accumulate into: the residual's, or zeros.
fn begun(residual: Option<&Tensor>, shape: &[usize]) -> Result<Vec<f32>> {
    match residual {
        Some(residual) if residual.dims() == shape => {
            slices([residual], |[residual]| residual.to_vec())
        }
        Some(residual) => candle_core::bail!(
            "residual of shape {:?}, expected {shape:?}",
            residual.dims()
        ),
        None => Ok(vec![0.0; shape.iter().product()]),
    }
}

/// The start of a product in rows `y`: the bias, added to the existing values if they are `kept`.
fn start<'a>(kept: bool, bias: &'a [f32], y: &mut [f32]) -> StartValue<'a> {
    if !kept {
        return StartValue::Row(bias);
    }
    for row in y.chunks_exact_mut(bias.len()) {
        row.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
    }
    StartValue::Kept
}

/// `activation(softmax(q k^T + bias) v)` for each image and head; scores are not scaled here.
///
/// # Shapes
/// `query` has `width` columns per head and (b, n) tokens, `key` has as many columns and `value` has
/// `value_width`, both with (b, m) tokens; `bias` is (heads, n, m). The result is
/// (b, n, heads x value_width).
pub fn attention(
    query: Columns,
    key: Columns,
    value: Columns,
    bias: &Tensor,
    (width, value_width): (usize, usize),
    activation: Activation,
) -> Result<Tensor> {
    let (heads, n, m) = bias.dims3()?;
    let b = query.tokens.dim(0)?;
    for (part, tokens, width) in [(query, n, width), (key, m, width), (value, m, value_width)] {
        let (found, expected) = (part.tokens.dims(), [b, tokens, heads * part.per_head]);
        if found != expected || part.offset + width > part.per_head {
            candle_core::bail!("attention over tokens of shape {found:?}, expected {expected:?}");
        }
    }
    if !fused(query.tokens)? {
        return stock::attention(query, key, value, bias, (width, value_width), activation);
    }
    let [ql, kl, vl] = [query, key, value].map(|part| heads * part.per_head);
    let ol = heads * value_width;
    let mut out = vec![0.0; b * n * ol];
    slices(
        [query.tokens, key.tokens, value.tokens, bias],
        |[q, k, v, bias]| {
            out.par_chunks_mut(n * ol).enumerate().for_each_init(
                || vec![0.0; n * m],
                |scores, (i, out)| {
                    for h in 0..heads {
                        let q = &q[i * n * ql + h * query.per_head + query.offset..];
                        let k = &k[i * m * kl + h * key.per_head + key.offset..];
                        let v = &v[i * m * vl + h * value.per_head + value.offset..];
                        scores.copy_from_slice(&bias[h * n * m..(h + 1) * n * m]);
                        let (q, k_t) = (rows(q, ql), transposed(k, kl));
                        multiply((n, m, width), q, k_t, StartValue::Kept, scores, m);
                        softmax(scores, m);
                        let (p, v) = (rows(scores, m), rows(v, vl));
                        let out = &mut out[h * value_width..];
                        multiply((n, value_width, m), p, v, StartValue::Zero, out, ol);
                    }
                    activate(activation, out);
                },
            );
        },
    )?;
    Tensor::from_vec(out, (b, n, ol), query.tokens.device())
}

/// Max pooling of `x` (b, s, s, c), whose values must be at least 0: (b, s', s', c).
pub fn max_pool(x: &Tensor, window: Window) -> Result<Tensor> {
    let (b, s, _, c) = x.dims4()?;
    if !fused(x)? {
        return stock::max_pool(x, window);
    }
    let out = window.out;
    let mut y = vec![0.0_f32; b * out * out * c];
    slices([x], |[x]| {
        y.par_chunks_mut(out * c).enumerate().for_each(|(row, y)| {
            let image = &x[row / out * s * s * c..][..s * s * c];
            let (taps, first) = window.taps(row % out, s);
            let lines = image[first * s * c..][..taps.len() * s * c].chunks_exact(s * c);
            vectorised(
                #[inline(always)]
                || {
                    for line in lines {
                        for (i, y) in y.chunks_exact_mut(c).enumerate() {
                            let (taps, first) = window.taps(i, s);
                            for x in line[first * c..][..taps.len() * c].chunks_exact(c) {
                                y.iter_mut().zip(x).for_each(|(y, x)| *y = y.max(*x));
                            }
                        }
                    }
                },
            );
        });
    })?;
    Tensor::from_vec(y, (b, out, out, c), x.device())
}

/// The mean of `x` (b, n, c) over its `n` rows: (b, c).
pub fn mean_rows(x: &Tensor) -> Result<Tensor> {
    let (b, n, c) = x.dims3()?;
    if !fused(x)? {
        return x.mean(1);
    }
    let mut y = vec![0.0; b * c];
    slices([x], |[x]| {
        y.par_chunks_mut(c)
            .zip(x.par_chunks(n * c))
            .for_each(|(y, x)| {
                vectorised(
                    #[inline(always)]
                    || {
                        for row in x.chunks_exact(c) {
                            for (y, x) in y.iter_mut().zip(row) {
                                *y += x;
                            }
                        }
                        for y in y.iter_mut() {
                            *y /= n as f32;
                        }
                    },
                );
            });
    })?;
    Tensor::from_vec(y, (b, c), x.device())
}

/// True if the fused operators support `x`.
fn fused(x: &Tensor) -> Result<bool> {
    if x.track_op() {
        candle_core::bail!(
            "this network is inference-only and gives no gradient; detach its input"
        );
    }
    wave_ops::simd().map_err(candle_core::Error::wrap)?;
    Ok(x.device().is_cpu() && x.dtype() == DType::F32)
}

/// The right-hand side (k, n) of products that several threads compute, some rows each: copied once if that
/// pays off.
enum Weight<'a> {
    Copied(Right, (usize, usize)),
    InPlace(&'a [f32], (usize, usize)),
}

impl<'a> Weight<'a> {
    /// For products of at most `rows` rows.
    fn new(w: &'a [f32], (k, n): (usize, usize), rows_of_product: usize) -> Weight<'a> {
        if reads_in_place((rows_of_product, n, k)) {
            Weight::InPlace(w, (k, n))
        } else {
            Weight::Copied(Right::new((k, n), rows(w, n)), (k, n))
        }
    }

    /// `y = start + x W`: `x` (m, k), `y` (m, n).
    fn multiply(&self, x: &[f32], start: StartValue, y: &mut [f32]) {
        match *self {
            Weight::Copied(ref right, (k, n)) => {
                multiply_copied(y.len() / n, rows(x, k), right, start, y, n);
            }
            Weight::InPlace(w, (k, n)) => {
                multiply((y.len() / n, n, k), rows(x, k), rows(w, n), start, y, n);
            }
        }
    }
}

/// Calls `f` on the values of `f32` tensors, after copying any that are not contiguous or not on the CPU.
fn slices<R, const N: usize>(tensors: [&Tensor; N], f: impl FnOnce([&[f32]; N]) -> R) -> Result<R> {
    if tensors.iter().any(|t| t.track_op()) {
        candle_core::bail!(
            "this network is inference-only and gives no gradient; detach its weights"
        );
    }
    let tensors = tensors.map(|t| t.to_device(&Device::Cpu));
    let tensors = tensors.into_iter().collect::<Result<Vec<_>>>()?;
    with_slices(std::array::from_fn(|i| &tensors[i]), f)
}

#[cfg(test)]
#[path = "frozen_tests.rs"]
mod tests;
