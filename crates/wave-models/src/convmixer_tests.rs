use super::*;
use crate::testing;
use candle_core::{D, DType, Device, Var};
use proptest::prelude::*;
use std::collections::BTreeMap;

const TOLERANCE: f32 = 1e-5;

fn small() -> ConvMixerShape {
    ConvMixerShape {
        image_size: 9,
        channels: 2,
        patch: 2,
        depth: 4,
        width: 10,
        kernel: 3,
        classes: 4,
        activation: Activation::Gelu,
        dilations: Dilations::default(),
    }
}

/// Reproducible images in [-1, 1], (b, channels, size, size).
fn images(shape: &ConvMixerShape, b: usize) -> Tensor {
    let dims = (b, shape.channels, shape.image_size, shape.image_size);
    let n = b * shape.channels * shape.image_size * shape.image_size;
    let values: Vec<f32> = (0..n)
        .map(|i| (i as f32 * 1.7 + (i as f32).sqrt()).sin())
        .collect();
    Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
}

/// The mean over images of `log sum exp(logits) - logits[label]`.
fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    let normaliser = logits.exp().unwrap().sum(D::Minus1).unwrap().log().unwrap();
    let chosen = logits
        .gather(&labels.unsqueeze(1).unwrap(), 1)
        .unwrap()
        .squeeze(1)
        .unwrap();
    (normaliser - chosen).unwrap().mean_all().unwrap()
}

/// The weights, with trained ones as variables.
fn variables(weights: &Weights) -> BTreeMap<String, Var> {
    let trained = weights
        .iter()
        .filter(|(name, _)| !is_running_statistic(name));
    trained
        .map(|(name, w)| (name.clone(), Var::from_tensor(w).unwrap()))
        .collect()
}

fn with_variables(weights: &Weights, variables: &BTreeMap<String, Var>) -> Weights {
    let mut weights = weights.clone();
    weights.extend(
        variables
            .iter()
            .map(|(name, v)| (name.clone(), v.as_tensor().clone())),
    );
    weights
}

fn values(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_close(name: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.dims(), want.dims(), "{name}");
    for (got, want) in values(got).iter().zip(values(want)) {
        assert!((got - want).abs() < TOLERANCE, "{name}: {got}, want {want}");
    }
}

fn check_against_timm(case: &str, shape: &ConvMixerShape) {
    // Written by tests/fixtures/make_convmixer.py.
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/convmixer.safetensors"
    );
    let fixture: Weights = candle_core::safetensors::load(path, &Device::Cpu)
        .unwrap()
        .into_iter()
        .filter_map(|(name, t)| Some((name.strip_prefix(case)?[1..].to_owned(), t)))
        .collect();
    let part = |prefix: &str| -> BTreeMap<String, &Tensor> {
        let named = |(name, t): (&String, _)| Some((name.strip_prefix(prefix)?.to_owned(), t));
        fixture.iter().filter_map(named).collect()
    };
    let weights: Weights = part("weights.")
        .into_iter()
        .map(|(name, t)| (name, t.clone()))
        .collect();
    let images = &fixture["images"];

    assert_close(
        "eval",
        &logits(shape, &weights, images).unwrap(),
        &fixture["logits_eval"],
    );

    let variables = variables(&weights);
    let weights = with_variables(&weights, &variables);
    let (out, running) = logits_train(shape, &weights, images).unwrap();
    assert_close("train", &out, &fixture["logits_train"]);
    let updated = part("updated.");
    assert!(updated.keys().eq(running.keys()));
    for (name, want) in updated {
        assert_close(&name, &running[&name], want);
    }
    let grads = cross_entropy(&out, &fixture["labels"]).backward().unwrap();
    let gradients = part("gradients.");
    assert!(gradients.keys().eq(variables.keys()));
    for (name, want) in gradients {
        assert_close(&name, grads.get(&variables[&name]).unwrap(), want);
    }
}

#[test]
fn agrees_with_timm() {
    let shape = ConvMixerShape {
        image_size: 14,
        channels: 1,
        patch: 2,
        depth: 2,
        width: 24,
        kernel: 5,
        classes: 5,
        activation: Activation::Gelu,
        dilations: Dilations::default(),
    };
    check_against_timm("odd", &shape);
}

#[test]
fn agrees_with_timm_for_even_kernels_and_cropped_images() {
    let shape = ConvMixerShape {
        image_size: 15,
        channels: 1,
        patch: 2,
        depth: 1,
        width: 20,
        kernel: 4,
        classes: 5,
        activation: Activation::Gelu,
        dilations: Dilations::default(),
    };
    check_against_timm("even", &shape);
}

