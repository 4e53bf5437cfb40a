//! The supported layouts of transformers: their tensor names and `config.json` in timm's terms.
//!
//! A network is a row of [`LAYOUTS`]: its module, and tables of names.
//! Weights do not show number of heads, epsilon, activation and pooling; they come from `config.json`.

use super::{HEADS, OUTER, completed, join, misfit, rename};
use crate::check::{dims, unsupported};
use crate::{Checked, ShapeError, Weights, heads};
use candle_core::Tensor;
use serde_json::{Map, Value, json};

mod convolutions;
#[cfg(test)]
mod tests;

/// A network in timm's terms.
pub struct InTimm {
    /// timm's name, or `model_type`.
    pub name: String,
    /// timm's `model_args`; for a plain vision transformer all of transformers' `config.json`.
    pub args: Map<String, Value>,
    /// Weights under timm's names.
    pub weights: Weights,
}

type Names = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy)]
struct Layout {
    /// Prefix before the block number.
    blocks: &'static str,
    /// Modules outside the blocks, transformers' name first. Longer names come first.
    outer: Names,
    /// Modules of a block.
    inner: Names,
    /// The module of queries, keys and values, with their names in it; joined if there is one.
    thirds: Option<(&'static str, [&'static str; 3])>,
}

const DINOV2_INNER: Names = &[
    ("norm1", "norm1"),
    ("norm2", "norm2"),
    ("attention.output.dense", "attn.proj"),
    ("layer_scale1.lambda1", "ls1.gamma"),
    ("layer_scale2.lambda1", "ls2.gamma"),
    ("mlp.weights_in", "mlp.fc1"),
    ("mlp.weights_out", "mlp.fc2"),
    ("mlp", "mlp"),
];

