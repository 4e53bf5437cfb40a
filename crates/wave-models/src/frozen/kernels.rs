//! Loops of the frozen operators over plain slices.

use super::Window;
use crate::Activation;
use wave_ops::exp;

/// Values that loops keep in registers at a time.
const LANES: usize = 32;

/// Copies the inputs of each window of the given rows: (rows out, k k c).
pub(super) fn gather(
    image: &[f32],
    (s, c): (usize, usize),
    window: Window,
    rows: std::ops::Range<usize>,
    gathered: &mut Vec<f32>,
) {
    let k = window.kernel;
    gathered.clear();
    gathered.resize(rows.len() * window.out * k * k * c, 0.0);
    let mut places = gathered.chunks_exact_mut(k * k * c);
    for row in rows {
        let (taps_y, top) = window.taps(row, s);
        for column in 0..window.out {
            let Some(place) = places.next() else { return };
            let (taps_x, left) = window.taps(column, s);
            let run = taps_x.len() * c;
            for (i, tap) in taps_y.clone().enumerate() {
                let from = ((top + i) * s + left) * c;
                let to = (tap * k + taps_x.start) * c;
                place[to..to + run].copy_from_slice(&image[from..from + run]);
            }
        }
    }
}

/// Runs a loop over `data` compiled for the best instruction set of this processor. `f` must be
/// `#[inline(always)]`; unlike a closure that is passed on as `FnOnce`, a call by reference leaves
/// no function in between that could be compiled for the baseline.
#[inline(always)]
pub(super) fn vectorised(data: &mut [f32], f: impl Fn(&mut [f32])) {
    struct Loop<'a, F>(&'a mut [f32], F);
    impl<F: Fn(&mut [f32])> pulp::NullaryFnOnce for Loop<'_, F> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            (self.1)(self.0)
        }
    }
    pulp::Arch::new().dispatch(Loop(data, f))
}

/// One row of windows of a depthwise convolution.
#[inline(always)]
pub(super) fn depthwise_row(
    image: &[f32],
    (s, c): (usize, usize),
    weight: &[f32],
    bias: &[f32],
    window: Window,
    row: usize,
    y: &mut [f32],
) {
    let (taps_y, top) = window.taps(row, s);
    for (column, y) in y.chunks_exact_mut(c).enumerate() {
        let (taps_x, left) = window.taps(column, s);
        let whole = c / LANES * LANES;
        for first in (0..whole).step_by(LANES) {
            let mut sums = [0.0_f32; LANES];
            sums.copy_from_slice(&bias[first..first + LANES]);
            for (i, ty) in taps_y.clone().enumerate() {
                for (j, tx) in taps_x.clone().enumerate() {
                    let x = &image[((top + i) * s + left + j) * c + first..][..LANES];
                    let w = &weight[(ty * window.kernel + tx) * c + first..][..LANES];
                    for l in 0..LANES {
                        sums[l] = x[l].mul_add(w[l], sums[l]);
                    }
                }
            }
            y[first..first + LANES].copy_from_slice(&sums);
        }
        for channel in whole..c {
            let mut sum = bias[channel];
            for (i, ty) in taps_y.clone().enumerate() {
                for (j, tx) in taps_x.clone().enumerate() {
                    let x = image[((top + i) * s + left + j) * c + channel];
                    sum = x.mul_add(weight[(ty * window.kernel + tx) * c + channel], sum);
                }
            }
            y[channel] = sum;
        }
    }
}

/// Replaces each row of `m` scores by its softmax.
pub(super) fn softmax_rows(scores: &mut [f32], m: usize) {
    vectorised(
        scores,
        #[inline(always)]
        |scores| {
            for row in scores.chunks_exact_mut(m) {
                softmax(row);
            }
        },
    )
}

#[inline(always)]
fn softmax(row: &mut [f32]) {
    let mut largest = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            largest[l] = if chunk[l] > largest[l] {
                chunk[l]
            } else {
                largest[l]
            };
        }
    }
    let mut most = f32::NEG_INFINITY;
    for v in largest.iter().chain(tail) {
        most = if *v > most { *v } else { most };
    }
    for v in row.iter_mut() {
        *v = exp(*v - most);
    }
    let mut sums = [0.0; LANES];
    let (chunks, tail) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            sums[l] += chunk[l];
        }
    }
    let mut sum = 0.0;
    for v in sums.iter().chain(tail) {
        sum += v;
    }
    let scale = 1.0 / sum;
    for v in row.iter_mut() {
        *v *= scale;
    }
}

/// Applies an activation in place.
pub(super) fn activate(activation: Activation, x: &mut [f32]) {
    #[inline(always)]
    fn each(x: &mut [f32], f: impl Fn(f32) -> f32) {
        vectorised(
            x,
            #[inline(always)]
            |x| {
                for v in x {
                    *v = f(*v);
                }
            },
        )
    }
    match activation {
        Activation::Identity => {}
        Activation::Relu => each(
            x,
            #[inline(always)]
            |v| v.max(0.0),
        ),
        Activation::Relu6 => each(
            x,
            #[inline(always)]
            |v| v.clamp(0.0, 6.0),
        ),
        Activation::HardSwish => each(
            x,
            #[inline(always)]
            |v| v * (v + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0),
        ),
        Activation::Silu => each(
            x,
            #[inline(always)]
            |v| v / (1.0 + exp(-v)),
        ),
        // The frozen networks here have none; this is for completeness, and slow.
        Activation::Gelu => {
            let half = std::f32::consts::FRAC_1_SQRT_2;
            for v in x {
                *v *= 0.5 * (1.0 + candle_core::cpu::erf::erf_f32(*v * half));
            }
        }
    }
}

/// `c += a b` on the calling thread: `a` (m, k) has rows `a_row` apart, `b` (k, n) rows and
/// columns as given, `c` (m, n) rows `c_row` apart.
pub(super) fn accumulate(
    (m, n, k): (usize, usize, usize),
    (a, a_row): (&[f32], usize),
    (b, b_row, b_column): (&[f32], usize, usize),
    c: &mut [f32],
    c_row: usize,
) {
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    assert!(
        (m - 1) * a_row + k <= a.len()
            && (k - 1) * b_row + (n - 1) * b_column < b.len()
            && c_row >= n
            && (m - 1) * c_row + n <= c.len(),
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
            c_row as isize,
            true,
            a.as_ptr(),
            1,
            a_row as isize,
            b.as_ptr(),
            b_column as isize,
            b_row as isize,
            1.0_f32,
            1.0_f32,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
