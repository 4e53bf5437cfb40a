//! Artefacts that methods start from, made once for all sizes: donors and templates.

use super::cells::parallel;
use super::table::{DonorTable, Grid, TEMPLATES};
use super::{Bench, Frame};
use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wave_artefacts::layout::Layout;
use wave_artefacts::model::{Model, Network};
use wave_init::{Donor, Spent};
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::interrupt::Interruption;
use wave_run::locate;
use wave_run::lock::Lock;
use wave_run::paths;
use wave_run::recipe::Recipe;
use wave_run::settings::{Condense, Finetune, Output, ZeroShot};
use wave_stages::ancestor::Ancestors;
use wave_stages::condense;
use wave_stages::finetune::{self, FinetunePlan, Options};
use wave_stages::init::{self, MethodOptions};

/// A directory for each condensation, or the error.
type StageOutput = std::result::Result<Vec<PathBuf>, String>;

/// Directories of donors and templates.
pub(super) struct Artefacts {
    donors: BTreeMap<String, StageOutput>,
    /// By method.
    templates: BTreeMap<String, StageOutput>,
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
        let (count, jobs) = (grid.bench.condensations, grid.bench.jobs);
        let (context, interruption) = (&options.context, options.context.interruption());
        let mut donors = BTreeMap::new();
        let mut work = Vec::new();
        for (name, donor) in &grid.bench.donors {
            if let Some(dir) = &donor.model {
                donors.insert(name.clone(), given(dir, context));
                continue;
            }
            let dirs = numbered(out, "donors", name, count);
            for (c, dir) in dirs.iter().enumerate() {
                let settings = donor_settings(recipe, donor, frame, c)?;
                work.push((name.clone(), (donor, settings, dir.clone())));
            }
            donors.insert(name.clone(), Ok(dirs));
        }
        all(
            &work,
            jobs,
            interruption,
            &mut donors,
            |(donor, settings, dir)| train_donor(donor, settings, frame, dir, options),
        )?;

        let mut templates: BTreeMap<String, StageOutput> = BTreeMap::new();
        let mut work: Vec<(String, (Condense, PathBuf))> = Vec::new();
        let mut owners: Vec<(String, Condense)> = Vec::new();
        let mut twins: Vec<(String, String)> = Vec::new();
        for (name, method) in &grid.methods {
            if method.start != TEMPLATES {
                continue;
            }
            if let Some(dir) = &method.templates {
                templates.insert(name.clone(), given(dir, context));
                continue;
            }
            let mut settings: Condense = recipe.stage("condense", Some(&method.condense))?;
            let training = &mut settings.training.optimisation;
            let seed = training.seed.unwrap_or(0);
            training.seed = Some(seed);
            if method.donor.is_none() && settings.ancestor.is_some() {
                frame.keep_outputs(&mut settings.outputs);
            }
            if let Some(donor) = &method.donor {
                settings.ancestor = Some(donor.clone()); // its directories below
                settings.zero_shot = ZeroShot::default(); // donors have classifiers
            }
            // Equal settings share one condensation.
            if let Some((owner, _)) = owners.iter().find(|(_, other)| other == &settings) {
                twins.push((name.clone(), owner.clone()));
                continue;
            }
            owners.push((name.clone(), settings.clone()));
            let dirs = numbered(out, "templates", name, count);
            for (c, dir) in dirs.iter().enumerate() {
                let mut settings = settings.clone();
                settings.training.optimisation.seed = Some(seed + c as u64);
                if let Some(donor) = &method.donor {
                    // Otherwise the missing path fails with a clear message.
                    if let Ok(dirs) = &donors[donor] {
                        settings.ancestor = Some(pick(dirs, c as u64).display().to_string());
                    }
                }
                work.push((name.clone(), (settings, dir.clone())));
            }
            templates.insert(name.clone(), Ok(dirs));
        }
        all(
            &work,
            jobs,
            interruption,
            &mut templates,
            |(settings, dir)| {
                condense::condense(&recipe.name, settings, ancestors, dir, options)?;
                Ok(())
            },
        )?;
        for (twin, owner) in twins {
            let made = templates[&owner].clone();
            templates.insert(twin, made);
        }
        Ok(Artefacts { donors, templates })
    }

    pub(super) fn templates(&self, method: &str, seed: u64) -> Result<&Path> {
        made(self.templates.get(method), method, seed)
    }

    /// All template directories, each once.
    pub(super) fn template_dirs(&self) -> std::collections::BTreeSet<&PathBuf> {
        self.templates.values().flatten().flatten().collect()
    }

    pub(super) fn donor_dir(&self, name: &str, seed: u64) -> Result<&Path> {
        made(self.donors.get(name), name, seed)
    }
}

