use super::*;
use crate::testing::{
    assert_block, assert_close, assert_same, changed, check_refused, donor, images, shape, start,
    values,
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
fn identity_growth_keeps_all_weights_or_repeats_layers() {
    for class_token in [false, true] {
        let shape = changed(shape(3, 16), |s| s.class_token = class_token);
        let operator = identity(&shape, &shape).unwrap();
        let grown = unstack(&grow(&stacked(&shape), &operator).unwrap()).unwrap();
        let small = donor(shape, 1).weights;
        assert!(grown.keys().eq(small.keys()));
        for (name, tensor) in &grown {
            assert_same(name, tensor, &small[name]);
        }
    }
    let (small, deep) = (shape(2, 16), shape(5, 16));
    let operator = identity(&small, &deep).unwrap();
    let grown = unstack(&grow(&stacked(&small), &operator).unwrap()).unwrap();
    let of = donor(small, 1).weights;
    for l in 0..5 {
        assert_block(&grown, l, &of, l % 2);
    }
}

#[test]
fn the_start_nearly_repeats_layers_and_averages_channels() {
    let operator = |seed| operator_start(&shape(3, 16), &shape(7, 24), NOISE, seed).unwrap();
    let (operator, other) = (operator(0), operator(1));
    for (name, tensor) in &operator {
        let rows = tensor.flatten_to(tensor.rank() - 2).unwrap();
        let rows: Vec<Vec<f32>> = rows.to_vec2().unwrap();
        for (l, row) in rows.iter().enumerate() {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{name}");
            assert!(row.iter().all(|v| *v >= 0.0), "{name}");
            if name.starts_with("depth.") {
                assert!(row[l % 3] > 0.94 && row[l % 3] < 1.0, "{name}: {row:?}");
            }
        }
    }
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
    let close = |found: &Tensor, expected: &Tensor| {
        assert_close(&values(found), &values(expected), 1e-5);
    };

    let (proj, wide_proj) = (
        of(&before, "attn.proj.weight"),
        of(&grown, "attn.proj.weight"),
    );
    close(
        &wide_proj,
        &mul(&mul(&stream, &proj), &t(&layer("width.v"))),
    );
    let q = of(&before, "attn.qkv.weight").narrow(0, 0, 16).unwrap();
    let found = of(&grown, "attn.qkv.weight").narrow(0, 0, 24).unwrap();
    close(&found, &mul(&mul(&layer("width.q"), &q), &t(&stream)));
    let bias = of(&before, "attn.proj.bias").unsqueeze(1).unwrap();
    close(&of(&grown, "attn.proj.bias"), &mul(&stream, &bias));
    let head = mul(&before["head.weight"], &t(&stream));
    close(&grown["head.weight"], &head);
    // The original channels stay the same.
    let corner = wide_proj.narrow(0, 0, 16).unwrap();
    let corner = corner.narrow(1, 0, 16).unwrap();
    assert_same("corner", &corner, &proj);
}

#[test]
fn every_part_of_the_operator_learns() {
    let (small, large) = (shape(2, 16), shape(3, 24));
    let mut operator = operator_start(&small, &large, NOISE, 0).unwrap();
    for tensor in operator.values_mut() {
        *tensor = Var::from_tensor(tensor).unwrap().into_inner();
    }
    let loss = |operator: &Weights| {
        let grown = grow(&stacked(&small), operator).unwrap();
        let z = vit::logits(&large, &grown, &images(&large), None).unwrap();
        z.sqr().unwrap().mean_all().unwrap()
    };
    let gradients = loss(&operator).backward().unwrap();
    for (name, tensor) in &operator {
        let gradient = gradients.get(tensor).expect(name);
        let norm = values(gradient).iter().map(|g| g * g).sum::<f32>().sqrt();
        assert!(norm > 0.0, "{name} has no gradient");
        // Along its own direction the loss changes as the gradient predicts.
        let at = |step: f32| {
            let change = (gradient * f64::from(step / norm)).unwrap();
            let mut moved = operator.clone();
            moved.insert(name.clone(), (tensor + change).unwrap());
            loss(&moved).to_scalar::<f32>().unwrap()
        };
        let step = 2e-3;
        let slope = (at(step) - at(-step)) / (2.0 * step);
        let within = (slope - norm).abs() < 0.05 * norm + 2e-3;
        assert!(within, "{name}: {slope}, {norm}");
    }
}

#[test]
fn a_head_of_other_classes_is_fresh_and_not_counted() {
    let target = changed(shape(4, 24), |s| s.classes = 2);
    let start = start("ligo", &target, &[donor(shape(2, 16), 1)]);
    let fresh = crate::testing::fresh(&target);
    assert_same("head", &start.weights["head.weight"], &fresh["head.weight"]);
    let counted = shape(2, 16).parameter_count() - 5 * 17;
    assert_eq!(start.cost.transferred, counted);
}

#[test]
fn what_cannot_grow_is_refused() {
    let small = shape(2, 24);
    let narrower = operator_start(&small, &shape(2, 16), NOISE, 0);
    check_refused(narrower, "width is 24, more than the target's 16");
    let token = changed(small.clone(), |s| s.class_token = true);
    let refused = identity(&small, &token);
    check_refused(refused, "class tokens is 0, the target's 1");
}

#[test]
fn a_donor_with_a_distillation_token_is_refused_with_a_remedy() {
    let target = changed(shape(2, 16), |s| s.class_token = true);
    let distilled = changed(target.clone(), |s| s.distilled = true);
    for method in ["ligo", "prune"] {
        let donors = [donor(distilled.clone(), 1)];
        let refused = crate::testing::try_start(method, &target, &donors, &Default::default());
        check_refused(refused, "use a donor without one");
    }
}
