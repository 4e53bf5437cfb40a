//! Dense matrix products, all computed here.
//!
//! `C = start + A B` on the calling thread: `A` (m, k), `B` (k, n), `C` (m, n). A tile of `C`, a
//! few rows by a few vector registers, stays in registers while the kernel runs over `k`
//! ([`kernel`]); `B` is read in panels as wide as a tile, and copied into that layout if necessary
//! ([`pack`]). Elements are `f32` or [`Pair`]s of bf16, which are multiplied and added at once: the
//! loops around the kernel treat a pair like any other element, and `k` counts pairs.

mod kernel;
mod pack;
mod rate;
#[cfg(target_arch = "x86_64")]
mod tiles;
mod turn;

use crate::bf16::{Pair, pair_columns, pair_rows, pairs};
use crate::buffer::Buffer;
use crate::cpu::Simd;
use kernel::{Product, Right};
pub(crate) use pack::Packed;
pub(crate) use rate::rate;

/// An element of a matrix, four bytes.
pub(crate) trait Element: pulp::bytemuck::Pod + Send + Sync {
    /// Computes the product with the instructions of `simd`, which the CPU must support.
    fn multiply(simd: Simd, product: Product<Self>);
    /// Number of columns in a panel, and in a register.
    fn panel(simd: Simd) -> (usize, usize) {
        kernel::panel(simd)
    }
}

/// Columns per panel of a matrix of `n` columns: at most `widest`, but no wider than needed for the
/// same number of panels, so that the last one is not much narrower.
#[inline(always)]
fn panel_width((widest, lanes): (usize, usize), n: usize) -> usize {
    let panels = n.div_ceil(widest).max(1);
    n.div_ceil(lanes).div_ceil(panels) * lanes
}

/// A strided view of a matrix inside a slice. Its size is passed with each use.
#[derive(Clone, Copy)]
pub struct Mat<'a, T = f32> {
    data: &'a [T],
    row_stride: usize,
    col_stride: usize,
}

/// A row-major view whose rows are `stride` apart.
pub fn rows<T>(data: &[T], stride: usize) -> Mat<'_, T> {
    Mat {
        data,
        row_stride: stride,
        col_stride: 1,
    }
}

/// The transpose of a row-major matrix whose rows are `stride` apart; nothing is copied.
pub fn transposed<T>(data: &[T], stride: usize) -> Mat<'_, T> {
    rows(data, stride).transpose()
}

impl<'a, T> Mat<'a, T> {
    fn holds(&self, rows: usize, cols: usize) -> bool {
        let last = |n: usize, stride: usize| (n - 1).checked_mul(stride);
        let inside = || {
            let (row, col) = (last(rows, self.row_stride)?, last(cols, self.col_stride)?);
            Some(row.checked_add(col)? < self.data.len())
        };
        rows == 0 || cols == 0 || inside() == Some(true)
    }

