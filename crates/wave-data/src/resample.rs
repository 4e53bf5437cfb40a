//! Pillow's antialiased filters for 8-bit pixels, one axis at a time, by Pillow's arithmetic.
//!
//! A line of the result is a weighted sum of lines, whose neighbouring bytes are added up together;
//! along the other axis the image is transposed first. (The usual library for this is as fast, but
//! instantiates some thousand generic variants, which added a minute to every build of this crate.)

use std::ops::Range;

use crate::error::named;

/// The filter of a resize, by timm's and Pillow's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The nearest pixel, without antialiasing.
    Nearest,
    /// The mean of all covered pixels.
    Box,
    /// A triangle over two pixels.
    Bilinear,
    /// A Hamming window over two pixels.
    Hamming,
    /// Keys' cubic convolution over four pixels, a = -1/2.
    #[default]
    Bicubic,
    /// Lanczos' windowed sinc over six pixels.
    Lanczos,
}

impl Interpolation {
    /// The reach of the filter to either side, in pixels of the coarser grid.
    fn reach(self) -> f64 {
        match self {
            Interpolation::Nearest | Interpolation::Box => 0.5,
            Interpolation::Bilinear | Interpolation::Hamming => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        }
    }

    /// The filter's value `x` pixels from its centre.
    fn at(self, x: f64) -> f64 {
        use std::f64::consts::PI;
        const A: f64 = -0.5;
        let sinc = |x: f64| match PI * x {
            0.0 => 1.0,
            angle => angle.sin() / angle,
        };
        match self {
            Interpolation::Nearest | Interpolation::Box => {
                f64::from(u8::from(x > -0.5 && x <= 0.5))
            }
            Interpolation::Bilinear => (1.0 - x.abs()).max(0.0),
            Interpolation::Hamming if x.abs() >= 1.0 => 0.0,
            // The constants are 32-bit numbers in Pillow.
            Interpolation::Hamming => {
                sinc(x) * (f64::from(0.54f32) + f64::from(0.46f32) * (PI * x).cos())
            }
            Interpolation::Bicubic => match x.abs() {
                x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
                x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
                _ => 0.0,
            },
            Interpolation::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Interpolation::Lanczos => 0.0,
        }
    }
}

named!(
    Interpolation, "interpolation",
    "nearest" => Nearest, "box" => Box, "bilinear" => Bilinear, "hamming" => Hamming,
    "bicubic" => Bicubic, "lanczos" => Lanczos
);

/// Fractional bits of a weight, as in Pillow.
const DIGITS: u32 = 22;
/// Rows that are transposed together, so that writes stay within a few cache lines.
const BLOCK: usize = 32;
/// Bytes of a line that are summed together.
const LANES: usize = 64;

/// A rectangle of 8-bit pixels in an image, row by row.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// (height, width, channels) of the whole image; there may be more after it.
    pub(crate) pixels: &'a [u8],
    /// Width of the whole image, in pixels.
    pub(crate) line: usize,
    /// 1 or 3.
    pub(crate) channels: usize,
    /// The rectangle's first column and row.
    pub(crate) corner: (usize, usize),
    /// The rectangle's width and height.
    pub(crate) size: (usize, usize),
}

impl<'a> View<'a> {
    /// All of an image of `(width, height)` pixels.
    pub(crate) fn whole(pixels: &'a [u8], size: (usize, usize), channels: usize) -> Self {
        Self {
            pixels,
            line: size.0,
            channels,
            corner: (0, 0),
            size,
        }
    }

    /// Row `y` of the rectangle: (width, channels).
    fn row(&self, y: usize) -> &'a [u8] {
        let begin = ((self.corner.1 + y) * self.line + self.corner.0) * self.channels;
        &self.pixels[begin..begin + self.size.0 * self.channels]
    }

    /// The transposed rectangle: (width, height, channels).
    fn transposed(&self) -> Vec<u8> {
        let ((w, h), c) = (self.size, self.channels);
        let mut out = vec![0; w * h * c];
        for above in (0..h).step_by(BLOCK) {
            let rows: Vec<&[u8]> = (above..h.min(above + BLOCK)).map(|y| self.row(y)).collect();
            for x in 0..w {
                let to = &mut out[(x * h + above) * c..];
                for (row, to) in rows.iter().zip(to.chunks_exact_mut(c)) {
                    to.copy_from_slice(&row[x * c..(x + 1) * c]);
                }
            }
        }
        out
    }
}

/// True if Pillow resamples the height of an image of `[width, height]` before its width: from version 13 on, where
/// the height shrinks by more pixels than twice those of the width. (Pillow 12 always begins with the width.)
pub(crate) fn height_first(from: [usize; 2], to: [u64; 2]) -> bool {
    let [width, height] = [0, 1].map(|k| from[k] as i128 - i128::from(to[k]));
    height > 0 && height > 2 * width
}

