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

/// Checks the expected accuracy of a shape, and the lines about what was not condensed.
#[track_caller]
fn check(shape: &VitShape, top1: Option<f64>, outside: &[&str]) {
    let (config, auxiliary) = (config(), auxiliary());
    let record = Record::new(&config, &auxiliary);
    let expected = record.expected(shape);
    let found = expected.map(|(top1, _)| (top1 * 1e6).round() / 1e6);
    assert_eq!(found, top1);
    assert_eq!(record.outside(shape), outside);
}

fn plain(depth: usize, width: usize) -> VitShape {
    auxiliary().with_size(depth, width)
}

/// At 7 x 96, with this many heads and this MLP ratio.
fn changed(heads: usize, mlp_ratio: f64) -> VitShape {
    VitShape {
        heads,
        mlp_ratio,
        ..plain(7, 96)
    }
}

#[test]
fn sizes_are_interpolated_and_inside() {
    check(&plain(2, 64), Some(0.88), &[]);
    check(&plain(7, 96), Some(0.90), &[]);
}

#[test]
fn losses_are_interpolated_and_added() {
    // Heads of 16 channels lose 1 point, of 8 channels 4; 24 lies between 16 and the auxiliary's 32.
    let line = "head width 24, condensed 32: about 0.5 points lower";
    check(&changed(4, 4.0), Some(0.895), &[line]);
    let line = "head width 8, condensed 32: about 4.0 points lower";
    check(&changed(12, 4.0), Some(0.86), &[line]);
    // Two properties that were measured together are told as they are.
    let heads = "head width 16, condensed 32: about 1.0 points lower";
    let mlp = "MLP ratio 2, condensed 4: about 5.0 points lower";
    check(&changed(6, 2.0), Some(0.80), &[heads, mlp]);
    // An MLP ratio of 3 loses half of 5 points, a patch of 4 loses 20.
    let shape = VitShape {
        mlp_ratio: 3.0,
        patch: 4,
        ..plain(7, 64)
    };
    let mlp = "MLP ratio 3, condensed 4: about 2.5 points lower";
    let patch = "patch 4, condensed 7: about 20.0 points lower";
    check(&shape, Some(0.675), &[mlp, patch]);
    // Depth 24 loses 2 points from depth 12; depth 18 half of them.
    let line = "depth 18, condensed 2 to 12: about 1.0 points lower";
    check(&plain(18, 128), Some(0.91), &[line]);
}

#[test]
fn what_was_never_measured_is_not_guessed() {
    // Beyond the outermost measured shapes.
    let line = "head width 4, condensed 32: no accuracy is recorded there";
    check(&changed(24, 4.0), None, &[line]);
    // A width that no number of the auxiliary's heads has.
    let line = "head width 40, condensed 32: no accuracy is recorded there";
    check(&plain(4, 120), None, &[line]);
    let line = "depth 25, condensed 2 to 12: no accuracy is recorded there";
    check(&plain(25, 64), None, &[line]);
    let line = "depth 1, condensed 2 to 12: no accuracy is recorded there";
    check(&plain(1, 64), None, &[line]);
    let shape = VitShape {
        image_size: 56,
        ..plain(7, 96)
    };
    let line = "image size 56, condensed 28: no accuracy is recorded there";
    check(&shape, None, &[line]);
    let line = "width 256, condensed 64 to 128: no accuracy is recorded there; at 2.0 times the widest, blocks repeat: \
         expect the accuracy of width 128; fine-tune to gain from the size";
    check(&plain(7, 256), None, &[line]);
}

#[test]
fn accuracy_is_interpolated_over_depth_and_then_over_width_inside_the_record() {
    let sizes = [(2, 32, 0.5), (6, 32, 0.7), (2, 96, 0.6), (6, 96, 0.9)];
    let surface = Surface::new(&sizes.map(|(depth, width, top1)| Accuracy {
        depth,
        width,
        top1,
        condition: String::new(),
    }));
    for (depth, width, expected) in [
        (2, 32, Some((0.5, "measured"))),
        (6, 96, Some((0.9, "measured"))),
        (3, 32, Some((0.55, "interpolated"))),
        (6, 64, Some((0.8, "interpolated"))),
        (4, 64, Some((0.675, "interpolated"))),
        (7, 32, None),
        (2, 128, None),
    ] {
        match (surface.expected(depth, width), expected) {
            (Some((top1, from)), Some((expected, how))) => {
                assert!((top1 - expected).abs() < 1e-12, "{depth} x {width}: {top1}");
                assert!(from.starts_with(how), "{depth} x {width}: {from}");
            }
            (found, expected) => assert_eq!(found, expected, "{depth} x {width}"),
        }
    }
    assert_eq!(Surface::new(&[]).expected(2, 32), None);
}
