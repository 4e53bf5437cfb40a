//! Affine maps over the last dimension, and the patch embedding.

use crate::arithmetic::Precision;
use crate::cpu::current;
use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::gemm::{Mat, Packed, StartValue, gemm, gemm_packed, rows, transposed};
use crate::shape::misfit;
use crate::simd::{add_column_sums, vectorised};
use crate::stock;
use crate::storage::with_slices;
use crate::threads::{sum_over, thread_ranges};
use candle_core::{Layout, Result, Shape, Tensor};
use rayon::prelude::*;

/// `x W^T + b`: `x` (.., in), `weight` (out, in), `bias` (out) give (.., out).
pub fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    apply(Linear, [x, weight, bias], || stock::linear(x, weight, bias))
}

/// Embeds patches and adds positions: row `p + i` of each output is `patches[i] W^T + table[p + i]`,
/// and the first `p` rows are taken from the table (a class token).
///
/// # Shapes
/// `patches` (b, n, in), `weight` (out, in), `table` (p + n, out); the result is (b, p + n, out).
///
/// On a GPU the product is in `precision`; on a CPU, where it is a small part of the work, in `f32`.
#[cfg_attr(not(gpu), expect(unused_variables))]
pub fn embed(
    precision: Precision,
    patches: &Tensor,
    weight: &Tensor,
    table: &Tensor,
) -> Result<Tensor> {
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&[patches, weight, table])? {
        return crate::gpu::embed(place, precision.into(), patches, weight, table);
    }
    apply(Embed, [patches, weight, table], || {
        stock::embed(patches, weight, table)
    })
}

struct Linear;

impl Operator<3> for Linear {
    const NAME: &'static str = "linear";

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, lw, lb]: [&Layout; 3]) -> Result<Output> {
        let (n, k) = lw.shape().dims2()?;
        let mut shape = lx.dims().to_vec();
        match shape.last_mut() {
            Some(last) if *last == k && b.len() == n => *last = n,
            _ => return misfit("linear", [lx, lw, lb].map(Layout::dims), ""),
        }
        let m = x.len() / k;
        let chunk = m.div_ceil(rayon::current_num_threads()).max(1);
        let map = |_| (transposed(w, k), StartValue::Row(b));
        Ok((map_rows(x, m, chunk, (1, k, n), map), shape.into()))
    }

    fn backward(&self, arguments: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let (o, k) = arguments[1].dims2()?;
        let m = dy.elem_count() / o;
        let chunk = m.div_ceil(rayon::current_num_threads()).max(1);
        map_gradients(arguments, dy, (1, k, o), [chunk, chunk])
    }
}

/// Maps `m` rows, in chunks: map `i` of `(n, inputs, outputs)` is a matrix (inputs, outputs) and the value
/// added to the product.
///
/// # Shapes
/// `x` (m, n, inputs) gives (m, n, outputs).
pub(crate) fn map_rows<'a>(
    x: &[f32],
    m: usize,
    chunk: usize,
    (n, k, o): (usize, usize, usize),
    map: impl Fn(usize) -> (Mat<'a>, StartValue<'a>) + Sync,
) -> Vec<f32> {
    let mut y = vec![0.0; m * n * o];
    let chunks = y.par_chunks_mut(chunk * n * o);
    chunks.zip(x.par_chunks(chunk * n * k)).for_each(|(y, x)| {
        let size = (y.len() / (n * o), o, k);
        for i in 0..n {
            let ((w, start), x) = (map(i), rows(&x[i * k..], n * k));
            gemm(current(), size, x, w, start, &mut y[i * o..], n * o);
        }
    });
    y
}

