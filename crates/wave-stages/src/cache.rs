//! `--cache DIR`: an ancestor's outputs on disk. The ancestor runs once for each image and view,
//! and not again for other templates, sizes or seeds.
//!
//! `FORMATS.md` specifies its files.
//!
//! **Views.** A view is an augmentation of every image, sampled from `view_seed` and the numbers of view and image, not
//! from the `seed` of a run. `views = N` uses N of them in turn; without it, each epoch uses a new one (or all the same
//! one, if nothing is augmented). A view that is repeated keeps its outputs; its images are mirrored every second time
//! (`flip`) and otherwise augmented anew. Of a single view, the ancestor sees whole images. Mixup and CutMix pair
//! images anew in every step, so they are refused.
//!
//! **Shards** are written atomically once their images are computed, so a killed run loses at most one.
//! Log-probabilities are logits minus a constant for each image: their softmax is the same at every temperature, and f16
//! is most precise near 0, where most of the probability mass is.
//!
//! **The error of top-k.** A class that is not kept gets the logit `rest - ln(classes - k)`: the
//! remaining probability is spread evenly. At temperature 1 the kept probabilities are exact, and the
//! target differs from the ancestor's distribution by a divergence of `r (ln(classes - k) - H)`, where
//! r is the remaining probability and H the entropy of its distribution: at most `r ln(classes - k)`.
//! The mean of r is in the run's result. At higher temperatures r weighs more.
//!
//! **Size.** An image takes `4 + 2 classes` bytes per view with all classes, `6 + (2 + w) k` with
//! top-k. With 1000 classes, that is 2004 bytes for all, or 70 with the default k of 16: 90 MB for a
//! view of ImageNet.

use crate::ancestor::{Ancestor, AncestorOutput, KEPT_BYTES, Shown, once};
use anyhow::{Context as _, Result};
use candle_core::Tensor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wave_data::{Augment, Batch};
use wave_hub::HubError;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::data::{Data, DataPlan};
use wave_run::interrupt::Interruption;
use wave_run::progress::Report;
use wave_run::settings::{Outputs, OutputsValues};

mod identity;
mod rows;

use rows::{Format, Rows, View};

/// Images in a shard.
const SHARD: u32 = 4096;
const MANIFEST: &str = "cache.json";
/// Time between two attempts to acquire a lock.
const PATIENCE: Duration = Duration::from_millis(100);

/// Sets the number of views of `data` for a cache, if the settings name one and no number. Refuses settings of a cache
/// or of views where there are none.
pub(crate) fn set_views(settings: &Outputs, data: &mut DataPlan) -> Result<()> {
    match (&settings.cache, settings.cache_top) {
        (None, None) => {}
        (None, Some(_)) => refuse!("cache_top without a cache; give --cache DIR"),
        (Some(_), _) => {
            let every_epoch = data.augment != Augment::NONE;
            let views = if every_epoch { u32::MAX } else { 1 };
            data.views.get_or_insert(views);
        }
    }
    match (data.views, data.view_seed) {
        (None, seed @ 1..) => {
            refuse!("view_seed = {seed} without views; give --views N or --cache DIR, or remove it")
        }
        _ => Ok(()),
    }
}

/// Bytes per image and view in the cache that settings name, if they do, for `width` classes or features. Refuses a
/// directory that is no cache.
pub(crate) fn bytes_per_image(
    settings: &OutputsValues,
    output: AncestorOutput,
    width: usize,
) -> Result<Option<usize>> {
    let Some(dir) = &settings.cache else {
        return Ok(None);
    };
    check(Path::new(dir))?;
    let format = Format::new(output, settings.cache_top, width);
    Ok(Some(format.bytes_per_image()))
}

