use crate::Learngene;
use crate::testing::*;
use candle_core::{DType, Device, Tensor, Var};
use wave_models::Weights;

fn norms(name: &str) -> bool {
    name.contains("norm")
}

fn none(
    gene: &Learngene,
    anchors: usize,
    classes: usize,
    rank: usize,
    adapts: impl Fn(&str) -> bool,
) -> Weights {
    let mut drawn = (1..).map(|i| (i as f32).sin());
    let mut normal = || drawn.next().unwrap();
    let delta = gene.no_delta(anchors, classes, rank, &mut normal, adapts);
    delta.unwrap()
}

fn random(delta: &Weights) -> Weights {
    let rng = &mut rng(7);
    let random = |(name, t): (&String, &Tensor)| (name.clone(), normal(rng, t.shape()));
    delta.iter().map(random).collect()
}

#[test]
fn no_delta_changes_nothing_but_other_classes() {
    let gene = learngene(Kronecker::Tile);
    let same = none(&gene, 2, 10, 0, norms);
    let adapted = gene.with_delta(&same).unwrap();
    for ((name, a), (_, b)) in gene.tensors().iter().zip(adapted.tensors()) {
        assert_eq!(flat(a), flat(&b), "{name}");
    }
    for classes in [3, 17] {
        let other = none(&gene, 2, classes, 1, norms);
        let other = gene.with_delta(&other).unwrap();
        let shape = other.shape(4, 32, None).unwrap();
        assert_eq!(shape.classes, classes);
        let head = &other.weights(&shape).unwrap()["head.weight"];
        assert_eq!(head.dims(), [classes, 32]);
        assert!(flat(head).iter().all(|v| *v == 0.0));
    }
}

#[test]
fn a_backbone_gets_a_classifier() {
    let gene = learngene(Kronecker::Tile).headless();
    let delta = none(&gene, 1, 4, 0, |_| false);
    let adapted = gene.with_delta(&random(&delta)).unwrap();
    assert_eq!(logits(&adapted, 3, 48).dims(), [3, 4]);
}

#[test]
fn anchors_of_a_delta_are_interpolated_and_added() {
    let gene = learngene(Kronecker::Tile);
    let delta = random(&none(&gene, 2, 10, 0, norms));
    let adapted = gene.with_delta(&delta).unwrap();
    let own: Weights = gene.tensors().into_iter().collect();
    for (name, t) in adapted.tensors() {
        let Some(change) = delta.get(&name) else {
            assert_eq!(flat(&t), flat(&own[&name]), "{name}");
            continue;
        };
        if name.starts_with("head") {
            assert_eq!(flat(&t), flat(change));
            continue;
        }
        if !name.starts_with("blocks.") && !name.starts_with("bank.") {
            assert_close(&flat(&t), &flat(&(&own[&name] + change).unwrap()), 1e-6);
            continue;
        }
        // Five anchors, interpolated between the two of the delta.
        for k in 0..5 {
            let (first, last) = (change.get(0).unwrap(), change.get(1).unwrap());
            let f = k as f64 / 4.0;
            let between = (first * (1.0 - f)).unwrap() + (last * f).unwrap();
            let expected = own[&name].get(k).unwrap() + between.unwrap();
            assert_close(&flat(&t.get(k).unwrap()), &flat(&expected.unwrap()), 1e-5);
        }
    }
    let held = delta.keys().filter(|name| !norms(name));
    let bank_and_head = |name: &&String| name.starts_with("bank.") || name.starts_with("head");
    assert!(held.eq(own.keys().filter(bank_and_head)));
}

#[test]
fn gradients_reach_every_tensor_of_a_delta() {
    let gene = learngene(Kronecker::Tile);
    let adapts = |name: &str| !name.starts_with("templates.");
    let mut delta = random(&none(&gene, 3, 7, 2, adapts));
    for t in delta.values_mut() {
        *t = Var::from_tensor(t).unwrap().into_inner();
    }
    let adapted = gene.with_delta(&delta).unwrap();
    let loss = logits(&adapted, 4, 64).sqr().unwrap().mean_all().unwrap();
    let gradients = loss.backward().unwrap();
    for (name, t) in &delta {
        let gradient = flat(gradients.get(t).expect(name));
        assert!(gradient.iter().any(|g| *g != 0.0), "{name}");
    }
}

#[test]
fn a_delta_of_other_templates_is_refused() {
    let gene = learngene(Kronecker::Tile);
    let delta = none(&gene, 1, 10, 3, norms);
    let refused = |change: &dyn Fn(&mut Weights), part: &str| {
        let mut wrong = delta.clone();
        change(&mut wrong);
        let error = gene.with_delta(&wrong).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    for (name, dims, part) in [
        ("blocks.ls1.gamma", vec![2, 64], "blocks.ls1.gamma"),
        ("bank.qkv", vec![2, 3, 1, 1], "bank.qkv"),
        ("bank.qkv", vec![0, 3, 12, 4], "bank.qkv"),
        ("bank.qkv", vec![], "bank.qkv"),
        ("templates.fc1.right", vec![4, 2, 16], "templates.fc1"),
        ("templates.frob.left", vec![4, 16, 3], "templates.frob"),
    ] {
        let zeros = Tensor::zeros(dims, DType::F32, &Device::Cpu).unwrap();
        refused(&|w| drop(w.insert(name.into(), zeros.clone())), part);
    }
    let half = |w: &mut Weights| drop(w.remove("templates.fc1.right"));
    refused(&half, "one factor of templates.fc1");
}

#[test]
fn differences_of_templates_have_the_rank_asked_for() {
    let gene = learngene(Kronecker::Tile);
    let start = none(&gene, 1, 10, 3, |_| false);
    let same = gene.with_delta(&start).unwrap();
    assert_eq!(flat(&same.templates["fc1"]), flat(&gene.templates["fc1"]));
    let delta = random(&start);
    let adapted = gene.with_delta(&delta).unwrap();
    let (left, right) = (&delta["templates.fc1.left"], &delta["templates.fc1.right"]);
    assert_eq!(left.dims(), [4, 16, 3]);
    assert_eq!(right.dims(), [4, 3, 16]);
    let expected = (&gene.templates["fc1"] + left.matmul(right).unwrap()).unwrap();
    assert_close(&flat(&adapted.templates["fc1"]), &flat(&expected), 1e-6);
}
