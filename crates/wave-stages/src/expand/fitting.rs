//! Fitting scalers and head to a small data set.

use crate::score;
use anyhow::Result;
use candle_core::{Device, Tensor};
use wave_artefacts::model::Network;
use wave_data::Batch;
use wave_learngene::{Learngene, Part, Scalers};
use wave_models::Weights;
use wave_models::vit::VitShape;
use wave_run::data::Data;
use wave_run::train::{self, Parameters, Resolved, Trainable};
use wave_train::{MicroBatch, Rate, Scores, Variable};

/// The training of scalers and head, with frozen templates. At a rate of 0 the head is frozen too.
pub(super) struct Fitting<'a> {
    /// The learngene on the device.
    pub(super) gene: Learngene,
    pub(super) shape: &'a VitShape,
    pub(super) scalers: Scalers,
    pub(super) inherited: Weights,
    /// [`Fitting::inherited`] on the device.
    pub(super) placed: Weights,
    pub(super) head_lr_ratio: f32,
    pub(super) data: &'a Data,
    pub(super) resolved: Resolved,
}

const HEAD: [&str; 2] = ["head.weight", "head.bias"];

impl Fitting<'_> {
    fn assemble(&self, values: &Weights) -> candle_core::Result<Weights> {
        let (scalers, inherited) = parts(values, &self.placed);
        self.gene.assemble(&scalers, &inherited, self.shape)
    }
}

/// Splits fitted values into scalers and inherited weights.
pub(super) fn parts(values: &Weights, inherited: &Weights) -> (Scalers, Weights) {
    let scalers = Part::ALL
        .iter()
        .map(|part| (*part, values[&format!("scalers.{}", part.name())].clone()))
        .collect();
    let mut rest = inherited.clone();
    rest.extend(HEAD.map(|name| (name.to_string(), values[name].clone())));
    (scalers, rest)
}

impl Trainable for Fitting<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let mut variables: Vec<Variable> = Vec::new();
        for (part, s) in &self.scalers {
            let name = format!("scalers.{}", part.name());
            let mut v = train::variable(&name, s, &self.resolved, 0, device)?;
            v.weight_decay = 0.0;
            variables.push(v);
        }
        for name in HEAD {
            let mut v = train::variable(name, &self.inherited[name], &self.resolved, 0, device)?;
            v.rate = match self.head_lr_ratio > 0.0 {
                true => Rate::Uniform(self.head_lr_ratio),
                false => Rate::Frozen,
            };
            variables.push(v);
        }
        Ok(variables)
    }

    fn loss(
        &self,
        live: &Parameters,
        batch: &Batch,
        images: &Tensor,
        part: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let weights = self.assemble(&live.weights)?;
        score::label_loss(self.shape, &weights, batch, images, part, &self.resolved)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let network = Network::Vit(self.shape.clone());
        score::score(&network, &self.assemble(values)?, &self.data.tests)
    }
}
