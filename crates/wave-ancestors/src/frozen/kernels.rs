//! Inner loops of the frozen operators over plain slices.

use super::Window;
use crate::Activation;
use wave_ops::exp;
use wave_ops::slices::{gelu, vectorised};

/// Number of values that the loops keep in registers at a time.
const LANES: usize = 32;

/// Copies the inputs of each window of the given rows, counted over all images: (rows out, k k c).
pub(super) fn gather(
    images: &[f32],
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
        let image = &images[row / window.out * s * s * c..];
        let (taps_y, top) = window.taps(row % window.out, s);
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

/// One row of windows in a depthwise convolution.
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

/// Applies an activation in place.
pub(super) fn activate(activation: Activation, x: &mut [f32]) {
    /// Replaces each value.
    macro_rules! each {
        (|$v:ident| $y:expr) => {
            vectorised(
                #[inline(always)]
                || {
                    for value in x {
                        let $v = *value;
                        *value = $y;
                    }
                },
            )
        };
    }
    match activation {
        Activation::Identity => {}
        Activation::Relu => each!(|v| v.max(0.0)),
        Activation::Relu6 => each!(|v| v.clamp(0.0, 6.0)),
        Activation::HardSwish => each!(|v| v * (v + 3.0).clamp(0.0, 6.0) * (1.0 / 6.0)),
        Activation::Silu => each!(|v| v / (1.0 + exp(-v))),
        Activation::Gelu => each!(|v| gelu(v)),
    }
}
