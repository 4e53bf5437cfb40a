//! The vision transformer, in timm's layout.
//!
//! ```text
//! x = patches W_patch^T + positions          (a class token first, if there is one)
//! x = blocks(x)                              (pre-norm; see wave_ops::blocks)
//! z = head(norm(class token of x))     or    head(fc_norm(mean over tokens of x))
//! ```
//!
//! A distilled DeiT (Touvron et al. 2021) has a second token after the class token, with its own classifier,
//! `head_dist`. Except in distillation training, the output is the mean of both classifiers.
//!
//! On disk every layer has its own tensors (`blocks.3.attn.qkv.weight`). In memory the layers of a kind are
//! stacked (`blocks.attn.qkv.weight`, with the depth as leading dimension), as all blocks are computed in one
//! call. [`stack`] and [`unstack`] convert.

use crate::check::{affine, at_most, count, dims, divides, products, refuse_value, sizes};
use crate::fold::{Affine, get};
use crate::{Checked, Weights};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use wave_ops::{BlocksShape, Mode, Precision};

pub use crate::check::check_weights;

/// Epsilon of layer norms in timm, and so in all published ViTs and DeiTs.
pub const LAYER_NORM_EPS: f64 = 1e-6;

/// The maximum number of values of one kind over all blocks: more than any memory holds, few enough that the
/// multiply-adds fit into 64 bits.
const MOST_VALUES: usize = 1 << 40;

/// The tensors of a block, in the argument order of [`wave_ops::blocks()`].
pub const BLOCK_TENSORS: [&str; 12] = [
    "norm1.weight",
    "norm1.bias",
    "attn.qkv.weight",
    "attn.qkv.bias",
    "attn.proj.weight",
    "attn.proj.bias",
    "norm2.weight",
    "norm2.bias",
    "mlp.fc1.weight",
    "mlp.fc1.bias",
    "mlp.fc2.weight",
    "mlp.fc2.bias",
];

/// The names of LayerScale's tensors in a block: timm has either pair.
pub(crate) const LAYER_SCALES: [&str; 4] = ["ls1.gamma", "ls2.gamma", "gamma_1", "gamma_2"];

/// The sizes of a vision transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VitShape {
    /// Side of the square input, in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Side of a square patch, in pixels; divides `image_size`.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Attention heads; divides `width`.
    pub heads: usize,
    /// Hidden channels of the MLP divided by `width`.
    pub mlp_ratio: f64,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
    /// True to classify the class token; otherwise the mean over tokens.
    pub class_token: bool,
    /// True if there is also a distillation token with its own classifier; needs `class_token`.
    #[serde(default)]
    pub distilled: bool,
    /// Epsilon of the layer norms: [`LAYER_NORM_EPS`], unless the weights were trained with another value.
    #[serde(default = "layer_norm_eps")]
    pub norm_eps: f64,
}

fn layer_norm_eps() -> f64 {
    LAYER_NORM_EPS
}

impl Default for VitShape {
    /// DeiT-Ti for ImageNet.
    fn default() -> VitShape {
        VitShape {
            image_size: 224,
            channels: 3,
            patch: 16,
            depth: 12,
            width: 192,
            heads: 3,
            mlp_ratio: 4.0,
            classes: 1000,
            class_token: true,
            distilled: false,
            norm_eps: LAYER_NORM_EPS,
        }
    }
}

/// The MLP ratio that gives `hidden` channels, rounded down, at this width: often just above the quotient.
pub fn mlp_ratio(width: usize, hidden: usize) -> f64 {
    let width = width.max(1) as f64;
    let mut ratio = hidden as f64 / width;
    while ((width * ratio) as usize) < hidden {
        ratio = ratio.next_up();
    }
    ratio
}

impl VitShape {
    /// Hidden channels of the MLP, rounded down as in timm.
    pub fn hidden(&self) -> usize {
        (self.width as f64 * self.mlp_ratio) as usize
    }

