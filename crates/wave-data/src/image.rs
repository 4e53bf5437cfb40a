//! From an image file's bytes to 8-bit pixels.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::{DataError, jpeg};

/// Pillow's limit against decompression bombs: twice a quarter of a gigabyte of RGB pixels.
pub(crate) const MAX_PIXELS: u64 = 178_956_970;

/// A file is not read beyond this size.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 20;

/// Enough for the largest image with an alpha channel.
const MAX_BYTES: u64 = 1 << 30;

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
    /// Whether the fields agree with each other; the message says how they do not.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        let &Self {
            width: w,
            height: h,
            channels: c,
            ..
        } = self;
        let expected = w.checked_mul(h).and_then(|area| area.checked_mul(c));
        if w == 0 || h == 0 || !matches!(c, 1 | 3) || expected != Some(self.pixels.len()) {
            return Err(DataError::Settings(format!(
                "an image of {w} x {h} pixels and {c} channels holds {} bytes; expected at least 1 \
                 x 1 pixels, 1 or 3 channels and a byte for each",
                self.pixels.len()
            )));
        }
        Ok(())
    }
}

/// Decodes a JPEG, PNG, WebP or GIF file, recognised by its content; of an animation, the first
/// frame.
///
/// Grey stays grey; everything else becomes RGB: palettes are looked up, CMYK is converted as Pillow
/// does, transparency is dropped (as `convert("RGB")` drops it), and 16-bit samples keep their high
/// byte. An image whose EXIF data say how to hold it is turned that way. Colour profiles are not
/// applied.
///
/// # Errors
/// When the bytes are not such an image, are damaged or cut off, or declare more than 178,956,970
/// pixels or one gigabyte of samples (found out before any is decoded). The message begins with
/// `path_for_errors`.
pub fn decode(bytes: &[u8], path_for_errors: &str) -> Result<RawImage, DataError> {
    decode_content(bytes).map_err(|problem| DataError::Content {
        path: path_for_errors.to_owned(),
        problem,
    })
}

/// As [`decode`]; the error says what is wrong.
fn decode_content(bytes: &[u8]) -> Result<RawImage, String> {
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "is {} bytes long; expected at most {MAX_FILE_BYTES}",
            bytes.len()
        ));
    }
    if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
        let frame = jpeg::Frame::read(bytes)?;
        return jpeg::decode(bytes, &frame);
    }
    let (decoder, orientation) = open(bytes)?;
    let mut decoded = DynamicImage::from_decoder(decoder).map_err(bad)?;
    decoded.apply_orientation(orientation);
    Ok(from_dynamic(decoded))
}

fn bad(error: image::ImageError) -> String {
    format!("not a readable image: {error}")
}

/// A decoder of a PNG, WebP or GIF file of a bearable size, and how the image is to be held.
fn open(bytes: &[u8]) -> Result<(impl ImageDecoder, Orientation), String> {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_BYTES);
    let mut reader = ImageReader::new(Cursor::new(bytes));
    reader.limits(limits);
    let reader = reader
        .with_guessed_format()
        .map_err(|error| bad(error.into()))?;
    if !matches!(
        reader.format(),
        Some(ImageFormat::Png | ImageFormat::WebP | ImageFormat::Gif)
    ) {
        return Err(
            "not an image: expected the content of a JPEG, PNG, WebP or GIF file".to_owned(),
        );
    }
    let mut decoder = reader.into_decoder().map_err(bad)?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into(), decoder.total_bytes())?;
    // Damaged EXIF data are no reason to refuse the pixels.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((decoder, orientation))
}

/// The (height, width) of an image file as [`decode`] turns it, by its header.
pub(crate) fn size(bytes: &[u8]) -> Option<(usize, usize)> {
    let (width, height, orientation) = if bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
        let frame = jpeg::Frame::read(bytes).ok()?;
        (frame.width, frame.height, frame.orientation)
    } else {
        let (decoder, orientation) = open(bytes).ok()?;
        let (width, height) = decoder.dimensions();
        (width as usize, height as usize, orientation)
    };
    Some(match orientation {
        Orientation::Rotate90
        | Orientation::Rotate270
        | Orientation::Rotate90FlipH
        | Orientation::Rotate270FlipH => (width, height),
        _ => (height, width),
    })
}

/// Refuses decompression bombs.
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

fn from_dynamic(image: DynamicImage) -> RawImage {
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

impl RawImage {
    /// Turned and mirrored.
    pub(crate) fn oriented(self, orientation: Orientation) -> RawImage {
        use image::{GrayImage, RgbImage};
        if orientation == Orientation::NoTransforms {
            return self;
        }
        let (w, h) = (self.width as u32, self.height as u32);
        let turn = |image: DynamicImage| {
            let mut image = image;
            image.apply_orientation(orientation);
            from_dynamic(image)
        };
        match self.channels {
            1 => GrayImage::from_raw(w, h, self.pixels).map(|i| turn(i.into())),
            _ => RgbImage::from_raw(w, h, self.pixels).map(|i| turn(i.into())),
        }
        .unwrap_or(RawImage {
            width: 0,
            height: 0,
            channels: 1,
            pixels: Vec::new(),
        })
    }
}

#[cfg(test)]
#[path = "image_tests.rs"]
mod tests;
