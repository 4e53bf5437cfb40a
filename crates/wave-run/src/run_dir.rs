//! `OUT/run/`: files of a run in addition to its artefact, listed in FORMATS.md.
//!
//! An earlier run in OUT is never overwritten by mistake. A complete run with the same settings and inputs is
//! not repeated: its result is returned. Any other content is refused, unless an unfinished run
//! continues (`--resume`) or everything is replaced (`--overwrite`).

use crate::checkpoint::{Best, Checkpoints, Found};
use crate::context::Context;
use crate::error::request;
use crate::inputs::{Inputs, differences};
use crate::lock::Lock;
use crate::log::{self, Log};
use crate::paths;
use crate::plot::{Chart, Series, Unit};
use crate::progress::{self, Verbosity};
use crate::recipe::leaves;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use toml::Table;
use wave_models::refuse;
use wave_train::{State, Variable};

/// Settings that do not change the result; `time_limit` only if it did not end the run.
const FREE: [&str; 3] = ["checkpoint_steps", "checkpoint_minutes", "time_limit"];

/// Settings of what is written after the training, which an unfinished run may change.
const WRITTEN: [&str; 2] = ["dtype", "format"];

/// Settings that are paths of inputs, whose identity is their digest.
const PATHS: [&str; 6] = ["ancestor", "cache", "delta", "from", "grow", "labels"];

/// A run that another may not replace, and the remedies.
const UNFINISHED: &str = "an unfinished run; continue it with --resume, start over with --overwrite, \
     or choose another --out";

/// The settings of a stage as a recipe that its command accepts: `[stage]` and its keys.
pub fn of_stage(stage: &str, settings: &Table) -> Table {
    Table::from_iter([(stage.to_owned(), settings.clone().into())])
}

/// The keys of a stage in a recipe, or the keys themselves if there is no stage.
fn keys(recipe: &Table) -> &Table {
    match recipe.values().next() {
        Some(toml::Value::Table(stage)) if recipe.len() == 1 => stage,
        _ => recipe,
    }
}

/// Options outside the recipe.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The context of the run.
    pub context: Context,
    /// Continue an interrupted run.
    pub resume: bool,
    /// Replace the content of the output directory.
    pub overwrite: bool,
    /// Amount of output.
    pub verbosity: Verbosity,
    /// True if trainings measure where their time goes.
    pub profile: bool,
}

/// The open `run/` of an output directory. Only the first rank opens it; the others write nothing.
pub struct RunDir {
    dir: PathBuf,
    open: Option<Open>,
}

/// State of the first rank.
struct Open {
    log: Log,
    checkpoints: Checkpoints,
    /// The state to resume from.
    found: Option<Found>,
    inputs: BTreeMap<String, String>,
    lock: Lock,
}

/// A run to begin or to continue, or the result of a complete one with the same settings and inputs.
type Opened = ControlFlow<Value, Open>;

