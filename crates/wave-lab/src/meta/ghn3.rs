//! `wave meta` with method ghn3: trains a hypernetwork on a family of transformers.
//!
//! A step draws depths and widths, predicts the weights of each transformer, and takes the mean of
//! their losses on one batch of images (the meta-batch of the paper). Each loss includes a share of the
//! sum of the norms of the predicted tensors, the paper's regularisation.

use super::settings::{Hypernetwork, HypernetworkTraining};
use anyhow::Result;
use candle_core::{Device, Tensor};
use serde_json::{Value, json};
use std::path::Path;
use toml::Table;
use wave_data::Batch;
use wave_init::graph::{self, HyperShape};
use wave_init::random::generator;
use wave_learngene::Sizes;
use wave_models::vit::{self, VitShape};
use wave_models::{Network, ShapeError, Weights, default_patch};
use wave_run::context::Context;
use wave_run::data::{self, Channels, DEFAULT_SIDE, Data, DataPlan, Input, image_side, open};
use wave_run::error::request;
use wave_run::forecast::{self, Memory, Step};
use wave_run::inputs::Inputs;
use wave_run::recipe::narrow;
use wave_run::run_dir::{self, Made};
use wave_run::settings::{self, Duration, Training};
use wave_run::train::{self, Course, Defaults, Live, Resolved, Trainee, TrainingPlan};
use wave_stages::finetune::Options;
use wave_stages::hypernetwork::{About, HyperModel, METHOD, decimals};
use wave_train::{Alone, MicroBatch, Scores, Variable};

/// Values for settings that are not given.
const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(500),
    lr: 1e-3,
    weight_decay: 0.01,
};

/// Default share of the norms of predicted tensors in the loss, as in the paper.
const PENALTY: f64 = 3e-5;

/// The transformers to draw from.
struct Space {
    about: About,
    depths: (usize, usize),
    widths: Vec<usize>,
    /// Number of transformers in a step.
    architectures: usize,
    /// Share of the norms of predicted tensors in the loss.
    penalty: f64,
}

impl Space {
    fn new(own: &Hypernetwork, about: About) -> Result<Space> {
        let depths = match own.depths.as_deref() {
            None => (2, 6),
            Some([least, most]) if (1..=*most).contains(least) => (*least, *most),
            Some(other) => {
                return Err(request(format!(
                    "depths = {other:?}; give the least and the most, such as 2,6"
                )));
            }
        };
        let mut widths = own.widths.clone().unwrap_or(vec![32, 48, 64]);
        widths.sort_unstable();
        let architectures = own.architectures.unwrap_or(2);
        if widths.is_empty() {
            return Err(request("widths is empty; give at least one"));
        }
        let penalty = own.penalty.unwrap_or(PENALTY);
        let space = Space {
            about,
            depths,
            widths,
            architectures,
            penalty,
        };
        for width in &space.widths {
            space.about.shape(space.depths.1, *width).validate()?;
        }
        Ok(space)
    }

    /// The transformers of a step.
    fn of_step(&self, seed: u64, step: u64) -> impl Iterator<Item = VitShape> {
        let first = step * self.architectures as u64;
        let sizes = Sizes::constant(self.depths, self.widths.clone());
        (first..first + self.architectures as u64).map(move |draw| {
            let (depth, width) = sizes.draw(draw, 0, &mut train::size_generator(seed, draw));
            self.about.shape(depth, width)
        })
    }

    /// The transformers to test: with the least and the most depth and width.
    fn corners(&self) -> Vec<VitShape> {
        let mut all = Vec::new();
        for depth in [self.depths.0, self.depths.1] {
            for width in [self.widths.first(), self.widths.last()]
                .into_iter()
                .flatten()
            {
                let shape = self.about.shape(depth, *width);
                if !all.contains(&shape) {
                    all.push(shape);
                }
            }
        }
        all
    }
}

/// The sizes of the hypernetwork in the settings.
fn hyper_shape(own: &Hypernetwork, about: &About) -> Result<HyperShape> {
    let shape = HyperShape {
        hidden: own.hidden.unwrap_or(64),
        layers: own.layers.unwrap_or(3),
        heads: own.graph_heads.unwrap_or(8),
        channels: own.decoded.unwrap_or(64),
        // As large as patches and positions need.
        spatial: about.patch.max(about.image_size / about.patch.max(1)),
        classes: about.label_names.len(),
        final_norm: true,
    };
    shape.validate()?;
    Ok(shape)
}