/// Resamples the rectangle, one axis after the other with rounding to 8 bits between them, as Pillow does; pixels
/// outside the rectangle are ignored. (rows, columns, channels)
pub(crate) fn resample(view: View, columns: &[Taps], rows: &[Taps], height_first: bool) -> Vec<u8> {
    let ((w, _), c) = (view.size, view.channels);
    if height_first {
        let low = down(view, rows); // (rows, width, channels)
        return across(View::whole(&low, (w, rows.len()), c), columns);
    }
    // The rows that count.
    let first = rows.first().map_or(0, |taps| taps.first);
    let end = rows
        .last()
        .map_or(0, |taps| taps.first + taps.weights.len());
    let strip = View {
        corner: (view.corner.0, view.corner.1 + first),
        size: (w, end - first),
        ..view
    };
    let wide = across(strip, columns); // (end - first, columns, channels)
    let line = columns.len() * c;
    sums(rows, line, |y| &wide[(y - first) * line..][..line])
}

/// (height, taps, channels)
fn across(view: View, taps: &[Taps]) -> Vec<u8> {
    let (h, c) = (view.size.1, view.channels);
    let turned = view.transposed(); // (w, h, c)
    let sums = sums(taps, h * c, |x| &turned[x * h * c..(x + 1) * h * c]); // (taps, h, c)
    View::whole(&sums, (h, taps.len()), c).transposed()
}

/// (taps, width, channels)
fn down(view: View, taps: &[Taps]) -> Vec<u8> {
    sums(taps, view.size.0 * view.channels, |y| view.row(y))
}

/// The source pixels of one output pixel, with their weights.
pub(crate) struct Taps {
    first: usize,
    /// In units of `2^-DIGITS`; they add up to about 1.
    weights: Vec<i32>,
}

/// An axis of `size` pixels of which `scale` become one, from `start` on.
#[derive(Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) size: usize,
    pub(crate) start: f64,
    pub(crate) scale: f64,
}

impl Axis {
    /// The taps of some pixels of the resized axis.
    pub(crate) fn taps(self, shown: Range<usize>, by: Interpolation) -> Vec<Taps> {
        match by {
            Interpolation::Nearest => self.nearest(shown),
            _ => shown.map(|i| self.tap(i, by)).collect(),
        }
    }

    /// The nearest pixel for each. Errors of the sum decide ties, as in Pillow.
    fn nearest(self, shown: Range<usize>) -> Vec<Taps> {
        let mut centre = self.start + self.scale * 0.5;
        let mut all = Vec::with_capacity(shown.len());
        for i in 0..shown.end {
            if i >= shown.start {
                all.push(Taps {
                    first: (centre as usize).min(self.size.saturating_sub(1)),
                    weights: vec![1 << DIGITS],
                });
            }
            centre += self.scale;
        }
        all
    }

    /// Each step is Pillow's, since rounding decides ties.
    fn tap(self, i: usize, by: Interpolation) -> Taps {
        let widened = self.scale.max(1.0);
        let reach = by.reach() * widened;
        let narrowed = 1.0 / widened;
        let centre = self.start + (i as f64 + 0.5) * self.scale;
        // Rounded towards zero.
        let first = (centre - reach + 0.5).max(0.0) as usize;
        let end = ((centre + reach + 0.5) as usize).min(self.size);
        let weights = (first..end).map(|x| by.at((x as f64 - centre + 0.5) * narrowed));
        let weights: Vec<f64> = weights.collect();
        let sum: f64 = weights.iter().sum();
        let sum = if sum == 0.0 { 1.0 } else { sum };
        let unit = f64::from(1 << DIGITS);
        let weights = weights.iter().map(|w| (w / sum * unit).round() as i32);
        let weights = weights.collect();
        Taps { first, weights }
    }
}

/// Weighted sums of lines of `n` bytes: (taps, n)
fn sums<'a>(taps: &[Taps], n: usize, line: impl Fn(usize) -> &'a [u8]) -> Vec<u8> {
    let mut out = vec![0; taps.len() * n];
    // On the widest SIMD registers of this CPU.
    pulp::Arch::new().dispatch(|| {
        for (tap, out) in taps.iter().zip(out.chunks_exact_mut(n.max(1))) {
            let covered = tap.first..tap.first + tap.weights.len();
            let lines: Vec<&[u8]> = covered.map(&line).collect();
            let mut blocks = out.chunks_exact_mut(LANES);
            let mut at = 0;
            for block in &mut blocks {
                let mut sums = [1 << (DIGITS - 1); LANES];
                for (weight, line) in tap.weights.iter().zip(&lines) {
                    let Some((bytes, _)) = line[at..].split_first_chunk::<LANES>() else {
                        continue;
                    };
                    for (sum, byte) in sums.iter_mut().zip(bytes) {
                        *sum += weight * i32::from(*byte);
                    }
                }
                for (to, sum) in block.iter_mut().zip(sums) {
                    *to = level(sum);
                }
                at += LANES;
            }
            for (i, to) in blocks.into_remainder().iter_mut().enumerate() {
                let terms = tap.weights.iter().zip(&lines);
                let sum: i32 = terms.map(|(w, line)| w * i32::from(line[at + i])).sum();
                *to = level(sum + (1 << (DIGITS - 1)));
            }
        }
    });
    out
}

/// The nearest grey level.
#[inline(always)]
fn level(sum: i32) -> u8 {
    (sum >> DIGITS).clamp(0, 255) as u8
}

#[cfg(test)]
#[path = "resample_tests.rs"]
mod tests;
