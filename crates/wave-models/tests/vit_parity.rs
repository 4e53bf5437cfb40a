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
    let [found, want] = [&loss, &fixture["loss"]].map(|t| t.reshape(1).unwrap());
    close("loss", &found, &want);
    let gradients = loss.backward().unwrap();
    let gradients: Weights = vars
        .iter()
        .map(|(name, v)| (name.clone(), gradients.get(v).expect(name).clone()))
        .collect();
    let gradients = vit::unstack(&gradients).unwrap();
    let expected = part("grads.");
    assert!(gradients.keys().eq(expected.keys()));
    for (name, want) in &expected {
        close(name, &gradients[name], want);
        assert!(largest(want) > 1e-6, "{name} has a zero gradient");
    }
}

fn close(name: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.dims(), want.dims(), "{name}");
    let off = largest(&(got - want).unwrap());
    assert!(off < 1e-4, "{name} differs from timm by {off}");
}

fn largest(t: &Tensor) -> f32 {
    t.abs().unwrap().max_all().unwrap().to_scalar().unwrap()
}

#[test]
fn both_poolings_and_another_mlp_ratio() {
    check("mean_pool", 2);
    check("class_token", 5);
}

/// With one head, the identity as projection and no MLP, a block adds the map's averages of the values.
#[test]
fn attention_maps_are_what_the_blocks_attend_by() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/vit_mean_pool.safetensors"
    );
    let fixture = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    let own = |(name, t): (&String, &Tensor)| {
        Some((name.strip_prefix("weights.")?.to_string(), t.clone()))
    };
    let mut weights: Weights = fixture.iter().filter_map(own).collect();
    weights = vit::first_blocks(&weights, 1);
    let d = weights["blocks.0.norm1.weight"].elem_count();
    for name in ["attn.proj.bias", "mlp.fc2.weight", "mlp.fc2.bias"] {
        let name = format!("blocks.0.{name}");
        let zeros = weights[&name].zeros_like().unwrap();
        weights.insert(name, zeros);
    }
    let identity = Tensor::eye(d, DType::F32, &Device::Cpu).unwrap();
    weights.insert("blocks.0.attn.proj.weight".into(), identity);
    let shape = VitShape {
        depth: 1,
        ..VitShape::infer(&weights, Some(1)).unwrap()
    };
    let images = fixture["images"].narrow(0, 0, 1).unwrap();
    let maps = vit::attention_maps(&shape, &weights, &images).unwrap();
    assert_eq!(maps.len(), 1);

    let stacked = vit::stack(&weights, 1).unwrap();
    let x = vit::embedded(wave_ops::Precision::F32, &shape, &weights, &images).unwrap();
    let parameters = vit::BLOCK_TENSORS.map(|name| stacked[&format!("blocks.{name}")].clone());
    let exact = wave_ops::Precision::F32;
    let y = wave_ops::blocks(exact, &x, &parameters, shape.blocks(), None).unwrap();
    let of = |name: &str| &weights[&format!("blocks.0.{name}")];
    let eps = shape.norm_eps;
    let normed = wave_ops::layer_norm(&x, of("norm1.weight"), of("norm1.bias"), eps).unwrap();
    let qkv = wave_ops::linear(&normed, of("attn.qkv.weight"), of("attn.qkv.bias")).unwrap();
    let values = qkv.narrow(2, 2 * d, d).unwrap().squeeze(0).unwrap();
    let expected = maps[0].matmul(&values.contiguous().unwrap()).unwrap();
    close("attended", &(y - x).unwrap().squeeze(0).unwrap(), &expected);
}
