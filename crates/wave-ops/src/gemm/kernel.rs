//! The inner loops: one tile of the product in registers, and the loops over all tiles.

use super::{Element, Mat, StartValue, panel_width};
use crate::bf16::Pair;
use crate::buffer::Buffer;
use crate::cpu::Simd;
use pulp::{Arch, WithSimd, bytemuck};

/// The right side: consecutive panels, or a row-major matrix read in place, whose rows must then be
/// a whole number of registers.
pub(crate) struct Right<'a, T> {
    pub(super) data: &'a [T],
    pub(super) row_stride: Option<usize>,
}

/// A product whose operands have been checked against its sizes.
pub(crate) struct Product<'a, T> {
    pub(super) size: (usize, usize, usize), // m, n, k
    pub(super) a: Mat<'a, T>,
    pub(super) b: Right<'a, T>,
    pub(super) start: StartValue<'a>,
    pub(super) c: &'a mut [f32],
    pub(super) c_stride: usize,
}

/// An instruction set, as used by the kernels.
///
/// Pointers may be unaligned; they must point to at least as many values as are read or written.
trait Isa: Copy {
    /// An element of `A` and `B`.
    type Element: bytemuck::Pod;
    /// A register of elements.
    type Operand: Copy;
    /// A register of sums.
    type Sum: Copy;

    const LANES: usize;
    /// Rows and registers of a tile: its sums and some operands fill the register file.
    const TILE: (usize, usize);

