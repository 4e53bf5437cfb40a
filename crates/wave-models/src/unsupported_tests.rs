use crate::vit::VitShape;
use crate::{Network, Weights, testing};
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value, json};

/// A vision transformer with and without tensors.
fn vit(more: &[&str], less: &[&str]) -> Weights {
    let shape = VitShape {
        image_size: 16,
        patch: 8,
        depth: 2,
        width: 24,
        classes: 5,
        ..VitShape::default()
    };
    let mut weights = testing::weights(&shape.parameters());
    for name in more {
        let one = Tensor::ones(24, DType::F32, &Device::Cpu).unwrap();
        weights.insert((*name).into(), one);
    }
    weights.retain(|name, _| !less.contains(&name.as_str()));
    weights
}

#[track_caller]
fn check(name: &str, args: Value, weights: &Weights, parts: &[&str]) {
    let args: Map<String, Value> = args.as_object().cloned().unwrap();
    let error = Network::recognise(name, &args, None, weights).unwrap_err();
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert!(
        text.contains("not supported") && text.contains("supported are"),
        "{text}"
    );
}

#[test]
fn variants_are_named_by_their_tensors() {
    for (more, less, part) in [
        (&["reg_token"][..], &[][..], "register tokens"),
        (&["blocks.0.ls1.gamma"], &[], "LayerScale"),
        (&["blocks.0.attn.q_norm.weight"], &[], "QK-norm"),
        (&["norm_pre.weight"], &[], "pre_norm"),
        (
            &["fc_norm.weight"],
            &["norm.weight"],
            "class token beside average pooling",
        ),
        (&["attn_pool.latent"], &[], "attention pooling"),
        (&["blocks.0.mlp.w12.weight"], &[], "SwiGLU"),
        (&[], &["head.weight", "head.bias"], "no classifier"),
    ] {
        let name = "vit_base_patch14_reg4_dinov2";
        check(name, json!({}), &vit(more, less), &[name, part]);
        check(
            "",
            json!({}),
            &vit(more, less),
            &["the network of these weights", part],
        );
    }
}

#[test]
fn variants_are_named_by_their_arguments() {
    for (args, part) in [
        (
            json!({"reg_tokens": 4}),
            "register tokens (reg_tokens in its config.json)",
        ),
        (json!({"init_values": 1e-5}), "LayerScale"),
        (json!({"qk_norm": true}), "QK-norm"),
        (json!({"act_layer": "gelu_tanh"}), "gelu_tanh"),
        (json!({"hidden_act": "quick_gelu"}), "quick_gelu"),
        (json!({"pre_norm": true}), "pre_norm"),
        (json!({"no_embed_class": true}), "no_embed_class"),
        (json!({"global_pool": "map"}), "pooling"),
        (
            json!({"global_pool": "avg"}),
            "class token beside average pooling",
        ),
    ] {
        check(
            "vit_base_patch16_224",
            args,
            &vit(&[], &[]),
            &["vit_base_patch16_224", part],
        );
    }
}

#[test]
fn a_class_token_without_a_position_is_named() {
    let mut weights = vit(&[], &["pos_embed"]);
    let positions = Tensor::ones((1, 4, 24), DType::F32, &Device::Cpu).unwrap();
    weights.insert("pos_embed".into(), positions);
    check(
        "vit_x",
        json!({}),
        &weights,
        &["no_embed_class", "4 positions"],
    );
}

#[test]
fn architectures_are_named() {
    let other = testing::weights(&[("stages.0.weight".to_owned(), vec![2])]);
    check(
        "maxvit_tiny_tf_224.in1k",
        json!({}),
        &other,
        &["maxvit_tiny_tf_224", "a MaxViT"],
    );
    check(
        "swin_tiny_patch4_window7_224",
        json!({}),
        &other,
        &["a Swin transformer"],
    );
    check(
        "tiny_vit_21m_224",
        json!({}),
        &other,
        &["tiny_vit_21m_224", "stages.0.weight"],
    );
    let table = "layers.0.blocks.0.attn.relative_position_bias_table";
    check(
        "",
        json!({}),
        &vit(&[table], &["pos_embed"]),
        &["a Swin transformer"],
    );
}

#[test]
fn what_is_supported_passes() {
    let args = json!({
        "reg_tokens": 0, "init_values": null, "qk_norm": false, "act_layer": "gelu",
        "global_pool": "token", "no_embed_class": false,
    });
    let args = args.as_object().cloned().unwrap();
    let found = Network::recognise("vit_tiny_patch16_224", &args, None, &vit(&[], &[]));
    assert!(matches!(found, Ok(Network::Vit(_))));
}
