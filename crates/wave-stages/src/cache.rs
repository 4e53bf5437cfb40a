//! `wave condense --cache DIR`: an ancestor's outputs on disk, so that it runs once for each image
//! and view, and never again for other templates, sizes and seeds of a condensation.
//!
//! ```text
//! DIR/cache.json                       what the outputs are of
//! DIR/view-00003/00012.safetensors     those of the images 12 * 4096 up to 13 * 4096 in view 3
//! DIR/lock                             locked while outputs are added
//! ```
//!
//! **Views.** A view is a variation of every image, drawn from `view_seed`, the view's number and
//! the image's. `views = N` takes N of them in turn; without, a run with a cache takes a new one
//! each epoch (or one for all, if nothing varies). The run's own `seed` has no part in it, so that
//! runs of other seeds show the ancestor nothing new. Mixup and CutMix pair images differently at
//! every step, so their outputs come but once and are not kept.
//!
//! **A shard** is a table (`wave_hub::write_table`) with a checksum. It appears whole or not at all,
//! as soon as its images are computed, so a run that is killed loses one shard's work at most. A
//! damaged one is computed again. In its metadata are `view`, `first` (the first image that it may
//! hold) and `cache`, the digest of what `cache.json` says. With n images and k classes kept:
//!
//! | tensor | shape, type | |
//! |---|---|---|
//! | `images` | (n) u32 | numbers of the images, ascending |
//! | `log_p` | (n, k) f16 | logarithms of the k largest probabilities, largest first |
//! | `classes` | (n, k, w) u8 | their classes: numbers of w bytes, little-endian, w as small as can be |
//! | `rest` | (n) f16 | logarithm of the probability of all other classes together |
//!
//! Where that takes no less room than all classes, or `cache_top = "all"`, there are only `images`
//! and `log_p` (n, classes), in the order of the classes. Logarithms of probabilities are logits
//! less a number that is the same for all classes of an image: their softmax is the same at every
//! temperature, and f16 is finest near 0, where the mass is.
//!
//! **What k costs.** Of a class that is not kept, the logit is `rest - ln(classes - k)`: the rest is
//! spread evenly. At temperature 1 the kept probabilities are exact, and the distribution learnt
//! from differs from the ancestor's by a divergence of `r (ln(classes - k) - H)`, with r the rest
//! and H its entropy: never more than `r ln(classes - k)`. The mean of r is in the run's result.
//! At higher temperatures the rest weighs more.
//!
//! **Room.** An image takes `4 + 2 classes` bytes a view with all classes, `6 + (2 + w) k` with k:
//! of 1000 classes 2004 bytes with all, 70 with the 16 of the default, which makes 90 MB for a view
//! of ImageNet.

use crate::ancestor::Ancestor;
use anyhow::{Context, Result};
use candle_core::Tensor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use wave_data::Batch;
use wave_run::data::Data;
use wave_run::error::request;
use wave_run::interrupt::check_interrupt;
use wave_run::progress::{Report, Verbosity};
use wave_run::ranks::{self, ranks};
use wave_run::settings::Top;

mod identity;
mod rows;

use rows::{Format, Rows, View};

/// Images of a shard.
const SHARD: u32 = 4096;
/// Bytes of views held in memory: beyond, those of other epochs are let go.
const KEPT_BYTES: usize = 1 << 30;
/// The manifest.
const MANIFEST: &str = "cache.json";
/// Between two looks at a lock that another process holds.
const PATIENCE: Duration = Duration::from_millis(100);

/// The open cache of one run.
pub struct Cache {
    dir: PathBuf,
    format: Format,
    /// Digest of the manifest, which every shard names.
    digest: String,
    views: Mutex<BTreeMap<u32, Arc<View>>>,
    computed: AtomicU64,
    /// Sum of the probabilities not kept, and of how many images.
    rest: Mutex<(f64, usize)>,
}

impl Cache {
    /// Opens the cache in `dir`, or begins it.
    ///
    /// # Errors
    /// If its outputs are not those of this ancestor on these images so varied, or not as many;
    /// if images are mixed or repeated; if `dir` holds something else, or is not writable.
    pub fn open(dir: &Path, top: Top, ancestor: &Ancestor, data: &Data) -> Result<Cache> {
        refuse_mixing(data)?;
        let format = Format::new(top, ancestor.network.classes());
        let manifest = identity::manifest(format, ancestor, data)?;
        let path = dir.join(MANIFEST);
        ranks::first_then_others(|| {
            if !path.exists() {
                wave_hub::prepare_out(dir)?;
                let _lock = lock(dir, &|| ())?;
                if !path.exists() {
                    refuse_strangers(dir)?;
                    wave_hub::write_json(&path, &manifest)?;
                }
            }
            Ok(())
        })?;
        let found: Value = wave_hub::read_json(&path)?;
        if let Some(difference) = identity::difference(&found, &manifest) {
            return Err(request(format!(
                "the cache {} is of other outputs: {difference}; repeat those settings, or name \
                 another --cache",
                dir.display()
            )));
        }
        Ok(Cache {
            dir: dir.into(),
            format,
            digest: identity::digest(&manifest),
            views: Mutex::default(),
            computed: AtomicU64::new(0),
            rest: Mutex::default(),
        })
    }

