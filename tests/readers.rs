//! Readers account for all that a file holds, and tables for all that names hold.

use crate::support::{Place, SHAPES};
use serde_json::json;
use std::collections::BTreeMap;

/// Templates in `t`, a delta of them in `d`, and a model of both in `e`.
fn place() -> Place {
    let place = Place::with_templates();
    place.json(&format!("adapt t {SHAPES} --steps 2 --out d"));
    place.json("expand t --delta d --depth 2 --width 32 --out e");
    place
}

/// Artefacts that consist of a file with a tensor of this name, and what reads them.
const READERS: [(&str, &str, &str); 5] = [
    (
        "t/templates.safetensors",
        "auxiliary.blocks.1.norm1.bias",
        "expand t --depth 2 --width 32 --out o",
    ),
    ("t/templates.safetensors", "bank.1.qkv", "inspect t"),
    (
        "d/delta.safetensors",
        "auxiliary.blocks.0.norm1.bias",
        "expand t --delta d --depth 2 --width 32 --out o",
    ),
    (
        "e/model.safetensors",
        "blocks.1.norm1.bias",
        "convert e --out o",
    ),
    (
        "e/scalers.safetensors",
        "scalers.1.proj",
        "convert e --out o",
    ),
];

/// With and without digests in `config.json`, as older files have none.
#[test]
fn a_tensor_that_is_misnamed_missing_or_too_many_is_refused_by_name() {
    let place = place();
    for digests in [true, false] {
        for (file, tensor, reader) in READERS {
            let (dir, _) = file.split_once('/').unwrap();
            let whole = place.bytes(file);
            if !digests {
                without_digests(&place, dir);
            }
            let other: &str = &format!("{tensor}x");
            for (removed, added, part) in [
                (true, Some(other), tensor),
                (true, None, tensor),
                (false, Some(other), other),
                (false, Some("unheard.of"), "unheard.of"),
            ] {
                place.rewrite(file, |weights| {
                    let t = weights[tensor].clone();
                    if removed {
                        weights.remove(tensor);
                    }
                    weights.extend(added.map(|name| (name.to_owned(), t)));
                });
                // The name in the model is what the name in the file stands for.
                place.refused(reader, &[part.trim_start_matches("auxiliary.")]);
                place.write(file, &whole);
            }
        }
    }
}

#[test]
fn a_delta_of_other_shapes_is_refused_by_the_name_of_the_file() {
    let place = place();
    let file = "d/delta.safetensors";
    let whole = place.bytes(file);
    without_digests(&place, "d");
    // One anchor, all of them, and tensors without anchors.
    for end in [
        "bank.1.qkv",
        "blocks.1.norm1.bias",
        ".qkv",
        "head.bias",
        ".left",
        ".right",
    ] {
        place.rewrite(file, |weights| {
            for (_, t) in weights.iter_mut().filter(|(name, _)| name.ends_with(end)) {
                *t = t.unsqueeze(t.rank()).unwrap();
            }
        });
        let parts = ["d/delta.safetensors: ", end, "shape"];
        place.refused("expand t --delta d --depth 2 --width 32 --out o", &parts);
        place.write(file, &whole);
    }
}

#[test]
fn scalers_of_another_rank_are_refused_by_all_readers() {
    let place = place();
    without_digests(&place, "e");
    place.rewrite("e/scalers.safetensors", |weights| {
        let t = weights.get_mut("scalers.1.proj").unwrap();
        *t = t.flatten_all().unwrap();
    });
    for reader in [
        "inspect e",
        "convert e --out o",
        "publish e --repo a/b --dry-run",
    ] {
        let parts = ["e/scalers.safetensors", "`scalers.1.proj` has shape"];
        place.refused(reader, &parts);
    }
}

#[test]
fn values_of_the_wrong_type_are_refused_by_file_and_key() {
    let place = Place::with_templates();
    let expand = "expand t --depth 2 --width 32 --out o";
    let sound = place.bytes("t/config.json");
    for (key, value, expected) in [
        ("heads", json!(2.9), "a whole number of at least 1"),
        ("width", json!(32.9), "a whole number of at least 1"),
        ("width", json!(-1), "a whole number of at least 1"),
        ("depth", json!(3.9), "3 as in `anchors`"),
        ("mlp_ratio", json!("4"), "a number"),
        ("norm_eps", json!("1e-3"), "a number"),
        ("distilled", json!(1), "true or false"),
        ("class_token", json!("no"), "true or false"),
    ] {
        let found = format!("t/config.json: auxiliary.{key} is {value}, expected {expected}");
        place.configure("t", |config| config["auxiliary"][key] = value);
        place.refused(expand, &[&found]);
        place.write("t/config.json", &sound);
    }
    place.configure("t", |config| config["head_width"] = json!(8));
    let parts = ["t/config.json: head_width is 8, expected 16"];
    place.refused(expand, &parts);
}

#[test]
fn one_bit_that_flipped_is_refused_by_the_name_of_the_file() {
    let place = place();
    place.write_png("x.png");
    let model = "e/model.safetensors";
    let more = [
        (model, "predict e x.png"),
        (model, "eval e --data shapes --test-limit 16"),
        (model, "inspect e"),
    ];
    let all = READERS.map(|(file, _, reader)| (file, reader));
    for (file, reader) in all.into_iter().chain(more) {
        let whole = place.bytes(file);
        flip(&place, file);
        place.refused(reader, &[file, "SHA-256", "copy both again"]);
        place.write(file, whole);
    }
    // Without a digest in config.json nothing is compared.
    without_digests(&place, "e");
    flip(&place, model);
    place.json("predict e x.png");
}

/// Changes the last bit of a file.
fn flip(place: &Place, file: &str) {
    let mut bytes = place.bytes(file);
    *bytes.last_mut().unwrap() ^= 1;
    place.write(file, bytes);
}

fn without_digests(place: &Place, dir: &str) {
    place.configure(dir, |json| {
        _ = json.as_object_mut().unwrap().remove("digests")
    });
}

/// Every artefact names the digests of its weights, in every layout, and they follow when it is converted.
#[test]
fn digests_are_those_of_the_files() {
    let place = place();
    place.json("convert e --format onnx --dtype f16 --out h");
    for (dir, expected) in [
        ("t", &["templates.safetensors"][..]),
        ("d", &["delta.safetensors"]),
        ("e", &["model.safetensors", "scalers.safetensors"]),
        ("h", &["model.safetensors", "scalers.safetensors"]),
    ] {
        let json = place.config(dir);
        let found: BTreeMap<String, String> =
            serde_json::from_value(json["digests"].clone()).unwrap();
        assert!(found.keys().eq(expected), "{dir}");
        for (name, digest) in found {
            let bytes = place.bytes(&format!("{dir}/{name}"));
            assert_eq!(digest, wave_hub::sha256_hex(&bytes), "{dir}/{name}");
        }
    }
}

#[test]
fn names_of_any_length_and_with_line_breaks_make_tables() {
    let place = place();
    place.write_png("x.png");
    let long = "ü".repeat(70_000);
    place.configure("e", |json| {
        json["label_names"][0] = json!(long);
        json["label_names"][1] = json!("forged\n  class  99.9 %");
    });
    let shown = place.stdout("predict e x.png");
    assert!(shown.lines().all(|line| line.chars().count() < 120));
    assert!(!shown.contains("\n  class"), "{shown}");
    // CSV holds the whole name.
    place.stdout("predict e x.png --csv p.csv");
    assert_eq!(place.text("p.csv").lines().count(), 2);
}
