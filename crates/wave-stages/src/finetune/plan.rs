//! The plan for fine-tuning: its settings, then its model and data.

use super::{Beside, DEFAULTS};
use crate::ancestor::{Ancestor, AncestorOutput, Ancestors};
use crate::cache::{Cache, CachePlan};
use crate::elastic;
use crate::score::{check_parts, zero_head};
use crate::timing;
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use toml::Table;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::{Model, Network};
use wave_artefacts::zero_shot;
use wave_learngene::{Objective, Sizes};
use wave_models::vit::VitShape;
use wave_models::{Weights, convmixer};
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::error::request;
use wave_run::forecast::{self, Memory, Step};
use wave_run::recipe::to_table;
use wave_run::settings::{self, Finetune, FinetuneValues};
use wave_run::train::{Resolved, TrainingPlan};

/// Images in a timed step.
const TIMED: usize = 2;

/// The settings for fine-tuning, checked.
#[derive(Clone, Debug)]
pub struct FinetunePlan {
    /// The settings, which a resumed run must repeat.
    pub(super) table: Table,
    pub(super) cache: Option<CachePlan>,
    pub(super) objective: Objective,
    pub(super) beside: Beside,
    /// The settings with their defaults.
    pub given: FinetuneValues,
    pub(super) data: DataPlan,
    /// Training.
    pub training: TrainingPlan,
}

impl FinetunePlan {
    /// The plan of these settings.
    pub fn new(settings: &Finetune) -> Result<FinetunePlan> {
        settings::check(settings)?;
        zero_shot::check(&settings.zero_shot, settings.ancestor.as_deref())?;
        let given = FinetuneValues::from(settings.clone());
        let mut data = DataPlan::new(&settings.training)?;
        Ok(FinetunePlan {
            table: to_table(settings)?,
            cache: CachePlan::new(&settings.outputs, &mut data)?,
            objective: Objective {
                ce_weight: 1.0,
                kl_weight: given.kl_weight,
                temperature: given.temperature,
            },
            beside: Beside {
                layer_scale: given.layer_scale,
                mlp_scalar: given.mlp_scalar,
            },
            given,
            data,
            training: TrainingPlan::new(&settings.training, DEFAULTS)?,
        })
    }

    /// True for a weight that does not train: the settings freeze it, or it is a running statistic, which the forward
    /// pass maintains.
    pub(super) fn is_frozen(&self, name: &str) -> bool {
        let frozen = &self.given.freeze;
        frozen.iter().any(|part| name.contains(part)) || convmixer::is_running_statistic(name)
    }

    /// Refuses frozen parts that none of the weights' names contains, or that leave nothing to train.
    pub(super) fn check_frozen(&self, weights: &Weights) -> Result<()> {
        check_parts("freeze", &self.given.freeze, weights.keys())?;
        match weights.keys().all(|name| self.is_frozen(name)) {
            false => Ok(()),
            true => Err(request(
                "freeze leaves nothing to train; give parts of fewer names",
            )),
        }
    }

    /// Opens the cache of the ancestor's outputs, if there is to be one.
    ///
    /// # Errors
    /// As [`Cache::of_plan`]; also if another setting needs an ancestor, and there is none.
    pub fn open_cache(&self, ancestor: Option<&Ancestor>, data: &Data) -> Result<Option<Cache>> {
        let mut keys = ["kl_weight", "temperature"].into_iter();
        if let (None, Some(key)) = (ancestor, keys.find(|key| self.table.contains_key(*key))) {
            return Err(request(format!(
                "{key} applies only with an ancestor; give --ancestor A, or remove it"
            )));
        }
        Cache::of_plan(self.cache.as_ref(), ancestor, AncestorOutput::Scores, data)
    }

