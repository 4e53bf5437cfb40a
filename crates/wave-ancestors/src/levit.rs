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
use crate::{About, Activation, Family, Weights};
use candle_core::{Result, Tensor};

pub use self::shape::{LevitShape, LevitStage};

/// Epsilon of the batch norms.
const EPS: f64 = 1e-5;

impl Family for LevitShape {
    const HEAD: &'static str = "head";

    fn about(&self) -> About {
        About {
            family: "a LeViT",
            depth: self.stages.iter().map(|s| s.depth).sum(),
            width: self.last_width(),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// Attention biases are expanded to every pair of tokens, `1 / sqrt(key)` is folded into the queries, and
    /// two classifiers are merged into one that outputs their mean, like timm in evaluation mode.
    fn fuse(&self, weights: &Weights) -> Result<Weights> {
        let mut out = fold::fused(weights, &self.maps(), EPS)?;
        for attention in self.attentions() {
            let name = &attention.name;
            let stored = get(weights, &format!("{name}.attention_biases"))?;
            let bias = fold::biases_by_distance(stored, attention.side, attention.stride)?;
            out.insert(format!("{name}.bias"), bias);
            let queries = format!("{name}.{}", attention.queries);
            let scale = 1.0 / (self.key as f32).sqrt();
            fold::scale_queries(&mut out, &queries, (attention.heads, self.key), scale)?;
        }
        let mut head = fold::classifier(weights, "head", EPS)?;
        if self.distilled {
            let other = fold::classifier(weights, "head_dist", EPS)?;
            head.weight = ((head.weight + other.weight)? / 2.0)?;
            head.bias = ((head.bias + other.bias)? / 2.0)?;
        }
        head.store(&mut out, "head");
        Ok(out)
    }

    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let (act, none) = (self.activation, Activation::Identity);
        let map = |name: &str| Affine::stored(weights, name);
        let mlp = |x: &Tensor, name: &str| {
            let hidden = map(&format!("{name}.ln1"))?.linear(x, act)?;
            map(&format!("{name}.ln2"))?.onto(x, &hidden)
        };
        let mut x = images.clone();
        for i in 1..=self.stem {
            let window = Window::padded(x.dim(1)?, 3, 2, 1);
            let act = if i < self.stem { act } else { none };
            x = map(&format!("stem.conv{i}"))?.convolve(&x, window, None, act)?;
        }
        x = x.flatten(1, 2)?; // (b, n, d)
        let key = self.key;
        for (i, stage) in self.stages.iter().enumerate() {
            if i > 0 {
                x = shrink(self, weights, i, &x)?;
                x = mlp(&x, &format!("stages.{i}.downsample.mlp"))?;
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
}

/// Attention before a stage, with queries from every second token of every second row.
fn shrink(shape: &LevitShape, weights: &Weights, stage: usize, x: &Tensor) -> Result<Tensor> {
    let name = format!("stages.{stage}.downsample.attn_downsample");
    let map = |part: &str| Affine::stored(weights, &format!("{name}.{part}"));
    let (key, value) = (shape.key, SHRINKING_VALUES * shape.key);
    let side = shape.resolution(stage - 1);
    let row = |y: usize| (0..side).step_by(2).map(move |x| (y * side + x) as u32);
    let kept: Vec<u32> = (0..side).step_by(2).flat_map(row).collect();
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

#[cfg(test)]
#[path = "levit_tests.rs"]
mod tests;
