//! Populations of small networks: initialisation, training, and statistics of their weights.

use crate::support::{Place, files, values};

const SIZE: &str = "--arch population --networks 6 --depth 2 --width 8 --data shapes --patch 7";

#[test]
fn every_network_learns_and_the_statistics_are_told() {
    let place = Place::new();
    place.json(&format!("init default {SIZE} --out start"));
    let tuned = place.json("finetune start --steps 40 --batch 8 --test-limit 40 --out tuned");
    let [before, after] =
        ["start", "tuned"].map(|dir| place.json(&format!("eval {dir} --test-limit 40")));
    assert_eq!(tuned["top1"], after["top1"]);
    assert!(after["loss"].as_f64().unwrap() < before["loss"].as_f64().unwrap() - 0.1);
    assert_eq!(tuned["images_seen"], 320);

    let seen = place.json("inspect tuned --plots plots");
    assert_eq!(seen["parameters"], tuned["parameters"]);
    let layers = seen["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 2);
    for layer in layers {
        for key in ["stripes_fc1", "stripes_fc2", "fc1_fc2", "centre_product"] {
            assert!(layer[key].as_f64().unwrap().is_finite(), "{key}");
        }
    }
    assert_eq!(
        seen["fc2_across_layers"][1][1].as_f64().map(f64::round),
        Some(1.0)
    );
    let tensors = seen["tensors"].as_array().unwrap().len();
    assert_eq!(seen["between_tensors"].as_array().unwrap().len(), tensors);
    assert!(seen["bias_with_row"]["blocks.1.mlp.fc1.weight"].is_f64());
    for picture in [
        "covariance",
        "covariance-of-channels",
        "network",
        "between-tensors",
        "filter-product",
        "fc2-across-layers",
    ] {
        let picture = place.bytes(&format!("plots/{picture}.png"));
        assert!(picture.starts_with(b"\x89PNG"));
    }
}

#[test]
fn transformers_are_a_population_too() {
    let place = Place::new();
    let size = "--arch vit-population --networks 6 --depth 2 --width 8 --data shapes --patch 7";
    place.json(&format!("init default {size} --out start"));
    let tuned =
        place.json("finetune start --steps 150 --lr 2e-2 --batch 8 --test-limit 40 --out tuned");
    let [before, after] =
        ["start", "tuned"].map(|dir| place.json(&format!("eval {dir} --test-limit 40")));
    assert_eq!(tuned["top1"], after["top1"]);
    assert!(after["loss"].as_f64().unwrap() < before["loss"].as_f64().unwrap() - 0.1);
    let seen = place.json("inspect tuned --plots plots");
    for layer in seen["layers"].as_array().unwrap() {
        assert!(layer["fc1_fc2"].as_f64().unwrap().is_finite());
        assert!(layer.get("centre_product").is_none(), "no filters");
    }
    assert!(!place.path("plots/filter-product.png").exists());
    for (args, needle) in [
        (format!("init default {size} --kernel 3 --out o"), "kernel"),
        (format!("init default {size} --heads 3 --out o"), "heads"),
    ] {
        let output = place.run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "wave {args}: {stderr}");
        assert!(stderr.contains(needle), "wave {args}: {stderr}");
    }
}

#[test]
fn equation_1_is_seen_before_training() {
    let place = Place::new();
    let size = "--arch population --networks 100 --depth 1 --width 16 --data shapes --patch 7";
    place.json(&format!("init default {size} --out plain"));
    place.json(&format!(
        "init mlp-mean --mlp-mean eq1=0.5 {size} --out shifted"
    ));
    let stripes = |dir: &str| {
        let seen = place.json(&format!("inspect {dir}"));
        seen["layers"][0]["stripes_fc1"].as_f64().unwrap()
    };
    assert!((stripes("plain") - 1.0).abs() < 0.3);
    let predicted = (1.0 + 32.0 * 0.25) / 1.25;
    assert!((stripes("shifted") / predicted - 1.0).abs() < 0.3);
}

#[test]
fn training_is_the_same_every_time_and_leaves_frozen_weights_alone() {
    let place = Place::new();
    place.json(&format!("init default {SIZE} --out m"));
    for out in ["a", "b"] {
        let args = "--steps 3 --batch 4 --test-limit 4 --freeze conv_dw";
        place.json(&format!("finetune m {args} --out {out}"));
    }
    let weights = |dir: &str| files(&place.path(dir)).remove("model.safetensors").unwrap();
    assert!(weights("a") == weights("b"));
    let [before, after] = ["m", "a"].map(|dir| {
        let file = place.path(&format!("{dir}/model.safetensors"));
        wave_hub::read_tensors(&file).unwrap().0
    });
    for (name, t) in &before {
        let frozen = name.contains("conv_dw");
        assert_eq!(values(t) == values(&after[name]), frozen, "{name}");
    }
}

#[test]
fn wrong_requests_are_told_what_to_do() {
    let place = Place::new();
    place.json(&format!("init default {SIZE} --out m"));
    let config = String::from_utf8(place.bytes("m/config.json")).unwrap();
    place.write(
        "other/config.json",
        config.replace("\"width\": 8", "\"width\": 9"),
    );
    place.write(
        "other/model.safetensors",
        place.bytes("m/model.safetensors"),
    );
    place.write("bare/config.json", "{\"model_type\": \"wave_population\"}");
    place.write("bare/model.safetensors", place.bytes("m/model.safetensors"));
    for (args, needle) in [
        (format!("init he {SIZE} --out o"), "default, mlp-mean"),
        (
            format!("init default {SIZE} --heads 2 --out o"),
            "means nothing",
        ),
        (
            format!("init default {SIZE} --format onnx --out o"),
            "leave it out",
        ),
        (
            "finetune m --layer-decay 0.5 --out o".into(),
            "means nothing",
        ),
        ("finetune m --batch auto --out o".into(), "for transformers"),
        ("finetune m --data copy --out o".into(), "copy"),
        ("inspect m --html p.html".into(), "--plots"),
        ("eval other".into(), "expected"),
        ("eval bare".into(), "has no shape"),
    ] {
        let output = place.run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "wave {args}: {stderr}");
        assert!(stderr.contains(needle), "wave {args}: {stderr}");
        assert!(!place.path("o/config.json").exists(), "wave {args}");
    }
}