    /// Patches along a side.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch.max(1)
    }

    /// Tokens that enter the blocks.
    pub fn tokens(&self) -> usize {
        self.grid() * self.grid() + self.prefix()
    }

    /// Tokens before the patch tokens.
    pub fn prefix(&self) -> usize {
        usize::from(self.class_token) + usize::from(self.distilled)
    }

    /// Channels of one head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads.max(1)
    }

    /// The same shape with another depth and width, and heads of the same width. If that does not divide the
    /// width, the number of heads is rounded down to a divisor of the width and the heads are wider; a width
    /// below one head's gets a single narrower head.
    pub fn with_size(&self, depth: usize, width: usize) -> VitShape {
        let mut numbers = (1..=width / self.head_width().max(1)).rev();
        let heads = numbers.find(|heads| width.is_multiple_of(*heads));
        VitShape {
            depth,
            width,
            heads: heads.unwrap_or(1),
            ..self.clone()
        }
    }

    /// The name of the norm before the head: `norm`, or timm's `fc_norm` after mean pooling.
    pub fn final_norm(&self) -> &'static str {
        if self.class_token { "norm" } else { "fc_norm" }
    }

    /// The sizes of the blocks.
    pub fn blocks(&self) -> BlocksShape {
        BlocksShape {
            depth: self.depth,
            width: self.width,
            heads: self.heads,
            hidden: self.hidden(),
            eps: self.norm_eps,
        }
    }

    /// Checks that the sizes fit each other.
    pub fn validate(&self) -> Checked<()> {
        sizes(&[
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("heads", self.heads),
            ("classes", self.classes.max(1)), // none: a backbone
            ("mlp_ratio x width", self.hidden()),
        ])?;
        if self.distilled && !self.class_token {
            let found = "true without a class token";
            return refuse_value("distilled", found, "false, or true with class_token");
        }
        if !(self.norm_eps > 0.0 && self.norm_eps < 1.0) {
            return refuse_value("norm_eps", self.norm_eps, "a number between 0 and 1");
        }
        divides("patch", self.patch, "image_size", self.image_size)?;
        divides("heads", self.heads, "width", self.width)?;
        let (n, d, hidden) = (self.tokens(), self.width, self.hidden());
        let (depth, side) = (self.depth, self.image_size);
        sizes(&[("tokens", n)])?;
        products(&[("image_size^2 x channels", &[side, side, self.channels])])?;
        for (name, values) in [
            ("tokens x width x depth", n * d * depth),
            ("width^2 x depth", d * d * depth),
            ("mlp_ratio x width^2 x depth", hidden * d * depth),
        ] {
            at_most(name, values, MOST_VALUES)?;
        }
        Ok(())
    }

    /// Names and shapes of all weights, as in timm.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.outer_parameters();
        all.extend((0..self.depth).flat_map(|l| self.block_parameters(&format!("blocks.{l}"))));
        all
    }

    /// Names and shapes of the stacked weights: see [`stack`].
    pub fn stacked_parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.outer_parameters();
        let of_block = self.block_parameters("blocks").into_iter();
        all.extend(of_block.map(|(name, dims)| (name, [&[self.depth], &dims[..]].concat())));
        all
    }

    /// The number of values in all weights.
    pub fn parameter_count(&self) -> usize {
        let values = |(_, dims): &(String, Vec<usize>)| dims.iter().product::<usize>();
        self.stacked_parameters().iter().map(values).sum()
    }

    /// Multiply-adds of a forward pass on one image.
    pub fn multiply_adds(&self) -> usize {
        let (n, d, h) = (self.tokens(), self.width, self.hidden());
        let block = n * (4 * d * d + 2 * d * h) + 2 * n * n * d;
        let patches = self.grid() * self.grid() * self.channels * self.patch * self.patch * d;
        let heads = 1 + usize::from(self.distilled);
        self.depth * block + patches + heads * d * self.classes
    }

    fn outer_parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (d, p, norm) = (self.width, self.patch, self.final_norm());
        let mut all = vec![("pos_embed".into(), vec![1, self.tokens(), d])];
        all.extend(affine("patch_embed.proj", vec![d, self.channels, p, p]));
        all.extend(affine(norm, vec![d]));
        let mut heads = vec!["head"];
        if self.class_token {
            all.insert(0, ("cls_token".into(), vec![1, 1, d]));
        }
        if self.distilled {
            all.insert(1, ("dist_token".into(), vec![1, 1, d]));
            heads.push("head_dist");
        }
        for head in heads.into_iter().filter(|_| self.classes > 0) {
            all.extend(affine(head, vec![self.classes, d]));
        }
        all
    }

    /// [`BLOCK_TENSORS`] with this prefix, and their shapes.
    fn block_parameters(&self, prefix: &str) -> Vec<(String, Vec<usize>)> {
        let (d, h) = (self.width, self.hidden());
        let modules = [
            ("norm1", vec![d]),
            ("attn.qkv", vec![3 * d, d]),
            ("attn.proj", vec![d, d]),
            ("norm2", vec![d]),
            ("mlp.fc1", vec![h, d]),
            ("mlp.fc2", vec![d, h]),
        ];
        let named = |(name, dims): (&str, Vec<usize>)| affine(&format!("{prefix}.{name}"), dims);
        modules.into_iter().flat_map(named).collect()
    }

    /// Infers the sizes from weights under timm's names. The number of heads cannot be inferred: it is
    /// `heads`, or if that is `None`, as many as have width 64.
    pub fn infer(weights: &Weights, heads: Option<usize>) -> Checked<VitShape> {
        let [width, channels, patch, _] = dims(weights, "patch_embed.proj.weight")?;
        let [_, positions, _] = dims(weights, "pos_embed")?;
        let [classes, _] = dims(weights, "head.weight")?;
        let [hidden, _] = dims(weights, "blocks.0.mlp.fc1.weight")?;
        let class_token = weights.contains_key("cls_token");
        let distilled = weights.contains_key("dist_token");
        let prefix = usize::from(class_token) + usize::from(distilled);
        let grid = positions.saturating_sub(prefix).isqrt();
        let shape = VitShape {
            image_size: grid.saturating_mul(patch),
            channels,
            patch,
            depth: count(weights, |l| format!("blocks.{l}.attn.qkv.weight")),
            width,
            heads: heads.unwrap_or((width / 64).max(1)),
            mlp_ratio: mlp_ratio(width, hidden),
            classes,
            class_token,
            distilled,
            norm_eps: LAYER_NORM_EPS,
        };
        shape.validate()?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }
}

