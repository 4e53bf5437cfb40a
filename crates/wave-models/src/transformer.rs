//! Vision transformers as used in practice: [`crate::vit`] with the later additions of each family, under
//! timm's names.
//!
//! ```text
//! x = [class token, registers, patches W^T] + positions;   x = norm_pre(x)
//! x = x + g1 proj(norm(attention(norm1(x))))       attention of queries and keys that may be normed
//! x = x + g2 fc2(norm(h));  h = act(fc1(norm2(x))) or silu(a) b       and rotated by their positions
//! f = fc_norm(pool(norm(x)));  z = head(f)
//! ```
//!
//! `g1` and `g2` are LayerScale. Every part is optional except the linear maps of the blocks.
//!
//! | family | additions |
//! |---|---|
//! | DeiT III | LayerScale, a class token without a position |
//! | DINOv2 | LayerScale, registers, in its largest SwiGLU |
//! | CLIP | a norm before the blocks, patches without a bias, GELU as `x sigmoid(1.702 x)` |
//! | SigLIP | attention pooling, the approximate GELU |
//! | BEiT | relative position biases, biases of queries and values only, mean pooling despite a class token |
//! | EVA-02 | rotary positions, SwiGLU, norms inside |
//! | DINOv3 | rotary positions over -1 to 1, registers, no learned positions |
//!
//! All of them support inference. Training requires the blocks of [`wave_ops::blocks()`] (after LayerScale is
//! multiplied into the maps before it): see [`TransformerShape::trains`].

mod read;
mod rotary;
mod run;

use crate::check::affine;
use crate::fold::Affine;
use crate::vit::{LAYER_NORM_EPS, LAYER_SCALES};
use crate::{About, Weights};
use candle_core::{Result, Tensor};
use wave_ops::{BlocksShape, Mode};

pub(crate) use read::{differs, recognise};
pub use rotary::Rotary;
pub(crate) use run::{Layer, Transformer};

/// Learned position embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Positions {
    /// There are none.
    None,
    /// Positions of patches; tokens before them have none (timm's `no_embed_class`).
    Patches,
    /// Positions of all tokens.
    #[default]
    All,
}

/// Biases of attention scores by the relative position of two patches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Relative {
    /// There are none.
    #[default]
    None,
    /// One table per block.
    Each,
    /// One table for all blocks.
    Shared,
}

/// The linear maps to queries, keys and values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queries {
    /// One map, `qkv`, with a bias.
    #[default]
    Joint,
    /// One map without a bias.
    Unbiased,
    /// One map, with `q_bias` and `v_bias`.
    Biased,
    /// Three maps; the keys' has no bias, the others have one if this is true.
    Separate(bool),
}

/// The names of LayerScale's tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// There is none.
    #[default]
    None,
    /// `ls1.gamma` and `ls2.gamma`.
    Module,
    /// `gamma_1` and `gamma_2`.
    Parameter,
}

/// The MLP of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mlp {
    /// `act(fc1(x))`.
    #[default]
    Plain,
    /// `silu(a) b`, both halves of `fc1(x)`.
    Packed,
    /// `silu(fc1_g(x)) fc1_x(x)`.
    Split,
}

/// Activation between the maps of an ungated MLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Between {
    /// `x Phi(x)`.
    #[default]
    Gelu,
    /// Its approximation by the hyperbolic tangent.
    GeluTanh,
    /// Its approximation `x sigmoid(1.702 x)`.
    QuickGelu,
}

/// Pooling of tokens into features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The first token.
    #[default]
    Token,
    /// The mean of patches.
    Mean,
    /// Attention pooling: attention of a learned query over patches, or over all tokens
    /// ([`TransformerShape::pools_prefix`]).
    Attention,
    /// The first token, concatenated with the mean of patches.
    Both,
}

