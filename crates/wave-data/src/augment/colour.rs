//! Colour: Pillow's enhancements and look-up tables, and torchvision's `ColorJitter`.
//!
//! Every operation gives Pillow's numbers for the same argument, within one level.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use crate::RawImage;

/// Random brightness, contrast, saturation and hue, in random order, as torchvision's `ColorJitter`.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct ColourJitter {
    /// Brightness is multiplied by a number uniform in `1 ± brightness`, at least 0.
    pub brightness: f32,
    /// Contrast likewise.
    pub contrast: f32,
    /// Saturation likewise.
    pub saturation: f32,
    /// Hue shift, uniform in `± hue`, as a fraction of the colour circle: 0 to 0.5.
    pub hue: f32,
}

impl ColourJitter {
    pub(crate) fn apply(&self, image: &mut RawImage, rng: &mut ChaCha8Rng) {
        let mut order = [0, 1, 2, 3];
        order.shuffle(rng);
        let mut factor =
            |strength: f32| rng.random_range((1.0 - strength).max(0.0)..=1.0 + strength);
        let [b, c, s] = [self.brightness, self.contrast, self.saturation].map(&mut factor);
        let h = factor(self.hue) - 1.0;
        for step in order {
            match step {
                0 if self.brightness > 0.0 => brightness(image, b),
                1 if self.contrast > 0.0 => contrast(image, c),
                2 if self.saturation > 0.0 => saturation(image, s),
                3 if self.hue > 0.0 => hue(image, h),
                _ => {}
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let mut strengths = [self.brightness, self.contrast, self.saturation].into_iter();
        if strengths.all(|s| (0.0..=10.0).contains(&s)) && (0.0..=0.5).contains(&self.hue) {
            return Ok(());
        }
        Err(format!(
            "{self:?} is out of range: expected strengths of 0 to 10 and a hue of 0 to 0.5"
        ))
    }
}

/// `from + factor (to - from)`, truncated to an integer in 0 to 255.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))) as u8
}

/// Blends with black: 0 is black, 1 changes nothing.
pub(crate) fn brightness(image: &mut RawImage, factor: f32) {
    map(image, |x| blend(0, x, factor));
}

/// Blends with the mean grey.
pub(crate) fn contrast(image: &mut RawImage, factor: f32) {
    let sum = |grey: &[u8]| grey.iter().map(|&x| u64::from(x)).sum::<u64>();
    let total = match image.channels {
        1 => sum(&image.pixels),
        _ => sum(&luma(&image.pixels)),
    };
    let mean = (total as f64 / (image.width * image.height) as f64 + 0.5) as u8;
    map(image, |x| blend(mean, x, factor));
}

/// Blends with the grey image: 0 is grey, with the same number of channels.
pub(crate) fn saturation(image: &mut RawImage, factor: f32) {
    if image.channels == 3 {
        let grey = luma(&image.pixels);
        for (pixel, &g) in image.pixels.chunks_exact_mut(3).zip(&grey) {
            pixel.iter_mut().for_each(|x| *x = blend(g, *x, factor));
        }
    }
}

/// Blends with a smoothed image (3 x 3, centre weight 5/13); the border is unchanged.
pub(crate) fn sharpness(image: &mut RawImage, factor: f32) {
    let (w, h, c) = (image.width, image.height, image.channels);
    if w < 3 || h < 3 {
        return;
    }
    let row = w * c;
    let original = image.pixels.clone();
    for y in 1..h - 1 {
        for i in y * row + c..(y + 1) * row - c {
            let at = |j: usize| u32::from(original[j]);
            let line = |j: usize| at(j - c) + at(j) + at(j + c);
            let sum = line(i - row) + line(i) + line(i + row) + 4 * at(i);
            let smooth = ((2 * sum + 13) / 26) as u8;
            image.pixels[i] = blend(smooth, original[i], factor);
        }
    }
}

/// Shifts the hue by a fraction of the colour circle, -0.5 to 0.5, in Pillow's 8-bit HSV.
pub(crate) fn hue(image: &mut RawImage, turn: f32) {
    if image.channels != 3 {
        return;
    }
    let shift = (f64::from(turn) * 255.0) as i32 as u8; // 256 steps make a circle
    for pixel in image.pixels.chunks_exact_mut(3) {
        let (h, s, v) = to_hsv([pixel[0], pixel[1], pixel[2]]);
        pixel.copy_from_slice(&to_rgb(h.wrapping_add(shift), s, v));
    }
}

fn to_hsv([r, g, b]: [u8; 3]) -> (u8, u8, u8) {
    let (highest, lowest) = (r.max(g).max(b), r.min(g).min(b));
    if highest == lowest {
        return (0, 0, highest);
    }
    let range = f32::from(highest - lowest);
    let s = range / f32::from(highest);
    let below = |x: u8| f32::from(highest - x) / range;
    let h = if r == highest {
        below(b) - below(g)
    } else if g == highest {
        2.0 + below(r) - below(b)
    } else {
        4.0 + below(g) - below(r)
    };
    let h = ((f64::from(h) / 6.0 + 1.0) % 1.0) as f32;
    let byte = |x: f32| (f64::from(x) * 255.0) as u8;
    (byte(h), byte(s), highest)
}

fn to_rgb(h: u8, s: u8, v: u8) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let sector = f32::from(h) * 6.0 / 255.0;
    let i = sector.floor();
    let (f, s, x) = (sector - i, f32::from(s) / 255.0, f32::from(v));
    let p = (x * (1.0 - s)).round() as u8;
    let q = (x * (1.0 - s * f)).round() as u8;
    let t = (x * (1.0 - s * (1.0 - f))).round() as u8;
    match i as u32 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}

