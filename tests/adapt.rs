//! Adaptation of templates to other data, and condensations that draw other shapes.

use crate::support::{Place, SHAPES, assert_same, files, values};

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
    for (rank, most) in [(0, 8 << 10), (1, 16 << 10)] {
        place.json(&format!(
            "adapt fashion-mnist {SHAPES} --steps 1 --template-rank {rank} --out r{rank}"
        ));
        let bytes = place.bytes(&format!("r{rank}/delta.safetensors")).len();
        assert!(bytes <= most, "rank {rank}: {bytes} bytes");
    }
    place.json(&format!("adapt fashion-mnist {SHAPES} --steps 1 --out d"));
    assert_eq!(
        place.bytes("d/delta.safetensors"),
        place.bytes("r1/delta.safetensors")
    );
    let expand = "expand fashion-mnist --delta d --depth 2 --width 64 --out m";
    place.json(expand);
    let made = place.config("m");
    assert_eq!(made["num_classes"], 8);
    assert_eq!(made["label_names"].as_array().unwrap().len(), 8);
    // Small changes lose little: the delta of no step gives the templates' own features.
    place.json(&format!("adapt fashion-mnist {SHAPES} --steps 0 --out z"));
    place.json("expand fashion-mnist --delta z --depth 2 --width 64 --out n");
    place.json("expand fashion-mnist --depth 2 --width 64 --out o");
    let of = |dir: &str| place.tensors(&format!("{dir}/model.safetensors"));
    let (adapted, plain) = (of("n"), of("o"));
    for (name, t) in &plain {
        let same = values(t) == values(&adapted[name]);
        assert_eq!(same, !name.starts_with("head"), "{name}");
    }
}

#[test]
fn adapted_templates_are_a_template_directory() {
    let place = Place::with_templates();
    let adapt = format!("adapt t {SHAPES} --steps 6 --whole true");
    place.json(&format!("{adapt} --out w"));
    let made = place.json("expand w --depth 2 --width 32 --out m");
    assert!(made["expected_top1"].is_number());
    assert_ne!(
        place.bytes("t/templates.safetensors"),
        place.bytes("w/templates.safetensors")
    );
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let place = place();
    place.json("condense r.toml --seed 1 --out other");
    let size = "--depth 2 --width 32 --out o";
    for (args, parts) in [
        (
            format!("expand other --delta d {size}"),
            &["made for templates with SHA-256"][..],
        ),
        (
            format!("expand t --delta t {size}"),
            &["is a template directory", "wave adapt"],
        ),
        (format!("expand t --delta nowhere {size}"), &["nowhere"]),
        (
            format!("expand d {size}"),
            &["is a delta directory", "wave condense"],
        ),
        (
            format!("adapt d {SHAPES} --out o"),
            &["is a delta directory"],
        ),
        (
            "eval d --data shapes".into(),
            &["is a delta directory", "--delta"],
        ),
        (
            format!("adapt t {SHAPES} --adapts frobs --out o"),
            &["frobs", "bank.qkv"],
        ),
        (
            format!("adapt t {SHAPES} --depths 3,2 --out o"),
            &["depths = [3, 2]"],
        ),
        (
            format!("adapt t {SHAPES} --widths 24 --out o"),
            &["24", "head width"],
        ),
        (
            format!("adapt t {SHAPES} --anchors 0 --out o"),
            &["anchors = 0"],
        ),
        ("adapt t --out o".into(), &["--data"]),
        (format!("adapt nowhere {SHAPES} --out o"), &["nowhere"]),
    ] {
        place.refused(&args, parts);
    }
}

#[test]
fn a_delta_is_published_as_it_is() {
    let place = place();
    let plan = place.json("publish d --repo me/delta --dry-run");
    let files = plan["files"].as_array().unwrap().iter();
    let names: Vec<&str> = files.map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(names, ["README.md", "config.json", "delta.safetensors"]);
}

const VARIANTS: &str = "--mlp-ratios 1,2,4 --head-widths 8,16 --image-sizes 28,56 --patches 4,7,14";

#[test]
fn a_condensation_draws_other_shapes_and_records_them() {
    let place = Place::new();
    place.json(&format!(
        "condense r.toml {VARIANTS} --variant-share 0.8 --out t"
    ));
    let config = place.config("t");
    assert_eq!(
        config["provenance"]["patches"],
        serde_json::json!([4, 7, 14])
    );
    // Two MLP ratios, one head width, one image size and two patches other than the auxiliary's.
    let shapes = config["shapes"].as_array().unwrap();
    assert_eq!(shapes.len(), 6);
    let other = "--depth 2 --width 32 --mlp-ratio 2 --patch 14 --heads 4";
    let made = place.json(&format!("expand t {other} --out m"));
    assert!(made["expected_top1"].is_number());
    assert!(
        made["expected_from"]
            .as_str()
            .unwrap()
            .contains("differ in one property")
    );
    assert!(made.get("not_condensed").is_none());
    let beyond = place.json("expand t --depth 9 --width 32 --patch 2 --out n");
    let outside = beyond["not_condensed"].as_array().unwrap();
    let outside: Vec<&str> = outside.iter().map(|line| line.as_str().unwrap()).collect();
    assert!(outside[0].starts_with("depth 9, condensed 1 to 3: no accuracy"));
    assert!(outside[1].starts_with("patch 2, condensed 4 to 14: "));
    // Without lists everything is as it was.
    place.json("condense r.toml --out a");
    place.json("condense r.toml --variant-share 0.3 --out b");
    assert_same(&place.path("a"), &place.path("b"));
}

#[test]
fn an_adaptation_draws_other_shapes_and_records_them() {
    let place = Place::with_templates();
    let flags = format!("{SHAPES} --steps 6 {VARIANTS} --variant-share 0.8");
    place.json(&format!("adapt t {flags} --whole true --out w"));
    place.json(&format!("adapt t {flags} --out d"));
    for dir in ["w", "d"] {
        let config = place.config(dir);
        assert_eq!(
            config["provenance"]["image_sizes"],
            serde_json::json!([28, 56])
        );
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
    place.refused(
        &format!("adapt t {SHAPES} --patches 5 --out o"),
        &["patches: 5"],
    );
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let place = Place::new();
    for (flags, parts) in [
        ("--patches 5", &["patches: 5"][..]),
        ("--image-sizes 30", &["image_sizes: 30"]),
        ("--head-widths 5", &["head_widths: 5"]),
    ] {
        place.refused(&format!("condense r.toml {flags} --out o"), parts);
    }
}
