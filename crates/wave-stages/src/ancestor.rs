//! A frozen model to distil from, and its outputs on the training images.

use crate::timing;
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use wave_artefacts::model::{Model, Network, check_classifier};
use wave_artefacts::origin;
use wave_artefacts::zero_shot::{self, Named};
use wave_data::{Batch, Transform};
use wave_models::{Frozen, FrozenNetwork, refuse, resample};
use wave_run::context::Context;
use wave_run::data::Data;
use wave_run::inputs::Inputs;
use wave_run::progress::{Report, Verbosity};
pub use wave_run::settings::AncestorOutput;
use wave_run::settings::ZeroShot;
use wave_run::{forecast, locate};

/// Largest size of the outputs kept in memory. Beyond it, the ancestor runs again for every batch, and a cache drops
/// the views of earlier epochs.
pub(crate) const KEPT_BYTES: usize = 1 << 30;
/// Batch size for outputs computed in advance.
const AHEAD: usize = 256;

/// Images in a timing: at least TIMED, otherwise as many as take SECONDS, up to those of one forward pass.
const TIMED: usize = 2;
const SECONDS: f64 = 0.5;

/// Outputs (images of the source, width) by kind, data and view.
type Views = BTreeMap<(AncestorOutput, String, u32), Arc<Vec<f32>>>;

