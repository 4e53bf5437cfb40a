//! Learned growth of LiGO (Wang et al. 2023): trains the operator, with the small network frozen.

use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use wave_artefacts::model::Network;
use wave_data::Batch;
use wave_init::Donor;
use wave_init::transfer::ligo;
use wave_models::vit::{self, VitShape};
use wave_models::{NetworkError, Weights};
use wave_run::data::Data;
use wave_run::train::{self, Parameters, Resolved, TrainRun, Trainable};
use wave_stages::finetune::Options;
use wave_stages::score::score;
use wave_train::{MicroBatch, Rate, Scores, Variable};

/// The growth of a small network, with training data of the target's classes.
pub(super) struct Growth<'a> {
    pub(super) small: &'a Donor,
    pub(super) target: &'a VitShape,
    pub(super) data: &'a Data,
    pub(super) resolved: &'a Resolved,
}

impl Growth<'_> {
    /// Trains the operator, and returns the grown weights, a tensor for each layer.
    pub(super) fn grow(&self, label: &str, options: &Options) -> Result<Weights> {
        let small = self.small;
        let growing = Growing {
            of: self,
            frozen: options
                .context
                .place(&vit::stack(small.weights(), small.shape().depth)?)?,
        };
        let train_run = TrainRun {
            label,
            data: self.data,
            resolved: self.resolved,
            every_epoch: false,
        };
        let outcome = train::train(&growing, &train_run, None, options)?;
        Ok(vit::unstack(&growing.grown(&outcome.values)?)?)
    }
}

struct Growing<'a> {
    of: &'a Growth<'a>,
    /// The small network's weights, on the device.
    frozen: Weights,
}

impl Growing<'_> {
    fn grown(&self, operator: &Weights) -> Result<Weights, NetworkError> {
        let Growth { small, target, .. } = self.of;
        ligo::grow(&self.frozen, small.shape(), operator, target)
    }
}

impl Trainable for Growing<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let of = self.of;
        let variable = |(name, t): (&String, &Tensor)| {
            Ok(Variable {
                name: name.clone(),
                var: Var::from_tensor(&t.to_device(device)?)?,
                rate: Rate::Uniform(1.0),
                weight_decay: 0.0, // would pull towards zero, not towards the small network
                muon: None,
            })
        };
        let (small, seed) = (of.small.shape(), of.resolved.seed);
        let start = ligo::operator_start(small, of.target, ligo::NOISE, seed)?;
        start.iter().map(variable).collect()
    }

    fn loss(
        &self,
        live: &Parameters,
        batch: &Batch,
        images: &Tensor,
        _: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let (target, resolved) = (self.of.target, self.of.resolved);
        let weights = self
            .grown(&live.weights)
            .map_err(candle_core::Error::wrap)?;
        let logits = vit::logits_in(resolved.mode, target, &weights, images, None)?;
        let smoothing = resolved.label_smoothing;
        let targets = wave_train::batch_targets(batch, target.classes, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    }

    fn score(&self, operator: &Weights) -> Result<Scores> {
        let network = Network::Vit(self.of.target.clone());
        score(&network, &self.grown(operator)?, &self.of.data.tests)
    }
}
