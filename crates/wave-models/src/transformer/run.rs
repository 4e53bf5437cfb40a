//! Forward passes of [`super`].

use super::rotary::Angles;
use super::{Between, Mlp, Pooling, Positions, Queries, Relative, TransformerShape};
use crate::fold::{Affine, get};
use crate::frozen::{self, Columns};
use crate::vit;
use crate::{About, Frozen};
use crate::{Activation, Weights, check_weights};
use candle_core::{D, DType, Device, Result, Tensor};
use wave_ancestors::in_parts;

/// Images per forward pass.
const IMAGES: usize = 32;

/// Tokens (b, tokens, d) before the blocks.
pub(super) fn embed(
    shape: &TransformerShape,
    weights: &Weights,
    images: &Tensor,
) -> Result<Tensor> {
    let (d, places) = (shape.width, shape.grid() * shape.grid());
    let kernel = get(weights, "patch_embed.proj.weight")?;
    let images = crate::checked_images(images, shape.channels, shape.image_size, kernel)?;
    let patches = wave_ops::patchify(&images, shape.patch)?; // (b, grid^2, channels p p)
    // One table for positions, patch bias and the prefix tokens: (tokens, d).
    let bias = match shape.patch_bias {
        true => get(weights, "patch_embed.proj.bias")?.clone(),
        false => Tensor::zeros(d, kernel.dtype(), kernel.device())?,
    };
    let of_patches = vit::repeated(&bias, places)?;
    let mut first = Vec::new();
    first.extend(shape.class_token.then_some("cls_token"));
    first.extend((shape.registers > 0).then_some("reg_token"));
    let rows = |of_patches: Tensor| vit::below(weights, &first, of_patches);
    let positions = || get(weights, "pos_embed")?.reshape(((), d));
    let table = match shape.positions {
        Positions::All => (positions()? + rows(of_patches)?)?,
        Positions::Patches => rows((positions()? + of_patches)?)?,
        Positions::None => rows(of_patches)?,
    };
    debug_assert_eq!(table.dims(), [shape.tokens(), d]);
    let kernel = kernel.reshape((d, ()))?;
    let x = wave_ops::embed(wave_ops::Precision::F32, &patches, &kernel, &table)?;
    match shape.norm_pre {
        true => norm(shape, weights, "norm_pre", &x),
        false => Ok(x),
    }
}

fn norm(shape: &TransformerShape, weights: &Weights, name: &str, x: &Tensor) -> Result<Tensor> {
    Affine::stored(weights, name)?.norm(x, shape.norm_eps)
}

/// The weights with layers stacked by kind.
pub(crate) fn stacked(shape: &TransformerShape, weights: &Weights) -> Result<Weights> {
    vit::stack_with(weights, shape.depth, shape.scales())
}

/// Arguments of [`wave_ops::blocks()`] from stacked weights. LayerScale is multiplied into the maps before
/// it, which changes none of the gradients.
pub(super) fn plain_parameters(
    shape: &TransformerShape,
    weights: &Weights,
) -> Result<[Tensor; 12]> {
    let parameter = |name: &str| -> Result<Tensor> {
        if name == "attn.qkv.bias" && shape.queries == Queries::Unbiased {
            let kernel = get(weights, "patch_embed.proj.weight")?;
            let sizes = (shape.depth, 3 * shape.width);
            return Tensor::zeros(sizes, kernel.dtype(), kernel.device());
        }
        let tensor = get(weights, &format!("blocks.{name}"))?;
        let gamma = match (shape.scales(), name) {
            ([first, _], "attn.proj.weight" | "attn.proj.bias") => first,
            ([_, second], "mlp.fc2.weight" | "mlp.fc2.bias") => second,
            _ => return Ok(tensor.clone()),
        };
        let gamma = get(weights, &format!("blocks.{gamma}"))?; // (depth, d)
        match tensor.rank() {
            3 => tensor.broadcast_mul(&gamma.unsqueeze(2)?),
            _ => tensor * gamma,
        }
    };
    vit::block_tensors(parameter)
}