/// Checks that a directory is a cache, empty or new.
fn check(dir: &Path) -> Result<()> {
    let name = dir.display();
    if dir.is_file() {
        refuse!("--cache {name} is a file; give a directory");
    }
    if !dir.exists() {
        return Ok(());
    }
    let is_cache = || dir.join(MANIFEST).exists(); // perhaps only now, by another process
    let cannot = || format!("cannot read {name}");
    for entry in fs::read_dir(dir).with_context(cannot)? {
        let entry = entry.with_context(cannot)?.file_name();
        let entry = entry.to_string_lossy();
        let temporary = entry.starts_with(".wave-") && entry.ends_with(".tmp");
        if entry != "lock" && !temporary && !is_cache() {
            refuse!(
                "{name} holds {entry} and no {MANIFEST}, so it is not a cache; choose a new or an \
                 empty directory"
            );
        }
    }
    Ok(())
}

/// The open cache of one run.
pub struct Cache {
    dir: PathBuf,
    format: Format,
    /// Identifies its outputs; every shard records the digest.
    manifest: Value,
    views: Mutex<BTreeMap<u32, Arc<View>>>,
    computed: AtomicU64,
    /// Sum of the probabilities that were not kept, and the number of images.
    rest: Mutex<(f64, usize)>,
}

impl Cache {
    /// Opens or creates the cache that settings name, if they do.
    ///
    /// # Errors
    /// If there is no ancestor; if the directory holds something else, or outputs of another ancestor, other images
    /// or augmentations, or fewer classes; if images are mixed or repeated; or if it is not writable.
    pub fn open(
        settings: &OutputsValues,
        ancestor: Option<&Ancestor>,
        output: AncestorOutput,
        data: &Data,
    ) -> Result<Option<Cache>> {
        let Some(cache) = Cache::planned(settings, ancestor, output, data)? else {
            return Ok(None);
        };
        let (dir, path) = (&cache.dir, cache.dir.join(MANIFEST));
        let context = &data.tests.context;
        context.first_then_others(|| {
            if !path.exists() {
                wave_hub::prepare_out(dir)?;
                let _lock = lock(dir, &|| (), context.interruption())?;
                if !path.exists() {
                    wave_hub::write_json(&path, &cache.manifest)?;
                }
            }
            Ok(())
        })?;
        cache.compare()?; // another process may have been faster
        Ok(Some(cache))
    }

    /// [`Cache::open`] for a plan: writes nothing. An ancestor that is not trained yet may belong to any cache.
    pub(crate) fn planned(
        settings: &OutputsValues,
        ancestor: Option<&Ancestor>,
        output: AncestorOutput,
        data: &Data,
    ) -> Result<Option<Cache>> {
        let Some(dir) = settings.cache.as_deref() else {
            return Ok(None);
        };
        let Some(ancestor) = ancestor else {
            refuse!(
                "a cache holds an ancestor's outputs, but there is no ancestor; give --ancestor, \
                 or drop --cache"
            );
        };
        refuse_mixing(data)?;
        let format = Format::new(output, settings.cache_top, ancestor.width(output));
        let cache = Cache {
            dir: dir.into(),
            format,
            manifest: identity::manifest(format, ancestor, data)?,
            views: Mutex::default(),
            computed: AtomicU64::new(0),
            rest: Mutex::default(),
        };
        match cache.dir.join(MANIFEST).exists() {
            true if ancestor.digest.is_empty() => {}
            true => cache.compare()?,
            false => check(&cache.dir)?,
        }
        Ok(Some(cache))
    }

    /// Refuses a directory with another manifest.
    fn compare(&self) -> Result<()> {
        let found: Value = wave_hub::read_json(&self.dir.join(MANIFEST))?;
        let Some(difference) = identity::difference(&found, &self.manifest) else {
            return Ok(());
        };
        let (name, remedy) = (self.dir.display(), identity::remedy(&found));
        refuse!(
            "the cache {name} holds other outputs: {difference}; {remedy}, or choose another --cache"
        )
    }

    /// Number of outputs that `data` needs and the directory already holds.
    pub(crate) fn filled(&self, data: &Data) -> Result<usize> {
        let images = sorted(data);
        let mut filled = 0;
        for view in 0..data.plan.views.unwrap_or(1) {
            let before = filled;
            for part in shards(&images) {
                let rows = self.read(view, first(part), None)?;
                filled += part.len() - rows.missing(part).len();
            }
            if filled == before {
                break;
            }
        }
        Ok(filled)
    }

