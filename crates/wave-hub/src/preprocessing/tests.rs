use std::fs;

use serde_json::json;

use super::*;
use crate::numbers::{FLOOR, check_numbers};
use crate::testing::check_refused;

fn read_files(config: Value, files: &[(&str, Value)]) -> Result<Preprocessing, HubError> {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("config.json"), config.to_string()).unwrap();
    for (name, value) in files {
        fs::write(root.path().join(name), value.to_string()).unwrap();
    }
    read_preprocessing(root.path())
}

fn read(config: Value, steps: Value) -> Result<Preprocessing, HubError> {
    read_files(config, &[(PREPROCESSOR_FILE, steps)])
}

fn processor(steps: Value) -> Preprocessing {
    read(json!({"model_type": "vit"}), steps).unwrap()
}

/// Size, share and mode.
fn geometry(steps: &Preprocessing) -> ([usize; 2], f64, &str) {
    let (size, pct) = (steps.size.value, steps.crop_pct.value);
    (size, pct, steps.crop_mode.value.as_str())
}

/// The steps without their sources.
fn values(steps: &Preprocessing) -> Vec<String> {
    let described = steps.described().into_iter();
    described.map(|(_, value, _)| value).collect()
}

#[test]
fn timms_words_are_read_with_their_origin() {
    let config = json!({
        "architecture": "x", "num_classes": 2,
        "pretrained_cfg": {
            "input_size": [3, 28, 32], "crop_pct": 0.9, "interpolation": null,
            "crop_mode": "squash", "mean": [0.5], "std": [0.25],
        },
    });
    // A directory of timm's means what its config says, whatever other files it has.
    let steps = read(config, json!({"size": 7})).unwrap();
    assert_eq!(geometry(&steps), ([28, 32], 0.9, "squash"));
    assert_eq!(steps.crop_offset.value, HALF_TO_EVEN);
    // Until the network's channels are known.
    assert_eq!(steps.mean.value, [0.5]);
    let source = steps.mean.source.to_string();
    assert_eq!(source, "config.json: pretrained_cfg.mean");
    // Null counts as absent.
    assert_eq!(steps.interpolation.value, "bicubic");
    assert!(matches!(steps.interpolation.source, Source::Class(_)));
}

#[test]
fn a_size_that_is_fixed_is_the_networks_unless_it_is_dynamic() {
    let size = |architecture: &str, args: Value| {
        let config = json!({
            "architecture": architecture, "num_classes": 2, "model_args": args,
            "pretrained_cfg": {"input_size": [3, 96, 96], "fixed_input_size": true},
        });
        read_files(config, &[]).unwrap().size.value
    };
    let (own, dynamic) = (
        json!({"img_size": 64}),
        json!({"img_size": 64, "dynamic_img_size": true}),
    );
    let fixed = json!({"img_size": 64, "dynamic_img_size": false});
    assert_eq!(size("vit_tiny_patch16_224", own.clone()), [64; 2]);
    assert_eq!(size("vit_tiny_patch16_224", dynamic), [96; 2]);
    // timm registers these so.
    for name in [
        "vit_small_patch16_dinov3",
        "vit_base_patch16_lingbot.x",
        "test_vit2",
    ] {
        assert_eq!(size(name, own.clone()), [96; 2], "{name}");
        assert_eq!(size(name, fixed.clone()), [64; 2], "{name}");
    }
}

#[test]
fn older_configurations_of_timm_have_their_keys_at_the_top() {
    let config = json!({
        "architecture": "resnet50", "num_classes": 2, "labels": ["a", "b"],
        "input_size": [3, 96, 96], "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6],
        "interpolation": "bilinear", "crop_pct": 0.95, "first_conv": "conv1",
    });
    let steps = read_files(config.clone(), &[]).unwrap();
    assert_eq!(geometry(&steps), ([96, 96], 0.95, "center"));
    assert_eq!(steps.mean.value, [0.1, 0.2, 0.3]);
    assert_eq!(steps.mean.source.to_string(), "config.json: mean");
    let parsed = crate::model::parse(Path::new("config.json"), config).unwrap();
    assert_eq!(parsed.label_names.unwrap(), ["a", "b"]);
    assert_eq!(parsed.pretrained_cfg.std, [0.4, 0.5, 0.6]);
}

