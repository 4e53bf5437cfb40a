//! The number of values transferred, and the papers' parameter columns.

use super::*;
use crate::testing::{changed, donor, shape, try_start};
use crate::{Choices, METHODS};

/// "Para. (M)" of WAVE's Table 1: whole blocks and everything outside them, for DeiT without a class token.
#[test]
fn waves_table_1_is_reproduced() {
    for (depth, expected) in [
        (3, ["1.7", "6.1", "22.8"]),  // Heru-LG
        (4, ["2.2", "7.9", "29.9"]),  // Auto-LG, LiGO
        (8, ["3.9", "15.0", "58.2"]), // weight selection: the mean over 4, 6, 8, 10 and 12 layers
    ] {
        for (width, expected) in [192, 384, 768].into_iter().zip(expected) {
            let deit = changed(VitShape::default().with_size(depth, width), |s| {
                s.class_token = false
            });
            let millions = deit.parameter_count() as f64 / 1e6;
            assert_eq!(format!("{millions:.1}"), expected, "{depth} x {width}");
        }
    }
}

#[test]
fn a_cost_counts_what_a_start_carries() {
    let target = shape(5, 16);
    let choices = changed(Choices::default(), |c| {
        c.similarity = vec![0.1, 0.9, 0.2, 0.8]
    });
    let (width, of) = (16, |depth| shape(depth, 16).parameter_count());
    for method in METHODS {
        let depth = match method.name {
            "weight-selection" | "nested" | "pretrained-attention" => 6,
            _ => 4,
        };
        // The only method that makes the donor smaller.
        let target = match method.name {
            "prune" => shape(3, 16),
            _ => target.clone(),
        };
        let mut donors = vec![donor(shape(depth, 16), 1)];
        donors[0].epochs = 2.0;
        donors.truncate(usize::from(method.donor));
        let start = try_start(method.name, &target, &donors, &choices).unwrap();
        let carried = match method.name {
            "weight-selection" => of(5) - 5 * (width + 1),
            "pretrained-attention" => 5 * (4 * width * width + 4 * width) + 9 * width,
            "heru-lg" | "prune" => of(3),
            "auto-lg" | "ligo" => of(4),
            "nested" => of(5),
            _ => 0,
        };
        assert_eq!(start.cost.transferred, carried, "{}", method.name);
        assert!(start.cost.stored >= start.cost.transferred);
        let epochs = if method.donor { 2.0 } else { 0.0 };
        assert_eq!(start.cost.extra_epochs, epochs);
    }
}
