//! Recognition of [`super`] from weights, timm's name and arguments.
//!
//! Number of heads, epsilon, activation, pooling and rotary positions cannot be inferred from weights. They
//! follow from timm's name or its arguments, so weights without a name are refused.

use super::{Between, Mlp, Pooling, Positions, Queries, Relative, Rotary, Scale, TransformerShape};
use crate::check::{
    check_weights, contradiction, count, dims, divides, refuse_value, sizes, unsupported,
};
use crate::{Checked, ShapeError, heads};
use serde_json::{Value, json};
use wave_ancestors::table::{Known, agree, refuse_arguments};

/// Arguments whose values are inferred from the weights, or read here.
const ARGUMENTS: &str = "img_size patch_size in_chans num_classes global_pool embed_dim depth num_heads \
     mlp_ratio qkv_bias qkv_fused qk_norm scale_attn_norm scale_mlp_norm scale_attn_inner scale_mlp \
     init_values class_token no_embed_class reg_tokens num_reg_tokens pre_norm use_pre_transformer_norm \
     final_norm fc_norm use_fc_norm act_layer swiglu_mlp layer_norm_eps use_rel_pos_bias \
     use_shared_rel_pos_bias use_abs_pos_emb dynamic_img_size hidden_size num_channels num_hidden_layers";

/// Parts of the names of unsupported variants: with norms after attention and MLP, parallel branches, differential
/// or grouped-query attention, a patch generator, or other rotary positions.
const UNREAD: &str = "_rpn_ vit_pwee vit_dpwee vit_dwee vit_dlittle _18x2_ _xp_ _radio_ _sapiens2 _pe_ \
     _rope_mixed _rope_ape _rope_2";

/// The family of transformers with no additions of their own.
const PLAIN: &str = "a variant of the vision transformer";

/// A transformer with the facts that follow from a name that timm registers or transformers' `model_type`, whose
/// arguments give the rest: family, epsilon, activation, pooling and rotary positions. `None` if no supported network
/// has this name.
fn named(name: &str) -> Option<TransformerShape> {
    let has = |part: &str| name.contains(part);
    let starts = |part: &str| name.starts_with(part);
    let mean_if = |mean: bool| if mean { Pooling::Mean } else { Pooling::Token };
    let (token, eva) = (Pooling::Token, mean_if(!has("_clip_")));
    let neighbours = Some(Rotary::Neighbours { reference: 16 });
    let halves = Some(Rotary::Halves);
    let (family, norm_eps, pooling, rotary) = match name {
        "vit" | "deit" | "vit_msn" | "test_vit" => (PLAIN, 1e-6, token, None),
        "test_vit2" => (PLAIN, 1e-6, Pooling::Mean, None),
        "dinov2" | "dinov2_with_registers" => ("a DINOv2", 1e-6, token, None),
        "dinov3_vit" => ("a DINOv3", 1e-6, token, halves),
        "beit" | "data2vec-vision" => ("a BEiT", 1e-6, token, None),
        "clip" | "clip_vision_model" => ("the tower of a CLIP", 1e-6, token, None),
        "siglip" | "siglip_vision_model" => ("the tower of a SigLIP", 1e-6, token, None),
        _ if starts("eva02_enormous") => return None, // norms after attention and MLP
        _ if starts("eva02_") => ("an EVA-02", 1e-6, eva, neighbours),
        _ if starts("eva_") => ("an EVA", 1e-6, eva, None),
        _ if starts("beit3_") => ("a BEiT-3", 1e-5, Pooling::Mean, None),
        _ if starts("beit_") || starts("beitv2_") => ("a BEiT", 1e-6, Pooling::Mean, None),
        _ if starts("deit3_") => ("a DeiT III", 1e-6, token, None),
        _ if starts("deit_") || starts("flexivit_") => (PLAIN, 1e-6, token, None),
        _ if !starts("vit_") || UNREAD.split(' ').any(has) => return None,
        _ if has("_lingbot") => ("a DINOv3", 1e-5, token, halves),
        _ if has("_dinov3") => ("a DINOv3", 1e-5, Pooling::Mean, halves),
        _ if has("_dinov2") => ("a DINOv2", 1e-6, token, None),
        _ if has("_siglip_gap_") => ("the tower of a SigLIP", 1e-6, Pooling::Mean, None),
        _ if has("_siglip_") => ("the tower of a SigLIP", 1e-6, Pooling::Attention, None),
        _ if has("_clip_") => ("the tower of a CLIP", 1e-5, token, None),
        _ => {
            let pooling = match has("_map_") && !has("_gap_") {
                true => Pooling::Attention,
                false => mean_if(has("_gap_")),
            };
            (PLAIN, 1e-6, pooling, neighbours.filter(|_| has("_rope_")))
        }
    };
    let newer = ["so400m_patch16", "giantopt", "base_patch32"];
    let tanh = newer.into_iter().any(has)
        || has("large_patch16_siglip_512")
        || has("large_patch16_siglip_gap_512");
    let between = match () {
        () if has("_siglip_") && tanh => Between::GeluTanh,
        () if has("_clip_") && has("_quickgelu_") => Between::QuickGelu,
        () => Between::Gelu,
    };
    Some(TransformerShape {
        family,
        norm_eps,
        between,
        pooling,
        rotary,
        ..TransformerShape::default()
    })
}

