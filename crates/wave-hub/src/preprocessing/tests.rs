use std::fs;

use serde_json::json;

use super::*;
use crate::testing::check_request;

fn read(config: Value, steps: Option<Value>) -> Result<Option<Preprocessing>, HubError> {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("config.json"), config.to_string()).unwrap();
    if let Some(steps) = steps {
        fs::write(root.path().join(PREPROCESSOR_FILE), steps.to_string()).unwrap();
    }
    read_preprocessing(root.path())
}

fn processor(steps: Value) -> Preprocessing {
    read(json!({"model_type": "vit"}), Some(steps))
        .unwrap()
        .unwrap()
}

#[test]
fn timms_words_are_read() {
    let config = json!({
        "architecture": "x", "num_classes": 2,
        "pretrained_cfg": {
            "input_size": [3, 28, 32], "crop_pct": 0.9, "interpolation": "bilinear",
            "crop_mode": "squash", "mean": [0.5], "std": [0.25],
        },
    });
    let expected = Preprocessing {
        channels: 3,
        size: [28, 32],
        interpolation: "bilinear".to_owned(),
        crop_pct: 0.9,
        crop_mode: "squash".to_owned(),
        mean: vec![0.5; 3],
        std: vec![0.25; 3],
    };
    // A directory of timm's means what its config says, whatever lies beside it.
    let other = json!({"size": 7});
    assert_eq!(read(config, Some(other)).unwrap().unwrap(), expected);
}

#[test]
fn transformers_words_are_read() {
    let convnext = processor(json!({
        "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224},
        "crop_pct": 0.9, "resample": 3,
        "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
    }));
    let expected = Preprocessing {
        channels: 3,
        size: [224, 224],
        interpolation: "bicubic".to_owned(),
        crop_pct: 0.9,
        crop_mode: "center".to_owned(),
        mean: vec![0.485, 0.456, 0.406],
        std: vec![0.229, 0.224, 0.225],
    };
    assert_eq!(convnext, expected);

    let vit = processor(json!({"size": {"height": 224, "width": 192}, "do_normalize": true}));
    assert_eq!((vit.size, vit.crop_mode.as_str()), ([224, 192], "squash"));
    assert_eq!(
        (vit.interpolation.as_str(), vit.crop_pct),
        ("bilinear", 1.0)
    );
    assert_eq!((vit.mean, vit.std), (vec![0.5; 3], vec![0.5; 3]));

    let cropped = processor(json!({
        "size": {"shortest_edge": 256}, "do_center_crop": true,
        "crop_size": {"height": 224, "width": 224},
    }));
    assert_eq!((cropped.size, cropped.crop_pct), ([224, 224], 0.875));

    let grey = processor(json!({"size": 28, "image_mean": [0.1], "image_std": [0.2]}));
    assert_eq!((grey.channels, grey.size), (1, [28, 28]));

    let raw = processor(json!({"size": 28, "do_normalize": false}));
    assert_eq!((raw.mean, raw.std), (vec![0.0; 3], vec![1.0; 3]));
}

#[test]
fn a_model_that_says_nothing_has_none() {
    assert_eq!(read(json!({"model_type": "vit"}), None).unwrap(), None);
}

#[test]
fn what_no_transform_can_do_is_refused_by_field() {
    for (steps, expected) in [
        (json!({}), "`size` is missing"),
        (json!({"size": {"longest_edge": 3}}), "`size` is"),
        (json!({"size": {"height": 0, "width": 3}}), "`size` is"),
        (json!({"size": -1}), "`size` is -1"),
        (json!({"size": 28, "resample": 9}), "`resample` is 9"),
        (json!({"size": 28, "do_rescale": false}), "do_rescale"),
        (json!({"size": 28, "rescale_factor": 1.0}), "rescale_factor"),
        (json!({"size": 28, "do_pad": true}), "do_pad"),
        (
            json!({"size": 28, "image_std": [0.0, 1.0, 1.0]}),
            "`image_std`",
        ),
        (json!({"size": 28, "image_mean": "grey"}), "`image_mean`"),
        (
            json!({"size": 28, "image_mean": [0.5]}),
            "`image_std` has 3",
        ),
        (
            json!({"size": {"shortest_edge": 28}, "crop_pct": 2}),
            "`crop_pct`",
        ),
        (
            json!({"size": {"shortest_edge": 28}, "do_center_crop": true}),
            "`crop_size` is missing",
        ),
        (
            json!({"size": {"shortest_edge": 28}, "do_center_crop": true, "crop_size": 32}),
            "exceeds",
        ),
        (
            json!({"size": 28, "image_mean": [0.5], "image_std": [0.5]}),
            "1 values for the 3 channels",
        ),
    ] {
        let error = read(json!({"num_channels": 3}), Some(steps)).unwrap_err();
        check_request(error, &[PREPROCESSOR_FILE, expected]);
    }
}

#[test]
fn what_is_written_for_transformers_reads_back() {
    for (side, crop_pct, resized) in [
        (224, 0.9, 248),
        (224, 0.875, 256),
        (224, 0.95, 235),
        (28, 1.0, 28),
        (384, 1.0, 384),
        (224, f64::from(0.8_f32), 280),
        (33, 0.37, 89),
    ] {
        let steps = Preprocessing {
            channels: 1,
            size: [side; 2],
            interpolation: "bicubic".to_owned(),
            crop_pct,
            crop_mode: "center".to_owned(),
            mean: vec![0.286],
            std: vec![0.353],
        };
        let written = steps.processor().unwrap();
        assert_eq!(written["size"]["shortest_edge"], resized);
        let read = processor(written);
        assert_eq!((side as f64 / read.crop_pct).floor(), f64::from(resized));
        assert!((read.crop_pct - crop_pct).abs() < 0.01);
        let expected = Preprocessing {
            crop_pct: read.crop_pct,
            ..steps
        };
        assert_eq!(read, expected);
    }
    let squash = Preprocessing {
        crop_mode: "squash".to_owned(),
        ..processor(json!({"size": 28}))
    };
    assert_eq!(squash.processor(), None);
}
