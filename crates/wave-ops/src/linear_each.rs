//! Parallel linear layers, one for each network of a population.

use crate::cpu::current;
use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::gemm::{StartValue, gemm, rows, transposed};
use crate::linear::map_rows;
use crate::shape::misfit;
use crate::simd::{add_column_sums, vectorised};
use crate::storage::with_slices;
use crate::threads::sum_over;
use candle_core::{Layout, Result, Tensor};

/// Rows processed for all networks before the next ones: they stay in the cache, and each is in a
/// memory page of its own.
const ROWS: usize = 64;

/// `x_n W_n^T + b_n` for every network n.
///
/// The networks lie side by side within a row, so that a depthwise convolution treats all their
/// channels as those of one image.
///
/// # Shapes
/// `x` (m, networks, in), `weight` (networks, out, in) and `bias` (networks, out) give
/// (m, networks, out).
pub fn linear_each(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let ((_, n, k), (n_w, o, k_w)) = (x.dims3()?, weight.dims3()?);
    if (n, k) != (n_w, k_w) || bias.dims() != [n, o] {
        let expected = "; expected (m, networks, in), (networks, out, in) and (networks, out)";
        return misfit("affine maps", [x, weight, bias].map(Tensor::dims), expected);
    }
    apply(LinearEach, [x, weight, bias], || stock(x, weight, bias))
}

fn stock(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let x = x.transpose(0, 1)?.contiguous()?; // (networks, m, in)
    let y = x.matmul(&weight.transpose(1, 2)?.contiguous()?)?;
    y.transpose(0, 1)?.broadcast_add(bias)
}

struct LinearEach;

/// Number of rows that a thread processes at a time.
fn block(m: usize) -> usize {
    m.div_ceil(rayon::current_num_threads()).clamp(1, ROWS)
}

impl Operator<3> for LinearEach {
    const NAME: &'static str = "linear-each";

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, lw, _]: [&Layout; 3]) -> Result<Output> {
        let ((m, n, k), (_, o, _)) = (lx.shape().dims3()?, lw.shape().dims3()?);
        let map = |i: usize| {
            let (w, b) = (&w[i * o * k..(i + 1) * o * k], &b[i * o..(i + 1) * o]);
            (transposed(w, k), StartValue::Row(b))
        };
        let y = match x.is_empty() {
            true => vec![0.0; m * n * o],
            false => map_rows(x, m, block(m), (n, k, o), map),
        };
        Ok((y, (m, n, o).into()))
    }

    /// `dx_n = dy_n W_n`, `dW_n = dy_n^T x_n`, `db` the sums of the columns of dy; rows split over the threads.
    fn backward(&self, [x, w, b]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let (n, o, k) = w.dims3()?;
        if x.elem_count() == 0 {
            return Ok([Some(x.zeros_like()?), None, None]);
        }
        let (m, wants_dx) = (x.dim(0)?, x.track_op());
        let (dx, grads) = with_slices([x, w, dy], |[x, w, dy]| {
            let map = |i: usize| (rows(&w[i * o * k..(i + 1) * o * k], k), StartValue::Zero);
            let dx = wants_dx.then(|| map_rows(dy, m, block(m), (n, o, k), map));
            let share = m.div_ceil(rayon::current_num_threads()).max(1);
            let shares = x.chunks(share * n * k).zip(dy.chunks(share * n * o));
            let grads = sum_over(n * o * k + n * o, shares.collect(), |(x, dy), grads| {
                let (dw, db) = grads.split_at_mut(n * o * k);
                for (x, dy) in x.chunks(ROWS * n * k).zip(dy.chunks(ROWS * n * o)) {
                    let size = (o, k, dy.len() / (n * o));
                    for (i, dw) in dw.chunks_exact_mut(o * k).enumerate() {
                        let (dy_t, x) = (transposed(&dy[i * o..], n * o), rows(&x[i * k..], n * k));
                        gemm(current(), size, dy_t, x, StartValue::Kept, dw, k);
                    }
                }
                vectorised!(add_column_sums(dy, db));
            });
            (dx, grads)
        })?;
        let (dw, db) = grads.split_at(n * o * k);
        gradients([x, w, b], [dx, Some(dw.to_vec()), Some(db.to_vec())])
    }
}
