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
use crate::vit::LAYER_NORM_EPS;
use crate::{About, Weights};
use candle_core::{Result, Tensor};
use wave_ops::{BlocksShape, Mode};

pub(crate) use read::{of_name, recognise};
pub use rotary::Rotary;
pub(crate) use run::{Layer, Transformer};

/// Learned position embeddings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// There are none.
    None,
    /// Positions of patches; tokens before them have none (timm's `no_embed_class`).
    Patches,
    /// Positions of all tokens.
    All,
}

/// Biases of attention scores by the relative position of two patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    /// There are none.
    None,
    /// One table per block.
    Each,
    /// One table for all blocks.
    Shared,
}

/// The linear maps to queries, keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queries {
    /// One map, `qkv`, with a bias.
    Joint,
    /// One map without a bias.
    Unbiased,
    /// One map, with `q_bias` and `v_bias`.
    Biased,
    /// Three maps; the keys' has no bias, the others have one if this is true.
    Separate(bool),
}

/// The names of LayerScale's tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// There is none.
    None,
    /// `ls1.gamma` and `ls2.gamma`.
    Module,
    /// `gamma_1` and `gamma_2`.
    Parameter,
}

/// The MLP of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlp {
    /// `act(fc1(x))`.
    Plain,
    /// `silu(a) b`, both halves of `fc1(x)`.
    Packed,
    /// `silu(fc1_g(x)) fc1_x(x)`.
    Split,
}

/// Activation between the maps of an ungated MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// `x Phi(x)`.
    Gelu,
    /// Its approximation by the hyperbolic tangent.
    GeluTanh,
    /// Its approximation `x sigmoid(1.702 x)`.
    QuickGelu,
}

/// Pooling of tokens into features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first token.
    Token,
    /// The mean of patches.
    Mean,
    /// Attention pooling: attention of a learned query over patches.
    Attention,
    /// The first token, concatenated with the mean of patches.
    Both,
}