    /// For the result: the number of ancestor runs on all ranks, the bytes per image and view, and
    /// the mean probability of the classes that were not kept.
    pub fn summary(&self, context: &Context) -> Value {
        let (sum, images) = *self.rest.lock().unwrap_or_else(|e| e.into_inner());
        let mut computed = [self.computed.load(Ordering::Relaxed) as f64];
        context.ranks().sum_f64(&mut computed);
        json!({
            "ancestor_images": computed[0] as u64,
            "bytes_per_image": self.format.bytes_per_image(),
            "rest": sum / images.max(1) as f64,
        })
    }

    /// Outputs (b, width) on a training batch that is not mixed. A view is completed when it is first needed.
    pub(crate) fn of_batch(&self, batch: &Batch, shown: &Shown) -> candle_core::Result<Tensor> {
        let make = || {
            let view = self.view(batch.view, shown);
            view.map_err(|e| candle_core::Error::Msg(format!("{e:#}"))) // `msg` adds a backtrace
        };
        let room = |views: &mut BTreeMap<u32, Arc<View>>, view: &View| {
            let held: usize = views.values().map(|v| v.bytes()).sum();
            if held + view.bytes() > KEPT_BYTES {
                views.clear();
            }
        };
        let view = once(&self.views, batch.view, make, room)?;
        view.outputs(&batch.indices)
    }

    /// Reads a whole view, and computes and adds the missing outputs. Each rank computes its share of
    /// the shards, and reads the other shards.
    fn view(&self, number: u32, shown: &Shown) -> Result<View> {
        let wanted = sorted(shown.data);
        let parts: Vec<&[u32]> = shards(&wanted).collect();
        let label = format!("ancestor, view {number}");
        let mut report = Report::new(&label, 0, parts.len() as u64, shown.verbosity);
        let read = |part: &[u32]| -> Result<Option<Rows>> {
            let rows = self.read(number, first(part), None)?;
            Ok(rows.missing(part).is_empty().then_some(rows))
        };
        let context = &shown.ancestor.context;
        let (ranks, interruption) = (context.ranks(), context.interruption());
        let own = || (ranks.rank()..parts.len()).step_by(ranks.size());
        let mut shards = vec![None; parts.len()];
        for k in own() {
            interruption.check()?;
            shards[k] = read(parts[k])?;
        }
        if ranks.any(own().any(|k| shards[k].is_none())) {
            let waits = || report.line("waiting for another run to fill the cache");
            // The first rank holds the lock for all ranks.
            let claim = || lock(&self.dir, &waits, interruption);
            let _lock = context.is_first().then(claim).transpose()?;
            ranks.wait();
            for k in own() {
                if shards[k].is_none() {
                    shards[k] = Some(self.add(number, parts[k], shown, &report)?);
                }
                report.step(k as u64 + 1, SHARD as usize, "");
            }
            ranks.wait();
        }
        for (shard, part) in shards.iter_mut().zip(parts) {
            if shard.is_none() {
                *shard = read(part)?;
            }
        }
        let shards: Option<Vec<Rows>> = shards.into_iter().collect();
        let shards = shards.with_context(|| {
            format!(
                "another rank filled {}, but this rank sees nothing there; choose a --cache that \
                 all ranks can read",
                self.dir.display()
            )
        })?;
        let view = View::new(&shards, self.format, shown.data.source_images)?;
        let mut rest = self.rest.lock().unwrap_or_else(|e| e.into_inner());
        rest.0 += view.rest()?;
        rest.1 += view.images();
        Ok(view)
    }

