//! Reading of models, and messages on those that cannot be read.

use crate::support::{INIT, Place, values};
use candle_core::{Device, Tensor};
use serde_json::{Value, json};

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
fn heads_that_nothing_tells_are_assumed_aloud_or_told() {
    let place = Place::new();
    place.json(&format!("{INIT} --out m").replace("--heads 2", "--heads 4"));
    place.write_png("a.png");
    let logits = |args: &str| place.json(args)["predictions"][0]["logits"].clone();
    let known = logits("predict m a.png");
    assert_eq!(logits("predict m/model.safetensors a.png"), known);
    std::fs::copy(
        place.path("m/model.safetensors"),
        place.path("bare.safetensors"),
    )
    .unwrap();
    let stderr = place.texts("predict bare.safetensors a.png").1;
    for part in [
        "bare.safetensors",
        "number of attention heads",
        "assuming 1",
        "--heads N",
    ] {
        assert!(stderr.contains(part), "no `{part}` in {stderr}");
    }
    assert_eq!(
        logits("predict bare.safetensors --heads 4 a.png")
            .as_array()
            .unwrap()
            .len(),
        8
    );
    // A directory whose name gives the heads, one whose name does not, and `--heads` beside it.
    place.configure("m", |config| {
        config["model_args"]
            .as_object_mut()
            .unwrap()
            .remove("num_heads");
        config["architecture"] = json!("test_vit");
    });
    let output = place.run("predict m a.png");
    assert!(output.stderr.is_empty() && output.status.success());
    place.fails("predict m --heads 4 a.png", 2, &["--heads 4", "says 2"]);
    place.configure("m", |config| config["architecture"] = json!("vit_of_mine"));
    assert!(
        place
            .texts("predict m a.png")
            .1
            .contains("number of attention heads")
    );
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
fn weights_that_are_not_finite_are_refused_everywhere() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    place.write_png("a.png");
    let tensor = "blocks.0.attn.qkv.weight";
    spoil(&place, "m/model.safetensors", tensor, f32::NAN);
    for command in [
        "predict m a.png",
        "predict m/model.safetensors a.png",
        "eval m --data shapes",
        "init weight-selection --from m --depth 1 --width 32 --out o",
        "finetune m --data shapes --steps 3 --out o",
        "condense r.toml --ancestor m --out o",
        "publish m --repo a/b --dry-run",
    ] {
        place.fails(
            command,
            2,
            &[
                "model.safetensors",
                tensor,
                "NaN or infinite values (1 of 3072)",
            ],
        );
    }
    spoil(
        &place,
        "t/templates.safetensors",
        "bank.1.proj",
        f32::INFINITY,
    );
    for command in [
        "expand t --depth 2 --width 32 --steps 0 --out o",
        "publish t --repo a/b --dry-run",
    ] {
        place.fails(
            command,
            2,
            &["templates.safetensors", "bank.1.proj", "infinite"],
        );
    }
}

#[test]
fn templates_that_cannot_be_expanded_are_not_published() {
    let place = Place::with_templates();
    let file = "t/templates.safetensors";
    let whole = place.bytes(file);
    let both = |parts: &[&str]| {
        place.fails("publish t --repo a/b --dry-run", 2, parts);
        place.fails("expand t --depth 2 --width 32 --steps 0 --out o", 2, parts);
    };
    place.rewrite(file, |weights| {
        weights.retain(|name, _| !name.starts_with("auxiliary."))
    });
    both(&["pos_embed is missing"]);
    place.write(file, &whole);
    place.rewrite(file, |weights| {
        let zeros = weights["templates.fc1"].zeros_like().unwrap();
        weights.insert("templates.fc1".into(), zeros);
    });
    both(&["`templates.fc1` is 0 everywhere"]);
    place.write(file, &whole);
    place.configure("t", |config| config["auxiliary"]["heads"] = json!(0));
    both(&["heads is 0"]);
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
    place.configure("m", |config| {
        config["digests"] = Value::Null; // of other weights
    });
    place.fails(
        "predict m a.png",
        1,
        &["a.png: the logit of class", "all weights are finite"],
    );
    place.fails(
        "eval m --data shapes --test-limit 32",
        1,
        &["the loss is", "not finite"],
    );
}