/// The gradients of [`map_rows`] with weights (n, outputs, inputs) and biases (n, outputs):
/// `dx = dy W`, `dW = dy^T x`, `db = sum of the rows of dy`. Rows are split over the threads; `dx` and `dW` are
/// computed from so many `[rows, rows]` at once.
pub(crate) fn map_gradients(
    [x, w, b]: [&Tensor; 3],
    dy: &Tensor,
    (n, k, o): (usize, usize, usize),
    [chunk, block]: [usize; 2],
) -> Gradients<3> {
    let m = dy.elem_count() / (n * o);
    let (size, wants_dx) = (n * o * k, x.track_op());
    let (dx, grads) = with_slices([x, w, dy], |[x, w, dy]| {
        let map = |i: usize| (rows(&w[i * o * k..], k), StartValue::Zero);
        let dx = wants_dx.then(|| map_rows(dy, m, chunk, (n, o, k), map));
        let share = m.div_ceil(rayon::current_num_threads()).max(1);
        let shares = x.chunks(share * n * k).zip(dy.chunks(share * n * o));
        let grads = sum_over(size + n * o, shares.collect(), |(x, dy), grads| {
            let (dw, db) = grads.split_at_mut(size);
            let blocks = x.chunks(block * n * k).zip(dy.chunks(block * n * o));
            for (at, (x, dy)) in blocks.enumerate() {
                let start = match at {
                    0 => StartValue::Zero,
                    _ => StartValue::Kept,
                };
                let size = (o, k, dy.len() / (n * o));
                for (i, dw) in dw.chunks_exact_mut(o * k).enumerate() {
                    let (dy_t, x) = (transposed(&dy[i * o..], n * o), rows(&x[i * k..], n * k));
                    gemm(current(), size, dy_t, x, start, dw, k);
                }
            }
            vectorised!(add_column_sums(dy, db));
        });
        (dx, grads)
    })?;
    let (dw, db) = grads.split_at(size);
    gradients([x, w, b], [dx, Some(dw.to_vec()), Some(db.to_vec())])
}

struct Embed;

/// `[b, n, k, tokens, d]` for patches (b, n, k), a weight (d, k) and a table (tokens, d), if they fit each other.
pub(crate) fn embedding_sizes([patches, weight, table]: [&Shape; 3]) -> Result<[usize; 5]> {
    let ((b, n, k), weight, table) = (patches.dims3()?, weight.dims2()?, table.dims2()?);
    let (tokens, d) = table;
    if weight != (d, k) || tokens < n {
        let patches = (n, k);
        candle_core::bail!(
            "patches {patches:?} do not fit weight {weight:?} and positions {table:?}"
        );
    }
    Ok([b, n, k, tokens, d])
}

impl Operator<3> for Embed {
    const NAME: &'static str = "embed";

    fn forward(&self, [x, w, table]: [&[f32]; 3], [lx, lw, lt]: [&Layout; 3]) -> Result<Output> {
        let [b, n, k, tokens, d] = embedding_sizes([lx, lw, lt].map(Layout::shape))?;
        let first = (tokens - n) * d;
        let mut y = vec![0.0; b * tokens * d];
        let w_t = Packed::new(current(), (k, d), transposed(w, k));
        let samples = 16.min(b.div_ceil(rayon::current_num_threads())).max(1);
        y.par_chunks_mut(samples * tokens * d)
            .zip(x.par_chunks(samples * n * k))
            .for_each(|(y, x)| {
                for (y, x) in y.chunks_exact_mut(tokens * d).zip(x.chunks_exact(n * k)) {
                    y.copy_from_slice(table);
                    let y = &mut y[first..];
                    gemm_packed(n, rows(x, k), &w_t, StartValue::Kept, y, d);
                }
            });
        Ok((y, (b, tokens, d).into()))
    }

    /// `dW = sum over samples dy^T x`, `d table = sum over samples dy`; images need no gradient.
    fn backward(&self, [x, w, table]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let ((b, n, k), (tokens, d)) = (x.dims3()?, table.dims2()?);
        if x.track_op() {
            candle_core::bail!("the patch embedding has no gradient for its images");
        }
        let grads = with_slices([x, dy], |[x, dy]| {
            sum_over(d * k + tokens * d, thread_ranges(b), |range, grads| {
                let (dw, dt) = grads.split_at_mut(d * k);
                for i in range {
                    let x = &x[i * n * k..(i + 1) * n * k];
                    let dy = &dy[i * tokens * d..(i + 1) * tokens * d];
                    let a = transposed(&dy[(tokens - n) * d..], d);
                    gemm(current(), (d, k, n), a, rows(x, k), StartValue::Kept, dw, k);
                    vectorised!(add_column_sums(dy, dt));
                }
            })
        })?;
        let (dw, dt) = grads.split_at(d * k);
        gradients([x, w, table], [None, Some(dw.to_vec()), Some(dt.to_vec())])
    }
}
