//! Recognition of [`super`] from weights, timm's name and arguments.
//!
//! Number of heads, epsilon, activation, pooling and rotary positions cannot be inferred from weights. They
//! follow from timm's name or its arguments, so weights without a name are refused.

use super::{Between, Mlp, Pooling, Positions, Queries, Relative, Rotary, Scale, TransformerShape};
use crate::check::{
    check_weights, contradiction, count, dims, divides, refuse_value, sizes, unsupported,
};
use crate::{ShapeError, heads};
use serde_json::Value;
use wave_ancestors::table::{Known, agree, refuse_arguments};

/// Arguments whose values are inferred from the weights, or read here.
const ARGUMENTS: [&str; 33] = [
    "img_size",
    "patch_size",
    "in_chans",
    "num_classes",
    "global_pool",
    "embed_dim",
    "depth",
    "num_heads",
    "mlp_ratio",
    "qkv_bias",
    "qkv_fused",
    "qk_norm",
    "scale_attn_norm",
    "scale_mlp_norm",
    "scale_attn_inner",
    "scale_mlp",
    "init_values",
    "class_token",
    "no_embed_class",
    "reg_tokens",
    "num_reg_tokens",
    "pre_norm",
    "use_pre_transformer_norm",
    "final_norm",
    "fc_norm",
    "use_fc_norm",
    "act_layer",
    "swiglu_mlp",
    "layer_norm_eps",
    "use_rel_pos_bias",
    "use_shared_rel_pos_bias",
    "use_abs_pos_emb",
    "dynamic_img_size",
];

/// Arguments of rotary positions, whose default values follow from the name.
const OF_ROTARY: [&str; 5] = [
    "use_rot_pos_emb",
    "rope_type",
    "ref_feat_shape",
    "rope_temperature",
    "rope_rotate_half",
];

/// Facts about a network that follow from its name, in addition to its weights.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Named {
    family: &'static str,
    eps: f64,
    between: Between,
    pooling: Pooling,
    rotary: Option<Rotary>,
}

