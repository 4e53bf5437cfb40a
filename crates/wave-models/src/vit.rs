//! The vision transformer, in timm's layout.
//!
//! ```text
//! x = patches W_patch^T + positions          (a class token first, if there is one)
//! x = blocks(x)                              (pre-norm; see wave_ops::blocks)
//! z = head(norm(class token of x))     or    head(fc_norm(mean over tokens of x))
//! ```
//!
//! On disk every layer has tensors of its own (`blocks.3.attn.qkv.weight`); in memory the layers
//! of a kind are stacked (`blocks.attn.qkv.weight`, leading dimension the depth), because
//! templates compose them, and the trunk consumes them, all at once. [`stack`] and [`unstack`]
//! convert.

use crate::{ShapeError, Weights};
use candle_core::{Result, Tensor};
use serde::{Deserialize, Serialize};
use wave_ops::BlocksShape;

/// Epsilon of every layer norm, as in timm.
pub const LAYER_NORM_EPS: f64 = 1e-6;

/// The tensors of a block, in the order in which [`wave_ops::blocks()`] takes them.
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

/// Every size of a vision transformer.
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
    /// Hidden channels of the MLP over `width`.
    pub mlp_ratio: f64,
    /// Outputs of the classifier.
    pub classes: usize,
    /// Whether a class token is classified; otherwise the mean over the tokens is.
    pub class_token: bool,
}

impl VitShape {
    /// Hidden channels of the MLP.
    pub fn hidden(&self) -> usize {
        (self.width as f64 * self.mlp_ratio) as usize
    }

    /// Patches along a side.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch.max(1)
    }

    /// Tokens that the blocks see.
    pub fn tokens(&self) -> usize {
        self.grid() * self.grid() + usize::from(self.class_token)
    }

    /// Channels of one head.
    pub fn head_width(&self) -> usize {
        self.width / self.heads.max(1)
    }

    /// The name of the norm before the head: `norm`, or timm's `fc_norm` after mean pooling.
    pub fn final_norm(&self) -> &'static str {
        if self.class_token { "norm" } else { "fc_norm" }
    }

    /// The sizes of the trunk.
    pub fn blocks(&self) -> BlocksShape {
        BlocksShape {
            depth: self.depth,
            width: self.width,
            heads: self.heads,
            hidden: self.hidden(),
            eps: LAYER_NORM_EPS,
        }
    }

    /// Checks that the sizes fit each other.
    ///
    /// # Errors
    /// Names the sizes that do not, and what would.
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
        let positive = [
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("heads", self.heads),
            ("classes", self.classes),
            ("mlp_ratio x width", self.hidden()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, v)| *v == 0) {
            return Err(ShapeError::Zero { name });
        }
        divides("patch", self.patch, "image_size", self.image_size)?;
        divides("heads", self.heads, "width", self.width)
    }

    /// Names and shapes of all weights, as timm has them.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.outer_parameters();
        for l in 0..self.depth {
            for (name, shape) in BLOCK_TENSORS.iter().zip(self.block_dims()) {
                all.push((format!("blocks.{l}.{name}"), shape));
            }
        }
        all
    }

    /// Names and shapes of the stacked weights: see [`stack`].
    pub fn stacked_parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.outer_parameters();
        for (name, shape) in BLOCK_TENSORS.iter().zip(self.block_dims()) {
            all.push((
                format!("blocks.{name}"),
                [&[self.depth], &shape[..]].concat(),
            ));
        }
        all
    }

    /// The number of values in all weights.
    pub fn parameter_count(&self) -> usize {
        self.parameters()
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum()
    }

    /// Multiply-adds of one forward pass of one image.
    pub fn multiply_adds(&self) -> usize {
        let (n, d, h) = (self.tokens(), self.width, self.hidden());
        let block = n * (4 * d * d + 2 * d * h) + 2 * n * n * d;
        let patches = self.grid() * self.grid() * self.channels * self.patch * self.patch * d;
        self.depth * block + patches + d * self.classes
    }

    fn outer_parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (d, p, norm) = (self.width, self.patch, self.final_norm());
        let mut all = vec![
            ("pos_embed".into(), vec![1, self.tokens(), d]),
            (
                "patch_embed.proj.weight".into(),
                vec![d, self.channels, p, p],
            ),
            ("patch_embed.proj.bias".into(), vec![d]),
            (format!("{norm}.weight"), vec![d]),
            (format!("{norm}.bias"), vec![d]),
            ("head.weight".into(), vec![self.classes, d]),
            ("head.bias".into(), vec![self.classes]),
        ];
        if self.class_token {
            all.insert(0, ("cls_token".into(), vec![1, 1, d]));
        }
        all
    }

    /// Shapes of [`BLOCK_TENSORS`].
    fn block_dims(&self) -> [Vec<usize>; 12] {
        let (d, h) = (self.width, self.hidden());
        [
            vec![d],
            vec![d],
            vec![3 * d, d],
            vec![3 * d],
            vec![d, d],
            vec![d],
            vec![d],
            vec![d],
            vec![h, d],
            vec![h],
            vec![d, h],
            vec![d],
        ]
    }

    /// Reads the sizes off timm-named weights. Heads leave no trace in the weights: they are
    /// `heads`, or as many as have width 64 if that is `None`.
    ///
    /// # Errors
    /// If the weights are not those of a vision transformer, named with what is missing or
    /// misshaped.
    pub fn infer(
        weights: &Weights,
        heads: Option<usize>,
    ) -> std::result::Result<VitShape, ShapeError> {
        let dims = |name: &str, rank: usize| match weights.get(name) {
            None => Err(ShapeError::Missing {
                name: name.to_string(),
            }),
            Some(t) if t.rank() != rank => Err(ShapeError::Misshapen {
                name: name.to_string(),
                found: t.dims().to_vec(),
                expected: vec![0; rank],
            }),
            Some(t) => Ok(t.dims().to_vec()),
        };
        let patch = dims("patch_embed.proj.weight", 4)?;
        let positions = dims("pos_embed", 3)?;
        let head = dims("head.weight", 2)?;
        let fc1 = dims("blocks.0.mlp.fc1.weight", 2)?;
        let class_token = weights.contains_key("cls_token");
        let grid = (positions[1].saturating_sub(usize::from(class_token)) as f64).sqrt() as usize;
        let depth = (0..)
            .take_while(|l| weights.contains_key(&format!("blocks.{l}.attn.qkv.weight")))
            .count();
        let shape = VitShape {
            image_size: grid * patch[2],
            channels: patch[1],
            patch: patch[2],
            depth,
            width: patch[0],
            heads: heads.unwrap_or(patch[0] / 64).max(1),
            mlp_ratio: fc1[0] as f64 / patch[0].max(1) as f64,
            classes: head[0],
            class_token,
        };
        shape.validate()?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }
}

