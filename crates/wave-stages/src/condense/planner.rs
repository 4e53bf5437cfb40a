//! Plans a condensation for a number of minutes: all settings that are not given follow from the ancestor, the data and
//! rates measured on this machine.
//!
//! Levels share the minutes. The first has the two smallest depths, since small models determine the accuracy of all
//! that grow from them; the second has twice the smallest depth; the last has all other sizes, up to the largest that
//! its share can still train. If there are too few minutes for these levels, the first has all sizes that get enough
//! steps, small ones first, and the last the others; if the ancestor is a ViT of the largest size, all sizes train at
//! once, from its weights. The thresholds for levels, their shares of the time and the growth of sizes in a first level
//! were tuned on held-out images of CIFAR-10 (recipes/results/planner/README.md).
//! The other numbers below are from the best condensations of CIFAR-10 (recipes/results/sizes/README.md), found by hand
//! on test images.

use super::CondensePlan;
use crate::ancestor::Ancestor;
use crate::cache::Cache;
use crate::elastic;
use anyhow::Result;
use rates::Rates;
use toml::{Table, Value};
use wave_learngene::Sizes;
use wave_models::vit::VitShape;
use wave_models::{Network, refuse};
use wave_run::context::Context;
use wave_run::data::{self, Data};
use wave_run::error::request;
use wave_run::progress;
use wave_run::recipe::{merge, to_table};
use wave_run::settings::{Auxiliary, Condense, Keep, ModelSizes, PrecisionChoice, TemplateStart};

mod rates;
mod words;

pub(super) use words::sizes_in_words;

/// Default minutes, for a condensation that gives neither a recipe nor a time.
pub const MINUTES: f64 = 60.0;

/// Fraction of the minutes that is planned; the rest allows for varying rates.
const PLANNED: f64 = 0.92;
/// Largest fractions of the minutes for the ancestor's outputs and for tests.
const ANCESTOR: f64 = 0.4;
const TESTS: f64 = 0.06;
/// Views of the images whose outputs are kept. More of them were no better, and take the time of epochs.
const VIEWS: u32 = 1;
/// Maximum batch size: on a CPU, and on a GPU, where a step of small models takes nearly as long with few images.
const BATCH: (usize, usize) = (128, 512);
/// Minimum number of test images.
const LEAST_TESTS: usize = 500;
/// Fraction of the steps over which sizes grow if the smallest are included, and the exponent of that growth: all
/// sizes end level. With 0.95 and 8 the largest end up to 6 points below the smallest, at the same mean; with 0.4
/// and 1 the smallest lose 1.5 points, and the largest gain nothing.
const GROWTH: (f64, f64) = (0.8, 3.0);
/// All sizes from the first step on.
const UNGROWN: (f64, f64) = (0.0, 1.0);
/// Epochs of the smallest model in the total time above which levels pay off, and above which their shares are final.
const LEVELS_FROM: f64 = 45.0;
const LEVELS_FULL: f64 = 300.0;
/// Shares of the time of three levels, at LEVELS_FROM and at LEVELS_FULL. The latter are a guess.
const SHARES: [[f64; 3]; 2] = [[0.58, 0.29, 0.13], [0.25, 0.45, 0.30]];
/// Share of the time of the last of two levels, in shorter times.
const SHORT_LAST: f64 = 0.2;
/// Minimum epochs of the smallest model in the total time.
const LEAST_EPOCHS: f64 = 1.0;
/// Minimum epochs of all sizes in the last level's share of the time, reached by dropping the largest: for the first of two
/// levels in short times, and for the last level. That keeps the accuracy that it begins with, so it needs few.
const ALL_EPOCHS: f64 = 3.0;
const LAST_EPOCHS: f64 = 0.5;
/// Templates per block of weights of a level's models, counting at most LAYERS_OF_TEMPLATES layers.
const TEMPLATES_PER_BLOCK: f64 = 5.0 / 6.0;
const LAYERS_OF_TEMPLATES: usize = 4;
/// Maximum number of templates of the projection; other parts in proportion.
const MOST_TEMPLATES: usize = 36;
/// Candidate widths between the narrowest and the widest.
const WIDTHS: [usize; 12] = [32, 64, 96, 128, 192, 256, 384, 512, 576, 768, 1024, 1280];
/// Candidate head widths, the most common first, for models of 192 channels or more and for narrower ones: the first
/// that divides the smallest and the largest width.
const HEAD_WIDTHS: ([usize; 5], [usize; 5]) = ([64, 48, 32, 24, 16], [32, 24, 16, 12, 8]);
/// Range of tokens per image: enough for accuracy, few enough to train fast.
const TOKENS: (usize, usize) = (49, 256);

