//! The choices that the methods' papers leave open, for all methods in one struct.

use crate::error::named;
use crate::indices::Layers;
use crate::mean_shift::MlpMean;
use crate::mimetic::Attention;
use crate::options::{Base, DirectMethod, DirectOptions, Positions};

/// The choices of all methods. Defaults are the papers'. Where a paper gives none, the field says whose
/// interpretation the default is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// Position embedding, unless taken from a donor; by default as in [`DirectOptions::new`].
    pub positions: Option<Positions>,
    /// Scale of sinusoidal positions, if `positions` does not set it; by default [`Positions::usual_scale`].
    pub position_scale: Option<f64>,
    /// Mean shift of the first MLP matrix; by default none, except for `mlp-mean`.
    pub mlp_mean: Option<MlpMean>,
    /// See [`DirectOptions::qk`].
    pub qk: Option<(f64, f64)>,
    /// See [`DirectOptions::vp`].
    pub vp: Option<(f64, f64)>,
    /// See [`DirectOptions::attention`].
    pub attention: Attention,
    /// See [`DirectOptions::base`].
    pub base: Base,
    /// Initialisation of everything that a transfer, or a method for some matrices only, leaves unchanged.
    /// Our interpretation: timm's default, which is also DeiT's.
    pub rest: DirectMethod,
    /// The layers taken from a deeper donor.
    pub layers: Layers,
    /// The matrices that `zero` fills.
    pub zero: ZeroScope,
    /// The scale of `layerscale`, from 0 to 1; by default 0.1, our choice.
    pub gamma: Option<f64>,
    /// `layerscale` scales the skip connections instead of the residual branches; by default false, our choice.
    pub scaled_skip: bool,
    /// The number of donor blocks that `heru-lg` and `auto-lg` copy; by default 3 and 4.
    pub blocks: Option<usize>,
    /// For `auto-lg`, a similarity (or gate) for each layer of the donor: larger is more similar.
    pub similarity: Vec<f64>,
}

impl Choices {
    /// The options of a direct method with these choices, for images of this size.
    pub fn options(&self, method: DirectMethod, image_size: usize) -> DirectOptions {
        let mut options = DirectOptions {
            attention: self.attention,
            base: self.base,
            ..DirectOptions::new(method)
        };
        options.positions = self.positions.unwrap_or(options.positions);
        if let (None, Positions::Sinusoidal { scale }) = (self.positions, &mut options.positions) {
            let usual = || Positions::usual_scale(image_size);
            *scale = self.position_scale.unwrap_or_else(usual);
        }
        options.qk = self.qk.unwrap_or(options.qk);
        options.vp = self.vp.unwrap_or(options.vp);
        options.mlp_mean = self.mlp_mean.unwrap_or_default();
        options
    }
}

/// The matrices that ZerO fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroScope {
    /// Q and K only, the ones that the thesis names.
    QueryKey,
    /// Q, K, V and the projection: the self-attention layers, as in the thesis.
    #[default]
    Attention,
    /// Every matrix of the blocks, as the method's authors fill the whole network.
    Blocks,
}

named!(
    ZeroScope, "part of the network for ZerO",
    "query-key" => QueryKey, "attention" => Attention, "blocks" => Blocks
);
