//! Affine maps side by side, one for each network of a population.

use crate::cpu::current;
use crate::fused::{Operator, Output, apply, gradients};
use crate::gemm::{StartValue, gemm, rows, transposed};
use crate::simd::{add_column_sums, vectorised};
use crate::storage::with_slices;
use crate::threads::sum_over;
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// Rows that are worked on for all networks before the next: they stay in the cache, and each is in a
/// page of memory of its own.
const ROWS: usize = 64;

/// `x_n W_n^T + b_n` for every network n.
///
/// The networks lie side by side within a row, so that a depthwise convolution sees all their
/// channels as one image's.
///
/// # Shapes
/// `x` (m, networks, in), `weight` (networks, out, in) and `bias` (networks, out) give
/// (m, networks, out).
///
/// # Errors
/// When the shapes disagree.
pub fn linear_each(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let ((_, n, k), (n_w, o, k_w)) = (x.dims3()?, weight.dims3()?);
    if (n, k) != (n_w, k_w) || bias.dims() != [n, o] {
        candle_core::bail!(
            "affine maps of {:?} with weight {:?} and bias {:?}; expected (m, networks, in), \
             (networks, out, in) and (networks, out)",
            x.dims(),
            weight.dims(),
            bias.dims()
        );
    }
    apply(LinearEach, [x, weight, bias], stock)
}

fn stock(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let x = x.transpose(0, 1)?.contiguous()?; // (networks, m, in)
    let y = x.matmul(&weight.transpose(1, 2)?.contiguous()?)?;
    y.transpose(0, 1)?.broadcast_add(bias)
}

struct LinearEach;

/// Sizes: networks, inputs, outputs.
#[derive(Clone, Copy)]
struct Sizes {
    n: usize,
    k: usize,
    o: usize,
}

impl Sizes {
    /// Rows of blocks for the threads to take: (rows of x, rows of y).
    fn block(self, m: usize) -> usize {
        m.div_ceil(rayon::current_num_threads()).clamp(1, ROWS)
    }

    fn forward(self, x: &[f32], w: &[f32], b: &[f32]) -> Vec<f32> {
        let Sizes { n, k, o } = self;
        let m = x.len() / (n * k);
        let mut y = vec![0.0; m * n * o];
        let block = self.block(m);
        y.par_chunks_mut(block * n * o)
            .zip(x.par_chunks(block * n * k))
            .for_each(|(y, x)| {
                let size = (y.len() / (n * o), o, k);
                for i in 0..n {
                    let x = rows(&x[i * k..], n * k);
                    let w = transposed(&w[i * o * k..(i + 1) * o * k], k);
                    let start = StartValue::Row(&b[i * o..(i + 1) * o]);
                    gemm(current(), size, x, w, start, &mut y[i * o..], n * o);
                }
            });
        y
    }

    /// `dx_n = dy_n W_n`.
    fn dx(self, w: &[f32], dy: &[f32]) -> Vec<f32> {
        let Sizes { n, k, o } = self;
        let m = dy.len() / (n * o);
        let mut dx = vec![0.0; m * n * k];
        let block = self.block(m);
        dx.par_chunks_mut(block * n * k)
            .zip(dy.par_chunks(block * n * o))
            .for_each(|(dx, dy)| {
                let size = (dx.len() / (n * k), k, o);
                for i in 0..n {
                    let dy = rows(&dy[i * o..], n * o);
                    let w = rows(&w[i * o * k..(i + 1) * o * k], k);
                    gemm(
                        current(),
                        size,
                        dy,
                        w,
                        StartValue::Zero,
                        &mut dx[i * k..],
                        n * k,
                    );
                }
            });
        dx
    }

