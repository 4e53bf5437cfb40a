//! Weights of CLIP and SigLIP: their names in transformers, and timm's.
//!
//! | here (timm)                | there, after `vision_model.` or `text_model.`              |
//! |----------------------------|------------------------------------------------------------|
//! | `cls_token`                | `embeddings.class_embedding`                               |
//! | `patch_embed.proj`         | `embeddings.patch_embedding`                               |
//! | `pos_embed`                | `embeddings.position_embedding.weight`                     |
//! | `tokens` (ours)            | `embeddings.token_embedding.weight`                        |
//! | `norm_pre`                 | `pre_layrnorm`                                             |
//! | `blocks.L.norm1`, `norm2`  | `encoder.layers.L.layer_norm1`, `layer_norm2`              |
//! | `blocks.L.attn.qkv`        | `encoder.layers.L.self_attn.{q,k,v}_proj`                  |
//! | `blocks.L.attn.proj`       | `encoder.layers.L.self_attn.out_proj`                      |
//! | `blocks.L.mlp`             | `encoder.layers.L.mlp`                                     |
//! | `norm`                     | `post_layernorm`, `final_layer_norm`                       |
//! | `attn_pool.latent`         | `head.probe`                                               |
//! | `attn_pool.q`, `attn_pool.kv` | `head.attention.in_proj_weight`, `in_proj_bias`         |
//! | `attn_pool.proj`, `norm`, `mlp` | `head.attention.out_proj`, `head.layernorm`, `head.mlp` |
//! | `head` (ours)              | `head` of SigLIP's texts; `text_projection` of CLIP's      |

use crate::Weights;
use crate::fold::get;
use candle_core::{Result, Tensor};

/// The sizes that shapes of a tower's weights follow from.
pub(super) struct Sizes {
    pub(super) width: usize,
    pub(super) hidden: usize,
    pub(super) depth: usize,
    /// Rows of the table of positions.
    pub(super) places: usize,
}

/// Names and shapes of the tensors common to both towers, after `prefix`, with the last norm of this name.
pub(super) fn of_tower(prefix: &str, sizes: &Sizes, last: &str) -> Vec<(String, Vec<usize>)> {
    let (d, h) = (sizes.width, sizes.hidden);
    let mut all = Vec::new();
    let mut one = |name: String, dims: Vec<usize>| all.push((format!("{prefix}.{name}"), dims));
    one(
        "embeddings.position_embedding.weight".into(),
        vec![sizes.places, d],
    );
    for part in ["weight", "bias"] {
        one(format!("{last}.{part}"), vec![d]);
    }
    for l in 0..sizes.depth {
        for (module, rows, columns) in [
            ("layer_norm1", d, None),
            ("layer_norm2", d, None),
            ("self_attn.q_proj", d, Some(d)),
            ("self_attn.k_proj", d, Some(d)),
            ("self_attn.v_proj", d, Some(d)),
            ("self_attn.out_proj", d, Some(d)),
            ("mlp.fc1", h, Some(d)),
            ("mlp.fc2", d, Some(h)),
        ] {
            let module = format!("encoder.layers.{l}.{module}");
            one(
                format!("{module}.weight"),
                [Some(rows), columns].into_iter().flatten().collect(),
            );
            one(format!("{module}.bias"), vec![rows]);
        }
    }
    all
}

/// Names and shapes of CLIP's own of images, with patches (width, channels, patch, patch).
pub(super) fn of_clip_images(prefix: &str, patches: [usize; 4]) -> Vec<(String, Vec<usize>)> {
    let d = patches[0];
    vec![
        (format!("{prefix}.embeddings.class_embedding"), vec![d]),
        (
            format!("{prefix}.embeddings.patch_embedding.weight"),
            patches.to_vec(),
        ),
        (format!("{prefix}.pre_layrnorm.weight"), vec![d]),
        (format!("{prefix}.pre_layrnorm.bias"), vec![d]),
    ]
}

