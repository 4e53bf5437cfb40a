//! What `wave condense --dry-run` prints.

use super::{CondensePlan, DEFAULT_TOP, DEFAULTS, start};
use crate::ancestor::Ancestors;
use crate::cache;
use crate::elastic::Learngene;
use crate::forecast::{self, Memory};
use crate::settings::{self, BatchSize, Condense, DEFAULT_BATCH};
use crate::speed;
use anyhow::Result;
use std::path::Path;
use wave_data::Source;
use wave_init::Method;

/// Files whose size is looked at.
const SAMPLED: usize = 256;
/// Images and layers of the steps whose time is taken.
const TIMED: usize = 2;
const TIMED_LAYERS: usize = 2;
/// Numbers of devices that a time is told for.
const DEVICES: [f64; 3] = [1.0, 8.0, 64.0];

/// The data, as far as a plan needs it.
struct Numbers {
    images: usize,
    channels: usize,
    classes: usize,
    name: String,
    /// Bytes of a file on average, where images are files.
    file: Option<f64>,
}

impl Numbers {
    /// Of the data that settings name; where it is not at hand, ImageNet's.
    fn of(settings: &Condense) -> Result<Numbers> {
        let dataset = match crate::data::open(&settings.training) {
            Ok(dataset) => dataset,
            Err(error) => {
                return Ok(Numbers {
                    images: 1_281_167,
                    channels: 3,
                    classes: 1000,
                    name: format!("{error}; assuming ImageNet's numbers"),
                    file: Some(110e3),
                });
            }
        };
        let (channels, classes) = match dataset.train.class_names().len() {
            // No labels: the classes are the ancestor's.
            0 => {
                let ancestor = Ancestors::default().get(settings.ancestor.as_deref())?;
                ancestor.map_or((3, 1000), |a| (a.transform.channels, a.network.classes()))
            }
            classes => (3, classes),
        };
        Ok(Numbers {
            images: dataset.train.len(),
            channels: crate::data::native(&dataset).map_or(channels, |native| native.0),
            classes,
            file: mean_file(&*dataset.train),
            name: dataset.name,
        })
    }
}

fn mean_file(source: &dyn Source) -> Option<f64> {
    let every = (source.len() / SAMPLED).max(1);
    let sizes: Vec<f64> = (0..source.len())
        .step_by(every)
        .filter_map(|i| Some(source.encoded(i).ok()??.bytes.len() as f64))
        .collect();
    (!sizes.is_empty()).then(|| sizes.iter().sum::<f64>() / sizes.len() as f64)
}