    /// Computes the missing images of `part` and adds them to a shard.
    fn add(&self, view: u32, part: &[u32], shown: &Shown, report: &Report) -> Result<Rows> {
        let first = first(part);
        let rows = self.read(view, first, Some(report))?;
        let missing = rows.missing(part);
        if missing.is_empty() {
            return Ok(rows); // another run was faster
        }
        let mut outputs = Vec::with_capacity(missing.len() * self.format.width);
        for some in missing.chunks(shown.ancestor.at_once()) {
            shown.ancestor.context.interruption().check()?;
            outputs.extend(shown.of_view(some, view)?);
        }
        self.computed
            .fetch_add(missing.len() as u64, Ordering::Relaxed);
        let rows = rows.merge(&Rows::new(&missing, &outputs, self.format)?)?;
        let path = self.shard(view, first);
        if let Some(dir) = path.parent() {
            wave_hub::prepare_out(dir)?;
        }
        wave_hub::write_table(&path, &rows.table, &self.metadata(view, first))?;
        Ok(rows)
    }

    fn shard(&self, view: u32, first: u32) -> PathBuf {
        let name = format!("{:05}.safetensors", first / SHARD);
        self.dir.join(format!("view-{view:05}")).join(name)
    }

    fn metadata(&self, view: u32, first: u32) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("cache".into(), identity::digest(&self.manifest)),
            ("view".into(), view.to_string()),
            ("first".into(), first.to_string()),
        ])
    }

    /// The rows of a shard; empty if it is missing or damaged, which is reported where they are computed again.
    fn read(&self, view: u32, first: u32, report: Option<&Report>) -> Result<Rows> {
        let path = self.shard(view, first);
        if !path.exists() {
            return Ok(Rows::none(self.format)?);
        }
        let found = match wave_hub::read_table(&path) {
            Ok((table, metadata)) if metadata == self.metadata(view, first) => {
                Rows::from_table(&table, self.format, first..first.saturating_add(SHARD))
            }
            Ok(_) => Err("belongs to another cache, or to other images".to_string()),
            Err(HubError::Missing(fault) | HubError::Malformed(fault)) => Err(fault.found),
            Err(error) => return Err(error.into()),
        };
        found.or_else(|problem| {
            if let Some(report) = report {
                report.line(&format!("{}: {problem}; computed again", path.display()));
            }
            Ok(Rows::none(self.format)?)
        })
    }
}

/// The training images, ascending.
fn sorted(data: &Data) -> Vec<u32> {
    let mut images = data.train_indices.clone();
    images.sort_unstable();
    images
}

/// Ascending images by shard.
fn shards(images: &[u32]) -> impl Iterator<Item = &[u32]> {
    images.chunk_by(|a, b| a / SHARD == b / SHARD)
}

/// The first image of the shard that holds these images.
fn first(images: &[u32]) -> u32 {
    images[0] / SHARD * SHARD
}

fn refuse_mixing(data: &Data) -> Result<()> {
    let (what, keys) = match (&data.plan.augment.mixing, data.plan.augment.repeats) {
        (Some(_), _) => ("mixes images differently in every step", "mixup and cutmix"),
        (None, 2..) => ("repeats images within an epoch", "repeats"),
        (None, _) => return Ok(()),
    };
    refuse!("training {what}, so the ancestor's outputs cannot be cached; drop {keys}, or --cache")
}

/// Locks the cache against other processes until the file is closed; `waits` is called once if another
/// process holds the lock. Then removes incomplete files left by killed processes.
fn lock(dir: &Path, waits: &dyn Fn(), interruption: &Interruption) -> Result<File> {
    let path = dir.join("lock");
    let mut options = File::options();
    let file = options.create(true).write(true).truncate(false).open(&path);
    let file = file.with_context(|| format!("cannot write {}", path.display()))?;
    let mut waited = false;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {
                if !std::mem::replace(&mut waited, true) {
                    waits();
                }
                interruption.check()?;
                std::thread::sleep(PATIENCE);
            }
            // On a file system without locks, proceed without: shards are written atomically anyway.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    for dir in entries.map(|entry| entry.path()).chain([dir.to_owned()]) {
        if dir.is_dir() {
            let _ = wave_hub::remove_temporaries(&dir); // they only take room
        }
    }
    Ok(file)
}