    fn zero(self) -> Self::Sum;
    fn add(self, a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// `a * b + c`, summed over the parts of an element if it has several.
    fn multiply_add(self, a: Self::Operand, b: Self::Operand, c: Self::Sum) -> Self::Sum;
    fn splat(self, value: Self::Element) -> Self::Operand;
    #[inline(always)]
    unsafe fn operand(self, from: *const Self::Element) -> Self::Operand {
        // SAFETY: a register is as many plain values.
        unsafe { from.cast::<Self::Operand>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Self::Sum {
        // SAFETY: as above.
        unsafe { from.cast::<Self::Sum>().read_unaligned() }
    }
    /// Loads fewer values than fit in a register.
    fn load_part(self, from: &[f32]) -> Self::Sum;
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, sum: Self::Sum) {
        // SAFETY: as above.
        unsafe { to.cast::<Self::Sum>().write_unaligned(sum) }
    }
    fn store_part(self, to: &mut [f32], sum: Self::Sum);
}

/// The position of a tile.
#[derive(Clone, Copy)]
struct Tile<T> {
    k: usize,
    a: *const T,
    a_strides: (usize, usize),
    b: *const T,
    b_stride: usize,
    start: *const f32, // null: nothing
    start_stride: usize,
    c: *mut f32,
    c_stride: usize,
    last: usize, // columns in the last register
}

/// Prefetches a cache line that will be read soon; any address is valid.
#[inline(always)]
fn prefetch(_at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 CPU has the instruction, which never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(_at.cast());
    }
}

/// One tile of `R` rows and `V` registers.
#[inline(always)]
unsafe fn tile<I: Isa, const R: usize, const V: usize>(isa: I, t: Tile<I::Element>) {
    let (rows, registers) = I::TILE;
    if V > registers || R > rows {
        unreachable!("no tile is cut to this size");
    }
    // SAFETY: the caller guarantees the operands' sizes.
    unsafe {
        let mut sums = [[isa.zero(); V]; R];
        if !t.start.is_null() {
            for r in 0..R {
                for v in 0..V {
                    prefetch(t.start.wrapping_add(r * t.start_stride + v * I::LANES));
                }
            }
        }
        let (mut a, mut b) = (t.a, t.b);
        for _ in 0..t.k {
            let mut right = [isa.operand(b); V];
            for v in 1..V {
                right[v] = isa.operand(b.add(v * I::LANES));
            }
            for r in 0..R {
                let left = isa.splat(*a.add(r * t.a_strides.0));
                for v in 0..V {
                    sums[r][v] = isa.multiply_add(left, right[v], sums[r][v]);
                }
            }
            a = a.wrapping_add(t.a_strides.1);
            b = b.wrapping_add(t.b_stride);
        }
        // Two short loops, since only unrolled loops stay in registers.
        let whole = t.last == I::LANES;
        if !t.start.is_null() {
            for r in 0..R {
                let start = t.start.add(r * t.start_stride);
                for v in 0..V - 1 {
                    let value = isa.load(start.add(v * I::LANES));
                    sums[r][v] = isa.add(sums[r][v], value);
                }
                let start = start.add((V - 1) * I::LANES);
                let value = if whole {
                    isa.load(start)
                } else {
                    isa.load_part(std::slice::from_raw_parts(start, t.last))
                };
                sums[r][V - 1] = isa.add(sums[r][V - 1], value);
            }
        }
        for r in 0..R {
            let c = t.c.add(r * t.c_stride);
            for v in 0..V - 1 {
                isa.store(c.add(v * I::LANES), sums[r][v]);
            }
            let c = c.add((V - 1) * I::LANES);
            if whole {
                isa.store(c, sums[r][V - 1]);
            } else {
                let part = std::slice::from_raw_parts_mut(c, t.last);
                isa.store_part(part, sums[r][V - 1]);
            }
        }
    }
}

/// Calls `tile` with its sizes as constants.
macro_rules! by_size {
    ($isa:expr, $rows:expr, $registers:expr, $tile:expr; $($r:literal)*) => {
        match ($rows, $registers) {
            $(
                ($r, 1) => tile::<_, $r, 1>($isa, $tile),
                ($r, 2) => tile::<_, $r, 2>($isa, $tile),
                ($r, _) => tile::<_, $r, 3>($isa, $tile),
            )*
            _ => unreachable!("no tile is cut to this size"),
        }
    };
}

/// Number of elements of `A` that stay in the L2 cache while the panels of `B` are processed.
pub(super) const BLOCK: usize = 1 << 17;

impl<T: bytemuck::Pod> Product<'_, T> {
    #[inline(always)]
    fn run<I: Isa<Element = T>>(self, isa: I) {
        let (m, n, k) = self.size;
        let (tile_rows, registers) = I::TILE;
        let width = panel_width((registers * I::LANES, I::LANES), n);
        // Columns of A that are far apart in memory are copied if they are read more than twice.
        let copied = self.a.col_stride != 1 && n > 2 * width;
        let blocks = m.div_ceil((BLOCK / k.max(1)).max(tile_rows));
        let highest = m.div_ceil(blocks).next_multiple_of(tile_rows);
        let mut panel = Buffer::stale(if copied { highest.min(m) * k } else { 0 });
        for i0 in (0..m).step_by(highest) {
            let block = highest.min(m - i0);
            if copied {
                let panel = bytemuck::cast_slice_mut::<f32, T>(&mut panel);
                self.copy_left(i0, block, panel);
            }
            for j0 in (0..n).step_by(width) {
                let columns = width.min(n - j0);
                let count = columns.div_ceil(I::LANES);
                let (b, b_stride) = match self.b.row_stride {
                    Some(stride) => (j0, stride),
                    None => (j0 * k, count * I::LANES),
                };
                for i in (0..block).step_by(tile_rows) {
                    let rows = tile_rows.min(block - i);
                    // SAFETY: the sizes were checked against the slices; panels of B are as wide
                    // as `count` registers; C is borrowed mutably and overlaps neither A nor B.
                    unsafe {
                        let (a, a_strides) = if copied {
                            (panel.as_ptr().cast::<T>().add(i), (1, block))
                        } else {
                            let (row, col) = (self.a.row_stride, self.a.col_stride);
                            (self.a.data.as_ptr().add((i0 + i) * row), (row, col))
                        };
                        let c = self.c.as_mut_ptr().add((i0 + i) * self.c_stride + j0);
                        let (start, start_stride) = match self.start {
                            StartValue::Zero => (std::ptr::null(), 0),
                            StartValue::Kept => (c.cast_const(), self.c_stride),
                            StartValue::Row(row) => (row.as_ptr().add(j0), 0),
                        };
                        let t = Tile {
                            k,
                            a,
                            a_strides,
                            b: self.b.data.as_ptr().add(b),
                            b_stride,
                            start,
                            start_stride,
                            c,
                            c_stride: self.c_stride,
                            last: columns - (count - 1) * I::LANES,
                        };
                        by_size!(isa, rows, count, t; 1 2 3 4 5 6 7 8);
                    }
                }
            }
        }
    }

