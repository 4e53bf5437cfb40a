//! The interface of all methods: from a shape, donors, choices and a seed to all weights and their cost.

use crate::choices::Choices;
use crate::error::{Result, wrong_donor};
use candle_core::Tensor;
use wave_models::Weights;
use wave_models::vit::{VitShape, check_weights};

/// A trained model to take weights from.
#[derive(Clone, Debug)]
pub struct Donor {
    /// The sizes.
    pub shape: VitShape,
    /// The weights of this shape, under timm's names, with separate tensors for each layer.
    pub weights: Weights,
    /// Epochs of training done only for the models initialised from it: zero for a model that exists anyway.
    pub epochs: f64,
    /// Images seen in these epochs.
    pub images_seen: u64,
}

impl Donor {
    /// A donor of this shape. `weights` must fit it, and have timm's names, with separate tensors for each layer.
    pub fn new(shape: VitShape, weights: Weights) -> Result<Self> {
        shape.validate()?;
        check_weights(&weights, &shape.parameters())?;
        Ok(Self {
            shape,
            weights,
            epochs: 0.0,
            images_seen: 0,
        })
    }

    /// True if a target that takes this donor's positions has none of its own left.
    pub fn gives_all_positions(&self, target: &VitShape) -> bool {
        self.shape.grid() == target.grid() && (self.shape.class_token || !target.class_token)
    }
}

/// A network to initialise.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The shape of the network.
    pub shape: &'a VitShape,
    /// The trained model to take weights from, if the method needs one.
    pub donor: Option<&'a Donor>,
    /// Normalised images (images, channels, side, side), for methods that use some.
    pub images: Option<&'a Tensor>,
    /// The choices that the method leaves open.
    pub choices: &'a Choices,
    /// The random seed.
    pub seed: u64,
}

/// The cost of one initialisation in addition to the training of models that exist anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Trained values that are transferred, each counted once however often it is used.
    pub transferred: usize,
    /// Values to keep in storage so that this initialisation can be repeated.
    pub stored: usize,
    /// Epochs of donor training done only for initialisations like this.
    pub extra_epochs: f64,
}

/// All weights and their cost.
#[derive(Clone, Debug)]
pub struct Start {
    /// The weights under timm's names, with separate tensors for each layer, `f32` on the CPU.
    pub weights: Weights,
    /// The number of values taken from trained models, and their cost.
    pub cost: Cost,
}

impl Start {
    /// An initialisation that uses no trained weights.
    pub fn untrained(weights: Weights) -> Self {
        Self {
            weights,
            cost: Cost::default(),
        }
    }
}

/// A way to initialise a vision transformer.
#[derive(Clone, Copy, Debug)]
pub struct StartMethod {
    /// The name on the command line and in recipes.
    pub name: &'static str,
    /// One line: the method's effect and authors.
    pub description: &'static str,
    /// True if it takes weights from a trained model.
    pub donor: bool,
    /// True if it uses images.
    pub images: bool,
    /// The initialisation itself; [`StartMethod::start`] checks the request first.
    pub run: fn(&Request) -> Result<Start>,
}

impl StartMethod {
    /// Initialises a network. Refuses an invalid shape, a choice out of range, and a donor that is missing, is unused
    /// or does not fit the target.
    pub fn start(&self, request: &Request) -> Result<Start> {
        request.shape.validate()?;
        if request.donor.is_some() != self.donor {
            return Err(wrong_donor(self.name, self.donor).into());
        }
        (self.run)(request)
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