/// Names and shapes of SigLIP's own of images, with `hidden` channels in the MLP of its pooling.
pub(super) fn of_siglip_images(
    prefix: &str,
    patches: [usize; 4],
    hidden: usize,
) -> Vec<(String, Vec<usize>)> {
    let d = patches[0];
    [
        ("embeddings.patch_embedding.weight", patches.to_vec()),
        ("embeddings.patch_embedding.bias", vec![d]),
        ("head.probe", vec![1, 1, d]),
        ("head.attention.in_proj_weight", vec![3 * d, d]),
        ("head.attention.in_proj_bias", vec![3 * d]),
        ("head.attention.out_proj.weight", vec![d, d]),
        ("head.attention.out_proj.bias", vec![d]),
        ("head.layernorm.weight", vec![d]),
        ("head.layernorm.bias", vec![d]),
        ("head.mlp.fc1.weight", vec![hidden, d]),
        ("head.mlp.fc1.bias", vec![hidden]),
        ("head.mlp.fc2.weight", vec![d, hidden]),
        ("head.mlp.fc2.bias", vec![d]),
    ]
    .into_iter()
    .map(|(name, dims)| (format!("{prefix}.{name}"), dims))
    .collect()
}

/// Modules outside the blocks: transformers' name, and timm's. Longer names come first.
const OUTER: [(&str, &str); 12] = [
    ("embeddings.class_embedding", "cls_token"),
    ("embeddings.patch_embedding", "patch_embed.proj"),
    ("embeddings.position_embedding.weight", "pos_embed"),
    ("embeddings.token_embedding.weight", "tokens"),
    ("pre_layrnorm", "norm_pre"),
    ("post_layernorm", "norm"),
    ("final_layer_norm", "norm"),
    ("head.probe", "attn_pool.latent"),
    ("head.attention.out_proj", "attn_pool.proj"),
    ("head.layernorm", "attn_pool.norm"),
    ("head.mlp", "attn_pool.mlp"),
    ("head", "head"),
];

/// Modules of a block, without queries, keys and values.
const INNER: [(&str, &str); 4] = [
    ("layer_norm1", "norm1"),
    ("layer_norm2", "norm2"),
    ("self_attn.out_proj", "attn.proj"),
    ("mlp", "mlp"),
];

/// The tower after `prefix` under timm's names, from weights whose names and shapes are checked.
pub(super) fn to_timm(weights: &Weights, prefix: &str, depth: usize) -> Result<Weights> {
    let mut out = Weights::new();
    let inside = |name: &str| Some(name.strip_prefix(prefix)?.strip_prefix('.')?.to_owned());
    for (name, tensor) in weights {
        let Some(inner) = inside(name) else {
            continue;
        };
        if let Some(name) = timm_name(&inner) {
            let tensor = match name.as_str() {
                "cls_token" => tensor.reshape((1, 1, ()))?,
                "pos_embed" => tensor.unsqueeze(0)?,
                _ => tensor.clone(),
            };
            out.insert(name, tensor);
        }
    }
    for part in ["weight", "bias"] {
        for l in 0..depth {
            let thirds = ["q", "k", "v"].map(|third| {
                let module = format!("{prefix}.encoder.layers.{l}.self_attn.{third}_proj");
                get(weights, &format!("{module}.{part}"))
            });
            let thirds = thirds.into_iter().collect::<Result<Vec<_>>>()?;
            out.insert(
                format!("blocks.{l}.attn.qkv.{part}"),
                Tensor::cat(&thirds, 0)?,
            );
        }
        if let Some(all) = weights.get(&format!("{prefix}.head.attention.in_proj_{part}")) {
            let d = all.dim(0)? / 3;
            let rows = |from, n| all.narrow(0, from, n)?.contiguous();
            out.insert(format!("attn_pool.q.{part}"), rows(0, d)?);
            out.insert(format!("attn_pool.kv.{part}"), rows(d, 2 * d)?);
        }
    }
    Ok(out)
}

/// timm's name of a tensor that is one to one.
fn timm_name(name: &str) -> Option<String> {
    let find = |table: &[(&str, &str)], name: &str| {
        table.iter().find_map(|(theirs, timm)| {
            let part = name.strip_prefix(theirs)?;
            (part.is_empty() || part.starts_with('.')).then(|| format!("{timm}{part}"))
        })
    };
    match name.strip_prefix("encoder.layers.") {
        Some(name) => {
            let (layer, name) = name.split_once('.')?;
            Some(format!("blocks.{layer}.{}", find(&INNER, name)?))
        }
        None if name.starts_with("head.attention.in_proj_") => None,
        None => find(&OUTER, name),
    }
}
