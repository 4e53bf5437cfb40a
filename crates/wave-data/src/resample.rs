//! Pillow's antialiased bicubic filter, one axis at a time.
//!
//! The library is asked for the two kinds of pixels that there are, not for any kind: it would be
//! compiled here for a dozen, and take minutes.

use std::cell::RefCell;

use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{U8, U8x3};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};

use crate::DataError;

/// A rectangle of 8-bit pixels that lie in an image, line by line.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// (height, width, channels) of the whole image; there may be more after it.
    pub(crate) pixels: &'a [u8],
    /// Of the whole image, in pixels.
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
}

/// An axis of a [`View`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Columns,
    Rows,
}

/// Resamples the part `(start, length)` of one axis to `to` pixels; nothing outside the rectangle
/// counts. (height, to, channels) or (to, width, channels)
pub(crate) fn resample(
    view: View,
    axis: Axis,
    part: (f64, f64),
    to: usize,
) -> Result<Vec<u8>, DataError> {
    match view.channels {
        1 => resample_typed::<U8>(view, axis, part, to),
        _ => resample_typed::<U8x3>(view, axis, part, to),
    }
}

fn resample_typed<P: PixelTrait>(
    view: View,
    axis: Axis,
    (start, length): (f64, f64),
    to: usize,
) -> Result<Vec<u8>, DataError> {
    let (w, h) = view.size;
    let fail = |error: &dyn std::fmt::Display| {
        DataError::Settings(format!(
            "cannot resize an image of {w} x {h} pixels to {to}: {error}"
        ))
    };
    let side = |n: usize| u32::try_from(n).map_err(|error| fail(&error));
    let lines = view.pixels.len() / (view.line * view.channels).max(1);
    let image = TypedImageRef::<P>::from_buffer(side(view.line)?, side(lines)?, view.pixels);
    let image = image.map_err(|error| fail(&error))?;
    let (left, top) = (side(view.corner.0)?, side(view.corner.1)?);
    let view = TypedCroppedImage::new(image, left, top, side(w)?, side(h)?);
    let view = view.map_err(|error| fail(&error))?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::CatmullRom));
    let (options, (width, height)) = match axis {
        Axis::Columns => (options.crop(start, 0.0, length, h as f64), (to, h)),
        Axis::Rows => (options.crop(0.0, start, w as f64, length), (w, to)),
    };
    let mut out = vec![0; width * height * P::size()];
    let mut target = TypedImage::<P>::from_buffer(side(width)?, side(height)?, &mut out)
        .map_err(|error| fail(&error))?;
    thread_local!(static RESIZER: RefCell<Resizer> = RefCell::new(Resizer::new()));
    RESIZER
        .with_borrow_mut(|resizer| resizer.resize_typed(&view, &mut target, &options))
        .map_err(|error| fail(&error))?;
    Ok(out)
}