/// Facts that follow from a name that timm registers; the error names its unsupported part.
fn named(name: &str) -> Result<Named, &'static str> {
    let has = |part: &str| name.contains(part);
    let starts = |part: &str| name.starts_with(part);
    let vit = Named {
        family: "a variant of the vision transformer",
        eps: 1e-6,
        between: Between::Gelu,
        pooling: Pooling::Token,
        rotary: None,
    };
    let of = |family, pooling| Named {
        family,
        pooling,
        ..vit
    };
    let mean_unless = |part| match has(part) {
        true => Pooling::Token,
        false => Pooling::Mean,
    };
    let neighbours = Some(Rotary::Neighbours { reference: 16 });
    // transformers' `model_type`; the arguments give the rest.
    match name {
        "vit" | "deit" | "vit_msn" => return Ok(vit),
        "dinov2" | "dinov2_with_registers" => return Ok(of("a DINOv2", Pooling::Token)),
        "dinov3_vit" => {
            let rotary = Some(Rotary::Halves);
            return Ok(Named {
                rotary,
                ..of("a DINOv3", Pooling::Token)
            });
        }
        "beit" | "data2vec-vision" => return Ok(of("a BEiT", Pooling::Token)),
        "clip" | "clip_vision_model" => return Ok(of("the tower of a CLIP", Pooling::Token)),
        "siglip" | "siglip_vision_model" => return Ok(of("the tower of a SigLIP", Pooling::Token)),
        _ => {}
    }
    if starts("eva02_enormous") {
        return Err("its norms come after attention and MLP");
    }
    let eva_pooling = mean_unless("_clip_");
    for (start, family, eps, pooling, rotary) in [
        ("eva02_", "an EVA-02", 1e-6, eva_pooling, neighbours),
        ("eva_", "an EVA", 1e-6, eva_pooling, None),
        ("beit3_", "a BEiT-3", 1e-5, Pooling::Mean, None),
        ("beit_", "a BEiT", 1e-6, Pooling::Mean, None),
        ("beitv2_", "a BEiT", 1e-6, Pooling::Mean, None),
        ("deit3_", "a DeiT III", 1e-6, Pooling::Token, None),
        ("deit_", vit.family, 1e-6, Pooling::Token, None),
        ("flexivit_", vit.family, 1e-6, Pooling::Token, None),
    ] {
        if starts(start) {
            return Ok(Named {
                family,
                eps,
                pooling,
                rotary,
                ..vit
            });
        }
    }
    if !starts("vit_") && name != "test_vit" && name != "test_vit2" {
        return Err("it is none of the supported networks");
    }
    for (part, what) in [
        ("_rpn_", "its norms come after attention and MLP"),
        ("vit_pwee", "it has parallel branches"),
        ("vit_dpwee", "it has parallel branches"),
        ("vit_dwee", "it has differential attention"),
        ("vit_dlittle", "it has differential attention"),
        ("_18x2_", "it has parallel branches"),
        ("_xp_", "it has parallel branches"),
        ("_radio_", "it has a patch generator"),
        ("_sapiens2", "it has grouped-query attention"),
        (
            "_pe_",
            "it has the rotary positions of a Perception Encoder",
        ),
        ("_rope_mixed", "it has learned rotary positions"),
        ("_rope_ape", "it has the rotary positions of RoPE-ViT"),
        ("_rope_2", "it has the rotary positions of RoPE-ViT"),
    ] {
        if has(part) {
            return Err(what);
        }
    }
    if has("_dinov3") || has("_lingbot") {
        return Ok(Named {
            eps: 1e-5,
            rotary: Some(Rotary::Halves),
            ..of("a DINOv3", mean_unless("_lingbot"))
        });
    }
    if has("_dinov2") {
        return Ok(of("a DINOv2", Pooling::Token));
    }
    if has("_siglip_") {
        let newer = has("so400m_patch16") || has("giantopt") || has("base_patch32");
        let tanh = newer || has("large_patch16_siglip_512") || has("large_patch16_siglip_gap_512");
        let pooling = match has("_gap_") {
            true => Pooling::Mean,
            false => Pooling::Attention,
        };
        let between = if tanh { Between::GeluTanh } else { vit.between };
        return Ok(Named {
            between,
            ..of("the tower of a SigLIP", pooling)
        });
    }
    if has("_clip_") {
        let quick = has("_quickgelu_");
        return Ok(Named {
            eps: 1e-5,
            between: if quick {
                Between::QuickGelu
            } else {
                vit.between
            },
            ..of("the tower of a CLIP", Pooling::Token)
        });
    }
    let pooling = match () {
        () if has("_gap_") || name == "test_vit2" => Pooling::Mean,
        () if has("_map_") => Pooling::Attention,
        () => Pooling::Token,
    };
    Ok(Named {
        pooling,
        rotary: if has("_rope_") { neighbours } else { None },
        ..vit
    })
}

/// Differences from DeiT that only the name shows, no tensor and no argument.
pub(crate) fn of_name(name: &str) -> Option<(String, String)> {
    let what = match named(name) {
        Ok(told) if told.eps != 1e-6 || told.between != Between::Gelu || told.rotary.is_some() => {
            format!("the parts of {}", told.family)
        }
        Err(why) if name.starts_with("vit_") => format!("unsupported parts: {why}"),
        _ => return None,
    };
    Some((what, "by its name".to_owned()))
}

