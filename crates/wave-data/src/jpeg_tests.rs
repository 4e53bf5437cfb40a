use proptest::prelude::*;

use super::*;
use crate::decode as decode_any;

macro_rules! file {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("../tests/fixtures/", $name)) as &[u8],
        )
    };
}

const FILES: [(&str, &[u8]); 13] = [
    file!("plain.jpg"),
    file!("progressive.jpg"),
    file!("grey.jpg"),
    file!("cmyk.jpg"),
    file!("turned.jpg"),
    file!("turned.png"),
    file!("palette.png"),
    file!("alpha.png"),
    file!("deep.png"),
    file!("bilevel.png"),
    file!("moving.gif"),
    file!("moving.webp"),
    file!("moving.png"),
];

/// JPEG's colour may be off by a few levels where chroma is stored at half size; all else is exact
/// within one.
#[test]
fn files_hold_the_pixels_that_pillow_sees() {
    let fixture = crate::testing::pillow();
    for (name, bytes) in FILES {
        let expected = &fixture["files"][name];
        let image = decode_any(bytes, name).unwrap();
        let size = [image.width as u64, image.height as u64];
        assert_eq!(expected["size"], serde_json::json!(size), "{name}");
        let expected = expected["pixels"].as_array().unwrap();
        let expected = expected.iter().map(|x| x.as_u64().unwrap() as u8);
        let found = image
            .pixels
            .iter()
            .flat_map(|&x| vec![x; 3 / image.channels]);
        let differences: Vec<u8> = found.zip(expected).map(|(f, e)| f.abs_diff(e)).collect();
        let mean =
            differences.iter().map(|&d| f64::from(d)).sum::<f64>() / differences.len() as f64;
        let most = *differences.iter().max().unwrap();
        let (most_allowed, mean_allowed) = match name.ends_with("jpg") {
            true => (12, 1.5),
            false => (1, 0.1),
        };
        let close = most <= most_allowed && mean <= mean_allowed;
        assert!(close, "{name}: {most}, mean {mean}");
    }
}

#[test]
fn a_file_that_was_cut_off_is_broken() {
    for (name, bytes) in FILES {
        for keep in [3, 20, bytes.len() / 2, bytes.len() - 12] {
            let whole = bytes.len();
            let error = decode_any(&bytes[..keep], name);
            // An animation's later frames and a PNG's last chunk are not read.
            let unseen = keep > whole / 2 || name.starts_with("moving");
            assert!(
                error.is_err() || (unseen && !name.ends_with("jpg")),
                "{name}: {keep}"
            );
        }
    }
}

fn frame(bytes: &[u8]) -> Frame {
    Frame::read(bytes).unwrap().unwrap()
}

#[test]
fn a_reduced_image_is_the_mean_of_the_full_one() {
    let (_, bytes) = FILES[0];
    let (_, cmyk) = FILES[3];
    assert!(decode_reduced(cmyk, &frame(cmyk), 2).is_none());
    let frame = frame(bytes);
    let full = decode(bytes, &frame).unwrap();
    for factor in [2, 4, 8] {
        let small = decode_reduced(bytes, &frame, factor).unwrap();
        assert_eq!((small.width, small.height), (24 / factor, 16 / factor));
        if factor == 8 {
            continue; // six pixels: each colour's jumps fill whole blocks
        }
        let mut difference = 0.0;
        for (i, &found) in small.pixels.iter().enumerate() {
            let (k, x, y) = (i % 3, i / 3 % small.width, i / 3 / small.width);
            let block = (0..factor * factor).map(|j| {
                let (row, column) = (y * factor + j / factor, x * factor + j % factor);
                f64::from(full.pixels[(row * 24 + column) * 3 + k])
            });
            let mean = block.sum::<f64>() / (factor * factor) as f64;
            difference += (f64::from(found) - mean).abs();
        }
        // Blue jumps by 256 levels in places, which a low-pass and a mean blur differently.
        let mean = difference / small.pixels.len() as f64;
        assert!(mean < 16.0, "1/{factor}: {mean} levels");
    }
}

/// Rows decoded alone equal the same rows of the whole image, for any chroma subsampling.
#[test]
fn the_top_of_a_file_is_decoded_as_in_the_whole() {
    for (name, file) in [
        file!("tall-444.jpg"),
        file!("tall-422.jpg"),
        file!("tall-420.jpg"),
    ] {
        let frame = frame(file);
        let whole = decode(file, &frame).unwrap();
        assert_eq!((whole.width, whole.height), (41, 90));
        for rows in [1, 7, 8, 15, 16, 17, 47, 48, 64, 89, 90] {
            let top = decode_top(&mut file.to_vec(), &frame, rows).unwrap();
            assert!((rows..=(rows + 16).min(90)).contains(&top.height));
            let n = rows * 41 * 3;
            assert_eq!(top.pixels[..n], whole.pixels[..n], "{name}, {rows} rows");
        }
    }
    for (name, bytes) in &FILES[..5] {
        let frame = frame(bytes);
        let mut upright = frame;
        upright.orientation = Orientation::NoTransforms;
        let whole = decode(bytes, &upright).unwrap();
        for rows in [1, 8, 11] {
            let top = decode_top(&mut bytes.to_vec(), &frame, rows).unwrap();
            let n = rows * whole.width * whole.channels;
            assert_eq!(top.pixels[..n], whole.pixels[..n], "{name}, {rows} rows");
        }
    }
}

#[test]
fn only_an_upright_jpeg_has_a_frame_to_crop() {
    assert_eq!(frame(FILES[0].1).orientation, Orientation::NoTransforms);
    assert_ne!(frame(FILES[4].1).orientation, Orientation::NoTransforms);
    assert!(Frame::read(FILES[5].1).unwrap().is_none()); // no JPEG
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damage_never_panics(file in 0..FILES.len(), at: prop::sample::Index, with: u8, cut: prop::sample::Index) {
        let mut bytes = FILES[file].1.to_vec();
        let at = at.index(bytes.len());
        bytes[at] = with;
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 8);
        if let Ok(image) = decode_any(&bytes, "x") {
            image.check().unwrap();
        }
        if let Ok(Some(frame)) = Frame::read(&bytes) {
            if let Ok(image) = decode_top(&mut bytes.clone(), &frame, frame.height / 2) {
                image.check().unwrap();
            }
            for factor in [2, 4, 8] {
                if let Some(image) = decode_reduced(&bytes, &frame, factor) {
                    image.check().unwrap();
                }
            }
        }
    }
}
