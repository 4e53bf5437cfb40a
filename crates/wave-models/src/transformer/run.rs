//! Forward passes of [`super`].

use super::rotary::Angles;
use super::{Between, Mlp, Pooling, Positions, Queries, Relative, TransformerShape};
use crate::fold::{Affine, get};
use crate::frozen::{self, Columns};
use crate::vit;
use crate::{About, Activation, Frozen, Weights, check_weights};
use candle_core::{D, DType, Device, Result, Tensor};
use wave_ancestors::in_parts;

/// Images per forward pass.
const IMAGES: usize = 32;

impl TransformerShape {
    /// Tokens (b, tokens, d) before the blocks.
    pub(super) fn embed(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let (d, places) = (self.width, self.grid() * self.grid());
        let kernel = get(weights, "patch_embed.proj.weight")?;
        let images = crate::checked_images(images, self.channels, self.image_size, kernel)?;
        let patches = wave_ops::patchify(&images, self.patch)?; // (b, grid^2, channels p p)
        // One table for positions, patch bias and the prefix tokens: (tokens, d).
        let bias = match self.patch_bias {
            true => get(weights, "patch_embed.proj.bias")?.clone(),
            false => Tensor::zeros(d, kernel.dtype(), kernel.device())?,
        };
        let of_patches = vit::repeated(&bias, places)?;
        let mut first = Vec::new();
        first.extend(self.class_token.then_some("cls_token"));
        first.extend((self.registers > 0).then_some("reg_token"));
        let rows = |of_patches: Tensor| vit::below(weights, &first, of_patches);
        let positions = || get(weights, "pos_embed")?.reshape(((), d));
        let table = match self.positions {
            Positions::All => (positions()? + rows(of_patches)?)?,
            Positions::Patches => rows((positions()? + of_patches)?)?,
            Positions::None => rows(of_patches)?,
        };
        debug_assert_eq!(table.dims(), [self.tokens(), d]);
        let kernel = kernel.reshape((d, ()))?;
        let x = wave_ops::embed(wave_ops::Precision::F32, &patches, &kernel, &table)?;
        match self.norm_pre {
            true => self.norm_by(weights, "norm_pre", &x),
            false => Ok(x),
        }
    }

    fn norm_by(&self, weights: &Weights, name: &str, x: &Tensor) -> Result<Tensor> {
        Affine::stored(weights, name)?.norm(x, self.norm_eps)
    }

