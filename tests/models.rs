//! Reading of models, and messages on those that cannot be read.

use crate::out::write_images;
use crate::support::{INIT, Place, SHAPES, values};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use wave_hub::Weights;

/// Sets one value of a tensor in a weights file.
fn spoil(place: &Place, file: &str, tensor: &str, value: f32) {
    place.rewrite(file, |weights| {
        let old = &weights[tensor];
        let mut values = values(old);
        values[1] = value;
        let new = Tensor::from_vec(values, old.dims(), &Device::Cpu).unwrap();
        weights.insert(tensor.into(), new);
    });
}

#[test]
fn class_names_are_read_where_timm_writes_them() {
    let place = Place::with_model();
    let names = place.config("m")["label_names"].clone();
    assert_eq!(names.as_array().unwrap().len(), 8);
    let moved = |names: Value| {
        place.configure("m", |config| {
            config["pretrained_cfg"]["label_names"] = names;
            config.as_object_mut().unwrap().remove("label_names");
        });
        place.json("convert m --out c --overwrite");
        place.config("c")["label_names"].clone()
    };
    assert_eq!(moved(names.clone()), names);
    // Names of a classifier that was replaced are not those of its classes, which have numbers instead.
    assert_eq!(moved(json!(["cat", "dog"]))[7], "7");
}

#[test]
fn heads_that_nothing_tells_are_assumed_aloud_or_told() {
    let place = Place::new();
    place.json(&format!("{INIT} --out m").replace("--heads 2", "--heads 4"));
    place.write_png("a.png");
    let logits = |args: &str| place.json(args)["predictions"][0]["logits"].clone();
    let known = logits("predict m a.png");
    assert_eq!(logits("predict m/model.safetensors a.png"), known);
    place.write("bare.safetensors", place.bytes("m/model.safetensors"));
    let stderr = place.texts("predict bare.safetensors a.png").1;
    for part in [
        "bare.safetensors",
        "number of attention heads",
        "assuming 1",
        "--heads N",
    ] {
        assert!(stderr.contains(part), "no `{part}` in {stderr}");
    }
    let told = logits("predict bare.safetensors --heads 4 a.png");
    assert_eq!(told.as_array().unwrap().len(), 8);
    // A directory whose name gives the heads, one whose name does not, and `--heads` beside it.
    place.configure("m", |config| {
        let args = config["model_args"].as_object_mut().unwrap();
        args.remove("num_heads");
        config["architecture"] = json!("test_vit");
    });
    let output = place.run("predict m a.png");
    assert!(output.stderr.is_empty() && output.status.success());
    place.fails("predict m --heads 4 a.png", 2, &["--heads 4", "says 2"]);
    place.configure("m", |config| config["architecture"] = json!("vit_of_mine"));
    let stderr = place.texts("predict m a.png").1;
    assert!(stderr.contains("number of attention heads"), "{stderr}");
    let output = place.run("predict m --heads 4 a.png --json");
    assert!(output.stderr.is_empty());
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["predictions"][0]["logits"], known);
    place.configure("m", |config| config["model_args"]["num_heads"] = json!(0));
    for command in ["predict m a.png", "publish m --repo a/b --dry-run"] {
        place.fails(command, 2, &["num_heads is 0, expected a whole number"]);
    }
}

#[test]
fn both_heads_of_a_distilled_model_start_anew() {
    let place = Place::new();
    place.json(&format!("{INIT} --class-token true --out m"));
    place.rewrite("m/model.safetensors", |weights| {
        add_distillation(weights, "")
    });
    place.configure("m", |config| {
        config["architecture"] = json!("deit_tiny_distilled_patch16_224");
        config.as_object_mut().unwrap().remove("digests");
    });
    place.json(&format!(
        "finetune m {SHAPES} --new-head true --steps 0 --out n"
    ));
    let weights = place.tensors("n/model.safetensors");
    for head in ["head.weight", "head_dist.weight"] {
        assert!(values(&weights[head]).iter().all(|v| *v == 0.0), "{head}");
    }

    // The same of templates that are fitted to other classes.
    let token = "--set condense.auxiliary.class_token=true";
    place.json(&format!("condense r.toml {token} --steps 2 --out t"));
    place.rewrite("t/templates.safetensors", |weights| {
        add_distillation(weights, "auxiliary.")
    });
    place.configure("t", |config| {
        config["auxiliary"]["distilled"] = json!(true);
        config.as_object_mut().unwrap().remove("digests");
    });
    write_images(&place, "two");
    place.json("expand t --depth 2 --width 32 --data two --batch 2 --steps 1 --out e");
    let weights = place.tensors("e/model.safetensors");
    for head in ["head.bias", "head_dist.bias"] {
        assert_eq!(weights[head].dims(), [2], "{head}");
    }
}

