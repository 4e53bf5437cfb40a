use super::*;
use crate::testing;
use candle_core::{Device, Var};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn small() -> ConvNextShape {
    ConvNextShape {
        image_size: 9,
        channels: 2,
        patch: 2,
        depth: 3,
        stages: None,
        width: 10,
        kernel: 3,
        mlp_ratio: 2.0,
        classes: 4,
    }
}

fn values(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn agrees_with_timms_blocks_and_stages() {
    let blocks = ConvNextShape {
        image_size: 15,
        channels: 1,
        depth: 2,
        width: 24,
        kernel: 5,
        mlp_ratio: 4.0,
        classes: 5,
        ..small()
    };
    check_fixture("convnext", &blocks);
    let stages = ConvNextShape {
        image_size: 39,
        depth: 5,
        stages: Some([1, 1, 2, 1]),
        width: 4,
        ..blocks
    };
    check_fixture("convnext_stages", &stages);
}

/// Shape, logits and gradients equal a file written by tests/fixtures/make_convnext.py.
fn check_fixture(file: &str, expected: &ConvNextShape) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures");
    let fixture: Weights =
        candle_core::safetensors::load(format!("{path}/{file}.safetensors"), &Device::Cpu)
            .unwrap()
            .into_iter()
            .collect();
    let part = |prefix: &str| -> Weights {
        let named = |(name, t): (&String, &Tensor)| {
            Some((name.strip_prefix(prefix)?.to_owned(), t.clone()))
        };
        fixture.iter().filter_map(named).collect()
    };
    let weights = part("weights.");
    let shape = ConvNextShape::infer(&weights, expected.image_size).unwrap();
    assert_eq!(&shape, expected);
    let variables: BTreeMap<String, Var> = weights
        .iter()
        .map(|(name, t)| (name.clone(), Var::from_tensor(t).unwrap()))
        .collect();
    let tracked: Weights = variables
        .iter()
        .map(|(name, v)| (name.clone(), v.as_tensor().clone()))
        .collect();
    let out = logits(&shape, &tracked, &fixture["images"]).unwrap();
    testing::assert_close("logits", &out, &fixture["logits"], 1e-5);

    let targets = fixture["labels"]
        .unsqueeze(1)
        .unwrap()
        .broadcast_eq(&Tensor::new(&[0i64, 1, 2, 3, 4], &Device::Cpu).unwrap())
        .unwrap()
        .to_dtype(candle_core::DType::F32)
        .unwrap();
    let loss = wave_ops::soft_cross_entropy(&out, &targets).unwrap();
    let found = loss.backward().unwrap();
    let gradients = part("gradients.");
    assert!(gradients.keys().eq(variables.keys()));
    for (name, want) in gradients {
        testing::assert_close(&name, found.get(&variables[&name]).unwrap(), &want, 1e-5);
    }
}

#[test]
fn initialises_as_pytorch_does() {
    let shape = small();
    let weights = shape.initialise(3).unwrap();
    check_weights(&weights, &shape.parameters()).unwrap();
    for (layer, fan_in) in [
        ("stem", 8.0),
        ("blocks.2.conv_dw", 9.0),
        ("blocks.0.mlp.fc1", 10.0),
        ("blocks.2.mlp.fc2", 20.0),
        ("head", 10.0),
    ] {
        let bound = 1.0 / f32::sqrt(fan_in);
        for (part, share) in [("weight", 0.7), ("bias", 0.3)] {
            let name = format!("{layer}.{part}");
            let largest = values(&weights[&name])
                .iter()
                .fold(0f32, |m, v| m.max(v.abs()));
            let within = share * bound..=bound;
            assert!(within.contains(&largest), "{name}: {largest}");
        }
    }
    for norm in ["norm", "blocks.1.norm"] {
        for (part, want) in [("weight", 1.0), ("bias", 0.0)] {
            let found = values(&weights[&format!("{norm}.{part}")]);
            assert!(found.iter().all(|v| *v == want), "{norm}.{part}");
        }
    }
    let (again, other) = (shape.initialise(3).unwrap(), shape.initialise(4).unwrap());
    for (name, w) in &weights {
        assert_eq!(values(w), values(&again[name]), "{name}");
    }
    let stem = |weights: &Weights| values(&weights["stem.weight"]);
    assert_ne!(stem(&weights), stem(&other));
}

