//! Training by Muon, and condensations that train the weights which templates compose.

use crate::support::{Place, shapes};

const SMALL: &str = "--depths 2 --widths 16 --template-size 16 --growth 0";
const LARGE: &str = "--depths 2,4 --widths 16,32 --template-size 16 --growth 0";

/// The weights of a model that templates make.
fn weights(place: &Place, templates: &str, size: &str) -> Vec<u8> {
    place.json(&format!("expand {templates} {size} --out m --overwrite"));
    place.bytes("m/model.safetensors")
}

/// What is written are templates and scalers, as of any condensation: models of sizes that were trained and of others, with
/// the accuracies that are recorded.
#[test]
fn templates_follow_the_weights_that_train() {
    let place = Place::new();
    for train in ["--lr 2e-2", "--muon false --lr 1e-2"] {
        let args = format!("condense r.toml {train} --steps 160 --checkpoint-steps 100");
        let result = place.json(&format!("{args} --out t --overwrite"));
        let size = "--depth 3 --width 32";
        let made = place.json(&format!("expand t {size} --out m --overwrite"));
        assert_eq!(made["expected_top1"], result["top1"], "{train}");
        let found = place.json("eval m --data shapes --test-limit 64");
        assert_eq!(found["top1"], result["top1"], "{train}");
        // Of ten classes.
        assert!(found["top1"].as_f64().unwrap() > 0.2, "{train}: {found}");
        weights(&place, "t", "--depth 5 --width 48");
    }
}

#[test]
fn a_plan_says_what_trains() {
    let place = Place::new();
    let plan = |train: &str| place.stdout(&format!("condense r.toml {train} --dry-run"));
    let factors = "templates and scalers";
    for (train, trained, optimiser) in [
        ("", "composed weights", "Muon"),
        ("--train weights", "composed weights", "Muon"),
        ("--muon false", "composed weights", "AdamW"),
        ("--train factors", factors, "AdamW"),
        ("--train factors --muon true", factors, "Muon"),
        // A key of factors chooses them.
        ("--scaler-lr-ratio 2", factors, "AdamW"),
        ("--scaler-lr-ratio 2 --muon true", factors, "Muon"),
        ("--kronecker interleave", factors, "AdamW"),
        ("--mlp-ratios 2,6", factors, "AdamW"),
    ] {
        let line = format!("trains {trained} by {optimiser}\n");
        assert!(plan(train).contains(&line), "{train}");
    }
}

#[test]
fn levels_grow_from_weights_that_trained() {
    let place = Place::new();
    place.json(&format!("condense r.toml {SMALL} --out s"));
    place.json(&format!("condense r.toml --grow s {LARGE} --out t"));
    let size = "--depth 2 --width 16";
    assert_eq!(weights(&place, "s", size), weights(&place, "t", size));
    let size = "--depth 4 --width 32";
    assert_ne!(weights(&place, "s", size), weights(&place, "t", size));
}

#[test]
fn a_model_learns() {
    let place = Place::new();
    place.json("init timm --data shapes --depth 3 --width 32 --heads 2 --patch 7 --out m");
    let train = format!("finetune m --steps 200 --lr 2e-2 --muon true {}", shapes());
    let found = place.json(&format!("{train} --out o"));
    // Of ten classes.
    assert!(found["top1"].as_f64().unwrap() > 0.2, "{found}");
}

#[test]
fn keys_of_factors_are_refused_with_weights() {
    let place = Place::new();
    let refused = |args: &str, parts: &[&str]| {
        place.refused(&format!("condense r.toml {args} --out o"), parts);
        assert!(!place.path("o").exists(), "{args}");
    };
    let factors = "--train factors";
    refused(
        "--train weights --scaler-lr-ratio 2",
        &["scaler_lr_ratio", factors],
    );
    refused(
        "--train weights --kronecker interleave",
        &["interleave", factors],
    );
    refused(
        "--train weights --mlp-ratios 2,6",
        &["mlp_ratios", "6", factors],
    );
    refused("--train all", &["factors, weights"]);
}