/// Opens `out/run/` on the first rank.
fn open(out: &Path, settings: &Table, inputs: &Inputs, options: &Options) -> Result<Opened> {
    check_out(out, Some(settings), inputs, options)?;
    let lock = Lock::take(out)?;
    let dir = out.join("run");
    let threads = rayon::current_num_threads().to_string();
    let about = [
        ("inputs".into(), json!(inputs.identity()).to_string()),
        ("threads".into(), threads.clone()),
    ];
    let mut checkpoints = Checkpoints::new(&dir, about.into());
    let (mut found, mut from) = (None, None);
    if options.overwrite {
        // Nothing of the old run is read.
    } else if let Some(mut result) = completed(&dir)? {
        let run = result.as_object_mut().and_then(|map| map.remove("run"));
        let run = run.unwrap_or_default();
        let read = serde_json::from_value(run["inputs"].clone()).ok();
        let free = match result["stopped"].is_null() {
            true => &FREE[..],
            false => &FREE[..2],
        };
        same(out, "a complete", settings, free, inputs, read)?;
        check_artefact(out, &run["files"])?;
        checkpoints.remove()?; // left by a kill after the result
        result["out"] = paths::text(out).into();
        return Ok(ControlFlow::Break(result));
    } else if Checkpoints::exist_in(&dir) {
        if !options.resume {
            refuse!("{} holds {UNFINISHED}", out.display());
        }
        found = checkpoints.find()?;
        if let Some(found) = &found {
            let of = |key: &str| found.about.get(key).map_or("", String::as_str);
            let read = serde_json::from_str(of("inputs")).ok();
            let free = [&FREE[..], &WRITTEN].concat();
            same(out, "an unfinished", settings, &free, inputs, read)?;
            from = Some(of("step").parse().unwrap_or(0));
            warn(out, found, &threads, options.verbosity);
        }
    }
    if from.is_none() {
        restart(&dir)?;
    }
    let recipe = toml::to_string(settings).context("settings as TOML")?;
    wave_hub::write_atomic(&dir.join("recipe.toml"), recipe.as_bytes())?;
    Ok(ControlFlow::Continue(Open {
        log: Log::open(&dir, from)?,
        checkpoints,
        found,
        inputs: inputs.identity().clone(),
        lock,
    }))
}

impl RunDir {
    /// The state of the first rank, whose lock still holds; `None` on the others.
    fn locked(&mut self) -> Result<Option<&mut Open>> {
        if let Some(open) = &self.open {
            open.lock.check()?;
        }
        Ok(self.open.as_mut())
    }

    /// Adds an entry to the log.
    pub fn log(&mut self, entry: &Value) -> Result<()> {
        self.locked()?.map_or(Ok(()), |open| open.log.write(entry))
    }

    /// The tests in the log so far: epochs and accuracies.
    pub(crate) fn scores(&self) -> Result<Vec<(f64, f64)>> {
        let entries = match &self.open {
            Some(_) => log::read(&self.dir)?,
            None => Vec::new(),
        };
        Ok(log::over_epochs(&entries, "top1"))
    }

    /// As [`Checkpoints::save`]; on all ranks but the first, there is nothing to save.
    pub fn save(&mut self, state: &State, variables: &[Variable], last: bool) -> Result<bool> {
        let Some(open) = self.locked()? else {
            return Ok(true);
        };
        open.log.sync()?;
        open.checkpoints.save(state, variables, last)
    }

    /// Keeps the best values so far.
    pub fn keep_best(&mut self, best: &Best) -> Result<()> {
        self.locked()?
            .map_or(Ok(()), |open| open.checkpoints.keep_best(best))
    }

    /// Restores the variables from the state that was found, if any, and returns it with the best
    /// values so far, if kept. On the first rank only, which sends them to the others.
    pub fn restore(&mut self, variables: &[Variable]) -> Result<Option<(State, Option<Best>)>> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        let Some(found) = open.found.take() else {
            return Ok(None);
        };
        let state = found.restore(variables)?;
        Ok(Some((state, open.checkpoints.best()?)))
    }

    /// Writes the artefact with `write`, draws the log, writes the result, and removes the checkpoints.
    fn complete(&mut self, result: &Value, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        open.lock.check()?;
        write()?;
        let entries = log::read(&self.dir)?;
        for (file, title, name, key, unit) in [
            ("loss.svg", "Loss", "training", "loss", Unit::Plain),
            ("accuracy.svg", "Accuracy", "test", "top1", Unit::Percent),
        ] {
            let points = log::over_epochs(&entries, key);
            if !points.is_empty() {
                let series = [Series::new(name, &points)];
                let svg = Chart::over_epochs(title, unit, &series).svg()?;
                wave_hub::write_atomic(&self.dir.join(file), svg.as_bytes())?;
            }
        }
        let mut result = result.clone();
        let out = self.dir.parent().unwrap_or(&self.dir);
        result["run"] = json!({ "inputs": open.inputs, "files": artefact(out)? });
        wave_hub::write_json(&self.dir.join("result.json"), &result)?;
        open.checkpoints.remove()
    }
}

