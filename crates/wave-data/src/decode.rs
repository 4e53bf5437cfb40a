//! From an image file's bytes to 8-bit pixels.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};

use crate::raw_image::{MAX_BYTES, MAX_PIXELS, check_size};
use crate::{DataError, RawImage, jpeg};

/// Files are not read beyond this size.
pub(crate) const MAX_FILE_BYTES: u64 = 256 << 20;

/// Maximum bytes of a file's unused colour profiles and texts: small files may hold large ones, compressed.
const MAX_AROUND: u64 = 16 << 20;

/// Decodes the first image of a JPEG, PNG, WebP, GIF, BMP, TIFF or PNM file, recognised by its content.
///
/// Grey stays grey; everything else becomes RGB: palettes are looked up, CMYK is converted as in Pillow, transparency
/// is dropped (as `convert("RGB")` does), and 16-bit samples keep their high byte (Pillow clips 16-bit greys at 255,
/// which makes nearly all of them white). The EXIF orientation is applied, colour profiles are not.
///
/// # Errors
/// When the bytes are not such an image, are damaged or truncated, or declare more than 178,956,970 pixels or one
/// gigabyte of samples (checked before decoding). The message begins with `path_for_errors`.
pub fn decode(bytes: &[u8], path_for_errors: &str) -> Result<RawImage, DataError> {
    decode_content(bytes).map_err(|problem| DataError::content(path_for_errors, problem))
}

/// The problem with an image file of this many bytes, if there is one.
pub(crate) fn too_long(bytes: u64) -> Option<String> {
    let problem = || format!("is {bytes} bytes long; expected at most {MAX_FILE_BYTES}");
    (bytes > MAX_FILE_BYTES).then(problem)
}

/// Like [`decode`]; the error states the problem.
fn decode_content(bytes: &[u8]) -> Result<RawImage, String> {
    if let Some(problem) = too_long(bytes.len() as u64) {
        return Err(problem);
    }
    if let Some(frame) = jpeg::Frame::read(bytes)? {
        return jpeg::decode(bytes, &frame);
    }
    let (decoder, orientation) = open(bytes)?;
    let kind = decoder.color_type();
    if matches!(kind, ColorType::Rgb32F | ColorType::Rgba32F) {
        return Err("holds floating-point samples; expected 8 or 16 bits".to_owned());
    }
    let mut decoded = DynamicImage::from_decoder(decoder).map_err(bad)?;
    decoded.apply_orientation(orientation);
    Ok(RawImage::from_dynamic(decoded))
}

fn bad(error: image::ImageError) -> String {
    format!("not a readable image: {error}")
}

/// A decoder for a file other than JPEG, of an acceptable size, and the orientation of the image.
fn open(bytes: &[u8]) -> Result<(impl ImageDecoder + '_, Orientation), String> {
    use ImageFormat::{Bmp, Gif, Png, Pnm, Tiff, WebP};
    let format = match image::guess_format(bytes) {
        Ok(format @ (Png | WebP | Gif | Bmp | Tiff | Pnm)) => format,
        _ => {
            let expected = "the content of a JPEG, PNG, WebP, GIF, BMP, TIFF or PNM file";
            return Err(format!("not an image: expected {expected}"));
        }
    };
    let mut limits = Limits::default();
    limits.max_alloc = Some(match format {
        // The limit covers rows of pixels of a PNG file; `check_size` bounds all of them.
        Png => MAX_AROUND + 2 * png_row(bytes).unwrap_or(0),
        _ => MAX_BYTES,
    });
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(bad)?;
    let (width, height) = decoder.dimensions();
    check_size(width.into(), height.into(), decoder.total_bytes())?;
    // Damaged EXIF data are no reason to reject the pixels.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    Ok((decoder, orientation))
}

/// Maximum bytes of a row of pixels in a PNG file.
fn png_row(bytes: &[u8]) -> Option<u64> {
    let width = bytes.get(16..20)?.try_into().ok()?;
    Some(8 * u64::from(u32::from_be_bytes(width)).min(MAX_PIXELS))
}

/// The (height, width) that [`decode`] gives for an image file, from its header.
pub(crate) fn size(bytes: &[u8]) -> Option<(usize, usize)> {
    let (width, height, orientation) = if let Some(frame) = jpeg::Frame::read(bytes).ok()? {
        (frame.width, frame.height, frame.orientation)
    } else {
        let (decoder, orientation) = open(bytes).ok()?;
        let (width, height) = decoder.dimensions();
        (width as usize, height as usize, orientation)
    };
    use Orientation::{Rotate90, Rotate90FlipH, Rotate270, Rotate270FlipH};
    Some(match orientation {
        Rotate90 | Rotate270 | Rotate90FlipH | Rotate270FlipH => (width, height),
        _ => (height, width),
    })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