/// All settings of a condensation for the minutes and sizes in `given`, and a summary of the plan in a few lines.
pub(super) fn plan(
    given: &Condense,
    ancestor: Option<&Ancestor>,
    context: &Context,
) -> Result<(Condense, String)> {
    check(given)?;
    let mut settings = given.clone();
    data_settings(&mut settings, ancestor, context)?;
    let sizes = settings.sizes.unwrap_or_default();
    let frame = Frame::new(&mut settings, sizes)?;
    let plan = frame.plan(&settings, frame.sizes.most)?;
    let (plan, data) = plan.with_data(ancestor, context)?;
    if ancestor.is_some() {
        super::start::check(&plan, ancestor)?;
    }
    let (output, taught_by) = (plan.output(ancestor), plan.taught_by(ancestor));
    let own = plan.auxiliary;
    let of_size = |size| Ok(frame.plan(&settings, size)?.on(own.channels, own.classes));
    let mut rates = Rates::measure(of_size, frame.measured(), &data, taught_by)?;
    rates.ancestor_in_steps = settings.outputs.cache.is_none()
        && taught_by.is_some_and(|ancestor| ancestor.most_views(&data, output) == 0);
    let cache = Cache::planned(&plan.given.outputs, ancestor, output, &data)?;
    let cached = cache.map_or(Ok(0), |cache| cache.filled(&data))?;
    let time = Time::share(&mut settings, &frame, &rates, &data, cached);
    if given.template_start.is_none() && frame.in_all(&time, &rates) >= LEVELS_FROM {
        settings.template_start = None;
    }
    let mut levels = frame.levels(&settings, &time, &rates)?;
    let given = &settings.training.optimisation;
    let of_steps = |steps| steps as f64 * time.batch as f64 / time.images;
    let epochs = given.epochs.or(given.steps.map(of_steps));
    for level in &mut levels {
        level.epochs = epochs.unwrap_or(level.epochs);
        level.lr = given.lr.unwrap_or(level.lr);
    }
    let source = (&data, ancestor, output);
    let text = words::describe(&frame, &levels, &time, &rates, source, &settings);
    write_levels(&mut settings, &frame, &levels);
    super::checked(&settings, context)?;
    Ok((settings, text))
}

/// Refuses sizes that a plan would replace.
fn check(given: &Condense) -> Result<()> {
    if let Some(templates) = &given.grow {
        refuse!(
            "grow = {templates}: a plan for --minutes condenses new templates; to grow these, give \
             --depths, --widths and --epochs instead of minutes and sizes"
        );
    }
    let sizes = [
        ("levels", given.levels.is_some()),
        ("depths", given.depths.is_some()),
        ("widths", given.widths.is_some()),
        ("auxiliary.depth", given.auxiliary.depth.is_some()),
        ("auxiliary.width", given.auxiliary.width.is_some()),
    ];
    match sizes.into_iter().find(|(_, given)| *given) {
        Some((key, _)) => refuse!(
            "{key}: a plan for --minutes chooses the sizes of each level; give --sizes, such as {}, \
             instead; settings with sizes of their own need neither minutes nor a printed plan",
            ModelSizes::default()
        ),
        None => Ok(()),
    }
}