#[test]
fn agrees_with_timm_with_dilation() {
    let shape = ConvMixerShape {
        image_size: 18,
        channels: 1,
        patch: 2,
        depth: 3,
        width: 20,
        kernel: 3,
        classes: 5,
        activation: Activation::Gelu,
        dilations: Dilations::parse("123", 3).unwrap(),
    };
    check_against_timm("dilated", &shape);
}

#[test]
fn agrees_with_timm_with_relu() {
    let shape = ConvMixerShape {
        image_size: 63,
        channels: 3,
        patch: 7,
        depth: 3,
        width: 24,
        kernel: 7,
        classes: 10,
        activation: Activation::Relu,
        dilations: Dilations::default(),
    };
    let weights = testing::weights(&shape.parameters());
    let out = logits(&shape, &weights, &testing::images(2, 3, 63)).unwrap();
    testing::assert_close("logits", &out, &testing::expected("convmixer_relu"), 1e-4);
    let inferred = ConvMixerShape::infer(&weights, 63, Activation::Relu).unwrap();
    assert_eq!(inferred, shape);
}

#[test]
fn parameter_count_is_the_papers() {
    let mut shape = ConvMixerShape {
        image_size: 32,
        channels: 3,
        patch: 1,
        depth: 8,
        width: 256,
        kernel: 8,
        classes: 10,
        activation: Activation::Gelu,
        dilations: Dilations::default(),
    };
    let count = |shape: &ConvMixerShape| -> usize {
        let trained = shape
            .parameters()
            .into_iter()
            .filter(|p| !is_running_statistic(&p.0));
        trained
            .map(|(_, dims)| dims.iter().product::<usize>())
            .sum()
    };
    assert_eq!(count(&shape), 671_754);
    // ConvMixer-1536/20 for ImageNet.
    (shape.patch, shape.depth, shape.width) = (7, 20, 1536);
    (shape.kernel, shape.classes) = (9, 1000);
    assert_eq!(count(&shape), 51_625_960);
}

#[test]
fn initialises_as_pytorch_does() {
    let shape = small();
    let weights = shape.initialise(3).unwrap();
    let listed: BTreeMap<_, _> = shape.parameters().into_iter().collect();
    assert!(
        listed
            .iter()
            .map(|(n, d)| (n, &d[..]))
            .eq(weights.iter().map(|(n, w)| (n, w.dims())))
    );
    let extent = |name: &str| {
        values(&weights[name])
            .iter()
            .fold(0f32, |m, v| m.max(v.abs()))
    };
    for (layer, fan_in) in [
        ("stem.0", 8.0),
        ("blocks.3.0.fn.0", 9.0),
        ("blocks.3.1", 10.0),
    ] {
        let bound = 1.0 / f32::sqrt(fan_in);
        for part in ["weight", "bias"] {
            let extent = extent(&format!("{layer}.{part}"));
            assert!(
                extent <= bound && extent > bound / 2.0,
                "{layer}.{part}: {extent}"
            );
        }
    }
    for norm in ["stem.2", "blocks.0.0.fn.2", "blocks.3.3"] {
        for (part, want) in [
            ("weight", 1.0),
            ("bias", 0.0),
            ("running_mean", 0.0),
            ("running_var", 1.0),
        ] {
            assert!(
                values(&weights[&format!("{norm}.{part}")])
                    .iter()
                    .all(|v| *v == want)
            );
        }
    }
    let again = shape.initialise(3).unwrap();
    assert!(
        weights
            .iter()
            .all(|(name, w)| values(w) == values(&again[name]))
    );
    let other = shape.initialise(4).unwrap();
    assert_ne!(
        values(&weights["head.weight"]),
        values(&other["head.weight"])
    );
}

#[test]
fn every_trained_weight_has_a_gradient() {
    let shape = small();
    let weights = shape.initialise(0).unwrap();
    let variables = variables(&weights);
    let weights = with_variables(&weights, &variables);
    let labels = Tensor::new(&[0u32, 3, 1], &Device::Cpu).unwrap();
    let images = images(&shape, 3);
    let train = logits_train(&shape, &weights, &images).unwrap().0;
    let eval = logits(&shape, &weights, &images).unwrap();
    for out in [train, eval] {
        let grads = cross_entropy(&out, &labels).backward().unwrap();
        for (name, v) in &variables {
            let g = grads
                .get(v)
                .unwrap_or_else(|| panic!("{name} has no gradient"));
            assert!(
                values(g).iter().any(|g| g.abs() > 1e-7),
                "{name} has a zero gradient"
            );
        }
    }
}

