//! Vectorised elementwise mathematics.
//!
//! Kernels are plain loops; [`dispatch_on`] compiles each for AVX-512, AVX2 with FMA, NEON and the
//! baseline, and picks one at run time.

use crate::cpu::Simd;

/// Runs `f` compiled for an instruction set. The bound matters: it makes a closure that is `#[inline(always)]` one of
/// `FnOnce` alone. Another would be called through a function that is not, and compiled for the baseline.
#[inline(always)]
pub(crate) fn dispatch_on<R>(simd: Simd, f: impl FnOnce() -> R) -> R {
    simd.arch().dispatch(f)
}

/// Runs an expression compiled for the current instruction set. All functions that it calls must be
/// `#[inline(always)]`.
macro_rules! vectorised {
    ($body:expr) => {
        $crate::simd::dispatch_on(
            $crate::cpu::current(),
            #[inline(always)]
            || $body,
        )
    };
}
pub(crate) use vectorised;

/// Number of independent partial sums in a reduction: one AVX-512 register of `f32`.
pub(crate) const LANES: usize = 16;

/// `e^x` for `x <= 88`, by range reduction to `2^n * e^r` and a degree 7 polynomial (relative error
/// below 2e-7); inputs below -80 give `e^-80`, which is 2e-35: small, but not subnormal even when
/// divided by a sum, since CPUs are slow with subnormal numbers.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the mantissa.
    const ROUND: f32 = 12_582_912.0;
    let x = x.clamp(-80.0, 88.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    // ln 2 in two parts, so that n * ln 2 loses no bits.
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(r, 1.398_199_9e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 0.166_666_66);
    let p = p.mul_add(r, 0.5);
    let p = p.mul_add(r * r, r) + 1.0;
    let two_to_n = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    p * two_to_n
}

/// `(erf(x / sqrt 2), e^(-x^2 / 2))`: the terms of GELU and its derivative.
///
/// Abramowitz and Stegun 7.1.26, absolute error below 2e-7.
#[inline(always)]
pub(crate) fn erf_exp(x: f32) -> (f32, f32) {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let e = exp(-z * z);
    let t = 1.0 / z.mul_add(0.327_591_1, 1.0);
    let p = 1.061_405_4_f32;
    let p = p.mul_add(t, -1.453_152);
    let p = p.mul_add(t, 1.421_413_7);
    let p = p.mul_add(t, -0.284_496_74);
    let p = p.mul_add(t, 0.254_829_6);
    ((1.0 - p * t * e).copysign(x), e)
}

/// Combines partial results pairwise, with as few dependent steps as possible.
#[inline(always)]
fn reduce(mut parts: [f32; LANES], with: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for j in 0..half {
            parts[j] = with(parts[j], parts[j + half]);
        }
        half /= 2;
    }
    parts[0]
}

/// The sum of partial sums.
#[inline(always)]
pub(crate) fn reduce_sum(parts: [f32; LANES]) -> f32 {
    reduce(parts, |a, b| a + b)
}

/// `sum_i x_i`, in [`LANES`] partial sums.
#[inline(always)]
pub(crate) fn sum(x: &[f32]) -> f32 {
    let mut acc = [0.0; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (a, v) in acc.iter_mut().zip(chunk) {
            *a += v;
        }
    }
    reduce_sum(acc) + tail.iter().sum::<f32>()
}

/// `sum_i x_i y_i`, in [`LANES`] partial sums.
#[inline(always)]
pub(crate) fn dot(x: &[f32], y: &[f32]) -> f32 {
    let mut acc = [0.0; LANES];
    let (xs, x_tail) = x.as_chunks::<LANES>();
    let (ys, y_tail) = y.as_chunks::<LANES>();
    for (x, y) in xs.iter().zip(ys) {
        for j in 0..LANES {
            acc[j] = x[j].mul_add(y[j], acc[j]);
        }
    }
    let tail: f32 = x_tail.iter().zip(y_tail).map(|(x, y)| x * y).sum();
    reduce_sum(acc) + tail
}

/// `max_i x_i`, `-inf` for an empty slice.
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    let mut acc = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (a, v) in acc.iter_mut().zip(chunk) {
            *a = if *v > *a { *v } else { *a };
        }
    }
    let larger = |a, b| if b > a { b } else { a };
    tail.iter().fold(reduce(acc, larger), |a, v| larger(a, *v))
}

/// `x <- softmax(scale x)`; `scale` is positive.
#[inline(always)]
pub(crate) fn softmax(x: &mut [f32], scale: f32) {
    let m = max(x);
    let mut acc = [0.0; LANES];
    let (chunks, tail) = x.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for (a, v) in acc.iter_mut().zip(chunk) {
            *v = exp((*v - m) * scale);
            *a += *v;
        }
    }
    for v in tail.iter_mut() {
        *v = exp((*v - m) * scale);
    }
    let scale = 1.0 / (reduce_sum(acc) + tail.iter().sum::<f32>());
    for v in x.iter_mut() {
        *v *= scale;
    }
}

/// `x_n.. <- value` among the last [`LANES`] values of `x`, which must contain `n`.
#[inline(always)]
pub(crate) fn fill_up(x: &mut [f32], n: usize, value: f32) {
    // A mask per value, since the compiler turns comparisons into branches.
    const MASKS: [u32; 2 * LANES] = {
        let mut masks = [0; 2 * LANES];
        let mut i = 0;
        while i < LANES {
            masks[i] = u32::MAX;
            i += 1;
        }
        masks
    };
    let filled = x.len() - n;
    let keep = MASKS.get(filled..).and_then(|m| m.first_chunk::<LANES>());
    if let (Some(last), Some(keep)) = (x.last_chunk_mut::<LANES>(), keep) {
        *last = std::array::from_fn(|j| {
            f32::from_bits(last[j].to_bits() & keep[j] | value.to_bits() & !keep[j])
        });
    }
}

/// `out_j += sum_i x_ij` over the rows of `x`, which are as long as `out`.
#[inline(always)]
pub(crate) fn add_column_sums(x: &[f32], out: &mut [f32]) {
    for row in x.chunks_exact(out.len().max(1)) {
        for (o, v) in out.iter_mut().zip(row) {
            *o += v;
        }
    }
}

#[cfg(test)]
#[path = "simd_tests.rs"]
mod tests;
