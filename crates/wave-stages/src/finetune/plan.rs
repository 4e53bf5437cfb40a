//! A fine-tuning before it begins: checked, and told by `--dry-run`.

use super::{DEFAULTS, check_frozen, only_runs, open_data, sizes_of_slices};
use crate::ancestor::Ancestor;
use crate::layout::Layout;
use crate::model::{Model, Network};
use crate::speed;
use anyhow::Result;
use std::path::Path;
use std::sync::Arc;
use wave_run::data::Data;
use wave_run::forecast::{self, Memory, Step};
use wave_run::settings::{self, BatchSize, Finetune};
use wave_run::train::Resolved;

/// Images of the step whose time is taken.
const TIMED: usize = 2;

/// What is to be fine-tuned, and how.
pub struct Plan {
    /// With a new head, if the settings ask for one.
    pub(super) model: Model,
    pub(super) ancestor: Option<Arc<Ancestor>>,
    pub(super) layout: Layout,
    /// With a number for the batch.
    pub(super) settings: Finetune,
    pub(super) data: Data,
    pub(super) resolved: Resolved,
    /// A step's memory.
    pub(super) step: Step,
}

impl Plan {
    /// Of the model in a directory, into `out`.
    ///
    /// # Errors
    /// If something is missing, or does not fit together.
    pub(super) fn read(
        model: &Path,
        settings: &Finetune,
        out: &Path,
        repeats: bool,
    ) -> Result<Plan> {
        settings::check(settings)?;
        let model = Model::read(model)?;
        let ancestor = settings
            .ancestor
            .as_deref()
            .map(|a| Ancestor::read(Path::new(a)).map(Arc::new))
            .transpose()?;
        Plan::new(model, ancestor, settings, out, repeats)
    }

    /// Of a model, into `out`.
    ///
    /// # Errors
    /// As [`Plan::read`].
    pub fn new(
        mut model: Model,
        ancestor: Option<Arc<Ancestor>>,
        settings: &Finetune,
        out: &Path,
        repeats: bool,
    ) -> Result<Plan> {
        if !model.network.trainable() {
            return Err(only_runs(&model.network));
        }
        let layout = Layout::of(&settings.output, &model.network)?;
        let settings = with_batch(settings, &model.network, out, repeats)?;
        let data = open_data(&mut model, &settings)?;
        let resolved = Resolved::new(&settings.training, DEFAULTS, &data)?;
        sizes_of_slices(&settings, &model.network)?;
        check_frozen(&model.network.prepare(&model.weights)?, &settings)?;
        let mut memory = Memory::of_network(&model.network, resolved.mode);
        if let Some(ancestor) = &ancestor {
            ancestor.check(&data)?;
            memory = memory.beside(&ancestor.network);
        }
        Ok(Plan {
            step: Step::new(memory, &data, &resolved, 1)?,
            model,
            ancestor,
            layout,
            settings,
            data,
            resolved,
        })
    }

    /// Model, data, duration, memory and time, which a few steps are taken for.
    ///
    /// # Errors
    /// If these fail.
    pub fn describe(&self) -> Result<String> {
        let Plan {
            model,
            data,
            resolved,
            step,
            ..
        } = self;
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
        text += &step.words();
        let state = forecast::checkpoint(parameters, resolved.ema.is_some());
        text += &format!(
            "a checkpoint {}, and its spare as much\n",
            forecast::bytes(state as f64)
        );
        if !step.can_time(TIMED) {
            return Ok(text);
        }
        let weights = model.network.prepare(&model.weights)?;
        let seconds = speed::training(&model.network, &weights, TIMED, resolved.mode)?;
        let images = resolved.steps as f64 * data.batch as f64;
        let mut total = seconds * images;
        text += &format!(
            "{:.1} images a second here, measured on {TIMED}",
            1.0 / seconds
        );
        if let Some(ancestor) = &self.ancestor {
            let seconds = ancestor.seconds()?;
            total += seconds * ancestor.shown(data, resolved.steps) as f64;
            text += &format!(", the ancestor {:.1}", 1.0 / seconds);
        }
        text += &format!("; at that rate about {}\n", forecast::duration(total));
        Ok(text)
    }
}

/// What `wave finetune --dry-run` prints.
///
/// # Errors
/// As the fine-tuning's own, before its first step.
pub fn describe(model: &Path, settings: &Finetune) -> Result<String> {
    Plan::read(model, settings, Path::new(""), false)?.describe()
}

/// The settings with a batch that fits, if that is asked for.
fn with_batch(
    settings: &Finetune,
    network: &Network,
    out: &Path,
    repeats: bool,
) -> Result<Finetune> {
    let mut settings = settings.clone();
    if settings.training.batch == Some(BatchSize::Auto) {
        let memory = |mode| Memory::of_network(network, mode);
        settings.training = forecast::fit_batch(&settings.training, memory, out, repeats)?;
    }
    Ok(settings)
}
