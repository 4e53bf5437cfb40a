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
fn agrees_with_timms_blocks() {
    let expected = ConvNextShape {
        image_size: 15,
        channels: 1,
        patch: 2,
        depth: 2,
        stages: None,
        width: 24,
        kernel: 5,
        mlp_ratio: 4.0,
        classes: 5,
    };
    check_fixture("convnext", &expected);
}

#[test]
fn agrees_with_timms_stages() {
    let expected = ConvNextShape {
        image_size: 39,
        channels: 1,
        patch: 2,
        depth: 5,
        stages: Some([1, 1, 2, 1]),
        width: 4,
        kernel: 5,
        mlp_ratio: 4.0,
        classes: 5,
    };
    check_fixture("convnext_stages", &expected);
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
    let extent = |name: &str| {
        values(&weights[name])
            .iter()
            .fold(0f32, |m, v| m.max(v.abs()))
    };
    for (layer, fan_in) in [
        ("stem", 8.0),
        ("blocks.2.conv_dw", 9.0),
        ("blocks.0.mlp.fc1", 10.0),
        ("blocks.2.mlp.fc2", 20.0),
        ("head", 10.0),
    ] {
        let bound = 1.0 / f32::sqrt(fan_in);
        let weight = extent(&format!("{layer}.weight"));
        assert!(weight <= bound && weight > 0.7 * bound, "{layer}: {weight}");
        let bias = extent(&format!("{layer}.bias"));
        assert!(bias <= bound && bias > 0.3 * bound, "{layer}: {bias}");
    }
    for norm in ["norm", "blocks.1.norm"] {
        assert!(
            values(&weights[&format!("{norm}.weight")])
                .iter()
                .all(|v| *v == 1.0)
        );
        assert!(
            values(&weights[&format!("{norm}.bias")])
                .iter()
                .all(|v| *v == 0.0)
        );
    }
    let other = shape.initialise(4).unwrap();
    assert_ne!(
        values(&weights["stem.weight"]),
        values(&other["stem.weight"])
    );
    let again = shape.initialise(3).unwrap();
    assert!(
        weights
            .iter()
            .all(|(name, w)| values(w) == values(&again[name]))
    );
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let shape = small();
    let weights = shape.initialise(0).unwrap();
    let cases = [
        (
            ConvNextShape {
                kernel: 4,
                ..small()
            },
            "kernel is 4, expected an odd size",
        ),
        (
            ConvNextShape {
                mlp_ratio: 0.0,
                ..small()
            },
            "mlp_ratio x width is 0",
        ),
        (
            ConvNextShape {
                patch: 10,
                ..small()
            },
            "at most 9",
        ),
        (
            ConvNextShape {
                width: usize::MAX,
                ..small()
            },
            "at most",
        ),
    ];
    for (wrong, text) in cases {
        let error = wrong.validate().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        assert!(wrong.initialise(0).is_err());
    }
    let images = testing::images(1, 2, 9);
    let message = |shape: &ConvNextShape, images: &Tensor| {
        logits(shape, &weights, images).unwrap_err().to_string()
    };
    assert!(message(&shape, &testing::images(1, 2, 8)).contains("expected (b, 2, 9, 9)"));
    let deeper = ConvNextShape {
        depth: 4,
        stages: None,
        ..small()
    };
    assert!(message(&deeper, &images).contains("blocks.3.conv_dw.weight"));
    let wider = ConvNextShape {
        width: 12,
        ..small()
    };
    assert!(message(&wider, &images).contains("[12, 2, 2, 2]"));
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
    assert!(
        values(&weights["stages.2.blocks.1.gamma"])
            .iter()
            .all(|v| *v == 1e-6)
    );
    assert!(values(&weights["stem.1.weight"]).iter().all(|v| *v == 1.0));
    assert_eq!(
        weights["stages.3.downsample.1.weight"].dims(),
        [80, 40, 2, 2]
    );
    let counted: usize = shape.activations().iter().map(|(n, ..)| n).sum();
    assert_eq!(counted, 256 + 64 + 2 * 16 + 4);
    // 2 x 2 pixels in the last stage: half the third's 4 x 4 per side.
    let blocks = [(256, 10), (64, 20), (16, 40), (16, 40), (4, 80)];
    let blocks = blocks
        .map(|(n, h)| n * h * (9 + 8 * h))
        .iter()
        .sum::<usize>();
    let halvings = 4 * (64 * 20 * 10 + 16 * 40 * 20 + 4 * 80 * 40);
    assert_eq!(
        shape.multiply_adds(),
        256 * 2 * 10 + blocks + halvings + 80 * 4
    );
    let cases = [
        (
            ConvNextShape {
                depth: 4,
                ..shape.clone()
            },
            "4 with stages 1,1,2,1",
        ),
        (
            ConvNextShape {
                mlp_ratio: 2.0,
                ..shape.clone()
            },
            "mlp_ratio is 2, expected 4",
        ),
        (
            ConvNextShape {
                patch: 3,
                ..shape.clone()
            },
            "16 in patches of 3",
        ),
        (
            ConvNextShape {
                stages: Some([1, 1, 3, 0]),
                ..shape.clone()
            },
            "blocks of a stage is 0",
        ),
    ];
    for (wrong, text) in cases {
        let error = wrong.validate().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
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
