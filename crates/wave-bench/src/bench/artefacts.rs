//! Artefacts that methods start from, made once for all sizes: donors and templates.

use super::cells::parallel;
use super::{Bench, Frame};
use crate::grid::{DonorTable, Grid, TEMPLATES};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wave_artefacts::layout::Layout;
use wave_artefacts::model::{Model, Network};
use wave_init::{Choices, Donor};
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::locate;
use wave_run::lock::Lock;
use wave_run::paths;
use wave_run::recipe::Recipe;
use wave_run::settings::{Condense, Finetune, Output, ZeroShot};
use wave_stages::ancestor::Ancestors;
use wave_stages::condense;
use wave_stages::finetune::{self, FinetunePlan, Options};
use wave_stages::init;

/// Directories of donors and templates, one for each condensation.
#[derive(Default)]
pub(super) struct Artefacts {
    donors: BTreeMap<String, Vec<PathBuf>>,
    /// By method.
    templates: BTreeMap<String, Vec<PathBuf>>,
    /// Errors of the directories that could not be made or found.
    failed: BTreeMap<PathBuf, String>,
}

impl Artefacts {
    /// Trains the donors and condensations that are not complete in `out`. A failure is recorded, and fails the runs
    /// that depend on it.
    pub(super) fn make(
        recipe: &Recipe,
        grid: &Grid,
        frame: &Frame,
        ancestors: &Ancestors,
        out: &Path,
        options: &Options,
    ) -> Result<Artefacts> {
        let count = grid.bench.condensations;
        let context = &options.context;
        let mut made = Artefacts::default();
        let mut work = Vec::new();
        for (name, donor) in &grid.bench.donors {
            let dirs = match &donor.model {
                Some(dir) => made.given(dir, context),
                None => numbered(out, "donors", name, count),
            };
            if donor.model.is_none() {
                for (c, dir) in dirs.iter().enumerate() {
                    let settings = donor_settings(recipe, donor, frame, c)?;
                    work.push((dir.clone(), (donor, settings)));
                }
            }
            made.donors.insert(name.clone(), dirs);
        }
        made.all(grid, context, &work, |(donor, settings), dir| {
            train_donor(donor, settings, frame, dir, options)
        })?;

        let mut work: Vec<(PathBuf, Condense)> = Vec::new();
        let mut owners: Vec<(String, Condense)> = Vec::new();
        for (name, method) in &grid.methods {
            if method.start != TEMPLATES {
                continue;
            }
            if let Some(dir) = &method.templates {
                let dirs = made.given(dir, context);
                made.templates.insert(name.clone(), dirs);
                continue;
            }
            let mut settings: Condense = recipe.stage("condense", Some(&method.condense))?;
            let training = &mut settings.training.optimisation;
            let seed = training.seed.unwrap_or(0);
            training.seed = Some(seed);
            if method.donor.is_none() && settings.ancestor.is_some() {
                frame.keep_outputs(&mut settings.outputs);
            }
            // The missing path of a failed donor fails with a clear message.
            let donor = method.donor.as_ref().map(|donor| &made.donors[donor]);
            let ancestor = |c| donor.map(|dirs| pick(dirs, c).display().to_string());
            if donor.is_some() {
                settings.ancestor = ancestor(0);
                settings.zero_shot = ZeroShot::default(); // donors have classifiers
            }
            // Equal settings share one condensation.
            if let Some((owner, _)) = owners.iter().find(|(_, other)| other == &settings) {
                let dirs = made.templates[owner].clone();
                made.templates.insert(name.clone(), dirs);
                continue;
            }
            let dirs = numbered(out, "templates", name, count);
            for (c, dir) in dirs.iter().enumerate() {
                let mut settings = settings.clone();
                settings.training.optimisation.seed = Some(seed + c as u64);
                settings.ancestor = ancestor(c as u64).or(settings.ancestor);
                work.push((dir.clone(), settings));
            }
            owners.push((name.clone(), settings));
            made.templates.insert(name.clone(), dirs);
        }
        made.all(grid, context, &work, |settings, dir| {
            condense::condense(&recipe.name, settings, ancestors, dir, options).map(drop)
        })?;
        Ok(made)
    }

    /// An existing artefact: a directory, or a name on a hub.
    fn given(&mut self, name: &str, context: &Context) -> Vec<PathBuf> {
        let located = locate::locate(Path::new(name), context);
        let dir = located.unwrap_or_else(|error| {
            let dir = PathBuf::from(name);
            self.failed.insert(dir.clone(), format!("{error:#}"));
            dir
        });
        vec![dir]
    }

    /// Makes the artefacts of some directories, and records the errors.
    fn all<T: Sync>(
        &mut self,
        grid: &Grid,
        context: &Context,
        work: &[(PathBuf, T)],
        run: impl Fn(&T, &Path) -> Result<()> + Sync,
    ) -> Result<()> {
        let interruption = context.interruption();
        let error_of = |(dir, item): &(PathBuf, T)| match run(item, dir) {
            Err(error) if interruption.requested() => Err(error),
            done => Ok(done.err().map(|error| (dir.clone(), format!("{error:#}")))),
        };
        let failed = parallel(work, grid.bench.jobs, interruption, error_of)?;
        self.failed.extend(failed.into_iter().flatten());
        Ok(())
    }

