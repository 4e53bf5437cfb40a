//! Affine maps over the last dimension, and the patch embedding.

use crate::arithmetic::Precision;
use crate::cpu::current;
use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::gemm::{Mat, Packed, StartValue, gemm, gemm_packed, rows, transposed};
use crate::shape::misfit;
use crate::simd::{add_column_sums, vectorised};
use crate::stock;
use crate::storage::with_slices;
use crate::threads::{share, sum_over, thread_ranges};
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
        let (o, k) = lw.shape().dims2()?;
        let mut shape = lx.dims().to_vec();
        let m = match shape.split_last_mut() {
            Some((last, rows)) if *last == k && b.len() == o => {
                *last = o;
                rows.iter().product()
            }
            _ => return misfit("linear", [lx, lw, lb].map(Layout::dims), ""),
        };
        let y = map_rows(x, (m, usize::MAX), (1, k, o), |_, m, x, y| {
            let start = StartValue::Row(b);
            gemm(current(), (m, o, k), x, transposed(w, k), start, y, o);
        });
        Ok((y, shape.into()))
    }

    fn backward(&self, arguments: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let (o, k) = arguments[1].dims2()?;
        let m = dy.dims()[..dy.rank() - 1].iter().product();
        map_gradients(arguments, dy, (m, usize::MAX), (1, k, o))
    }
}

/// Maps `m` rows, at most `most` of them at once. `map` takes the index of one of `n` maps, a number of rows, their
/// inputs, and their outputs, `n * outputs` apart.
///
/// # Shapes
/// `x` (m, n, inputs) gives (m, n, outputs).
pub(crate) fn map_rows(
    x: &[f32],
    (m, most): (usize, usize),
    (n, k, o): (usize, usize, usize),
    map: impl Fn(usize, usize, Mat, &mut [f32]) + Sync,
) -> Vec<f32> {
    let (mut y, chunk) = (vec![0.0; m * n * o], share(m).min(most));
    // Counted by `y`, since `x` is empty where there are no inputs.
    let chunks = y.par_chunks_mut((chunk * n * o).max(1)).enumerate();
    chunks.for_each(|(at, y)| {
        let (x, count) = (&x[at * chunk * n * k..], y.len() / (n * o));
        for i in 0..n {
            map(i, count, rows(&x[i * k..], n * k), &mut y[i * o..]);
        }
    });
    y
}

/// The gradients of [`map_rows`] with weights (n, outputs, inputs) and biases (n, outputs):
/// `dx = dy W`, `dW = dy^T x`, `db = sum of the rows of dy`. Rows are split over the threads.
pub(crate) fn map_gradients(
    [x, w, b]: [&Tensor; 3],
    dy: &Tensor,
    (m, most): (usize, usize),
    (n, k, o): (usize, usize, usize),
) -> Gradients<3> {
    let (size, wants_dx) = (n * o * k, x.track_op());
    let (dx, mut dw) = with_slices([x, w, dy], |[x, w, dy]| {
        let dx = wants_dx.then(|| {
            map_rows(dy, (m, most), (n, o, k), |i, m, dy, dx| {
                let w = rows(&w[i * o * k..], k);
                gemm(current(), (m, k, o), dy, w, StartValue::Zero, dx, n * k);
            })
        });
        let share = share(m);
        let jobs = (0..m).step_by(share).collect();
        let grads = sum_over(size + n * o, jobs, |first, grads| {
            let (dw, db) = grads.split_at_mut(size);
            let last = m.min(first + share);
            for at in (first..last).step_by(most) {
                let start = match at == first {
                    true => StartValue::Zero,
                    false => StartValue::Kept,
                };
                let count = most.min(last - at);
                for i in 0..n {
                    let dy_t = transposed(&dy[(at * n + i) * o..], n * o);
                    let (x, dw) = (rows(&x[(at * n + i) * k..], n * k), &mut dw[i * o * k..]);
                    gemm(current(), (o, k, count), dy_t, x, start, dw, k);
                }
            }
            vectorised!(add_column_sums(&dy[first * n * o..last * n * o], db));
        });
        (dx, grads)
    })?;
    let db = dw.split_off(size);
    gradients([x, w, b], [dx, Some(dw), Some(db)])
}

struct Embed;

/// `[b, n, k, tokens, d]` for patches (b, n, k), a weight (d, k) and a table (tokens, d), if they fit each other.
pub(crate) fn embedding_sizes([patches, weight, table]: [&Shape; 3]) -> Result<[usize; 5]> {
    let ((b, n, k), weight, table) = (patches.dims3()?, weight.dims2()?, table.dims2()?);
    let (tokens, d) = table;
    if weight != (d, k) || tokens < n || [n, k, d].contains(&0) {
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
        let samples = share(b).min(16);
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
        let mut dw = with_slices([x, dy], |[x, dy]| {
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
        let dt = dw.split_off(d * k);
        gradients([x, w, table], [None, Some(dw), Some(dt)])
    }
}