/// The product of a run.
pub struct StageOutput<'a> {
    /// The result as `--json` prints it.
    pub result: Value,
    /// Writes the artefact.
    pub write: Box<dyn FnOnce() -> Result<()> + 'a>,
}

/// Makes the artefact of `out` with `work`, in a run with these settings and inputs, unless it is
/// already complete. Returns the result as `--json` prints it.
///
/// # Errors
/// If `out` is not writable, or another process works there; if a run there is unfinished and `options`
/// neither resume nor overwrite it, or it has other settings or inputs; if `out` holds an artefact without a run, or is
/// an input itself; or if the work fails.
pub fn fill<'a>(
    out: &Path,
    settings: &Table,
    inputs: &Inputs,
    options: &Options,
    work: impl FnOnce(&mut RunDir) -> Result<StageOutput<'a>>,
) -> Result<Value> {
    let context = &options.context;
    let open_here = || open(out, settings, inputs, options);
    let opened = context.is_first().then(open_here).transpose()?;
    let is_complete = matches!(opened, Some(ControlFlow::Break(_)));
    let complete = context.ranks().any(is_complete);
    let mut run = RunDir {
        dir: out.join("run"),
        open: match opened {
            Some(ControlFlow::Break(result)) => return Ok(result),
            _ if complete => return Ok(Value::Null),
            Some(ControlFlow::Continue(open)) => Some(open),
            None => None,
        },
    };
    let made = work(&mut run)?;
    let mut result = json!({ "out": paths::text(out) });
    if let (Value::Object(all), Value::Object(made)) = (&mut result, made.result) {
        all.extend(made);
    }
    let write = made.write;
    context.on_first(|| run.complete(&result, write))?;
    Ok(result)
}

/// Checks that a run with these inputs may begin in `out`, while its settings are still being planned. Locks `out` if
/// there is a run; otherwise nothing is written, since the plan may be refused.
pub fn claim(out: &Path, inputs: &Inputs, options: &Options) -> Result<Option<Lock>> {
    check_out(out, None, inputs, options)?;
    let begun = out.join("run").is_dir();
    begun.then(|| Lock::take(out)).transpose()
}

/// A line about the run that `out` holds, for a plan, which does not compare settings.
pub fn held(out: &Path, options: &Options) -> Option<String> {
    let dir = out.join("run");
    let kind = match dir.join("result.json").exists() {
        _ if options.overwrite => return None,
        true => "a complete run; one with other settings needs --overwrite or another --out",
        false if options.resume || !Checkpoints::exist_in(&dir) => return None,
        false => UNFINISHED,
    };
    Some(format!("{} holds {kind}\n", out.display()))
}

/// Writes the recipe of a run to `out` before it begins, with the lock of [`claim`], or one of its own.
pub fn announce(out: &Path, recipe: &Table, claimed: Option<Lock>) -> Result<()> {
    let _lock = claimed.map_or_else(|| Lock::take(out), Ok)?;
    let text = toml::to_string(recipe).context("settings as TOML")?;
    let path = out.join("run/recipe.toml");
    Ok(wave_hub::write_atomic(&path, text.as_bytes())?)
}

/// Removes the result, the checkpoints and the artefact of the run in `out` and of its levels, so that it starts over.
pub fn discard(out: &Path) -> Result<()> {
    let dir = out.join("run");
    if !dir.is_dir() {
        return Ok(());
    }
    let _lock = Lock::take(out)?;
    restart(&dir)?;
    for file in wave_hub::ARTEFACT_FILES {
        paths::remove(&out.join(file))?;
    }
    levels(out).try_for_each(|level| discard(&level))
}