/// The sizes and parts of a transformer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TransformerShape {
    /// The family's name, with an article.
    pub family: &'static str,
    /// Side of the square input, in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Side of a square patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Hidden channels of the MLP; of one half if it is gated.
    pub hidden: usize,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
    /// Epsilon of the layer norms.
    pub norm_eps: f64,
    /// True if there is a class token.
    pub class_token: bool,
    /// Register tokens.
    pub registers: usize,
    /// True if the patch embedding has a bias.
    pub patch_bias: bool,
    /// Learned positions.
    pub positions: Positions,
    /// Rotary position embedding of queries and keys.
    pub rotary: Option<Rotary>,
    /// Biases of attention scores.
    pub relative: Relative,
    /// The maps to queries, keys and values.
    pub queries: Queries,
    /// True if queries and keys are normalised, head by head.
    pub qk_norm: bool,
    /// True if the output of attention is normalised.
    pub attention_norm: bool,
    /// True if the MLP's hidden values are normalised.
    pub mlp_norm: bool,
    /// LayerScale.
    pub scale: Scale,
    /// The MLP.
    pub mlp: Mlp,
    /// Activation between its maps.
    pub between: Between,
    /// True if there is a norm before the blocks.
    pub norm_pre: bool,
    /// True if tokens are normalised before pooling.
    pub norm: bool,
    /// True if the features are normalised after pooling.
    pub fc_norm: bool,
    /// Pooling of tokens into features.
    pub pooling: Pooling,
    /// True if attention pooling covers all tokens, not only patches.
    pub pools_prefix: bool,
    /// Hidden channels of the MLP in attention pooling.
    pub pooling_hidden: usize,
}

