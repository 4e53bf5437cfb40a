//! The interface of all methods: a shape, donors, choices and a seed go in, a complete weight map and
//! its cost come out.

use crate::choices::Choices;
use crate::error::donors;
use crate::fill::initialise;
use crate::options::DirectMethod;
use candle_core::Tensor;
use wave_models::vit::{VitShape, check_weights};
use wave_models::{NetworkError, Weights};

/// A trained model to take weights from.
#[derive(Clone, Debug)]
pub struct Donor {
    shape: VitShape,
    weights: Weights,
    /// Training spent on it only for the starts made from it.
    pub spent: Spent,
}

/// Training of a donor only for the starts made from it: none for a model that exists anyway.
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
    /// If the weights do not fit the shape.
    pub fn new(shape: VitShape, weights: Weights) -> Result<Self, NetworkError> {
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

/// A network to start.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The network to fill.
    pub shape: &'a VitShape,
    /// Trained models to take from, as many as the method asks for.
    pub donors: &'a [Donor],
    /// Normalised images (images, channels, side, side), for methods that look at some.
    pub images: Option<&'a Tensor>,
    /// The choices that the method leaves open.
    pub choices: &'a Choices,
    /// The random seed.
    pub seed: u64,
}

impl Request<'_> {
    /// Weights by a direct method under the choices.
    pub(crate) fn closed_form(&self, method: DirectMethod) -> Result<Weights, NetworkError> {
        let options = self.choices.options(method, self.shape.image_size);
        initialise(self.shape, &options, self.seed)
    }
}

/// The cost of one start beyond the training of models that exist anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Trained values that the start takes over, each counted once however often it is used.
    pub transferred: usize,
    /// Values to keep at rest so that this start can be made again.
    pub stored: usize,
    /// Epochs spent on the donor only for starts like this.
    pub extra_epochs: f64,
    /// Images seen in those epochs.
    pub images_seen: u64,
}

/// A complete weight map and its cost.
#[derive(Clone, Debug)]
pub struct Start {
    /// The weights under timm's names, a tensor for each layer, `f32` on the CPU.
    pub weights: Weights,
    /// The values taken from training, and their cost.
    pub cost: Cost,
}

impl Start {
    /// A start that takes nothing from training.
    pub fn untrained(weights: Weights) -> Self {
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
    /// One line: the method's effect and its authors.
    pub description: &'static str,
    /// The number of trained models it takes weights from: 0 or 1.
    pub donors: usize,
    /// True if it looks at images.
    pub images: bool,
    /// Makes the start; [`StartMethod::start`] checks the request before.
    pub run: fn(&Request) -> Result<Start, NetworkError>,
}

impl StartMethod {
    /// Makes a start.
    ///
    /// # Errors
    /// If the shape is impossible, the number of donors is not the method's, a donor does not fit
    /// the target, or a choice is out of range.
    pub fn start(&self, request: &Request) -> Result<Start, NetworkError> {
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
