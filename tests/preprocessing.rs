//! Images are prepared as the library does whose file describes it, and what nothing describes is said.

use crate::support::Place;
use candle_core::Tensor;
use serde_json::{Value, json};

const INIT: &str = "init timm --data images --image-size 28 --depth 1 --width 32 --heads 2 --patch 7 \
                    --class-token true --seed 3";

/// A place with `a.png`, 60 x 40, and `h/` in transformers' layout for 28 x 28 pixels.
fn place() -> Place {
    let place = Place::new();
    let picture = image::RgbImage::from_fn(60, 40, |x, y| {
        let wave = |f: f32| (127.0 + 120.0 * (f * x as f32 + 0.3 * y as f32).sin()) as u8;
        image::Rgb([wave(0.2), wave(0.5), wave(0.9)])
    });
    place.save("a.png", picture.clone());
    for dir in ["train/a", "train/b", "val/a", "val/b"] {
        place.save(&format!("images/{dir}/0.png"), picture.clone());
    }
    place.json(&format!("{INIT} --format transformers --out h"));
    describe(&place, "h", &json!({"size": 28}));
    place
}

/// Replaces all that tells how images are prepared, in transformers' layout.
fn describe(place: &Place, dir: &str, steps: &Value) {
    place.configure(dir, |config| {
        let config = config.as_object_mut().unwrap();
        config.remove("pretrained_cfg");
        config.remove("image_processor_type");
    });
    place.write(
        &format!("{dir}/preprocessor_config.json"),
        steps.to_string(),
    );
}

fn logits(place: &Place, model: &str) -> Value {
    place.json(&format!("predict {model} a.png"))["predictions"][0]["logits"].clone()
}

/// The origin of a step, as `wave inspect` tells it.
fn origin(place: &Place, dir: &str, step: &str) -> String {
    let found = place.json(&format!("inspect {dir}"));
    let mut steps = found["preprocessing"].as_array().unwrap().iter();
    let row = steps.find(|row| row["step"] == step).unwrap();
    row["from"].as_str().unwrap().to_owned()
}

#[test]
fn a_bare_size_is_read_by_its_class() {
    let place = place();
    let read = |steps: &Value| {
        describe(&place, "h", steps);
        logits(&place, "h")
    };
    let clip = json!({"image_processor_type": "CLIPImageProcessor", "size": 35, "crop_size": 28});
    let of_clip = read(&clip);
    let told = json!({"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 35},
                      "crop_size": {"height": 28, "width": 28}, "resample": 3, "do_center_crop": true});
    assert_eq!(of_clip, read(&told));
    let told = json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 28, "width": 28},
                      "resample": 2, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]});
    let of_vit = read(&told);
    assert_ne!(of_clip, of_vit);
    assert_eq!(of_vit, read(&json!({"size": 28})));
    // A file of transformers 5 comes before.
    let file = json!({ "image_processor": clip });
    place.write("h/processor_config.json", file.to_string());
    assert_eq!(logits(&place, "h"), of_clip);
    let from = origin(&place, "h", "mean");
    assert_eq!(from, "class default of CLIPImageProcessor");
    let from = origin(&place, "h", "size");
    assert_eq!(from, "processor_config.json: size, crop_size");
}

#[test]
fn what_nothing_tells_is_a_warning() {
    let place = place();
    let warned = |args: &str, parts: &[&str]| {
        let told = place.texts(args).1;
        let warned = told.contains("wave: warning: ");
        assert_eq!(warned, !parts.is_empty(), "{told}");
        for part in parts {
            assert!(told.contains(part), "no `{part}` in {told}");
        }
    };
    warned("predict h a.png", &[]);
    std::fs::remove_file(place.path("h/preprocessor_config.json")).unwrap();
    let parts = ["assumed", "mean 0.5, 0.5, 0.5", "ViTImageProcessor"];
    warned("predict h a.png", &parts);
    assert!(origin(&place, "h", "mean").starts_with("assumed"));

    place.json(&format!("{INIT} --out m"));
    place.write("bare.safetensors", place.bytes("m/model.safetensors"));
    let parts = [
        "bare.safetensors",
        "mean 0.485, 0.456, 0.406",
        "crop_pct 0.875",
    ];
    warned("predict bare.safetensors a.png --heads 2", &parts);
    warned("predict m a.png", &[]);
    place.configure("m", |config| {
        _ = config.as_object_mut().unwrap().remove("pretrained_cfg")
    });
    let parts = ["config.json does not describe preprocessing"];
    warned("predict m a.png", &parts);
}

