//! Where the parameters of a layer lie, and the matrices ready for their products.

use super::{BlocksShape, Precision};
use crate::bf16::{Pair, pair_columns, pair_rows, pairs};
use crate::cpu::Simd;
use crate::gemm::{Packed, Start, gemm, gemm_packed, rows, transposed};
use rayon::prelude::*;
use std::ops::Range;

pub(super) const NORM1_W: usize = 0;
pub(super) const NORM1_B: usize = 1;
pub(super) const QKV_W: usize = 2;
pub(super) const QKV_B: usize = 3;
pub(super) const PROJ_W: usize = 4;
pub(super) const PROJ_B: usize = 5;
pub(super) const NORM2_W: usize = 6;
pub(super) const NORM2_B: usize = 7;
pub(super) const FC1_W: usize = 8;
pub(super) const FC1_B: usize = 9;
pub(super) const FC2_W: usize = 10;
pub(super) const FC2_B: usize = 11;

/// One layer's parameters inside the flat ones, or their gradients.
pub(super) struct LayerRanges([Range<usize>; 12]);

impl LayerRanges {
    pub(super) fn new(shape: &BlocksShape, layer: usize) -> LayerRanges {
        let mut slab = 0;
        LayerRanges(shape.sizes().map(|size| {
            let start = slab + layer * size;
            slab += shape.depth * size;
            start..start + size
        }))
    }

    pub(super) fn of<'a>(&self, i: usize, flat: &'a [f32]) -> &'a [f32] {
        &flat[self.0[i].clone()]
    }

    pub(super) fn of_mut<'a>(&self, i: usize, flat: &'a mut [f32]) -> &'a mut [f32] {
        &mut flat[self.0[i].clone()]
    }

    /// A norm's weight and bias gradients.
    pub(super) fn norm_mut<'a>(
        &self,
        weight: usize,
        flat: &'a mut [f32],
    ) -> (&'a mut [f32], &'a mut [f32]) {
        let (w, b) = (self.0[weight].clone(), self.0[weight + 1].clone());
        let (head, tail) = flat.split_at_mut(b.start);
        (&mut head[w], &mut tail[..b.len()])
    }
}

/// How the matrix products of a pass are computed.
#[derive(Clone, Copy)]
pub(super) struct Arithmetic {
    pub(super) simd: Simd,
    pub(super) precision: Precision,
}

impl Arithmetic {
    /// With `f32` where the processor is not faster in bf16.
    pub(super) fn new(simd: Simd, precision: Precision) -> Arithmetic {
        let precision = if simd.has_bf16() {
            precision
        } else {
            Precision::F32
        };
        Arithmetic { simd, precision }
    }

    /// `dW += dy^T x`; `dy` (m, n), `x` (m, k), `dW` (n, k).
    pub(super) fn weight_gradient(
        self,
        (m, n, k): (usize, usize, usize),
        dy: &[f32],
        x: &[f32],
        dw: &mut [f32],
    ) {
        match self.precision {
            Precision::F32 => {
                let (dy_t, x) = (transposed(dy, n), rows(x, k));
                gemm(self.simd, (n, k, m), dy_t, x, Start::Kept, dw, k);
            }
            Precision::Bf16 => {
                let (dy, x) = (pair_rows(dy, n), pair_rows(x, k));
                let (dy_t, x) = (transposed(pairs(&dy), n), rows(pairs(&x), k));
                let size = (n, k, m.div_ceil(2));
                gemm(self.simd, size, dy_t, x, Start::Kept, dw, k);
            }
        }
    }
}

/// A matrix that many rows are multiplied by.
pub(super) enum Weight {
    F32(Packed<f32>),
    Bf16(Packed<Pair>),
}

impl Weight {
    /// `W^T` of a weight (n, k), for `y = x W^T`.
    fn turned(with: Arithmetic, w: &[f32], (n, k): (usize, usize)) -> Weight {
        match with.precision {
            Precision::F32 => Weight::F32(Packed::new(with.simd, (k, n), transposed(w, k))),
            Precision::Bf16 => {
                let half = k.div_ceil(2);
                let w = pair_columns(w, k);
                let w_t = transposed(pairs(&w), half);
                Weight::Bf16(Packed::new(with.simd, (half, n), w_t))
            }
        }
    }

    /// A weight (n, k) itself, for `dx = dy W`.
    fn straight(with: Arithmetic, w: &[f32], (n, k): (usize, usize)) -> Weight {
        match with.precision {
            Precision::F32 => Weight::F32(Packed::new(with.simd, (n, k), rows(w, k))),
            Precision::Bf16 => {
                let w = pair_rows(w, k);
                let w = rows(pairs(&w), k);
                Weight::Bf16(Packed::new(with.simd, (n.div_ceil(2), k), w))
            }
        }
    }

    /// `y = start + x W` with this matrix as `W` (k, n); `x` (m, k), `y` (m, n).
    pub(super) fn multiply(
        &self,
        (m, n, k): (usize, usize, usize),
        x: &[f32],
        start: Start,
        y: &mut [f32],
    ) {
        match self {
            Weight::F32(w) => gemm_packed(m, rows(x, k), w, start, y, n),
            Weight::Bf16(w) => {
                let x = pair_columns(x, k);
                gemm_packed(m, rows(pairs(&x), k.div_ceil(2)), w, start, y, n);
            }
        }
    }
}

/// The four matrices of a layer, ready for one direction.
pub(super) struct LayerWeights {
    pub(super) qkv: Weight,
    pub(super) proj: Weight,
    pub(super) fc1: Weight,
    pub(super) fc2: Weight,
}

/// Which way a layer is passed.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

impl LayerWeights {
    /// Copies the matrices of all layers into the order that the kernels read: once per pass, for
    /// all chunks.
    pub(super) fn all(
        with: Arithmetic,
        shape: &BlocksShape,
        flat: &[f32],
        direction: Direction,
    ) -> Vec<LayerWeights> {
        let (d, h) = (shape.width, shape.hidden);
        (0..shape.depth)
            .into_par_iter()
            .map(|layer| {
                let ranges = LayerRanges::new(shape, layer);
                let weight = |i: usize, size: (usize, usize)| match direction {
                    Direction::Forward => Weight::turned(with, ranges.of(i, flat), size),
                    Direction::Backward => Weight::straight(with, ranges.of(i, flat), size),
                };
                LayerWeights {
                    qkv: weight(QKV_W, (3 * d, d)),
                    proj: weight(PROJ_W, (d, d)),
                    fc1: weight(FC1_W, (h, d)),
                    fc2: weight(FC2_W, (d, h)),
                }
            })
            .collect()
    }
}
