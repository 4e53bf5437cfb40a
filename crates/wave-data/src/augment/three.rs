//! ThreeAugment (Touvron et al. 2022, "DeiT III"): grey, solarised or blurred.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::colour;
use crate::RawImage;

/// Applies one of the three, each with probability 1/3.
pub(crate) fn apply(image: &mut RawImage, rng: &mut ChaCha8Rng) {
    let (which, radius) = (rng.random_range(0..3), rng.random_range(0.1..2.0));
    match which {
        0 => colour::saturation(image, 0.0),
        1 => colour::solarise(image, 128),
        _ => blur(image, radius),
    }
}

/// Pillow's Gaussian blur: three box blurs whose radius has a fractional part.
pub(crate) fn blur(image: &mut RawImage, radius: f32) {
    const PASSES: usize = 3;
    // The box of integer radius l and a fraction of the next pixels that has the same variance.
    let variance = radius * radius / PASSES as f32;
    let l = (((12.0 * variance + 1.0).sqrt() - 1.0) / 2.0).floor();
    let rest = (2.0 * l + 1.0) * (l * (l + 1.0) - 3.0 * variance)
        / (6.0 * (variance - (l + 1.0) * (l + 1.0)));
    let radius = l + rest;
    let (w, h, c) = (image.width, image.height, image.channels);
    let mut line = Vec::new();
    for row in image.pixels.chunks_exact_mut(w * c) {
        for k in 0..c {
            line.clear();
            line.extend(row.iter().skip(k).step_by(c));
            (0..PASSES).for_each(|_| box_blur(&mut line, radius));
            row.iter_mut()
                .skip(k)
                .step_by(c)
                .zip(&line)
                .for_each(|(to, &from)| *to = from);
        }
    }
    for k in 0..w * c {
        line.clear();
        line.extend(image.pixels.iter().skip(k).step_by(w * c));
        (0..PASSES).for_each(|_| box_blur(&mut line, radius));
        for y in 0..h {
            image.pixels[y * w * c + k] = line[y];
        }
    }
}

/// Moving average over 2 radius + 1 pixels in fixed point; end pixels repeat beyond the ends.
fn box_blur(line: &mut [u8], radius: f32) {
    let whole = radius as usize;
    let inner = ((1u32 << 24) as f32 / (radius * 2.0 + 1.0)) as u32;
    let outer = ((1u32 << 24) - (2 * whole as u32 + 1) * inner) / 2;
    let source = line.to_vec();
    let last = line.len() - 1;
    let at = |i: isize| u32::from(source[i.clamp(0, last as isize) as usize]);
    let r = whole as isize;
    let mut sum: u32 = (-r..=r).map(at).sum();
    for (i, out) in (0..).zip(line) {
        let value = sum * inner + (at(i - r - 1) + at(i + r + 1)) * outer;
        *out = ((value + (1 << 23)) >> 24) as u8;
        sum = sum + at(i + r + 1) - at(i - r);
    }
}