/// Sizes, parameters, work, memory, room on disk and time. Where the data is not at hand, its numbers
/// are those of ImageNet. Takes the time of a few steps.
pub fn describe(settings: &Condense) -> Result<String> {
    let settings = &with_batch(settings, Path::new(""), false)?;
    let numbers = Numbers::of(settings)?;
    let classes = numbers.classes;
    let training = &settings.training;
    let images = training
        .train_limit
        .unwrap_or(usize::MAX)
        .min(numbers.images);
    let plan = CondensePlan::new(settings, numbers.channels, classes)?;
    let gene = first(&plan)?;
    let a = &plan.auxiliary;
    let largest = a.with_size(plan.depths.1, a.width);
    let mode = settings::mode(training.precision.as_deref(), training.recompute)?;
    let ledger = gene.ledger();
    let values = ledger.iter().map(|(_, n)| n).sum::<usize>();
    let memory = Memory::of_composed(&largest, mode, values);
    let batch = training.batch.and_then(BatchSize::images);
    let batch = batch.unwrap_or(DEFAULT_BATCH);
    let per_epoch = (images / batch.max(1)).max(1);
    let steps = training.duration(DEFAULTS.duration)?.steps(per_epoch);
    let epochs = steps as f64 / per_epoch as f64;

    let counts = &plan.templates.counts;
    let t = plan.templates.template_size;
    let mut text = format!(
        "data: {}\n{images} images, {classes} classes\nauxiliary: {} anchors, width {}, {} heads, \
         {} x {} pixels in patches of {}\n",
        numbers.name, a.depth, a.width, a.heads, a.image_size, a.image_size, a.patch
    );
    text += &format!(
        "depths {:?}, widths {:?}\ntemplates of {t} x {t}:",
        plan.depths, plan.widths
    );
    for (set, n) in counts {
        text += &format!(" {n} {set}");
    }
    text += &format!(" ({} in all)\n", counts.values().sum::<usize>());
    let twin = largest.parameter_count();
    let sums = [("transferred", values), ("free twin", twin)];
    for (name, n) in ledger.iter().chain(&sums) {
        text += &format!("{name:12} {n:>12}\n");
    }
    // Forward and backward: three times the multiply-adds, two operations each.
    let operations = plan.mean_multiply_adds() * 6.0 * batch as f64 * steps as f64;
    text += &format!(
        "{steps} steps of {batch} images ({epochs:.1} epochs), {operations:.3e} floating-point \
         operations without the ancestor's\n"
    );
    let at_once = batch / training.accumulate.unwrap_or(1).max(1);
    let state = forecast::checkpoint(values, training.ema.is_some());
    text += &format!(
        "memory of a step about {}, without the ancestor's; a checkpoint {}, and its spare as much\n",
        bytes(memory.of_batch(at_once) as f64),
        bytes(state as f64)
    );
    if let Some(file) = numbers.file {
        let epoch = file * images as f64;
        text += &format!(
            "reads {} an epoch in files of {}, {} in all\n",
            bytes(epoch),
            bytes(file),
            bytes(epoch * epochs)
        );
    }
    if settings.cache.is_some() {
        let room = cache::bytes_per_image(settings.cache_top.unwrap_or(DEFAULT_TOP), classes);
        text += &format!(
            "the cache takes {room} bytes an image and view, {} a view\n",
            bytes((room * images) as f64)
        );
    }
    let few = largest.with_size(TIMED_LAYERS.min(largest.depth), largest.width);
    let rate = speed::condensing(&few, TIMED, mode)?;
    text += &format!(
        "{:.0} GFLOP/s here, measured at {} x {}; at that rate, without loading and the ancestor:\n",
        rate / 1e9,
        few.depth,
        few.width
    );
    for devices in DEVICES {
        let time = duration(operations / rate / devices);
        text += &match devices == 1.0 {
            true => format!("    {time}\n"),
            false => format!("    {time} on {devices} of these, if they scale\n"),
        };
    }
    Ok(text)
}

/// The templates of a plan before training, of the sizes of mimetic ones, in no time.
fn first(plan: &CondensePlan) -> Result<Learngene> {
    let plan = CondensePlan {
        template_start: Method::Xavier,
        ..plan.clone()
    };
    start(&plan, 0)
}

/// The settings with a batch that fits the auxiliary at its largest, if that is asked for.
pub(super) fn with_batch(settings: &Condense, out: &Path, repeats: bool) -> Result<Condense> {
    let mut settings = settings.clone();
    if settings.training.batch == Some(BatchSize::Auto) {
        // Colours and classes hardly matter here.
        let plan = CondensePlan::new(&settings, 3, 1000)?;
        let values = first(&plan)?.ledger().iter().map(|(_, n)| n).sum();
        let largest = plan
            .auxiliary
            .with_size(plan.depths.1, plan.auxiliary.width);
        let memory = |mode| Memory::of_composed(&largest, mode, values);
        settings.training = forecast::fit_batch(&settings.training, memory, out, repeats)?;
    }
    Ok(settings)
}

fn bytes(n: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let power = ((n.max(1.0).log10() / 3.0) as usize).min(units.len() - 1);
    format!("{:.3} {}", n / 1e3f64.powi(power as i32), units[power])
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} minutes", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} hours", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}
