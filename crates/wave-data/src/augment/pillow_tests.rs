//! Every operation against Pillow's numbers (`tests/fixtures/make_pillow.py`).

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::rand_augment::{OPERATIONS, Operation};
use super::*;
use crate::RawImage;
use crate::augment::crop::Rectangle;
use crate::testing::{check_refused, pillow as fixture};
use crate::transform::resize_rectangle;

fn bytes(list: &Value) -> Vec<u8> {
    let list = list.as_array().expect("a list of the fixture");
    list.iter().map(|x| x.as_u64().unwrap() as u8).collect()
}

fn colour_image(width: usize, height: usize, pixels: &Value) -> RawImage {
    RawImage {
        width,
        height,
        channels: 3,
        pixels: bytes(pixels),
    }
}

/// At most one level of difference.
#[track_caller]
fn check(name: &str, found: &[u8], expected: &Value) {
    let expected = bytes(expected);
    assert_eq!(found.len(), expected.len(), "{name}");
    for (i, (&f, &e)) in found.iter().zip(&expected).enumerate() {
        assert!(f.abs_diff(e) <= 1, "{name}: {f} for {e} at {i}");
    }
}

#[test]
fn every_operation_gives_pillows_numbers() {
    let all = fixture();
    let all = &all["operations"];
    let mut tried = 0;
    for (key, expected) in all.as_object().unwrap() {
        let (name, argument) = key.split_once(' ').unwrap_or((key, "0"));
        let name = name.replace('_', "");
        let mut operations = OPERATIONS.into_iter();
        let named = operations.find(|operation| format!("{operation:?}").to_lowercase() == name);
        let Some(operation) = named else { continue };
        let mut image = match operation {
            Operation::AutoContrast => colour_image(12, 10, &all["muted"]),
            Operation::Equalise => colour_image(40, 30, &all["large"]),
            _ => colour_image(12, 10, &all["input"]),
        };
        operation.apply(&mut image, argument.parse().unwrap(), [124, 116, 104]);
        check(key, &image.pixels, expected);
        tried += 1;
    }
    assert_eq!(tried, 19);
    let mut image = colour_image(12, 10, &all["input"]);
    colour::saturation(&mut image, 0.0);
    check("grey", &image.pixels, &all["grey"]);
}

#[test]
fn a_crop_is_resized_as_pillow_does() {
    let all = fixture();
    let image = colour_image(40, 30, &all["operations"]["large"]);
    for (key, expected) in all["operations"]["crop"].as_object().unwrap() {
        let [top, left, height, width]: [usize; 4] = serde_json::from_str(key).unwrap();
        let rectangle = Rectangle {
            left,
            top,
            width,
            height,
        };
        let found = resize_rectangle(&image, rectangle, 1, 8);
        check(key, &found, expected);
    }
}

#[test]
fn the_magnitudes_are_timms() {
    let all = fixture();
    let levels = all["levels"].as_object().unwrap();
    for (k, (name, expected)) in levels.iter().enumerate() {
        let operation = OPERATIONS[k % 15];
        let expected: [f64; 5] = serde_json::from_value(expected.clone()).unwrap();
        for (level, expected) in [0.0, 3.3, 9.0, 9.4, 10.0].into_iter().zip(expected) {
            let found = operation.argument(level, name.ends_with("True"), false);
            let close = (found - expected).abs() < 1e-9;
            assert!(close, "{name} as {operation:?}: {found} for {expected}");
        }
    }
    assert_eq!(levels.len(), 30);
}

#[test]
fn timms_notation_is_read() {
    let policy: RandAugment = "rand-m9-mstd0.5-inc1".parse().unwrap();
    assert_eq!((policy.operations, policy.probability), (2, 0.5));
    assert_eq!((policy.magnitude, policy.deviation), (9.0, 0.5));
    assert!(policy.increasing);
    let policy: RandAugment = "rand-m7-n3-p0.8".parse().unwrap();
    assert_eq!((policy.operations, policy.probability), (3, 0.8));
    assert_eq!((policy.magnitude, policy.deviation), (7.0, 0.0));
    assert!(!policy.increasing);
    for wrong in ["", "rand-x3", "augmix-m3", "rand-m", "rand-m99", "rand-p2"] {
        check_refused(wrong.parse::<RandAugment>(), &["RandAugment"]);
    }
}

#[test]
fn painting_depends_on_the_generator_alone() {
    let policy: RandAugment = "rand-m9-mstd0.5-inc1".parse().unwrap();
    let all = fixture();
    let painted = |seed| {
        let mut image = colour_image(12, 10, &all["operations"]["input"]);
        policy.apply(&mut image, [9; 3], &mut ChaCha8Rng::seed_from_u64(seed));
        image.pixels
    };
    assert_eq!(painted(1), painted(1));
    assert!((2..9).any(|seed| painted(seed) != painted(1)));
}

#[test]
fn grey_images_can_be_painted() {
    for operation in OPERATIONS {
        for level in [0.0, 5.0, 10.0] {
            let mut image = RawImage {
                width: 7,
                height: 5,
                channels: 1,
                pixels: (0..35).map(|k| 7 * k).collect(),
            };
            operation.apply(&mut image, operation.argument(level, true, true), [3; 3]);
            image.check().unwrap();
        }
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |change: &dyn Fn(&mut Augment), expected| {
        let mut augment = Augment::NONE;
        change(&mut augment);
        check_refused(augment.check(8), &[expected]);
    };
    refused(&|a| a.crop_padding = 9, "crop_padding");
    refused(&|a| a.repeats = 0, "0 repeats");
    let crop = &|a: &mut Augment| a.resized_crop.get_or_insert_default().scale = (0.5, 0.1);
    refused(crop, "the smaller first");
    refused(&|a| a.erasing = Some(f64::NAN), "probability of 0 to 1");
    let mixing = Mixing {
        mixup: -1.0,
        cutmix: 1.0,
    };
    refused(&|a| a.mixing = Some(mixing), "0 (off)");
    Augment::NONE.check(1).unwrap();
}
