//! Logits, loss and every gradient equal timm's (tests/fixtures/make_vit.py) within 1e-4.

use candle_core::{DType, Device, Tensor, Var};
use std::collections::BTreeMap;
use wave_models::Weights;
use wave_models::vit::{self, VitShape};

fn check(case: &str, heads: usize) {
    let path = format!(
        "{}/../../tests/fixtures/vit_{case}.safetensors",
        env!("CARGO_MANIFEST_DIR")
    );
    let fixture: BTreeMap<String, Tensor> = candle_core::safetensors::load(path, &Device::Cpu)
        .unwrap()
        .into_iter()
        .collect();
    let part = |prefix: &str| -> Weights {
        fixture
            .iter()
            .filter_map(|(name, t)| Some((name.strip_prefix(prefix)?.to_string(), t.clone())))
            .collect()
    };
    let weights = part("weights.");
    let shape = VitShape::infer(&weights, Some(heads)).unwrap();
    let stacked = vit::stack(&weights, shape.depth).unwrap();
    let vars: BTreeMap<String, Var> = stacked
        .iter()
        .map(|(name, t)| (name.clone(), Var::from_tensor(t).unwrap()))
        .collect();
    let tracked: Weights = vars
        .iter()
        .map(|(name, v)| (name.clone(), v.as_tensor().clone()))
        .collect();

    let logits = vit::logits(&shape, &tracked, &fixture["images"], None).unwrap();
    close("logits", &logits, &fixture["logits"]);
    let detached = vit::logits(&shape, &stacked, &fixture["images"], None).unwrap();
    close("logits without gradient", &detached, &fixture["logits"]);

    let classes = shape.classes as f32;
    let targets = fixture["labels"]
        .unsqueeze(1)
        .unwrap()
        .broadcast_eq(&Tensor::arange(0.0, classes, &Device::Cpu).unwrap())
        .unwrap()
        .to_dtype(DType::F32)
        .unwrap();
    let loss = wave_ops::soft_cross_entropy(&logits, &targets).unwrap();
    close(
        "loss",
        &loss.reshape(1).unwrap(),
        &fixture["loss"].reshape(1).unwrap(),
    );
    let gradients = loss.backward().unwrap();
    let gradients: Weights = vars
        .iter()
        .map(|(name, v)| (name.clone(), gradients.get(v).expect(name).clone()))
        .collect();
    let gradients = vit::unstack(&gradients).unwrap();
    let expected = part("grads.");
    assert_eq!(
        gradients.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (name, want) in &expected {
        close(name, &gradients[name], want);
        let size = want
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        assert!(size > 1e-6, "{name}: the fixture's gradient is zero");
    }
}

fn close(name: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.dims(), want.dims(), "{name}");
    let difference = (got - want)
        .unwrap()
        .abs()
        .unwrap()
        .max_all()
        .unwrap()
        .to_scalar::<f32>()
        .unwrap();
    assert!(
        difference < 1e-4,
        "{name} differs from timm by {difference}"
    );
}

#[test]
fn mean_pooling() {
    check("mean_pool", 2);
}

#[test]
fn class_token_and_other_mlp_ratio() {
    check("class_token", 5);
}