/// Features (b, d) of the tokens (b, tokens, d) after the blocks; `latent` is the attention pooling, if there is any.
pub(super) fn pooled(
    shape: &TransformerShape,
    weights: &Weights,
    latent: Option<&Latent>,
    x: &Tensor,
) -> Result<Tensor> {
    let normed = |x: &Tensor| match shape.norm {
        true => norm(shape, weights, "norm", x),
        false => Ok(x.clone()),
    };
    let (_, n, _) = x.dims3()?;
    let token = || normed(&x.narrow(1, 0, 1)?.squeeze(1)?);
    let patches = || {
        let patches = x.narrow(1, shape.prefix(), n - shape.prefix())?;
        normed(&patches.contiguous()?)
    };
    let pooled = match (shape.pooling, latent) {
        (Pooling::Token, _) => token()?,
        (Pooling::Both, _) => Tensor::cat(&[token()?, patches()?.mean(1)?], 1)?,
        (_, Some(latent)) => latent.run(shape, &patches()?)?,
        (_, None) => patches()?.mean(1)?,
    };
    match shape.fc_norm {
        true => norm(shape, weights, "fc_norm", &pooled),
        false => Ok(pooled),
    }
}

/// Logits of features.
pub(super) fn head(
    shape: &TransformerShape,
    weights: &Weights,
    features: &Tensor,
) -> Result<Tensor> {
    debug_assert!(shape.classes > 0);
    let (weight, bias) = (get(weights, "head.weight")?, get(weights, "head.bias")?);
    wave_ops::linear(features, weight, bias)
}

/// A block with any of the optional parts.
pub(super) struct Layer {
    norms: [Affine; 2],
    /// Columns in the order head, part, channel; the queries (or their norm) are scaled by `1 / sqrt(head)`.
    qkv: Affine,
    qk_norms: Option<[Affine; 2]>,
    attention_norm: Option<Affine>,
    /// Attention bias (heads, tokens, tokens).
    bias: Tensor,
    proj: Affine,
    fc1: Affine,
    mlp_norm: Option<Affine>,
    fc2: Affine,
}

/// Attention pooling.
pub(super) struct Latent {
    /// The query (1, heads x head), scaled.
    query: Tensor,
    kv: Affine,
    proj: Affine,
    norm: Affine,
    fc1: Affine,
    fc2: Affine,
}

/// The blocks of a transformer.
enum Blocks {
    Plain(Box<[Tensor; 12]>),
    Any(Vec<Layer>, Option<Angles>),
}

/// An inference-only transformer with its weights.
pub(crate) struct Transformer {
    about: About,
    shape: TransformerShape,
    device: Device,
    /// Weights outside the blocks.
    weights: Weights,
    blocks: Blocks,
    latent: Option<Latent>,
}

impl Transformer {
    pub(crate) fn new(shape: &TransformerShape, weights: &Weights) -> Result<Transformer> {
        check_weights(weights, &shape.parameters()).map_err(candle_core::Error::wrap)?;
        let device = get(weights, "patch_embed.proj.weight")?.device().clone();
        let blocks = if shape.plain_blocks() {
            let parameters = plain_parameters(shape, &stacked(shape, weights)?)?;
            Blocks::Plain(Box::new(parameters))
        } else {
            let shared = relative(shape, weights, "rel_pos_bias", Relative::Shared)?;
            let layers = (0..shape.depth)
                .map(|l| Layer::new(shape, weights, l, shared.as_ref()))
                .collect::<Result<Vec<_>>>()?;
            let head = shape.width / shape.heads;
            let angles = shape
                .rotary
                .map(|rotary| Angles::new(rotary, shape.prefix(), shape.grid(), head, &device))
                .transpose()?;
            Blocks::Any(layers, angles)
        };
        let outer = weights
            .iter()
            .filter(|(name, _)| !name.starts_with("blocks."))
            .map(|(name, tensor)| (name.clone(), tensor.clone()));
        Ok(Transformer {
            about: shape.about(),
            latent: (shape.pooling == Pooling::Attention)
                .then(|| Latent::new(shape, weights))
                .transpose()?,
            shape: shape.clone(),
            device,
            weights: outer.collect(),
            blocks,
        })
    }