/// Removes the result and the checkpoints in `dir`.
fn restart(dir: &Path) -> Result<()> {
    Checkpoints::new(dir, BTreeMap::new()).remove()?;
    paths::remove(&dir.join("result.json"))
}

/// The directory of a level of the run in `out`. It belongs to the run: it moves, resumes and is replaced with it.
pub fn level(out: &Path, at: usize) -> PathBuf {
    out.join("run/levels").join(at.to_string())
}

fn levels(out: &Path) -> impl Iterator<Item = PathBuf> {
    let all = (0..).map(|at| level(out, at));
    all.take_while(|dir| dir.is_dir())
}

/// Prepares `out` for a run that trains level `at` first, and locks it meanwhile: problems with `out` itself are
/// reported now, not after the level's training.
pub fn reserve(out: &Path, at: usize, inputs: &Inputs, options: &Options) -> Result<Lock> {
    check_out(out, None, inputs, options)?;
    let lock = Lock::take(out)?;
    let dir = out.join("run");
    if options.overwrite {
        restart(&dir)?;
        for old in levels(out).skip(at) {
            fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        }
        return Ok(lock);
    }
    let begun = completed(&dir)?.is_some() || Checkpoints::exist_in(&dir);
    match begun && completed(&level(out, at).join("run"))?.is_none() {
        false => Ok(lock),
        true => refuse!(
            "{} holds a run without level {at}; choose another --out, or start over with \
             --overwrite",
            out.display()
        ),
    }
}

/// Refuses an input as the output and, unless it is to be overwritten, a directory whose checkpoint has lost its
/// recipe, or whose artefact or log belongs to no run: none that is complete, none with a checkpoint, and none with
/// these `settings`, which may have been killed while it wrote.
fn check_out(
    out: &Path,
    settings: Option<&Table>,
    inputs: &Inputs,
    options: &Options,
) -> Result<()> {
    inputs.check_out(out)?;
    if options.overwrite {
        return Ok(());
    }
    let dir = out.join("run");
    let begun = dir.join("recipe.toml").exists();
    let is_own = |settings| other_settings(out, settings, &FREE, false).is_ok_and(|o| o.is_empty());
    let resumes = || Checkpoints::exist_in(&dir);
    if dir.join("result.json").exists() || begun && (resumes() || settings.is_some_and(is_own)) {
        return Ok(());
    }
    if resumes() {
        refuse!(
            "{} holds a checkpoint, but its run/recipe.toml is missing; copy it back, choose \
             another --out, or start over with --overwrite",
            out.display()
        );
    }
    let logs = [log::CSV_FILE, log::LOG_FILE].map(|file| format!("run/{file}"));
    let logs = logs.iter().map(String::as_str).filter(|_| !begun);
    let mut files = wave_hub::ARTEFACT_FILES.into_iter().chain(logs);
    match files.find(|name| fs::symlink_metadata(out.join(name)).is_ok()) {
        None => Ok(()),
        Some(name) => refuse!(
            "{} holds a {name} that no run there wrote; choose another --out, or replace it with \
             --overwrite",
            out.display()
        ),
    }
}

/// The result of the run in `dir`, if it is complete.
fn completed(dir: &Path) -> Result<Option<Value>> {
    let path = dir.join("result.json");
    if !path.exists() {
        return Ok(None);
    }
    let result: Value = wave_hub::read_json(&path)?;
    match result.is_object() {
        true => Ok(Some(result)),
        false => refuse!(
            "{} is not the result of a run; remove it to start the run over",
            path.display()
        ),
    }
}

