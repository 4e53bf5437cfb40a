//! Condensation from features, and what backbones are worth.

use crate::ancestors::write;
use crate::support::{CONVMIXER, Place};

/// A DINOv2 without a classifier in `a`, three classes of pictures in `three`, and a recipe.
fn place() -> Place {
    let place = Place::new();
    write(&place, "a", "dinov2_headless");
    for (class, red) in [("x", 250), ("y", 120), ("z", 10)] {
        for split in ["train", "val"] {
            for i in 0..6_u32 {
                let picture = image::RgbImage::from_fn(56, 56, |x, y| {
                    image::Rgb([red, (x * i) as u8, (y + 9 * i) as u8])
                });
                place.save(&format!("three/{split}/{class}/{i}.png"), picture);
            }
        }
    }
    place.write(
        "r.toml",
        "data = 'three'\nbatch = 6\n[condense]\nviews = 1\ndepths = [1, 2]\nwidths = [16, 32]\n\
         template_size = 16\nsteps = 4\nlr = 1e-3\n[condense.auxiliary]\ndepth = 2\nwidth = 32\n\
         head_width = 16\npatch = 14\nimage_size = 56\n",
    );
    place
}

#[test]
fn an_ancestor_without_a_classifier_teaches_by_its_features() {
    let place = place();
    let condense = "condense r.toml --ancestor a";
    let plan = place.stdout(&format!("{condense} --dry-run"));
    assert!(plan.contains("48 ancestor features"), "{plan}");
    let made = place.json(&format!("{condense} --cache c --out t"));
    assert!(made["top1"].is_null());
    assert_eq!(made["cache"]["ancestor_images"], 18);
    assert_eq!(made["cache"]["bytes_per_image"], 4 + 2 * 48);
    let config = place.read("t/config.json");
    assert_eq!(config["classes"], 0);
    assert_eq!(config["provenance"]["ancestor_output"], "features");
    let templates = place.tensors("t/templates.safetensors");
    assert!(templates.keys().all(|name| !name.contains("head")));
    let card = place.text("t/README.md");
    let tag = "pipeline_tag: image-feature-extraction";
    assert!(card.contains(tag), "{card}");
    // The outputs come from the cache the second time.
    let again = place.json(&format!("{condense} --cache c --seed 1 --out u"));
    assert_eq!(again["cache"]["ancestor_images"], 0);

    // Backbones of any size, which timm knows as num_classes = 0.
    place.json("expand t --depth 3 --width 48 --out m");
    let config = place.read("m/config.json");
    assert_eq!(config["num_classes"], 0);
    let weights = place.tensors("m/model.safetensors");
    assert!(weights.contains_key("fc_norm.weight") && !weights.contains_key("head.weight"));
    let found = place.json("inspect m");
    let numbers = [&found["classes"], &found["width"]];
    assert_eq!(numbers, [0, 48]);
    place.refused("eval m --data three", &["without a classifier"]);
    place.refused(
        "expand t --depth 1 --width 16 --format onnx --out n",
        &["format = onnx", "classifier"],
    );
    // With data they get a classifier: fitted with the scalers, or with all weights.
    place.json("expand t --depth 1 --width 16 --data three --steps 2 --batch 6 --out s");
    assert_eq!(place.read("s/config.json")["num_classes"], 3);
    place.json("finetune m --data three --steps 2 --batch 6 --new-head true --out f");
    assert_eq!(place.json("eval f --data three")["images"], 18);
}

#[test]
fn templates_grow_towards_features() {
    let place = place();
    let levels = "[{depths=[1,1],widths=[16],steps=2},{steps=3}]";
    let condense = format!("condense r.toml --ancestor a --set condense.levels={levels}");
    let plan = place.stdout(&format!("{condense} --dry-run"));
    assert!(plan.contains("level 1 of levels"), "{plan}");
    place.json(&format!("{condense} --out t"));
    // The level before has the projection to the features, the result no longer.
    let classes = |dir: &str| place.read(&format!("{dir}/config.json"))["classes"].clone();
    assert_eq!([classes("t/run/levels/0"), classes("t")], [48, 0]);
    let templates = place.tensors("t/templates.safetensors");
    assert!(templates.keys().all(|name| !name.contains("head")));
    place.json("expand t --depth 2 --width 32 --out m");
    assert_eq!(place.read("m/config.json")["num_classes"], 0);
    place.json("init timm --data three --depth 1 --width 16 --heads 1 --patch 14 --out v");
    place.refuses(
        "condense r.toml --depths 2,3 --ancestor v --ancestor-output features --out o FLAGS",
        "
        --grow t => only classifier templates can grow
        --grow t/run/levels/0 => 48 outputs, the ancestor 16 features
        ",
    );
}

#[test]
fn features_are_taught_by_choice_and_what_is_of_scores_is_refused() {
    let place = place();
    place.json("init timm --data three --depth 1 --width 16 --heads 1 --patch 14 --out v");
    place.json(&format!("{CONVMIXER} --data three --out c"));
    // Images without labels do.
    let condense = "condense r.toml --ancestor v --ancestor-output features";
    place.json(&format!("{condense} --data three/train/x --out t"));
    assert_eq!(place.config("t")["classes"], 0);
    place.refuses(
        "FLAGS --ancestor-output features --out o",
        "
        condense r.toml --ancestor v --temperature 2 => temperature applies only to score distillation
        condense r.toml --ancestor v --ce-weight 0.5 => ce_weight applies only to score distillation
        condense r.toml --ancestor v --kl-weight 2 => kl_weight applies only to score distillation
        condense r.toml --ancestor v --label-smoothing 0.1 => label_smoothing applies only to score distillation
        condense r.toml --kl-weight 0 => ancestor_output = features | --ancestor A
        condense r.toml --ancestor c => a ConvMixer gives class scores but no features
        ",
    );
    place.refused(
        "eval c --data three --knn 1",
        &["a ConvMixer", "no features"],
    );
}

#[test]
fn features_are_measured_by_neighbours_and_a_line() {
    let place = place();
    let found = place.json("eval a --data three --knn 3");
    for key in ["knn_top1", "linear_top1"] {
        let share = found[key].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&share), "{found}");
    }
    for (key, n) in [
        ("neighbours", 3),
        ("training_images", 18),
        ("images", 18),
        ("features", 48),
    ] {
        assert_eq!(found[key], n, "{key}");
    }
    // Every image is the nearest to itself.
    for class in ["x", "y", "z"] {
        for i in 0..6 {
            let picture = place.bytes(&format!("three/train/{class}/{i}.png"));
            place.write(&format!("own/train/{class}/{i}.png"), &picture);
            place.write(&format!("own/val/{class}/{i}.png"), &picture);
        }
    }
    let own = place.json("eval a --data own --knn 1");
    assert_eq!(own["knn_top1"], 1.0, "{own}");
    let few = place.json("eval a --data three --knn 1 --train-limit 4 --test-limit 5");
    let numbers = [&few["training_images"], &few["images"]];
    assert_eq!(numbers, [4, 5]);
    place.refuses(
        "FLAGS",
        "
        eval a --data three --knn 0 => --knn 0: expected 1 to 18
        eval a --data three --knn 19 => --knn 19
        eval a --data three --train-limit 4 => --knn N
        ",
    );
}
