//! Right sides in the layout that the kernel reads.

use super::turn::{LARGE, SIDE, turn, turn_large};
use super::{Element, Mat, Rounded, depth, panel_width};
use crate::bf16::Pair;
use crate::buffer::Buffer;
use crate::cpu::Simd;
use pulp::bytemuck;
use std::marker::PhantomData;

/// A matrix (k, n) split into panels of neighbouring columns, each stored row by row; the last one
/// is zero-padded to whole registers.
pub(crate) struct Packed<T> {
    pub(super) simd: Simd,
    pub(super) k: usize,
    pub(super) n: usize,
    data: Buffer,
    element: PhantomData<T>,
}

impl<T: Element> Packed<T> {
    /// Copies `b` (k, n).
    pub(crate) fn new(simd: Simd, (k, n): (usize, usize), b: Mat<T>) -> Packed<T> {
        assert!(b.holds(k, n), "B ({k}, {n}) exceeds its slice");
        let (width, lanes) = (panel_width(T::panel(simd), n), T::panel(simd).1);
        let size = n.checked_next_multiple_of(lanes);
        let size = size.and_then(|n| n.checked_mul(k));
        let mut data = Buffer::stale(size.expect("a copy of B fits into memory"));
        let panels = bytemuck::cast_slice_mut::<f32, T>(&mut data).chunks_mut((k * width).max(1));
        simd.arch().dispatch(
            #[inline(always)]
            || {
                for (j, panel) in panels.enumerate() {
                    let columns = width.min(n - j * width);
                    if b.col_stride == 1 {
                        copy(b, j * width, columns, panel, panel.len() / k);
                    } else {
                        transpose(simd, b, j * width, columns, panel, panel.len() / k);
                    }
                }
            },
        );
        Packed {
            simd,
            k,
            n,
            data,
            element: PhantomData,
        }
    }

    pub(super) fn values(&self) -> &[T] {
        bytemuck::cast_slice(&self.data)
    }
}

impl Packed<Pair> {
    /// Copies `b` (k, n) rounded to bf16, with neighbours of each column paired: ([`depth`], n).
    pub(crate) fn rounded(simd: Simd, (k, n): (usize, usize), b: Mat<f32>) -> Packed<Pair> {
        let depth = depth(simd, k);
        let b = Rounded::new(b.transpose(), n, k, depth);
        Packed::new(simd, (depth, n), b.view().transpose())
    }

    /// Number of pairs in a column.
    pub(crate) fn depth(&self) -> usize {
        self.k
    }
}

/// Fills a panel with `columns` columns of `b`, starting at `first`, from contiguous rows.
#[inline(always)]
fn copy<T: Element>(b: Mat<T>, first: usize, columns: usize, panel: &mut [T], width: usize) {
    for (p, row) in panel.chunks_exact_mut(width).enumerate() {
        let from = &b.data[p * b.row_stride + first..][..columns];
        row[..columns].copy_from_slice(from);
        row[columns..].fill(T::zeroed());
    }
}

/// The same from columns that are contiguous, or with any other strides.
#[inline(always)]
pub(super) fn transpose<T: Element>(
    simd: Simd,
    b: Mat<T>,
    first: usize,
    columns: usize,
    panel: &mut [T],
    width: usize,
) {
    for (i, rows) in panel.chunks_mut(LARGE * width).enumerate() {
        let (start, count) = (i * LARGE, rows.len() / width);
        let turned = if b.row_stride == 1 && count == LARGE {
            let columns = columns - columns % LARGE;
            let from = b.data.get(start + first * b.col_stride..).unwrap_or(&[]);
            turn_large(simd, from, b.col_stride, columns, rows, width)
        } else {
            0
        };
        for j0 in (turned..width).step_by(SIDE) {
            for p0 in (0..count).step_by(SIDE) {
                let at = |p: usize, j: usize| p * b.row_stride + (first + j) * b.col_stride;
                if b.row_stride == 1 && j0 + SIDE <= columns && p0 + SIDE <= count {
                    let column = |j: usize| {
                        let from = at(start + p0, j0 + j);
                        std::array::from_fn(|p| b.data[from..from + SIDE][p])
                    };
                    let square = turn(std::array::from_fn(column));
                    for (p, values) in square.into_iter().enumerate() {
                        rows[(p0 + p) * width + j0..][..SIDE].copy_from_slice(&values);
                    }
                } else {
                    for p in p0..count.min(p0 + SIDE) {
                        for j in j0..j0 + SIDE {
                            rows[p * width + j] = if j < columns {
                                b.data[at(start + p, j)]
                            } else {
                                T::zeroed()
                            };
                        }
                    }
                }
            }
        }
    }
}