/// Asserts that `shape` with a change is refused.
#[track_caller]
fn check_impossible(mut shape: ConvNextShape, change: fn(&mut ConvNextShape), part: &str) {
    change(&mut shape);
    let error = shape.validate().unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
    assert!(shape.initialise(0).is_err());
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    check_impossible(
        small(),
        |s| s.kernel = 4,
        "kernel is 4, expected an odd size",
    );
    check_impossible(small(), |s| s.mlp_ratio = 0.0, "mlp_ratio x width is 0");
    check_impossible(small(), |s| s.patch = 10, "at most 9");
    check_impossible(small(), |s| s.width = usize::MAX, "at most");

    let weights = small().initialise(0).unwrap();
    let misfit = |change: fn(&mut ConvNextShape), side: usize, part: &str| {
        let mut shape = small();
        change(&mut shape);
        let images = testing::images(1, 2, side);
        let error = logits(&shape, &weights, &images).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    misfit(|_| (), 8, "expected (b, 2, 9, 9)");
    misfit(|s| s.depth = 4, 9, "blocks.3.conv_dw.weight");
    misfit(|s| s.width = 12, 9, "[12, 2, 2, 2]");
    // A ConvNeXt with layer scale is another network.
    let mut staged = weights.clone();
    staged.insert("blocks.0.gamma".into(), weights["norm.bias"].clone());
    let error = ConvNextShape::infer(&staged, 9).unwrap_err().to_string();
    assert!(error.contains("blocks.0.gamma"), "{error}");
}

#[test]
fn stages_have_to_fit() {
    let shape = ConvNextShape {
        image_size: 16,
        depth: 5,
        stages: Some([1, 1, 2, 1]),
        mlp_ratio: 4.0,
        patch: 1,
        ..small()
    };
    let weights = shape.initialise(0).unwrap();
    check_weights(&weights, &shape.parameters()).unwrap();
    assert_eq!(ConvNextShape::infer(&weights, 16).unwrap(), shape);
    let gamma = values(&weights["stages.2.blocks.1.gamma"]);
    assert!(gamma.iter().all(|v| *v == 1e-6));
    assert!(values(&weights["stem.1.weight"]).iter().all(|v| *v == 1.0));
    let halving = &weights["stages.3.downsample.1.weight"];
    assert_eq!(halving.dims(), [80, 40, 2, 2]);
    let counted: usize = shape.activations().iter().map(|(n, ..)| n).sum();
    assert_eq!(counted, 256 + 64 + 2 * 16 + 4);
    // 2 x 2 pixels in the last stage: half the third's 4 x 4 per side.
    let blocks = [(256, 10), (64, 20), (16, 40), (16, 40), (4, 80)];
    let blocks = blocks.map(|(n, h)| n * h * (9 + 8 * h));
    let blocks: usize = blocks.iter().sum();
    let halvings = 4 * (64 * 20 * 10 + 16 * 40 * 20 + 4 * 80 * 40);
    let whole = 256 * 2 * 10 + blocks + halvings + 80 * 4;
    assert_eq!(shape.multiply_adds(), whole);
    let impossible = |change: fn(&mut ConvNextShape), part: &str| {
        check_impossible(shape.clone(), change, part);
    };
    impossible(|s| s.depth = 4, "4 with stages 1,1,2,1");
    impossible(|s| s.mlp_ratio = 2.0, "mlp_ratio is 2, expected 4");
    impossible(|s| s.patch = 3, "16 in patches of 3");
    // Smaller than the image and with a pixel in the last stage.
    let dilated = |s: &mut ConvNextShape| (s.patch, s.image_size) = (8, 128);
    impossible(dilated, "patch is 8, expected at most 7");
    let empty = |s: &mut ConvNextShape| s.stages = Some([1, 1, 3, 0]);
    impossible(empty, "blocks of a stage is 0");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_shape_gives_finite_logits(
        image_size in 2usize..13, channels in 1usize..4, patch in 1usize..5, depth in 1usize..4,
        width in 1usize..60, half in 0usize..4, hidden in 1usize..60, classes in 1usize..6,
    ) {
        let shape = ConvNextShape {
            image_size,
            channels,
            patch: patch.min(image_size),
            depth,
            stages: None,
            width,
            kernel: 2 * half + 1,
            mlp_ratio: hidden as f64 / width as f64,
            classes,
        };
        let weights = shape.initialise(7).unwrap();
        prop_assert_eq!(&ConvNextShape::infer(&weights, image_size).unwrap(), &shape);
        let out = logits(&shape, &weights, &testing::images(2, channels, image_size)).unwrap();
        prop_assert_eq!(out.dims(), &[2, classes]);
        prop_assert!(values(&out).iter().all(|v| v.is_finite()));
    }
}