impl Bench<'_> {
    /// The donor that started from the weights in the model directory `begun` and was trained with these settings.
    pub(super) fn donor_like(&self, begun: &Path, settings: &Finetune) -> Result<Option<&Path>> {
        for (name, donor) in &self.grid.bench.donors {
            let (None, Some(Ok(dirs))) = (&donor.model, self.artefacts.donors.get(name)) else {
                continue;
            };
            for (c, dir) in dirs.iter().enumerate() {
                if donor_settings(self.recipe, donor, &self.frame, c)? == *settings
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
        let settings: Finetune = self.grid.bench.donors[name].finetune.clone().try_into()?;
        let of_image = FinetunePlan::new(&settings)?.mean_multiply_adds(donor.shape())?;
        Ok(donor.spent.images as f64 * of_image)
    }

    /// A donor for a seed, with the cost of its training.
    pub(super) fn donor(&self, name: &str, seed: u64) -> Result<Donor> {
        let dir = self.artefacts.donor_dir(name, seed)?;
        let model = Model::read(dir, self.context())?;
        let Network::Vit(shape) = &model.network else {
            return Err(request(format!(
                "the donor {} is {}; expected a vision transformer",
                dir.display(),
                model.network.family()
            )));
        };
        let mut donor = Donor::new(shape.clone(), model.weights.clone())?;
        if self.grid.bench.donors[name].model.is_none() {
            let number = |key: &str| model.provenance[key].as_f64().unwrap_or(0.0);
            donor.spent = Spent {
                epochs: number("epochs"),
                images: number("images_seen") as u64,
            };
        }
        Ok(donor)
    }
}

/// Makes artefacts by name; `made` gets the first error of each that fails.
fn all<T: Sync>(
    work: &[(String, T)],
    jobs: usize,
    interruption: &Interruption,
    made: &mut BTreeMap<String, StageOutput>,
    run: impl Fn(&T) -> Result<()> + Sync,
) -> Result<()> {
    let failed = parallel(work, jobs, interruption, |(name, item)| match run(item) {
        Err(error) if interruption.requested() => Err(error),
        done => Ok(done.err().map(|error| (name.clone(), format!("{error:#}")))),
    })?;
    for (name, error) in failed.into_iter().flatten().rev() {
        made.insert(name, Err(error));
    }
    Ok(())
}

fn made<'a>(made: Option<&'a StageOutput>, name: &str, seed: u64) -> Result<&'a Path> {
    match made {
        Some(Ok(dirs)) => Ok(pick(dirs, seed)),
        Some(Err(error)) => Err(request(format!("{name}: {error}"))),
        None => Err(request(format!("{name} has no templates"))),
    }
}

/// An existing artefact: a directory, or a name on a hub.
fn given(name: &str, context: &Context) -> StageOutput {
    let path = locate::locate(Path::new(name), context);
    path.map(|path| vec![path])
        .map_err(|error| format!("{error:#}"))
}

fn pick(dirs: &[PathBuf], seed: u64) -> &Path {
    &dirs[seed as usize % dirs.len()]
}

fn numbered(out: &Path, kind: &str, name: &str, count: usize) -> Vec<PathBuf> {
    (0..count)
        .map(|c| out.join(kind).join(format!("{name}-{c}")))
        .collect()
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
    let start = init::start(method, &shape, (&[], None), &MethodOptions::default(), seed)
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
