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

/// A network for gray images of five classes.
fn gray(image_size: usize, depth: usize, width: usize, kernel: usize) -> ConvMixerShape {
    ConvMixerShape {
        image_size,
        channels: 1,
        depth,
        width,
        kernel,
        classes: 5,
        ..small()
    }
}

/// Reproducible images, (b, channels, size, size).
fn images(shape: &ConvMixerShape, b: usize) -> Tensor {
    testing::images(b, shape.channels, shape.image_size)
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
    testing::assert_close(name, got, want, TOLERANCE);
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
    check_against_timm("odd", &gray(14, 2, 24, 5));
    // An even kernel, and an image that is cropped.
    check_against_timm("even", &gray(15, 1, 20, 4));
    let dilated = ConvMixerShape {
        dilations: Dilations::parse("123", 3).unwrap(),
        ..gray(18, 3, 20, 3)
    };
    check_against_timm("dilated", &dilated);
}

#[test]
fn agrees_with_timm_with_relu() {
    let shape = ConvMixerShape {
        channels: 3,
        patch: 7,
        classes: 10,
        activation: Activation::Relu,
        ..gray(63, 3, 24, 7)
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
        channels: 3,
        patch: 1,
        classes: 10,
        ..gray(32, 8, 256, 8)
    };
    let count = |shape: &ConvMixerShape| -> usize {
        let mut trained = shape.parameters();
        trained.retain(|(name, _)| !is_running_statistic(name));
        let sizes = trained
            .iter()
            .map(|(_, dims)| dims.iter().product::<usize>());
        sizes.sum()
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
    crate::vit::check_weights(&weights, &shape.parameters()).unwrap();
    // The convolutions of a ConvNeXt are drawn by the same function.
    let bound = 1.0 / f32::sqrt(9.0);
    for part in ["weight", "bias"] {
        let drawn = values(&weights[&format!("blocks.3.0.fn.0.{part}")]);
        let largest = drawn.iter().fold(0f32, |m, v| m.max(v.abs()));
        let within = bound / 2.0..=bound;
        assert!(within.contains(&largest), "{part}: {largest}");
    }
    for norm in ["stem.2", "blocks.0.0.fn.2", "blocks.3.3"] {
        for part in ["weight", "bias", "running_mean", "running_var"] {
            let name = format!("{norm}.{part}");
            let want = f32::from(u8::from(["weight", "running_var"].contains(&part)));
            assert!(values(&weights[&name]).iter().all(|v| *v == want), "{name}");
        }
    }
    let (again, other) = (shape.initialise(3).unwrap(), shape.initialise(4).unwrap());
    for (name, w) in &weights {
        assert_eq!(values(w), values(&again[name]), "{name}");
    }
    let head = |weights: &Weights| values(&weights["head.weight"]);
    assert_ne!(head(&weights), head(&other));
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
            let g = values(grads.get(v).expect(name));
            assert!(g.iter().any(|g| g.abs() > 1e-7), "{name}");
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
    let once = || -> Vec<Vec<f32>> {
        let variables = variables(&weights);
        let weights = with_variables(&weights, &variables);
        let (out, running) = logits_train(&shape, &weights, &images).unwrap();
        let grads = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let grads = variables.values().map(|v| values(grads.get(v).unwrap()));
        running.values().map(values).chain(grads).collect()
    };
    assert_eq!(pool.install(once), pool.install(once));
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let impossible = |change: fn(&mut ConvMixerShape), part: &str| {
        let mut shape = small();
        change(&mut shape);
        let error = shape.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(shape.initialise(0).is_err());
    };
    impossible(|s| s.kernel = 0, "kernel is 0; it must be at least 1");
    impossible(|s| s.patch = 10, "patch is 10; it must be at most 9");
    impossible(|s| s.width = usize::MAX, "width is");
    impossible(|s| s.width = usize::MAX, "it must be at most");

    let weights = small().initialise(0).unwrap();
    let images = images(&small(), 1);
    let misfit = |change: fn(&mut ConvMixerShape), images: &Tensor, part: &str| {
        let mut shape = small();
        change(&mut shape);
        let error = logits(&shape, &weights, images).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    let turned = images.reshape((1, 2, 27, 3)).unwrap();
    misfit(|_| (), &turned, "expected (b, 2, 9, 9)");
    misfit(|s| s.depth = 5, &images, "blocks.4.0.fn.0.weight");
    misfit(|s| s.width = 12, &images, "[12, 2, 2, 2]");

    let single = ConvMixerShape {
        patch: 9,
        ..small()
    };
    let weights = single.initialise(0).unwrap();
    let error = logits_train(&single, &weights, &images).unwrap_err();
    assert!(error.to_string().contains("larger batch"), "{error}");
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