#[test]
fn images_are_prepared_as_the_model_asks_or_not_at_all() {
    let place = Place::with_model();
    let picture = image::RgbImage::from_fn(60, 40, |x, y| image::Rgb([(x * y % 251) as u8; 3]));
    picture.save(place.path("a.png")).unwrap();
    let predict = || place.json("predict m a.png")["predictions"][0]["logits"].clone();
    let mut seen = vec![predict()];
    for (key, value) in [
        ("interpolation", "bilinear"),
        ("interpolation", "nearest"),
        ("crop_mode", "squash"),
        ("crop_mode", "border"),
    ] {
        place.configure("m", |config| config["pretrained_cfg"][key] = json!(value));
        let logits = predict();
        assert!(!seen.contains(&logits), "{key} = {value}");
        seen.push(logits);
    }
    // Training keeps the preprocessing.
    place.json(
        "finetune m --data shapes --train-limit 64 --test-limit 32 --batch 32 --steps 1 --out f",
    );
    let config = place.config("f");
    assert_eq!(config["pretrained_cfg"]["interpolation"], "nearest");
    assert_eq!(config["pretrained_cfg"]["crop_mode"], "border");
    for (key, value, sound) in [
        ("interpolation", "cubic", "bicubic"),
        ("crop_mode", "top", "center"),
    ] {
        place.configure("f", |config| config["pretrained_cfg"][key] = json!(value));
        let parts = [
            "f/config.json",
            key,
            value,
            "expected one of",
            "correct the file",
        ];
        place.fails("predict f a.png", 2, &parts);
        place.configure("f", |config| config["pretrained_cfg"][key] = json!(sound));
    }

    place.json(&format!(
        "{INIT} --class-token true --format transformers --out h"
    ));
    let steps = place.read("h/preprocessor_config.json");
    for (key, value, found) in [
        ("do_resize", json!(false), "`do_resize` is false"),
        ("do_center_crop", json!(false), "28 x 28"),
        ("do_pad", json!(true), "do_pad"),
        ("resample", json!(9), "`resample` is 9"),
    ] {
        let mut steps = steps.clone();
        steps[key] = value;
        if key == "do_center_crop" {
            steps["size"] = json!({ "shortest_edge": 32 });
        }
        place.write("h/preprocessor_config.json", steps.to_string());
        place.fails("predict h a.png", 2, &["preprocessor_config.json", found]);
    }
}

#[test]
fn what_is_not_supported_is_told_by_name() {
    let place = Place::with_model();
    place.write_png("a.png");
    let predict = "predict m a.png";
    place.configure("m", |config| config["model_args"]["qk_norm"] = json!(true));
    place.fails(predict, 2, &["qk_norm = true", "the weights have false"]);
    place.configure("m", |config| {
        config["model_args"]["qk_norm"] = Value::Null;
        config["model_args"]["norm_layer"] = json!("rmsnorm");
        config["model_args"]["reg_tokens"] = json!(4);
    });
    let named = ["vit_tiny_patch16_224 is not supported", "norm_layer"];
    place.fails(predict, 2, &named);
    place.configure("m", |config| {
        config["architecture"] = json!("maxvit_tiny_tf_224")
    });
    place.fails(
        predict,
        2,
        &[
            "maxvit_tiny_tf_224 is not supported",
            "none of the supported networks",
        ],
    );
}

#[test]
fn a_card_tells_the_licence_only_where_it_is_known() {
    let place = Place::new();
    let card = |dir: &str| place.text(&format!("{dir}/README.md"));
    place.json(&format!("{INIT} --out scratch"));
    assert!(card("scratch").contains("The licence is not stated"));
    // Another project's model: no provenance, and a card of its own.
    place.json(&format!("{INIT} --out foreign"));
    place.configure("foreign", |config| {
        config.as_object_mut().unwrap().remove("wave");
    });
    let short = "--train-limit 64 --test-limit 32 --steps 1";
    let condense = format!("condense r.toml --ancestor foreign {short}");
    place.write("foreign/README.md", "no head\n");
    place.json(&format!("{condense} --out unknown"));
    assert!(
        card("unknown").contains("without a known licence"),
        "{}",
        card("unknown")
    );
    place.write(
        "foreign/README.md",
        "---\nlicense: cc-by-nc-4.0\n---\n\n# M\n",
    );
    place.json(&format!("{condense} --out t"));
    place.json("expand t --depth 2 --width 32 --steps 0 --out e");
    place.json(&format!(
        "finetune e --data shapes --batch 32 {short} --out f"
    ));
    place.json("init weight-selection --from foreign --depth 1 --width 32 --out i");
    for dir in ["t", "e", "f", "i"] {
        assert!(
            card(dir).starts_with("---\nlicense: cc-by-nc-4.0\n"),
            "{dir}: {}",
            card(dir)
        );
    }
    // A name on the hub may be spelled as timm does.
    for repo in ["a/b", "hf:a/b", "hf-hub:a/b"] {
        let plan = place.json(&format!("publish f --repo {repo} --license mit --dry-run"));
        assert_eq!(plan["repo"], "a/b");
    }
    let mut command = place.command("predict hf-hub:a/b x.png");
    let output = command
        .env("HF_HUB_OFFLINE", "1")
        .env("HF_HOME", place.path("cache"))
        .output();
    let stderr = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(stderr.contains("hf:a/b@main"), "{stderr}");
}
