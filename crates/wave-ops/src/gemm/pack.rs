//! Right sides in the layout that the kernel reads.

use super::{Element, Mat, Rounded, panel_width};
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

/// Number of rows of a panel filled at a time: as many elements of a column as share a cache line.
const BLOCK: usize = 16;

impl<T: Element> Packed<T> {
    /// Copies `b` (k, n).
    pub(crate) fn new(simd: Simd, (k, n): (usize, usize), b: Mat<T>) -> Packed<T> {
        assert!(b.holds(k, n), "B ({k}, {n}) exceeds its slice");
        let (width, lanes) = (panel_width(T::panel(simd), n), T::panel(simd).1);
        let mut data = Buffer::stale(k * n.next_multiple_of(lanes));
        let panels = bytemuck::cast_slice_mut::<f32, T>(&mut data).chunks_mut((k * width).max(1));
        simd.arch().dispatch(
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

impl Packed<Pair> {
    /// Copies `b` (k, n) rounded to bf16, with neighbours of each column paired: (ceil(k / 2), n).
    pub(crate) fn rounded(simd: Simd, (k, n): (usize, usize), b: Mat<f32>) -> Packed<Pair> {
        let b = Rounded::new(b.transpose(), n, k);
        Packed::new(simd, (k.div_ceil(2), n), b.view().transpose())
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
    b: Mat<T>,
    first: usize,
    columns: usize,
    panel: &mut [T],
    width: usize,
) {
    for (i, rows) in panel.chunks_mut(BLOCK * width).enumerate() {
        let (start, count) = (i * BLOCK, rows.len() / width);
        for j0 in (0..width).step_by(SIDE) {
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

/// Side of the squares that are transposed in registers; divides the width of every register.
const SIDE: usize = 4;

/// The transpose of a square.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn turn<T: Element>(square: [[T; SIDE]; SIDE]) -> [[T; SIDE]; SIDE] {
    use std::arch::x86_64::{__m128, _MM_TRANSPOSE4_PS};
    let [mut a, mut b, mut c, mut d]: [__m128; SIDE] = square.map(bits);
    // SAFETY: every x86-64 CPU has these instructions.
    unsafe { _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d) };
    [a, b, c, d].map(bits)
}

/// The same bits as another type of 16 bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn bits<A: Copy, B: Copy>(value: A) -> B {
    const { assert!(size_of::<A>() == size_of::<B>()) };
    // SAFETY: the sizes are equal, and the types here are plain numbers.
    unsafe { std::mem::transmute_copy(&value) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn turn<T: Element>(square: [[T; SIDE]; SIDE]) -> [[T; SIDE]; SIDE] {
    std::array::from_fn(|p| std::array::from_fn(|j| square[j][p]))
}