/// True if a network of this name differs from DeiT in more than its tensors and arguments show.
pub(crate) fn differs(name: &str) -> bool {
    named(name).map_or(name.starts_with("vit_"), |told| {
        told.norm_eps != 1e-6 || told.between != Between::Gelu || told.rotary.is_some()
    })
}

/// The transformer of these weights; `found` is the evidence that it is no plain one.
pub(crate) fn recognise(known: Known, found: &str) -> Checked<TransformerShape> {
    let weights = known.weights;
    let refuse = |what: &str, found: &str| Err(unsupported(known.name, what, found));
    if known.name.is_empty() {
        let what = "it is no plain vision transformer, and without an architecture name its heads, \
                    activation, epsilon and pooling are unknown; put timm's config.json beside the \
                    weights";
        return refuse(what, found);
    }
    let Some(told) = named(known.name) else {
        return refuse("it is none of the supported networks", found);
    };
    let mut read: Vec<&str> = ARGUMENTS.split(' ').collect();
    if let Some(rotary) = told.rotary {
        let (kind, temperature) = match rotary {
            Rotary::Neighbours { .. } => ("cat", 1e4),
            Rotary::Halves => ("dinov3", 100.0),
        };
        // Their values follow from the name.
        let usual = [
            ("use_rot_pos_emb", json!(true)),
            ("rope_type", json!(kind)),
            ("rope_temperature", json!(temperature)),
            ("rope_rotate_half", json!(rotary == Rotary::Halves)),
            ("ref_feat_shape", json!([16, 16])),
        ];
        for (key, usual) in &usual {
            let said = known.args.get(*key); // null replaces the name's own value
            let same = |said: &Value| match said.as_f64() {
                Some(said) => Some(said) == usual.as_f64(),
                None => said == usual,
            };
            if let Some(said) = said.filter(|said| !same(said)) {
                let what = format!(
                    "it is built with {key} = {said}; only {usual} is supported for its family"
                );
                return refuse(&what, "model_args of its config.json");
            }
        }
        read.extend(usual.map(|(key, _)| key));
    }
    refuse_arguments(known, &read)?;

    let has = |name: &str| weights.contains_key(name);
    let block = |name: &str| has(&format!("blocks.0.{name}"));
    if has("dist_token") {
        let what = "it has a distillation token, which is supported only in a plain DeiT with its \
                    classifiers head and head_dist";
        return refuse(what, found);
    }
    let [width, channels, patch, _] = dims(weights, "patch_embed.proj.weight")?;
    let depth = count(weights, |l| format!("blocks.{l}.norm1.weight"));
    let [_, hidden] = dims(weights, "blocks.0.mlp.fc2.weight")?;
    let class_token = has("cls_token");
    let registers = match has("reg_token") {
        true => dims::<3>(weights, "reg_token")?[1],
        false => 0,
    };
    let mlp = match block("mlp.fc1_g.weight") {
        true => Mlp::Split,
        false => match dims::<2>(weights, "blocks.0.mlp.fc1.weight")? {
            [rows, _] if rows == hidden.saturating_mul(2) => Mlp::Packed,
            _ => Mlp::Plain,
        },
    };
    let Some(heads) = heads::of_width(known.name, known.args, Some(width)) else {
        return refuse("its number of heads is unknown", found);
    };
    let text = |key: &str| known.args.get(key).and_then(Value::as_str);
    let pooling = match text("global_pool") {
        None => told.pooling,
        Some("token") => Pooling::Token,
        Some("avg") => Pooling::Mean,
        Some("map") => Pooling::Attention,
        Some("token+avg") => Pooling::Both, // ours, of transformers' DINOv2
        Some("") => {
            let what = "it has no pooling, as timm's feature extractors";
            return refuse(what, "global_pool in its config.json");
        }
        Some(other) => {
            let what = format!("it has the pooling {other:?}");
            return refuse(&what, "global_pool in its config.json");
        }
    };
    let implied = told.between != Between::Gelu || mlp == Mlp::Packed;
    let between = match (text("act_layer"), mlp) {
        (None, _) if implied && known.args.contains_key("act_layer") => {
            return refuse("it has no activation", "act_layer in its config.json");
        }
        (None, _) => told.between,
        (Some("gelu"), Mlp::Plain) => Between::Gelu,
        (Some("gelu_tanh"), Mlp::Plain) => Between::GeluTanh,
        (Some("quick_gelu" | "quickgelu"), Mlp::Plain) => Between::QuickGelu,
        (Some("silu" | "swish"), Mlp::Packed | Mlp::Split) => told.between,
        (Some(other), _) => {
            let what = format!("it has the activation {other}");
            return refuse(&what, "act_layer in its config.json");
        }
    };
    if pooling == Pooling::Attention && mlp == Mlp::Packed {
        let what = "it has attention pooling beside gated MLPs, whose activation it shares";
        return refuse(what, "global_pool in its config.json");
    }
    let (image_size, positions) = positions(known, patch, registers + usize::from(class_token))?;
    let shape = TransformerShape {
        image_size,
        channels,
        patch,
        depth,
        width,
        heads,
        hidden,
        classes: known.rows("head")?,
        norm_eps: known.norm_eps()?.unwrap_or(told.norm_eps),
        class_token,
        registers,
        patch_bias: has("patch_embed.proj.bias"),
        positions,
        relative: match () {
            () if block("attn.relative_position_bias_table") => Relative::Each,
            () if has("rel_pos_bias.relative_position_bias_table") => Relative::Shared,
            () => Relative::None,
        },
        queries: match () {
            () if block("attn.q_proj.weight") => Queries::Separate(block("attn.q_proj.bias")),
            () if block("attn.q_bias") => Queries::Biased,
            () if block("attn.qkv.bias") => Queries::Joint,
            () => Queries::Unbiased,
        },
        qk_norm: block("attn.q_norm.weight"),
        attention_norm: block("attn.norm.weight"),
        mlp_norm: block("mlp.norm.weight"),
        scale: match () {
            () if block("ls1.gamma") => Scale::Module,
            () if block("gamma_1") => Scale::Parameter,
            () => Scale::None,
        },
        mlp,
        between,
        norm_pre: has("norm_pre.weight"),
        norm: has("norm.weight"),
        fc_norm: has("fc_norm.weight"),
        pooling,
        // timm builds these as its class Eva, and the smaller EVA as a VisionTransformer.
        pools_prefix: told.rotary.is_some() || known.name.starts_with("eva_giant_"),
        pooling_hidden: known.rows("attn_pool.mlp.fc1")?,
        ..told
    };
    check(known, &shape)?;
    Ok(shape)
}