/// A hypernetwork with all inputs of its training, checked.
struct Ready {
    data: Data,
    space: Space,
    shape: HyperShape,
    resolved: Resolved,
}

impl Ready {
    fn new(own: &Hypernetwork, training: &Training, context: &Context) -> Result<Ready> {
        settings::check(own)?;
        let training: HypernetworkTraining = narrow(training, "the training of a hypernetwork")?;
        let training = Training::from(training);
        let plan = DataPlan::new(&training)?;
        let image_size = image_side(&open(plan.spec.as_deref(), context)?).unwrap_or(DEFAULT_SIDE);
        let input = Input::Size {
            image_size,
            channels: Channels::Otherwise(3),
        };
        let data = Data::open(&plan, input, context)?;
        let transform = &data.transform;
        let about = About {
            image_size,
            channels: transform.channels,
            mean: decimals(&transform.mean),
            std: decimals(&transform.std),
            patch: own.patch.unwrap_or_else(|| default_patch(image_size, 7)),
            head_width: own.head_width.unwrap_or(16),
            label_names: data.class_names.clone(),
        };
        if about.patch == 0 || about.head_width == 0 {
            let zero = ShapeError::Zero {
                name: "patch or head_width",
            };
            return Err(zero.into());
        }
        let shape = hyper_shape(own, &about)?;
        let space = Space::new(own, about)?;
        let resolved = TrainingPlan::of_images(&training, DEFAULTS)?.resolve(&data)?;
        Ok(Ready {
            data,
            space,
            shape,
            resolved,
        })
    }
}

impl Ready {
    fn parameters(&self) -> usize {
        let parameters = self.shape.parameters();
        let values = parameters
            .iter()
            .map(|(_, dims)| dims.iter().product::<usize>());
        values.sum()
    }

    /// Memory of a step: all its transformers are in memory before the backward pass.
    fn step(&self) -> Result<Step> {
        let Space {
            about,
            depths,
            widths,
            architectures,
            ..
        } = &self.space;
        let largest = about.shape(depths.1, widths.last().copied().unwrap_or(0));
        let of_one = Memory::of_composed(&largest, self.resolved.mode, 0);
        let n = *architectures as u64;
        let memory = Memory {
            fixed: n * of_one.fixed + Memory::of_values(self.parameters()),
            image: n * of_one.image,
            ..of_one
        };
        Step::new(memory, &self.data, &self.resolved, 1)
    }
}

/// The output of `--dry-run`.
///
/// # Errors
/// As [`train()`].
pub(super) fn describe(
    own: &Hypernetwork,
    training: &Training,
    context: &Context,
) -> Result<String> {
    let ready = Ready::new(own, training, context)?;
    Ok(format!(
        "{:#?}\n{} parameters\n{}{}{}",
        ready.shape,
        ready.parameters(),
        ready.data.describe(),
        ready.resolved.describe(&ready.data),
        ready.step()?.words()
    ))
}

