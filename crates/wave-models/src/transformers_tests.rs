use super::*;
use crate::testing::{self, assert_close};
use crate::vit;

const SMALL: VitShape = VitShape {
    image_size: 32,
    channels: 3,
    patch: 8,
    depth: 3,
    width: 48,
    heads: 3,
    mlp_ratio: 4.0,
    classes: 7,
    class_token: true,
    distilled: false,
    norm_eps: vit::LAYER_NORM_EPS,
};

fn values(t: &Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}

fn same(a: &Weights, b: &Weights) {
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, t) in a {
        assert_eq!(t.dims(), b[name].dims(), "{name}");
        assert_eq!(values(t), values(&b[name]), "{name}");
    }
}

/// Logits of three images of the rule.
fn logits(shape: &VitShape, weights: &Weights) -> Tensor {
    let stacked = vit::stack(weights, shape.depth).unwrap();
    let images = testing::images(3, shape.channels, shape.image_size);
    vit::logits(shape, &stacked, &images, None).unwrap()
}

/// The weights of `shape` under the names of transformers' DeiT.
fn as_deit(shape: &VitShape, weights: &Weights) -> Weights {
    let plain = VitShape {
        distilled: false,
        ..shape.clone()
    };
    let mut vit = weights.clone();
    vit.retain(|name, _| !name.contains("dist"));
    let positions = vit["pos_embed"].narrow(1, 0, plain.tokens()).unwrap();
    vit.insert("pos_embed".into(), positions);
    let (exported, _) = export(&plain, &vit, None).unwrap();
    let mut out: Weights = exported
        .into_iter()
        .map(|(name, t)| (name.replace("vit.", "deit."), t))
        .collect();
    let positions = weights["pos_embed"].clone();
    out.insert("deit.embeddings.position_embeddings".into(), positions);
    let token = weights["dist_token"].clone();
    out.insert("deit.embeddings.distillation_token".into(), token);
    out
}

#[test]
fn distilled_deit_agrees_with_timm() {
    let shape = VitShape {
        distilled: true,
        ..SMALL
    };
    let weights = testing::weights(&shape.parameters());
    assert_eq!(VitShape::infer(&weights, Some(3)).as_ref(), Ok(&shape));
    let want = testing::expected("deit_distilled");
    assert_close("logits", &logits(&shape, &weights), &want, 1e-4);
    // timm: sum(p.numel() for p in create_model("deit_tiny_distilled_patch16_224").parameters())
    let tiny = VitShape {
        distilled: true,
        ..VitShape::default()
    };
    assert_eq!(tiny.parameter_count(), 5_910_800);
}

#[test]
fn another_epsilon_agrees_with_timm() {
    let weights = testing::weights(&SMALL.parameters());
    let shape = VitShape {
        norm_eps: 1e-2,
        ..SMALL
    };
    let want = testing::expected("vit_eps");
    assert_close("logits", &logits(&shape, &weights), &want, 1e-4);
}

#[test]
fn missing_qkv_biases_are_zeros() {
    let mut weights = testing::weights(&SMALL.parameters());
    weights.retain(|name, _| !name.ends_with("qkv.bias"));
    let weights = import(&weights).unwrap();
    let shape = VitShape::infer(&weights, Some(3)).unwrap();
    let want = testing::expected("vit_no_qkv_bias");
    assert_close("logits", &logits(&shape, &weights), &want, 1e-4);
}

#[test]
fn export_has_transformers_names_and_import_reverses_it() {
    let shape = VitShape { depth: 2, ..SMALL };
    let weights = testing::weights(&shape.parameters());
    let (exported, config) = export(&shape, &weights, None).unwrap();
    // transformers 5.23.0: the keys of ViTForImageClassification.save_pretrained's file.
    let layer = [
        "attention.attention.key",
        "attention.attention.query",
        "attention.attention.value",
        "attention.output.dense",
        "intermediate.dense",
        "layernorm_after",
        "layernorm_before",
        "output.dense",
    ];
    let mut names: Vec<String> = vec![
        "classifier.bias".into(),
        "classifier.weight".into(),
        "vit.embeddings.cls_token".into(),
        "vit.embeddings.patch_embeddings.projection.bias".into(),
        "vit.embeddings.patch_embeddings.projection.weight".into(),
        "vit.embeddings.position_embeddings".into(),
    ];
    for l in 0..2 {
        for module in layer {
            names.push(format!("vit.encoder.layer.{l}.{module}.bias"));
            names.push(format!("vit.encoder.layer.{l}.{module}.weight"));
        }
    }
    names.extend(["vit.layernorm.bias".into(), "vit.layernorm.weight".into()]);
    assert_eq!(exported.keys().cloned().collect::<Vec<_>>(), names);
    let key = "vit.encoder.layer.1.attention.attention.key.weight";
    assert_eq!(exported[key].dims(), [48, 48]);
    let joined = &weights["blocks.1.attn.qkv.weight"];
    assert_eq!(values(&exported[key]), values(joined)[48 * 48..2 * 48 * 48]);

    assert_eq!(config["model_type"], "vit");
    assert_eq!(
        config["architectures"],
        json!(["ViTForImageClassification"])
    );
    assert_eq!(config["layer_norm_eps"], 1e-6);
    assert_eq!(config["intermediate_size"], 192);
    assert_eq!(config["id2label"]["6"], "LABEL_6");
    same(&import(&exported).unwrap(), &weights);
    let again = crate::Network::recognise("", config.as_object().unwrap(), None, &weights);
    assert_eq!(again, Ok(crate::Network::Vit(shape)));
}