    /// For the result: how often the ancestor ran, on all ranks; the room that an image takes in a view;
    /// and the mean probability of the classes not kept.
    pub fn summary(&self) -> Value {
        let (sum, images) = *self.rest.lock().unwrap_or_else(|e| e.into_inner());
        let mut computed = [self.computed.load(Ordering::Relaxed) as f64];
        ranks().sum_f64(&mut computed);
        json!({
            "ancestor_images": computed[0] as u64,
            "bytes_per_image": self.format.bytes_per_image(),
            "rest": sum / images.max(1) as f64,
        })
    }

    /// Logits (b, classes) of a training batch that is not mixed. A view is completed when first
    /// needed.
    pub fn of_batch(
        &self,
        batch: &Batch,
        ancestor: &Ancestor,
        data: &Data,
        verbosity: Verbosity,
    ) -> candle_core::Result<Tensor> {
        let view = {
            // Held while computing: what waits for it needs it too.
            let mut views = self.views.lock().unwrap_or_else(|e| e.into_inner());
            match views.get(&batch.view) {
                Some(view) => view.clone(),
                None => {
                    // On a thread of its own: on all cores, whoever waits.
                    let view = std::thread::scope(|scope| {
                        let view = || self.view(batch.view, ancestor, data, verbosity);
                        scope.spawn(view).join()
                    });
                    let view = view.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                    let view = view.map_err(|e| candle_core::Error::msg(format!("{e:#}")))?;
                    let room: usize = views.values().map(|v| v.bytes()).sum();
                    if room + view.bytes() > KEPT_BYTES {
                        views.clear();
                    }
                    let view = Arc::new(view);
                    views.insert(batch.view, view.clone());
                    view
                }
            }
        };
        view.logits(&batch.indices)
    }

    /// A whole view: read, and what is missing computed and added. Of several ranks each does so with
    /// its share of the shards, and reads the others' when they are there.
    fn view(
        &self,
        number: u32,
        ancestor: &Ancestor,
        data: &Data,
        verbosity: Verbosity,
    ) -> Result<View> {
        let mut wanted = data.train_indices.clone();
        wanted.sort_unstable();
        let parts: Vec<&[u32]> = wanted.chunk_by(|a, b| a / SHARD == b / SHARD).collect();
        let mut report = Report::new(
            &format!("ancestor, view {number}"),
            0,
            parts.len() as u64,
            verbosity,
        );
        let first = |part: &[u32]| part[0] / SHARD * SHARD;
        let read = |part: &[u32], report: &Report| -> Result<Option<Rows>> {
            let rows = self.read(number, first(part), report)?;
            Ok(rows.missing(part).is_empty().then_some(rows))
        };
        let own = || (ranks().rank()..parts.len()).step_by(ranks().size());
        let mut shards = vec![None; parts.len()];
        for k in own() {
            check_interrupt()?;
            shards[k] = read(parts[k], &report)?;
        }
        if ranks().any(own().any(|k| shards[k].is_none())) {
            let waits = || report.line("waits for another run that fills the cache");
            // The first rank has the lock for all of them.
            let locked = ranks::is_first().then(|| lock(&self.dir, &waits));
            let _lock = locked.transpose()?;
            ranks().wait();
            for k in own() {
                if shards[k].is_none() {
                    let rows = self.read(number, first(parts[k]), &report)?;
                    shards[k] = Some(self.add(number, parts[k], rows, ancestor, data)?);
                }
                report.step(k as u64 + 1, SHARD as usize, "");
            }
            ranks().wait();
        }
        for (shard, part) in shards.iter_mut().zip(parts) {
            if shard.is_none() {
                *shard = read(part, &report)?;
            }
        }
        let shards: Option<Vec<Rows>> = shards.into_iter().collect();
        let shards = shards.with_context(|| {
            format!(
                "another rank filled {}, and nothing is there; name a --cache that all ranks see",
                self.dir.display()
            )
        })?;
        let view = View::new(&shards, self.format, data.source_images)?;
        let mut rest = self.rest.lock().unwrap_or_else(|e| e.into_inner());
        rest.0 += view.rest()?;
        rest.1 += view.images();
        Ok(view)
    }

