//! bf16 products in the AMX tile registers: sixteen rows by up to 48 columns at once.
//!
//! A tile holds 16 rows of 64 bytes. Panels of `B` already hold bf16 pairs in the layout that the
//! instruction reads; rows of `A` must be contiguous and are copied where they are not.

use super::StartValue;
use super::kernel::{BLOCK, Product};
use super::pack::transpose;
use super::panel_width;
use crate::bf16::Pair;
use crate::buffer::Buffer;
use crate::cpu::Simd;
use pulp::bytemuck;
use std::arch::asm;

/// Rows of a tile, and 32-bit values in a row.
pub(super) const SIDE: usize = 16;
/// Number of accumulator tiles side by side.
const WIDE: usize = 3;
/// Total number of columns of these tiles.
const WIDTH: usize = WIDE * SIDE;

/// Tile configuration, in the layout that the instruction reads.
#[repr(C, align(64))]
struct Sizes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Sizes {
    /// Accumulators and `A` with this number of rows, `B` with all rows; the last of `tiles` side by side has this
    /// number of columns.
    fn new(rows: usize, tiles: usize, last: usize) -> Sizes {
        let all = SIDE as u8;
        let some = rows as u8;
        let mut sizes = Sizes {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        sizes.row_bytes[..7].fill(64);
        for last_tile in [tiles - 1, 3 + tiles] {
            sizes.row_bytes[last_tile] = (size_of::<f32>() * last) as u16;
        }
        sizes.rows[..7].copy_from_slice(&[some, some, some, some, all, all, all]);
        sizes
    }

    /// Configures the registers, all zero.
    ///
    /// # Safety
    /// The CPU must have tiles, and the process must be allowed to use them.
    unsafe fn load(&self) {
        // SAFETY: 64 bytes are read, and the caller guarantees that the instruction is available.
        unsafe {
            asm!(
                "ldtilecfg [{}]", in(reg) self, options(nostack, readonly),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            );
        }
    }
}

/// One row of tiles: the addresses of its operands, with row strides in bytes.
#[derive(Clone, Copy)]
struct Row {
    /// Number of tiles along the summed dimension, at least 1.
    steps: usize,
    a: *const Pair,
    a_stride: usize,
    b: *const Pair,
    b_stride: usize,
    start: *const f32,
    start_stride: usize,
    c: *mut f32,
    c_stride: usize,
}

/// `C = start + A B` of `V` tiles side by side.
///
/// # Safety
/// The registers must be configured, and the operands as large as the tiles.
#[inline(always)]
unsafe fn multiply_row<const V: usize>(row: Row) {
    macro_rules! run {
        ($load:literal, $step:literal, $store:literal) => {
            asm!(
                $load,
                "2:",
                "tileloadd tmm3, [{a} + 1*{a_stride}]",
                $step,
                "add {a}, 64",
                "add {b}, {b_step}",
                "dec {steps}",
                "jnz 2b",
                $store,
                steps = inout(reg) row.steps => _,
                a = inout(reg) row.a => _,
                a_stride = in(reg) row.a_stride,
                b = inout(reg) row.b => _,
                b_stride = in(reg) row.b_stride,
                b_step = in(reg) SIDE * row.b_stride,
                start = in(reg) row.start,
                start_stride = in(reg) row.start_stride,
                c = in(reg) row.c,
                c_stride = in(reg) row.c_stride,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            )
        };
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match V {
            1 => run!(
                "tileloadd tmm0, [{start} + 1*{start_stride}]",
                "tileloadd tmm4, [{b} + 1*{b_stride}]
                 tdpbf16ps tmm0, tmm3, tmm4",
                "tilestored [{c} + 1*{c_stride}], tmm0"
            ),
            2 => run!(
                "tileloadd tmm0, [{start} + 1*{start_stride}]
                 tileloadd tmm1, [{start} + 1*{start_stride} + 64]",
                "tileloadd tmm4, [{b} + 1*{b_stride}]
                 tdpbf16ps tmm0, tmm3, tmm4
                 tileloadd tmm5, [{b} + 1*{b_stride} + 64]
                 tdpbf16ps tmm1, tmm3, tmm5",
                "tilestored [{c} + 1*{c_stride}], tmm0
                 tilestored [{c} + 1*{c_stride} + 64], tmm1"
            ),
            _ => run!(
                "tileloadd tmm0, [{start} + 1*{start_stride}]
                 tileloadd tmm1, [{start} + 1*{start_stride} + 64]
                 tileloadd tmm2, [{start} + 1*{start_stride} + 128]",
                "tileloadd tmm4, [{b} + 1*{b_stride}]
                 tdpbf16ps tmm0, tmm3, tmm4
                 tileloadd tmm5, [{b} + 1*{b_stride} + 64]
                 tdpbf16ps tmm1, tmm3, tmm5
                 tileloadd tmm6, [{b} + 1*{b_stride} + 128]
                 tdpbf16ps tmm2, tmm3, tmm6",
                "tilestored [{c} + 1*{c_stride}], tmm0
                 tilestored [{c} + 1*{c_stride} + 64], tmm1
                 tilestored [{c} + 1*{c_stride} + 128], tmm2"
            ),
        }
    }
}

/// True if tiles are faster than registers for a product (m, n, k), with `k` in pairs: otherwise they are mostly empty.
pub(super) fn worthwhile((m, _, k): (usize, usize, usize)) -> bool {
    m >= SIDE && k > 0 && k.is_multiple_of(SIDE)
}

/// Initial sums, if none are given.
static ZEROS: Zeros = Zeros([0.0; WIDTH]);

#[repr(align(64))]
struct Zeros([f32; WIDTH]);

/// The product of pairs.
///
/// # Safety
/// The CPU must have tiles, and the process must be allowed to use them: [`Simd::Amx`] is supported. The product must be
/// [`worthwhile`].
pub(super) unsafe fn multiply(mut product: Product<Pair>) {
    let (m, n, k) = product.size;
    let width = panel_width((WIDTH, SIDE), n);
    // Rows of A that are not contiguous are copied.
    let copied = product.a.col_stride != 1;
    let blocks = m.div_ceil((BLOCK / k).max(SIDE));
    let highest = m.div_ceil(blocks).next_multiple_of(SIDE);
    let mut left = Buffer::stale(if copied { highest.min(m) * k } else { 0 });
    for i0 in (0..m).step_by(highest) {
        let block = highest.min(m - i0);
        let a = if copied {
            let left = bytemuck::cast_slice_mut::<f32, Pair>(&mut left);
            let rows = super::Mat {
                data: &product.a.data[i0 * product.a.row_stride..],
                ..product.a
            };
            let left = &mut left[..block * k];
            crate::simd::dispatch_on(
                Simd::Amx,
                #[inline(always)]
                || transpose(Simd::Amx, rows, 0, k, left, k),
            );
            (left.as_ptr(), k)
        } else {
            let stride = product.a.row_stride;
            (product.a.data[i0 * stride..].as_ptr(), stride)
        };
        for j0 in (0..n).step_by(width) {
            let columns = width.min(n - j0);
            // SAFETY: guaranteed by the caller; the block lies inside the product.
            unsafe {
                match columns.div_ceil(SIDE) {
                    1 => multiply_panel::<1>(&mut product, a, (i0, block), (j0, columns)),
                    2 => multiply_panel::<2>(&mut product, a, (i0, block), (j0, columns)),
                    _ => multiply_panel::<WIDE>(&mut product, a, (i0, block), (j0, columns)),
                }
            }
        }
    }
    // SAFETY: the CPU has tiles.
    unsafe { asm!("tilerelease", options(nomem, nostack)) };
}

/// The product of some rows of `A`, starting at `a`, with one panel of `B`, `V` tiles wide.
///
/// # Safety
/// Tiles must be available, rows and columns inside the product, and rows of `a` a whole number of tiles long.
unsafe fn multiply_panel<const V: usize>(
    product: &mut Product<Pair>,
    a: (*const Pair, usize),
    (i0, block): (usize, usize),
    (j0, columns): (usize, usize),
) {
    let k = product.size.2;
    let (b, b_stride) = match product.b.row_stride {
        Some(stride) => (&product.b.data[j0..], stride),
        None => (&product.b.data[j0 * k..], V * SIDE),
    };
    let mut set = 0;
    for i in (0..block).step_by(SIDE) {
        let rows = SIDE.min(block - i);
        let c = &mut product.c[(i0 + i) * product.c_stride + j0..];
        let (start, start_stride) = match product.start {
            StartValue::Zero => (ZEROS.0.as_ptr(), 0),
            StartValue::Kept => (c.as_ptr(), product.c_stride),
            StartValue::Row(row) => (row[j0..].as_ptr(), 0),
        };
        let bytes = size_of::<f32>();
        // SAFETY: guaranteed by the caller.
        unsafe {
            if set != rows {
                Sizes::new(rows, V, columns - (V - 1) * SIDE).load();
                set = rows;
            }
            multiply_row::<V>(Row {
                steps: k / SIDE,
                a: a.0.add(i * a.1),
                a_stride: bytes * a.1,
                b: b.as_ptr(),
                b_stride: bytes * b_stride,
                start,
                start_stride: bytes * start_stride,
                c: c.as_mut_ptr(),
                c_stride: bytes * product.c_stride,
            });
        }
    }
}
