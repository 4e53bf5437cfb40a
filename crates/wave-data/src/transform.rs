//! From an image to network input: resize, crop, normalise.
//!
//! The steps are timm's for evaluation: the shorter side to `floor(image_size / crop_pct)`
//! with Pillow's antialiased bicubic filter, the central square of `image_size` pixels, and
//! `(x / 255 - mean) / std`. Other filters, and other ways to make a square, are [`Interpolation`] and
//! [`CropMode`]. Only the pixels that the crop keeps are ever computed.

use std::borrow::Cow;

use rayon::prelude::*;

use crate::augment::Placement;
use crate::augment::colour::luma;
use crate::augment::crop::Rectangle;
use crate::error::named;
use crate::resample::{Axis, Interpolation, Taps, View, height_first, resample};
use crate::{BrokenImages, DataError, RawImage, Source};

/// The steps from an image to network input.
#[derive(Clone, Debug, PartialEq)]
pub struct Transform {
    /// Height and width of the input, in pixels: 1 to 8,192.
    pub image_size: usize,
    /// Channels of the input: 1 (colour becomes grey) or 3 (grey is repeated).
    pub channels: usize,
    /// Subtracted from each channel, on a scale where black is 0 and white is 1.
    pub mean: Vec<f32>,
    /// Divisor of each channel after that; above 0.
    pub std: Vec<f32>,
    /// The fraction of the resized image's shorter side that the crop keeps: 0.01 to 1.
    pub crop_pct: f32,
    /// The filter for resizing images.
    pub interpolation: Interpolation,
    /// The method for making a square image.
    pub crop_mode: CropMode,
    /// The rounding of the crop's offset where the margin is odd.
    pub crop_offset: CropOffset,
}

/// The first pixel that the crop keeps, of a margin of an odd number of pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CropOffset {
    /// Half of the margin, rounded half to even: torchvision's rule, and timm's.
    #[default]
    HalfToEven,
    /// Half of the margin, rounded down: transformers' rule.
    Floor,
}

named!(CropOffset, "crop_offset", "half_to_even" => HalfToEven, "floor" => Floor);

/// The method for making a square image, by timm's names. With `s = floor(image_size / crop_pct)`:
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CropMode {
    /// The shorter side becomes s; the middle is kept.
    #[default]
    Center,
    /// Both sides become s, for any proportions; the middle is kept.
    Squash,
    /// The longer side becomes s; the middle is kept, and padded with the mean colour.
    Border,
}

impl CropMode {
    /// The size of the resized image, for an image of `size`.
    fn resized(self, size: [usize; 2], side: u64) -> [u64; 2] {
        let [w, h] = size;
        match self {
            // torchvision: int(side * longer / shorter)
            CropMode::Center => size.map(|x| side * x as u64 / w.min(h) as u64),
            CropMode::Squash => [side; 2],
            CropMode::Border => {
                let ratio = w.max(h) as f64 / side as f64;
                size.map(|x| (x as f64 / ratio).round_ties_even().max(1.0) as u64)
            }
        }
    }
}

named!(CropMode, "crop_mode", "center" => Center, "squash" => Squash, "border" => Border);

const MAX_IMAGE_SIZE: usize = 8192;

/// Normalisation is estimated from at most this many images.
const MAX_MEASURED: usize = 10_000;

impl Transform {
    /// As much of each image as a square holds: the shorter side is resized to `image_size`.
    pub fn new(image_size: usize, mean: Vec<f32>, std: Vec<f32>) -> Self {
        Self {
            image_size,
            channels: mean.len(),
            mean,
            std,
            crop_pct: 1.0,
            interpolation: Interpolation::default(),
            crop_mode: CropMode::default(),
            crop_offset: CropOffset::default(),
        }
    }