const BEIT_INNER: Names = &[
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    ("attention.output.dense", "attn.proj"),
    ("attention.attention.relative_position_bias", "attn"),
    ("lambda_1", "gamma_1"),
    ("lambda_2", "gamma_2"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
];

const DINOV3_OUTER: Names = &[
    ("embeddings.cls_token", "cls_token"),
    ("embeddings.register_tokens", "reg_token"),
    ("embeddings.patch_embeddings", "patch_embed.proj"),
    ("norm", "norm"),
];

const DINOV3_INNER: Names = &[
    ("norm1", "norm1"),
    ("norm2", "norm2"),
    ("attention.q_proj", "attn.q_proj"),
    ("attention.k_proj", "attn.k_proj"),
    ("attention.v_proj", "attn.v_proj"),
    ("attention.o_proj", "attn.proj"),
    ("layer_scale1.lambda1", "ls1.gamma"),
    ("layer_scale2.lambda1", "ls2.gamma"),
    ("mlp.gate_proj", "mlp.fc1_g"),
    ("mlp.up_proj", "mlp.fc1"),
    ("mlp.down_proj", "mlp.fc2"),
];

/// Image and text towers.
const TOWER_OUTER: Names = &[
    ("embeddings.class_embedding", "cls_token"),
    ("embeddings.patch_embedding", "patch_embed.proj"),
    ("embeddings.position_embedding.weight", "pos_embed"),
    ("embeddings.token_embedding.weight", "tokens"),
    ("final_layer_norm", "norm"),
    ("pre_layrnorm", "norm_pre"),
    ("post_layernorm", "norm"),
    ("head.probe", "attn_pool.latent"),
    ("head.attention.out_proj", "attn_pool.proj"),
    ("head.layernorm", "attn_pool.norm"),
    ("head.mlp", "attn_pool.mlp"),
];

const TOWER_INNER: Names = &[
    ("layer_norm1", "norm1"),
    ("layer_norm2", "norm2"),
    ("self_attn.out_proj", "attn.proj"),
    ("mlp", "mlp"),
];

const VIT: Layout = Layout {
    blocks: "encoder.layer.",
    outer: &OUTER,
    inner: &super::INNER,
    thirds: Some(("attention.attention", super::QKV)),
};

const BEIT: Layout = Layout {
    inner: BEIT_INNER,
    ..VIT
};

const DINOV2: Layout = Layout {
    inner: DINOV2_INNER,
    ..VIT
};

const DINOV3: Layout = Layout {
    blocks: "layer.",
    outer: DINOV3_OUTER,
    inner: DINOV3_INNER,
    thirds: None,
};

const TOWER: Layout = Layout {
    blocks: "encoder.layers.",
    outer: TOWER_OUTER,
    inner: TOWER_INNER,
    thirds: Some(("self_attn", ["q_proj", "k_proj", "v_proj"])),
};

/// Each `model_type`, and the module that holds its network without the classifier.
const LAYOUTS: [(&str, &str, Layout); 12] = [
    ("vit", "vit.", VIT),
    ("deit", "deit.", VIT),
    ("vit_msn", "vit.", VIT),
    ("dinov2", "dinov2.", DINOV2),
    ("dinov2_with_registers", "dinov2_with_registers.", DINOV2),
    ("dinov3_vit", "model.", DINOV3),
    ("beit", "beit.", BEIT),
    ("data2vec-vision", "data2vec_vision.", BEIT),
    ("clip", VISION, TOWER),
    ("clip_vision_model", VISION, TOWER),
    ("siglip", VISION, TOWER),
    ("siglip_vision_model", VISION, TOWER),
];

/// The module of an image tower.
const VISION: &str = "vision_model.";

/// True if the trained network does not use the tensor: mask tokens, poolers of pretraining, index tables.
fn idle(kind: &str, name: &str) -> bool {
    let part = |start: &str| name.starts_with(start);
    name.ends_with("embeddings.mask_token")
        || name.ends_with("relative_position_index")
        || name.ends_with("position_ids")
        || (["vit", "deit", "vit_msn"].contains(&kind) && part("pooler."))
        // The classifier's own pooling replaces the tower's.
        || (kind == "clip" && part("post_layernorm."))
        || (kind == "siglip" && part("head."))
}

/// The network of a transformers directory in timm's terms, if its layout and all its parts are supported.
pub fn in_timm(config: &Value, weights: &Weights) -> Checked<InTimm> {
    let kind = config["model_type"].as_str().unwrap_or_default();
    let weights = &super::unwrapped(weights);
    if let Some(found) = convolutions::in_timm(kind, config, weights)? {
        return Ok(found);
    }
    let Some((_, module, layout)) = LAYOUTS.iter().find(|(of, ..)| *of == kind) else {
        let read = LAYOUTS.iter().map(|(kind, ..)| kind);
        let read: Vec<&str> = read.chain(&convolutions::KINDS).copied().collect();
        return Err(ShapeError::Other(format!(
            "{kind} is not supported: its transformers layout is not read (model_type in its \
             config.json); supported transformers layouts: {}; save the network with timm \
             (timm.models.save_for_hf), or use a timm repository",
            read.join(", ")
        )));
    };
    if weights.contains_key("visual_projection.weight") {
        let found = "tensor visual_projection.weight";
        let what = "the projection after its image tower is not read; save only its vision_model";
        return Err(unsupported(kind, what, found));
    }
    let about = config.get("vision_config").unwrap_or(config);
    let args = arguments(kind, about, weights)?;
    let mut classifiers = ["classifier.weight", "cls_classifier.weight"].into_iter();
    let classifies = classifiers.any(|name| weights.contains_key(name));
    // A plain vision transformer is trainable, and errors about it use transformers' keys.
    if ["vit", "deit", "vit_msn"].contains(&kind) && classifies && args["act_layer"] == "gelu" {
        return Ok(InTimm {
            name: kind.into(),
            args: config.as_object().cloned().unwrap_or_default(),
            weights: plain(kind, module, weights)?,
        });
    }
    let mut weights = renamed(kind, (module, *layout), weights)?;
    // A distillation token that no classifier reads is a register.
    if let Some(token) = weights.remove("dist_token") {
        weights.insert("reg_token".into(), token);
    }
    Ok(InTimm {
        name: kind.into(),
        weights,
        args,
    })
}

/// A tower of a CLIP or SigLIP under timm's names, from the tensors under `module`.
pub(crate) fn tower(weights: &Weights, module: &str) -> Checked<Weights> {
    let own = weights.iter().filter_map(|(name, tensor)| {
        let inner = name.strip_prefix(module)?.strip_prefix('.')?;
        Some((inner.to_owned(), tensor.clone()))
    });
    renamed("clip_vision_model", (VISION, TOWER), &own.collect())
}

/// A plain vision transformer under timm's names, from the tensors under `module`. ViT-MSN's files have this prefix
/// on some names only.
pub(super) fn plain(kind: &str, module: &str, weights: &Weights) -> Checked<Weights> {
    completed(renamed(kind, (module, VIT), weights)?)
}

/// Facts that the weights do not show, as timm's arguments.
fn arguments(kind: &str, about: &Value, weights: &Weights) -> Checked<Map<String, Value>> {
    let said = |key: &str| about.get(key).filter(|value| !value.is_null());
    let refuse = |key: &str, value: &Value| {
        let found = format!("{key} in its config.json");
        Err(unsupported(kind, &format!("its {key} is {value}"), &found))
    };
    let has = |part: &str| weights.keys().any(|name| name.ends_with(part));
    let mut args = Map::new();
    let of_tower = kind.starts_with("clip") || kind.starts_with("siglip");
    let heads = of_tower.then(|| json!(12));
    heads::check("num_attention_heads", said("num_attention_heads"))?;
    if let Some(heads) = said("num_attention_heads").cloned().or(heads) {
        args.insert("num_heads".into(), heads);
    }
    let eps = match kind {
        "vit" | "deit" | "beit" | "data2vec-vision" => 1e-12,
        "clip" | "clip_vision_model" | "dinov3_vit" => 1e-5,
        _ => 1e-6,
    };
    let eps = said("layer_norm_eps").cloned().unwrap_or(json!(eps));
    args.insert("layer_norm_eps".into(), eps);
    let usual = match kind {
        "clip" | "clip_vision_model" => "quick_gelu",
        "siglip" | "siglip_vision_model" => "gelu_pytorch_tanh",
        _ => "gelu",
    };
    let activation = said("hidden_act").cloned().unwrap_or(json!(usual));
    let gated = has("mlp.gate_proj.weight");
    let activation = match activation.as_str() {
        _ if has("mlp.weights_in.weight") => "silu", // whatever hidden_act says
        Some("silu" | "swish") if gated => "silu",
        _ if gated => return refuse("hidden_act", &activation),
        Some("gelu" | "gelu_python") => "gelu",
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_python_tanh") => "gelu_tanh",
        Some("quick_gelu") => "quick_gelu",
        _ => return refuse("hidden_act", &activation),
    };
    args.insert("act_layer".into(), json!(activation));
    let classifies = has("classifier.weight");
    let pooling = match kind {
        "dinov2" | "dinov2_with_registers" if classifies => "token+avg",
        "beit" | "data2vec-vision" if has("pooler.layernorm.weight") => "avg",
        "clip" | "siglip" => "avg",
        "siglip_vision_model" if has("head.probe") => "map",
        "siglip_vision_model" => {
            let found = "tensor head.probe is missing";
            return Err(unsupported(kind, "it has no pooling", found));
        }
        _ => "token",
    };
    args.insert("global_pool".into(), json!(pooling));
    if kind == "clip" {
        args.insert("final_norm".into(), json!(false));
    }
    if ["beit", "data2vec-vision"].contains(&kind) {
        args.insert("use_abs_pos_emb".into(), json!(has("position_embeddings")));
    }
    for (theirs, timm) in [
        ("image_size", "img_size"),
        ("hidden_size", "hidden_size"),
        ("num_channels", "num_channels"),
        ("num_hidden_layers", "num_hidden_layers"),
        ("patch_size", "patch_size"),
    ] {
        if let Some(size) = said(theirs) {
            args.insert(timm.into(), size.clone());
        }
    }
    if let Some(theta) = said("rope_theta")
        && theta.as_f64() != Some(100.0)
    {
        return refuse("rope_theta", theta);
    }
    if kind == "dinov2_with_registers" || kind == "dinov3_vit" {
        args.insert("no_embed_class".into(), json!(true));
    }
    Ok(args)
}

/// The weights under timm's names. Unknown names are kept and reported by the check against a network.
fn renamed(kind: &str, (module, layout): (&str, Layout), weights: &Weights) -> Checked<Weights> {
    let mut out = Weights::new();
    for (name, tensor) in weights {
        let inner = name.strip_prefix(module).unwrap_or(name);
        if idle(kind, inner) {
            continue;
        }
        let Some(rest) = inner.strip_prefix(layout.blocks) else {
            let timm = rename(HEADS.iter().chain(layout.outer).copied(), inner);
            out.insert(timm.unwrap_or(name.clone()), tensor.clone());
            continue;
        };
        let (layer, part) = rest.split_once('.').unwrap_or((rest, ""));
        if let Some((module, thirds)) = layout.thirds
            && let Some(third) = part.strip_prefix(module).and_then(|p| p.strip_prefix('.'))
            && let Some((third, end)) = third.split_once('.')
            && thirds.contains(&third)
        {
            let before = name.strip_suffix(&format!("{third}.{end}")).unwrap_or(name);
            let names = thirds.map(|third| format!("{before}{third}.{end}"));
            let there = |name: &&String| weights.contains_key(*name);
            let timm = |part: &str| format!("blocks.{layer}.attn.{part}");
            // BEiT's keys have no bias.
            if end == "bias" && !weights.contains_key(&names[1]) {
                let query = third == thirds[0];
                let name = timm(if query { "q_bias" } else { "v_bias" });
                out.insert(name, tensor.clone());
            } else if names.iter().filter(there).count() == 1 {
                return Err(ShapeError::Unexpected(name.clone()));
            } else if names.iter().find(there) == Some(name) {
                out.insert(timm(&format!("qkv.{end}")), join(weights, &names)?);
            }
            continue;
        }
        let timm = rename(layout.inner.iter().copied(), part);
        let timm = timm.map(|part| format!("blocks.{layer}.{part}"));
        out.insert(timm.unwrap_or(name.clone()), tensor.clone());
    }
    shaped(kind, &mut out)?;
    Ok(out)
}

/// Converts the weights that differ in more than their names.
fn shaped(kind: &str, weights: &mut Weights) -> Checked<()> {
    type Change<'c> = &'c dyn Fn(&Tensor) -> candle_core::Result<Tensor>;
    let changed = |name: &str, tensor: &Tensor, change: Change| {
        change(tensor).map_err(|_| misfit(name, tensor))
    };
    match kind {
        "dinov2_with_registers" => {
            // The class token's position is added to it; registers have no positions.
            let [_, places, _] = dims(weights, "pos_embed")?;
            let (token, table) = (weights.get("cls_token"), weights.get("pos_embed"));
            if let (Some(token), Some(table), 2..) = (token, table, places) {
                let first = |t: &Tensor| t.narrow(1, 0, 1)? + token;
                let rest = |t: &Tensor| t.narrow(1, 1, places - 1)?.contiguous();
                let token = changed("pos_embed", table, &first)?;
                let table = changed("pos_embed", table, &rest)?;
                weights.insert("cls_token".into(), token);
                weights.insert("pos_embed".into(), table);
            }
        }
        "dinov3_vit" => {
            weights.retain(|name, t| name != "reg_token" || t.elem_count() > 0);
            let gate = |name: &String| name.strip_suffix(".fc1_g.weight").map(String::from);
            for mlp in weights.keys().filter_map(gate).collect::<Vec<_>>() {
                for part in ["weight", "bias"] {
                    if let Some(t) = weights.remove(&format!("{mlp}.fc1.{part}")) {
                        weights.insert(format!("{mlp}.fc1_x.{part}"), t);
                    }
                }
            }
        }
        "clip" | "clip_vision_model" | "siglip" | "siglip_vision_model" => {
            for (name, extra) in [("cls_token", 2), ("pos_embed", 1)] {
                if let Some(t) = weights.get(name) {
                    let dims = [&vec![1; extra], t.dims()].concat();
                    let t = changed(name, t, &|t| t.reshape(dims.as_slice()))?;
                    weights.insert(name.into(), t);
                }
            }
            for part in ["weight", "bias"] {
                let name = format!("head.attention.in_proj_{part}");
                if let Some(t) = weights.remove(&name) {
                    let d = t.dims().first().copied().unwrap_or(0) / 3;
                    let q = changed(&name, &t, &|t| t.narrow(0, 0, d)?.contiguous())?;
                    let kv = changed(&name, &t, &|t| t.narrow(0, d, 2 * d)?.contiguous())?;
                    weights.insert(format!("attn_pool.q.{part}"), q);
                    weights.insert(format!("attn_pool.kv.{part}"), kv);
                }
            }
        }
        _ => {}
    }
    Ok(())
}
