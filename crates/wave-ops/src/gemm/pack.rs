//! Right sides in the order in which the kernel reads them.

use super::{Element, Mat};
use crate::buffer::Buffer;
use crate::cpu::Simd;
use pulp::bytemuck;
use std::marker::PhantomData;

/// A matrix (k, n) cut into panels of neighbouring columns, each panel row by row; the last one is
/// filled up to whole registers with zeros.
pub(crate) struct Packed<T> {
    pub(super) simd: Simd,
    pub(super) k: usize,
    pub(super) n: usize,
    data: Buffer,
    element: PhantomData<T>,
}

/// Rows and columns transposed at a time.
const BLOCK: usize = 16;

impl<T: Element> Packed<T> {
    /// Copies `b` (k, n).
    pub(crate) fn new(simd: Simd, (k, n): (usize, usize), b: Mat<T>) -> Packed<T> {
        assert!(b.holds(k, n), "B ({k}, {n}) exceeds its slice");
        let (width, lanes) = T::panel(simd);
        let mut data = Buffer::stale(k * n.next_multiple_of(lanes));
        let panels = bytemuck::cast_slice_mut::<f32, T>(&mut data).chunks_mut((k * width).max(1));
        crate::simd::dispatch_on(
            simd,
            #[inline(always)]
            || {
                for (j, panel) in panels.enumerate() {
                    let columns = width.min(n - j * width);
                    if b.col_stride == 1 {
                        copy(b, j * width, columns, panel, panel.len() / k);
                    } else {
                        transpose(b, j * width, columns, panel, panel.len() / k);
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

/// Fills a panel with the `columns` of `b` from `first` on, from contiguous rows.
#[inline(always)]
fn copy<T: Element>(b: Mat<T>, first: usize, columns: usize, panel: &mut [T], width: usize) {
    for (p, row) in panel.chunks_exact_mut(width).enumerate() {
        let from = &b.data[p * b.row_stride + first..][..columns];
        row[..columns].copy_from_slice(from);
        row[columns..].fill(T::zeroed());
    }
}

/// The same from columns that are contiguous, or from any others.
#[inline(always)]
fn transpose<T: Element>(b: Mat<T>, first: usize, columns: usize, panel: &mut [T], width: usize) {
    for (i, rows) in panel.chunks_mut(BLOCK * width).enumerate() {
        let p0 = i * BLOCK;
        let count = rows.len() / width;
        for j0 in (0..width).step_by(BLOCK) {
            let mut block = [[T::zeroed(); BLOCK]; BLOCK];
            let across = BLOCK.min(width - j0);
            for (j, block) in block.iter_mut().enumerate().take(across) {
                if j0 + j < columns {
                    let start = p0 * b.row_stride + (first + j0 + j) * b.col_stride;
                    if b.row_stride == 1 {
                        block[..count].copy_from_slice(&b.data[start..start + count]);
                    } else {
                        for p in 0..count {
                            block[p] = b.data[start + p * b.row_stride];
                        }
                    }
                }
            }
            for (p, row) in rows.chunks_exact_mut(width).enumerate() {
                for j in 0..across {
                    row[j0 + j] = block[j][p];
                }
            }
        }
    }
}
