//! Fine-tuning with the model and data of its plan.

use super::plan::FinetunePlan;
use crate::ancestor::{Ancestor, AncestorOutput, Ancestors};
use crate::cache::Cache;
use crate::score::zero_head;
use crate::timing;
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::{Model, Network};
use wave_run::context::Context;
use wave_run::data::{Data, Input};
use wave_run::error::request;
use wave_run::forecast::{self, Memory, Step};
use wave_run::settings::Finetune;
use wave_run::train::Resolved;

/// Images in a timed step.
const TIMED: usize = 2;

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
    ///
    /// # Errors
    /// If an input is missing, or inputs do not fit together.
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
        let memory = |model: &Model, mode| Memory::of_network(&model.network, mode);
        let here = |mode| memory(&model, mode);
        let batch = forecast::fit_batch(&mut plan.data, &plan.training, here, earlier, context)?;
        plan.table.extend(batch);
        let data = open_data(&mut model, &plan, context)?;
        let resolved = plan.training.resolve(&data)?;
        plan.slices(&model.network)?;
        if !plan.beside.is_empty() {
            plan.beside_of(&model.network)?;
        }
        let weights = model.network.prepare(&model.weights)?;
        plan.check_frozen(&weights)?;
        let mut memory = memory(&model, resolved.mode);
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
        let state = forecast::checkpoint(parameters, resolved.ema.is_some());
        text += &format!(
            "{} per checkpoint, and as much for the previous one\n",
            forecast::bytes(state as f64)
        );
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
///
/// # Errors
/// As the fine-tuning's own, before its first step.
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