/// The sizes and parts of a transformer.
#[derive(Clone, Debug, PartialEq)]
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
        let parts = [
            (self.scale != Scale::None, "LayerScale"),
            (self.registers > 0, registers.as_str()),
            (self.rotary.is_some(), "rotary positions"),
            (relative != Relative::None, "relative position biases"),
            (positions == Positions::None, "no learned positions"),
            (
                class_token && positions == Positions::Patches,
                "a class token without a position",
            ),
            (self.qk_norm, "norms of queries and keys (QK-norm)"),
            (
                self.queries != Queries::Joint,
                "queries, keys or values without a bias",
            ),
            (self.attention_norm, "norms inside attention"),
            (self.mlp_norm, "norms inside MLPs"),
            (!plain, "SwiGLU"),
            (plain && between == Between::GeluTanh, "tanh GELU"),
            (plain && between == Between::QuickGelu, "QuickGELU"),
            (self.norm_pre, "a norm before the blocks"),
            (
                class_token && pooling == Pooling::Mean,
                "mean pooling of patches beside a class token",
            ),
            (pooling == Pooling::Attention, "attention pooling"),
            (
                pooling == Pooling::Both,
                "class token and mean of patches classified together",
            ),
            (!(self.norm || self.fc_norm), "no norm after the blocks"),
            (self.norm_eps != LAYER_NORM_EPS, eps.as_str()),
            (self.classes == 0, "no classifier"),
        ];
        let there = parts.into_iter().filter(|(there, _)| *there);
        there.map(|(_, part)| part.to_owned()).collect()
    }

    /// True if [`wave_ops::blocks()`] can compute its blocks, once LayerScale is multiplied into the maps
    /// before it.
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
        let (d, p, h) = (self.width, self.patch, self.hidden);
        let mut all = Vec::new();
        let mut one = |name: &str, dims: Vec<usize>| all.push((name.to_owned(), dims));
        if self.class_token {
            one("cls_token", vec![1, 1, d]);
        }
        if self.registers > 0 {
            one("reg_token", vec![1, self.registers, d]);
        }
        let places = self.grid() * self.grid();
        match self.positions {
            Positions::None => {}
            Positions::Patches => one("pos_embed", vec![1, places, d]),
            Positions::All => one("pos_embed", vec![1, self.tokens(), d]),
        }
        one("patch_embed.proj.weight", vec![d, self.channels, p, p]);
        if self.patch_bias {
            one("patch_embed.proj.bias", vec![d]);
        }
        let distances = (2 * self.grid()).saturating_sub(1).pow(2) + 3;
        if self.relative == Relative::Shared {
            let name = "rel_pos_bias.relative_position_bias_table";
            one(name, vec![distances, self.heads]);
        }
        for l in 0..self.depth {
            let name = |part: &str| format!("blocks.{l}.{part}");
            for (there, norm, width) in [
                (true, "norm1", d),
                (self.qk_norm, "attn.q_norm", d / self.heads.max(1)),
                (self.qk_norm, "attn.k_norm", d / self.heads.max(1)),
                (self.attention_norm, "attn.norm", d),
                (true, "norm2", d),
                (self.mlp_norm, "mlp.norm", h),
            ] {
                if there {
                    all.extend(affine(&name(norm), vec![width]));
                }
            }
            let mut one = |part: &str, dims: Vec<usize>| all.push((name(part), dims));
            match self.queries {
                Queries::Separate(biased) => {
                    for (part, biased) in [("q", biased), ("k", false), ("v", biased)] {
                        one(&format!("attn.{part}_proj.weight"), vec![d, d]);
                        if biased {
                            one(&format!("attn.{part}_proj.bias"), vec![d]);
                        }
                    }
                }
                _ => one("attn.qkv.weight", vec![3 * d, d]),
            }
            match self.queries {
                Queries::Joint => one("attn.qkv.bias", vec![3 * d]),
                Queries::Biased => {
                    one("attn.q_bias", vec![d]);
                    one("attn.v_bias", vec![d]);
                }
                _ => {}
            }
            if self.relative == Relative::Each {
                let table = "attn.relative_position_bias_table";
                one(table, vec![distances, self.heads]);
            }
            all.extend(affine(&name("attn.proj"), vec![d, d]));
            all.extend(self.scales().iter().map(|scale| (name(scale), vec![d])));
            let firsts: &[(&str, usize)] = match self.mlp {
                Mlp::Plain => &[("mlp.fc1", h)],
                Mlp::Packed => &[("mlp.fc1", 2 * h)],
                Mlp::Split => &[("mlp.fc1_g", h), ("mlp.fc1_x", h)],
            };
            for (first, rows) in firsts {
                all.extend(affine(&name(first), vec![*rows, d]));
            }
            all.extend(affine(&name("mlp.fc2"), vec![d, h]));
        }
        let mut layer = |there: bool, name: &str, dims: Vec<usize>| {
            if there {
                all.extend(affine(name, dims));
            }
        };
        layer(self.norm_pre, "norm_pre", vec![d]);
        layer(self.norm, "norm", vec![d]);
        layer(self.fc_norm, "fc_norm", vec![d]);
        let (pools, m) = (self.pooling == Pooling::Attention, self.pooling_hidden);
        layer(pools, "attn_pool.q", vec![d, d]);
        layer(pools, "attn_pool.kv", vec![2 * d, d]);
        layer(pools, "attn_pool.proj", vec![d, d]);
        layer(pools, "attn_pool.norm", vec![d]);
        layer(pools, "attn_pool.mlp.fc1", vec![m, d]);
        layer(pools, "attn_pool.mlp.fc2", vec![d, m]);
        layer(
            self.classes > 0,
            "head",
            vec![self.classes, self.features()],
        );
        if pools {
            all.push(("attn_pool.latent".into(), vec![1, 1, d]));
        }
        all
    }

    /// The names of LayerScale's tensors in a block.
    fn scales(&self) -> &'static [&'static str] {
        match self.scale {
            Scale::None => &[],
            Scale::Module => &["ls1.gamma", "ls2.gamma"],
            Scale::Parameter => &["gamma_1", "gamma_2"],
        }
    }
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
    shape.head(weights, &shape.pooled(weights, None, &x)?)
}
