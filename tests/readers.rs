//! Readers account for all that a file holds, and tables for all that names hold.

use crate::support::{Place, files};
use serde_json::json;
use std::collections::BTreeMap;

/// Templates in `t`, a delta of them in `d`, and a model of both in `e`.
fn place() -> Place {
    let place = Place::with_templates();
    place.json(
        "adapt t --data shapes --train-limit 64 --test-limit 16 --batch 32 --steps 2 --out d",
    );
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
                place.configure(dir, |json| {
                    _ = json.as_object_mut().unwrap().remove("digests")
                });
            }
            let other = format!("{tensor}x");
            for (part, change) in [
                (
                    &tensor.to_owned(),
                    &(|w: &mut wave_hub::Weights| {
                        let t = w.remove(tensor).unwrap();
                        w.insert(format!("{tensor}x"), t);
                    }) as &dyn Fn(&mut wave_hub::Weights),
                ),
                (&tensor.to_owned(), &|w| _ = w.remove(tensor)),
                (&other, &|w| {
                    let t = w[tensor].clone();
                    w.insert(format!("{tensor}x"), t);
                }),
                (&"unheard.of".to_owned(), &|w| {
                    let t = w[tensor].clone();
                    w.insert("unheard.of".into(), t);
                }),
            ] {
                place.rewrite(file, change);
                // The name in the model is what the name in the file stands for.
                let part = part.trim_start_matches("auxiliary.");
                place.refused(reader, &[part]);
                place.write(file, &whole);
            }
        }
    }
}

#[test]
fn one_bit_that_flipped_is_refused_by_the_name_of_the_file() {
    let place = place();
    let flip = |file: &str| {
        let mut bytes = place.bytes(file);
        *bytes.last_mut().unwrap() ^= 1;
        place.write(file, bytes);
    };
    place.write_png("x.png");
    for reader in [
        "predict e x.png",
        "eval e --data shapes --test-limit 16",
        "inspect e",
    ] {
        let whole = place.bytes("e/model.safetensors");
        flip("e/model.safetensors");
        place.refused(
            reader,
            &["e/model.safetensors", "SHA-256", "copy both again"],
        );
        place.write("e/model.safetensors", whole);
    }
    for (file, _, reader) in READERS {
        let whole = place.bytes(file);
        flip(file);
        place.refused(reader, &[file, "SHA-256"]);
        place.write(file, whole);
    }
    // Without a digest in config.json nothing is compared.
    place.configure("e", |json| {
        _ = json.as_object_mut().unwrap().remove("digests")
    });
    flip("e/model.safetensors");
    place.json("predict e x.png");
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
        let files = files(&place.path(dir));
        let weights = files
            .iter()
            .filter(|(name, _)| name.ends_with(".safetensors"));
        let weights: BTreeMap<String, String> = weights
            .map(|(name, bytes)| (name.clone(), wave_hub::sha256_hex(bytes)))
            .collect();
        assert_eq!(found, weights, "{dir}");
        assert!(found.keys().eq(expected), "{dir}");
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
    place.configure("t", |json| {
        let one = json!({"depth": 1, "width": 16, "top1": 0.5, "condition": long});
        json["accuracies"] = json!([one]);
    });
    let shown = place.stdout("inspect t");
    assert!(shown.contains("ü…") && !shown.contains(&"ü".repeat(100)));
    place.rewrite("e/scalers.safetensors", |w| {
        let t = w["scalers.0.qkv"].clone();
        w.clear();
        w.insert(long.clone(), t);
    });
    let shown = place.stdout("inspect e/scalers.safetensors");
    assert!(shown.contains("ü…") && !shown.contains(&"ü".repeat(100)));
    place.refused("inspect e", &["scalers.safetensors"]);
}
