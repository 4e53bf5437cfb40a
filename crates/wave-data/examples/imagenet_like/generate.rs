//! Image files of all kinds that ImageNet holds, and some more, laid out in folders and in parquet.

use std::fs;
use std::io::{self, Cursor};
use std::path::Path;

use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgb, RgbImage};

/// Sizes of the data set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Classes, at most 100,000.
    pub(crate) classes: usize,
    /// Training images, at least one for each class.
    pub(crate) train: usize,
    /// Test images, at least one for each class.
    pub(crate) val: usize,
    /// About how many pixels wide an image is, at least 8.
    pub(crate) side: u32,
    /// Different images.
    pub(crate) distinct: usize,
}

/// Number of different images. The first nine are not plain JPEG files: grey, progressive, CMYK and
/// turned by EXIF; then PNG files, of a palette, with transparency, of 16 bits, and named `.jpg`; and
/// last a JPEG file that was cut off.
const PERIOD: usize = 1024;

/// The images of each class, in order: more of some than of others, `files` in all.
pub(crate) fn counts(files: usize, classes: usize) -> Vec<usize> {
    let mean = files / classes;
    let mut counts = vec![mean; classes];
    for (pair, two) in counts.chunks_exact_mut(2).enumerate() {
        let moved = pair % (mean / 3 + 1);
        two[0] += moved;
        two[1] -= moved;
    }
    counts[0] += files % classes;
    counts
}

/// Writes `out/train/nCLASS/CLASS_IMAGE.jpg` and the same in `out/val`.
pub(crate) fn image_folder(out: &Path, shape: &Shape) -> io::Result<()> {
    let pool: Vec<(Vec<u8>, &str)> = (0..shape.distinct)
        .map(|k| image_file(k, shape.side))
        .collect::<io::Result<_>>()?;
    let originals = out.join("originals");
    fs::create_dir_all(&originals)?;
    for (k, (bytes, _)) in pool.iter().enumerate() {
        fs::write(originals.join(k.to_string()), bytes)?;
    }
    for (part, files) in [("train", shape.train), ("val", shape.val)] {
        let mut next = 0;
        for (class, count) in counts(files, shape.classes).into_iter().enumerate() {
            let dir = out.join(part).join(format!("n{class:05}"));
            fs::create_dir_all(&dir)?;
            for k in 0..count {
                let which = next % pool.len();
                let name = format!("n{class:05}_{k}.{}", pool[which].1);
                fs::hard_link(originals.join(which.to_string()), dir.join(name))?;
                next += 1;
            }
        }
    }
    fs::remove_dir_all(originals)
}

/// Different image `k`: its bytes and the extension of its name.
fn image_file(k: usize, side: u32) -> io::Result<(Vec<u8>, &'static str)> {
    // Half to one and a half of `side`, landscape and portrait.
    let between = |x: usize| (side / 2 + (x * 7919 % 1009) as u32 * side / 1009).max(4);
    let (width, height) = (between(k), between(k + 31));
    let at = |x: u32, y: u32, c: u32| {
        let (x, y) = (x as f32 / width as f32, y as f32 / height as f32);
        let wave = (9.0 * x + k as f32).sin() + (7.0 * y * (c + 1) as f32).cos();
        128.0 + 60.0 * wave
    };
    let colours = RgbImage::from_fn(width, height, |x, y| {
        Rgb([0, 1, 2].map(|c| at(x, y, c) as u8))
    });
    let grey = GrayImage::from_fn(width, height, |x, y| Luma([at(x, y, 0) as u8]));
    let encode = |image: DynamicImage, format| -> io::Result<Vec<u8>> {
        let mut bytes = Cursor::new(Vec::new());
        let written = image.write_to(&mut bytes, format);
        written.map_err(io::Error::other)?;
        Ok(bytes.into_inner())
    };
    let jpeg = |image| encode(image, ImageFormat::Jpeg);
    let png = |image| encode(image, ImageFormat::Png);
    Ok(match k % PERIOD {
        0 => (jpeg(grey.into())?, "jpg"),
        1 => (
            include_bytes!("../../tests/fixtures/progressive.jpg").to_vec(),
            "JPEG",
        ),
        2 => (
            include_bytes!("../../tests/fixtures/cmyk.jpg").to_vec(),
            "JPEG",
        ),
        3 => (turned(&jpeg(colours.into())?), "jpeg"),
        4 => (
            include_bytes!("../../tests/fixtures/palette.png").to_vec(),
            "png",
        ),
        5 => (png(DynamicImage::from(colours).into_rgba8().into())?, "png"),
        6 => (png(DynamicImage::from(colours).into_rgb16().into())?, "png"),
        7 => (png(colours.into())?, "jpg"),
        8 => {
            let mut bytes = jpeg(colours.into())?;
            bytes.truncate(bytes.len() / 2);
            (bytes, "jpg")
        }
        _ => (jpeg(colours.into())?, "jpg"),
    })
}

/// With EXIF data that say: hold it turned by a quarter.
fn turned(jpeg: &[u8]) -> Vec<u8> {
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0".to_vec();
    exif.extend([0; 4]); // no further directory
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [
        &jpeg[..2],
        &[0xFF, 0xE1][..],
        &length[..],
        &exif[..],
        &jpeg[2..],
    ]
    .concat()
}

/// Writes images as Hugging Face does, in row groups of 100, and returns the length of the file.
#[cfg(feature = "parquet")]
pub(crate) fn parquet(
    path: &Path,
    source: &dyn wave_data::Source,
) -> Result<u64, Box<dyn std::error::Error>> {
    use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::parser::parse_message_type;

    let schema = "message schema {
        optional group image { optional binary bytes; optional binary path (UTF8); }
        optional int64 label;
    }";
    fs::create_dir_all(path.parent().ok_or("expected a file in a directory")?)?;
    let schema = parse_message_type(schema)?.into();
    let mut writer =
        SerializedFileWriter::new(fs::File::create(path)?, schema, Default::default())?;
    let all: Vec<usize> = (0..source.len()).collect();
    for group in all.chunks(100) {
        let (mut bytes, mut paths, mut labels) = (Vec::new(), Vec::new(), Vec::new());
        for &i in group {
            let file = source.encoded(i)?.ok_or("expected images that are files")?;
            bytes.push(ByteArray::from(file));
            paths.push(ByteArray::from(format!("{i}.jpg").as_str()));
            labels.push(i64::from(source.label(i)));
        }
        let mut out = writer.next_row_group()?;
        for values in [bytes, paths] {
            let mut column = out.next_column()?.ok_or("expected a column of bytes")?;
            let levels = vec![2; values.len()];
            let typed = column.typed::<ByteArrayType>();
            typed.write_batch(&values, Some(&levels), None)?;
            column.close()?;
        }
        let mut column = out.next_column()?.ok_or("expected a column of labels")?;
        let levels = vec![1; labels.len()];
        let typed = column.typed::<Int64Type>();
        typed.write_batch(&labels, Some(&levels), None)?;
        column.close()?;
        out.close()?;
    }
    writer.close()?;
    Ok(fs::metadata(path)?.len())
}
