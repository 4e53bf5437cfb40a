//! The one seam to dense matrix products.

/// A strided view of a matrix inside a slice.
#[derive(Clone, Copy)]
pub(crate) struct Mat<'a> {
    data: &'a [f32],
    row_stride: usize,
    col_stride: usize,
}

/// A row-major view whose rows are `stride` apart.
pub(crate) fn rows(data: &[f32], stride: usize) -> Mat<'_> {
    Mat {
        data,
        row_stride: stride,
        col_stride: 1,
    }
}

/// The transpose of a row-major matrix whose rows are `stride` apart; nothing is copied.
pub(crate) fn transposed(data: &[f32], stride: usize) -> Mat<'_> {
    Mat {
        data,
        row_stride: 1,
        col_stride: stride,
    }
}

impl Mat<'_> {
    fn holds(&self, rows: usize, cols: usize) -> bool {
        rows == 0
            || cols == 0
            || (rows - 1) * self.row_stride + (cols - 1) * self.col_stride < self.data.len()
    }
}

/// What happens to the values already in the destination.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Into {
    Overwrite,
    Accumulate,
}

/// `C (+)= scale * A B` on the calling thread; `A` is (m, k), `B` is (k, n), `C` is (m, n) with
/// rows `c_stride` apart.
pub(crate) fn gemm(
    (m, n, k): (usize, usize, usize),
    scale: f32,
    a: Mat,
    b: Mat,
    into: Into,
    c: &mut [f32],
    c_stride: usize,
) {
    if m == 0 || n == 0 {
        return;
    }
    assert!(
        a.holds(m, k) && b.holds(k, n) && c_stride >= n && (m - 1) * c_stride + n <= c.len(),
        "matrix product ({m}, {k}) x ({k}, {n}) exceeds its operands"
    );
    // SAFETY: the assertion above keeps every access inside the three slices, and `c` is borrowed
    // mutably, so it overlaps neither `a` nor `b`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            1,
            c_stride as isize,
            into == Into::Accumulate,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0_f32,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
