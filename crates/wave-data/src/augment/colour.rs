//! Colour: Pillow's enhancements and look-up tables.
//!
//! Every operation gives Pillow's numbers for the same argument, within one level.

use crate::RawImage;

/// `from + factor (to - from)`, truncated to an integer in 0 to 255.
pub(crate) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))) as u8
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

/// Stretches each channel to the range of 0 to 255.
pub(crate) fn auto_contrast(image: &mut RawImage) {
    tabulate(image, |histogram| {
        let low = histogram.iter().position(|&n| n > 0).unwrap_or(0);
        let high = histogram.iter().rposition(|&n| n > 0).unwrap_or(0);
        if high <= low {
            return None;
        }
        let scale = 255.0 / (high - low) as f64;
        let offset = -(low as f64) * scale;
        Some(std::array::from_fn(|x| (x as f64 * scale + offset) as u8))
    });
}

/// Equalises the histogram of each channel.
pub(crate) fn equalise(image: &mut RawImage) {
    tabulate(image, |histogram| {
        let last = histogram.iter().rev().find(|&&n| n > 0)?;
        let step = (histogram.iter().sum::<u32>() - last) / 255;
        if step == 0 {
            return None;
        }
        let mut n = step / 2;
        Some(std::array::from_fn(|x| {
            let value = n / step;
            n += histogram[x];
            value.min(255) as u8
        }))
    });
}

/// Maps all channels through one table.
pub(crate) fn map(image: &mut RawImage, value: impl Fn(u8) -> u8) {
    let table: [u8; 256] = std::array::from_fn(|x| value(x as u8));
    for x in &mut image.pixels {
        *x = table[usize::from(*x)];
    }
}

/// Maps each channel through the table that `make` builds from its histogram, if it builds one.
fn tabulate(image: &mut RawImage, make: impl Fn(&[u32; 256]) -> Option<[u8; 256]>) {
    let c = image.channels;
    for k in 0..c {
        let mut histogram = [0u32; 256];
        for &x in image.pixels.iter().skip(k).step_by(c) {
            histogram[usize::from(x)] += 1;
        }
        if let Some(table) = make(&histogram) {
            for x in image.pixels.iter_mut().skip(k).step_by(c) {
                *x = table[usize::from(*x)];
            }
        }
    }
}

/// Pillow's grey, ITU-R 601-2 luma in 16-bit fixed point: (n, 3) to (n).
pub(crate) fn luma(rgb: &[u8]) -> Vec<u8> {
    let grey = |p: &[u8]| {
        let [r, g, b] = [p[0], p[1], p[2]].map(u32::from);
        ((r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16) as u8
    };
    rgb.chunks_exact(3).map(grey).collect()
}