#[test]
fn a_single_mean_is_that_of_every_channel_of_the_network() {
    let place = Place::with_model(); // of one channel
    place.configure("m", |config| {
        let prepared = config["pretrained_cfg"].as_object_mut().unwrap();
        prepared.remove("input_size");
        prepared.insert("mean".into(), json!([0.4207]));
        prepared.insert("std".into(), json!([0.3]));
    });
    // The weights beside a config.json stand for their directory.
    for model in ["m", "m/model.safetensors"] {
        let from = origin(&place, model, "mean");
        assert_eq!(from, "config.json: pretrained_cfg.mean", "{model}");
    }
    place.json("convert m --out n");
    assert_eq!(place.config("n")["pretrained_cfg"]["mean"], json!([0.4207]));
}

#[test]
fn a_network_of_four_channels_is_refused_by_them() {
    let place = place();
    place.rewrite("h/model.safetensors", |weights| {
        let name = "vit.embeddings.patch_embeddings.projection.weight";
        let kernels = &weights[name];
        let fourth = kernels.narrow(1, 0, 1).unwrap();
        let four = Tensor::cat(&[kernels, &fourth], 1).unwrap();
        weights.insert(name.into(), four);
    });
    place.configure("h", |config| {
        let config = config.as_object_mut().unwrap();
        config.remove("digests");
        config.remove("num_channels");
    });
    let parts = ["the mean has 3 values", "takes images of 4 channels"];
    place.refused("predict h a.png", &parts);
    std::fs::remove_file(place.path("h/preprocessor_config.json")).unwrap();
    place.configure("h", |config| config["num_channels"] = json!(4));
    let parts = ["input has 4 channels, but images have 1 (grey) or 3"];
    place.refused("predict h a.png", &parts);
}

#[test]
fn a_size_that_is_dynamic_is_the_one_of_the_images() {
    let place = place();
    place.json(&format!("{INIT} --out m"));
    let small = logits(&place, "m");
    let resize = |side: usize, dynamic: bool| {
        place.configure("m", |config| {
            config["pretrained_cfg"]["input_size"] = json!([3, side, side]);
            config["model_args"]["dynamic_img_size"] = json!(dynamic);
        });
    };
    // A network of a fixed size takes its own, and timm says so too.
    resize(56, false);
    assert_eq!(logits(&place, "m"), small);
    resize(56, true);
    assert_eq!(place.json("inspect m")["image_size"], 56);
    let from = origin(&place, "m", "size");
    assert_eq!(from, "config.json: pretrained_cfg.input_size");
    let large = logits(&place, "m");
    assert_ne!(large, small);
    // The written network has that size.
    place.json("convert m --out n");
    assert_eq!(place.config("n")["model_args"]["img_size"], 56);
    assert_eq!(logits(&place, "n"), large);
    resize(30, true);
    place.refused(
        "predict m a.png",
        &["30 x 30", "dynamic_img_size", "whole patches"],
    );
    // One of a size that is not fixed is at odds with its weights.
    resize(56, false);
    place.configure("m", |config| {
        config["pretrained_cfg"]["fixed_input_size"] = json!(false)
    });
    let told = place.texts("predict m a.png").1;
    assert!(told.contains("the weights are for 28 x 28"), "{told}");
}

