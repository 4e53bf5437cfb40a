//! Transposition of small squares in registers.

use super::Element;
use crate::cpu::Simd;

/// Side of the squares that every CPU transposes; divides the width of every register.
pub(super) const SIDE: usize = 4;

/// Side of the squares that AVX-512 transposes: as many elements of a column as share a cache line.
pub(super) const LARGE: usize = 16;

/// The transpose of a square.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn turn<T: Element>(square: [[T; SIDE]; SIDE]) -> [[T; SIDE]; SIDE] {
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
pub(super) fn turn<T: Element>(square: [[T; SIDE]; SIDE]) -> [[T; SIDE]; SIDE] {
    std::array::from_fn(|p| std::array::from_fn(|j| square[j][p]))
}

/// Transposes the first [`LARGE`] values of each of some columns, `stride` apart in `from`, to rows `width` apart in `to`;
/// returns the number of columns done: all, which must be whole squares, or none where the CPU has no AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn turn_large<T: Element>(
    simd: Simd,
    from: &[T],
    stride: usize,
    columns: usize,
    to: &mut [T],
    width: usize,
) -> usize {
    if columns == 0 || !matches!(simd.arch(), pulp::Arch::V4(_)) {
        return 0;
    }
    let ends = [
        (columns - 1) * stride + LARGE,
        (LARGE - 1) * width + columns,
    ];
    assert!(columns.is_multiple_of(LARGE) && ends[0] <= from.len() && ends[1] <= to.len());
    for j in (0..columns).step_by(LARGE) {
        let (from, to) = (from[j * stride..].as_ptr(), to[j..].as_mut_ptr());
        // SAFETY: the CPU has AVX-512, and the square lies inside both slices; elements have four bytes.
        unsafe { turn_sixteen(from.cast(), stride, to.cast(), width) };
    }
    columns
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn turn_large<T: Element>(
    _: Simd,
    _: &[T],
    _: usize,
    _: usize,
    _: &mut [T],
    _: usize,
) -> usize {
    0
}

/// Transposes a square of sixteen values, from columns `stride` apart to rows `width` apart.
///
/// # Safety
/// The addresses must be those of such columns and rows.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn turn_sixteen(from: *const f32, stride: usize, to: *mut f32, width: usize) {
    use std::arch::x86_64::*;
    // SAFETY: guaranteed by the caller.
    let column = |i: usize| unsafe { _mm512_loadu_ps(from.add(i * stride)) };
    let mut fours: [__m512; LARGE] = std::array::from_fn(column);
    // In each four columns: the four rows that each lane of four values holds.
    for four in fours.as_chunks_mut::<4>().0 {
        let low = |a, b| _mm512_castps_pd(_mm512_unpacklo_ps(a, b));
        let high = |a, b| _mm512_castps_pd(_mm512_unpackhi_ps(a, b));
        let [a, b, c, d] = *four;
        let [a, b, c, d] = [low(a, b), low(c, d), high(a, b), high(c, d)];
        let rows = [
            _mm512_unpacklo_pd(a, b),
            _mm512_unpackhi_pd(a, b),
            _mm512_unpacklo_pd(c, d),
            _mm512_unpackhi_pd(c, d),
        ];
        *four = rows.map(|row| _mm512_castpd_ps(row));
    }
    for i in 0..4 {
        // The even lanes, then the odd ones, of the first and of the last eight columns.
        let [a, b, c, d] = [fours[i], fours[4 + i], fours[8 + i], fours[12 + i]];
        let even = |a, b| _mm512_shuffle_f32x4::<0x88>(a, b);
        let odd = |a, b| _mm512_shuffle_f32x4::<0xdd>(a, b);
        let evens = [even(a, b), even(c, d)];
        let odds = [odd(a, b), odd(c, d)];
        let rows = [
            even(evens[0], evens[1]),
            even(odds[0], odds[1]),
            odd(evens[0], evens[1]),
            odd(odds[0], odds[1]),
        ];
        for (lane, row) in rows.into_iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe { _mm512_storeu_ps(to.add((4 * lane + i) * width), row) };
        }
    }
}
