//! An expansion before it begins: its size chosen, checked, and told by `--dry-run`.

use super::DEFAULTS;
use crate::budget::{self, Candidate, Surface};
use crate::layout::Layout;
use crate::model::Network;
use crate::templates::{self, TemplateDir};
use anyhow::Result;
use std::path::Path;
use wave_learngene::Learngene;
use wave_models::vit::VitShape;
use wave_run::data::{Data, Input};
use wave_run::error::request;
use wave_run::forecast::{self, Memory, Step};
use wave_run::settings::{self, Duration, Expand};
use wave_run::train::Resolved;

/// What is to be made, of what.
pub(super) struct Plan {
    pub(super) templates: TemplateDir,
    /// With a size, and a number for the batch.
    pub(super) settings: Expand,
    /// The sizes within the limits, if limits were given, best first.
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) shape: VitShape,
    pub(super) layout: Layout,
    pub(super) data: Option<Data>,
    /// How scalers are fitted, and what a step takes, if there is data.
    fitting: Option<(Resolved, Step)>,
}

impl Plan {
    /// Of the templates in a directory, into `out`.
    ///
    /// # Errors
    /// If something is missing, or does not fit together.
    pub(super) fn read(dir: &Path, settings: &Expand, out: &Path, repeats: bool) -> Result<Plan> {
        settings::check(settings)?;
        let templates = templates::read(dir)?;
        let (mut settings, candidates) = sized(&templates, settings)?;
        let shape = shape(&templates.learngene, &settings)?;
        let network = Network::Vit(shape.clone());
        let layout = Layout::of(&settings.output, &network)?;
        forecast::check_network(&network)?;
        let memory = |mode| {
            Memory::of_composed(
                &shape,
                mode,
                templates.learngene.plan.scaler_count(&shape, shape.depth),
            )
        };
        settings.training = forecast::fit_batch(&settings.training, memory, out, repeats)?;
        let data = open_data(&templates, &settings, &shape)?;
        let fitting = match &data {
            Some(data) => {
                let resolved = Resolved::new(&settings.training, DEFAULTS, data)?;
                let step = Step::new(memory(resolved.mode), data, &resolved, 1)?;
                Some((resolved, step))
            }
            None => None,
        };
        Ok(Plan {
            templates,
            settings,
            candidates,
            shape,
            layout,
            data,
            fitting,
        })
    }

    /// Refuses what takes more memory than there is.
    ///
    /// # Errors
    /// Naming both.
    pub(super) fn check(&self) -> Result<()> {
        match &self.fitting {
            Some((_, step)) => step.check(),
            None => Ok(()),
        }
    }

    /// The sizes within the limits as a table, or nothing.
    pub(super) fn sizes(&self) -> String {
        self.candidates
            .as_deref()
            .map_or(String::new(), budget::table)
    }

    /// The accuracy that the templates recorded for such a model, made without data, and how: where they
    /// say something of it.
    pub(super) fn expected(&self) -> Option<(f64, &'static str)> {
        let Expand { scalers, fill, .. } = &self.settings;
        let gene = &self.templates.learngene;
        let VitShape { depth, width, .. } = self.shape;
        let as_recorded = gene.shape(depth, width, None).ok().as_ref() == Some(&self.shape)
            && scalers.as_deref().unwrap_or("bank") == "bank"
            && fill.as_deref().unwrap_or("inherit") == "inherit";
        let surface = Surface::new(&self.templates.config.accuracies);
        let untouched = as_recorded && self.data.is_none();
        untouched.then(|| surface.expected(depth, width))?
    }

    fn describe(&self) -> Result<String> {
        let shape = &self.shape;
        let parameters = shape.parameter_count();
        let mut text = format!("{}{shape:#?}\n{parameters} parameters\n", self.sizes());
        if let Some((top1, from)) = self.expected() {
            text += &format!("expected top-1 {:.2} % ({from})\n", 100.0 * top1);
        }
        if let (Some(data), Some((resolved, step))) = (&self.data, &self.fitting) {
            text += &data.describe();
            text += &resolved.describe(data);
            text += &step.words();
        }
        Ok(text)
    }
}

/// What `wave expand --dry-run` prints.
///
/// # Errors
/// As the expansion's own, before its first step.
pub fn describe(dir: &Path, settings: &Expand) -> Result<String> {
    Plan::read(dir, settings, Path::new(""), false)?.describe()
}

/// The data to fit scalers to, or to test on, if any is named.
///
/// # Errors
/// If none is, and the settings ask for steps.
fn open_data(templates: &TemplateDir, settings: &Expand, shape: &VitShape) -> Result<Option<Data>> {
    let training = &settings.training;
    if training.data.is_some() {
        let input = Input::Like(templates.transform_of(shape));
        return Data::open(training, input).map(Some);
    }
    // Without data nothing is fitted, unless that is asked for.
    match training.duration(Duration::Steps(0))? {
        Duration::Steps(0) | Duration::Epochs(0.0) => Ok(None),
        Duration::Steps(n) => Err(need_data(&format!("{n} steps"))),
        Duration::Epochs(n) => Err(need_data(&format!("{n} epochs"))),
    }
}

fn need_data(of: &str) -> anyhow::Error {
    request(format!(
        "fitting scalers for {of} needs images; give --data D, or leave the duration out: without data \
         nothing is fitted"
    ))
}

/// The settings with a size in the place of limits on one; and the sizes within these, best first.
pub fn sized(
    templates: &TemplateDir,
    settings: &Expand,
) -> Result<(Expand, Option<Vec<Candidate>>)> {
    let mut settings = settings.clone();
    let candidates = budget::choose(templates, &settings)?;
    if let Some(best) = candidates.as_ref().and_then(|all| all.first()) {
        (settings.depth, settings.width) = (Some(best.depth), Some(best.width));
        (settings.max_params, settings.max_macs) = (None, None);
        settings.max_latency_ms = None;
    }
    Ok((settings, candidates))
}

/// The target's shape.
pub fn shape(gene: &Learngene, settings: &Expand) -> Result<VitShape> {
    let depth = settings
        .depth
        .ok_or_else(|| request("no depth; give --depth N"))?;
    let width = settings
        .width
        .ok_or_else(|| request("no width; give --width N"))?;
    budget::shape_of(gene, settings, depth, width, settings.heads)
}