#[test]
fn labels_must_be_one_a_class() {
    let weights = testing::weights(&SMALL.parameters());
    let labels: Vec<String> = (0..7).map(|i| format!("thing {i}")).collect();
    let (_, config) = export(&SMALL, &weights, Some(&labels)).unwrap();
    assert_eq!(config["label2id"]["thing 3"], 3);
    let error = export(&SMALL, &weights, Some(&labels[1..])).unwrap_err();
    assert!(error.to_string().contains("6 names"), "{error}");
}

#[test]
fn what_transformers_cannot_express_is_refused() {
    let mean = VitShape {
        class_token: false,
        ..SMALL
    };
    let distilled = VitShape {
        distilled: true,
        ..SMALL
    };
    for (shape, what) in [(mean, "fc_norm"), (distilled, "distillation token")] {
        let weights = testing::weights(&shape.parameters());
        let error = export(&shape, &weights, None).unwrap_err().to_string();
        assert!(
            error.contains(what) && error.contains("TimmWrapper"),
            "{error}"
        );
    }
}

#[test]
fn deit_with_teacher_is_the_distilled_deit() {
    let shape = VitShape {
        distilled: true,
        ..SMALL
    };
    let weights = testing::weights(&shape.parameters());
    let mut deit = as_deit(&shape, &weights);
    for part in ["weight", "bias"] {
        let head = deit.remove(&format!("classifier.{part}")).unwrap();
        deit.insert(format!("cls_classifier.{part}"), head);
        let head = weights[&format!("head_dist.{part}")].clone();
        deit.insert(format!("distillation_classifier.{part}"), head);
    }
    same(&import(&deit).unwrap(), &weights);
}

#[test]
fn deit_without_teacher_classifies_the_class_token() {
    let shape = VitShape {
        distilled: true,
        ..SMALL
    };
    let weights = testing::weights(&shape.parameters());
    let imported = import(&as_deit(&shape, &weights)).unwrap();
    assert_eq!(VitShape::infer(&imported, Some(3)).as_ref(), Ok(&shape));
    // Twice the mean of the classifier and nothing is the classifier.
    let mut halved = weights.clone();
    for part in ["weight", "bias"] {
        let name = format!("head_dist.{part}");
        halved.insert(name.clone(), weights[&name].zeros_like().unwrap());
    }
    let want = (logits(&shape, &halved) * 2.0).unwrap();
    assert_close("logits", &logits(&shape, &imported), &want, 1e-6);
}

#[test]
fn broken_transformers_weights_are_named() {
    let weights = testing::weights(&SMALL.parameters());
    let (exported, _) = export(&SMALL, &weights, None).unwrap();
    let value = "vit.encoder.layer.1.attention.attention.value.weight";
    let mut missing = exported.clone();
    missing.remove(value);
    let error = import(&missing).unwrap_err();
    assert_eq!(error, ShapeError::Missing { name: value.into() });
    let mut misshapen = exported.clone();
    misshapen.insert(value.into(), exported["classifier.weight"].clone());
    let error = import(&misshapen).unwrap_err().to_string();
    assert!(
        error.contains(value) && error.contains("[7, 48]"),
        "{error}"
    );
    let mut wide = exported.clone();
    let double = exported[value].to_dtype(DType::F64).unwrap();
    wide.insert(value.into(), double);
    let error = import(&wide).unwrap_err().to_string();
    assert!(error.contains(value) && error.contains("f64"), "{error}");
    let mut extra = exported.clone();
    let name = "vit.encoder.layer.7.attention.attention.value.weight";
    extra.insert(name.into(), exported[value].clone());
    assert_eq!(
        import(&extra).unwrap_err(),
        ShapeError::Unexpected { name: name.into() }
    );
    let mut extra = exported.clone();
    extra.insert("vit.pooler.dense.weight".into(), exported[value].clone());
    let error = VitShape::infer(&import(&extra).unwrap(), None).unwrap_err();
    assert!(
        error.to_string().contains("vit.pooler.dense.weight"),
        "{error}"
    );
}

#[test]
fn import_leaves_timms_names_alone() {
    let mut weights = testing::weights(&SMALL.parameters());
    let classifier = testing::tensor("classifier.weight", &[2, 3]);
    weights.insert("classifier.weight".into(), classifier);
    same(&import(&weights).unwrap(), &weights);
    let counter = Tensor::zeros((), DType::I64, &Device::Cpu).unwrap();
    let mut more = weights.clone();
    more.insert("bn1.num_batches_tracked".into(), counter);
    same(&import(&more).unwrap(), &weights);
}
