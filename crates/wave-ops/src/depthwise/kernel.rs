//! The loops of the depthwise convolution over one image.
//!
//! Channels are independent, so they fill the vector registers: a block of channels of one image is
//! copied into a small zero-padded buffer that stays in the L1 cache, and several neighbouring
//! pixels (or several taps, for the weight's gradient) are accumulated in registers at once. The
//! gradient of the input is the same convolution with the kernel rotated by 180 degrees and the two
//! sides of the padding swapped.

use pulp::{Simd, WithSimd};

/// Sizes used by every kernel. A packed image is `rows` x `cols` registers of channels.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub(super) h: usize,
    pub(super) w: usize,
    pub(super) c: usize,
    pub(super) k: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl Geometry {
    pub(super) fn new(h: usize, w: usize, c: usize, k: usize) -> Geometry {
        // The last tile of pixels or taps may extend past the image, into additional padding.
        let by_pixels = w.next_multiple_of(tile(w)) + k - 1;
        let by_taps = w.max(1) - 1 + k.next_multiple_of(tile(k));
        Geometry {
            h,
            w,
            c,
            k,
            rows: h + k - 1,
            cols: by_pixels.max(by_taps),
        }
    }

    pub(super) fn image(&self) -> usize {
        self.h * self.w * self.c
    }

    /// Padding above and to the left of the image.
    fn before(&self) -> usize {
        (self.k - 1) / 2
    }

    /// Padding below and to the right of the image.
    fn after(&self) -> usize {
        self.k - 1 - self.before()
    }
}

/// The number of neighbours, out of `n`, to accumulate at once: the one with the lowest cost, where
/// each step costs its width plus one load; the wider one on ties.
fn tile(n: usize) -> usize {
    [8, 7, 5, 3]
        .into_iter()
        .min_by_key(|t| n.div_ceil(*t) * (t + 1))
        .unwrap_or(8)
}

/// Calls `$kernel::<S, TILE>` with its tile as a constant.
macro_rules! with_tile {
    ($n:expr, $kernel:ident($($argument:expr),* $(,)?)) => {
        match tile($n) {
            3 => $kernel::<S, 3>($($argument),*),
            5 => $kernel::<S, 5>($($argument),*),
            7 => $kernel::<S, 7>($($argument),*),
            _ => $kernel::<S, 8>($($argument),*),
        }
    };
}

/// Copies one register of channels, starting at `first`, of `image` (h, w, c) to `packed` (rows,
/// cols), `pad` pixels from its top left corner. Missing channels become zero; the margin is left
/// unchanged.
#[inline(always)]
fn pack<S: Simd>(
    simd: S,
    g: Geometry,
    image: &[f32],
    first: usize,
    pad: usize,
    packed: &mut [S::f32s],
) {
    let valid = S::F32_LANES.min(g.c - first);
    for r in 0..g.h {
        let from = &image[r * g.w * g.c..][..g.w * g.c];
        let to = &mut packed[(r + pad) * g.cols + pad..][..g.w];
        for (to, from) in to.iter_mut().zip(from.chunks_exact(g.c)) {
            *to = load(simd, &from[first..first + valid]);
        }
    }
}

/// At most one register of values, padded with zeros.
#[inline(always)]
fn load<S: Simd>(simd: S, values: &[f32]) -> S::f32s {
    match S::as_simd_f32s(values).0.first() {
        Some(full) => *full,
        None => simd.partial_load_f32s(values),
    }
}

/// One register of channels, starting at `first`, of `out` (h, w, c):
/// `start + sum_ij taps[i, j] packed[r + i, s + j]`, `P` pixels of a row at once.
#[inline(always)]
fn convolve<S: Simd, const P: usize>(
    simd: S,
    g: Geometry,
    packed: &[S::f32s],
    taps: &[S::f32s], // (k, k)
    start: S::f32s,
    first: usize,
    out: &mut [f32],
) {
    let valid = S::F32_LANES.min(g.c - first);
    for r in 0..g.h {
        for s in (0..g.w).step_by(P) {
            let mut acc = [start; P];
            for (i, taps) in taps.chunks_exact(g.k).enumerate() {
                let row = &packed[(r + i) * g.cols + s..][..g.k + P - 1];
                for (tap, x) in taps.iter().zip(row.windows(P)) {
                    for p in 0..P {
                        acc[p] = simd.mul_add_e_f32s(x[p], *tap, acc[p]);
                    }
                }
            }
            for p in 0..P {
                if s + p < g.w {
                    let out = &mut out[(r * g.w + s + p) * g.c + first..][..valid];
                    match S::as_mut_simd_f32s(out).0.first_mut() {
                        Some(full) => *full = acc[p],
                        None => simd.partial_store_f32s(out, acc[p]),
                    }
                }
            }
        }
    }
}

/// `d_taps[i, j] += sum_rs dy[r, s] x[r + i, s + j]` for all taps; `x` is packed with an offset of
/// [`Geometry::before`] pixels, `dy` of [`Geometry::after`].
#[inline(always)]
fn correlate<S: Simd, const J: usize>(
    simd: S,
    g: Geometry,
    x: &[S::f32s],
    dy: &[S::f32s],
    d_taps: &mut [S::f32s], // (k, k)
) {
    // Two rows of taps at once where the registers suffice: 32 in AVX-512 and NEON, else 16.
    let pairs = if S::F32_LANES != 8 || J < 7 {
        g.k / 2
    } else {
        0
    };
    for i in (0..2 * pairs).step_by(2) {
        correlate_rows::<S, J, 2>(simd, g, x, dy, i, d_taps);
    }
    for i in 2 * pairs..g.k {
        correlate_rows::<S, J, 1>(simd, g, x, dy, i, d_taps);
    }
}

