//! Training by Muon, and condensations that train the weights which templates compose.

use crate::support::Place;

/// Templates and scalers are written, as by any condensation: models of trained sizes and of others, with the recorded
/// accuracies.
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
        // There are eight classes.
        assert!(found["top1"].as_f64().unwrap() > 0.2, "{train}: {found}");
        place.json("expand t --depth 5 --width 48 --out m --overwrite");
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
        let line = format!("trains {trained} with {optimiser}\n");
        assert!(plan(train).contains(&line), "{train}");
    }
}

#[test]
fn keys_of_factors_are_refused_with_weights() {
    Place::new().refuses(
        "FLAGS --out o",
        "
        condense r.toml --train weights --scaler-lr-ratio 2 => scaler_lr_ratio | --train factors
        condense r.toml --train weights --kronecker interleave => interleave | --train factors
        condense r.toml --train weights --mlp-ratios 2,6 => mlp_ratios | 6 | --train factors
        condense r.toml --train all => factors, weights
        ",
    );
}
