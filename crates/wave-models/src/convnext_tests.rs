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
    // Written by tests/fixtures/make_convnext.py.
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/convnext.safetensors"
    );
    let fixture: Weights = candle_core::safetensors::load(path, &Device::Cpu)
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
    let shape = ConvNextShape::infer(&weights, 15).unwrap();
    let expected = ConvNextShape {
        image_size: 15,
        channels: 1,
        patch: 2,
        depth: 2,
        width: 24,
        kernel: 5,
        mlp_ratio: 4.0,
        classes: 5,
    };
    assert_eq!(shape, expected);
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
    assert!(message(&shape, &testing::images(1, 2, 8)).contains("takes (b, 2, 9, 9)"));
    let deeper = ConvNextShape {
        depth: 4,
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