    /// Arguments of [`wave_ops::blocks()`] from stacked weights. LayerScale is multiplied into the maps before
    /// it, which changes none of the gradients.
    pub(super) fn plain_parameters(&self, weights: &Weights) -> Result<[Tensor; 12]> {
        let parameter = |name: &str| -> Result<Tensor> {
            if name == "attn.qkv.bias" && self.queries == Queries::Unbiased {
                let kernel = get(weights, "patch_embed.proj.weight")?;
                let sizes = (self.depth, 3 * self.width);
                return Tensor::zeros(sizes, kernel.dtype(), kernel.device());
            }
            let tensor = get(weights, &format!("blocks.{name}"))?;
            let gamma = match (self.scales(), name) {
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
        &self,
        weights: &Weights,
        latent: Option<&Latent>,
        x: &Tensor,
    ) -> Result<Tensor> {
        let normed = |x: &Tensor| match self.norm {
            true => self.norm_by(weights, "norm", x),
            false => Ok(x.clone()),
        };
        let n_patches = x.dim(1)? - self.prefix();
        let token = || normed(&x.narrow(1, 0, 1)?.squeeze(1)?);
        let patches = || normed(&x.narrow(1, self.prefix(), n_patches)?.contiguous()?);
        let pooled = match (self.pooling, latent) {
            (Pooling::Token, _) => token()?,
            (Pooling::Both, _) => Tensor::cat(&[token()?, patches()?.mean(1)?], 1)?,
            (_, Some(latent)) if self.pools_prefix => latent.run(self, &normed(x)?)?,
            (_, Some(latent)) => latent.run(self, &patches()?)?,
            (_, None) => patches()?.mean(1)?,
        };
        match self.fc_norm {
            true => self.norm_by(weights, "fc_norm", &pooled),
            false => Ok(pooled),
        }
    }

    /// Relative position biases (heads, tokens, tokens), if there is a table of this kind. Its row `i` is for
    /// patches `dy` and `dx` apart, `i = (dy + g - 1) (2 g - 1) + dx + g - 1`; the last three rows are for the
    /// class token attending to patches, patches attending to it, and it to itself.
    fn biases(&self, weights: &Weights, module: &str, kind: Relative) -> Result<Option<Tensor>> {
        if self.relative != kind {
            return Ok(None);
        }
        let table = get(weights, &format!("{module}.relative_position_bias_table"))?;
        let (g, rows) = (self.grid(), table.dim(0)?);
        let n = g * g + 1;
        let place = |at: usize| match (at / n, at % n) {
            (0, 0) => rows - 1,
            (_, 0) => rows - 2,
            (0, _) => rows - 3,
            (of, to) => {
                let ((y, x), (v, u)) = (((of - 1) / g, (of - 1) % g), ((to - 1) / g, (to - 1) % g));
                (y + g - 1 - v) * (2 * g - 1) + x + g - 1 - u
            }
        };
        let places: Vec<u32> = (0..n * n).map(|at| place(at) as u32).collect();
        let places = Tensor::from_vec(places, n * n, table.device())?;
        let biases = table.index_select(&places, 0)?; // (n n, heads)
        let biases = biases.t()?.contiguous()?;
        biases.reshape((self.heads, n, n)).map(Some)
    }
}

/// A block with any of the optional parts.
pub(crate) struct Layer {
    norms: [Affine; 2],
    /// Columns in the order head, part, channel; the queries (or their norm) are scaled by `1 / sqrt(head)`.
    qkv: Affine,
    qk_norms: Option<(Affine, Affine)>,
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

enum Blocks {
    Plain(Box<[Tensor; 12]>),
    Any(Vec<Layer>, Option<Angles>),
}

pub(crate) struct Transformer {
    shape: TransformerShape,
    device: Device,
    /// Weights outside the blocks.
    weights: Weights,
    blocks: Blocks,
    latent: Option<Latent>,
}

impl Transformer {
    pub(crate) fn new(shape: &TransformerShape, weights: &Weights) -> Result<Transformer> {
        check_weights(weights, &shape.parameters())?;
        let device = get(weights, "patch_embed.proj.weight")?.device().clone();
        let blocks = if shape.plain_blocks() {
            let parameters = shape.plain_parameters(&vit::stack(weights, shape.depth)?)?;
            Blocks::Plain(Box::new(parameters))
        } else {
            let (heads, n) = (shape.heads, shape.tokens());
            let shared = match shape.biases(weights, "rel_pos_bias", Relative::Shared)? {
                Some(biases) => biases,
                None => Tensor::zeros((heads, n, n), DType::F32, &device)?,
            };
            let layers = (0..shape.depth).map(|l| Layer::new(shape, weights, l, &shared));
            let layers = layers.collect::<Result<_>>()?;
            let head = shape.width / heads;
            let angles = |rotary| Angles::new(rotary, shape.prefix(), shape.grid(), head, &device);
            Blocks::Any(layers, shape.rotary.map(angles).transpose()?)
        };
        let pools = shape.pooling == Pooling::Attention;
        Ok(Transformer {
            latent: pools.then(|| Latent::new(shape, weights)).transpose()?,
            shape: shape.clone(),
            device,
            weights: vit::first_blocks(weights, 0),
            blocks,
        })
    }

    fn some(&self, images: &Tensor) -> Result<Tensor> {
        let (shape, weights) = (&self.shape, &self.weights);
        let mut x = shape.embed(weights, images)?;
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
        shape.pooled(weights, self.latent.as_ref(), &x)
    }
}

impl Frozen for Transformer {
    fn about(&self) -> About {
        self.shape.about()
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        let images = self.about().checked(images, &self.device)?;
        in_parts(&images, IMAGES, |images| self.some(images))
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        match self.shape.classes {
            0 => self.about().headless(),
            _ => Affine::stored(&self.weights, "head")?.apply(&self.features(images)?),
        }
    }
}

impl Layer {
    /// The block `l`; `shared` is the attention bias of a block without its own.
    pub(crate) fn new(
        shape: &TransformerShape,
        weights: &Weights,
        l: usize,
        shared: &Tensor,
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
        let when = |there: bool, norm: &str| there.then(|| stored(norm)).transpose();
        let mut q_norm = when(shape.qk_norm, "attn.q_norm")?;
        if let Some(norm) = &mut q_norm {
            norm.weight = (&norm.weight * share)?;
            norm.bias = (&norm.bias * share)?;
        }
        let qk_norms = q_norm.zip(when(shape.qk_norm, "attn.k_norm")?);
        let map = |part: &str, gamma: Option<&str>| -> Result<Affine> {
            let mut map = stored(part)?;
            if let Some(gamma) = gamma {
                let gamma = named(gamma)?;
                map.weight = map.weight.broadcast_mul(&gamma.unsqueeze(1)?)?;
                map.bias = (map.bias * gamma)?;
            }
            map.columns()
        };
        let scales = shape.scales();
        let (first, second) = (scales.first().copied(), scales.get(1).copied());
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
        let own = shape.biases(weights, &format!("blocks.{l}.attn"), Relative::Each)?;
        Ok(Layer {
            norms,
            qkv: qkv.columns()?,
            qk_norms,
            attention_norm: when(shape.attention_norm, "attn.norm")?,
            bias: own.unwrap_or_else(|| shared.clone()),
            proj: map("attn.proj", first)?,
            fc1,
            mlp_norm: when(shape.mlp_norm, "mlp.norm")?,
            fc2: map("mlp.fc2", second)?,
        })
    }

    /// Tokens (b, n, d) after the block.
    pub(crate) fn run(
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
            if let Some((q_norm, k_norm)) = &self.qk_norms {
                x = [q_norm, k_norm][part].norm(&x, eps)?;
            }
            if let Some(angles) = angles {
                x = angles.rotate(&x)?;
            }
            x.reshape((b, n, d)).map(Some)
        };
        // In their own tensor if they were changed, else within the joint one.
        let joint = |part: usize| Columns::new(&qkv, part * head, 3 * head);
        let (q, k) = (changed(0)?, changed(1)?);
        let q = q.as_ref().map_or(joint(0), |q| Columns::new(q, 0, head));
        let k = k.as_ref().map_or(joint(1), |k| Columns::new(k, 0, head));
        // A text may have fewer tokens than the bias covers.
        let bias = self.bias.narrow(1, 0, n)?.narrow(2, 0, n)?.contiguous()?;
        let mut mixed = frozen::attention(q, k, joint(2), &bias, (head, head), none)?;
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

impl Latent {
    fn new(shape: &TransformerShape, weights: &Weights) -> Result<Latent> {
        let stored = |part: &str| Affine::stored(weights, &format!("attn_pool.{part}"));
        let map = |part: &str| stored(part)?.columns();
        let latent = get(weights, "attn_pool.latent")?.reshape((1, shape.width))?;
        let share = ((shape.width / shape.heads) as f64).powf(-0.5);
        Ok(Latent {
            query: (stored("q")?.apply(&latent)? * share)?,
            kv: map("kv")?,
            proj: map("proj")?,
            norm: stored("norm")?,
            fc1: map("mlp.fc1")?,
            fc2: map("mlp.fc2")?,
        })
    }

    /// Attention pooling of tokens (b, n, d), giving (b, d).
    fn run(&self, shape: &TransformerShape, tokens: &Tensor) -> Result<Tensor> {
        let (b, n, d) = tokens.dims3()?;
        let (heads, head, none) = (shape.heads, d / shape.heads, Activation::Identity);
        let kv = self.kv.linear(tokens, none)?; // (b, n, 2 d)
        let (k, v) = (kv.narrow(2, 0, d)?, kv.narrow(2, d, d)?);
        let (k, v) = (k.contiguous()?, v.contiguous()?);
        let query = self.query.broadcast_as((b, 1, d))?.contiguous()?;
        let zeros = Tensor::zeros((heads, 1, n), DType::F32, tokens.device())?;
        let [q, k, v] = [&query, &k, &v].map(|tokens| Columns::new(tokens, 0, head));
        let mixed = frozen::attention(q, k, v, &zeros, (head, head), none)?;
        let x = self.proj.linear(&mixed, none)?;
        let inner = self.norm.norm(&x, shape.norm_eps)?;
        let inner = activated(shape.between, &inner, &self.fc1)?;
        self.fc2.onto(&x, &inner)?.squeeze(1)
    }
}