/// Data and training settings that follow from the data.
fn data_settings(
    settings: &mut Condense,
    ancestor: Option<&Ancestor>,
    context: &Context,
) -> Result<()> {
    let dataset = data::open(settings.training.images.data.as_deref(), context)?;
    let classes = dataset.class_names.len();
    match ancestor {
        Some(ancestor) => {
            let output = settings.ancestor_output.unwrap_or(ancestor.usual_output());
            if classes == 0 || ancestor.has_other_classes(output, classes) {
                settings.ce_weight.get_or_insert(0.0);
            }
        }
        None if classes > 0 => _ = settings.kl_weight.get_or_insert(0.0),
        None => refuse!(
            "{} has no labels, and there is no ancestor to learn from; give --ancestor A, or \
             sort the images into one folder per class",
            dataset.name
        ),
    }
    let (all, own) = (dataset.train.len(), &settings.training.images);
    let images = all.saturating_sub(own.hold_out.unwrap_or(0));
    let images = images.min(own.train_limit.unwrap_or(images));
    let taught = ancestor.map(|a| a.transform.image_size);
    let side = data::image_side(&dataset).into_iter().chain(taught).min();
    let side = side.unwrap_or(data::DEFAULT_SIDE);
    if let Some(Network::Vit(shape)) = ancestor.map(|a| &a.network)
        && shape.image_size == side
    {
        own_start(settings, shape)?;
    }
    let auxiliary = &mut settings.auxiliary;
    let side = *auxiliary.image_size.get_or_insert(side);
    if auxiliary.patch.is_none() {
        auxiliary.patch = Some(patch(side)?);
    }
    let training = &mut settings.training;
    let most = match context.device().is_cuda() {
        true => BATCH.1,
        false => BATCH.0,
    };
    let batch = (images / 8).clamp(1, most);
    let optimisation = &mut training.optimisation;
    if batch < 4 && optimisation.batch.is_none() {
        refuse!(
            "{}: {images} training images are too few for a training step; give at least 32",
            dataset.name
        );
    }
    optimisation.batch.get_or_insert(1 << batch.ilog2());
    optimisation.weight_decay.get_or_insert(0.05);
    if optimisation.patience.is_none() && training.saving.keep != Some(Keep::Best) {
        optimisation.test_epochs.get_or_insert(0);
    }
    let precision = &mut training.transformer.precision;
    precision.get_or_insert(PrecisionChoice::Auto);
    let augmentation = &mut training.augmentation;
    if settings.outputs.cache.is_some() {
        augmentation.views.get_or_insert(VIEWS);
    }
    augmentation.flip.get_or_insert(true);
    match side <= 64 {
        true => _ = augmentation.crop_padding.get_or_insert(side / 8),
        false => _ = augmentation.resized_crop.get_or_insert(0.35),
    }
    Ok(())
}

/// Lets the largest size begin with the weights of an ancestor of this shape, if the settings allow it: the sizes end
/// with the ancestor's, or are not given, and no given key of the auxiliary differs.
fn own_start(settings: &mut Condense, shape: &VitShape) -> Result<()> {
    let own = (shape.depth, shape.width);
    let ModelSizes { least, most } = ModelSizes::default();
    let usual = (least.0..=most.0).contains(&own.0) && (least.1..=most.1).contains(&own.1);
    let head = shape.head_width();
    let sizes = settings.sizes.or(usual.then_some(ModelSizes {
        least: (least.0, least.1.next_multiple_of(head)),
        most: own,
    }));
    let Some(sizes) = sizes.filter(|sizes| sizes.most == own && !shape.distilled) else {
        return Ok(());
    };
    let auxiliary = to_table(&Auxiliary::from(shape))?;
    let mut merged = auxiliary.clone();
    merge(&mut merged, &to_table(&settings.auxiliary)?);
    let own_start = Some(TemplateStart::Ancestor);
    // The ancestor's weights bring scalers with them.
    let usual = own_start.filter(|_| settings.scaler_start.is_none());
    let start = settings.template_start.or(usual);
    if merged == auxiliary && start == own_start && sizes.least.1 <= own.1 {
        settings.auxiliary = Auxiliary::from(shape);
        settings.sizes = Some(sizes);
        settings.template_start = own_start;
    }
    Ok(())
}

/// The largest patch that leaves enough tokens.
fn patch(side: usize) -> Result<usize> {
    let tokens = |patch: usize| (side / patch).pow(2);
    let fits = |patch: &usize| {
        side.is_multiple_of(*patch) && (TOKENS.0..=TOKENS.1).contains(&tokens(*patch))
    };
    (1..=side).rev().find(fits).ok_or_else(|| {
        request(format!(
            "no patch size splits images of {side} x {side} pixels into {} to {} tokens; set \
             auxiliary.patch, or auxiliary.image_size to a multiple of 8",
            TOKENS.0, TOKENS.1
        ))
    })
}