    /// The transpose of rows `first..first + count` of `A`: (k, count).
    #[inline(always)]
    fn copy_left(&self, first: usize, count: usize, panel: &mut [T]) {
        let (row, col) = (self.a.row_stride, self.a.col_stride);
        for (p, to) in panel.chunks_exact_mut(count).take(self.size.2).enumerate() {
            let from = &self.a.data[first * row + p * col..];
            if row == 1 {
                to.copy_from_slice(&from[..count]);
            } else {
                for (i, to) in to.iter_mut().enumerate() {
                    *to = from[i * row];
                }
            }
        }
    }
}

/// `f32` in the registers of an instruction set.
#[derive(Clone, Copy)]
struct Single<S>(S);

impl<S: pulp::Simd> Isa for Single<S> {
    type Element = f32;
    type Operand = S::f32s;
    type Sum = S::f32s;

    const LANES: usize = S::F32_LANES;
    const TILE: (usize, usize) = tile_size(S::F32_LANES);

    #[inline(always)]
    fn zero(self) -> S::f32s {
        self.0.splat_f32s(0.0)
    }
    #[inline(always)]
    fn add(self, a: S::f32s, b: S::f32s) -> S::f32s {
        self.0.add_f32s(a, b)
    }
    #[inline(always)]
    fn multiply_add(self, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
        self.0.mul_add_e_f32s(a, b, c)
    }
    #[inline(always)]
    fn splat(self, value: f32) -> S::f32s {
        self.0.splat_f32s(value)
    }
    #[inline(always)]
    fn load_part(self, from: &[f32]) -> S::f32s {
        self.0.partial_load_f32s(from)
    }
    #[inline(always)]
    fn store_part(self, to: &mut [f32], sum: S::f32s) {
        self.0.partial_store_f32s(to, sum);
    }
}

/// Sums fill 24 of 32 registers with AVX-512 and NEON, 12 of 16 with AVX2.
const fn tile_size(lanes: usize) -> (usize, usize) {
    match lanes {
        8 => (6, 2),
        _ => (8, 3),
    }
}

impl WithSimd for Product<'_, f32> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) {
        self.run(Single(simd));
    }
}

/// Four `f32` values, which the compiler maps to the available registers.
#[derive(Clone, Copy)]
struct Portable;

const FOUR: usize = 4;

impl Isa for Portable {
    type Element = f32;
    type Operand = [f32; FOUR];
    type Sum = [f32; FOUR];

    const LANES: usize = FOUR;
    const TILE: (usize, usize) = (4, 2);

    #[inline(always)]
    fn zero(self) -> [f32; FOUR] {
        [0.0; FOUR]
    }
    #[inline(always)]
    fn add(self, a: [f32; FOUR], b: [f32; FOUR]) -> [f32; FOUR] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn multiply_add(self, a: [f32; FOUR], b: [f32; FOUR], c: [f32; FOUR]) -> [f32; FOUR] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn splat(self, value: f32) -> [f32; FOUR] {
        [value; FOUR]
    }
    #[inline(always)]
    fn load_part(self, from: &[f32]) -> [f32; FOUR] {
        std::array::from_fn(|i| from.get(i).copied().unwrap_or(0.0))
    }
    #[inline(always)]
    fn store_part(self, to: &mut [f32], sum: [f32; FOUR]) {
        to.copy_from_slice(&sum[..to.len()]);
    }
}

