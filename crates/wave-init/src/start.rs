//! The interface of all methods: from a shape, donors, choices and a seed to all weights and their cost.

use crate::choices::Choices;
use crate::error::{Result, donors};
use crate::fill::initialise;
use crate::options::DirectMethod;
use candle_core::Tensor;
use wave_models::Weights;
use wave_models::vit::{VitShape, check_weights};

/// A trained model to take weights from.
#[derive(Clone, Debug)]
pub struct Donor {
    shape: VitShape,
    weights: Weights,
    /// Training done on it only for the models initialised from it.
    pub spent: Spent,
}

/// Training of a donor done only for the models initialised from it: zero for a model that exists anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Epochs over the training images.
    pub epochs: f64,
    /// Images seen in these epochs.
    pub images: u64,
}

impl Donor {
    /// A donor of this shape; `weights` have timm's names, with separate tensors for each layer.
    ///
    /// # Errors
    /// If the weights do not fit the shape.
    pub fn new(shape: VitShape, weights: Weights) -> Result<Self> {
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

    /// The weights, with separate tensors for each layer.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

/// A network to initialise.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The shape of the network.
    pub shape: &'a VitShape,
    /// Trained models to take weights from, as many as the method needs.
    pub donors: &'a [Donor],
    /// Normalised images (images, channels, side, side), for methods that use some.
    pub images: Option<&'a Tensor>,
    /// The choices that the method leaves open.
    pub choices: &'a Choices,
    /// The random seed.
    pub seed: u64,
}

impl Request<'_> {
    /// Weights by a direct method with these choices.
    pub(crate) fn closed_form(&self, method: DirectMethod) -> Result<Weights> {
        let options = self.choices.options(method, self.shape.image_size);
        initialise(self.shape, &options, self.seed)
    }
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
    /// The number of trained models that it takes weights from: 0 or 1.
    pub donors: usize,
    /// True if it uses images.
    pub images: bool,
    /// The initialisation itself; [`StartMethod::start`] checks the request first.
    pub run: fn(&Request) -> Result<Start>,
}

impl StartMethod {
    /// Initialises a network.
    ///
    /// # Errors
    /// If the shape is invalid, the number of donors is not the method's, a donor does not fit the target, or
    /// a choice is out of range.
    pub fn start(&self, request: &Request) -> Result<Start> {
        request.shape.validate()?;
        if request.donors.len() != self.donors {
            return Err(donors(self.name, self.donors, request.donors.len()).into());
        }
        (self.run)(request)
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