/// The range of models in a plan, from the smallest to the largest.
struct Frame {
    sizes: ModelSizes,
    widths: Vec<usize>,
    template_size: usize,
}

/// True if the largest size begins with the ancestor's weights.
fn starts_from_ancestor(settings: &Condense) -> bool {
    settings.template_start == Some(TemplateStart::Ancestor)
}

impl Frame {
    /// The auxiliary and the widths for `sizes`.
    fn new(settings: &mut Condense, sizes: ModelSizes) -> Result<Frame> {
        let ModelSizes { least, most } = sizes;
        let auxiliary = &mut settings.auxiliary;
        let usual = match least.1 < 192 {
            true => HEAD_WIDTHS.1,
            false => HEAD_WIDTHS.0,
        };
        let ends = [least.1, most.1];
        let divides = |head: &&usize| ends.iter().all(|width| width.is_multiple_of(**head));
        let fits = usual.iter().find(divides).unwrap_or(&usual[0]);
        let head = *auxiliary.head_width.get_or_insert(*fits);
        if let Some(width) = ends.iter().find(|width| !width.is_multiple_of(head)) {
            refuse!(
                "sizes = {sizes}: the width {width} is not a multiple of the head width {head}"
            );
        }
        (auxiliary.depth, auxiliary.width) = (Some(most.0), Some(most.1));
        auxiliary.class_token.get_or_insert(true);
        let between = |w: &usize| least.1 < *w && *w < most.1 && w.is_multiple_of(head);
        let mut widths = vec![least.1];
        widths.extend(WIDTHS.into_iter().filter(between));
        widths.extend((most.1 > least.1).then_some(most.1));
        let template_size = *settings.template_size.get_or_insert(head);
        Ok(Frame {
            sizes,
            widths,
            template_size,
        })
    }

    /// The smallest, a medium and the largest size.
    fn measured(&self) -> Vec<(usize, usize)> {
        let ModelSizes { least, most } = self.sizes;
        let middle = ((least.0 + most.0) / 2, self.widths[self.widths.len() / 2]);
        let mut sizes = vec![least, middle, most];
        sizes.dedup();
        sizes
    }

    /// A condensation of all sizes up to this one, for measuring.
    fn plan(&self, settings: &Condense, (depth, width): (usize, usize)) -> Result<CondensePlan> {
        let widths = self.widths.iter().copied().filter(|w| *w <= width);
        CondensePlan::new(&Condense {
            depths: Some(vec![self.sizes.least.0, depth]),
            widths: Some(widths.collect()),
            templates: Some(self.templates(settings, (depth, width))),
            levels: None,
            ..settings.clone()
        })
    }

    /// Templates of qkv, proj, fc1 and fc2 for models of this size, unless given.
    fn templates(&self, settings: &Condense, (depth, width): (usize, usize)) -> Vec<usize> {
        if let Some(given) = &settings.templates {
            return given.clone();
        }
        // The ancestor's weights are kept as far as templates can hold them.
        let (layers, most) = match starts_from_ancestor(settings) {
            true => (usize::MAX, usize::MAX),
            false => (LAYERS_OF_TEMPLATES, MOST_TEMPLATES),
        };
        let blocks = width.div_ceil(self.template_size).pow(2) * depth.min(layers);
        let count = |parts: usize| {
            let count = (TEMPLATES_PER_BLOCK * (parts * blocks) as f64).round() as usize;
            count.clamp(1, most.saturating_mul(parts))
        };
        [3, 1, 4, 4].map(count).into()
    }

    /// Seconds for an image of the tests at the end.
    fn seconds_of_test(&self, rates: &Rates) -> f64 {
        let ModelSizes { least, most } = self.sizes;
        let sizes = elastic::tested((least.0, most.0), &self.widths);
        sizes.map(|(w, d)| rates.forward(d, w)).sum()
    }