#[test]
fn a_file_that_says_nothing_is_an_assumption() {
    for config in [
        json!({"architecture": "x", "num_classes": 2}),
        json!({"architecture": "x", "num_classes": 2, "pretrained_cfg": {"tag": "a"}}),
        json!({"model_type": "clip"}),
        json!({"model_type": "unheard_of"}),
    ] {
        let steps = read_files(config.clone(), &[]).unwrap();
        for (step, _, source) in steps.described() {
            let assumed = matches!(source, Source::Assumed(_)) || step == "crop_offset";
            assert!(assumed, "{config}: {step} {source}");
        }
    }
    let clip = read_files(json!({"model_type": "clip"}), &[]).unwrap();
    assert_eq!(clip.mean.value, [0.48145466, 0.4578275, 0.40821073]);
    assert_eq!(geometry(&clip), ([224; 2], 1.0, "center"));
    let deit = read_files(json!({"model_type": "deit"}), &[]).unwrap();
    assert_eq!(geometry(&deit), ([224; 2], 0.875, "squash"));
}

#[test]
fn a_bare_size_means_what_its_class_means_by_it() {
    let (squash, cropped) = ((28, 1.0, "squash"), (24, 0.857142, "center"));
    for (class, (side, pct, mode)) in [
        ("ViTImageProcessor", squash),
        ("ViTFeatureExtractor", squash),
        ("ViTImageProcessorFast", squash),
        ("BeitImageProcessor", squash),
        ("SiglipImageProcessor", (28, 1.0, "none")),
        ("CLIPImageProcessor", cropped),
        ("CLIPFeatureExtractor", cropped),
        ("BitImageProcessorFast", cropped),
        ("DeiTImageProcessor", (24, 0.857142, "squash")),
        ("ConvNextImageProcessor", (28, 0.875, "center")),
    ] {
        let key = match class.contains("Extractor") {
            true => "feature_extractor_type",
            false => "image_processor_type",
        };
        let mut steps = json!({"size": 28, "resample": 3});
        steps[key] = json!(class);
        if !class.starts_with("ConvNext") {
            steps["crop_size"] = json!(24);
        }
        let found = processor(steps);
        let (size, read, read_mode) = geometry(&found);
        assert_eq!((size, read_mode), ([side; 2], mode), "{class}");
        let resized = |pct: f64| (side as f64 / pct).floor();
        assert_eq!(resized(read), resized(pct), "{class}");
        assert_eq!(found.crop_offset.value, FLOOR, "{class}");
    }
    // A class that no file names is the one of the model's type; a file's rule comes before it.
    let mut steps = json!({"size": 28, "crop_size": 28});
    let found = read(json!({"model_type": "dinov2"}), steps.clone());
    assert_eq!(geometry(&found.unwrap()), ([28; 2], 1.0, "center"));
    steps["default_to_square"] = json!(false);
    steps["do_center_crop"] = json!(true);
    assert_eq!(geometry(&processor(steps)), ([28; 2], 1.0, "center"));
    let large = processor(json!({"image_processor_type": "ConvNextImageProcessor", "size": 384}));
    assert_eq!(geometry(&large), ([384; 2], 1.0, "squash"));
}

#[test]
fn what_a_file_leaves_out_or_nulls_is_the_default_of_its_class() {
    let (squash, center) = ((224, 1.0, "squash"), (224, 1.0, "center"));
    for (class, interpolation, mean, (side, pct, mode)) in [
        ("ViT", "bilinear", 0.5, squash),
        ("DeiT", "bicubic", 0.5, (224, 0.875, "squash")),
        ("Beit", "bicubic", 0.5, squash),
        ("Siglip", "bicubic", 0.5, squash),
        ("CLIP", "bicubic", 0.48145466, center),
        ("Bit", "bicubic", 0.48145466, center),
        ("ConvNext", "bicubic", 0.5, (384, 1.0, "squash")),
        ("DINOv3ViT", "bilinear", 0.485, squash),
    ] {
        let class = format!("{class}ImageProcessor");
        for mut steps in [
            json!({}),
            json!({"size": null, "resample": null, "do_center_crop": null}),
        ] {
            steps["image_processor_type"] = json!(class);
            let found = processor(steps);
            assert_eq!(found.interpolation.value, interpolation, "{class}");
            assert_eq!(found.mean.value[0], mean, "{class}");
            assert_eq!(geometry(&found), ([side; 2], pct, mode), "{class}");
            let source = Source::Class(class.clone());
            assert_eq!(found.interpolation.source, source);
            assert_eq!(found.size.source, source);
        }
    }
    let mixed = processor(json!({"image_processor_type": "CLIPImageProcessor", "size": 256}));
    let expected = "preprocessor_config.json: size; class default of CLIPImageProcessor: crop_size";
    assert_eq!(mixed.size.source.to_string(), expected);
}

