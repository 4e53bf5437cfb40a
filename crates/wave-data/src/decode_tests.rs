use std::io::Cursor;

use image::{GrayImage, ImageFormat, Luma, LumaA, Rgb, RgbImage};

use super::*;
use crate::testing;

fn encode<I: Into<DynamicImage>>(image: I, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

fn gradient() -> RgbImage {
    RgbImage::from_fn(12, 8, |x, y| Rgb([20 * x as u8, 30 * y as u8, 100]))
}

#[test]
fn lossless_formats_keep_every_pixel() {
    use ImageFormat::{Bmp, Png, Pnm, Tiff, WebP};
    for format in [Png, WebP, Bmp, Tiff, Pnm] {
        let bytes = encode(gradient(), format);
        let image = decode(&bytes, "x").unwrap();
        assert_eq!((image.width, image.height, image.channels), (12, 8, 3));
        assert_eq!(image.pixels, gradient().into_raw(), "{format:?}");
        assert_eq!(size(&bytes), Some((8, 12)));
        check_refused(&bytes[..bytes.len() / 2], "not a readable image");
    }
    let light = image::Rgb32FImage::from_pixel(2, 2, Rgb([0.5; 3]));
    check_refused(&encode(light, Tiff), "floating-point");
}

#[test]
fn grey_stays_grey_and_transparency_is_dropped() {
    let grey = |x: u32, y: u32| (40 * x + 7 * y) as u8;
    let opaque = GrayImage::from_fn(5, 4, |x, y| Luma([grey(x, y)]));
    let expected = opaque.clone().into_raw();
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let image = decode(&encode(opaque.clone(), format), "x").unwrap();
        assert_eq!(image.channels, 1);
    }
    let alpha = image::ImageBuffer::from_fn(5, 4, |x, y| LumaA([grey(x, y), 13 * x as u8]));
    let alpha = encode(DynamicImage::ImageLumaA8(alpha), ImageFormat::Png);
    let image = decode(&alpha, "x").unwrap();
    assert_eq!((image.channels, image.pixels), (1, expected));
}

#[track_caller]
fn check_refused(bytes: &[u8], expected: &str) {
    let decoded = decode(bytes, "some/file.jpg");
    testing::check_refused(decoded, &["some/file.jpg: ", expected]);
}

#[test]
fn what_is_no_image_is_refused() {
    check_refused(b"", "not an image");
    check_refused(b"hello, I am a text file", "not an image");
    check_refused(b"GIF89a\x01\0\x01\0\0\0\0", "not a readable image");
    check_refused(&[0xFF, 0xD8, 0xFF, 0xE0, 0, 0], "not a readable image");
}

#[test]
fn a_profile_that_inflates_without_end_is_not_used() {
    use std::io::Write;
    let mut zip = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    (0..64).for_each(|_| zip.write_all(&[0; 1 << 20]).unwrap());
    let mut chunk = b"iCCPx\0\0".to_vec();
    chunk.extend(zip.finish().unwrap());
    let mut crc = flate2::Crc::new();
    crc.update(&chunk);
    let mut png = encode(gradient(), ImageFormat::Png);
    let length = (chunk.len() - 4) as u32;
    chunk.extend(crc.sum().to_be_bytes());
    let mut whole = length.to_be_bytes().to_vec();
    whole.extend(chunk);
    png.splice(33..33, whole); // behind the header
    assert_eq!(decode(&png, "x").unwrap().pixels, gradient().into_raw());
}

#[test]
fn a_bomb_is_refused_before_it_goes_off() {
    // An empty PNG that declares 60,000 x 60,000 pixels; the last four bytes of a chunk are its
    // checksum: python3 -c "import zlib; print(zlib.crc32(b'IHDR' + DATA).to_bytes(4, 'big'))"
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend([0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60, 8, 2, 0, 0, 0]);
    png.extend([0x0F, 0xB0, 0xE2, 0x15]);
    png.extend(b"\0\0\0\0IDAT\x35\xAF\x06\x1E\0\0\0\0IEND\xAE\x42\x60\x82");
    check_refused(&png, "60000 x 60000");

    // Its size is known only from the frame header, which is all that is left of it.
    let mut jpeg = encode(gradient(), ImageFormat::Jpeg);
    let frame = jpeg.windows(2).position(|w| w == [0xFF, 0xC0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF; 4]);
    check_refused(&jpeg, "65535 x 65535");
}