    pub(super) fn templates(&self, method: &str, seed: u64) -> Result<&Path> {
        self.made(method, &self.templates[method], seed)
    }

    pub(super) fn donor_dir(&self, name: &str, seed: u64) -> Result<&Path> {
        self.made(name, &self.donors[name], seed)
    }

    fn made<'a>(&self, name: &str, dirs: &'a [PathBuf], seed: u64) -> Result<&'a Path> {
        let dir = pick(dirs, seed);
        match self.failed.get(dir) {
            Some(error) => refuse!("{name}: {error}"),
            None => Ok(dir),
        }
    }
}

impl Bench<'_> {
    /// The donor that started from the weights in the model directory `begun` and was trained with these settings.
    pub(super) fn donor_like(&self, begun: &Path, settings: &Finetune) -> Result<Option<&Path>> {
        let Artefacts { donors, failed, .. } = &self.artefacts;
        let trained = self.grid.bench.donors.iter();
        for (name, donor) in trained.filter(|(_, donor)| donor.model.is_none()) {
            for (c, dir) in donors[name].iter().enumerate() {
                if donor_settings(self.recipe, donor, &self.frame, c)? == *settings
                    && !failed.contains_key(dir)
                    && Model::digest(&started(dir)).ok() == Some(Model::digest(begun)?)
                {
                    return Ok(Some(dir));
                }
            }
        }
        Ok(None)
    }

    /// Images times multiply-adds spent to train a donor; zero for an existing model.
    pub(super) fn donor_work(&self, name: &str) -> Result<f64> {
        let donor = self.donor(name, 0)?;
        let table = &self.grid.bench.donors[name];
        let settings = donor_settings(self.recipe, table, &self.frame, 0)?;
        let of_image = FinetunePlan::new(&settings)?.mean_multiply_adds(&donor.shape)?;
        Ok(donor.images_seen as f64 * of_image)
    }

    /// Epochs of a donor's training; zero for an existing model.
    pub(super) fn donor_epochs(&self, name: &str, seed: u64) -> Result<f64> {
        let dir = self.artefacts.donor_dir(name, seed)?;
        if self.grid.bench.donors[name].model.is_some() {
            return Ok(0.0);
        }
        let config: Value = wave_hub::read_json(&dir.join("config.json"))?;
        Ok(config["wave"]["epochs"].as_f64().unwrap_or(0.0))
    }

    /// A donor for a seed, with the cost of its training.
    pub(super) fn donor(&self, name: &str, seed: u64) -> Result<Donor> {
        let dir = self.artefacts.donor_dir(name, seed)?;
        let model = Model::read(dir, self.context())?;
        let Network::Vit(shape) = &model.network else {
            let (dir, found) = (dir.display(), model.network.family());
            refuse!("the donor {dir} is {found}; expected a vision transformer");
        };
        let mut donor = Donor::new(shape.clone(), model.weights.clone())?;
        if self.grid.bench.donors[name].model.is_none() {
            let number = |key: &str| model.provenance[key].as_f64().unwrap_or(0.0);
            donor.epochs = number("epochs");
            donor.images_seen = number("images_seen") as u64;
        }
        Ok(donor)
    }
}

fn pick(dirs: &[PathBuf], seed: u64) -> &Path {
    &dirs[seed as usize % dirs.len()]
}

fn numbered(out: &Path, kind: &str, name: &str, count: usize) -> Vec<PathBuf> {
    let dir = |c| out.join(kind).join(format!("{name}-{c}"));
    (0..count).map(dir).collect()
}

fn donor_settings(
    recipe: &Recipe,
    donor: &DonorTable,
    frame: &Frame,
    c: usize,
) -> Result<Finetune> {
    let mut settings: Finetune = recipe.stage("finetune", Some(&donor.finetune))?;
    let seed = settings.training.optimisation.seed.unwrap_or(0);
    settings.training.optimisation.seed = Some(seed + c as u64);
    if donor.distil {
        frame.distil(&mut settings)?;
    }
    Ok(settings)
}

fn train_donor(
    donor: &DonorTable,
    settings: &Finetune,
    frame: &Frame,
    dir: &Path,
    options: &Options,
) -> Result<()> {
    let (depth, width) = (donor.depth.unwrap_or(0), donor.width.unwrap_or(0));
    let shape = frame.shape(depth, width)?;
    let method = donor.start.as_deref().unwrap_or("mimetic");
    let seed = settings.training.optimisation.seed.unwrap_or(0);
    let start = init::start(method, &shape, (None, None), &Choices::default(), seed)
        .with_context(|| format!("start = {method}"))?;
    let note = format!("Initialised with wave, method {method}; not trained.");
    let model = frame.model(shape, start.weights, Value::Null);
    finetune::finetune(&begin(&model, &note, dir)?, settings, dir, options)?;
    Ok(())
}

/// Writes the initial model of the training in `dir` next to that directory. Returns the model's directory.
pub(super) fn begin(model: &Model, note: &str, dir: &Path) -> Result<PathBuf> {
    let begun = started(dir);
    let _lock = Lock::take(&begun)?;
    model.write(&begun, Layout::new(&Output::default())?, None, note)?;
    Ok(begun)
}

/// Directory of the initial model of the training in `dir`.
fn started(dir: &Path) -> PathBuf {
    paths::appended(dir, ".start")
}