#[test]
fn repeats_bit_for_bit() {
    let shape = small();
    let weights = shape.initialise(0).unwrap();
    let images = images(&shape, 5);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build()
        .unwrap();
    let once = || {
        let variables = variables(&weights);
        let weights = with_variables(&weights, &variables);
        let (out, running) = logits_train(&shape, &weights, &images).unwrap();
        let grads = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let grads = variables.values().map(|v| values(grads.get(v).unwrap()));
        running
            .values()
            .map(values)
            .chain(grads)
            .collect::<Vec<_>>()
    };
    assert_eq!(pool.install(once), pool.install(once));
}

#[test]
fn running_statistics_settle_where_eval_equals_train() {
    let shape = small();
    let mut weights = shape.initialise(1).unwrap();
    let images = images(&shape, 40);
    let mut train = None;
    for _ in 0..150 {
        let (out, running) = logits_train(&shape, &weights, &images).unwrap();
        weights.extend(running);
        train = Some(out);
    }
    let eval = logits(&shape, &weights, &images).unwrap();
    // Not exactly: the running variance is the unbiased estimate.
    for (a, b) in values(&eval).iter().zip(values(&train.unwrap())) {
        assert!((a - b).abs() < 0.02, "{a} and {b}");
    }
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let shape = small();
    let weights = shape.initialise(0).unwrap();
    let images = images(&shape, 1);
    let message = |r: Result<Tensor>| r.unwrap_err().to_string();

    let zero = ConvMixerShape {
        kernel: 0,
        ..small()
    };
    let error = zero.validate().unwrap_err().to_string();
    assert_eq!(error, "kernel is 0; it must be at least 1");
    let large = ConvMixerShape {
        patch: 10,
        ..small()
    };
    assert!(
        large
            .validate()
            .unwrap_err()
            .to_string()
            .contains("patch is 10; it must be at most 9")
    );
    let huge = ConvMixerShape {
        width: usize::MAX,
        ..small()
    };
    let error = huge.validate().unwrap_err().to_string();
    assert!(error.contains("width is"), "{error}");
    assert!(error.contains("it must be at most"), "{error}");
    assert!(huge.initialise(0).is_err());

    let turned = images
        .flatten(2, 3)
        .unwrap()
        .reshape((1, 2, 27, 3))
        .unwrap();
    assert!(message(logits(&shape, &weights, &turned)).contains("expected (b, 2, 9, 9)"));
    let deeper = ConvMixerShape {
        depth: 5,
        ..small()
    };
    assert!(message(logits(&deeper, &weights, &images)).contains("blocks.4.0.fn.0.weight"));
    let wider = ConvMixerShape {
        width: 12,
        ..small()
    };
    assert!(message(logits(&wider, &weights, &images)).contains("[12, 2, 2, 2]"));

    let single = ConvMixerShape {
        patch: 9,
        ..small()
    };
    let weights = single.initialise(0).unwrap();
    let one = logits_train(&single, &weights, &images).map(|out| out.0);
    assert!(message(one).contains("larger batch"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_shape_gives_finite_logits(
        image_size in 2usize..13, channels in 1usize..4, patch in 1usize..5, depth in 1usize..4,
        width in 1usize..20, kernel in 1usize..6, classes in 1usize..6,
    ) {
        let patch = patch.min(image_size);
        let activation = if depth % 2 == 0 { Activation::Gelu } else { Activation::Relu };
        let shape =
            ConvMixerShape { image_size, channels, patch, depth, width, kernel, classes, activation,
            dilations: Dilations::default(),
        };
        let mut weights = shape.initialise(7).unwrap();
        // Counters that timm writes are ignored.
        let counter = Tensor::zeros((), DType::I64, &Device::Cpu).unwrap();
        weights.insert("stem.2.num_batches_tracked".into(), counter);
        let images = images(&shape, 3);
        let eval = logits(&shape, &weights, &images).unwrap();
        let (train, _) = logits_train(&shape, &weights, &images).unwrap();
        for out in [eval, train] {
            prop_assert_eq!(out.dims(), &[3, classes]);
            prop_assert!(values(&out).iter().all(|v| v.is_finite()));
        }
    }
}