    /// The network input of one image in evaluation: (channels, image_size, image_size).
    ///
    /// A grey image of the input's size, with `crop_pct` 1 and one channel, passes through exactly.
    ///
    /// # Errors
    /// When the settings are out of range or the image's fields contradict each other.
    pub fn evaluate(&self, image: &RawImage) -> Result<Vec<f32>, DataError> {
        let normaliser = Normaliser::new(self)?;
        let mut out = vec![0.0; self.len()];
        let pixels = self.square(image)?;
        normaliser.write(&pixels, Placement::default(), &mut out);
        Ok(out)
    }

    /// Number of values in one input.
    pub(crate) fn len(&self) -> usize {
        self.channels * self.image_size * self.image_size
    }

    /// True if images of `(channels, height, width)` need neither a resize nor a crop.
    pub(crate) fn keeps(&self, (_, height, width): (usize, usize, usize)) -> bool {
        let s = self.image_size;
        (height, width) == (s, s) && self.resized_side() == s as u64
    }

    pub(crate) fn check(&self) -> Result<(), DataError> {
        let (side, channels, crop_pct) = (self.image_size, self.channels, self.crop_pct);
        let (mean, std) = (&self.mean, &self.std);
        let (means, deviations) = (mean.len(), std.len());
        let usable = |std: &f32| *std > 0.0 && std.is_finite();
        let problem = if !(1..=MAX_IMAGE_SIZE).contains(&side) {
            format!("an image size of {side} is out of range: expected 1 to {MAX_IMAGE_SIZE}")
        } else if !matches!(channels, 1 | 3) {
            format!(
                "the model's input has {channels} channels, but images have 1 (grey) or 3 (colour): \
                 expected a model for one of these"
            )
        } else if !(0.01..=1.0).contains(&crop_pct) {
            format!("crop_pct = {crop_pct} is out of range: expected 0.01 to 1")
        } else if (means, deviations) != (channels, channels) {
            format!(
                "{means} means and {deviations} standard deviations for {channels} channels: \
                 expected one for each"
            )
        } else if !mean.iter().all(|mean| mean.is_finite()) || !std.iter().all(usable) {
            format!(
                "mean {mean:?} and standard deviation {std:?}: expected finite numbers, the latter \
                 above 0"
            )
        } else {
            return Ok(());
        };
        Err(DataError::Settings(problem))
    }

    /// The shorter side before the crop, as Python's `floor(image_size / crop_pct)`.
    fn resized_side(&self) -> u64 {
        // The intended decimal number: in 32 bits 0.8 is a little more, which would make 279 of 224 / 0.8.
        let crop_pct = (f64::from(self.crop_pct) * 1e6).round() / 1e6;
        (self.image_size as f64 / crop_pct).floor() as u64
    }

    /// Resizes and crops: (image_size, image_size, 1 or `channels`).
    pub(crate) fn square<'a>(&self, image: &'a RawImage) -> Result<Cow<'a, [u8]>, DataError> {
        image.check()?;
        let pixels = if (self.channels, image.channels) == (1, 3) {
            Cow::Owned(luma(&image.pixels))
        } else {
            Cow::Borrowed(&image.pixels[..])
        };
        let c = image.channels.min(self.channels);
        let (w, h) = (image.width, image.height);
        if self.keeps((c, h, w)) {
            return Ok(pixels);
        }
        let [across, down] = self.crop_mode.resized([w, h], self.resized_side());
        let columns = self.window(w, across);
        let rows = self.window(h, down);
        let (wide, high) = (columns.len(), rows.len());
        let whole = View::whole(&pixels, (w, h), c);
        let height_first = height_first([w, h], [across, down]);
        let shown = resample(whole, &columns, &rows, height_first); // (high, wide, c)
        if (wide, high) == (self.image_size, self.image_size) {
            return Ok(Cow::Owned(shown));
        }
        Ok(Cow::Owned(self.bordered(&shown, wide, high, c)))
    }

    /// The taps of the central pixels, at most `image_size`, along an axis of `size` pixels resized to `resized`.
    fn window(&self, size: usize, resized: u64) -> Vec<Taps> {
        let crop = self.image_size;
        let shown = usize::try_from(resized).map_or(crop, |resized| crop.min(resized));
        let resized = resized as f64;
        let half = (resized - crop as f64) / 2.0;
        let offset = match self.crop_offset {
            CropOffset::HalfToEven => half.round_ties_even(),
            CropOffset::Floor => half.floor(),
        };
        let skipped = offset.max(0.0) as usize;
        let (start, scale) = (0.0, size as f64 / resized);
        let axis = Axis { size, start, scale };
        axis.taps(skipped..skipped.saturating_add(shown), self.interpolation)
    }

    /// An image (high, wide, c) in the middle of a square of the mean colour (side, side, channels).
    fn bordered(&self, shown: &[u8], wide: usize, high: usize, c: usize) -> Vec<u8> {
        let level = |mean: &f32| (255.0 * f64::from(*mean)).round_ties_even();
        let levels = self.mean.iter().map(level);
        let colour: Vec<u8> = levels.map(|x| x.clamp(0.0, 255.0) as u8).collect();
        let (side, channels) = (self.image_size, self.channels);
        let (left, top) = ((side - wide) / 2, (side - high) / 2);
        let mut square = colour.repeat(side * side);
        for (y, row) in shown.chunks_exact(wide * c).enumerate() {
            let at = ((top + y) * side + left) * channels;
            let to = &mut square[at..at + wide * channels];
            for (to, from) in to.chunks_exact_mut(channels).zip(row.chunks_exact(c)) {
                for (k, to) in to.iter_mut().enumerate() {
                    *to = from[k.min(c - 1)]; // grey is repeated
                }
            }
        }
        square
    }
}

