//! The plan for fine-tuning: its settings, then its model and data.

use super::{DEFAULTS, beside, layers, logits};
use crate::ancestor::{Ancestor, AncestorOutput, Ancestors};
use crate::cache::{self, Cache};
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
use wave_models::{Weights, convmixer, refuse};
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan, Input};
use wave_run::forecast::{self, Memory, Step};
use wave_run::progress;
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
    pub(super) objective: Objective,
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
        cache::set_views(&settings.outputs, &mut data)?;
        Ok(FinetunePlan {
            table: to_table(settings)?,
            objective: Objective {
                ce_weight: 1.0,
                kl_weight: given.kl_weight,
                temperature: given.temperature,
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

    /// The values of a model before the first step, and the sizes of its slices, if steps train slices. Refuses a plan
    /// that does not fit the model, or leaves nothing to train.
    fn start(&self, model: &Model) -> Result<(Weights, Option<Sizes>)> {
        let (network, given) = (&model.network, &self.given);
        let sizes = self.slices(network)?;
        let mut start = network.prepare(&model.weights)?;
        match network {
            _ if given.layer_scale.is_none() && given.mlp_scalar.is_none() => {}
            Network::Vit(shape) => {
                beside::insert(&mut start, shape, given.layer_scale, given.mlp_scalar)?;
            }
            other => refuse!(
                "layer_scale and mlp_scalar apply to vision transformers, but this is {}; \
                 remove them",
                other.family()
            ),
        }
        check_parts("freeze", &given.freeze, start.keys())?;
        match start.keys().all(|name| self.is_frozen(name)) {
            false => Ok((start, sizes)),
            true => refuse!("freeze leaves nothing to train; give parts of fewer names"),
        }
    }

    /// The sizes of the slices of a transformer, of which each step trains one; `None` if steps train the whole network.
    fn slices(&self, network: &Network) -> Result<Option<Sizes>> {
        let (depths, widths) = (self.given.depths.as_deref(), &self.given.widths);
        if depths.is_none() && widths.is_none() {
            let mut keys = ["growth", "growth_power"].iter();
            return match keys.any(|key| self.table.contains_key(*key)) {
                false => Ok(None),
                true => refuse!(
                    "growth and growth_power apply only with --depths or --widths, which draw the size of each \
                     step"
                ),
            };
        }
        let Network::Vit(whole) = network else {
            refuse!(
                "depths and widths select slices of a vision transformer, but this is {}; remove \
                 them",
                network.family()
            );
        };
        let (depth, width, head) = (whole.depth, whole.width, whole.head_width());
        let depths = match depths {
            None => (depth, depth),
            Some(&[least, most]) if (1..=most).contains(&least) && most <= depth => (least, most),
            Some(other) => {
                refuse!("depths = {other:?}; give a minimum and a maximum, out of {depth} layers")
            }
        };
        let widths = widths.clone().unwrap_or(vec![width]);
        let fits = |w: &usize| *w > 0 && *w <= width && w.is_multiple_of(head);
        match widths.iter().find(|w| !fits(w)) {
            None => elastic::sizes(&self.given.elastic, depths, widths, 0.0).map(Some),
            Some(wrong) => refuse!(
                "widths: {wrong}, expected a multiple of the head width {head}, up to the model's \
                 width {width}"
            ),
        }
    }

    /// Mean work of a step, as a fraction of that of the whole network.
    fn share(&self, network: &Network) -> Result<f64> {
        let Network::Vit(shape) = network else {
            return Ok(1.0);
        };
        Ok(self.mean_multiply_adds(shape)? / shape.multiply_adds() as f64)
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
    pub model: Model,
    /// The values before the first step.
    pub(super) start: Weights,
    /// Sizes of the slices, if steps train slices.
    pub(super) sizes: Option<Sizes>,
    pub(super) ancestor: Option<Arc<Ancestor>>,
    pub(super) layout: Layout,
    pub(super) plan: FinetunePlan,
    /// Images.
    pub data: Data,
    /// The training settings, resolved for the data.
    pub resolved: Resolved,
    /// Memory of a step.
    pub step: Step,
}

impl Prepared {
    pub(super) fn read(model: &Path, settings: &Finetune, context: &Context) -> Result<Prepared> {
        let plan = FinetunePlan::new(settings)?;
        let model = Model::read(model, context)?;
        let given = &plan.given;
        let ancestor = given.ancestor.as_deref();
        let ancestor = Ancestors::default().get(ancestor, &given.zero_shot, context)?;
        Prepared::new(model, ancestor, plan, context)
    }

    /// Fine-tuning of a model.
    ///
    /// # Errors
    /// If there is no such data, it has other classes than the model, the plan fits neither, or a setting needs an
    /// ancestor, and there is none.
    pub fn new(
        mut model: Model,
        ancestor: Option<Arc<Ancestor>>,
        plan: FinetunePlan,
        context: &Context,
    ) -> Result<Prepared> {
        let network = &model.network;
        if !network.trainable() {
            let parts = match &network.parts()[..] {
                [] => String::new(),
                parts => format!(" with {}", parts.join(", ")),
            };
            refuse!(
                "{}{parts} is inference-only; distil it with `wave condense --ancestor`, then \
                 fine-tune the result",
                network.family()
            );
        }
        let layout = Layout::of(&plan.given.output, &model.network)?;
        let data = open_data(&mut model, &plan, context)?;
        let resolved = plan.training.resolve(&data)?;
        let (start, sizes) = plan.start(&model)?;
        if resolved.transformer.drop_path > 0.0 && layers(&model.network) == 0 {
            refuse!(
                "drop_path applies to transformers, but this is {}; remove it",
                model.network.family()
            );
        }
        let mut memory = Memory::of_network(&model.network, resolved.mode); // with the new head
        if let Some(ancestor) = &ancestor {
            ancestor.check(&data, AncestorOutput::Scores)?;
            memory = memory.beside(&ancestor.network);
        }
        let mut keys = ["kl_weight", "temperature"].into_iter();
        // In a plan, the ancestor may be one that is not there yet.
        let named = ancestor.is_some() || plan.given.ancestor.is_some();
        match (named, keys.find(|key| plan.table.contains_key(*key))) {
            (false, Some(key)) => {
                refuse!("{key} applies only with an ancestor; give --ancestor A, or remove it")
            }
            (true, _) if plan.objective.kl_weight == 0.0 => refuse!(
                "kl_weight = 0: nothing is learnt from the ancestor; raise it, or remove \
                 --ancestor"
            ),
            _ => {}
        }
        Ok(Prepared {
            step: Step::new(memory, &data, &resolved)?,
            model,
            start,
            sizes,
            ancestor,
            layout,
            plan,
            data,
            resolved,
        })
    }

    /// Opens or creates the cache of the ancestor's outputs by [`Cache::open`], if the plan names one.
    pub fn cache(&self) -> Result<Option<Cache>> {
        let (outputs, output) = (&self.plan.given.outputs, AncestorOutput::Scores);
        Cache::open(outputs, self.ancestor.as_deref(), output, &self.data)
    }

    /// Model, data, duration, memory, and time measured in a few steps.
    pub fn describe(&self) -> Result<String> {
        let (model, data, resolved) = (&self.model, &self.data, &self.resolved);
        let (given, output) = (&self.plan.given, AncestorOutput::Scores);
        if self.ancestor.is_some() || given.ancestor.is_none() {
            Cache::planned(&given.outputs, self.ancestor.as_deref(), output, data)?;
        }
        let (family, (depth, width)) = (model.network.family(), model.network.size());
        let parameters = model.parameters();
        let mut text =
            format!("model: {family}, {depth} layers, width {width}, {parameters} parameters\n");
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
        let device = data.tests.context.device();
        let (input, classes) = (model.network.input(), model.network.classes());
        let (input, targets) = timing::examples(input, classes, TIMED, device)?;
        let seconds = timing::descend(self.start.clone(), device, (1, 1), |weights| {
            let weights = beside::folded(weights)?;
            let (logits, _) = logits(&model.network, resolved.mode, &weights, &input, None)?;
            wave_ops::soft_cross_entropy(&logits, &targets)
        })?;
        let seconds = seconds[0] / TIMED as f64 * self.plan.share(&model.network)?;
        let images = resolved.steps as f64 * data.plan.batch as f64;
        let mut total = seconds * images;
        let rate = 1.0 / seconds;
        text += &format!("{rate:.1} images per second here, measured on {TIMED}");
        if let Some(ancestor) = &self.ancestor {
            let seconds = ancestor.seconds(output)?;
            total += seconds * ancestor.shown(data, resolved.steps, output) as f64;
            text += &format!(", the ancestor {:.1}", 1.0 / seconds);
        }
        let total = progress::duration(total);
        Ok(text + &format!("; at that rate about {total}\n"))
    }
}

/// The output of `wave finetune --dry-run`.
pub fn describe(model: &Path, settings: &Finetune, context: &Context) -> Result<String> {
    Prepared::read(model, settings, context)?.describe()
}

/// Opens the data for a model, and gives the model a new head if the plan asks for one.
fn open_data(model: &mut Model, plan: &FinetunePlan, context: &Context) -> Result<Data> {
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
    let zero = |head: &str| zero_head(head, classes, width);
    model.weights.extend(zero(head)?);
    if matches!(&model.network, Network::Vit(shape) if shape.distilled) {
        model.weights.extend(zero("head_dist")?);
    }
    match &mut model.network {
        Network::Vit(shape) => shape.classes = classes,
        Network::ConvMixer(shape) => shape.classes = classes,
        Network::ConvNext(shape) => shape.classes = classes,
        Network::Transformer(shape) => shape.classes = classes,
        _ => {} // inference-only: refused before
    }
    model.label_names = data.class_names.clone();
    Ok(())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
