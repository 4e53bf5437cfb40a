//! Graph hypernetworks: `wave meta` with method ghn3, and `wave init ghn3`.

use crate::support::{Place, assert_same};
use serde_json::Value;

const RECIPE: &str = r#"
[meta]
method = "ghn3"
data = "shapes"
train_limit = 256
test_limit = 40
hidden = 16
layers = 1
graph_heads = 2
decoded = 16
depths = [1, 2]
widths = [16, 24]
head_width = 8
patch = 14
batch = 16
steps = 6
lr = 2e-3
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("meta.toml", RECIPE);
    place
}

#[test]
fn a_hypernetwork_predicts_transformers_of_any_size() {
    let place = place();
    let told = place.json("meta meta.toml --out h");
    let sizes = told["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 4);
    for size in sizes {
        let (depth, width) = (&size["depth"], &size["width"]);
        let out = format!("v-{depth}-{width}");
        let args = format!("init ghn3 --from h --depth {depth} --width {width} --out {out}");
        let model = place.json(&args);
        assert_eq!(model["stored_parameters"], told["parameters"]);
        assert_eq!(model["transferred_parameters"], 0);
        // The accuracy in training is that of `wave eval`.
        let eval = place.json(&format!("eval {out} --data shapes --test-limit 40"));
        assert_eq!(eval["top1"], size["top1"], "{out}");
    }
    // Sizes outside its training, with a class token too.
    place.json("init ghn3 --from h --depth 3 --width 32 --class-token true --out other");
    place.json("finetune other --data shapes --steps 1 --batch 8 --test-limit 8 --out tuned");
    // Another method takes only its images and classes.
    let plain = place.json("init timm --from h --depth 1 --width 16 --out plain");
    assert_eq!(plain["stored_parameters"], 0);
}

#[test]
fn training_helps_and_is_the_same_every_time() {
    let place = place();
    let longer = "--steps 120 --batch 32 --lr 3e-3 --depths 1,1 --widths 16";
    place.json(&format!("meta meta.toml {longer} --out long"));
    let log = String::from_utf8(place.bytes("long/run/log.jsonl")).unwrap();
    let losses: Vec<f64> = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].as_f64())
        .collect();
    let mean = |some: &[f64]| some.iter().sum::<f64>() / some.len() as f64;
    let (first, last) = (mean(&losses[..4]), mean(&losses[losses.len() - 4..]));
    assert!(last < first - 0.02, "{losses:?}");
    for out in ["a", "b"] {
        place.json(&format!("meta meta.toml --out {out}"));
    }
    assert_same(&place.path("a"), &place.path("b"));
    // A complete run is not repeated.
    let file = place.path("a/model.safetensors");
    let written = || std::fs::metadata(&file).unwrap().modified().unwrap();
    let before = written();
    place.json("meta meta.toml --out a --resume");
    assert_eq!(written(), before);
}

#[test]
fn wrong_requests_are_told_what_to_do() {
    let place = place();
    place.json("init timm --data shapes --depth 1 --width 16 --patch 14 --out v");
    let init = "init ghn3 --depth 1 --width 16 --out o";
    for (args, needle) in [
        (init.to_string(), "--from DIR"),
        (format!("{init} --from v"), "no hypernetwork"),
        ("meta meta.toml --hidden 18 --out o".into(), "multiple of 4"),
        ("meta meta.toml --graph-heads 3 --out o".into(), "heads"),
        ("meta meta.toml --penalty 2 --out o".into(), "penalty"),
        (
            "meta meta.toml --depths 3,2 --out o".into(),
            "the least and the most",
        ),
        ("meta meta.toml --widths 25 --out o".into(), "width"),
        ("meta meta.toml --patch 5 --out o".into(), "patch"),
        (
            "meta meta.toml --latent 4 --out o".into(),
            "latent means nothing",
        ),
        (
            "meta meta.toml --layer-decay 0.5 --out o".into(),
            "means nothing",
        ),
        (
            "meta meta.toml --method normal --out o".into(),
            "means nothing",
        ),
        ("meta meta.toml --method hyper --out o".into(), "ghn3"),
    ] {
        let output = place.run(&args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "wave {args}: {stderr}");
        assert!(stderr.contains(needle), "wave {args}: {stderr}");
        assert!(!place.path("o/config.json").exists(), "wave {args}");
    }
}
