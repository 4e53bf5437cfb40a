use super::*;
use crate::Choices;
use crate::testing::{
    assert_block, assert_close, assert_same, changed, check_refused, donor, images, logits, shape,
    start, try_start, values,
};
use candle_core::Var;
use wave_models::vit;

/// The operator that maps a network to itself, or to a deeper one that repeats its layers.
fn identity(small: &VitShape, target: &VitShape) -> crate::Result<Weights> {
    operator_start(small, target, 0.0, 0)
}

/// Stacked weights of a donor of this shape.
fn stacked(shape: &VitShape) -> Weights {
    let small = donor(shape.clone(), 1);
    stack(&small.weights, shape.depth).unwrap()
}

#[test]
fn identity_growth_keeps_the_function() {
    for class_token in [false, true] {
        let shape = changed(shape(3, 16), |s| s.class_token = class_token);
        let small = donor(shape.clone(), 1);
        let operator = identity(&shape, &shape).unwrap();
        let grown = grow(&stacked(&shape), &operator).unwrap();
        let grown = unstack(&grown).unwrap();
        assert_eq!(logits(&shape, &grown), logits(&shape, &small.weights));
        for (name, tensor) in &grown {
            assert_same(name, tensor, &small.weights[name]);
        }
    }
}

#[test]
fn identity_growth_to_more_layers_repeats_them() {
    let (small, deep) = (shape(2, 16), shape(5, 16));
    let operator = identity(&small, &deep).unwrap();
    let grown = grow(&stacked(&small), &operator).unwrap();
    let (grown, of) = (unstack(&grown).unwrap(), donor(small, 1));
    for l in 0..5 {
        assert_block(&grown, l, &of.weights, l % 2);
    }
}

#[test]
fn the_start_nearly_repeats_layers_and_averages_channels() {
    let operator = operator_start(&shape(3, 16), &shape(7, 24), NOISE, 0).unwrap();
    for (name, tensor) in &operator {
        let rows: Vec<Vec<f32>> = tensor
            .flatten_to(tensor.rank() - 2)
            .unwrap()
            .to_vec2()
            .unwrap();
        for (l, row) in rows.iter().enumerate() {
            let sum: f32 = row.iter().sum();
            assert!(
                (sum - 1.0).abs() < 1e-5 && row.iter().all(|v| *v >= 0.0),
                "{name}"
            );
            if name.starts_with("depth.") {
                assert!(row[l % 3] > 0.94 && row[l % 3] < 1.0, "{name}: {row:?}");
            }
        }
    }
    let other = operator_start(&shape(3, 16), &shape(7, 24), NOISE, 1).unwrap();
    assert_ne!(values(&operator["width.q"]), values(&other["width.q"]));
    assert_ne!(values(&operator["width.q"]), values(&operator["width.k"]));
}

#[test]
fn a_wider_network_contains_the_small_one_and_its_averages() {
    let (small, wide) = (shape(1, 16), shape(1, 24));
    let operator = operator_start(&small, &wide, NOISE, 0).unwrap();
    let (before, grown) = (stacked(&small), grow(&stacked(&small), &operator).unwrap());
    vit::check_weights(&grown, &wide.stacked_parameters()).unwrap();
    // M = [I; C], so that proj grows to M_stream W M_v^T and its bias to M_stream b.
    let with_identity = |c: &Tensor| -> Tensor {
        let (new, d) = c.dims2().unwrap();
        let eye = crate::direct::zero::algorithm_1(d, d).unwrap();
        assert_eq!((new, d), (8, 16));
        Tensor::cat(&[&eye, c], 0).unwrap() // (D, d)
    };
    let stream = with_identity(&operator["width.stream"]);
    let layer = |name: &str| with_identity(&operator[name].get(0).unwrap());
    let mul = |a: &Tensor, b: &Tensor| a.matmul(&b.contiguous().unwrap()).unwrap();
    let of = |weights: &Weights, name: &str| weights[&format!("blocks.{name}")].get(0).unwrap();
    let t = |m: &Tensor| m.t().unwrap();

    let proj = of(&before, "attn.proj.weight");
    let expected = mul(&mul(&stream, &proj), &t(&layer("width.v")));
    assert_close(
        &values(&of(&grown, "attn.proj.weight")),
        &values(&expected),
        1e-5,
    );
    let q = of(&before, "attn.qkv.weight").narrow(0, 0, 16).unwrap();
    let expected = mul(&mul(&layer("width.q"), &q), &t(&stream));
    let found = of(&grown, "attn.qkv.weight").narrow(0, 0, 24).unwrap();
    assert_close(&values(&found), &values(&expected), 1e-5);
    let bias = of(&before, "attn.proj.bias").unsqueeze(1).unwrap();
    let expected = mul(&stream, &bias);
    assert_close(
        &values(&of(&grown, "attn.proj.bias")),
        &values(&expected),
        1e-5,
    );
    let head = mul(&before["head.weight"], &t(&stream));
    assert_close(&values(&grown["head.weight"]), &values(&head), 1e-5);
    // The original channels stay the same.
    let corner = of(&grown, "attn.proj.weight");
    let corner = corner.narrow(0, 0, 16).unwrap().narrow(1, 0, 16).unwrap();
    assert_same("corner", &corner, &proj);
}

