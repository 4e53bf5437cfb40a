//! Parallel linear layers, one for each network of a population.

use crate::cpu::current;
use crate::fused::{Gradients, Operator, Output, apply};
use crate::gemm::{Packed, StartValue, gemm_packed, transposed};
use crate::linear::{map_gradients, map_rows};
use crate::shape::misfit;
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

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
    apply(LinearEach, [x, weight, bias], || {
        let x = x.transpose(0, 1)?.contiguous()?; // (networks, m, in)
        let y = x.matmul(&weight.transpose(1, 2)?.contiguous()?)?;
        y.transpose(0, 1)?.broadcast_add(bias)
    })
}

struct LinearEach;

impl Operator<3> for LinearEach {
    const NAME: &'static str = "linear-each";

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, lw, _]: [&Layout; 3]) -> Result<Output> {
        let ((m, n, k), (_, o, _)) = (lx.shape().dims3()?, lw.shape().dims3()?);
        // Copied once for all rows, into the layout that products read.
        let copy = |i: usize| Packed::new(current(), (k, o), transposed(&w[i * o * k..], k));
        let weights: Vec<Packed<f32>> = (0..n).into_par_iter().map(copy).collect();
        let y = map_rows(x, (m, ROWS), (n, k, o), |i, m, x, y| {
            let bias = StartValue::Row(&b[i * o..(i + 1) * o]);
            gemm_packed(m, x, &weights[i], bias, y, n * o);
        });
        Ok((y, (m, n, o).into()))
    }

    fn backward(&self, arguments: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let ((m, n, o), (_, _, k)) = (dy.dims3()?, arguments[0].dims3()?);
        map_gradients(arguments, dy, (m, ROWS), (n, k, o))
    }
}