pub(crate) fn invert(image: &mut RawImage) {
    map(image, |x| 255 - x);
}

/// Keeps the highest bits of each value.
pub(crate) fn posterise(image: &mut RawImage, bits: u32) {
    let mask = (0xFF00u32 >> bits.min(8)) as u8;
    map(image, |x| x & mask);
}

/// Inverts the values at or above a threshold.
pub(crate) fn solarise(image: &mut RawImage, threshold: u32) {
    map(
        image,
        |x| if u32::from(x) < threshold { x } else { 255 - x },
    );
}

/// Adds to the values below 128.
pub(crate) fn solarise_add(image: &mut RawImage, add: u8) {
    map(image, |x| if x < 128 { x.saturating_add(add) } else { x });
}

/// Stretches each channel to the range of 0 to 255.
pub(crate) fn auto_contrast(image: &mut RawImage) {
    tabulate(image, |histogram| {
        let low = histogram.iter().position(|&n| n > 0).unwrap_or(0);
        let high = histogram.iter().rposition(|&n| n > 0).unwrap_or(0);
        if high <= low {
            return std::array::from_fn(|x| x as u8);
        }
        let scale = 255.0 / (high - low) as f64;
        let offset = -(low as f64) * scale;
        std::array::from_fn(|x| (x as f64 * scale + offset) as u8)
    });
}

/// Equalises the histogram of each channel.
pub(crate) fn equalise(image: &mut RawImage) {
    tabulate(image, |histogram| {
        let same = std::array::from_fn(|x| x as u8);
        let Some(last) = histogram.iter().rev().find(|&&n| n > 0) else {
            return same;
        };
        let step = (histogram.iter().sum::<u32>() - last) / 255;
        if step == 0 {
            return same;
        }
        let mut n = step / 2;
        std::array::from_fn(|x| {
            let value = n / step;
            n += histogram[x];
            value.min(255) as u8
        })
    });
}

fn map(image: &mut RawImage, value: impl Fn(u8) -> u8) {
    let table: [u8; 256] = std::array::from_fn(|x| value(x as u8));
    image
        .pixels
        .iter_mut()
        .for_each(|x| *x = table[usize::from(*x)]);
}

/// Maps each channel through the table that `make` builds from its histogram.
fn tabulate(image: &mut RawImage, make: impl Fn(&[u32; 256]) -> [u8; 256]) {
    let c = image.channels;
    for k in 0..c {
        let mut histogram = [0u32; 256];
        for &x in image.pixels.iter().skip(k).step_by(c) {
            histogram[usize::from(x)] += 1;
        }
        let table = make(&histogram);
        for x in image.pixels.iter_mut().skip(k).step_by(c) {
            *x = table[usize::from(*x)];
        }
    }
}

/// Pillow's grey, ITU-R 601-2 luma in 16-bit fixed point: (n, 3) to (n).
pub(crate) fn luma(rgb: &[u8]) -> Vec<u8> {
    rgb.chunks_exact(3)
        .map(|p| {
            let [r, g, b] = [p[0], p[1], p[2]].map(u32::from);
            ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8
        })
        .collect()
}
