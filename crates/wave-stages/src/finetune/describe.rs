//! A fine-tuning in words.

use super::plan::{FinetunePlan, Prepared};
use crate::ancestor::AncestorOutput;
use crate::timing;
use anyhow::Result;
use std::path::Path;
use wave_run::context::Context;
use wave_run::forecast;
use wave_run::settings::Finetune;

/// Images of timed steps.
const TIMED: usize = 2;

impl Prepared {
    /// Model, data, duration, memory, and time from a few steps.
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
            "a checkpoint {}, and its spare as much\n",
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
            "{:.1} images a second here, measured on {TIMED}",
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