/// Trains a hypernetwork and writes it to `out`; `table` holds all settings, which a resumed run must
/// repeat. Returns the output of `--json`: `top1` is the mean over the smallest and largest
/// transformers with predicted weights.
///
/// # Errors
/// If settings are wrong, or the work fails.
pub(super) fn train(
    table: &Table,
    own: &Hypernetwork,
    training: &Training,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let ready = Ready::new(own, training, &options.context)?;
    ready.step()?.check()?;
    let spec = training.images.data.as_deref();
    let inputs = Inputs::new(&options.context).images(spec, &ready.data);
    run_dir::fill(out, table, &inputs, options, |run| {
        let course = Course {
            label: "meta",
            data: &ready.data,
            resolved: &ready.resolved,
            every_epoch: true,
        };
        let outcome = train::train(&ready, &course, Some(run), options)?;
        let Ready {
            data,
            space,
            shape,
            resolved,
        } = ready;
        let tested = match outcome.scores {
            Some(_) => scores(&shape, &outcome.values, &space, &data)?,
            None => Vec::new(),
        };
        let sizes: Vec<Value> = tested
            .into_iter()
            .map(|(target, scores)| {
                let top1 = (scores.images > 0).then_some(scores.top1);
                json!({ "depth": target.depth, "width": target.width, "top1": top1 })
            })
            .collect();
        let epochs = outcome.epochs;
        let mut hypernetwork = graph::Hypernetwork::new(outcome.values.clone())?;
        hypernetwork.epochs = epochs;
        let top1 = outcome.scores.map(|s| s.top1);
        let summary = format!(
            "Trained on {} for {} steps with wave, to predict transformers of {} to {} layers.",
            data.spec, outcome.steps, space.depths.0, space.depths.1
        );
        let model = HyperModel {
            hypernetwork,
            transform: data.transform.clone(),
            provenance: json!({
                "stage": "meta",
                "method": METHOD,
                "version": env!("CARGO_PKG_VERSION"),
                "data": data.spec,
                "seed": resolved.seed,
                "steps": outcome.steps,
                "epochs": epochs,
                "images_seen": outcome.steps * data.batch as u64,
                "architectures": space.architectures,
                "depths": space.depths,
                "widths": space.widths,
                "sizes": sizes,
            }),
            about: space.about,
        };
        let mut result = json!({
            "parameters": model.hypernetwork.parameters(),
            "top1": top1,
            "sizes": sizes,
        });
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        Ok(Made {
            result,
            write: Box::new(move || model.write(out, &summary)),
        })
    })
}

impl Trainee for Ready {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let start = graph::initialise(&self.shape, self.resolved.seed)?;
        let variables = start
            .iter()
            .map(|(name, t)| train::variable(name, t, &self.resolved, 0, device));
        variables.collect()
    }

    fn loss(
        &self,
        live: &Live,
        batch: &Batch,
        images: &Tensor,
        part: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let (shape, space) = (&self.shape, &self.space);
        let smoothing = self.resolved.label_smoothing;
        let targets = wave_train::batch_targets(batch, shape.classes, smoothing)?;
        let losses = space.of_step(self.resolved.seed, part.step).map(|target| {
            // A transformer without a class token draws nothing.
            let none = &mut generator(0, 0);
            let predicted = graph::predict(shape, &live.weights, &target, none)?;
            let stacked = vit::stack(&predicted, target.depth)?;
            let logits = vit::logits(&target, &stacked, images, None)?;
            wave_ops::soft_cross_entropy(&logits, &targets)? + (norms(&predicted)? * space.penalty)?
        });
        let losses = losses.collect::<candle_core::Result<Vec<_>>>()?;
        Tensor::stack(&losses, 0)?.mean(0)
    }

    /// The mean over the smallest and largest transformers with predicted weights.
    fn score(&self, values: &Weights) -> Result<Scores> {
        let all = scores(&self.shape, values, &self.space, &self.data)?;
        let n = all.len() as f64;
        let mean = |of: fn(&Scores) -> f64| all.iter().map(|(_, s)| of(s)).sum::<f64>() / n;
        Ok(Scores {
            top1: mean(|s| s.top1),
            top5: mean(|s| s.top5),
            loss: mean(|s| s.loss),
            images: all[0].1.images,
        })
    }
}

/// The sum of the norms of all tensors.
fn norms(weights: &Weights) -> candle_core::Result<Tensor> {
    // The square root has no gradient at 0.
    let norm = |t: &Tensor| (t.sqr()?.sum_all()? + 1e-12)?.sqrt();
    let norms = weights.values().map(norm);
    Tensor::stack(&norms.collect::<candle_core::Result<Vec<_>>>()?, 0)?.sum_all()
}

/// Accuracy of the smallest and largest transformers with predicted weights.
fn scores(
    shape: &HyperShape,
    values: &Weights,
    space: &Space,
    data: &Data,
) -> Result<Vec<(VitShape, Scores)>> {
    let values = data.tests.context.place(values)?;
    let of = |target: VitShape| {
        let at_once = forecast::test_batch(forecast::of_forward(&Network::Vit(target.clone())));
        let predicted = graph::predict(shape, &values, &target, &mut generator(0, 0))?;
        let stacked = vit::stack(&predicted, target.depth)?;
        let logits = |images: &Tensor| vit::logits(&target, &stacked, images, None);
        let scores = wave_train::evaluate(&Alone, data.tests.batches(at_once), logits)?;
        Ok((target, scores))
    };
    space.corners().into_iter().map(of).collect()
}