/// The weights of the first `depth` blocks, and all weights outside the blocks.
pub fn first_blocks(weights: &Weights, depth: usize) -> Weights {
    let layer = |name: &str| {
        let (layer, _) = name.strip_prefix("blocks.")?.split_once('.')?;
        layer.parse::<usize>().ok()
    };
    let mut kept = weights.clone();
    kept.retain(|name, _| layer(name).is_none_or(|layer| layer < depth));
    kept
}

/// Stacks the layers of each kind: `blocks.{l}.NAME` (..) become `blocks.NAME` (depth, ..). Everything else
/// is kept. A kind that no layer has is left out.
///
/// # Errors
/// If a layer's tensor is missing, has another shape than in the other layers, or does not belong to a block.
pub fn stack(weights: &Weights, depth: usize) -> Result<Weights> {
    let mut out = weights.clone();
    out.retain(|name, _| !name.starts_with("blocks."));
    // All kinds that occur, so that none is silently ignored.
    let mut kinds = BTreeSet::new();
    for name in weights.keys() {
        let Some(rest) = name.strip_prefix("blocks.") else {
            continue;
        };
        let (layer, tensor) = rest.split_once('.').unwrap_or((rest, ""));
        let known = BLOCK_TENSORS.contains(&tensor) || LAYER_SCALES.contains(&tensor);
        if !known || layer.parse::<usize>().map_or(true, |l| l >= depth) {
            candle_core::bail!("tensor {name} belongs to none of the {depth} blocks");
        }
        kinds.insert(tensor);
    }
    for tensor in kinds {
        let layers = (0..depth).map(|l| get(weights, &format!("blocks.{l}.{tensor}")));
        let layers = layers.collect::<Result<Vec<_>>>()?;
        out.insert(format!("blocks.{tensor}"), Tensor::stack(&layers, 0)?);
    }
    Ok(out)
}