    fn some(&self, images: &Tensor) -> Result<Tensor> {
        let (shape, weights) = (&self.shape, &self.weights);
        let mut x = embed(shape, weights, images)?;
        match &self.blocks {
            Blocks::Plain(parameters) => {
                let exact = wave_ops::Precision::F32;
                x = wave_ops::blocks(exact, &x, parameters, shape.blocks(), None)?;
            }
            Blocks::Any(layers, angles) => {
                for layer in layers {
                    x = layer.run(shape, angles.as_ref(), &x)?;
                }
            }
        }
        pooled(shape, weights, self.latent.as_ref(), &x)
    }
}

impl Frozen for Transformer {
    fn about(&self) -> &About {
        &self.about
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        let images = self.about.checked(images, &self.device)?;
        in_parts(&images, IMAGES, |images| self.some(images))
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        match self.shape.classes {
            0 => self.about.headless(),
            _ => head(&self.shape, &self.weights, &self.features(images)?),
        }
    }
}

impl Layer {
    pub(super) fn new(
        shape: &TransformerShape,
        weights: &Weights,
        l: usize,
        shared: Option<&Tensor>,
    ) -> Result<Layer> {
        let named = |part: &str| get(weights, &format!("blocks.{l}.{part}"));
        let stored = |part: &str| Affine::stored(weights, &format!("blocks.{l}.{part}"));
        let (d, heads) = (shape.width, shape.heads);
        let head = d / heads;
        let norms = [stored("norm1")?, stored("norm2")?];
        let device = norms[0].weight.device();
        let zeros = |n: usize| Tensor::zeros(n, DType::F32, device);
        let joint = || named("attn.qkv.weight").cloned();
        let (weight, bias) = match shape.queries {
            Queries::Joint => (joint()?, named("attn.qkv.bias")?.clone()),
            Queries::Unbiased => (joint()?, zeros(3 * d)?),
            Queries::Biased => {
                let (q, v) = (named("attn.q_bias")?, named("attn.v_bias")?);
                (joint()?, Tensor::cat(&[q, &zeros(d)?, v], 0)?)
            }
            Queries::Separate(biased) => {
                let (mut weights, mut biases) = (Vec::new(), Vec::new());
                for part in ["q", "k", "v"] {
                    weights.push(named(&format!("attn.{part}_proj.weight"))?);
                    biases.push(match biased && part != "k" {
                        true => named(&format!("attn.{part}_proj.bias"))?.clone(),
                        false => zeros(d)?,
                    });
                }
                (Tensor::cat(&weights, 0)?, Tensor::cat(&biases, 0)?)
            }
        };
        let share = (head as f64).powf(-0.5);
        let share_of_map = if shape.qk_norm { 1.0 } else { share };
        let qkv = Affine {
            weight: by_head(&weight, heads, share_of_map)?,
            bias: by_head(&bias, heads, share_of_map)?,
        };
        let qk_norms = match shape.qk_norm {
            false => None,
            true => {
                let queries = stored("attn.q_norm")?;
                let queries = Affine {
                    weight: (queries.weight * share)?,
                    bias: (queries.bias * share)?,
                };
                Some([queries, stored("attn.k_norm")?])
            }
        };
        let map = |part: &str, gamma: Option<&str>| -> Result<Affine> {
            let mut map = stored(part)?;
            if let Some(gamma) = gamma {
                let gamma = named(gamma)?;
                map.weight = map.weight.broadcast_mul(&gamma.unsqueeze(1)?)?;
                map.bias = (map.bias * gamma)?;
            }
            map.columns()
        };
        let (first, second) = match *shape.scales() {
            [first, second] => (Some(first), Some(second)),
            _ => (None, None),
        };
        let fc1 = match shape.mlp {
            Mlp::Split => {
                let (gate, values) = (stored("mlp.fc1_g")?, stored("mlp.fc1_x")?);
                let both = Affine {
                    weight: Tensor::cat(&[gate.weight, values.weight], 0)?,
                    bias: Tensor::cat(&[gate.bias, values.bias], 0)?,
                };
                both.columns()?
            }
            _ => map("mlp.fc1", None)?,
        };
        let own = relative(shape, weights, &format!("blocks.{l}.attn"), Relative::Each)?;
        let bias = match own.as_ref().or(shared) {
            Some(bias) => bias.clone(),
            None => {
                let n = shape.tokens();
                Tensor::zeros((heads, n, n), DType::F32, device)?
            }
        };
        Ok(Layer {
            norms,
            qkv: qkv.columns()?,
            qk_norms,
            attention_norm: shape
                .attention_norm
                .then(|| stored("attn.norm"))
                .transpose()?,
            bias,
            proj: map("attn.proj", first)?,
            fc1,
            mlp_norm: shape.mlp_norm.then(|| stored("mlp.norm")).transpose()?,
            fc2: map("mlp.fc2", second)?,
        })
    }

