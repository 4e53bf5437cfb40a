//! LiGO's learned growth: the operator is trained, the small network stays (Wang et al. 2023).

use anyhow::Result;
use candle_core::{Tensor, Var};
use wave_init::Donor;
use wave_init::choices::Ligo;
use wave_init::transfer::ligo;
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_run::data::Data;
use wave_run::device::{device, place};
use wave_run::train::{self, Job, Resolved};
use wave_stages::finetune::{Options, score};
use wave_stages::model::Network;
use wave_train::{Part, Variable};

/// Trains the operator that grows `small` to `target`; returns the grown weights, a tensor for each
/// layer. A classifier of other classes than the data's is an error of the loss.
pub(super) fn grow(
    small: &Donor,
    target: &VitShape,
    choice: &Ligo,
    data: &Data,
    settings: &Resolved,
    options: Options,
    label: &str,
) -> Result<Weights> {
    let frozen = place(&vit::stack(small.weights(), small.shape().depth)?)?;
    let variables: Vec<Variable> =
        ligo::operator_start(small.shape(), target, choice, settings.seed)?
            .iter()
            .map(|(name, t)| {
                Ok(Variable {
                    name: name.clone(),
                    var: Var::from_tensor(&t.to_device(device())?)?,
                    rate: vec![1.0],
                    weight_decay: 0.0, // towards zero is not towards the small network
                })
            })
            .collect::<Result<_>>()?;
    let grown = |operator: &Weights| ligo::grow(&frozen, small.shape(), operator, target);
    let live = train::tracked(&variables);
    let loss = |batch: &wave_data::Batch, images: &Tensor, _: &Part| {
        let weights = grown(&live).map_err(candle_core::Error::wrap)?;
        let logits = vit::logits_in(settings.mode, target, &weights, images, None)?;
        let smoothing = settings.label_smoothing;
        let targets = wave_train::batch_targets(batch, target.classes, smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    };
    let network = Network::Vit(target.clone());
    let score = |operator: &Weights| score(&network, &grown(operator)?, &data.tests);
    let job = Job {
        label: label.into(),
        settings,
        data,
        variables: &variables,
        run: None,
        resume: false,
        verbosity: options.verbosity,
        every_epoch: false,
    };
    let outcome = train::train(job, loss, score)?;
    Ok(vit::unstack(&grown(&outcome.values)?)?)
}
