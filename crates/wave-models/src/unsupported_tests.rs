use crate::vit::VitShape;
use crate::{Network, ShapeError, Weights, testing};
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value, json};

/// A vision transformer with extra tensors and without others.
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
        text.contains("not supported") && text.contains("; supported"),
        "{text}"
    );
}

/// Parts that are supported if timm's name gives the rest are refused without it.
#[test]
fn parts_without_a_name_are_named_by_their_tensors() {
    for (more, less, part) in [
        (&["reg_token"][..], &[][..], "tensor reg_token"),
        (&["blocks.0.ls1.gamma"], &[], "blocks.0.ls1.gamma"),
        (
            &["blocks.0.attn.q_norm.weight"],
            &[],
            "blocks.0.attn.q_norm.weight",
        ),
        (&["norm_pre.weight"], &[], "norm_pre.weight"),
        (
            &["fc_norm.weight"],
            &["norm.weight"],
            "cls_token, and global_pool or fc_norm",
        ),
        (&["attn_pool.latent"], &[], "attn_pool.latent"),
        (&[], &["head.weight", "head.bias"], "no head.weight"),
    ] {
        let name = "the network of these weights";
        check(
            "",
            json!({}),
            &vit(more, less),
            &[name, part, "config.json"],
        );
    }
}

#[test]
fn parts_that_are_nowhere_are_named_by_their_tensors() {
    for more in [
        "blocks.0.mlp.w12.weight",
        "blocks.0.attns.0.qkv.weight",
        "rope.periods",
        "patch_embed.backbone.conv.weight",
    ] {
        for name in ["", "vit_tiny_patch16_224", "vit_base_patch14_reg4_dinov2"] {
            let weights = vit(&[more], &[]);
            let error = Network::recognise(name, &Map::new(), None, &weights).unwrap_err();
            assert_eq!(error, ShapeError::Unexpected(more.into()), "{name}");
        }
    }
}

/// A part that only an argument declares is missing from the weights.
#[test]
fn arguments_that_weights_contradict_are_errors() {
    for (args, part) in [
        (json!({"reg_tokens": 4}), "reg_tokens = 4"),
        (json!({"init_values": 1e-5}), "init_values"),
        (json!({"qk_norm": true}), "qk_norm = true"),
        (json!({"pre_norm": true}), "pre_norm = true"),
    ] {
        let args = args.as_object().cloned().unwrap();
        let weights = vit(&[], &[]);
        let error = Network::recognise("vit_tiny_patch16_224", &args, None, &weights);
        let text = error.unwrap_err().to_string();
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn variants_are_named_by_their_arguments() {
    for (args, part) in [
        (json!({"act_layer": "mish"}), "mish"),
        (json!({"global_pool": "max"}), "pooling"),
        (
            json!({"norm_layer": "rmsnorm", "init_values": 1e-5}),
            "norm_layer",
        ),
        (json!({"block_fn": "x", "reg_tokens": 1}), "block_fn"),
    ] {
        let args = args.as_object().cloned().unwrap();
        let weights = vit(&[], &[]);
        let error = Network::recognise("vit_tiny_patch16_224", &args, None, &weights);
        let text = error.unwrap_err().to_string();
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn names_that_weights_do_not_tell_apart_are_refused_by_name() {
    for name in [
        "vit_base_patch16_rpn_224",
        "vit_dwee_patch16_reg1_gap_256",
        "vit_pe_core_base_patch16_224",
        "vit_base_patch16_rope_224",
        "vit_base_patch16_rope_mixed_224",
    ] {
        check(name, json!({}), &vit(&[], &[]), &[name, "by its name"]);
    }
    let weights = vit(&["blocks.0.ls1.gamma"], &[]);
    let name = "tiny_vit_21m_224";
    check(name, json!({}), &weights, &[name, "blocks.0.ls1.gamma"]);
}

#[test]
fn architectures_are_named() {
    let other = testing::weights(&[("stages.0.weight".to_owned(), vec![2])]);
    check(
        "maxvit_tiny_tf_224.in1k",
        json!({}),
        &other,
        &["maxvit_tiny_tf_224", "by its name"],
    );
    check(
        "swin_tiny_patch4_window7_224",
        json!({}),
        &other,
        &["swin_tiny_patch4_window7_224", "by its name"],
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
        &[table, "config.json"],
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
