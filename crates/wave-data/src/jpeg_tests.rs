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

/// The loader's tests compare the pixels.
#[test]
fn a_reduced_image_is_of_the_reduced_size() {
    let (plain, cmyk) = (FILES[0].1, FILES[3].1);
    assert!(decode_reduced(cmyk, &frame(cmyk), 2).is_none());
    for factor in [2, 4, 8] {
        let small = decode_reduced(plain, &frame(plain), factor).unwrap();
        assert_eq!((small.width, small.height), (24 / factor, 16 / factor));
    }
}

/// Rows decoded alone equal the same rows of the whole image, for any chroma subsampling.
#[test]
fn the_top_of_a_file_is_decoded_as_in_the_whole() {
    let tall = [
        file!("tall-444.jpg"),
        file!("tall-422.jpg"),
        file!("tall-420.jpg"),
    ];
    for (name, bytes) in tall.iter().chain(&FILES[..5]) {
        let frame = frame(bytes);
        let mut upright = frame;
        upright.orientation = Orientation::NoTransforms;
        let whole = decode(bytes, &upright).unwrap();
        for rows in [1, 7, 8, 11, 15, 16, 17, 47, 48, 64, 89, 90] {
            if rows > whole.height {
                continue;
            }
            let top = decode_top(&mut bytes.to_vec(), &frame, rows).unwrap();
            assert!((rows..=(rows + 16).min(whole.height)).contains(&top.height));
            let n = rows * whole.width * whole.channels;
            assert_eq!(top.pixels[..n], whole.pixels[..n], "{name}, {rows} rows");
        }
    }
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