    /// The shape of the transformer that has extra parameters in training, if there are any.
    pub(super) fn beside_of<'a>(&self, network: &'a Network) -> Result<Option<&'a VitShape>> {
        match network {
            _ if self.beside.is_empty() => Ok(None),
            Network::Vit(shape) => Ok(Some(shape)),
            other => Err(request(format!(
                "layer_scale and mlp_scalar apply to vision transformers, but this is {}; remove \
                 them",
                other.family()
            ))),
        }
    }

    /// The sizes of the slices of a transformer, of which each step trains one; `None` if steps train the whole network.
    pub(super) fn slices(&self, network: &Network) -> Result<Option<Sizes>> {
        let (depths, widths) = (self.given.depths.as_deref(), &self.given.widths);
        if depths.is_none() && widths.is_none() {
            let mut keys = ["growth", "growth_power"].iter();
            return match keys.any(|key| self.table.contains_key(*key)) {
                false => Ok(None),
                true => Err(request(
                    "growth and growth_power apply only with --depths or --widths, which draw the size of each \
                     step",
                )),
            };
        }
        let Network::Vit(whole) = network else {
            return Err(request(format!(
                "depths and widths select slices of a vision transformer, but this is {}; remove \
                 them",
                network.family()
            )));
        };
        let depths = match depths {
            None => (whole.depth, whole.depth),
            Some(&[least, most]) if (1..=most).contains(&least) && most <= whole.depth => {
                (least, most)
            }
            Some(other) => {
                return Err(request(format!(
                    "depths = {other:?}; give a minimum and a maximum, out of {} layers",
                    whole.depth
                )));
            }
        };
        let widths = widths.clone().unwrap_or(vec![whole.width]);
        let head = whole.head_width();
        let fits = |w: &usize| *w > 0 && *w <= whole.width && w.is_multiple_of(head);
        match widths.iter().find(|w| !fits(w)) {
            None => elastic::sizes(&self.given.elastic, depths, widths, 0.0).map(Some),
            Some(wrong) => Err(request(format!(
                "widths: {wrong}, expected a multiple of the head width {head}, up to the model's \
                 width {}",
                whole.width
            ))),
        }
    }

    /// Mean multiply-adds per image in a step, over the slices of a transformer that steps sample.
    pub fn mean_multiply_adds(&self, shape: &VitShape) -> Result<f64> {
        let sizes = self.slices(&Network::Vit(shape.clone()))?;
        let whole = || shape.multiply_adds() as f64;
        Ok(sizes.map_or_else(whole, |sizes| sizes.mean_multiply_adds(shape)))
    }
}

/// Fine-tuning with all its inputs, checked.
pub struct Prepared {
    /// The model, with a new head if the plan asks for one.
    pub(super) model: Model,
    pub(super) ancestor: Option<Arc<Ancestor>>,
    pub(super) cache: Option<Cache>,
    pub(super) layout: Layout,
    /// The plan, with the batch size resolved.
    pub(super) plan: FinetunePlan,
    pub(super) data: Data,
    pub(super) resolved: Resolved,
    pub(super) step: Step,
}

impl Prepared {
    /// Reads the model in a directory; an automatic batch size is that of the `earlier` run, if any.
    pub(super) fn read(
        model: &Path,
        plan: FinetunePlan,
        earlier: Option<&Path>,
        context: &Context,
    ) -> Result<Prepared> {
        let model = Model::read(model, context)?;
        let ancestors = Ancestors::default();
        let given = &plan.given;
        let ancestor = ancestors.get(given.ancestor.as_deref(), &given.zero_shot, context)?;
        Prepared::new(model, ancestor, plan, earlier, context)
    }

    /// Fine-tuning of a model; an automatic batch size is that of the `earlier` run, if any.
    pub fn new(
        mut model: Model,
        ancestor: Option<Arc<Ancestor>>,
        mut plan: FinetunePlan,
        earlier: Option<&Path>,
        context: &Context,
    ) -> Result<Prepared> {
        if !model.network.trainable() {
            return Err(only_runs(&model.network));
        }
        let layout = Layout::of(&plan.given.output, &model.network)?;
        let memory = |mode| Memory::of_network(&model.network, mode);
        let batch = forecast::fit_batch(&mut plan.data, &plan.training, memory, earlier, context)?;
        plan.table.extend(batch);
        let data = open_data(&mut model, &plan, context)?;
        let resolved = plan.training.resolve(&data)?;
        plan.slices(&model.network)?;
        plan.beside_of(&model.network)?;
        plan.check_frozen(&model.network.prepare(&model.weights)?)?;
        let mut memory = Memory::of_network(&model.network, resolved.mode); // with the new head
        if let Some(ancestor) = &ancestor {
            ancestor.check(&data, AncestorOutput::Scores)?;
            memory = memory.beside(&ancestor.network);
        }
        let cache = plan.open_cache(ancestor.as_deref(), &data)?;
        Ok(Prepared {
            cache,
            step: Step::new(memory, &data, &resolved)?,
            model,
            ancestor,
            layout,
            plan,
            data,
            resolved,
        })
    }