/// The view of this `key`, computed if it is missing; before it is inserted, `room` may drop others. Two trainings
/// never compute the same view: one waits for the other.
pub(crate) fn once<K: Ord, V: Send + Sync>(
    views: &Mutex<BTreeMap<K, Arc<V>>>,
    key: K,
    make: impl FnOnce() -> candle_core::Result<V> + Send,
    room: impl FnOnce(&mut BTreeMap<K, Arc<V>>, &V),
) -> candle_core::Result<Arc<V>> {
    let mut views = views.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(view) = views.get(&key) {
        return Ok(view.clone());
    }
    // A separate thread uses all cores while others wait.
    let made = std::thread::scope(|scope| scope.spawn(make).join());
    let view = Arc::new(made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
    room(&mut views, &view);
    views.insert(key, view.clone());
    Ok(view)
}

/// Ancestors by path and names of classes, each read once.
#[derive(Default)]
pub struct Ancestors(Mutex<BTreeMap<(String, ZeroShot), Arc<Ancestor>>>);

impl Ancestors {
    /// The ancestor in `path`, if given; a CLIP or SigLIP with classes of these names.
    pub fn get(
        &self,
        path: Option<&str>,
        classes: &ZeroShot,
        context: &Context,
    ) -> Result<Option<Arc<Ancestor>>> {
        let Some(path) = path else {
            return Ok(None);
        };
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let key = (path.to_owned(), classes.clone());
        if let Some(ancestor) = all.get(&key) {
            return Ok(Some(ancestor.clone()));
        }
        let ancestor = Arc::new(Ancestor::read(Path::new(path), classes, context)?);
        all.insert(key, ancestor.clone());
        Ok(Some(ancestor))
    }

    /// Registers an ancestor under a name that is not a path.
    pub fn insert(&self, name: &str, ancestor: Ancestor) {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        all.insert((name.to_owned(), ZeroShot::default()), Arc::new(ancestor));
    }
}

/// The ancestor in `path`, if given, for a plan: never downloads.
pub fn planned(
    path: Option<&str>,
    classes: &ZeroShot,
    context: &Context,
) -> Result<Option<Arc<Ancestor>>> {
    let path = path.map(|path| locate::at_hand(Path::new(path)));
    let read = |path: PathBuf| Ancestor::read(&path, classes, context).map(Arc::new);
    path.transpose()?.flatten().map(read).transpose()
}

/// A frozen model.
pub struct Ancestor {
    /// The network.
    pub network: Network,
    /// The network with its weights, ready to run.
    pub frozen: Box<dyn Frozen>,
    parameters: usize,
    /// Preprocessing of its images.
    pub transform: Transform,
    /// Names of the classes.
    pub label_names: Vec<String>,
    /// SHA-256 of its weights file; empty if it is not trained yet.
    pub digest: String,
    /// Its origin, for the provenance of models distilled from it.
    pub origin: Value,
    /// The texts that define its classes, if it is a CLIP or SigLIP.
    pub named: Option<Named>,
    /// Outputs on whole views of the training images.
    views: Mutex<Views>,
    /// The context in which it runs.
    pub context: Context,
}

impl Ancestor {
    /// Reads a model directory or safetensors file; a CLIP or SigLIP with classes of these names.
    pub fn read(path: &Path, classes: &ZeroShot, context: &Context) -> Result<Ancestor> {
        let (model, named) = zero_shot::open(path, None, classes, context)?;
        let origin = origin::of(path, &model.provenance, context);
        let path = &locate::locate(path, context)?;
        let ancestor = Ancestor::new(model, Model::digest(path)?, origin, context)?;
        Ok(Ancestor { named, ..ancestor })
    }

    /// A model as ancestor, with the SHA-256 of its weights file and its [`origin`].
    pub fn new(model: Model, digest: String, origin: Value, context: &Context) -> Result<Ancestor> {
        let frozen = model.network.freeze(&context.place(&model.weights)?)?;
        let parameters = model.parameters();
        let transform = model.transform;
        Ok(Ancestor {
            network: model.network,
            label_names: model.label_names,
            ..Ancestor::foreign(frozen, parameters, transform, digest, origin, context)
        })
    }

    /// A network run by another library, with the number and a digest of its weights and its [`origin`].
    pub fn foreign(
        frozen: Box<dyn Frozen>,
        parameters: usize,
        transform: Transform,
        digest: String,
        origin: Value,
        context: &Context,
    ) -> Ancestor {
        Ancestor {
            network: Network::Frozen(FrozenNetwork::Foreign(frozen.about())),
            frozen,
            parameters,
            transform,
            label_names: Vec::new(),
            digest,
            origin,
            named: None,
            views: Mutex::new(BTreeMap::new()),
            context: context.clone(),
        }
    }

    /// The inputs of a run, with the ancestor in `path` and the texts that define its classes, if any.
    pub(crate) fn with_inputs(&self, path: Option<&str>, inputs: Inputs) -> Result<Inputs> {
        let inputs = match &self.network {
            Network::Frozen(FrozenNetwork::Foreign(_)) => {
                inputs.known("ancestor", format!("digest {}", self.digest))
            }
            _ => inputs.artefact_if_any("ancestor", path)?,
        };
        Ok(match &self.named {
            Some(named) => inputs.known("labels", format!("digest {}", named.digest)),
            None => inputs,
        })
    }

    pub(crate) fn at_once(&self) -> usize {
        forecast::at_once(forecast::of_forward(&self.network), AHEAD)
    }

    /// Number of images that it sees in a training of `steps` steps.
    pub fn shown(&self, data: &Data, steps: u64, output: AncestorOutput) -> u64 {
        let all = steps * data.plan.batch as u64;
        let plan = &data.plan;
        match plan.views.filter(|_| plan.augment.mixing.is_none()) {
            Some(views) if self.keeps(data, output) => {
                all.min(u64::from(views) * data.train_indices.len() as u64)
            }
            _ => all,
        }
    }

    /// Its default output: logits, if it has a classifier.
    pub(crate) fn usual_output(&self) -> AncestorOutput {
        match self.network.classes() {
            0 => AncestorOutput::Features,
            _ => AncestorOutput::Scores,
        }
    }

    /// Width of an output.
    pub fn width(&self, output: AncestorOutput) -> usize {
        match output {
            AncestorOutput::Scores => self.network.classes(),
            AncestorOutput::Features => self.frozen.about().width,
        }
    }

    /// True if its outputs on all views are kept in memory.
    fn keeps(&self, data: &Data, output: AncestorOutput) -> bool {
        let views = data.plan.views;
        views.is_some_and(|views| views <= self.most_views(data, output))
    }

    /// Largest number of views whose outputs are kept in memory.
    pub(crate) fn most_views(&self, data: &Data, output: AncestorOutput) -> u32 {
        let view = data.source_images * self.width(output) * size_of::<f32>();
        (KEPT_BYTES / view.max(1)) as u32
    }

    /// Seconds per image, measured on as many images as take half a second.
    pub fn seconds(&self, output: AncestorOutput) -> Result<f64> {
        let (channels, side) = self.network.input();
        let device = self.context.device();
        let of_some = |n: usize| -> Result<f64> {
            let images = Tensor::zeros((n, channels, side, side), DType::F32, device)?;
            let times = timing::clock(device, 1, 1, || self.run(&images, &self.transform, output))?;
            Ok(times[0] / n as f64)
        };
        let few = of_some(TIMED)?;
        match ((SECONDS / few) as usize).min(self.at_once()) {
            more if more > TIMED => of_some(more),
            _ => Ok(few),
        }
    }

    /// True if it teaches by class scores and its number of classes differs from `classes`, that of the data.
    pub(crate) fn has_other_classes(&self, output: AncestorOutput, classes: usize) -> bool {
        let by_scores = output == AncestorOutput::Scores && self.named.is_none();
        by_scores && self.network.classes() != classes
    }

    /// Checks that its input fits the data, and its classes as well if it teaches by class scores.
    pub fn check(&self, data: &Data, output: AncestorOutput) -> Result<()> {
        if output == AncestorOutput::Scores {
            check_classifier(&self.network)?;
            let remedy = match self.named {
                None => "distil from an ancestor trained on the same classes",
                Some(_) => "give --labels FILE with one name per class, in the data's order",
            };
            data.tests.check_classes(self.network.classes(), remedy)?;
        } else {
            self.network.check_features()?;
        }
        let (own, theirs) = (self.transform.channels, data.transform.channels);
        if own != theirs {
            refuse!(
                "the ancestor takes images with {own} channels, the auxiliary with {theirs}; choose \
                 an ancestor for {theirs} channels"
            );
        }
        Ok(())
    }

    /// Outputs (b, width) of images that were normalised for `transform`.
    fn run(
        &self,
        images: &Tensor,
        transform: &Transform,
        output: AncestorOutput,
    ) -> candle_core::Result<Tensor> {
        let mut images = images.clone();
        if (&self.transform.mean, &self.transform.std) != (&transform.mean, &transform.std) {
            let [scale, shift] = self.renormalisation(transform, images.device())?;
            images = images.broadcast_mul(&scale)?.broadcast_add(&shift)?;
        }
        let images = resample::images(&images, self.transform.image_size)?;
        match output {
            AncestorOutput::Scores => self.frozen.logits(&images),
            AncestorOutput::Features => self.frozen.features(&images),
        }
    }

    /// Scale and shift, (1, channels, 1, 1) each, that turn images normalised by `transform` into the ancestor's input:
    /// x' = (x std + mean - mean') / std', channel by channel.
    pub(crate) fn renormalisation(
        &self,
        transform: &Transform,
        device: &Device,
    ) -> candle_core::Result<[Tensor; 2]> {
        let (own, t) = (&self.transform, transform);
        let per_channel = |f: &dyn Fn(usize) -> f32| {
            let values: Vec<f32> = (0..t.channels).map(f).collect();
            Tensor::from_vec(values, (1, t.channels, 1, 1), device)
        };
        Ok([
            per_channel(&|c| t.std[c] / own.std[c])?,
            per_channel(&|c| (t.mean[c] - own.mean[c]) / own.std[c])?,
        ])
    }

    /// The network's depth and width, where known, and its number of weights.
    pub fn describe(&self) -> String {
        let (depth, width) = self.network.size();
        let mut text = self.network.family().to_string();
        if depth > 0 {
            text += &format!(", {depth} layers");
        }
        if width > 0 {
            text += &format!(", width {width}");
        }
        text + &format!(", {} parameters", self.parameters)
    }
}

/// An ancestor and the images that it sees.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) ancestor: &'a Ancestor,
    pub(crate) data: &'a Data,
    pub(crate) output: AncestorOutput,
    pub(crate) verbosity: Verbosity,
}