    pub(super) fn run(
        &self,
        shape: &TransformerShape,
        angles: Option<&Angles>,
        x: &Tensor,
    ) -> Result<Tensor> {
        let (eps, none) = (shape.norm_eps, Activation::Identity);
        let (b, n, d) = x.dims3()?;
        let (heads, head) = (shape.heads, d / shape.heads);
        let qkv = self.qkv.linear(&self.norms[0].norm(x, eps)?, none)?;
        let changed = |part: usize| -> Result<Option<Tensor>> {
            if self.qk_norms.is_none() && angles.is_none() {
                return Ok(None);
            }
            let mut x = qkv
                .reshape((b, n, heads, 3 * head))?
                .narrow(3, part * head, head)?
                .contiguous()?;
            if let Some(norms) = &self.qk_norms {
                x = norms[part].norm(&x, eps)?;
            }
            if let Some(angles) = angles {
                x = angles.rotate(&x)?;
            }
            x.reshape((b, n, d)).map(Some)
        };
        let (q, k) = (changed(0)?, changed(1)?);
        let (q, k, v) = (
            columns(q.as_ref(), &qkv, 0, head),
            columns(k.as_ref(), &qkv, 1, head),
            columns(None, &qkv, 2, head),
        );
        // A text may have fewer tokens than the bias covers.
        let bias = self.bias.narrow(1, 0, n)?.narrow(2, 0, n)?.contiguous()?;
        let mut mixed = frozen::attention(q, k, v, &bias, (head, head), none)?;
        if let Some(norm) = &self.attention_norm {
            mixed = norm.norm(&mixed, eps)?;
        }
        let x = self.proj.onto(x, &mixed)?;
        let inner = self.norms[1].norm(&x, eps)?;
        let mut inner = match (shape.mlp, shape.between) {
            (Mlp::Plain, between) => activated(between, &inner, &self.fc1)?,
            _ => {
                let both = self.fc1.linear(&inner, none)?;
                let half = shape.hidden;
                let gate = both.narrow(D::Minus1, 0, half)?.contiguous()?.silu()?;
                (gate * both.narrow(D::Minus1, half, half)?.contiguous()?)?
            }
        };
        if let Some(norm) = &self.mlp_norm {
            inner = norm.norm(&inner, eps)?;
        }
        self.fc2.onto(&x, &inner)
    }
}

/// The columns of queries, keys or values (`part` of three): in their own tensor if they were changed, else
/// within the joint tensor.
fn columns<'a>(own: Option<&'a Tensor>, all: &'a Tensor, part: usize, head: usize) -> Columns<'a> {
    match own {
        Some(tokens) => Columns {
            tokens,
            offset: 0,
            per_head: head,
        },
        None => Columns {
            tokens: all,
            offset: part * head,
            per_head: 3 * head,
        },
    }
}

/// A linear map followed by the activation.
fn activated(between: Between, x: &Tensor, map: &Affine) -> Result<Tensor> {
    let identity = || map.linear(x, Activation::Identity);
    match between {
        Between::Gelu => map.linear(x, Activation::Gelu),
        Between::GeluTanh => identity()?.gelu(),
        Between::QuickGelu => {
            let y = identity()?;
            // silu(1.702 y) = 1.702 y sigmoid(1.702 y)
            (&y * 1.702)?.silu()? / 1.702
        }
    }
}