impl Element for f32 {
    fn multiply(simd: Simd, product: Product<f32>) {
        match simd.arch() {
            #[cfg(target_arch = "x86_64")]
            Arch::V4(v4) => pulp::Simd::vectorize(v4, product),
            #[cfg(target_arch = "x86_64")]
            Arch::V3(v3) => pulp::Simd::vectorize(v3, product),
            #[cfg(target_arch = "aarch64")]
            Arch::Neon(neon) => pulp::Simd::vectorize(neon, product),
            _ => product.run(Portable),
        }
    }
}

/// Number of columns in a panel, and in a register. Pairs, which take as many bits as `f32`, have the same.
pub(super) fn panel(simd: Simd) -> (usize, usize) {
    let lanes = match simd {
        Simd::Amx | Simd::Avx512Bf16 | Simd::Avx512 => 16,
        Simd::Avx2 => 8,
        Simd::Neon => 4,
        Simd::Portable => return (Portable::TILE.1 * FOUR, FOUR),
    };
    (tile_size(lanes).1 * lanes, lanes)
}

pub(super) use pairs::multiply_pairs;

#[cfg(not(target_arch = "x86_64"))]
mod pairs {
    use super::*;

    pub(in super::super) fn multiply_pairs(simd: Simd, _: Product<Pair>) {
        unreachable!("{simd} has no products of bf16");
    }
}

#[cfg(target_arch = "x86_64")]
mod pairs {
    use super::*;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Sixteen pairs of bf16 at once, summed in `f32`.
    #[derive(Clone, Copy)]
    struct Dot(pulp::x86::V4);

    impl Isa for Dot {
        type Element = Pair;
        type Operand = __m512i;
        type Sum = __m512;

        const LANES: usize = 16;
        const TILE: (usize, usize) = tile_size(Self::LANES);

        #[inline(always)]
        fn zero(self) -> __m512 {
            self.0.avx512f._mm512_setzero_ps()
        }
        #[inline(always)]
        fn add(self, a: __m512, b: __m512) -> __m512 {
            self.0.avx512f._mm512_add_ps(a, b)
        }
        #[inline(always)]
        fn multiply_add(self, a: __m512i, b: __m512i, c: __m512) -> __m512 {
            // SAFETY: this type is only used if the CPU has the instruction; both types are 64
            // plain bytes.
            unsafe {
                let (a, b) = (
                    transmute::<__m512i, __m512bh>(a),
                    transmute::<__m512i, __m512bh>(b),
                );
                _mm512_dpbf16_ps(c, a, b)
            }
        }
        #[inline(always)]
        fn splat(self, value: Pair) -> __m512i {
            self.0.avx512f._mm512_set1_epi32(value.0.cast_signed())
        }
        #[inline(always)]
        fn load_part(self, from: &[f32]) -> __m512 {
            // SAFETY: masked lanes are not touched.
            unsafe { _mm512_maskz_loadu_ps(mask(from.len()), from.as_ptr()) }
        }
        #[inline(always)]
        fn store_part(self, to: &mut [f32], sum: __m512) {
            // SAFETY: masked lanes are not touched.
            unsafe { _mm512_mask_storeu_ps(to.as_mut_ptr(), mask(to.len()), sum) }
        }
    }

    #[inline(always)]
    fn mask(count: usize) -> u16 {
        ((1u32 << count) - 1) as u16
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,fma,avx2")]
    fn run(product: Product<Pair>, v4: pulp::x86::V4) {
        product.run(Dot(v4));
    }

    /// The product with the instructions of `simd`, which must support bf16 products.
    pub(in super::super) fn multiply_pairs(simd: Simd, product: Product<Pair>) {
        match pulp::x86::V4::try_new() {
            // SAFETY: the path in use is supported by the CPU.
            Some(v4) if simd.has_bf16() => unsafe { run(product, v4) },
            _ => unreachable!("{simd} has no products of bf16"),
        }
    }
}