#[test]
fn a_conversion_keeps_the_pixels() {
    let place = place();
    // 35 of 28: a margin of 7, whose halves the libraries round apart.
    let clip = json!({"image_processor_type": "CLIPImageProcessor", "size": 35, "crop_size": 28});
    let squash = json!({"image_processor_type": "DeiTImageProcessor", "size": 35, "crop_size": 28});
    for steps in [clip, squash, json!({"size": 28})] {
        describe(&place, "h", &steps);
        let expected = logits(&place, "h");
        let told = place.texts("convert h --out timm --overwrite").1;
        assert_eq!(place.config("timm")["crop_offset"], "floor");
        let card = place.text("timm/README.md");
        assert!(card.contains("| crop_offset | floor |\n"), "{card}");
        // Squashed to the input's size, an image is not cropped.
        let crops = steps != json!({"size": 28});
        assert_eq!(told.contains("crops round down"), crops, "{told}");
        assert_eq!(logits(&place, "timm"), expected, "{steps}");
        // The rule of timm's own directories is another.
        place.configure("timm", |config| {
            _ = config.as_object_mut().unwrap().remove("crop_offset")
        });
        let timms = logits(&place, "timm");
        assert_eq!(timms == expected, steps == json!({"size": 28}), "{steps}");
        for dir in ["h", "timm"] {
            place.json(&format!(
                "convert {dir} --format transformers --out again --overwrite"
            ));
            let expected = [&expected, &timms][usize::from(dir == "timm")];
            assert_eq!(&logits(&place, "again"), expected, "{steps} {dir}");
            let written = place.read("again/preprocessor_config.json");
            assert!(written["image_processor_type"].is_string());
        }
    }
    describe(&place, "h", &json!({"size": 28}));
    place.json("convert h --format transformers --out again --overwrite");
    let written = place.read("again/preprocessor_config.json");
    assert_eq!(written["image_processor_type"], "ViTImageProcessor");
    assert_eq!(written["size"], json!({"height": 28, "width": 28}));
    assert_eq!(written["resample"], 2);
}

#[test]
fn an_epsilon_survives_or_is_refused() {
    let place = place();
    place.configure("h", |config| config["layer_norm_eps"] = json!(1e-2));
    let expected = logits(&place, "h");
    for format in ["transformers", "onnx"] {
        place.json(&format!("convert h --format {format} --out {format}"));
        assert_eq!(logits(&place, format), expected, "{format}");
    }
    for more in ["", " --dry-run"] {
        let parts = ["1e-2", "1e-6", "--format transformers"];
        place.refused(&format!("convert h --out timm{more}"), &parts);
    }
    // transformers' default is below timm's, which drowns it.
    place.configure("h", |config| config["layer_norm_eps"] = json!(1e-12));
    let expected = logits(&place, "h");
    place.json("convert h --out timm");
    assert_eq!(place.config("timm")["layer_norm_eps"], 1e-12);
    assert_eq!(logits(&place, "timm"), expected);
    place.configure("h", |config| {
        _ = config.as_object_mut().unwrap().remove("layer_norm_eps")
    });
    assert_eq!(logits(&place, "h"), expected);
}

#[test]
fn templates_are_checked_as_models_are() {
    let place = Place::with_templates();
    let expand = "expand t --depth 2 --width 32 --steps 0 --out m";
    let sound = place.config("t");
    for (key, value) in [
        ("crop_pct", json!(0.001)),
        ("mean", json!([-5.0])),
        ("std", json!([0.0])),
        ("crop_offset", json!("up")),
    ] {
        place.configure("t", |config| config[key] = value);
        place.refused(expand, &["t/config.json", key, "expected"]);
        place.write("t/config.json", sound.to_string());
    }
    place.configure("t", |config| config["crop_offset"] = json!("floor"));
    place.json(expand);
    assert_eq!(place.config("m")["crop_offset"], "floor");
}
