//! An image of 8-bit pixels, and how large one may be.

use image::metadata::Orientation;
use image::{DynamicImage, GrayImage, RgbImage};

use crate::DataError;

/// Pillow's limit against decompression bombs: twice a quarter of a gigabyte of RGB pixels.
pub(crate) const MAX_PIXELS: u64 = 178_956_970;

/// Enough for the largest image with an alpha channel.
pub(crate) const MAX_BYTES: u64 = 1 << 30;

/// An image of 8-bit pixels, grey or RGB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawImage {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// 1 (grey) or 3 (red, green, blue).
    pub channels: usize,
    /// (height, width, channels)
    pub pixels: Vec<u8>,
}

impl RawImage {
    /// Checks that the fields agree with each other; the error names the contradiction.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        let (w, h, c) = (self.width, self.height, self.channels);
        let expected = w.checked_mul(h).and_then(|area| area.checked_mul(c));
        if w == 0 || h == 0 || !matches!(c, 1 | 3) || expected != Some(self.pixels.len()) {
            return Err(DataError::Settings(format!(
                "an image of {w} x {h} pixels and {c} channels holds {} bytes; expected at least 1 \
                 x 1 pixels, 1 or 3 channels and one byte per value",
                self.pixels.len()
            )));
        }
        Ok(())
    }

    /// The pixels of an image, 16-bit samples cut to their high byte, without transparency.
    pub(crate) fn from_dynamic(image: DynamicImage) -> RawImage {
        let (width, height) = (image.width() as usize, image.height() as usize);
        let high = |x: u16| (x >> 8) as u8;
        let (channels, pixels) = match image {
            DynamicImage::ImageLuma8(grey) => (1, grey.into_raw()),
            DynamicImage::ImageRgb8(rgb) => (3, rgb.into_raw()),
            DynamicImage::ImageLumaA8(_) => (1, image.into_luma8().into_raw()),
            DynamicImage::ImageLuma16(grey) => (1, grey.into_raw().into_iter().map(high).collect()),
            DynamicImage::ImageLumaA16(grey) => (1, grey.pixels().map(|p| high(p.0[0])).collect()),
            DynamicImage::ImageRgb16(rgb) => (3, rgb.into_raw().into_iter().map(high).collect()),
            DynamicImage::ImageRgba16(rgba) => {
                let colours = rgba.pixels().flat_map(|p| [p.0[0], p.0[1], p.0[2]]);
                (3, colours.map(high).collect())
            }
            other => (3, other.into_rgb8().into_raw()),
        };
        RawImage {
            width,
            height,
            channels,
            pixels,
        }
    }

    pub(crate) fn oriented(self, orientation: Orientation) -> RawImage {
        if orientation == Orientation::NoTransforms {
            return self;
        }
        let (w, h) = (self.width as u32, self.height as u32);
        let image = match self.channels {
            1 => GrayImage::from_raw(w, h, self.pixels).map(DynamicImage::from),
            _ => RgbImage::from_raw(w, h, self.pixels).map(DynamicImage::from),
        };
        let mut image = image.unwrap_or_default();
        image.apply_orientation(orientation);
        RawImage::from_dynamic(image)
    }
}

/// Rejects decompression bombs.
pub(crate) fn check_size(width: u64, height: u64, bytes: u64) -> Result<(), String> {
    let pixels = width * height;
    if pixels == 0 || pixels > MAX_PIXELS || bytes > MAX_BYTES {
        return Err(format!(
            "declares {width} x {height} pixels ({bytes} bytes); expected at least 1 and at most \
             {MAX_PIXELS} pixels in {MAX_BYTES} bytes"
        ));
    }
    Ok(())
}