/// The transformer of these weights; `what` is the part that a plain one lacks, and `found` the evidence for it.
pub(crate) fn recognise(
    known: Known,
    what: &str,
    found: &str,
) -> Result<TransformerShape, ShapeError> {
    let weights = known.weights;
    if known.name.is_empty() {
        let what = format!(
            "it has {what}, and without an architecture name its heads, activation, epsilon and \
             pooling are unknown; put timm's config.json beside the weights"
        );
        return Err(unsupported("", &what, found));
    }
    let refuse = |what: &str, found: &str| Err(unsupported(known.name, what, found));
    let told = match named(known.name) {
        Ok(told) => told,
        Err(why) => return refuse(&format!("it has {what}, and {why}"), found),
    };
    let mut read = ARGUMENTS.to_vec();
    if told.rotary.is_some() {
        let usual = |key: &str, value: Value| {
            let said = known.args.get(key);
            said.is_none_or(|said| *said == value || said.is_null())
        };
        let halves = told.rotary == Some(Rotary::Halves);
        let kind = if halves { "dinov3" } else { "cat" };
        let temperature = if halves { 100.0 } else { 1e4 };
        if usual("use_rot_pos_emb", true.into())
            && usual("rope_type", kind.into())
            && usual("rope_temperature", temperature.into())
            && usual("rope_rotate_half", halves.into())
            && usual("ref_feat_shape", serde_json::json!([16, 16]))
        {
            read.extend(OF_ROTARY);
        }
    }
    refuse_arguments(known, &read)?;

    let has = |name: &str| weights.contains_key(name);
    let block = |name: &str| has(&format!("blocks.0.{name}"));
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
    let Some(heads) = heads(known) else {
        let what = format!("it has {what}, and its number of heads is unknown");
        return refuse(&what, found);
    };
    let text = |key: &str| known.args.get(key).and_then(Value::as_str);
    let pooling = match text("global_pool") {
        None => told.pooling,
        Some("token") => Pooling::Token,
        Some("avg") => Pooling::Mean,
        Some("map") => Pooling::Attention,
        Some("token+avg") => Pooling::Both, // ours, of transformers' DINOv2
        Some(other) => {
            let what = format!("it has the pooling {other:?}");
            return refuse(&what, "global_pool in its config.json");
        }
    };
    let between = match text("act_layer") {
        None => told.between,
        Some("gelu") => Between::Gelu,
        Some("gelu_tanh") => Between::GeluTanh,
        Some("quick_gelu" | "quickgelu") => Between::QuickGelu,
        Some("silu" | "swish") if mlp != Mlp::Plain => told.between,
        Some(other) => {
            let what = format!("it has the activation {other}");
            return refuse(&what, "act_layer in its config.json");
        }
    };
    let eps = known.args.get("layer_norm_eps").and_then(Value::as_f64);
    let (image_size, positions) = positions(known, patch, registers + usize::from(class_token))?;
    let shape = TransformerShape {
        family: told.family,
        image_size,
        channels,
        patch,
        depth,
        width,
        heads,
        hidden,
        classes: known.rows("head")?,
        norm_eps: eps.unwrap_or(told.eps),
        class_token,
        registers,
        patch_bias: has("patch_embed.proj.bias"),
        positions,
        rotary: told.rotary,
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
        pooling_hidden: known.rows("attn_pool.mlp.fc1")?,
    };
    check(known, &shape)?;
    Ok(shape)
}

/// Checks that the sizes fit each other, the weights and the arguments.
fn check(known: Known, shape: &TransformerShape) -> Result<(), ShapeError> {
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
    let normed = shape.norm || shape.fc_norm || without("final_norm");
    for (there, name) in [
        (shape.patch_bias || shape.norm_pre, "patch_embed.proj.bias"),
        (normed, "norm.weight"),
        (placed, "pos_embed"),
    ] {
        if !there {
            return Err(ShapeError::Missing { name: name.into() });
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

/// The number of heads that the arguments or the name give.
fn heads(known: Known) -> Option<usize> {
    match known.args.get("num_heads") {
        Some(said) if !said.is_null() => known.size("num_heads").filter(|heads| *heads > 0),
        _ => {
            let width = dims::<4>(known.weights, "patch_embed.proj.weight").map(|d| d[0]);
            heads::of_name(known.name, width.ok())
        }
    }
}

/// The side of the image, and which tokens have positions.
fn positions(known: Known, patch: usize, prefix: usize) -> Result<(usize, Positions), ShapeError> {
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
