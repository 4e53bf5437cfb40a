use super::*;
use serde_json::json;

/// Condensed at depths 2 to 12 of widths 64 to 128, heads of 32, an MLP ratio of 4, 28 pixels in patches
/// of 7; measured at 7 x 96 with other heads, patches, MLPs and depths.
fn config() -> TemplateConfig {
    let size = |depth: usize, width: usize, top1: f64| json!({ "depth": depth, "width": width, "top1": top1, "condition": "" });
    let shape = |depth: usize, heads: usize, mlp_ratio: f64, patch: usize, top1: f64| {
        json!({
            "depth": depth, "width": 96, "heads": heads, "mlp_ratio": mlp_ratio, "image_size": 28,
            "patch": patch, "top1": top1,
        })
    };
    let json = json!({
        "format_version": 1, "kronecker": "tile", "template_size": 64, "counts": {}, "sets": {},
        "anchors": 12, "auxiliary": {}, "head_width": 32, "patch": 7, "image_size": 28,
        "channels": 1, "classes": 10, "label_names": [], "mean": [0.5], "std": [0.5],
        "crop_pct": 1.0,
        "provenance": { "depths": [2, 12], "widths": [64, 96, 128] },
        "accuracies": [size(2, 64, 0.88), size(12, 64, 0.92), size(2, 128, 0.88), size(12, 128, 0.92)],
        "shapes": [
            shape(7, 6, 4.0, 7, 0.89),
            shape(7, 12, 4.0, 7, 0.86),
            shape(7, 3, 2.0, 7, 0.85),
            shape(7, 3, 4.0, 4, 0.70),
            shape(24, 3, 4.0, 7, 0.90),
            shape(7, 6, 2.0, 7, 0.80),
        ],
    });
    serde_json::from_value(json).unwrap()
}

fn auxiliary() -> VitShape {
    VitShape {
        image_size: 28,
        channels: 1,
        patch: 7,
        depth: 12,
        width: 128,
        heads: 4,
        classes: 10,
        ..VitShape::default()
    }
}

fn of(shape: &VitShape) -> (Option<f64>, Vec<String>) {
    let (config, auxiliary) = (config(), auxiliary());
    let record = Record::new(&config, &auxiliary);
    (
        record
            .expected(shape)
            .map(|(top1, _)| (top1 * 1e6).round() / 1e6),
        record.outside(shape),
    )
}

fn plain(depth: usize, width: usize) -> VitShape {
    auxiliary().with_size(depth, width)
}

#[test]
fn sizes_are_interpolated_and_inside() {
    assert_eq!(of(&plain(2, 64)), (Some(0.88), vec![]));
    assert_eq!(of(&plain(7, 96)), (Some(0.90), vec![]));
}

#[test]
fn what_was_measured_is_told_as_it_is() {
    // Two properties differ at once.
    let shape = VitShape {
        heads: 6,
        mlp_ratio: 2.0,
        ..plain(7, 96)
    };
    let (top1, outside) = of(&shape);
    assert_eq!(top1, Some(0.80));
    assert_eq!(outside.len(), 2);
}

#[test]
fn losses_are_interpolated_and_added() {
    // Heads of 16 channels lose 1 point, of 8 channels 4; 24 lies between 16 and the auxiliary's 32.
    let heads = |heads| VitShape {
        heads,
        ..plain(7, 96)
    };
    let (top1, outside) = of(&heads(4));
    assert_eq!(top1, Some(0.895));
    assert_eq!(
        outside,
        ["head width 24, condensed 32: about 0.5 points lower"]
    );
    assert_eq!(
        of(&heads(24)).0,
        Some(0.86),
        "as the nearest that was measured"
    );
    // An MLP ratio of 3 loses half of 5 points, a patch of 4 loses 20.
    let shape = VitShape {
        mlp_ratio: 3.0,
        patch: 4,
        ..plain(7, 64)
    };
    assert_eq!(of(&shape).0, Some(0.675));
    // Depth 24 loses 2 points from depth 12; depth 18 half of them.
    let (top1, outside) = of(&plain(18, 128));
    assert_eq!(top1, Some(0.91));
    assert_eq!(
        outside,
        ["depth 18, condensed 2 to 12: about 1.0 points lower"]
    );
}

#[test]
fn what_was_never_measured_is_not_guessed() {
    let shape = VitShape {
        image_size: 56,
        ..plain(7, 96)
    };
    let (top1, outside) = of(&shape);
    assert_eq!(top1, None);
    assert_eq!(
        outside,
        ["image size 56, condensed 28: no accuracy is recorded there"]
    );
    let (top1, outside) = of(&plain(7, 256));
    assert_eq!(top1, None);
    assert_eq!(
        outside,
        [
            "width 256, condensed 64 to 128: no accuracy is recorded there; at 2.0 times the widest, blocks repeat: \
          expect the accuracy of width 128; fine-tune to gain from the size"
        ]
    );
}

fn accuracy(depth: usize, width: usize, top1: f64) -> Accuracy {
    Accuracy {
        depth,
        width,
        top1,
        condition: String::new(),
    }
}

#[test]
fn accuracy_is_interpolated_over_depth_and_then_over_width() {
    let surface = Surface::new(&[
        accuracy(2, 32, 0.5),
        accuracy(6, 32, 0.7),
        accuracy(2, 96, 0.6),
        accuracy(6, 96, 0.9),
    ]);
    for (depth, width, expected) in [
        (2, 32, 0.5),
        (3, 32, 0.55),
        (6, 64, 0.8),
        (4, 64, 0.675),
        (6, 96, 0.9),
    ] {
        let found = surface.at(depth, width).unwrap();
        assert!(
            (found - expected).abs() < 1e-12,
            "{depth} x {width}: {found}"
        );
    }
}

#[test]
fn what_is_recorded_and_what_is_between_are_told_apart() {
    let surface = Surface::new(&[
        accuracy(2, 32, 0.5),
        accuracy(6, 32, 0.7),
        accuracy(2, 96, 0.6),
    ]);
    let (top1, from) = surface.expected(6, 32).unwrap();
    assert!(top1 == 0.7 && from.starts_with("measured"));
    let (top1, from) = surface.expected(4, 32).unwrap();
    assert!((top1 - 0.6).abs() < 1e-12 && from.starts_with("interpolated"));
    assert_eq!(surface.expected(7, 32), None);
    assert_eq!(surface.expected(2, 128), None);
    assert_eq!(Surface::new(&[]).expected(2, 32), None);
}
