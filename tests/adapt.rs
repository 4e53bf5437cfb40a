//! Adaptation of templates to other data, and condensations that draw other shapes.

use crate::support::{Place, SHAPES, files, values};
use serde_json::json;

/// Templates in `t`, and a delta of them in `d`, of few steps on procedural images.
fn place() -> Place {
    let place = Place::with_templates();
    place.json(&format!("adapt t {SHAPES} --steps 6 --out d"));
    place
}

#[test]
fn one_delta_makes_models_of_all_sizes() {
    let place = place();
    let names: Vec<String> = files(&place.path("d")).into_keys().collect();
    assert_eq!(names, ["README.md", "config.json", "delta.safetensors"]);
    let config = place.config("d");
    assert_eq!(config["provenance"]["stage"], "adapt");
    for (depth, width) in [(1, 16), (3, 32), (5, 48)] {
        let size = format!("--depth {depth} --width {width}");
        let made = place.json(&format!("expand t --delta d {size} --out m --overwrite"));
        let found = place.json("eval m --data shapes --test-limit 64");
        let recorded = config["accuracies"].as_array().unwrap().iter();
        let mut recorded = recorded.filter(|a| a["depth"] == depth && a["width"] == width);
        if let Some(recorded) = recorded.next() {
            assert_eq!(made["expected_top1"], recorded["top1"]);
            assert_eq!(found["top1"], recorded["top1"], "{size}");
        }
        let plain = place.json(&format!("expand t {size} --out p --overwrite"));
        assert_eq!(made["parameters"], plain["parameters"]);
        let weights = |dir: &str| place.bytes(&format!("{dir}/model.safetensors"));
        assert_ne!(weights("m"), weights("p"));
    }
    // A delta is known by its content, wherever it is.
    let made = place.json("expand t --delta d --depth 1 --width 16 --out moved");
    std::fs::rename(place.path("d"), place.path("e")).unwrap();
    let again = place.json("expand t --delta e --depth 1 --width 16 --out moved");
    assert_eq!(again, made);
    std::fs::rename(place.path("e"), place.path("d")).unwrap();
    let plan = place.json("publish d --repo me/delta --dry-run");
    assert_eq!(plan["files"].as_array().unwrap().len(), 3);
    let shown = place.json("inspect d");
    assert_eq!(shown["kind"], "delta");
    assert_eq!(shown["templates_sha256"], config["templates_sha256"]);
    let card = place.text("d/README.md");
    assert!(card.contains("wave expand t --delta DIR"), "{card}");
    let plan = place.stdout(&format!("adapt t {SHAPES} --dry-run"));
    assert!(plan.contains("trainable values, 2 anchors"), "{plan}");
}