#[test]
fn transformers_words_are_read() {
    let convnext = processor(json!({
        "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224},
        "crop_pct": 0.9, "resample": 3, "image_mean": [0.485, 0.456, 0.406],
    }));
    assert_eq!(geometry(&convnext), ([224, 224], 0.9, "center"));
    assert_eq!(convnext.interpolation.value, "bicubic");
    assert_eq!(convnext.mean.value, [0.485, 0.456, 0.406]);

    let vit = processor(json!({"size": {"height": 224, "width": 192}, "do_normalize": true}));
    assert_eq!(geometry(&vit), ([224, 192], 1.0, "squash"));

    let side = json!({"height": 224, "width": 224});
    let mut cropped = json!({"size": {"shortest_edge": 256}, "do_center_crop": true});
    cropped["crop_size"] = side;
    assert_eq!(geometry(&processor(cropped)), ([224, 224], 0.875, "center"));

    let grey = processor(json!({"size": 28, "image_mean": [0.1], "image_std": [0.2]}));
    assert_eq!((grey.channels, grey.size.value), (1, [28, 28]));

    let raw = processor(json!({"size": 28, "do_normalize": false}));
    assert_eq!(raw.mean.value, [0.0; 3]);
    assert_eq!(raw.std.value, [1.0; 3]);
}

#[test]
fn the_processor_of_transformers_5_comes_before_the_older_file() {
    let config = json!({"model_type": "clip", "vision_config": {"num_channels": 3}});
    let inner = json!({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 32}, "crop_size": 28});
    let nested = json!({"image_processor": inner, "processor_class": "CLIPProcessor"});
    let other = json!({"size": 7, "image_processor_type": "ViTImageProcessor"});
    let files = [(PROCESSOR_FILE, nested), (PREPROCESSOR_FILE, other.clone())];
    let steps = read_files(config.clone(), &files).unwrap();
    assert_eq!(geometry(&steps), ([28; 2], 0.875, "center"));
    let source = steps.size.source.to_string();
    assert!(source.starts_with("processor_config.json: "), "{source}");
    // An older file of that name is for text only.
    let texts = json!({"processor_class": "CLIPProcessor"});
    let files = [(PROCESSOR_FILE, texts), (PREPROCESSOR_FILE, other)];
    let steps = read_files(config, &files).unwrap();
    assert_eq!(geometry(&steps), ([7; 2], 1.0, "squash"));
}

#[test]
fn what_no_transform_can_do_is_refused_by_field() {
    let refused = |steps: Value, expected: &str| {
        let config = json!({"num_channels": 3, "model_type": "vit"});
        check_refused(read(config, steps), &[PREPROCESSOR_FILE, expected]);
    };
    refused(json!([]), "describes no steps");
    for case in [
        r#"{"size": {"longest_edge": 3}} => `size` is"#,
        r#"{"size": {"shortest_edge": 28, "longest_edge": 30}} => longest_edge"#,
        r#"{"size": {"height": 0, "width": 3}} => `size` is"#,
        r#"{"size": -1} => `size` is -1"#,
        r#"{"resample": 9} => `resample` is 9"#,
        r#"{"do_rescale": false} => do_rescale"#,
        r#"{"rescale_factor": 1.0} => rescale_factor"#,
        r#"{"rescale_factor": "x"} => rescale_factor"#,
        r#"{"do_pad": true} => `do_pad` is true"#,
        r#"{"rescale_offset": true} => rescale_offset"#,
        r#"{"image_processor_type": "Donut"} => `image_processor_type` is Donut"#,
        r#"{"image_std": [0.0, 1.0, 1.0]} => `image_std`"#,
        r#"{"image_mean": [7, 0, 0]} => `image_mean`"#,
        r#"{"image_mean": "grey"} => `image_mean`"#,
        r#"{"image_mean": [0.5]} => `image_std` has 3"#,
        r#"{"image_mean": [0.5], "image_std": [0.5]} => 1 values for the 3 channels"#,
        r#"{"size": {"shortest_edge": 28}, "do_center_crop": true} => `crop_size` is missing"#,
        r#"{"size": {"shortest_edge": 28}, "do_center_crop": true, "crop_size": 32} => exceeds"#,
        r#"{"size": 28, "do_center_crop": true, "crop_size": 32} => exceeds"#,
        r#"{"size": [28, 30], "do_center_crop": true, "crop_size": 24} => squares only"#,
    ] {
        let (steps, expected) = case.split_once(" => ").unwrap();
        let mut steps: Value = serde_json::from_str(steps).unwrap();
        if steps["size"].is_null() {
            steps["size"] = json!(28);
        }
        refused(steps, expected);
    }
    let square = json!({"height": 28, "width": 28});
    for (size, expected) in [(json!(28), "`crop_pct`"), (square, "`shortest_edge`")] {
        let class = "ConvNextImageProcessor";
        let steps = json!({"size": size, "crop_pct": 2, "image_processor_type": class});
        refused(steps, expected);
    }
    let unheard_of = read(json!({"model_type": "unheard_of"}), json!({"size": 28}));
    check_refused(unheard_of, &["image_processor_type", "unheard_of"]);
}