    fn transpose(self) -> Mat<'a, T> {
        Mat {
            data: self.data,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

/// Number of pairs that `k` values fill, with zeros up to a whole tile where the CPU has tiles.
pub(crate) fn depth(simd: Simd, k: usize) -> usize {
    match (simd, k.div_ceil(2)) {
        #[cfg(target_arch = "x86_64")]
        (Simd::Amx, pairs) if pairs > tiles::SIDE / 2 => pairs.next_multiple_of(tiles::SIDE),
        (_, pairs) => pairs,
    }
}

/// A left factor (m, k) in bf16, with neighbours of a row paired: (m, depth), or the transpose of
/// that if the columns are contiguous.
pub(crate) struct Rounded {
    pairs: Buffer,
    strides: (usize, usize),
}

impl Rounded {
    pub(crate) fn new(a: Mat<f32>, m: usize, k: usize, depth: usize) -> Rounded {
        assert!(a.holds(m, k), "a factor ({m}, {k}) exceeds its slice");
        let (pairs, strides) = if a.col_stride == 1 {
            (
                pair_columns(a.data, (m, k), a.row_stride, depth),
                (depth, 1),
            )
        } else {
            (pair_rows(a.data, (k, m), a.col_stride, depth), (1, m))
        };
        Rounded { pairs, strides }
    }

    pub(crate) fn view(&self) -> Mat<'_, Pair> {
        Mat {
            data: pairs(&self.pairs),
            row_stride: self.strides.0,
            col_stride: self.strides.1,
        }
    }
}

/// The values that a product is added to.
#[derive(Clone, Copy)]
pub enum StartValue<'a> {
    /// Zero: the destination is overwritten.
    Zero,
    /// The current values of the destination.
    Kept,
    /// The same values (n) in every row, as for a bias.
    Row(&'a [f32]),
}

/// `C = start + A B`; `C` has rows `c_stride` apart.
pub(crate) fn gemm<T: Element>(
    simd: Simd,
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Mat<T>,
    start: StartValue,
    c: &mut [f32],
    c_stride: usize,
) {
    assert!(b.holds(k, n), "B ({k}, {n}) exceeds its slice");
    if b.col_stride == 1 && reads_in_place::<T>(simd, (m, n, k), b.row_stride) {
        let right = Right {
            data: b.data,
            row_stride: Some(b.row_stride),
        };
        multiply(simd, (m, n, k), a, right, start, c, c_stride);
    } else {
        let packed = Packed::new(simd, (k, n), b);
        gemm_packed(m, a, &packed, start, c, c_stride);
    }
}

/// [`gemm()`] with factors rounded to bf16, by native bf16 instructions.
pub(crate) fn gemm_rounded(
    simd: Simd,
    (m, n, k): (usize, usize, usize),
    a: Mat<f32>,
    b: Mat<f32>,
    start: StartValue,
    c: &mut [f32],
    c_stride: usize,
) {
    let depth = depth(simd, k);
    let (a, b) = (
        Rounded::new(a, m, k, depth),
        Rounded::new(b.transpose(), n, k, depth),
    );
    let (a, b) = (a.view(), b.view().transpose());
    gemm(simd, (m, n, depth), a, b, start, c, c_stride);
}

/// Number of rows of `A` above which copying `B` pays off, and from which it does if rows of `B` share cache sets.
const DIRECT: usize = 256;
const DIRECT_CROWDED: usize = 128;
/// Number of rows of `B`, times the largest power of two that divides their distance in values, above which they evict
/// each other from the cache.
const CROWDED: usize = 1 << 18;

/// True if products of `m` rows read `B` (k, n) in place, rather than a copy in panels: its rows fill whole registers,
/// and are neither reused much nor a multiple of a large power of two apart, which evicts them from the cache.
pub(crate) fn reads_in_place<T: Element>(
    simd: Simd,
    (m, n, k): (usize, usize, usize),
    row_stride: usize,
) -> bool {
    let (width, lanes) = T::panel(simd);
    let reach = k.saturating_mul(1 << row_stride.trailing_zeros().min(16));
    let crowded = row_stride > width && reach > CROWDED;
    let most = if crowded { DIRECT_CROWDED - 1 } else { DIRECT };
    n.is_multiple_of(lanes) && (m <= most || (n <= width && !crowded))
}

/// [`gemm()`] with a right side that is already packed, and `m` rows.
pub(crate) fn gemm_packed<T: Element>(
    m: usize,
    a: Mat<T>,
    b: &Packed<T>,
    start: StartValue,
    c: &mut [f32],
    c_stride: usize,
) {
    let right = Right {
        data: b.values(),
        row_stride: None,
    };
    multiply(b.simd, (m, b.n, b.k), a, right, start, c, c_stride);
}

fn multiply<T: Element>(
    simd: Simd,
    (m, n, k): (usize, usize, usize),
    a: Mat<T>,
    b: Right<T>,
    start: StartValue,
    c: &mut [f32],
    c_stride: usize,
) {
    if m == 0 || n == 0 {
        return;
    }
    let starts = !matches!(start, StartValue::Row(row) if row.len() != n);
    assert!(
        a.holds(m, k)
            && m.checked_mul(k).is_some()
            && starts
            && c_stride >= n
            && rows(&*c, c_stride).holds(m, n),
        "matrix product ({m}, {k}) x ({k}, {n}) exceeds its operands"
    );
    let product = Product {
        size: (m, n, k),
        a,
        b,
        start,
        c,
        c_stride,
    };
    T::multiply(simd, product);
}

impl Element for Pair {
    fn multiply(simd: Simd, product: Product<Pair>) {
        #[cfg(target_arch = "x86_64")]
        if simd == Simd::Amx && tiles::worthwhile(product.size) {
            // SAFETY: the path in use is supported by the CPU.
            return unsafe { tiles::multiply(product) };
        }
        kernel::multiply_pairs(simd, product);
    }
}

#[cfg(test)]
#[path = "gemm_tests.rs"]
mod tests;