/// Checks that the sizes fit each other, the weights and the arguments.
fn check(known: Known, shape: &TransformerShape) -> Checked<()> {
    sizes(&[
        ("image_size", shape.image_size),
        ("channels", shape.channels),
        ("patch", shape.patch),
        ("depth", shape.depth),
        ("width", shape.width),
        ("heads", shape.heads),
        ("hidden", shape.hidden),
    ])?;
    divides("patch", shape.patch, "image_size", shape.image_size)?;
    divides("heads", shape.heads, "width", shape.width)?;
    if shape.rotary.is_some() {
        divides("4 x heads", 4 * shape.heads, "width", shape.width)?;
    }
    let without = |key: &str| known.args.get(key) == Some(&Value::Bool(false));
    let placed = shape.positions != Positions::None
        || shape.rotary.is_some()
        || shape.relative != Relative::None
        || without("use_abs_pos_emb");
    let unnormed = match known.args.get("final_norm") {
        // timm registers these without a norm after the blocks.
        None | Some(Value::Null) => known.name.starts_with("vit_intern300m_"),
        Some(said) => *said == Value::Bool(false),
    };
    let normed = shape.norm || shape.fc_norm || unnormed;
    for (there, name) in [
        (shape.patch_bias || shape.norm_pre, "patch_embed.proj.bias"),
        (normed, "norm.weight"),
        (placed, "pos_embed"),
    ] {
        if !there {
            return Err(ShapeError::Missing(name.into()));
        }
    }
    check_weights(known.weights, &shape.parameters())?;
    if shape.pooling == Pooling::Token && !shape.class_token {
        return refuse_value("global_pool", "token, without a class token", "avg or map");
    }
    if shape.relative != Relative::None && shape.prefix() != 1 {
        let name = "the prefix with relative position biases";
        return refuse_value(name, format!("{} tokens", shape.prefix()), "1 class token");
    }
    for (key, found) in [
        ("embed_dim", shape.width),
        ("depth", shape.depth),
        ("hidden_size", shape.width),
        ("num_hidden_layers", shape.depth),
        ("num_channels", shape.channels),
        ("patch_size", shape.patch),
        ("in_chans", shape.channels),
        ("img_size", shape.image_size),
        ("num_classes", shape.classes),
        ("reg_tokens", shape.registers),
        ("num_reg_tokens", shape.registers),
    ] {
        agree(known, key, found)?;
    }
    let said = |key: &str| known.args.get(key).and_then(Value::as_bool);
    for (key, found) in [
        ("class_token", shape.class_token),
        ("qk_norm", shape.qk_norm),
        ("pre_norm", shape.norm_pre),
        ("scale_attn_norm", shape.attention_norm),
        ("scale_mlp_norm", shape.mlp_norm),
        ("fc_norm", shape.fc_norm),
    ] {
        if said(key).is_some_and(|said| said != found) {
            return contradiction(key, !found, found);
        }
    }
    match known.args.get("init_values").and_then(Value::as_f64) {
        Some(said) if (said > 0.0) != (shape.scale != Scale::None) => {
            contradiction("init_values", said, "no LayerScale")
        }
        _ => Ok(()),
    }
}