/// `steps` as they are written, and as they are read back.
fn there_and_back(steps: &Preprocessing) -> (Value, Preprocessing) {
    let written = steps.processor().unwrap();
    let mut config = json!({"model_type": "vit", "num_channels": steps.channels});
    if !written["pretrained_cfg"].is_null() {
        config["image_processor_type"] = written["image_processor_type"].clone();
        config["pretrained_cfg"] = written["pretrained_cfg"].clone();
    }
    let read = read(config, written.clone()).unwrap();
    (written, read)
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
        for offset in [FLOOR, HALF_TO_EVEN] {
            for mode in ["center", "squash", "border"] {
                let grey = json!({"size": side, "image_mean": [0.286], "image_std": [0.353]});
                let mut steps = processor(grey);
                steps.crop_pct.value = crop_pct;
                steps.crop_mode.value = mode.to_owned();
                steps.crop_offset.value = offset.to_owned();
                if (mode, offset) == ("border", FLOOR) {
                    assert!(steps.processor().unwrap_err().contains("border"));
                    continue;
                }
                let (written, read) = there_and_back(&steps);
                if mode == "center" {
                    assert_eq!(written["size"]["shortest_edge"], resized);
                }
                // Only timm itself rounds as timm.
                let by_timm = written["image_processor_type"] == "TimmWrapperImageProcessor";
                assert_eq!(by_timm, written["pretrained_cfg"].is_object());
                let even_margin = mode == "squash" && (resized - side) % 4 != 3;
                let expected = offset == HALF_TO_EVEN && !even_margin;
                assert_eq!(by_timm, expected, "{mode} {resized}");
                assert_eq!((side as f64 / read.crop_pct.value).floor(), resized as f64);
                let mut expected = steps.clone();
                expected.crop_pct.value = read.crop_pct.value;
                if even_margin {
                    expected.crop_offset.value = FLOOR.to_owned();
                }
                assert_eq!(values(&read), values(&expected));
            }
        }
    }
}

#[test]
fn keys_beside_timms_have_to_say_the_same() {
    let mut steps = processor(json!({"size": 28}));
    steps.crop_mode.value = "center".to_owned();
    steps.crop_offset.value = HALF_TO_EVEN.to_owned();
    let written = steps.processor().unwrap();
    for (key, value) in [
        ("resample", json!(0)),
        ("size", json!({"shortest_edge": 30})),
        ("image_mean", json!([0.1, 0.2, 0.3])),
    ] {
        let mut steps = written.clone();
        steps[key] = value;
        let found = read(json!({"model_type": "vit"}), steps);
        check_refused(found, &[PREPROCESSOR_FILE, key, "pretrained_cfg"]);
    }
}

#[test]
fn impossible_numbers_are_refused() {
    let channels = |n: usize| json!({"input_size": [n, 28, 28], "mean": [0.5], "std": [1]});
    for (prepared, found) in [
        (json!([]), "`pretrained_cfg` is []"),
        (json!(["a", false, [3, 28, 28]]), "`pretrained_cfg` is"),
        (json!(null), "`pretrained_cfg` is null"),
        (json!({"crop_pct": 0.001}), "`crop_pct` is 0.001"),
        (json!({"crop_pct": 1e-300}), "`crop_pct` is"),
        (json!({"crop_pct": 100}), "`crop_pct` is 100"),
        (json!({"mean": [1e18], "std": [1]}), "`mean` is"),
        (json!({"mean": [-5], "std": [1]}), "`mean` is"),
        (json!({"mean": [0.5], "std": [0]}), "`std` is"),
        (json!({"mean": [0.5], "std": [1e9]}), "`std` is"),
        (channels(1_000_000_000_000_000_000), "`input_size` is [1000"),
        (
            channels(0),
            "`input_size` is [0, 28, 28], expected 1 to 4096",
        ),
        (
            json!({"input_size": [3, 28, 0]}),
            "`input_size` is [3, 28, 0]",
        ),
        (
            json!({"input_size": [3, 2_000_000, 28]}),
            "1 to 1048576 pixels",
        ),
    ] {
        let config = json!({"architecture": "x", "num_classes": 2, "pretrained_cfg": prepared});
        check_refused(read_files(config, &[]), &["config.json", found]);
    }
    let error = check_numbers(&[f64::NAN], &[0.5], 1.0).unwrap_err();
    assert!(error.contains("`mean` is"), "{error}");
}
