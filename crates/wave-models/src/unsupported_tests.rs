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

/// The message that refuses these weights.
fn refusal(name: &str, args: Value, weights: &Weights) -> String {
    let args: Map<String, Value> = args.as_object().cloned().unwrap();
    let error = Network::recognise(name, &args, None, weights).unwrap_err();
    error.to_string()
}

#[track_caller]
fn check(name: &str, weights: &Weights, parts: &[&str]) {
    let text = refusal(name, json!({}), weights);
    for part in [parts, &["not supported", "; supported"][..]].concat() {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

/// Parts that are supported if timm's name gives the rest are refused without it.
#[test]
fn parts_without_a_name_are_named_by_their_tensors() {
    let without = |more: &[&str], less: &[&str], part: &str| {
        let weights = vit(more, less);
        check(
            "",
            &weights,
            &["the network of these weights", part, "config.json"],
        );
    };
    for more in [
        "reg_token",
        "blocks.0.ls1.gamma",
        "blocks.0.attn.q_norm.weight",
        "norm_pre.weight",
        "attn_pool.latent",
    ] {
        without(&[more], &[], &format!("tensor {more}"));
    }
    let pooled = "cls_token, and global_pool or fc_norm";
    without(&["fc_norm.weight"], &["norm.weight"], pooled);
    without(&[], &["head.weight", "head.bias"], "no head.weight");
}

#[test]
fn a_distilled_deit_without_classifier_is_refused_by_its_token() {
    let weights = vit(&["dist_token"], &["head.weight", "head.bias"]);
    let parts = ["a distillation token", "head_dist", "no head.weight"];
    check("deit_tiny_distilled_patch16_224", &weights, &parts);
}

#[test]
fn a_hybrid_is_refused_by_its_convolutional_network() {
    let tensor = "patch_embed.backbone.stem.conv.weight";
    let weights = vit(&[tensor], &[]);
    for name in [
        "",
        "vit_tiny_r_s16_p8_224",
        "vit_small_r26_s32_224",
        "vit_base_r50_s16_224",
    ] {
        let parts = [name, "a hybrid", "a convolutional network", tensor];
        check(name, &weights, &parts);
    }
}

#[test]
fn parts_that_are_nowhere_are_named_by_their_tensors() {
    for more in [
        "blocks.0.mlp.w12.weight",
        "blocks.0.attns.0.qkv.weight",
        "rope.periods",
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
        (json!({"act_layer": "mish"}), "mish"),
        (json!({"global_pool": "max"}), "pooling"),
        (json!({"global_pool": ""}), "it has no pooling"),
        (
            json!({"norm_layer": "rmsnorm", "init_values": 1e-5}),
            "norm_layer",
        ),
        (json!({"block_fn": "x", "reg_tokens": 1}), "block_fn"),
    ] {
        let text = refusal("vit_tiny_patch16_224", args, &vit(&[], &[]));
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn networks_are_refused_by_name() {
    let plain = vit(&[], &[]);
    let other = testing::weights(&[("stages.0.weight".to_owned(), vec![2])]);
    for (name, weights) in [
        ("vit_base_patch16_rpn_224", &plain),
        ("vit_dwee_patch16_reg1_gap_256", &plain),
        ("vit_pe_core_base_patch16_224", &plain),
        ("vit_base_patch16_rope_224", &plain),
        ("vit_base_patch16_rope_mixed_224", &plain),
        ("maxvit_tiny_tf_224.in1k", &other),
        ("swin_tiny_patch4_window7_224", &other),
    ] {
        let name_alone = name.split('.').next().unwrap();
        check(name, weights, &[name_alone, "by its name"]);
    }
    let (name, scaled) = ("tiny_vit_21m_224", vit(&["blocks.0.ls1.gamma"], &[]));
    check(name, &scaled, &[name, "blocks.0.ls1.gamma"]);
    check(name, &other, &[name, "stages.0.weight"]);
    let table = "layers.0.blocks.0.attn.relative_position_bias_table";
    check("", &vit(&[table], &["pos_embed"]), &[table, "config.json"]);
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