    /// `dW_n = dy_n^T x_n`, then the sums of the columns of dy; rows split over the threads.
    fn dw(self, x: &[f32], dy: &[f32]) -> Vec<f32> {
        let Sizes { n, k, o } = self;
        let m = dy.len() / (n * o);
        let share = m.div_ceil(rayon::current_num_threads()).max(1);
        let shares = x.chunks(share * n * k).zip(dy.chunks(share * n * o));
        sum_over(
            n * o * k + n * o,
            shares.collect(),
            |(x, dy): (&[f32], &[f32]), grads| {
                let (dw, db) = grads.split_at_mut(n * o * k);
                for (x, dy) in x.chunks(ROWS * n * k).zip(dy.chunks(ROWS * n * o)) {
                    let size = (o, k, dy.len() / (n * o));
                    for i in 0..n {
                        let (dy_t, x) = (transposed(&dy[i * o..], n * o), rows(&x[i * k..], n * k));
                        let dw = &mut dw[i * o * k..(i + 1) * o * k];
                        gemm(current(), size, dy_t, x, StartValue::Kept, dw, k);
                    }
                }
                vectorised!(add_column_sums(dy, db));
            },
        )
    }
}

impl Operator for LinearEach {
    fn name(&self) -> &'static str {
        "linear-each"
    }

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, lw, _]: [&Layout; 3]) -> Result<Output> {
        let ((m, n, k), (_, o, _)) = (lx.shape().dims3()?, lw.shape().dims3()?);
        let y = match x.is_empty() {
            true => vec![0.0; m * n * o],
            false => Sizes { n, k, o }.forward(x, w, b),
        };
        Ok((y, (m, n, o).into()))
    }

    fn backward(&self, [x, w, b]: [&Tensor; 3], dy: &Tensor) -> Result<[Option<Tensor>; 3]> {
        let (n, o, k) = w.dims3()?;
        let sizes = Sizes { n, k, o };
        if x.elem_count() == 0 {
            return Ok([Some(x.zeros_like()?), None, None]);
        }
        let wants_dx = x.track_op();
        let (dx, grads) = with_slices([x, w, dy], |[x, w, dy]| {
            (wants_dx.then(|| sizes.dx(w, dy)), sizes.dw(x, dy))
        })?;
        let (dw, db) = grads.split_at(n * o * k);
        gradients([x, w, b], [dx, Some(dw.to_vec()), Some(db.to_vec())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_slopes, difference, random};
    use candle_core::Var;
    use proptest::prelude::*;

    fn case(m: usize, n: usize, k: usize, o: usize) -> [Var; 4] {
        [
            random(1, (m, n, k)),
            random(2, (n, o, k)),
            random(3, (n, o)),
            random(4, (m, n, o)),
        ]
    }

    /// Output and the three gradients of `sum(y * dy)`.
    fn run(
        f: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
        [x, w, b, dy]: &[Var; 4],
    ) -> Vec<Tensor> {
        let y = f(x, w, b).unwrap();
        let loss = (&y * dy.as_tensor()).unwrap().sum_all().unwrap();
        let grads = loss.backward().unwrap();
        let of = |v: &Var| grads.get(v).unwrap().clone();
        vec![y, of(x), of(w), of(b)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn agrees_with_batched_products(
            m in 1usize..150, n in 1usize..6, k in 1usize..20, o in 1usize..36,
        ) {
            let case = case(m, n, k, o);
            let (ours, stock) = (run(linear_each, &case), run(stock, &case));
            for (name, (a, b)) in ["y", "dx", "dw", "db"].iter().zip(ours.iter().zip(&stock)) {
                let d = difference(a, b);
                prop_assert!(d < 1e-4, "{name} differs by {d}");
            }
        }
    }

    #[test]
    fn slopes_are_those_of_differences() {
        let case = case(3, 2, 3, 2);
        let gradients = &run(linear_each, &case)[1..];
        check_slopes(linear_each, &case, gradients, 1e-3);
    }

    #[test]
    fn other_shapes_are_refused() {
        let [x, w, b, _] = case(3, 2, 4, 5);
        let error = linear_each(&x, &w.t().unwrap(), &b).unwrap_err();
        assert!(error.to_string().contains("(networks, out, in)"), "{error}");
        assert!(linear_each(&x, &w, &b.narrow(1, 0, 4).unwrap()).is_err());
    }
}