    /// Adds to a shard what it lacks of `part`, if anything.
    fn add(
        &self,
        view: u32,
        part: &[u32],
        rows: Rows,
        ancestor: &Ancestor,
        data: &Data,
    ) -> Result<Rows> {
        let missing = rows.missing(part);
        if missing.is_empty() {
            return Ok(rows); // another run was faster
        }
        let new = self.compute(view, &missing, ancestor, data)?;
        let rows = rows.merge(&new)?;
        let first = part[0] / SHARD * SHARD;
        let path = self.shard(view, first);
        if let Some(dir) = path.parent() {
            wave_hub::prepare_out(dir)?;
        }
        wave_hub::write_table(&path, &rows.to_table()?, &self.metadata(view, first))?;
        Ok(rows)
    }

    fn compute(&self, view: u32, images: &[u32], ancestor: &Ancestor, data: &Data) -> Result<Rows> {
        let mut logits = Vec::with_capacity(images.len() * self.format.classes);
        for some in images.chunks(ancestor.at_once()) {
            check_interrupt()?;
            logits.extend(ancestor.of_view(some, view, data)?);
        }
        let n = images.len() as u64;
        self.computed.fetch_add(n, Ordering::Relaxed);
        Ok(Rows::new(images, &logits, self.format)?)
    }

    fn shard(&self, view: u32, first: u32) -> PathBuf {
        let name = format!("{:05}.safetensors", first / SHARD);
        self.dir.join(format!("view-{view:05}")).join(name)
    }

    fn metadata(&self, view: u32, first: u32) -> BTreeMap<String, String> {
        let pair = |key: &str, value: String| (key.to_string(), value);
        BTreeMap::from([
            pair("cache", self.digest.clone()),
            pair("view", view.to_string()),
            pair("first", first.to_string()),
        ])
    }

    /// The rows of a shard; none if it is not there, or damaged.
    fn read(&self, view: u32, first: u32, report: &Report) -> Result<Rows> {
        let path = self.shard(view, first);
        if !path.exists() {
            return Ok(Rows::none(self.format)?);
        }
        let found = match wave_hub::read_table(&path) {
            Ok((table, metadata)) if metadata == self.metadata(view, first) => {
                Rows::from_table(&table, self.format, first..first.saturating_add(SHARD))
            }
            Ok(_) => Err("belongs to another cache or place".to_string()),
            Err(error) if error.is_request() => Err(error.to_string()),
            Err(error) => return Err(error.into()),
        };
        found.or_else(|problem| {
            report.line(&format!("{}: {problem}; computed again", path.display()));
            Ok(Rows::none(self.format)?)
        })
    }
}

/// Bytes that an image takes in a view.
pub fn bytes_per_image(top: Top, classes: usize) -> usize {
    Format::new(top, classes).bytes_per_image()
}

fn refuse_mixing(data: &Data) -> Result<()> {
    let (what, keys) = match (&data.augment.mixing, data.augment.repeats) {
        (Some(_), _) => ("mixes images anew at every step", "mixup and cutmix"),
        (None, 2..) => ("shows an image several times in an epoch", "repeats"),
        (None, _) => return Ok(()),
    };
    Err(request(format!(
        "the training {what}, so a cache cannot keep what the ancestor makes of them; leave out \
         {keys}, or --cache"
    )))
}

/// A directory of other things is no place for a cache.
fn refuse_strangers(dir: &Path) -> Result<()> {
    let cannot = || format!("cannot read {}", dir.display());
    for entry in fs::read_dir(dir).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        let name = name.to_string_lossy();
        if name != "lock" && !is_temporary(&name) {
            return Err(request(format!(
                "{} holds {name} and no {MANIFEST}: it is no cache; name a new or an empty \
                 directory",
                dir.display()
            )));
        }
    }
    Ok(())
}

/// Locks the cache against other processes for as long as the file lives; `waits` is called once if
/// another one has it. What a killed process left half written is then removed.
fn lock(dir: &Path, waits: &dyn Fn()) -> Result<File> {
    let path = dir.join("lock");
    let open = || {
        File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
    };
    let file = open().with_context(|| format!("cannot write {}", path.display()))?;
    let mut waited = false;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {
                if !std::mem::replace(&mut waited, true) {
                    waits();
                }
                check_interrupt()?;
                std::thread::sleep(PATIENCE);
            }
            // A file system without locks: shards are whole all the same.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(e)) => {
                return Err(e).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let views = entries(dir)
        .map(|entry| entry.path())
        .filter(|p| p.is_dir());
    for view in views {
        let _ = wave_hub::remove_temporaries(&view); // they only take room
    }
    Ok(file)
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(".wave-") && name.ends_with(".tmp")
}