/// The inverse of [`stack`]: every layer gets its own tensors.
pub fn unstack(weights: &Weights) -> Result<Weights> {
    let mut out = weights.clone();
    out.retain(|name, _| !name.starts_with("blocks."));
    for (name, t) in weights {
        if let Some(tensor) = name.strip_prefix("blocks.") {
            for l in 0..t.dim(0)? {
                out.insert(format!("blocks.{l}.{tensor}"), t.get(l)?);
            }
        }
    }
    Ok(out)
}

/// Scales of the residual branches for stochastic depth, (depth, 2, b): 0 with the layer's drop probability
/// and `1 / keep` otherwise. The probability rises linearly from 0 at the first layer to `rate` at the last,
/// as in timm. `uniform` samples from 0..1.
pub fn drop_path_scales(
    depth: usize,
    batch: usize,
    rate: f64,
    mut uniform: impl FnMut() -> f64,
) -> Vec<f32> {
    let mut scales = Vec::with_capacity(depth * 2 * batch);
    for l in 0..depth {
        let drop = rate * l as f64 / (depth.max(2) - 1) as f64;
        let scale = (1.0 / (1.0 - drop)) as f32;
        scales.extend((0..2 * batch).map(|_| if uniform() >= drop { scale } else { 0.0 }));
    }
    scales
}

/// Logits (b, classes) of `images` (b, channels, h, w) for stacked weights (see [`stack`]). In training,
/// `drop_path` holds the scales of [`drop_path_scales`].
pub fn logits(
    shape: &VitShape,
    weights: &Weights,
    images: &Tensor,
    drop_path: Option<Vec<f32>>,
) -> Result<Tensor> {
    logits_in(Precision::F32, shape, weights, images, drop_path)
}

/// [`logits`] with the blocks computed in a given precision or mode.
pub fn logits_in(
    mode: impl Into<Mode>,
    shape: &VitShape,
    weights: &Weights,
    images: &Tensor,
    drop_path: Option<Vec<f32>>,
) -> Result<Tensor> {
    let classify = |features: &Tensor, head: &str| Affine::stored(weights, head)?.apply(features);
    match &pooled(mode, shape, weights, images, drop_path)?[..] {
        [class, distilled] => (classify(class, "head")? + classify(distilled, "head_dist")?)? / 2.0,
        of => classify(&of[0], "head"),
    }
}

/// Features (b, d) of images, the classifier's input; with two classifiers the mean of their inputs, as in timm.
pub fn features(shape: &VitShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    match &pooled(Precision::F32, shape, weights, images, None)?[..] {
        [class, distilled] => (class + distilled)? / 2.0,
        of => Ok(of[0].clone()),
    }
}

/// Features (b, d) for each classifier: one tensor, or two for a distilled transformer.
fn pooled(
    mode: impl Into<Mode>,
    shape: &VitShape,
    weights: &Weights,
    images: &Tensor,
    drop_path: Option<Vec<f32>>,
) -> Result<Vec<Tensor>> {
    let mode = mode.into();
    let x = embedded(mode.precision, shape, weights, images)?;
    let parameters = block_tensors(|name| get(weights, &format!("blocks.{name}")).cloned())?;
    let x = wave_ops::blocks(mode, &x, &parameters, shape.blocks(), drop_path)?; // (b, tokens, d)
    let norm = Affine::stored(weights, shape.final_norm())?;
    let normed = |x: &Tensor| norm.norm(x, shape.norm_eps);
    let token = |i: usize| normed(&x.narrow(1, i, 1)?.squeeze(1)?);
    if shape.class_token {
        (0..shape.prefix()).map(token).collect()
    } else {
        Ok(vec![normed(&x.mean(1)?)?])
    }
}

