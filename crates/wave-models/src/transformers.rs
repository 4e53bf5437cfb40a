//! Vision transformers under the names of Hugging Face's transformers: `ViTForImageClassification` and
//! `DeiTForImageClassification` (with and without teacher), as stored in their files.
//!
//! Epsilon of layer norms: timm uses 1e-6, as in the training of the published models. transformers uses
//! `layer_norm_eps` from its configuration, 1e-12 by default. An export writes 1e-6, and an import keeps the
//! value of its configuration ([`crate::Network::recognise`]), so both sides compute the same.

mod layouts;

pub(crate) use layouts::tower;
pub use layouts::{InTimm, in_timm};

use crate::check::{Checked, ShapeError, contradiction, ignored};
use crate::vit::{VitShape, check_weights};
use crate::{Weights, check};
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value, json};

/// Modules outside the blocks: transformers' name after its prefix, and timm's.
const OUTER: [(&str, &str); 8] = [
    ("embeddings.cls_token", "cls_token"),
    ("embeddings.distillation_token", "dist_token"),
    ("embeddings.register_tokens", "reg_token"),
    ("embeddings.position_embeddings", "pos_embed"),
    ("embeddings.patch_embeddings.projection", "patch_embed.proj"),
    // BEiT's; other networks' poolers are unused.
    ("encoder.relative_position_bias", "rel_pos_bias"),
    ("pooler.layernorm", "fc_norm"),
    ("layernorm", "norm"),
];