/// Resizes a rectangle of an image to a square, as Pillow resizes a crop: pixels outside it are ignored. The rectangle
/// is in pixels of the original, which decoding downscaled by the factor `reduced`. (side, side, channels)
pub(crate) fn resize_rectangle(
    image: &RawImage,
    rectangle: Rectangle,
    reduced: usize,
    side: usize,
) -> Vec<u8> {
    let c = image.channels;
    let f = reduced as f64;
    // Along an axis: first pixel, number of pixels, and the taps of the result among them.
    let axis = |start: usize, length: usize, limit: usize| {
        let first = (start / reduced).min(limit - 1);
        let end = (start + length).div_ceil(reduced).clamp(first + 1, limit);
        let size = end - first;
        let start = (start as f64 / f - first as f64).min(size as f64 - 1e-3);
        let scale = (length as f64 / f).min(size as f64 - start) / side as f64;
        let axis = Axis { size, start, scale };
        (first, size, axis.taps(0..side, Interpolation::Bicubic))
    };
    let (left, w, columns) = axis(rectangle.left, rectangle.width, image.width);
    let (top, h, rows) = axis(rectangle.top, rectangle.height, image.height);
    let part = View {
        pixels: &image.pixels,
        line: image.width,
        channels: c,
        corner: (left, top),
        size: (w, h),
    };
    let height_first = height_first([w, h], [side as u64; 2]);
    resample(part, &columns, &rows, height_first)
}

/// `(x / 255 - mean) / std` of all 256 values of `x`, for each channel.
#[derive(Clone, Debug)]
pub(crate) struct Normaliser {
    image_size: usize,
    tables: Vec<[f32; 256]>,
}

impl Normaliser {
    pub(crate) fn new(transform: &Transform) -> Result<Self, DataError> {
        transform.check()?;
        let table =
            |(mean, std): (&f32, &f32)| std::array::from_fn(|x| (x as f32 / 255.0 - mean) / std);
        let channels = transform.mean.iter().zip(&transform.std);
        Ok(Self {
            image_size: transform.image_size,
            tables: channels.map(table).collect(),
        })
    }