/// Checks that `weights` holds exactly the named tensors, with these shapes.
///
/// # Errors
/// The first that is missing, misshaped or too many.
pub fn check_weights(
    weights: &Weights,
    parameters: &[(String, Vec<usize>)],
) -> std::result::Result<(), ShapeError> {
    for (name, expected) in parameters {
        match weights.get(name) {
            None => return Err(ShapeError::Missing { name: name.clone() }),
            Some(t) if t.dims() != expected => {
                return Err(ShapeError::Misshapen {
                    name: name.clone(),
                    found: t.dims().to_vec(),
                    expected: expected.clone(),
                });
            }
            Some(_) => {}
        }
    }
    match weights
        .keys()
        .find(|name| !parameters.iter().any(|(n, _)| n == *name))
    {
        Some(name) => Err(ShapeError::Unexpected { name: name.clone() }),
        None => Ok(()),
    }
}

fn divides(
    name: &'static str,
    divisor: usize,
    of: &'static str,
    value: usize,
) -> std::result::Result<(), ShapeError> {
    if value.is_multiple_of(divisor) {
        return Ok(());
    }
    let below = value - value % divisor;
    let nearest = if below == 0 { divisor } else { below };
    Err(ShapeError::NotDivisible {
        name,
        divisor,
        of,
        value,
        nearest,
        above: below + divisor,
    })
}

/// Joins the layers of each kind: `blocks.{l}.NAME` (..) become `blocks.NAME` (depth, ..).
/// Everything else is kept.
///
/// # Errors
/// If a layer's tensor is missing or of another shape than its siblings.
pub fn stack(weights: &Weights, depth: usize) -> Result<Weights> {
    let mut out: Weights = weights
        .iter()
        .filter(|(name, _)| !name.starts_with("blocks."))
        .map(|(name, t)| (name.clone(), t.clone()))
        .collect();
    for tensor in BLOCK_TENSORS {
        let layers: Vec<&Tensor> = (0..depth)
            .map(|l| {
                let name = format!("blocks.{l}.{tensor}");
                weights
                    .get(&name)
                    .ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {name}")))
            })
            .collect::<Result<_>>()?;
        out.insert(format!("blocks.{tensor}"), Tensor::stack(&layers, 0)?);
    }
    Ok(out)
}