/// Modules of a block, except queries, keys and values: transformers' name, and timm's.
const INNER: [(&str, &str); 5] = [
    ("layernorm_before", "norm1"),
    ("layernorm_after", "norm2"),
    ("attention.output.dense", "attn.proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
];

/// Classifiers, in the same order; the first name of each is the one that exports write.
const HEADS: [(&str, &str); 3] = [
    ("classifier", "head"),
    ("cls_classifier", "head"),
    ("distillation_classifier", "head_dist"),
];

/// The three parts of timm's `attn.qkv`.
const QKV: [&str; 3] = ["query", "key", "value"];

/// Weights under timm's names, from timm's or transformers'. Prefixes of training wrappers are removed.
/// Tensors that no network needs (counters of batch norms, stored attention bias indices) are dropped;
/// queries, keys and values are joined, with zeros for missing biases. A DeiT from transformers with a
/// distillation token but one classifier gets a second one of zeros and its own doubled, so that their mean
/// is the original. Unknown names are kept and reported by the check against a network.
///
/// # Errors
/// If queries, keys and values are incomplete or do not fit each other.
pub fn import(weights: &Weights) -> Checked<Weights> {
    let weights = unwrapped(weights);
    // `classifier` alone is no evidence: timm's EfficientNet has one too.
    let has = |module: &&str| weights.contains_key(&format!("{module}embeddings.cls_token"));
    match ["vit.", "deit."].into_iter().find(has) {
        Some(module) => layouts::plain("", module, &weights),
        None => completed(weights),
    }
}

/// Weights under timm's names, without tensors that no network needs, and with zeros for missing ones.
fn completed(mut out: Weights) -> Checked<Weights> {
    out.retain(|name, _| !ignored(name));
    fill_biases(&mut out)?;
    if out.contains_key("dist_token") && !out.contains_key("head_dist.weight") {
        for part in ["weight", "bias"] {
            let (name, other) = (format!("head.{part}"), format!("head_dist.{part}"));
            if let Some(head) = out.get(&name) {
                let misfit = |_| misfit(&name, head);
                let doubled = (head * 2.0).map_err(misfit)?;
                let zeros = head.zeros_like().map_err(misfit)?;
                out.insert(name, doubled);
                out.insert(other, zeros);
            }
        }
    }
    Ok(out)
}

/// Weights without training wrappers' prefixes, if all names have them: `module.`, `model.` and `_orig_mod.`.
pub(crate) fn unwrapped(weights: &Weights) -> Weights {
    let mut weights = weights.clone();
    let wrapper = |weights: &Weights| {
        let all = |start: &&str| weights.keys().all(|name| name.starts_with(start));
        let starts = ["module.", "model.", "_orig_mod."];
        starts.into_iter().find(all).filter(|_| !weights.is_empty())
    };
    while let Some(start) = wrapper(&weights) {
        let bare = |(name, t): (String, Tensor)| (name[start.len()..].to_owned(), t);
        weights = weights.into_iter().map(bare).collect();
    }
    weights
}

/// A vision transformer in transformers' native `vit` layout: its weights under transformers' names, and
/// `config.json`. `weights` have timm's names, unstacked; `labels` lists the names of the classes, in order.
///
/// # Errors
/// If the weights do not fit the shape, or the labels its classes, or the network is not [`expressible`].
pub fn export(
    shape: &VitShape,
    weights: &Weights,
    labels: Option<&[String]>,
) -> Checked<(Weights, Value)> {
    expressible(shape)?;
    shape.validate()?;
    check_weights(weights, &shape.parameters())?;
    let labels = match labels {
        Some(labels) if labels.len() != shape.classes => {
            let said = format!("{} names", labels.len());
            let found = format!("{} classes", shape.classes);
            return contradiction("label_names", said, found);
        }
        Some(labels) => labels.to_vec(),
        None => (0..shape.classes).map(|i| format!("LABEL_{i}")).collect(),
    };
    let mut out = Weights::new();
    for (name, tensor) in weights {
        let inner = name.strip_prefix("blocks.");
        if let Some((layer, part)) = inner.and_then(|inner| inner.split_once(".attn.qkv.")) {
            for (i, q) in QKV.into_iter().enumerate() {
                let rows = tensor.narrow(0, i * shape.width, shape.width);
                let rows = rows.and_then(|t| t.force_contiguous());
                let rows = rows.map_err(|_| misfit(name, tensor))?;
                let name = format!("vit.encoder.layer.{layer}.attention.attention.{q}.{part}");
                out.insert(name, rows);
            }
        } else if let Some(name) = transformers_name(name) {
            out.insert(name, tensor.clone());
        }
    }
    Ok((out, config(shape, &labels)))
}

/// Refuses networks that [`export`] cannot express: without a class token, or with a distillation token.
pub fn expressible(shape: &VitShape) -> Checked<()> {
    let refuse = |what| {
        Err(ShapeError::Other(format!(
            "transformers' ViTForImageClassification cannot express {what}; write timm's layout, which \
             transformers reads as TimmWrapperForImageClassification"
        )))
    };
    if !shape.class_token {
        return refuse("mean pooling over the tokens (fc_norm) instead of a class token");
    }
    if shape.distilled {
        return refuse("a distillation token with its own classifier");
    }
    Ok(())
}

fn config(shape: &VitShape, labels: &[String]) -> Value {
    let labels = || labels.iter().enumerate();
    let by_index = labels().map(|(i, label)| (i.to_string(), json!(label)));
    let by_label = labels().map(|(i, label)| (label.clone(), json!(i)));
    json!({
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_size": shape.width,
        "num_hidden_layers": shape.depth,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.hidden(),
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.02,
        "layer_norm_eps": shape.norm_eps,
        "image_size": shape.image_size,
        "patch_size": shape.patch,
        "num_channels": shape.channels,
        "qkv_bias": true,
        "id2label": by_index.collect::<Map<_, _>>(),
        "label2id": by_label.collect::<Map<_, _>>(),
    })
}

/// transformers' name of a tensor that maps one to one; `None` if timm has no such name.
fn transformers_name(name: &str) -> Option<String> {
    let timm_first = |(theirs, timm): (&'static str, &'static str)| (timm, theirs);
    if let Some(name) = name.strip_prefix("blocks.") {
        let (layer, name) = name.split_once('.')?;
        let name = rename(INNER.into_iter().map(timm_first), name)?;
        return Some(format!("vit.encoder.layer.{layer}.{name}"));
    }
    let outer = rename(OUTER.into_iter().map(timm_first), name).map(|name| format!("vit.{name}"));
    outer.or_else(|| rename(HEADS.into_iter().map(timm_first), name))
}

/// `name` with its leading module replaced by the table's second name.
fn rename(
    mut table: impl Iterator<Item = (&'static str, &'static str)>,
    name: &str,
) -> Option<String> {
    table.find_map(|(from, to)| {
        let part = name.strip_prefix(from)?;
        (part.is_empty() || part.starts_with('.')).then(|| format!("{to}{part}"))
    })
}

/// Concatenates three tensors of the same shape along the first dimension.
fn join(weights: &Weights, names: &[String; 3]) -> Checked<Tensor> {
    let first = check::stored(weights, &names[0])?;
    let mut parts = Vec::with_capacity(3);
    for name in names {
        let tensor = check::stored(weights, name)?;
        check::check_type(name, tensor)?;
        if tensor.dims() != first.dims() {
            return Err(check::misshapen(name, tensor, first.dims()));
        }
        parts.push(tensor);
    }
    Tensor::cat(&parts, 0).map_err(|_| misfit(&names[0], first))
}

/// Fills in zeros if no layer has a bias of queries, keys and values (`qkv_bias = False`).
fn fill_biases(weights: &mut Weights) -> Checked<()> {
    let depth = check::count(weights, |l| format!("blocks.{l}.attn.qkv.weight"));
    let name = |l: usize| format!("blocks.{l}.attn.qkv.bias");
    let in_parts = weights.contains_key("blocks.0.attn.q_bias"); // BEiT's
    if in_parts || (0..depth).any(|l| weights.contains_key(&name(l))) {
        return Ok(());
    }
    for l in 0..depth {
        let [rows, _] = check::dims(weights, &format!("blocks.{l}.attn.qkv.weight"))?;
        let zeros = Tensor::zeros(rows, DType::F32, &Device::Cpu);
        let zeros = zeros.map_err(|_| ShapeError::Missing(name(l)))?;
        weights.insert(name(l), zeros);
    }
    Ok(())
}

fn misfit(name: &str, tensor: &Tensor) -> ShapeError {
    let found = tensor.dims();
    ShapeError::Other(format!(
        "tensor {name} has shape {found:?}, which does not fit the tensors beside it; save the \
         weights again from the network"
    ))
}

#[cfg(test)]
#[path = "transformers_tests.rs"]
mod tests;