impl Shown<'_> {
    /// Outputs on training images of one view, by index: (images, width), row by row.
    pub(crate) fn of_view(&self, images: &[u32], view: u32) -> candle_core::Result<Vec<f32>> {
        let images = self.data.view_images(images, view)?;
        let transform = &self.data.transform;
        let outputs = self.ancestor.run(&images, transform, self.output)?; // (b, width)
        outputs.flatten_all()?.to_vec1()
    }

    /// True if the outputs for a training batch are looked up in stored outputs of its view.
    pub(crate) fn keeps(&self, batch: &Batch) -> bool {
        batch.mix.is_none() && self.ancestor.keeps(self.data, self.output)
    }

    /// Outputs on a training batch: looked up where views repeat and memory allows, otherwise
    /// computed. A view is computed as a whole when it is first needed.
    pub(crate) fn of_batch(&self, batch: &Batch, images: &Tensor) -> candle_core::Result<Tensor> {
        let (ancestor, data, output) = (self.ancestor, self.data, self.output);
        if !self.keeps(batch) {
            return ancestor.run(images, &data.transform, output);
        }
        let width = ancestor.width(output);
        let key = (output, data.views_id.clone(), batch.view);
        let all = once(&ancestor.views, key, || self.view(batch.view), |_, _| ())?;
        let row = |i: &u32| &all[*i as usize * width..(*i as usize + 1) * width];
        let rows: Vec<f32> = batch.indices.iter().flat_map(row).copied().collect();
        Tensor::from_vec(rows, (batch.indices.len(), width), images.device())
    }

    fn view(&self, view: u32) -> candle_core::Result<Vec<f32>> {
        let (ancestor, data) = (self.ancestor, self.data);
        let width = ancestor.width(self.output);
        let mut all = vec![0.0; data.source_images * width];
        let at_once = ancestor.at_once();
        let total = data.train_indices.len().div_ceil(at_once) as u64;
        let mut report = Report::new(&format!("ancestor, view {view}"), 0, total, self.verbosity);
        // Each rank computes its share and receives the others'.
        let batches = data.train_indices.chunks(at_once).enumerate();
        let ranks = ancestor.context.ranks();
        for (done, indices) in batches.skip(ranks.rank()).step_by(ranks.size()) {
            ancestor.context.interruption().check()?;
            let outputs = self.of_view(indices, view)?;
            for (i, row) in indices.iter().zip(outputs.chunks_exact(width)) {
                all[*i as usize * width..(*i as usize + 1) * width].copy_from_slice(row);
            }
            report.step(done as u64 + 1, at_once, "");
        }
        ranks.sum(&mut all); // outside its share, each rank has zeros
        Ok(all)
    }
}
