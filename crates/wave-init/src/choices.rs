//! The choices that the methods' papers leave open, of all methods in one value.

use crate::error::{InitError, by_name};
use crate::indices::Layers;
use crate::mean_shift::MlpMean;
use crate::mimetic::{Attention, VpLayout};
use crate::options::{Base, DirectMethod, DirectOptions, Positions};
use std::str::FromStr;

/// The choices of all methods. Defaults are the papers'. If a paper names none, the field says whose
/// reading it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Position embedding, unless taken from a donor; by default sinusoidal for methods with mimetic
    /// attention and learned for the others.
    pub positions: Option<Positions>,
    /// Scale of sinusoidal positions, where `positions` does not say; by default
    /// [`Positions::usual_scale`].
    pub position_scale: Option<f64>,
    /// Mean shift of the first MLP matrix; by default none, but for `mlp-mean`.
    pub mlp_mean: Option<MlpMean>,
    /// (alpha, beta) of mimetic Q and K; by default as in [`DirectOptions::new`], and (0, 0) leaves the two to
    /// `base`.
    pub qk: Option<(f64, f64)>,
    /// (alpha, beta) of mimetic V and projection, in the same way.
    pub vp: Option<(f64, f64)>,
    /// Factors of mimetic attention.
    pub attention: Attention,
    /// The layout of mimetic V and projection.
    pub vp_layout: VpLayout,
    /// The start of all that mimetic attention leaves alone.
    pub base: Base,
    /// The start of all that a transfer, or a method for some matrices only, leaves alone.
    /// Our reading: timm's default, which is DeiT's.
    pub rest: DirectMethod,
    /// The layers taken from a deeper donor.
    pub layers: Layers,
    /// Choices of `t-fixup`.
    pub t_fixup: TFixup,
    /// Choices of `zero`.
    pub zero: Zero,
    /// Choices of `layerscale`.
    pub layer_scale: LayerScale,
    /// Choices of `weight-selection`.
    pub selection: WeightSelection,
    /// Choices of `heru-lg`.
    pub heru_lg: HeruLg,
    /// Choices of `auto-lg`.
    pub auto_lg: AutoLg,
    /// Choices of `ligo`.
    pub ligo: Ligo,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            positions: None,
            position_scale: None,
            mlp_mean: None,
            qk: None,
            vp: None,
            attention: Attention::Products,
            vp_layout: VpLayout::Paper,
            base: Base::Timm,
            rest: DirectMethod::Timm,
            layers: Layers::First,
            t_fixup: TFixup::default(),
            zero: Zero::default(),
            layer_scale: LayerScale::default(),
            selection: WeightSelection::default(),
            heru_lg: HeruLg::default(),
            auto_lg: AutoLg::default(),
            ligo: Ligo::default(),
        }
    }
}

impl Choices {
    /// The options of a direct method under these choices, for images of this size.
    pub fn options(&self, method: DirectMethod, image_size: usize) -> DirectOptions {
        let mut options = DirectOptions {
            attention: self.attention,
            vp_layout: self.vp_layout,
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
        options.mlp_mean = self.mlp_mean.unwrap_or(MlpMean::None);
        options
    }
}

/// Choices of `t-fixup`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TFixup {
    /// The factor before the power of the depth.
    pub factor: f64,
    /// The power of the depth.
    pub exponent: f64,
}

impl Default for TFixup {
    /// The paper's for encoders.
    fn default() -> Self {
        Self {
            factor: 0.67,
            exponent: -0.25,
        }
    }
}

/// Choices of `zero`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zero {
    /// The matrices that are filled.
    pub scope: ZeroScope,
}

/// The matrices that ZerO fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroScope {
    /// Q and K only, all that the thesis names.
    QueryKey,
    /// Q, K, V and the projection: the self-attention layers, as in the thesis.
    #[default]
    Attention,
    /// Every matrix of the blocks, as the method's own authors fill the whole network.
    Blocks,
}

impl FromStr for ZeroScope {
    type Err = InitError;

    fn from_str(text: &str) -> std::result::Result<Self, InitError> {
        let named = [
            ("query-key", ZeroScope::QueryKey),
            ("attention", ZeroScope::Attention),
            ("blocks", ZeroScope::Blocks),
        ];
        by_name("part of the network for ZerO", text, &named)
    }
}

/// Choices of `layerscale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerScale {
    /// The scale, 0 to 1.
    pub gamma: f64,
    /// The branch or the skip.
    pub form: LayerScaleForm,
    /// The MLP's branch (or skip) is scaled as well as the attention's.
    pub mlp: bool,
}

impl Default for LayerScale {
    /// Attention only, as in the thesis; gamma 0.1 and the branch's form are our choices.
    fn default() -> Self {
        Self {
            gamma: 0.1,
            form: LayerScaleForm::Branch,
            mlp: false,
        }
    }
}

/// The two forms of LayerScale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerScaleForm {
    /// The residual branch.
    Branch,
    /// The skip connection.
    Skip,
}

/// Choices of `weight-selection`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightSelection {
    /// The rows taken from the stacked Q, K and V where the widths do not divide.
    pub qkv: QkvRows,
    /// The classifier is selected too. The method's authors start it afresh; WAVE's parameter counts
    /// of the method include it.
    pub head: bool,
}

/// The selection of rows of stacked Q, K and V. The two are the same where the target's width
/// divides the donor's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkvRows {
    /// From one tensor of 3 d rows, as the authors do.
    #[default]
    Together,
    /// From each of the three alone, so that V and the projection keep the same channels (our reading).
    Apart,
}

/// Choices of `heru-lg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeruLg {
    /// The number of the donor's last blocks that are copied.
    pub blocks: usize,
}

impl Default for HeruLg {
    fn default() -> Self {
        Self { blocks: 3 }
    }
}

/// Choices of `auto-lg`.
#[derive(Clone, Debug, PartialEq)]
pub struct AutoLg {
    /// A similarity (or gate) for each layer of the donor: larger is more similar.
    pub similarity: Vec<f64>,
    /// The rule that chooses the layers.
    pub rule: AutoLgRule,
    /// Their place.
    pub place: AutoLgPlace,
}

impl Default for AutoLg {
    fn default() -> Self {
        Self {
            similarity: Vec::new(),
            rule: AutoLgRule::Most(4),
            place: AutoLgPlace::Bottom,
        }
    }
}

/// The choice of layers by their similarity. Never more than the target has layers; among equals
/// the lower ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AutoLgRule {
    /// This number of the most similar.
    Most(usize),
    /// All of at least this similarity.
    AtLeast(f64),
}

/// The place of chosen layers; their order stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoLgPlace {
    /// Below the fresh layers, as the paper's abstract has it.
    Bottom,
    /// Above them.
    Top,
}

/// Choices of `ligo`: the operator's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ligo {
    /// Largest weight, before normalisation, of the layers that a layer does not repeat.
    pub noise: f64,
}

impl Default for Ligo {
    fn default() -> Self {
        Self { noise: 0.03 }
    }
}