#[test]
fn every_part_of_the_operator_learns() {
    let (small, large) = (shape(2, 16), shape(3, 24));
    let start = operator_start(&small, &large, NOISE, 0).unwrap();
    let operator: std::collections::BTreeMap<String, Var> = start
        .iter()
        .map(|(name, tensor)| (name.clone(), Var::from_tensor(tensor).unwrap()))
        .collect();
    let loss = |operator: &Weights| {
        let grown = grow(&stacked(&small), operator).unwrap();
        let z = vit::logits(&large, &grown, &images(&large), None).unwrap();
        z.sqr().unwrap().mean_all().unwrap()
    };
    let tensors = |scale: f32, direction: &Weights| -> Weights {
        let moved = |name: &String| {
            let step = (&direction[name] * f64::from(scale)).unwrap();
            (operator[name].as_tensor() + step).unwrap()
        };
        operator
            .keys()
            .map(|name| (name.clone(), moved(name)))
            .collect()
    };
    let variables = operator
        .iter()
        .map(|(name, var)| (name.clone(), var.as_tensor().clone()))
        .collect();
    let gradients = loss(&variables).backward().unwrap();
    for (name, var) in &operator {
        let gradient = gradients.get(var).unwrap_or_else(|| panic!("{name}"));
        let norm = values(gradient).iter().map(|g| g * g).sum::<f32>();
        assert!(norm > 0.0, "{name} has no gradient");
        // Along its own direction the loss changes as the gradient predicts.
        let mut direction: Weights = operator
            .iter()
            .map(|(name, var)| (name.clone(), var.zeros_like().unwrap()))
            .collect();
        direction.insert(name.clone(), (gradient / f64::from(norm.sqrt())).unwrap());
        let at = |scale| {
            loss(&tensors(scale, &direction))
                .to_scalar::<f32>()
                .unwrap()
        };
        let step = 2e-3;
        let slope = (at(step) - at(-step)) / (2.0 * step);
        let expected = norm.sqrt();
        let tolerance = 0.05 * expected + 2e-3;
        assert!(
            (slope - expected).abs() < tolerance,
            "{name}: {slope}, {expected}"
        );
    }
}

#[test]
fn the_start_counts_the_small_network() {
    let (small, large) = (donor(shape(2, 16), 1), shape(4, 24));
    let donors = [small];
    let start = start("ligo", &large, &donors);
    assert_eq!(start.cost.transferred, shape(2, 16).parameter_count());
    assert_eq!(start.cost.stored, start.cost.transferred);
    let classes = changed(large.clone(), |s| s.classes = 2);
    let other = try_start("ligo", &classes, &donors, &Choices::default()).unwrap();
    let fresh = crate::testing::fresh(&classes);
    assert_same("head", &other.weights["head.weight"], &fresh["head.weight"]);
    assert_eq!(other.cost.transferred, start.cost.transferred - 5 * 17);
}

#[test]
fn what_cannot_grow_is_refused() {
    let small = shape(2, 24);
    let narrower = operator_start(&small, &shape(2, 16), NOISE, 0);
    check_refused(narrower, "width is 24, more than the target's 16");
    let token = changed(small.clone(), |s| s.class_token = true);
    check_refused(
        identity(&small, &token),
        "class tokens is 0, the target's 1",
    );
}