impl TransformerShape {
    /// Its family and sizes.
    pub fn about(&self) -> About {
        About {
            family: self.family,
            depth: self.depth,
            width: self.features(),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// Channels of the features.
    pub fn features(&self) -> usize {
        match self.pooling {
            Pooling::Both => 2 * self.width,
            _ => self.width,
        }
    }

    /// Patches along a side.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch.max(1)
    }

    /// Tokens before the patch tokens.
    pub fn prefix(&self) -> usize {
        usize::from(self.class_token) + self.registers
    }

    /// Tokens that enter the blocks.
    pub fn tokens(&self) -> usize {
        self.grid() * self.grid() + self.prefix()
    }

    /// The parts that a plain vision transformer lacks, in words.
    pub fn parts(&self) -> Vec<String> {
        let registers = format!("{} register tokens", self.registers);
        let eps = format!("a layer norm epsilon of {:e}", self.norm_eps);
        let (plain, class_token) = (self.mlp == Mlp::Plain, self.class_token);
        let (relative, positions) = (self.relative, self.positions);
        let (between, pooling) = (self.between, self.pooling);
        let unplaced = class_token && positions == Positions::Patches;
        let unbiased = self.queries != Queries::Joint;
        let averaged = class_token && pooling == Pooling::Mean;
        let both = pooling == Pooling::Both;
        let parts = [
            (self.scale != Scale::None, "LayerScale"),
            (self.registers > 0, registers.as_str()),
            (self.rotary.is_some(), "rotary positions"),
            (relative != Relative::None, "relative position biases"),
            (positions == Positions::None, "no learned positions"),
            (unplaced, "a class token without a position"),
            (self.qk_norm, "norms of queries and keys (QK-norm)"),
            (unbiased, "queries, keys or values without a bias"),
            (self.attention_norm, "norms inside attention"),
            (self.mlp_norm, "norms inside MLPs"),
            (!plain, "SwiGLU"),
            (plain && between == Between::GeluTanh, "tanh GELU"),
            (plain && between == Between::QuickGelu, "QuickGELU"),
            (self.norm_pre, "a norm before the blocks"),
            (averaged, "mean pooling of patches beside a class token"),
            (pooling == Pooling::Attention, "attention pooling"),
            (both, "class token and mean of patches classified together"),
            (!(self.norm || self.fc_norm), "no norm after the blocks"),
            (self.norm_eps != LAYER_NORM_EPS, eps.as_str()),
            (self.classes == 0, "no classifier"),
        ];
        let there = parts.into_iter().filter(|(there, _)| *there);
        there.map(|(_, part)| part.to_owned()).collect()
    }

    /// True if [`wave_ops::blocks()`] can compute its blocks, once LayerScale is multiplied into the maps before it.
    fn plain_blocks(&self) -> bool {
        self.rotary.is_none()
            && self.relative == Relative::None
            && matches!(self.queries, Queries::Joint | Queries::Unbiased)
            && !(self.qk_norm || self.attention_norm || self.mlp_norm)
            && self.mlp == Mlp::Plain
            && self.between == Between::Gelu
    }

    /// True if it is trainable: gradients flow through [`logits_in`], and timm's `vit_tiny_patch16_224` with
    /// arguments is the same network, so that it can be written. If not, [`TransformerShape::parts`] lists
    /// the reasons.
    pub fn trains(&self) -> bool {
        self.plain_blocks()
            && self.queries == Queries::Joint
            && self.positions != Positions::None
            && !matches!(self.pooling, Pooling::Attention | Pooling::Both)
            && (self.norm || self.fc_norm)
            && self.scale != Scale::Parameter
            && self.norm_eps == LAYER_NORM_EPS
    }

    /// The sizes of the blocks.
    fn blocks(&self) -> BlocksShape {
        BlocksShape {
            depth: self.depth,
            width: self.width,
            heads: self.heads,
            hidden: self.hidden,
            eps: self.norm_eps,
        }
    }

    /// Names and shapes of all weights.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (d, p, m) = (self.width, self.patch, self.pooling_hidden);
        let positions = match self.positions {
            Positions::None => 0,
            Positions::Patches => self.grid() * self.grid(),
            Positions::All => self.tokens(),
        };
        let (patches, biased) = (vec![d, self.channels, p, p], self.patch_bias);
        let shared = self.relative == Relative::Shared;
        let table = vec![self.distances(), self.heads];
        let pools = self.pooling == Pooling::Attention;
        let (n, features) = (self.classes, self.features());
        let mut all = named(
            "",
            vec![
                (self.class_token, "cls_token", vec![1, 1, d]),
                (self.registers > 0, "reg_token", vec![1, self.registers, d]),
                (positions > 0, "pos_embed", vec![1, positions, d]),
                (!biased, "patch_embed.proj.weight", patches.clone()),
                (shared, "rel_pos_bias.relative_position_bias_table", table),
                (pools, "attn_pool.latent", vec![1, 1, d]),
            ],
            vec![
                (biased, "patch_embed.proj", patches),
                (self.norm_pre, "norm_pre", vec![d]),
                (self.norm, "norm", vec![d]),
                (self.fc_norm, "fc_norm", vec![d]),
                (pools, "attn_pool.q", vec![d, d]),
                (pools, "attn_pool.kv", vec![2 * d, d]),
                (pools, "attn_pool.proj", vec![d, d]),
                (pools, "attn_pool.norm", vec![d]),
                (pools, "attn_pool.mlp.fc1", vec![m, d]),
                (pools, "attn_pool.mlp.fc2", vec![d, m]),
                (n > 0, "head", vec![n, features]),
            ],
        );
        all.extend((0..self.depth).flat_map(|l| self.block_parameters(&format!("blocks.{l}."))));
        all
    }