/// The settings of the run in `out` that differ from these, apart from the `free` ones, and from paths if inputs are
/// compared `by_digest`.
fn other_settings(
    out: &Path,
    settings: &Table,
    free: &[&str],
    by_digest: bool,
) -> Result<Vec<String>> {
    let path = out.join("run/recipe.toml");
    let text = wave_hub::read_text(&path)?;
    let name = path.display();
    let wrong = |e: toml::de::Error| request(format!("{name}: {e}; start over with --overwrite"));
    let found: Table = text.parse().map_err(wrong)?;
    let is_free = |key: &str| free.contains(&key) || by_digest && PATHS.contains(&key);
    let known = |table: &Table| {
        let all = table.iter().flat_map(|(key, value)| leaves(key, value));
        let all = all.filter(|(key, value)| !value.is_table() && !is_free(key));
        let all = all.map(|(key, value)| (key, value.to_string()));
        all.collect::<BTreeMap<_, _>>()
    };
    Ok(differences(&known(keys(&found)), &known(keys(settings))))
}

/// Checks that the run in `out` has these settings, apart from the `free` ones, and the inputs that it `read`, where those
/// are known.
fn same(
    out: &Path,
    what: &str,
    settings: &Table,
    free: &[&str],
    inputs: &Inputs,
    read: Option<BTreeMap<String, String>>,
) -> Result<()> {
    let mut other = Vec::new();
    let settings = other_settings(out, settings, free, read.is_some())?;
    if !settings.is_empty() {
        other.push(format!("other settings ({})", settings.join("; ")));
    }
    let inputs = read.map_or_else(Vec::new, |read| differences(&read, inputs.identity()));
    if !inputs.is_empty() {
        other.push(format!("other inputs ({})", inputs.join("; ")));
    }
    match other.is_empty() {
        true => Ok(()),
        false => refuse!(
            "{} holds {what} run with {}; repeat the old ones, choose another --out, or start over \
             with --overwrite",
            out.display(),
            other.join(" and ")
        ),
    }
}

/// Warns of differences that do not prevent a run from resuming.
fn warn(out: &Path, found: &Found, threads: &str, verbosity: Verbosity) {
    let out = out.display();
    let of = |key: &str| found.about.get(key).map_or("?", String::as_str);
    if let Some(broken) = &found.broken {
        let step = of("step");
        let text = format!("{broken}; {out} resumes from the previous state, of step {step}");
        progress::say(verbosity, &text);
    }
    let before = of("threads");
    if before != threads {
        let text = format!(
            "{out} was started with {before} threads and resumes with {threads}: the result may \
             differ from an uninterrupted run by rounding"
        );
        progress::say(verbosity, &text);
    }
}

/// Size and digest of each file of the artefact in `out`; for files that people may edit, only their presence.
fn artefact(out: &Path) -> Result<Value> {
    let mut files = serde_json::Map::new();
    for name in wave_hub::ARTEFACT_FILES {
        let path = out.join(name);
        if wave_hub::UNREAD_FILES.contains(&name) || !path.is_file() {
            continue;
        }
        let known = match name.ends_with(".json") {
            true => json!({}),
            false => json!({
                "bytes": fs::metadata(&path).with_context(|| format!("cannot read {path:?}"))?.len(),
                "sha256": wave_hub::sha256_file(&path)?,
            }),
        };
        files.insert(name.into(), known);
    }
    Ok(files.into())
}

/// Checks that the files of the artefact in `out` are as its run wrote them, as far as that is known.
fn check_artefact(out: &Path, written: &Value) -> Result<()> {
    let now = artefact(out)?;
    for (name, was) in written.as_object().into_iter().flatten() {
        let found = match now.get(name) {
            Some(is) if is == was => continue,
            None => "is missing".to_string(),
            Some(is) if is["bytes"] != was["bytes"] => {
                let (is, was) = (&is["bytes"], &was["bytes"]);
                format!("has {is} bytes, but was written with {was}")
            }
            Some(_) => "has changed since it was written".to_string(),
        };
        refuse!(
            "the run in {} is complete, but its {name} {found}; copy it back, or make it again with \
             --overwrite",
            out.display()
        );
    }
    Ok(())
}
