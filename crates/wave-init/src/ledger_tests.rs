//! The papers' parameter columns, digit by digit.

use super::*;
use crate::testing::{donor, shape, try_start};
use crate::{Choices, METHODS, Spent};

/// DeiT without a class token, as in WAVE.
fn deit(width: usize) -> VitShape {
    VitShape {
        class_token: false,
        ..VitShape::default().with_size(12, width)
    }
}

const WIDTHS: [usize; 3] = [192, 384, 768];

#[track_caller]
fn check(what: &str, ledger: &Ledger, expected: &[&str]) {
    for (width, expected) in WIDTHS.into_iter().zip(expected) {
        assert_eq!(
            ledger.millions(&deit(width)),
            *expected,
            "{what} at {width}"
        );
    }
}

fn of(method: &str, choices: &Choices) -> Ledger {
    let method = crate::find(method).unwrap();
    (method.ledger)(&deit(192), choices)
}

#[test]
fn waves_table_1_is_reproduced() {
    let choices = Choices::default();
    check("WAVE", &Ledger::wave(24, 192, 12), &["1.3"]);
    check("Heru-LG", &of("heru-lg", &choices), &["1.7", "6.1", "22.8"]);
    check("Auto-LG", &of("auto-lg", &choices), &["2.2", "7.9", "29.9"]);
    check("LiGO", &of("ligo", &choices), &["2.2", "7.9", "29.9"]);
    for (width, expected) in WIDTHS.into_iter().zip(["1.3", "4.4", "15.8"]) {
        let templates = |n| Ledger::wave(n, width, 12).millions(&deit(width));
        assert_eq!(templates(24), expected);
        if width > 192 {
            // No other number of templates fits.
            assert!(templates(23) != expected && templates(25) != expected);
        }
    }
}

#[test]
fn waves_table_1_counts_the_classifier_in_weight_selection() {
    // The mean over 4, 6, 8, 10 and 12 layers.
    let mut choices = Choices::default();
    choices.selection.head = true;
    let method = crate::find("weight-selection").unwrap();
    for (width, expected) in WIDTHS.into_iter().zip(["3.9", "15.0", "58.2"]) {
        let depths = [4, 6, 8, 10, 12];
        let values = depths.map(|depth| {
            let shape = deit(width).with_size(depth, width);
            (method.ledger)(&shape, &choices).values(&shape)
        });
        let mean = values.iter().sum::<usize>() as f64 / depths.len() as f64;
        assert_eq!(millions(mean), expected);
        assert_eq!(mean as usize, Ledger::blocks(8).values(&deit(width)));
    }
}

#[test]
fn waves_table_3_is_the_same_without_the_classifier() {
    let choices = Choices::default();
    let bare = |method| of(method, &choices).without_head();
    check("Heru-LG", &bare("heru-lg"), &["1.5", "5.7"]);
    check("Auto-LG", &bare("auto-lg"), &["2.0", "7.5"]);
    for (width, expected) in [(192, "1.1"), (384, "4.0")] {
        let wave = Ledger::wave(24, width, 12).without_head();
        assert_eq!(wave.millions(&deit(width)), expected);
    }
}

#[test]
fn items_add_up_to_the_network() {
    for class_token in [false, true] {
        let shape = VitShape {
            class_token,
            mlp_ratio: 3.0,
            ..VitShape::default()
        };
        let all = Ledger::blocks(12).values(&shape);
        assert_eq!(all, shape.parameter_count());
    }
}

#[test]
fn a_ledger_says_what_a_start_carries() {
    let target = shape(5, 16);
    let mut choices = Choices::default();
    choices.auto_lg.similarity = vec![0.1, 0.9, 0.2, 0.8];
    let mut seen = 0;
    for head in [false, true] {
        choices.selection.head = head;
        for method in METHODS {
            let depth = match method.name {
                "weight-selection" | "nested" | "pretrained-attention" => 6,
                _ => 4,
            };
            // The only one that makes its donor smaller.
            let target = match method.name {
                "prune" => shape(3, 16),
                _ => target.clone(),
            };
            let mut donors = vec![donor(shape(depth, 16), 1)];
            donors[0].spent = Spent {
                epochs: 2.0,
                images: 100,
            };
            donors.truncate(method.donors);
            let start = try_start(method.name, &target, &donors, &choices).unwrap();
            let ledger = (method.ledger)(&target, &choices).values(&target);
            assert_eq!(start.cost.transferred, ledger, "{}", method.name);
            assert!(start.cost.stored >= start.cost.transferred);
            let spent = if method.donors == 0 {
                (0.0, 0)
            } else {
                (2.0, 100)
            };
            assert_eq!((start.cost.extra_epochs, start.cost.images_seen), spent);
            seen += method.donors;
        }
    }
    assert_eq!(seen, 14);
}