/// The tensors of [`BLOCK_TENSORS`], looked up by name.
pub(crate) fn block_tensors(find: impl Fn(&str) -> Result<Tensor>) -> Result<[Tensor; 12]> {
    let found = BLOCK_TENSORS.into_iter().map(find);
    let twelve = found.collect::<Result<Vec<_>>>()?.try_into();
    twelve.map_err(|_| candle_core::Error::Msg("twelve tensors".into()))
}

/// Tokens (b, tokens, d) before the blocks; see [`wave_ops::embed`] for the precision.
pub fn embedded(
    precision: Precision,
    shape: &VitShape,
    weights: &Weights,
    images: &Tensor,
) -> Result<Tensor> {
    let (d, positions) = (shape.width, get(weights, "pos_embed")?);
    let images = crate::checked_images(images, shape.channels, shape.image_size, positions)?;
    let patches = wave_ops::patchify(&images, shape.patch)?; // (b, grid^2, channels p p)
    // One table for positions, patch bias and the prefix tokens: (tokens, d).
    let map = Affine::stored(weights, "patch_embed.proj")?;
    let bias = repeated(&map.bias, shape.grid() * shape.grid())?;
    let first = &["cls_token", "dist_token"][..shape.prefix()];
    let table = (positions.reshape(((), d))? + below(weights, first, bias)?)?;
    wave_ops::embed(precision, &patches, &map.weight.reshape((d, ()))?, &table)
}

/// Repeats a row (d) `n` times: (n, d).
pub(crate) fn repeated(row: &Tensor, n: usize) -> Result<Tensor> {
    let d = row.elem_count();
    row.reshape((1, d))?.broadcast_as((n, d))?.contiguous()
}

/// Concatenates the tokens with these names (1, .., d) and `patches` (n, d) along the rows.
pub(crate) fn below(weights: &Weights, names: &[&str], patches: Tensor) -> Result<Tensor> {
    let d = patches.dim(1)?;
    let row = |name: &&str| get(weights, name)?.reshape(((), d));
    let rows = names.iter().map(row).chain([Ok(patches)]);
    Tensor::cat(&rows.collect::<Result<Vec<_>>>()?, 0)
}

/// Attention maps (tokens, tokens) of all layers, from each token (row) to each other (column): attention after the
/// softmax, averaged over heads and `images`. Weights are not stacked (thesis, section 3.2.2, figure 3.18).
pub fn attention_maps(shape: &VitShape, weights: &Weights, images: &Tensor) -> Result<Vec<Tensor>> {
    let (heads, head_width) = (shape.heads, shape.head_width());
    let mut x = embedded(Precision::F32, shape, weights, images)?; // (b, n, d)
    let (b, n, d) = x.dims3()?;
    let block = BlocksShape {
        depth: 1,
        ..shape.blocks()
    };
    let mut maps = Vec::with_capacity(shape.depth);
    for l in 0..shape.depth {
        let module = |name: &str| Affine::stored(weights, &format!("blocks.{l}.{name}"));
        let qkv = module("attn.qkv")?.apply(&module("norm1")?.norm(&x, shape.norm_eps)?)?;
        let part = |from: usize| -> Result<Tensor> {
            let part = qkv.narrow(2, from, d)?.contiguous()?;
            let part = part.reshape((b, n, heads, head_width))?;
            part.transpose(1, 2)?.contiguous() // (b, heads, n, d / heads)
        };
        let scores = part(0)?.matmul(&part(d)?.t()?)?; // (b, heads, n, n)
        let shares = wave_ops::stock::softmax(&(scores / (head_width as f64).sqrt())?)?;
        maps.push(shares.mean((0, 1))?);
        let tensors = |name: &str| get(weights, &format!("blocks.{l}.{name}"))?.unsqueeze(0);
        x = wave_ops::blocks(Precision::F32, &x, &block_tensors(tensors)?, block, None)?;
    }
    Ok(maps)
}