/// The side of the image, and which tokens have positions.
fn positions(known: Known, patch: usize, prefix: usize) -> Checked<(usize, Positions)> {
    let configured = known.told_size();
    if !known.has("pos_embed") {
        let Some(side) = configured else {
            let what = "it has no learned positions, and its image size is unknown";
            let found = "there is no input_size in its config.json";
            return Err(unsupported(known.name, what, found));
        };
        return Ok((side, Positions::None));
    }
    let [_, rows, _] = dims(known.weights, "pos_embed")?;
    let square = |n: usize| (n > 0 && n.isqrt().pow(2) == n).then(|| n.isqrt() * patch);
    let all = rows.checked_sub(prefix).and_then(square);
    let said = known.args.get("no_embed_class").and_then(Value::as_bool);
    let (whole, patches) = match said {
        Some(true) => (None, square(rows)),
        Some(false) => (all, None),
        None => (all, square(rows)),
    };
    match (whole, patches) {
        (Some(side), None) => Ok((side, Positions::All)),
        (None, Some(side)) => Ok((side, Positions::Patches)),
        (Some(side), Some(_)) if prefix == 0 || configured == Some(side) => {
            Ok((side, Positions::All))
        }
        (Some(_), Some(side)) if configured == Some(side) => Ok((side, Positions::Patches)),
        _ => {
            let what = format!(
                "its {rows} positions fit no square grid of patches, with or without the {prefix} \
                 tokens before them"
            );
            Err(unsupported(known.name, &what, "by pos_embed"))
        }
    }
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