#[test]
fn the_shipped_templates_adapt_to_other_classes_in_a_few_kilobytes() {
    let place = Place::new();
    let adapt = |flags: &str, out: &str| {
        place.json(&format!("adapt fashion-mnist {SHAPES} {flags} --out {out}"));
        place.bytes(&format!("{out}/delta.safetensors"))
    };
    let expand = |flags: &str, out: &str| {
        place.json(&format!(
            "expand fashion-mnist {flags} --depth 2 --width 64 --out {out}"
        ));
        place.tensors(&format!("{out}/model.safetensors"))
    };
    let rank_0 = adapt("--steps 1 --template-rank 0", "r0");
    let rank_1 = adapt("--steps 1 --template-rank 1", "r1");
    assert!(rank_0.len() <= 8 << 10 && rank_1.len() <= 16 << 10);
    assert!(adapt("--steps 1", "d") == rank_1);
    expand("--delta d", "m");
    let made = place.config("m");
    assert_eq!(made["num_classes"], 8);
    assert_eq!(made["label_names"].as_array().unwrap().len(), 8);
    // Small changes lose little: the delta of no step gives the templates' own features.
    adapt("--steps 0", "z");
    let (adapted, plain) = (expand("--delta z", "n"), expand("", "o"));
    for (name, t) in &plain {
        let same = values(t) == values(&adapted[name]);
        assert_eq!(same, !name.starts_with("head"), "{name}");
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let place = place();
    place.json("condense r.toml --seed 1 --steps 1 --out other");
    place.refuses(
        "FLAGS",
        "
        expand other --delta d --depth 2 --width 32 --out o => made for templates with SHA-256
        expand t --delta t --depth 2 --width 32 --out o => is a template directory | wave adapt
        expand t --delta nowhere --depth 2 --width 32 --out o => nowhere
        expand d --depth 2 --width 32 --out o => is a delta directory | wave condense
        eval d --data shapes => is a delta directory | --delta
        adapt t --out o => --data
        condense r.toml --patches 5 --out o => patches: 5
        condense r.toml --image-sizes 30 --out o => image_sizes: 30
        condense r.toml --head-widths 5 --out o => head_widths: 5
        condense r.toml --mlp-ratios 0.01 --out o => mlp_ratio x width is 0
        condense r.toml --image-sizes 100000 --patches 1 --out o => tokens is 10000000000
        ",
    );
    place.refuses(
        "FLAGS --data shapes --out o",
        "
        adapt d => is a delta directory
        adapt nowhere => nowhere
        adapt t --adapts frobs => frobs | bank.qkv
        adapt t --depths 3,2 => depths = [3, 2]
        adapt t --widths 24 => 24 | head width
        adapt t --anchors 0 => anchors = 0
        adapt t --anchors 99 => anchors = 99 | at most
        adapt t --template-rank 99 => template_rank = 99 | at most
        adapt t --patches 5 => patches: 5
        adapt t --mlp-ratios 0.01 => mlp_ratio x width is 0
        adapt t --adapts templates => templates alone | --template-rank
        ",
    );
}

const VARIANTS: &str = "--mlp-ratios 1,2,4 --head-widths 8,16 --image-sizes 28,56 --patches 4,7,14";

#[test]
fn a_condensation_draws_other_shapes_and_records_them() {
    let place = Place::new();
    place.json(&format!(
        "condense r.toml {VARIANTS} --variant-share 0.8 --out t"
    ));
    let config = place.config("t");
    assert_eq!(config["provenance"]["patches"], json!([4, 7, 14]));
    // Two MLP ratios, one head width, one image size and two patches other than the auxiliary's.
    let shapes = config["shapes"].as_array().unwrap();
    assert_eq!(shapes.len(), 6);
    let other = "--depth 2 --width 32 --mlp-ratio 2 --patch 14 --heads 4";
    let made = place.json(&format!("expand t {other} --out m"));
    assert!(made["expected_top1"].is_number());
    let from = made["expected_from"].as_str().unwrap();
    assert!(from.contains("differ in one property"), "{from}");
    assert!(made.get("not_condensed").is_none());
    let beyond = place.json("expand t --depth 9 --width 32 --patch 2 --out n");
    let outside = beyond["not_condensed"].to_string();
    assert!(outside.contains("\"depth 9, condensed 1 to 3: no accuracy"));
    assert!(outside.contains("\"patch 2, condensed 4 to 14: "));
}

#[test]
fn an_adaptation_draws_other_shapes_and_records_them() {
    let place = Place::with_templates();
    let flags = format!("{SHAPES} --steps 6 {VARIANTS} --variant-share 0.8");
    place.json(&format!("adapt t {flags} --whole true --out w"));
    place.json(&format!("adapt t {flags} --out d"));
    for dir in ["w", "d"] {
        let config = place.config(dir);
        assert_eq!(config["provenance"]["image_sizes"], json!([28, 56]));
        assert_eq!(config["shapes"].as_array().unwrap().len(), 6);
    }
    let shape = "--depth 2 --width 32 --mlp-ratio 2 --image-size 56";
    for templates in ["w", "t --delta d"] {
        let made = place.json(&format!("expand {templates} {shape} --out m --overwrite"));
        assert!(made.get("not_condensed").is_none());
        assert!(made["expected_top1"].is_number());
    }
    let made = place.json(&format!("expand t {shape} --out n"));
    assert_eq!(made["not_condensed"].as_array().unwrap().len(), 2);
    let weights = |dir: &str| place.bytes(&format!("{dir}/templates.safetensors"));
    assert_ne!(weights("t"), weights("w"));
}