    /// Model, data, duration, memory, and time measured in a few steps.
    pub fn describe(&self) -> Result<String> {
        let (model, data, resolved) = (&self.model, &self.data, &self.resolved);
        let (depth, width) = model.network.size();
        let parameters = model.parameters();
        let mut text = format!(
            "model: {}, {depth} layers, width {width}, {parameters} parameters\n",
            model.network.family()
        );
        text += &data.describe();
        text += &resolved.describe(data);
        if let Some(ancestor) = &self.ancestor {
            text += &format!("ancestor: {}\n", ancestor.describe());
        }
        text += &self.step.words();
        text += &forecast::checkpoint(parameters, resolved.ema.is_some());
        if !self.step.can_time(TIMED) {
            return Ok(text);
        }
        let weights = model.network.prepare(&model.weights)?;
        let seconds = timing::training(
            &model.network,
            &weights,
            TIMED,
            resolved.mode,
            data.tests.context.device(),
        )?;
        let images = resolved.steps as f64 * data.batch as f64;
        let mut total = seconds * images;
        text += &format!(
            "{:.1} images per second here, measured on {TIMED}",
            1.0 / seconds
        );
        if let Some(ancestor) = &self.ancestor {
            let seconds = ancestor.seconds(AncestorOutput::Scores)?;
            total += seconds * ancestor.shown(data, resolved.steps, AncestorOutput::Scores) as f64;
            text += &format!(", the ancestor {:.1}", 1.0 / seconds);
        }
        text += &format!("; at that rate about {}\n", forecast::duration(total));
        Ok(text)
    }
}

/// The output of `wave finetune --dry-run`.
pub fn describe(model: &Path, settings: &Finetune, context: &Context) -> Result<String> {
    let plan = FinetunePlan::new(settings)?;
    Prepared::read(model, plan, None, context)?.describe()
}

/// Opens the data for a model, and gives the model a new head if the plan asks for one.
///
/// # Errors
/// If there is no such data, or its classes differ from the model's.
pub fn open_data(model: &mut Model, plan: &FinetunePlan, context: &Context) -> Result<Data> {
    let data = Data::open(&plan.data, Input::Like(model.transform.clone()), context)?;
    if plan.given.new_head {
        reset_head(model, &data)?;
    }
    data.tests.check_classes(
        model.network.classes(),
        "choose data with the model's classes, or start a new head with --new-head true",
    )?;
    data.tests.check_names(
        &model.label_names,
        "start a new head with --new-head true, or, if the classes are the same, rename and \
         reorder the data's to match the model",
    )?;
    Ok(data)
}

fn reset_head(model: &mut Model, data: &Data) -> Result<()> {
    let (classes, width) = (data.class_names.len(), model.network.size().1);
    let head = match &model.network {
        Network::ConvNext(shape) => shape.head(),
        _ => "head",
    };
    model.weights.extend(zero_head(head, classes, width)?);
    match &mut model.network {
        Network::Vit(shape) => shape.classes = classes,
        Network::ConvMixer(shape) => shape.classes = classes,
        Network::ConvNext(shape) => shape.classes = classes,
        Network::Transformer(shape) => shape.classes = classes,
        other => return Err(only_runs(other)),
    }
    model.label_names = data.class_names.clone();
    Ok(())
}

/// The error for a network that supports inference only.
pub(super) fn only_runs(network: &Network) -> anyhow::Error {
    let parts = match &network.parts()[..] {
        [] => String::new(),
        parts => format!(" with {}", parts.join(", ")),
    };
    request(format!(
        "{}{parts} is inference-only; distil it with `wave condense --ancestor`, then fine-tune \
         the result",
        network.family()
    ))
}