/// Reorders the rows of a map or bias from (part, head, channel) to (head, part, channel), with queries
/// scaled by `share`.
fn by_head(rows: &Tensor, heads: usize, share: f64) -> Result<Tensor> {
    let d = rows.dim(0)? / 3;
    let rest: usize = rows.dims()[1..].iter().product();
    let queries = (rows.narrow(0, 0, d)? * share)?;
    let all = Tensor::cat(&[queries, rows.narrow(0, d, 2 * d)?], 0)?;
    all.reshape((3, heads, d / heads, rest))?
        .transpose(0, 1)?
        .contiguous()?
        .reshape(rows.shape())
}

/// Relative position biases (heads, tokens, tokens), if there is a table of this kind. Its row `i` is for
/// patches `dy` and `dx` apart, `i = (dy + g - 1) (2 g - 1) + dx + g - 1`; the last three rows are for the
/// class token attending to patches, patches attending to it, and it to itself.
fn relative(
    shape: &TransformerShape,
    weights: &Weights,
    module: &str,
    kind: Relative,
) -> Result<Option<Tensor>> {
    if shape.relative != kind {
        return Ok(None);
    }
    let table = get(weights, &format!("{module}.relative_position_bias_table"))?;
    let (g, rows) = (shape.grid(), table.dim(0)?);
    let n = g * g + 1;
    let mut places = Vec::with_capacity(n * n);
    for of in 0..n {
        for to in 0..n {
            places.push(match (of, to) {
                (0, 0) => rows - 1,
                (_, 0) => rows - 2,
                (0, _) => rows - 3,
                (of, to) => {
                    let ((y, x), (v, u)) =
                        (((of - 1) / g, (of - 1) % g), ((to - 1) / g, (to - 1) % g));
                    (y + g - 1 - v) * (2 * g - 1) + x + g - 1 - u
                }
            } as u32);
        }
    }
    let places = Tensor::from_vec(places, n * n, table.device())?;
    let biases = table.index_select(&places, 0)?; // (n n, heads)
    let biases = biases.t()?.contiguous()?.reshape((shape.heads, n, n))?;
    Ok(Some(biases))
}

impl Latent {
    fn new(shape: &TransformerShape, weights: &Weights) -> Result<Latent> {
        let stored = |part: &str| Affine::stored(weights, &format!("attn_pool.{part}"));
        let map = |part: &str| stored(part)?.columns();
        let latent = get(weights, "attn_pool.latent")?.reshape((1, shape.width))?;
        let query = stored("q")?;
        let share = ((shape.width / shape.heads) as f64).powf(-0.5);
        Ok(Latent {
            query: (wave_ops::linear(&latent, &query.weight, &query.bias)? * share)?,
            kv: map("kv")?,
            proj: map("proj")?,
            norm: stored("norm")?,
            fc1: map("mlp.fc1")?,
            fc2: map("mlp.fc2")?,
        })
    }

    /// Attention pooling of patches (b, n, d), giving (b, d).
    fn run(&self, shape: &TransformerShape, patches: &Tensor) -> Result<Tensor> {
        let (b, n, d) = patches.dims3()?;
        let (heads, head, none) = (shape.heads, d / shape.heads, Activation::Identity);
        let kv = self.kv.linear(patches, none)?; // (b, n, 2 d)
        let (k, v) = (
            kv.narrow(2, 0, d)?.contiguous()?,
            kv.narrow(2, d, d)?.contiguous()?,
        );
        let query = self.query.broadcast_as((b, 1, d))?.contiguous()?;
        let zeros = Tensor::zeros((heads, 1, n), DType::F32, patches.device())?;
        let own = |tokens| Columns {
            tokens,
            offset: 0,
            per_head: head,
        };
        let (q, k, v) = (own(&query), own(&k), own(&v));
        let mixed = frozen::attention(q, k, v, &zeros, (head, head), none)?;
        let x = self.proj.linear(&mixed, none)?;
        let inner = self.norm.norm(&x, shape.norm_eps)?;
        let inner = activated(shape.between, &inner, &self.fc1)?;
        self.fc2.onto(&x, &inner)?.squeeze(1)
    }
}