/// [`correlate`] for rows `i..i + R` of the taps, `J` taps of each at once.
#[inline(always)]
fn correlate_rows<S: Simd, const J: usize, const R: usize>(
    simd: S,
    g: Geometry,
    x: &[S::f32s],
    dy: &[S::f32s],
    i: usize,
    d_taps: &mut [S::f32s],
) {
    for j in (0..g.k).step_by(J) {
        let mut acc = [[simd.splat_f32s(0.0); J]; R];
        for r in 0..g.h {
            let dy = &dy[(r + g.after()) * g.cols + g.after()..][..g.w];
            let mut rows = [x; R];
            for q in 0..R {
                rows[q] = &x[(r + i + q) * g.cols + j..][..g.w + J - 1];
            }
            for (s, dy) in dy.iter().enumerate() {
                for q in 0..R {
                    let x = &rows[q][s..s + J];
                    for t in 0..J {
                        acc[q][t] = simd.mul_add_e_f32s(x[t], *dy, acc[q][t]);
                    }
                }
            }
        }
        for q in 0..R {
            for t in 0..J {
                if j + t < g.k {
                    let d_tap = &mut d_taps[(i + q) * g.k + j + t];
                    *d_tap = simd.add_f32s(*d_tap, acc[q][t]);
                }
            }
        }
    }
}

/// `values` (c, n) as (blocks, n, lanes), the last block padded with zeros.
pub(super) fn to_blocks(values: &[f32], n: usize, lanes: usize) -> Vec<f32> {
    let blocks = (values.len() / n).div_ceil(lanes);
    let mut out = vec![0.0; blocks * n * lanes];
    for (c, values) in values.chunks_exact(n).enumerate() {
        for (i, v) in values.iter().enumerate() {
            out[(c / lanes * n + i) * lanes + c % lanes] = *v;
        }
    }
    out
}

/// The inverse of [`to_blocks`] for `c` channels.
pub(super) fn from_blocks(blocks: &[f32], n: usize, c: usize, lanes: usize) -> Vec<f32> {
    let at = |c: usize, i: usize| blocks[(c / lanes * n + i) * lanes + c % lanes];
    (0..c * n).map(|e| at(e / n, e % n)).collect()
}

/// One image forward.
pub(super) struct Convolve<'a> {
    pub(super) g: Geometry,
    pub(super) x: &'a [f32],
    pub(super) taps: &'a [f32],       // (blocks, k, k, lanes)
    pub(super) start: &'a [f32],      // (blocks, lanes)
    pub(super) packed: &'a mut [f32], // (rows, cols, lanes), zero around the image
    pub(super) y: &'a mut [f32],
}

impl WithSimd for Convolve<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (g, kk) = (self.g, self.g.k * self.g.k);
        let packed = S::as_mut_simd_f32s(self.packed).0;
        let (taps, start) = (S::as_simd_f32s(self.taps).0, S::as_simd_f32s(self.start).0);
        for (block, (taps, start)) in taps.chunks_exact(kk).zip(start).enumerate() {
            let first = block * S::F32_LANES;
            pack(simd, g, self.x, first, g.before(), packed);
            with_tile!(g.w, convolve(simd, g, packed, taps, *start, first, self.y));
        }
    }
}

/// One image backward.
pub(super) struct Backward<'a> {
    pub(super) g: Geometry,
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) turned: &'a [f32], // (blocks, k, k, lanes), turned by 180 degrees
    pub(super) learn: bool,       // true if the taps' gradient is wanted
    pub(super) packed_x: &'a mut [f32], // (rows, cols, lanes), zero around the image
    pub(super) packed_dy: &'a mut [f32], // (rows, cols, lanes), zero around the image
    pub(super) dx: &'a mut [f32],
    pub(super) d_taps: &'a mut [f32], // (blocks, k, k, lanes), added to
    pub(super) d_start: &'a mut [f32], // (blocks, lanes), added to
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (g, kk, zero) = (self.g, self.g.k * self.g.k, simd.splat_f32s(0.0));
        let packed_x = S::as_mut_simd_f32s(self.packed_x).0;
        let packed_dy = S::as_mut_simd_f32s(self.packed_dy).0;
        let turned = S::as_simd_f32s(self.turned).0;
        let d_taps = S::as_mut_simd_f32s(self.d_taps).0;
        let d_start = S::as_mut_simd_f32s(self.d_start).0;
        let blocks = turned
            .chunks_exact(kk)
            .zip(d_taps.chunks_exact_mut(kk))
            .zip(d_start);
        for (block, ((turned, d_taps), d_start)) in blocks.enumerate() {
            let first = block * S::F32_LANES;
            pack(simd, g, self.dy, first, g.after(), packed_dy);
            with_tile!(
                g.w,
                convolve(simd, g, packed_dy, turned, zero, first, self.dx)
            );
            if self.learn {
                pack(simd, g, self.x, first, g.before(), packed_x);
                with_tile!(g.k, correlate(simd, g, packed_x, packed_dy, d_taps));
            }
            let mut sum = zero;
            for r in 0..g.h {
                for v in &packed_dy[(r + g.after()) * g.cols + g.after()..][..g.w] {
                    sum = simd.add_f32s(sum, *v);
                }
            }
            *d_start = simd.add_f32s(*d_start, sum);
        }
    }
}

/// Number of `f32` values in a vector register.
pub(super) struct Lanes;

impl WithSimd for Lanes {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        S::F32_LANES
    }
}
