//! Names and shapes of the weights of CLIP and SigLIP in transformers. `transformers/layouts.rs` has timm's.

use crate::check::affine;
use crate::transformer::TransformerShape;

/// Names and shapes of the tensors common to both towers, under `prefix`, with this many rows in the position
/// table and this name for the last norm.
pub(super) fn of_tower(
    prefix: &str,
    shape: &TransformerShape,
    places: usize,
    last: &str,
) -> Vec<(String, Vec<usize>)> {
    let (d, h) = (shape.width, shape.hidden);
    let positions = format!("{prefix}.embeddings.position_embedding.weight");
    let mut all = vec![(positions, vec![places, d])];
    all.extend(affine(&format!("{prefix}.{last}"), vec![d]));
    for l in 0..shape.depth {
        for (module, dims) in [
            ("layer_norm1", vec![d]),
            ("layer_norm2", vec![d]),
            ("self_attn.q_proj", vec![d, d]),
            ("self_attn.k_proj", vec![d, d]),
            ("self_attn.v_proj", vec![d, d]),
            ("self_attn.out_proj", vec![d, d]),
            ("mlp.fc1", vec![h, d]),
            ("mlp.fc2", vec![d, h]),
        ] {
            let name = format!("{prefix}.encoder.layers.{l}.{module}");
            all.extend(affine(&name, dims));
        }
    }
    all
}

/// Names and shapes specific to CLIP's image tower, with patches (width, channels, patch, patch).
pub(super) fn of_clip_images(patches: [usize; 4]) -> Vec<(String, Vec<usize>)> {
    let d = patches[0];
    let name = |part: &str| format!("vision_model.{part}");
    let mut all = vec![
        (name("embeddings.class_embedding"), vec![d]),
        (name("embeddings.patch_embedding.weight"), patches.to_vec()),
    ];
    all.extend(affine(&name("pre_layrnorm"), vec![d]));
    all
}

/// Names and shapes specific to SigLIP's image tower, with `hidden` channels in the MLP of its pooling.
pub(super) fn of_siglip_images(patches: [usize; 4], hidden: usize) -> Vec<(String, Vec<usize>)> {
    let d = patches[0];
    let name = |part: &str| format!("vision_model.{part}");
    let mut all = Vec::from(affine(&name("embeddings.patch_embedding"), patches.into()));
    all.extend([
        (name("head.probe"), vec![1, 1, d]),
        (name("head.attention.in_proj_weight"), vec![3 * d, d]),
        (name("head.attention.in_proj_bias"), vec![3 * d]),
    ]);
    all.extend(affine(&name("head.attention.out_proj"), vec![d, d]));
    all.extend(affine(&name("head.layernorm"), vec![d]));
    all.extend(affine(&name("head.mlp.fc1"), vec![hidden, d]));
    all.extend(affine(&name("head.mlp.fc2"), vec![d, hidden]));
    all
}
