//! Learned growth of LiGO (Wang et al. 2023): trains the operator, with the small network frozen.

use anyhow::Result;
use candle_core::{Device, Tensor, Var};
use wave_artefacts::model::Network;
use wave_data::Batch;
use wave_init::Donor;
use wave_init::transfer::ligo;
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_run::data::Data;
use wave_run::train::{self, LossInput, Parameters, Resolved, TrainRun, Trainable};
use wave_stages::finetune::Options;
use wave_stages::score::score;
use wave_train::{Scores, Variable};

/// The growth of a small network, with training data of the target's classes.
struct Growth<'a> {
    small: &'a Donor,
    /// The small network's weights, on the device.
    frozen: Weights,
    target: &'a VitShape,
    data: &'a Data,
    resolved: &'a Resolved,
}

/// Trains the operator. Returns the grown weights, a tensor for each layer, and the epochs of the training.
pub(super) fn grow(
    small: &Donor,
    target: &VitShape,
    data: &Data,
    resolved: &Resolved,
    label: &str,
    options: &Options,
) -> Result<(Weights, f64)> {
    let stacked = vit::stack(&small.weights, small.shape.depth)?;
    let growth = Growth {
        small,
        frozen: options.context.place(&stacked)?,
        target,
        data,
        resolved,
    };
    let train_run = TrainRun {
        label,
        data,
        resolved,
        every_epoch: false,
    };
    let outcome = train::train(&growth, &train_run, None, options)?;
    let grown = ligo::grow(&growth.frozen, &outcome.values)?;
    Ok((vit::unstack(&grown)?, outcome.epochs))
}

impl Trainable for Growth<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let variable = |(name, t): (&String, &Tensor)| {
            Ok(Variable {
                name: name.clone(),
                var: Var::from_tensor(&t.to_device(device)?)?,
                rate: Some(1.0),
                weight_decay: 0.0, // would pull towards zero, not towards the small network
                muon: None,
            })
        };
        let (small, seed) = (&self.small.shape, self.resolved.seed);
        let start = ligo::operator_start(small, self.target, ligo::NOISE, seed)?;
        start.iter().map(variable).collect()
    }

    fn loss(&self, live: &Parameters, on: &LossInput<Batch>) -> candle_core::Result<Tensor> {
        let (target, resolved) = (self.target, self.resolved);
        let weights = ligo::grow(&self.frozen, &live.weights)?;
        let logits = vit::logits_in(resolved.mode, target, &weights, on.input, None)?;
        let targets =
            wave_train::batch_targets(on.batch, target.classes, resolved.label_smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    }

    fn score(&self, operator: &Weights) -> Result<Scores> {
        let network = Network::Vit(self.target.clone());
        let weights = ligo::grow(&self.frozen, operator)?;
        score(&network, &weights, &self.data.tests)
    }
}
