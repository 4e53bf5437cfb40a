//! LeViT (Graham et al. 2021, "LeViT: a Vision Transformer in ConvNet's Clothing for Faster Inference"),
//! inference-only, with timm's weight names.
//!
//! ```text
//! x = convolutions(image)                        3 x 3, stride 2, three or four of them
//! x = x + attention(x);  x = x + mlp(x)          blocks of a stage
//! x = shrink(x);         x = x + mlp(x)          between stages: queries from every second token
//! z = mean of the heads of (mean over tokens of x)
//! attention = W_o act(softmax(q k^T / sqrt(key) + bias[|dy|, |dx|]) v)
//! ```
//!
//! Every linear map and convolution is followed by a batch norm; freezing folds all of them.

mod shape;

use self::shape::SHRINKING_VALUES;
use crate::fold::{self, Affine, get};
use crate::frozen::{self, Columns, Window};
use crate::{Activation, Folded, Weights, check_weights};
use candle_core::{D, DType, Result, Tensor};

pub use self::shape::{LevitShape, LevitStage};

/// Epsilon of the batch norms.
const EPS: f64 = 1e-5;

/// The network, with weights folded by [`fuse`]. With two classifiers it outputs their mean, like timm in
/// evaluation mode.
pub(super) fn folded(shape: &LevitShape, weights: Weights) -> Folded<LevitShape> {
    Folded {
        about: shape.about(),
        shape: shape.clone(),
        weights,
        head: "head",
        forward,
    }
}

/// The weights for a forward pass: batch norms folded into the adjacent maps, attention biases expanded to
/// every pair of tokens, `1 / sqrt(key)` folded into the queries, both classifiers merged into one, matrices
/// (in, out).
pub(super) fn fuse(shape: &LevitShape, weights: &Weights) -> Result<Weights> {
    shape.validate().map_err(candle_core::Error::wrap)?;
    check_weights(weights, &shape.parameters()).map_err(candle_core::Error::wrap)?;
    let mut out = Weights::new();
    for i in 1..=shape.stem {
        let name = format!("stem.conv{i}");
        normed(weights, &name)?.columns()?.store(&mut out, &name);
    }
    for map in shape.maps() {
        let mut folded = normed(weights, &map.name)?;
        folded.weight = folded.weight.reshape((map.outputs, map.inputs))?;
        folded.columns()?.store(&mut out, &map.name);
    }
    for attention in shape.attentions() {
        let name = &attention.name;
        let stored = get(weights, &format!("{name}.attention_biases"))?;
        let bias = fold::biases_by_distance(stored, attention.side, attention.stride)?;
        out.insert(format!("{name}.bias"), bias);
        for part in ["weight", "bias"] {
            let name = format!("{name}.{}.{part}", attention.queries);
            let scaled = scale_queries(get(&out, &name)?, attention.heads, shape.key)?;
            out.insert(name, scaled);
        }
    }
    let share = 1.0 / shape.heads().len() as f64;
    for head in shape.heads() {
        let Affine { weight, bias } = fold::classifier(weights, head, EPS)?;
        for (part, value) in [("head.weight", weight), ("head.bias", bias)] {
            let value = (value * share)?.to_dtype(DType::F32)?;
            let sum = match out.get(part) {
                Some(other) => (other + value)?,
                None => value,
            };
            out.insert(part.into(), sum);
        }
    }
    Ok(out)
}

/// Features (b, width), the input of the classifiers.
fn forward(shape: &LevitShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    let (act, none) = (shape.activation, Activation::Identity);
    let map = |name: &str| Affine::stored(weights, name);
    let mlp = |x: &Tensor, name: &str| {
        let hidden = map(&format!("{name}.ln1"))?.linear(x, act)?;
        map(&format!("{name}.ln2"))?.onto(x, &hidden)
    };
    let mut x = images.permute((0, 2, 3, 1))?.contiguous()?; // (b, s, s, channels)
    for i in 1..=shape.stem {
        let window = Window::padded(x.dim(1)?, 3, 2, 1);
        let act = if i < shape.stem { act } else { none };
        x = map(&format!("stem.conv{i}"))?.convolve(&x, window, act)?;
    }
    x = x.flatten(1, 2)?; // (b, n, d)
    let key = shape.key;
    for (i, stage) in shape.stages.iter().enumerate() {
        if i > 0 {
            let name = format!("stages.{i}.downsample");
            x = shrink(shape, weights, i, &x)?;
            x = mlp(&x, &format!("{name}.mlp"))?;
        }
        for l in 0..stage.depth {
            let name = format!("stages.{i}.blocks.{l}");
            let qkv = map(&format!("{name}.attn.qkv"))?.linear(&x, none)?;
            let part = |offset| Columns::new(&qkv, offset, 2 * key + stage.value);
            let bias = get(weights, &format!("{name}.attn.bias"))?;
            let widths = (key, stage.value);
            let (q, k, v) = (part(0), part(key), part(2 * key));
            let attended = frozen::attention(q, k, v, bias, widths, act)?;
            x = map(&format!("{name}.attn.proj.ln"))?.onto(&x, &attended)?;
            x = mlp(&x, &format!("{name}.mlp"))?;
        }
    }
    frozen::mean_rows(&x)
}

/// Attention before a stage, with queries from every second token of every second row.
fn shrink(shape: &LevitShape, weights: &Weights, stage: usize, x: &Tensor) -> Result<Tensor> {
    let name = format!("stages.{stage}.downsample.attn_downsample");
    let map = |part: &str| Affine::stored(weights, &format!("{name}.{part}"));
    let (key, value) = (shape.key, SHRINKING_VALUES * shape.key);
    let side = shape.resolution(stage - 1);
    let kept: Vec<u32> = (0..side)
        .step_by(2)
        .flat_map(|y| (0..side).step_by(2).map(move |x| (y * side + x) as u32))
        .collect();
    let kept = Tensor::from_vec(kept, side.div_ceil(2).pow(2), x.device())?;
    let none = Activation::Identity;
    let kv = map("kv")?.linear(x, none)?;
    let q = map("q.ln")?.linear(&x.contiguous()?.index_select(&kept, 1)?, none)?;
    let query = Columns::new(&q, 0, key);
    let part = |offset| Columns::new(&kv, offset, key + value);
    let widths = (key, value);
    let bias = get(weights, &format!("{name}.bias"))?;
    let attended = frozen::attention(query, part(0), part(key), bias, widths, shape.activation)?;
    map("proj.ln")?.linear(&attended, none)
}

/// The map or convolution `name` with its batch norm folded in.
fn normed(weights: &Weights, name: &str) -> Result<Affine> {
    let (weight, norm) = (format!("{name}.linear.weight"), format!("{name}.bn"));
    fold::into_outputs(weights, &weight, &norm, EPS)
}

/// Scales the query outputs of `map` (.., heads x per_head), the first `key` of each head, by
/// `1 / sqrt(key)`.
fn scale_queries(map: &Tensor, heads: usize, key: usize) -> Result<Tensor> {
    let outputs = map.dim(D::Minus1)?;
    let per_head = outputs / heads;
    let scales: Vec<f32> = (0..outputs)
        .map(|i| match i % per_head < key {
            true => 1.0 / (key as f32).sqrt(),
            false => 1.0,
        })
        .collect();
    map.broadcast_mul(&Tensor::from_vec(scales, outputs, map.device())?)
}

#[cfg(test)]
#[path = "levit_tests.rs"]
mod tests;
