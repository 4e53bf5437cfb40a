//! The parameters of a layer within their slabs, and its matrices packed for products.

use crate::arithmetic::{Arithmetic, Precision};
use crate::bf16::Pair;
use crate::gemm::{Mat, Packed, Rounded, StartValue, gemm_packed, rows, transposed};
use crate::profile::{Part, part};
use crate::shape::BlocksShape;
use std::ops::{DerefMut, Range};

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

/// The parameters of all layers, (depth, size) each; or of one layer.
pub(super) type Slabs<'a> = [&'a [f32]; 12];

/// The same for their gradients.
pub(super) type SlabsMut<'a> = [&'a mut [f32]; 12];

/// The parameters of one layer.
pub(super) fn layer<'a>(shape: &BlocksShape, slabs: &Slabs<'a>, layer: usize) -> Slabs<'a> {
    let sizes = shape.sizes();
    std::array::from_fn(|i| &slabs[i][layer * sizes[i]..][..sizes[i]])
}

/// The gradients of consecutive layers.
pub(super) fn layers_mut<'a>(
    shape: &BlocksShape,
    slabs: &'a mut [impl DerefMut<Target = [f32]>; 12],
    layers: Range<usize>,
) -> SlabsMut<'a> {
    let mut sizes = shape.sizes().into_iter();
    slabs.each_mut().map(|slab| {
        let size = sizes.next().unwrap_or(0);
        &mut slab[layers.start * size..layers.end * size]
    })
}

/// A matrix that many rows are multiplied by.
pub(super) enum Weight {
    F32(Packed<f32>),
    Bf16(Packed<Pair>),
}

impl Weight {
    /// A matrix (k, n).
    fn new(with: Arithmetic, size: (usize, usize), w: Mat<f32>) -> Weight {
        match with.precision {
            Precision::F32 => Weight::F32(Packed::new(with.simd, size, w)),
            Precision::Bf16 => Weight::Bf16(Packed::rounded(with.simd, size, w)),
        }
    }

    /// `y = start + x W` with this matrix as `W` (k, n); `x` (m, k), `y` (m, n).
    pub(super) fn multiply(
        &self,
        (m, n, k): (usize, usize, usize),
        x: &[f32],
        start: StartValue,
        y: &mut [f32],
    ) {
        let _measured = part(Part::Products);
        match self {
            Weight::F32(w) => gemm_packed(m, rows(x, k), w, start, y, n),
            Weight::Bf16(w) => {
                let x = Rounded::new(rows(x, k), m, k);
                gemm_packed(m, x.view(), w, start, y, n);
            }
        }
    }
}

/// The matrices qkv, proj, fc1 and fc2 of a layer, packed for one direction.
pub(super) type LayerWeights = [Weight; 4];

/// The direction of a pass through a layer.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// Copies the matrices of a layer into the layout that the kernels read, once per pass for all
/// samples.
pub(super) fn layer_weights(
    with: Arithmetic,
    shape: &BlocksShape,
    parameters: &Slabs,
    direction: Direction,
) -> LayerWeights {
    let (d, h) = (shape.width, shape.hidden);
    // Forward y = x W^T, backward dx = dy W, with a weight W (n, k).
    let weight = |i: usize, (n, k): (usize, usize)| match direction {
        Direction::Forward => Weight::new(with, (k, n), transposed(parameters[i], k)),
        Direction::Backward => Weight::new(with, (n, k), rows(parameters[i], k)),
    };
    let ((qkv, proj), (fc1, fc2)) = rayon::join(
        || (weight(QKV_W, (3 * d, d)), weight(PROJ_W, (d, d))),
        || rayon::join(|| weight(FC1_W, (h, d)), || weight(FC2_W, (d, h))),
    );
    [qkv, proj, fc1, fc2]
}