    /// Places a square of pixels (s, s, 1 or channels) on black and writes it as input (channels, s, s).
    pub(crate) fn write(&self, pixels: &[u8], placement: Placement, out: &mut [f32]) {
        let s = self.image_size;
        let c = pixels.len() / (s * s);
        let Placement { right, down, flip } = placement;
        // Output column x shows column x + right of the square, where there is one.
        let from = (-right).clamp(0, s as isize) as usize;
        let to = (s as isize - right).clamp(0, s as isize) as usize;
        let first = (from as isize + right).max(0) as usize;
        let planes = self.tables.iter().zip(out.chunks_exact_mut(s * s));
        for (k, (table, plane)) in planes.enumerate() {
            let channel = if c == 1 { 0 } else { k };
            for (y, row) in plane.chunks_exact_mut(s).enumerate() {
                let source_y = y as isize + down;
                if !(0..s as isize).contains(&source_y) || from >= to {
                    row.fill(table[0]);
                    continue;
                }
                row[..from].fill(table[0]);
                row[to..].fill(table[0]);
                let shown = &pixels[(source_y as usize * s + first) * c..];
                match c {
                    1 => look_up::<1>(table, shown, channel, &mut row[from..to]),
                    _ => look_up::<3>(table, shown, channel, &mut row[from..to]),
                }
                if flip {
                    row.reverse();
                }
            }
        }
    }
}

/// The table's values for one of `C` channels. The stride is a compile-time constant.
fn look_up<const C: usize>(table: &[f32; 256], pixels: &[u8], channel: usize, out: &mut [f32]) {
    for (value, pixel) in out.iter_mut().zip(pixels.as_chunks::<C>().0) {
        *value = table[usize::from(pixel[channel])];
    }
}

/// Mean and standard deviation of each channel on a scale of 0 to 1, as the images enter the network (resized and
/// cropped with `crop_pct` 1), over at most 10,000 of `indices`, evenly spread, without broken images.
///
/// A standard deviation is at least 1/255, so that constant images can be normalised too.
///
/// # Errors
/// When `indices` is empty or reaches beyond the source, when the size or the number of channels is out of range, when
/// an image cannot be read, or when too many are broken.
pub fn measure_normalisation(
    source: &dyn Source,
    indices: &[u32],
    image_size: usize,
    channels: usize,
) -> Result<(Vec<f32>, Vec<f32>), DataError> {
    let few = channels.min(3);
    let transform = Transform {
        channels,
        ..Transform::new(image_size, vec![0.0; few], vec![1.0; few])
    };
    transform.check()?;
    if indices.is_empty() {
        let problem = "the normalisation cannot be measured without images: expected at least one";
        return Err(DataError::Settings(problem.to_owned()));
    }
    let measured = indices.len().min(MAX_MEASURED);
    let index = |k: usize| indices[k * indices.len() / measured];
    let one = |k: usize| -> Result<Vec<(u64, u64)>, DataError> {
        let image = source.image(index(k) as usize)?;
        let pixels = transform.square(&image)?;
        let c = pixels.len() / (image_size * image_size);
        let of_channel = |channel: usize| {
            let values = pixels.iter().skip(channel % c).step_by(c);
            values.fold((0u64, 0u64), |(sum, squares), &x| {
                (sum + u64::from(x), squares + u64::from(x) * u64::from(x))
            })
        };
        Ok((0..channels).map(of_channel).collect())
    };
    let outcomes: Vec<Result<_, DataError>> = (0..measured).into_par_iter().map(one).collect();
    let broken = BrokenImages::new(measured);
    let mut sums = vec![(0u64, 0u64); channels];
    // In order, whichever thread finished first.
    for (k, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Err(error) => broken.note(index(k), error)?,
            Ok(of_image) => {
                for ((sum, squares), (more, more_squares)) in sums.iter_mut().zip(of_image) {
                    *sum += more;
                    *squares += more_squares;
                }
            }
        }
    }
    let sound = measured - broken.list().len();
    let n = (sound * image_size * image_size) as f64;
    let moments = sums.iter().map(|&(sum, squares)| {
        let mean = sum as f64 / n;
        let variance = (squares as f64 / n - mean * mean).max(0.0);
        let std = variance.sqrt().max(1.0);
        ((mean / 255.0) as f32, (std / 255.0) as f32)
    });
    Ok(moments.unzip())
}

#[cfg(test)]
#[path = "transform_tests.rs"]
mod tests;