/// Adds the token and the classifier of distillation to weights whose names begin with `prefix`.
fn add_distillation(weights: &mut Weights, prefix: &str) {
    let named = |name: &str| format!("{prefix}{name}");
    let positions = &weights[&named("pos_embed")];
    let first = positions.narrow(1, 0, 1).unwrap();
    let positions = Tensor::cat(&[&first, positions], 1).unwrap();
    weights.insert(named("pos_embed"), positions);
    for (of, new) in [
        ("cls_token", "dist_token"),
        ("head.weight", "head_dist.weight"),
        ("head.bias", "head_dist.bias"),
    ] {
        let copy = weights[&named(of)].clone();
        weights.insert(named(new), copy);
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_by_its_path() {
    let place = Place::with_model();
    let (config, weights) = ("m/config.json", "m/model.safetensors");
    let sound = place.bytes(config);
    for (pointer, value, found) in [
        ("/model_args/depth", json!(-1), "depth"),
        ("/model_args/num_heads", json!(0), "num_heads is 0"),
        ("/num_classes", json!(9), "config.json says"),
        (
            "/pretrained_cfg/input_size",
            json!([1, 28, 32]),
            "input_size",
        ),
    ] {
        place.configure("m", |config| {
            config["label_names"] = Value::Null;
            *config.pointer_mut(pointer).unwrap() = value;
        });
        let told = place.refused("convert m --out o", &["wave: m: ", found]);
        assert!(!told.contains("m: m: "), "{told}");
        place.write(config, &sound);
    }
    place.rewrite(weights, |weights| _ = weights.remove("blocks.1.norm1.bias"));
    for path in ["m", "bare.safetensors"] {
        let parts = [path, ": tensor blocks.1.norm1.bias is missing"].concat();
        place.write("bare.safetensors", place.bytes(weights));
        place.refused(&format!("convert {path} --out o"), &[&parts]);
    }
}

#[test]
fn weights_that_are_not_finite_are_refused_everywhere() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    place.write_png("a.png");
    let tensor = "blocks.0.attn.qkv.weight";
    spoil(&place, "m/model.safetensors", tensor, f32::NAN);
    let told = "NaN or infinite values (1 of 3072)";
    for command in [
        "predict m a.png",
        "predict m/model.safetensors a.png",
        "eval m --data shapes",
        "init weight-selection --from m --depth 1 --width 32 --out o",
        "finetune m --data shapes --steps 3 --out o",
        "condense r.toml --ancestor m --out o",
        "publish m --repo a/b --dry-run",
    ] {
        place.fails(command, 2, &["model.safetensors", tensor, told]);
    }
    let (file, tensor) = ("t/templates.safetensors", "bank.1.proj");
    spoil(&place, file, tensor, f32::INFINITY);
    for command in [
        "expand t --depth 2 --width 32 --steps 0 --out o",
        "publish t --repo a/b --dry-run",
    ] {
        place.fails(command, 2, &["templates.safetensors", tensor, "infinite"]);
    }
}

#[test]
fn logits_that_are_not_finite_are_a_failure() {
    let place = Place::with_model();
    place.write_png("a.png");
    place.rewrite("m/model.safetensors", |weights| {
        for name in ["head.weight", "fc_norm.weight"] {
            let large = (weights[name].ones_like().unwrap() * 3e38).unwrap();
            weights.insert(name.into(), large);
        }
    });
    place.configure("m", |config| config["digests"] = Value::Null); // of other weights
    let parts = ["a.png: the logit of class", "all weights are finite"];
    place.fails("predict m a.png", 1, &parts);
    let parts = ["the loss is", "not finite"];
    place.fails("eval m --data shapes --test-limit 32", 1, &parts);
}

#[test]
fn images_are_prepared_as_the_model_asks_or_not_at_all() {
    let place = Place::with_model();
    let picture = image::RgbImage::from_fn(60, 40, |x, y| image::Rgb([(x * y % 251) as u8; 3]));
    place.save("a.png", picture);
    let predict = || place.json("predict m a.png")["predictions"][0]["logits"].clone();
    let set = |dir: &str, key: &str, value: &str| {
        place.configure(dir, |config| config["pretrained_cfg"][key] = json!(value));
    };
    let mut seen = vec![predict()];
    for (key, value) in [
        ("interpolation", "bilinear"),
        ("interpolation", "nearest"),
        ("crop_mode", "squash"),
        ("crop_mode", "border"),
    ] {
        set("m", key, value);
        let logits = predict();
        assert!(!seen.contains(&logits), "{key} = {value}");
        seen.push(logits);
    }
    // Training keeps the preprocessing.
    place.json(&format!("finetune m {SHAPES} --steps 1 --out f"));
    let config = place.config("f");
    assert_eq!(config["pretrained_cfg"]["interpolation"], "nearest");
    assert_eq!(config["pretrained_cfg"]["crop_mode"], "border");
    for (key, value, sound) in [
        ("interpolation", "cubic", "bicubic"),
        ("crop_mode", "top", "center"),
    ] {
        set("f", key, value);
        let parts = [
            "f/config.json",
            key,
            value,
            "expected one of",
            "correct the file",
        ];
        place.fails("predict f a.png", 2, &parts);
        set("f", key, sound);
    }
}

#[test]
fn a_licence_is_handed_on_to_all_that_is_made() {
    let place = Place::new();
    // Another project's model: no provenance, and a card of its own.
    place.json(&format!("{INIT} --out foreign"));
    place.configure("foreign", |config| {
        config.as_object_mut().unwrap().remove("wave");
    });
    let card = |dir: &str| place.text(&format!("{dir}/README.md"));
    let init = "init weight-selection --from foreign --depth 1 --width 32";
    place.json(&format!("{init} --out unknown"));
    let unknown = card("unknown");
    assert!(unknown.contains("without a known licence"), "{unknown}");
    let licence = "---\nlicense: cc-by-nc-4.0\n";
    place.write("foreign/README.md", format!("{licence}---\n\n# M\n"));
    let short = "--batch 32 --train-limit 64 --test-limit 32 --steps 1";
    place.json(&format!(
        "condense r.toml --ancestor foreign {short} --out t"
    ));
    place.json("expand t --depth 2 --width 32 --steps 0 --out e");
    place.json(&format!("finetune e --data shapes {short} --out f"));
    place.json(&format!("{init} --out i"));
    for dir in ["t", "e", "f", "i"] {
        assert!(card(dir).starts_with(licence), "{dir}: {}", card(dir));
    }
}