    /// Epochs of the smallest model in the time of the training.
    fn in_all(&self, time: &Time, rates: &Rates) -> f64 {
        let depth = self.sizes.least.0;
        let smallest = Sizes::constant((depth, depth), self.widths[..1].to_vec());
        time.training / (time.images * rates.of_sizes(&smallest, time.batch as f64))
    }

    fn levels(&self, settings: &Condense, time: &Time, rates: &Rates) -> Result<Vec<LevelPlan>> {
        let ModelSizes { least, most } = self.sizes;
        let of_epoch = |sizes: &Sizes| time.images * rates.of_sizes(sizes, time.batch as f64);
        let own_start = starts_from_ancestor(settings);
        let in_all = self.in_all(time, rates);
        if in_all < LEAST_EPOCHS {
            let (minutes, (depth, width)) = (settings.minutes.unwrap_or(MINUTES), least);
            let seconds = [60.0 * minutes, time.training, time.training / in_all];
            let [all, left, epoch] = seconds.map(progress::duration);
            refuse!(
                "minutes = {minutes}: of {all}, {left} are left for training, but an epoch of {depth} x \
                 {width} takes {epoch}; give more --minutes, fewer images (--train-limit) or smaller \
                 --sizes"
            );
        }
        let narrow = &self.widths[..self.widths.len().min(2)];
        let few = (least.0, most.0.min(least.0 + 1));
        let middle = most.0.min(2 * least.0);
        let level = |depths, widths: &[usize], usual: (f64, f64)| LevelPlan {
            sizes: Sizes {
                growth: settings.elastic.growth.unwrap_or(usual.0),
                growth_power: settings.elastic.growth_power.unwrap_or(usual.1),
                ..Sizes::constant(depths, widths.to_vec())
            },
            epochs: 0.0,
            lr: 4e-3,
        };
        let mut levels = vec![level(few, narrow, GROWTH)];
        if middle > few.1 {
            levels.push(level((middle, middle), narrow, UNGROWN));
        }
        let mut all = level((least.0, most.0), &self.widths, UNGROWN);
        let mut shares = SHARES[0];
        let fits = |share: f64, least: f64| {
            move |sizes: &Sizes| time.training * share / of_epoch(sizes) >= least
        };
        let short = in_all < LEVELS_FROM || own_start || settings.templates.is_some();
        if short {
            let mut one = all.sizes.clone();
            if !own_start {
                let small = &levels[levels.len() - 1].sizes;
                shrink(&mut one, small, fits(shares[2], ALL_EPOCHS));
            }
            levels = vec![level(one.depths, &one.widths, GROWTH)];
            shares = [1.0 - SHORT_LAST, SHORT_LAST, 0.0];
        } else {
            let towards = (in_all / LEVELS_FROM).ln() / (LEVELS_FULL / LEVELS_FROM).ln();
            for (share, full) in shares.iter_mut().zip(SHARES[1]) {
                *share += towards.min(1.0) * (full - *share);
            }
        }
        let before = &levels[levels.len() - 1].sizes;
        let share = shares[levels.len()] / shares[..=levels.len()].iter().sum::<f64>();
        let enough = fits(share, LAST_EPOCHS);
        shrink(&mut all.sizes, before, enough);
        let (first, last) = (before.largest(), all.sizes.largest());
        let adds = match short {
            // A layer more is not worth its time.
            true => enough(&all.sizes) && (last.1 > first.1 || last.0 >= 2 * first.0),
            false => last != first,
        };
        if adds && settings.templates.is_none() {
            levels.push(all);
        }
        let sum: f64 = shares[..levels.len()].iter().sum();
        for (level, share) in levels.iter_mut().zip(shares) {
            level.epochs = time.training * share / sum / of_epoch(&level.sizes);
        }
        if let [_, .., last] = &mut levels[..] {
            // At a low learning rate, a short level keeps the accuracy that it began with.
            last.lr = (7e-4 * (last.epochs / 1.2).powf(0.25)).clamp(7e-4, 2e-3);
        }
        Ok(levels)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct LevelPlan {
    sizes: Sizes,
    epochs: f64,
    lr: f64,
}

/// Drops the largest sizes of a level until it fits, or is no larger than the level before.
fn shrink(sizes: &mut Sizes, before: &Sizes, fits: impl Fn(&Sizes) -> bool) {
    while !fits(sizes) {
        let wider = sizes.widths.len() > before.widths.len();
        let deeper = sizes.depths.1 > before.depths.1 + 1;
        match (wider, deeper) {
            (true, _) if !deeper || sizes.widths.len() > sizes.depths.1 / 3 => {
                _ = sizes.widths.pop()
            }
            (_, true) => sizes.depths.1 -= 1,
            _ => return,
        }
    }
}

/// The seconds of a condensation, by purpose.
struct Time {
    /// Number of training images, and batch size.
    images: f64,
    batch: usize,
    ancestor: f64,
    tests: f64,
    training: f64,
    /// True if a cache has outputs of the ancestor, so that fewer are left to compute.
    cached: bool,
}

impl Time {
    /// Sets the numbers of views and test images, and leaves the rest of the time to training. A cache has `cached` of
    /// the ancestor's outputs.
    fn share(
        settings: &mut Condense,
        frame: &Frame,
        rates: &Rates,
        data: &Data,
        cached: usize,
    ) -> Time {
        let all = 60.0 * settings.minutes.unwrap_or(MINUTES) * PLANNED;
        let mut images = data.train_indices.len();
        let of_images = &mut settings.training.images;
        let mut ancestor = 0.0;
        if rates.ancestor > 0.0 && !rates.ancestor_in_steps {
            let of_one = rates.ancestor + rates.loading;
            let augmentation = &mut settings.training.augmentation;
            let views = *augmentation.views.get_or_insert(VIEWS) as usize;
            let affordable = (ANCESTOR * all / of_one) as usize + cached / views;
            if affordable < images && of_images.train_limit.is_none() {
                images = affordable.max(data.plan.batch);
                of_images.train_limit = Some(images);
            }
            ancestor = (views * images).saturating_sub(cached) as f64 * of_one;
        }
        let tested = data.tests.indices.len();
        let of_one = frame.seconds_of_test(rates);
        let affordable = ((TESTS * all / of_one.max(1e-9)) as usize).max(LEAST_TESTS);
        if affordable < tested && of_images.hold_out.is_none() {
            of_images.test_limit.get_or_insert(affordable);
        }
        let tests = affordable.min(tested) as f64 * of_one;
        Time {
            images: images as f64,
            batch: data.plan.batch,
            ancestor,
            tests,
            training: (all - ancestor - tests).max(1.0),
            cached: cached > 0,
        }
    }
}

/// Writes the levels as tables of changed settings.
fn write_levels(settings: &mut Condense, frame: &Frame, levels: &[LevelPlan]) {
    let integers = |all: &[usize]| Value::from(all.iter().map(|n| *n as i64).collect::<Vec<_>>());
    // Training settings that are given hold for all levels.
    let given = &settings.training.optimisation;
    let is_given = |key: &str| match key {
        "epochs" => given.epochs.is_some() || given.steps.is_some(),
        "lr" => given.lr.is_some(),
        _ => false,
    };
    let table = |level: &LevelPlan| -> Table {
        let sizes = &level.sizes;
        let templates = frame.templates(settings, sizes.largest());
        let epochs = (level.epochs * 100.0).round() / 100.0;
        let changes = [
            ("depths", integers(&[sizes.depths.0, sizes.depths.1])),
            ("widths", integers(&sizes.widths)),
            ("templates", integers(&templates)),
            ("epochs", Value::Float(epochs.max(0.01))),
            ("lr", Value::Float((level.lr * 1e5).round() / 1e5)),
            ("growth", Value::Float(sizes.growth)),
            ("growth_power", Value::Float(sizes.growth_power)),
        ];
        let changes = changes.into_iter().filter(|(key, _)| !is_given(key));
        changes.map(|(key, value)| (key.into(), value)).collect()
    };
    let tables: Vec<Table> = levels.iter().map(table).collect();
    let (depth, width) = words::last_size(levels);
    (settings.auxiliary.depth, settings.auxiliary.width) = (Some(depth), Some(width));
    settings.levels.get_or_insert(tables);
}

#[cfg(test)]
#[path = "planner/tests.rs"]
mod tests;