/// The inverse of [`stack`]: every layer gets tensors of its own.
pub fn unstack(weights: &Weights) -> Result<Weights> {
    let mut out = Weights::new();
    for (name, t) in weights {
        match name.strip_prefix("blocks.") {
            Some(tensor) => {
                for l in 0..t.dim(0)? {
                    out.insert(format!("blocks.{l}.{tensor}"), t.get(l)?);
                }
            }
            None => {
                out.insert(name.clone(), t.clone());
            }
        }
    }
    Ok(out)
}

/// Scales of the residual branches for stochastic depth: (depth, 2, b), 0 with the layer's drop
/// probability and `1 / keep` otherwise. The probability rises linearly from 0 at the first layer
/// to `rate` at the last, as in timm. `uniform` draws from 0..1.
pub fn drop_path_scales(
    depth: usize,
    batch: usize,
    rate: f64,
    mut uniform: impl FnMut() -> f64,
) -> Vec<f32> {
    let mut scales = Vec::with_capacity(depth * 2 * batch);
    for l in 0..depth {
        let drop = rate * l as f64 / (depth.max(2) - 1) as f64;
        for _ in 0..2 * batch {
            let kept = uniform() >= drop;
            scales.push(if kept {
                (1.0 / (1.0 - drop)) as f32
            } else {
                0.0
            });
        }
    }
    scales
}

/// Class scores (b, classes) of `images` (b, channels, h, w) under stacked weights (see
/// [`stack`]). `drop_path` holds the scales of [`drop_path_scales`], in training.
///
/// # Errors
/// If a weight is missing, or shapes contradict `shape`.
pub fn logits(
    shape: &VitShape,
    weights: &Weights,
    images: &Tensor,
    drop_path: Option<Vec<f32>>,
) -> Result<Tensor> {
    let w = |name: &str| {
        weights
            .get(name)
            .ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {name}")))
    };
    let d = shape.width;
    let (_, c, h, width) = images.dims4()?;
    if (c, h, width) != (shape.channels, shape.image_size, shape.image_size) {
        candle_core::bail!(
            "images are {c} x {h} x {width}, the model takes {} x {s} x {s}",
            shape.channels,
            s = shape.image_size
        );
    }
    let patches = wave_ops::patchify(images, shape.patch)?; // (b, grid^2, channels p p)
    // One table for positions, patch bias and class token: (tokens, d).
    let positions = w("pos_embed")?.reshape(((), d))?;
    let bias = w("patch_embed.proj.bias")?;
    let table = if shape.class_token {
        let token = w("cls_token")?.reshape((1, d))?;
        let rows = bias
            .reshape((1, d))?
            .broadcast_as((shape.tokens() - 1, d))?;
        (positions + Tensor::cat(&[token, rows.contiguous()?], 0)?)?
    } else {
        positions.broadcast_add(bias)?
    };
    let patch_weight = w("patch_embed.proj.weight")?.reshape((d, ()))?;
    let x = wave_ops::embed(&patches, &patch_weight, &table)?; // (b, tokens, d)

    let parameters: Vec<Tensor> = BLOCK_TENSORS
        .iter()
        .map(|name| w(&format!("blocks.{name}")).cloned())
        .collect::<Result<_>>()?;
    let parameters: [Tensor; 12] = parameters
        .try_into()
        .map_err(|_| candle_core::Error::Msg("twelve tensors".into()))?;
    let x = wave_ops::blocks(&x, &parameters, shape.blocks(), drop_path)?;

    let pooled = if shape.class_token {
        x.narrow(1, 0, 1)?.squeeze(1)?
    } else {
        x.mean(1)?
    };
    let norm = shape.final_norm();
    let (weight, bias) = (w(&format!("{norm}.weight"))?, w(&format!("{norm}.bias"))?);
    let features = wave_ops::layer_norm(&pooled, weight, bias, LAYER_NORM_EPS)?; // (b, d)
    wave_ops::linear(&features, w("head.weight")?, w("head.bias")?)
}
