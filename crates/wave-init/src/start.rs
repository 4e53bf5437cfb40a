//! The one seam of all starting points: a shape, donors, choices and a seed go in; a complete
//! weight map and what it cost come out.

use crate::direct::initialise;
use crate::direct::layer_scale::LayerScale;
use crate::direct::t_fixup::TFixup;
use crate::direct::zero::Zero;
use crate::error::InitError;
use crate::graph::Hypernetwork;
use crate::ledger::{Cost, Ledger};
use crate::mimetic::VpLayout;
use crate::mlp::MlpMean;
use crate::options::{Base, Method, Options, Positions, VitDims};
use crate::transfer::auto_lg::AutoLg;
use crate::transfer::heru_lg::HeruLg;
use crate::transfer::indices::Layers;
use crate::transfer::ligo::Ligo;
use crate::transfer::share::Share;
use crate::transfer::tleg::Line;
use crate::transfer::weight_selection::Selection;
use wave_models::Weights;
use wave_models::vit::{VitShape, check_weights};

/// A trained model to take weights from.
#[derive(Clone, Debug)]
pub struct Donor {
    shape: VitShape,
    weights: Weights,
    /// What was spent on it for the sake of the starts made from it.
    pub spent: Spent,
}

/// Training of a donor for the sake of the starts made from it: none of a model that exists anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Passes over the training images.
    pub epochs: f64,
    /// Images seen in them.
    pub images: u64,
}

impl Donor {
    /// A donor of this shape; `weights` have timm's names, a tensor for each layer.
    ///
    /// # Errors
    /// If the weights are not those of the shape.
    pub fn new(shape: VitShape, weights: Weights) -> Result<Self, InitError> {
        shape.validate()?;
        check_weights(&weights, &shape.parameters())?;
        Ok(Self {
            shape,
            weights,
            spent: Spent::default(),
        })
    }

    /// The sizes.
    pub fn shape(&self) -> &VitShape {
        &self.shape
    }

    /// The weights, a tensor for each layer.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

/// What methods leave open. The defaults are those of the papers where they name one; where they do
/// not, the field says whose reading it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Choices {
    /// Position embedding of what is not taken from a donor; by default sinusoidal for methods with
    /// mimetic attention and learned for the others.
    pub positions: Option<Positions>,
    /// Scale of sinusoidal positions, where `positions` does not say; by default
    /// [`Positions::usual_scale`].
    pub position_scale: Option<f64>,
    /// Mean shift of the first MLP matrix; by default none, but for `mlp-mean`.
    pub mlp_mean: Option<MlpMean>,
    /// (alpha, beta) of mimetic Q and K; by default those of [`Options::new`], and (0, 0) leaves the two
    /// to `base`.
    pub qk: Option<(f64, f64)>,
    /// (alpha, beta) of mimetic V and projection, in the same way.
    pub vp: Option<(f64, f64)>,
    /// How mimetic V and projection are stored.
    pub vp_layout: VpLayout,
    /// What fills what mimetic attention leaves alone.
    pub base: Base,
    /// What fills the weights that a transfer, or a method for some matrices only, leaves alone.
    /// Our reading: timm's default, which is DeiT's.
    pub rest: Method,
    /// Which of a deeper donor's layers are taken.
    pub layers: Layers,
    /// Choices of `t-fixup`.
    pub t_fixup: TFixup,
    /// Choices of `zero`.
    pub zero: Zero,
    /// Choices of `layerscale`.
    pub layer_scale: LayerScale,
    /// Choices of `weight-selection`.
    pub selection: Selection,
    /// Choices of `share`.
    pub share: Share,
    /// Choices of `heru-lg`.
    pub heru_lg: HeruLg,
    /// Choices of `auto-lg`.
    pub auto_lg: AutoLg,
    /// Choices of `tleg`.
    pub tleg: Line,
    /// Choices of `ligo`.
    pub ligo: Ligo,
    /// What predicts the weights of `ghn3`, which there is no default of.
    pub hypernetwork: Option<Hypernetwork>,
}

impl Default for Choices {
    fn default() -> Self {
        Self {
            positions: None,
            position_scale: None,
            mlp_mean: None,
            qk: None,
            vp: None,
            vp_layout: VpLayout::Paper,
            base: Base::Timm,
            rest: Method::Timm,
            layers: Layers::First,
            t_fixup: TFixup::default(),
            zero: Zero::default(),
            layer_scale: LayerScale::default(),
            selection: Selection::default(),
            share: Share::default(),
            heru_lg: HeruLg::default(),
            auto_lg: AutoLg::default(),
            tleg: Line::default(),
            ligo: Ligo::default(),
            hypernetwork: None,
        }
    }
}

impl Choices {
    /// The options of a direct method under these choices, for images of this size.
    pub fn options(&self, method: Method, image_size: usize) -> Options {
        let mut options = Options {
            vp_layout: self.vp_layout,
            base: self.base,
            ..Options::new(method)
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

/// What is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The network to fill.
    pub shape: &'a VitShape,
    /// Trained models to take from, as many as the method asks for.
    pub donors: &'a [Donor],
    /// What the method leaves open.
    pub choices: &'a Choices,
    /// Seed of everything random.
    pub seed: u64,
}

impl Request<'_> {
    /// Weights by a direct method under the choices.
    pub(crate) fn closed_form(&self, method: Method) -> Result<Weights, InitError> {
        self.direct(&self.choices.options(method, self.shape.image_size))
    }

    /// Weights by a direct method.
    pub(crate) fn direct(&self, options: &Options) -> Result<Weights, InitError> {
        initialise(&VitDims::of(self.shape)?, options, self.seed)
    }
}

/// A complete weight map, and what it cost.
#[derive(Clone, Debug)]
pub struct Start {
    /// The weights under timm's names, a tensor for each layer, `f32` on the CPU.
    pub weights: Weights,
    /// What was taken from training.
    pub cost: Cost,
}

impl Start {
    /// A start that takes nothing from training.
    pub(crate) fn untrained(weights: Weights) -> Self {
        Self {
            weights,
            cost: Cost::default(),
        }
    }
}

/// A way to start a vision transformer.
#[derive(Clone, Copy, Debug)]
pub struct StartMethod {
    /// The name on the command line and in recipes.
    pub name: &'static str,
    /// One line on what the method does, and whose it is.
    pub description: &'static str,
    /// How many trained models it takes weights from: 0 or 1.
    pub donors: usize,
    /// What it carries over to a target of this shape from a donor that agrees with it on patches,
    /// tokens and classes.
    pub ledger: fn(&VitShape, &Choices) -> Ledger,
    pub(crate) run: fn(&Request) -> Result<Start, InitError>,
}

impl StartMethod {
    /// Makes a start.
    ///
    /// # Errors
    /// If the shape is impossible, the number of donors is not the method's, a donor does not fit
    /// the target, or a choice is out of range.
    pub fn start(&self, request: &Request) -> Result<Start, InitError> {
        request.shape.validate()?;
        if request.donors.len() != self.donors {
            return Err(InitError::Donors {
                method: self.name,
                expected: self.donors,
                found: request.donors.len(),
            });
        }
        (self.run)(request)
    }
}
