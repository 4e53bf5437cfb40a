//! JPEG files: their headers, and decoding at no more than the required size.

use std::io::Cursor;

use image::metadata::Orientation;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;

use crate::RawImage;
use crate::raw_image::check_size;

/// The header of a JPEG file. Its sizes are as stored, before the orientation is applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// 1 (grey), 3 (colour) or 4 (CMYK).
    pub(crate) components: u8,
    /// The orientation in its EXIF data.
    pub(crate) orientation: Orientation,
    /// True if [`decode_reduced`] supports its coding.
    reducible: bool,
    /// True if the whole image is in one scan, row by row.
    in_order: bool,
    /// The offset of the height in the file.
    height_at: usize,
    /// Height of a minimum coded unit (MCU), in pixels.
    block_height: usize,
}

impl Frame {
    /// Reads the segments up to the first scan, and looks for the end of the file; `None` if it is no JPEG file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Frame>, String> {
        if !bytes.starts_with(&[0xFF, 0xD8, 0xFF]) {
            return Ok(None);
        }
        let cut = || "not a readable image: the JPEG file is truncated".to_owned();
        let mut frame = None;
        let mut orientation = Orientation::NoTransforms;
        let mut at = 2;
        loop {
            // Any number of 0xFF may stand before a marker, and so may garbage, as libjpeg allows.
            let is_marker = |pair: &[u8]| pair[0] == 0xFF && !matches!(pair[1], 0 | 0xFF);
            let before = bytes[at..].windows(2).position(is_marker);
            at += before.ok_or_else(cut)?;
            let marker = bytes[at + 1];
            at += 2;
            if matches!(marker, 0x01 | 0xD0..=0xD8) {
                continue; // no content
            }
            let length = bytes.get(at..at + 2).ok_or_else(cut)?;
            let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
            let segment = bytes.get(at + 2..at + length).ok_or_else(cut)?;
            let begins = at + 2;
            at += length;
            match marker {
                0xE1 if segment.starts_with(b"Exif\0\0") && segment.len() > 6 => {
                    let found = Orientation::from_exif_chunk(&segment[6..]);
                    orientation = found.unwrap_or(Orientation::NoTransforms);
                }
                0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                    let &[precision, h1, h0, w1, w0, components, ..] = segment else {
                        return Err(cut());
                    };
                    let height = u16::from_be_bytes([h1, h0]);
                    let width = u16::from_be_bytes([w1, w0]);
                    let samples = u64::from(width) * u64::from(height) * u64::from(components);
                    check_size(width.into(), height.into(), samples)?;
                    // Each component's second byte holds its sampling factors, the vertical one in the low bits.
                    let heights = segment[6..].chunks_exact(3);
                    let heights = heights.map(|c| 8 * usize::from(c[1] & 15).clamp(1, 4));
                    frame = Some(Frame {
                        width: width.into(),
                        height: height.into(),
                        components,
                        orientation: Orientation::NoTransforms,
                        reducible: matches!((marker, precision), (0xC0..=0xC2, 8))
                            && matches!(components, 1 | 3),
                        in_order: matches!((marker, precision), (0xC0 | 0xC1, 8)),
                        height_at: begins + 1,
                        block_height: heights.max().unwrap_or(8),
                    });
                }
                0xDA => {
                    if let Some(frame) = &mut frame {
                        frame.in_order &= segment.first() == Some(&frame.components);
                    }
                    break;
                }
                0xD9 => break,
                _ => {}
            }
        }
        let mut frame = frame.ok_or("not a readable image: the JPEG file has no frame")?;
        frame.orientation = orientation;
        // Decoders fill in the missing part of a truncated file.
        let scans = &bytes[at..];
        if !scans.windows(2).rev().any(|pair| pair == [0xFF, 0xD9]) {
            return Err(cut());
        }
        Ok(Some(frame))
    }
}

/// Decodes a whole file and applies its EXIF orientation.
pub(crate) fn decode(bytes: &[u8], frame: &Frame) -> Result<RawImage, String> {
    let bad = |error: zune_jpeg::errors::DecodeErrors| {
        format!("not a readable image: {error:?}").replace('"', "")
    };
    let (channels, colours) = match frame.components {
        1 => (1, ColorSpace::Luma),
        _ => (3, ColorSpace::RGB),
    };
    let options = DecoderOptions::default()
        .set_strict_mode(false)
        .set_max_width(frame.width)
        .set_max_height(frame.height)
        .jpeg_set_out_colorspace(colours);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    let pixels = decoder.decode().map_err(bad)?;
    let image = RawImage {
        width: frame.width,
        height: frame.height,
        channels,
        pixels,
    };
    image.check().map_err(|error| error.to_string())?;
    Ok(image.oriented(frame.orientation))
}

/// Decodes little more than a file's first `rows` rows: an image of at least `rows` rows, without the
/// EXIF orientation. The file's bytes are modified and cannot be reused.
pub(crate) fn decode_top(bytes: &mut [u8], frame: &Frame, rows: usize) -> Result<RawImage, String> {
    let mut top = *frame;
    top.orientation = Orientation::NoTransforms;
    // One more row, since the colour of a row may depend on the next.
    let height = (rows + 1).next_multiple_of(frame.block_height);
    if frame.in_order && height < frame.height {
        // The rows of such a file do not depend on later ones.
        bytes[frame.height_at..frame.height_at + 2].copy_from_slice(&(height as u16).to_be_bytes());
        top.height = height;
    }
    decode(bytes, &top)
}

/// Decodes at 1 / `factor` of the size, rounded up, by leaving out high frequencies: a factor of 2, 4 or 8. `None` if
/// the factor is 1, or if this is impossible. The EXIF orientation is not applied.
pub(crate) fn decode_reduced(bytes: &[u8], frame: &Frame, factor: usize) -> Option<RawImage> {
    if factor == 1 || !frame.reducible {
        return None;
    }
    let mut decoder = jpeg_decoder::Decoder::new(Cursor::new(bytes));
    let side = |n: usize| u16::try_from(n.div_ceil(factor)).ok();
    let size = (side(frame.width)?, side(frame.height)?);
    decoder.read_info().ok()?;
    let (width, height) = decoder.scale(size.0, size.1).ok()?;
    let pixels = decoder.decode().ok()?;
    let image = RawImage {
        width: width.into(),
        height: height.into(),
        channels: frame.components.into(),
        pixels,
    };
    ((width, height) == size && image.check().is_ok()).then_some(image)
}

#[cfg(test)]
#[path = "jpeg_tests.rs"]
mod tests;
