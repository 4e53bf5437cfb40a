//! The parameters of a layer within their slabs, and its matrices packed for products.

use crate::arithmetic::Precision;
use crate::bf16::Pair;
use crate::cpu::current;
use crate::gemm::{Mat, Packed, Rounded, StartValue, gemm_packed, rows, transposed};
use crate::profile::{Part, part};
use crate::shape::BlocksShape;
use std::ops::{DerefMut, Range};

/// The parameters of all layers, (depth, size) each.
pub(super) type Slabs<'a> = [&'a [f32]; 12];

/// The gradients of some layers' parameters.
pub(super) type SlabsMut<'a> = [&'a mut [f32]; 12];

/// Weight and bias of norm1, qkv, proj, norm2, fc1 and fc2.
pub(super) type Pairs<T> = [[T; 2]; 6];

/// The parameters of one layer.
pub(super) fn layer<'a>(shape: &BlocksShape, slabs: &Slabs<'a>, layer: usize) -> Pairs<&'a [f32]> {
    let sizes = shape.sizes();
    let part = |i: usize| &slabs[i][layer * sizes[i]..][..sizes[i]];
    std::array::from_fn(|i| [part(2 * i), part(2 * i + 1)])
}

/// The gradients of one layer.
pub(super) fn pairs<'a, 'b>(slabs: &'b mut SlabsMut<'a>) -> &'b mut Pairs<&'a mut [f32]> {
    let (pairs, _) = slabs.as_chunks_mut::<2>();
    pairs.try_into().expect("twelve tensors are six pairs")
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
    fn new(precision: Precision, size: (usize, usize), w: Mat<f32>) -> Weight {
        match precision {
            Precision::F32 => Weight::F32(Packed::new(current(), size, w)),
            Precision::Bf16 => Weight::Bf16(Packed::rounded(current(), size, w)),
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
                let x = Rounded::new(rows(x, k), m, k, w.depth());
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
    precision: Precision,
    shape: &BlocksShape,
    &[_, qkv, proj, _, fc1, fc2]: &Pairs<&[f32]>,
    direction: Direction,
) -> LayerWeights {
    let (d, h) = (shape.width, shape.hidden);
    // Forward y = x W^T, backward dx = dy W, with a weight W (n, k).
    let weight = |[w, _]: [&[f32]; 2], (n, k): (usize, usize)| match direction {
        Direction::Forward => Weight::new(precision, (k, n), transposed(w, k)),
        Direction::Backward => Weight::new(precision, (n, k), rows(w, k)),
    };
    let ((qkv, proj), (fc1, fc2)) = rayon::join(
        || (weight(qkv, (3 * d, d)), weight(proj, (d, d))),
        || rayon::join(|| weight(fc1, (h, d)), || weight(fc2, (d, h))),
    );
    [qkv, proj, fc1, fc2]
}