    /// Names and shapes of the weights of a block, after this prefix.
    fn block_parameters(&self, prefix: &str) -> Vec<(String, Vec<usize>)> {
        let (d, h, head) = (self.width, self.hidden, self.width / self.heads.max(1));
        let (queries, mlp) = (self.queries, self.mlp);
        let (separate, biased) = match queries {
            Queries::Separate(biased) => (true, biased),
            _ => (false, false),
        };
        let one = matches!(queries, Queries::Unbiased | Queries::Biased);
        let apart = queries == Queries::Biased;
        let each = self.relative == Relative::Each;
        let table = vec![self.distances(), self.heads];
        let mut weights = vec![
            (one, "attn.qkv.weight", vec![3 * d, d]),
            (apart, "attn.q_bias", vec![d]),
            (apart, "attn.v_bias", vec![d]),
            (separate, "attn.k_proj.weight", vec![d, d]),
            (separate && !biased, "attn.q_proj.weight", vec![d, d]),
            (separate && !biased, "attn.v_proj.weight", vec![d, d]),
            (each, "attn.relative_position_bias_table", table),
        ];
        weights.extend(self.scales().iter().map(|scale| (true, *scale, vec![d])));
        let maps = vec![
            (true, "norm1", vec![d]),
            (self.qk_norm, "attn.q_norm", vec![head]),
            (self.qk_norm, "attn.k_norm", vec![head]),
            (self.attention_norm, "attn.norm", vec![d]),
            (true, "norm2", vec![d]),
            (self.mlp_norm, "mlp.norm", vec![h]),
            (queries == Queries::Joint, "attn.qkv", vec![3 * d, d]),
            (biased, "attn.q_proj", vec![d, d]),
            (biased, "attn.v_proj", vec![d, d]),
            (true, "attn.proj", vec![d, d]),
            (mlp == Mlp::Plain, "mlp.fc1", vec![h, d]),
            (mlp == Mlp::Packed, "mlp.fc1", vec![2 * h, d]),
            (mlp == Mlp::Split, "mlp.fc1_g", vec![h, d]),
            (mlp == Mlp::Split, "mlp.fc1_x", vec![h, d]),
            (true, "mlp.fc2", vec![d, h]),
        ];
        named(prefix, weights, maps)
    }

    /// Rows of a table of relative position biases.
    fn distances(&self) -> usize {
        (2 * self.grid()).saturating_sub(1).pow(2) + 3
    }

    /// The names of LayerScale's tensors in a block.
    fn scales(&self) -> &'static [&'static str] {
        match self.scale {
            Scale::None => &[],
            Scale::Module => &LAYER_SCALES[..2],
            Scale::Parameter => &LAYER_SCALES[2..],
        }
    }
}

/// Names, after a prefix, and shapes of tensors, and of maps and norms with a bias: those whose first value is true.
fn named(
    prefix: &str,
    tensors: Vec<(bool, &str, Vec<usize>)>,
    biased: Vec<(bool, &str, Vec<usize>)>,
) -> Vec<(String, Vec<usize>)> {
    let mut all = Vec::new();
    for (_, name, dims) in tensors.into_iter().filter(|(there, ..)| *there) {
        all.push((format!("{prefix}{name}"), dims));
    }
    for (_, name, dims) in biased.into_iter().filter(|(there, ..)| *there) {
        all.extend(affine(&format!("{prefix}{name}"), dims));
    }
    all
}

/// Logits (b, classes) of `images` (b, channels, h, w) for a trainable transformer whose weights are stacked
/// by layer (see [`crate::vit::stack`]). `drop_path` holds the scales of [`crate::vit::drop_path_scales`].
///
/// # Errors
/// If a weight is missing, shapes contradict `shape`, or the network is not trainable.
pub fn logits_in(
    mode: impl Into<Mode>,
    shape: &TransformerShape,
    weights: &Weights,
    images: &Tensor,
    drop_path: Option<Vec<f32>>,
) -> Result<Tensor> {
    if !shape.trains() || shape.classes == 0 {
        let parts = shape.parts().join(", ");
        candle_core::bail!("{} with {parts} is inference-only", shape.family);
    }
    let x = shape.embed(weights, images)?;
    let parameters = shape.plain_parameters(weights)?;
    let x = wave_ops::blocks(mode, &x, &parameters, shape.blocks(), drop_path)?;
    Affine::stored(weights, "head")?.apply(&shape.pooled(weights, None, &x)?)
}
