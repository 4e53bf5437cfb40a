//! `wave condense`: distils an ancestor, through an auxiliary transformer whose large matrices are
//! composed from shared templates, into those templates (WAVE, section 3.2).
//!
//! The templates, the bank of scalers and the auxiliary's other weights train together towards
//! `KL(ancestor || auxiliary) + CE(labels, auxiliary)`, composed anew in every step. One depth and one
//! width are plain WAVE; with ranges, each step draws a depth and a width, and the same bank learns to
//! make models of all of them.

use crate::ancestor::{Ancestor, AncestorOutput, Ancestors};
use crate::cache::Cache;
use crate::elastic;
use crate::finetune::{Options, drop_path};
use crate::lesson::Lesson;
use crate::templates::{self, Description, TemplateDir};
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;
use wave_data::Batch;
use wave_init::{DirectMethod, Positions};
use wave_learngene::{Learngene, Part, Reach, Templates, divergence};
use wave_models::Weights;
use wave_models::resample;
use wave_models::vit::{self, VitShape};
use wave_run::context::Context;
use wave_run::data::{self, Data};
use wave_run::forecast::Step;
use wave_run::inputs::Inputs;
use wave_run::paths;
use wave_run::run_dir::{self, Made};
use wave_run::settings::{Condense, CondenseMethod, Duration, Larger, ScalerStart, Trained};
use wave_run::train::{self, Course, Defaults, Live, Resolved, Trainee};
use wave_train::{MicroBatch, Rate, Scores, Variable};

mod artefact;
mod composed;
mod describe;
mod factorise;
mod levels;
mod plan;

use artefact::write;
pub use describe::{describe, untrained};
use plan::is_closed_form;
pub use plan::{CondensePlan, check};

/// Values for settings that are not given.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(150.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// The condition of recorded accuracies.
const EXPANDED: &str = "expanded without data";

/// Noise on structured first scalers, so that equal blocks can diverge.
const SCALER_NOISE: f32 = 0.03;

/// Independent numbers for all templates.
fn first_templates(plan: &CondensePlan, rng: &mut ChaCha8Rng) -> Result<Templates> {
    let t = plan.templates.template_size;
    let mean_width =
        plan.sizes.widths.iter().sum::<usize>() as f64 / plan.sizes.widths.len() as f64;
    // Xavier for a square matrix of the mean width: a start as small as 0.02 trains much worse in
    // narrow networks.
    let bound = (3.0 / mean_width).sqrt() as f32;
    let uniform = rand_distr::Uniform::new_inclusive(-bound, bound)?;
    let mut of_set = |(set, n): (&String, &usize)| {
        let values: Vec<f32> = (0..n * t * t).map(|_| uniform.sample(rng)).collect();
        Ok((
            set.clone(),
            Tensor::from_vec(values, (*n, t, t), &Device::Cpu)?,
        ))
    };
    plan.templates.counts.iter().map(&mut of_set).collect()
}

/// The templates, bank and other weights before the first step.
pub fn start(plan: &CondensePlan, seed: u64) -> Result<Learngene> {
    let a = &plan.auxiliary;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut templates = first_templates(plan, &mut rng)?;
    // The default budget of templates holds two layers of the narrowest width.
    let two = a.with_size(2, plan.sizes.widths[0]);
    let mut options = wave_init::DirectOptions::new(plan.template_start);
    if [a, &two].iter().any(|shape| !shape.width.is_multiple_of(4)) {
        options.positions = Positions::Learned; // sines come in fours
    }
    if plan.template_start == DirectMethod::Mimetic {
        let layers = vit::stack(&crate::init::fill(&two, &options, seed)?, 2)?;
        for part in [Part::Qkv, Part::Proj] {
            let set = &plan.templates.sets[&part];
            let weights = &layers[&part.stacked_name()];
            let plan = &plan.templates;
            let t = wave_learngene::seed_templates(plan, part, &templates[set], weights, &two)?;
            templates.insert(set.clone(), t);
        }
    }
    let mut normal = || StandardNormal.sample(&mut rng);
    let bank = match plan.start {
        ScalerStart::Ramp => wave_learngene::ramp_scalers(
            &plan.templates,
            a,
            &two,
            a.depth,
            SCALER_NOISE,
            &mut normal,
        )?,
        ScalerStart::Random => {
            wave_learngene::random_scalers(&plan.templates, a, a.depth, &mut normal)?
        }
        ScalerStart::Telg => {
            wave_learngene::telg_scalers(&plan.templates, a, a.depth, plan.depth_rule)?
        }
        ScalerStart::Share => wave_learngene::share_scalers(&plan.templates, a, a.depth)?,
    };
    // The methods agree outside the templates, except for positions; Xavier avoids decomposing mimetic
    // attention in every layer.
    options.method = DirectMethod::Xavier;
    let fresh = crate::init::fill(a, &options, seed)?;
    let mut inherited = vit::stack(&fresh, a.depth)?;
    inherited.retain(|name, _| !plan.templates.composes(name));
    let gene = Learngene {
        plan: plan.templates.clone(),
        templates,
        bank,
        inherited,
        auxiliary: a.clone(),
        depth_rule: plan.depth_rule,
        smaller: Vec::new(),
    };
    match plan.larger {
        Larger::Values => Ok(gene),
        Larger::Deviations => Ok(gene.repeated(&plan.smallest())?),
    }
}

/// What trains in the place of a learngene's values.
enum Terms {
    /// The values.
    Values,
    /// Deviations of larger models from the smallest.
    Deviations(VitShape),
    /// The weights that templates compose for models of these sizes. Templates and scalers follow them.
    Composed(Reach),
}

impl Terms {
    /// The values of `gene`, which holds what is trained.
    fn values(&self, gene: Learngene) -> candle_core::Result<Learngene> {
        match self {
            Terms::Values | Terms::Composed(_) => Ok(gene),
            Terms::Deviations(smallest) => gene.from_deviations(smallest),
        }
    }
}

/// What a condensation trains before its first step, and in which terms. `smaller` are the templates that it grows.
fn begin(
    plan: &CondensePlan,
    smaller: Option<&TemplateDir>,
    ancestor: Option<&Ancestor>,
    seed: u64,
) -> Result<(Learngene, Terms)> {
    let largest = plan.largest();
    let (gene, larger) = match (smaller, plan.templates.levels.last()) {
        (Some(smaller), Some(level)) => {
            let gene = Learngene {
                plan: levels::smaller(smaller)?,
                ..smaller.learngene.clone()
            };
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let start = gene.grown(level.clone(), &first_templates(plan, &mut rng)?)?;
            (start, Larger::Values) // a level begins with what smaller models have
        }
        _ => match plan.method {
            CondenseMethod::Factorise => (factorise::start(plan, ancestor)?.0, plan.larger),
            CondenseMethod::Distil => (start(plan, seed)?, plan.larger),
        },
    };
    Ok(match (plan.train, larger) {
        (Trained::Weights, _) => {
            let sizes = gene.reach(largest.depth, largest.width);
            (gene, Terms::Composed(sizes))
        }
        (Trained::Factors, Larger::Values) => (gene, Terms::Values),
        (Trained::Factors, Larger::Deviations) => {
            let smallest = plan.smallest();
            (gene.to_deviations(&smallest)?, Terms::Deviations(smallest))
        }
    })
}

/// A learngene in training, from `gene` on.
struct Distillation<'a> {
    plan: &'a CondensePlan,
    terms: &'a Terms,
    /// The learngene before the first step, in the terms that are trained.
    gene: &'a Learngene,
    resolved: &'a Resolved,
    data: &'a Data,
    /// What the ancestor teaches by. In the place of class scores the auxiliary then predicts features.
    output: AncestorOutput,
    lesson: Option<Lesson<'a>>,
}

impl Trainee for Distillation<'_> {
    type Batch = Batch;

    fn variables(&self, device: &Device) -> Result<Vec<Variable>> {
        let variable = |(name, t): &(String, Tensor)| {
            let depth = self.gene.auxiliary.depth;
            let mut v = train::variable(name, t, self.resolved, depth, device)?;
            v.rate = Rate::Uniform(1.0);
            if name.starts_with("templates.") {
                v.rate = Rate::Uniform(self.plan.template_lr_ratio);
                v.weight_decay = self.resolved.weight_decay;
            } else if name.starts_with("bank.") {
                v.rate = Rate::Uniform(self.plan.scaler_lr_ratio);
                v.weight_decay = 0.0;
            }
            Ok(v)
        };
        let all = self.gene.tensors();
        let variables = all.iter().map(variable).collect::<Result<_>>()?;
        match self.terms {
            Terms::Composed(sizes) => {
                composed::variables(variables, self.gene, sizes, self.resolved, device)
            }
            Terms::Values | Terms::Deviations(_) => Ok(variables),
        }
    }

    fn constrain(&self, live: &Live) -> candle_core::Result<()> {
        match self.terms {
            Terms::Composed(sizes) => composed::constrain(self.gene, sizes, live),
            Terms::Values | Terms::Deviations(_) => Ok(()),
        }
    }

    fn loss(
        &self,
        live: &Live,
        batch: &Batch,
        images: &Tensor,
        part: &MicroBatch,
    ) -> candle_core::Result<Tensor> {
        let Distillation { plan, resolved, .. } = self;
        // Composed in every step, since the templates change.
        let gene = self.terms.values(self.gene.with_tensors(&live.weights))?;
        let targets = self.lesson.as_ref().map(|l| l.targets(batch, images));
        let targets = targets.transpose()?;
        let shapes = plan.shapes_of_step(resolved.seed, part.step, resolved.steps);
        let outputs = shapes.map(|shape| {
            let weights = match self.terms {
                Terms::Composed(sizes) => {
                    gene.weights_from(&composed::weights(&live.weights), sizes, &shape)?
                }
                _ => gene.stacked_weights(&shape)?,
            };
            let scales = drop_path(shape.depth, part, resolved);
            let images = resample::images(images, shape.image_size)?;
            vit::logits_in(resolved.mode, &shape, &weights, &images, scales)
        });
        let features = self.output == AncestorOutput::Features;
        let distance = |z: &Tensor, other: &Tensor| match features {
            true => wave_learngene::feature_distance(z, other),
            false => divergence(z, other, plan.objective.temperature),
        };
        let loss = |z: &Tensor| match &targets {
            Some(ancestor) if features => wave_learngene::feature_distance(z, ancestor),
            ancestor => plan.objective.loss(z, ancestor.as_ref(), || {
                let classes = plan.auxiliary.classes;
                wave_train::batch_targets(batch, classes, resolved.label_smoothing)
            }),
        };
        wave_learngene::mean_loss(outputs, loss, plan.inplace_weight, distance)
    }

    fn score(&self, values: &Weights) -> Result<Scores> {
        let gene = self.terms.values(self.gene.with_tensors(values))?;
        elastic::score(&gene, &self.plan.largest(), self.data)
    }
}

/// Condenses and writes a template directory. Returns the output of `--json`.
///
/// `recipe` is the recipe's name, for the card.
///
/// # Errors
/// If settings are wrong, or the work fails.
pub fn condense(
    recipe: &str,
    settings: &Condense,
    ancestors: &Ancestors,
    out: &Path,
    options: &Options,
) -> Result<Value> {
    let levels = levels::checked(settings)?;
    if levels.len() > 1 {
        // What is wrong with any is said before the first begins.
        let grown = read_grown(levels[0].grow.as_deref().map(Path::new), &options.context)?;
        levels::plans(&levels, grown.as_ref())?;
    }
    let last = levels.len() - 1;
    let mut grown: Option<PathBuf> = levels[0].grow.as_ref().map(PathBuf::from);
    for (at, level) in levels[..last].iter().enumerate() {
        let grow = grown.as_deref();
        condense_level(recipe, level, grow, ancestors, (out, Some(at)), options)?;
        grown = Some(run_dir::level(out, at));
    }
    let (level, grow) = (&levels[last], grown.as_deref());
    condense_level(recipe, level, grow, ancestors, (out, None), options)
}

/// The plans of all levels of a condensation, at least one, without the templates that it grows.
///
/// # Errors
/// If the settings of a level are wrong.
pub fn plans(settings: &Condense) -> Result<Vec<CondensePlan>> {
    levels::plans(&levels::of(settings)?, None)
}

/// Epochs of a condensation and, before them, of those that it grew from.
pub fn epochs(provenance: &Value) -> Vec<f64> {
    let mut all = match &provenance["grown"] {
        Value::Null => Vec::new(),
        before => epochs(before),
    };
    all.push(provenance["epochs"].as_f64().unwrap_or(0.0));
    all
}

/// The templates that a condensation grows, if it grows any.
fn read_grown(grow: Option<&Path>, context: &Context) -> Result<Option<TemplateDir>> {
    let read = |path| templates::fetch(path, context);
    Ok(grow.map(read).transpose()?)
}

/// Condenses what grows the templates in `grow`, if given: the whole of `out`, or the level of this number within.
fn condense_level(
    recipe: &str,
    settings: &Condense,
    grow: Option<&Path>,
    ancestors: &Ancestors,
    (whole, level): (&Path, Option<usize>),
    options: &Options,
) -> Result<Value> {
    let out = &level.map_or(whole.to_owned(), |at| run_dir::level(whole, at));
    // For people: what was grown is known by its digest.
    let grow_as_text = grow.map(paths::text);
    let settings = &Condense {
        grow: grow_as_text,
        ..settings.clone()
    };
    let context = &options.context;
    let ancestor = ancestors.get(settings.ancestor.as_deref(), &settings.zero_shot, context)?;
    let ancestor = ancestor.as_deref();
    if is_closed_form(settings) {
        return factorise::factorise(recipe, settings, ancestor, out, options);
    }
    let smaller = read_grown(grow, context)?;
    let mut plan = match &smaller {
        Some(smaller) => levels::grown(settings, smaller)?,
        None => CondensePlan::new(settings)?,
    };
    plan.fit_batch(options.repeated(out), context)?;
    let data = plan.open_data(ancestor, context)?;
    let output = plan.output(ancestor);
    if let Some(ancestor) = ancestor {
        ancestor.check(&data, output)?;
    }
    let classes = plan.outputs(ancestor, &data);
    let plan = plan.on(data.transform.channels, classes);
    let resolved = plan.training.resolve(&data)?;
    let memory = plan.memory(ancestor, resolved.mode);
    Step::new(memory, &data, &resolved, 1)?.check()?;
    let cache = Cache::of_plan(plan.cache.as_ref(), ancestor, output, &data)?;
    if let Some(smaller) = &smaller {
        data.check_classes(
            smaller.learngene.auxiliary.classes,
            "grow templates on data of their own classes",
        )?;
        data.check_names(
            &smaller.config.label_names,
            "grow templates on data of their own classes, under the same names in the same order",
        )?;
    }
    let inputs = Inputs::new(context).images(plan.data.spec.as_deref(), &data);
    let inputs = match grow {
        Some(grow) => inputs.artefact("templates", grow)?,
        None => inputs,
    };
    let inputs = match ancestor {
        Some(ancestor) => ancestor.with_inputs(plan.ancestor.as_deref(), inputs)?,
        None => inputs,
    };
    let reserve = |at| run_dir::reserve(whole, at, &inputs, options);
    let level_here = level.filter(|_| context.is_first());
    let _reserved = level_here.map(reserve).transpose()?;
    run_dir::fill(out, &plan.table, &inputs, options, |run| {
        let began = Instant::now();
        let (gene, terms) = begin(&plan, smaller.as_ref(), ancestor, resolved.seed)?;
        let lesson =
            |ancestor| Lesson::new(ancestor, &data, output, cache.as_ref(), options.verbosity);
        let distillation = Distillation {
            plan: &plan,
            terms: &terms,
            gene: &gene,
            resolved: &resolved,
            data: &data,
            output,
            lesson: ancestor.map(lesson).transpose()?,
        };
        let name = whole.file_name().map(|n| n.to_string_lossy());
        let of = level.map_or(String::new(), |at| format!(", level {at}"));
        let label = format!("condense {}{of}", name.unwrap_or_default());
        let course = Course {
            label: &label,
            data: &data,
            resolved: &resolved,
            every_epoch: true,
        };
        let outcome = train::train(&distillation, &course, Some(run), options)?;
        let gene = terms.values(gene.with_tensors(&outcome.values))?;
        let gene = match output {
            AncestorOutput::Scores => gene,
            AncestorOutput::Features => gene.headless(),
        };
        let gene = templates::rounded(&gene, plan.float)?;
        let mut provenance = json!({
            "recipe": recipe,
            "version": env!("CARGO_PKG_VERSION"),
            "ancestor": ancestor.map(Ancestor::describe),
            "ancestor_output": ancestor.map(|_| output.to_string()),
            "ancestor_sha256": ancestor.map(|a| &a.digest),
            "origin": ancestor.map(|a| &a.origin),
            "data": data.spec,
            "training_images": data.train_indices.len(),
            "seed": resolved.seed,
            "steps": outcome.steps,
            "epochs": outcome.epochs,
            "depths": [plan.sizes.depths.0, plan.sizes.depths.1],
            "widths": plan.sizes.widths,
        });
        let mut known = Vec::new();
        if let Some(smaller) = &smaller {
            let config = &smaller.config;
            known.extend(config.accuracies.iter().map(|a| (a.depth, a.width)));
            provenance["grown"] = config.provenance.clone();
            for key in ["depths", "widths"] {
                let all = [&config.provenance[key], &provenance[key]];
                let all = all.into_iter().filter_map(Value::as_array).flatten();
                let all: BTreeSet<u64> = all.filter_map(Value::as_u64).collect();
                provenance[key] = match key {
                    "depths" => json!([all.first(), all.last()]),
                    _ => json!(all),
                };
            }
        }
        elastic::tell_variants(&plan.sizes.variants, &mut provenance);
        if let Some(named) = ancestor.and_then(|a| a.named.as_ref()) {
            provenance["prompts"] = json!(named.prompts);
        }
        let about = Description {
            transform: &data.transform,
            label_names: data.class_names.clone(),
            provenance,
            accuracies: elastic::accuracies(&gene, &plan.sizes, &known, &data, EXPANDED)?,
            shapes: elastic::shape_accuracies(&gene, &plan.sizes, &data)?,
        };
        let mut result = json!({
            "parameters": gene.ledger().iter().map(|(_, n)| n).sum::<usize>(),
            "top1": outcome.scores.map(|s| s.top1),
            "seconds": began.elapsed().as_secs_f64().round(),
        });
        if let Some(cache) = &cache {
            result["cache"] = cache.summary();
        }
        outcome.tell(&mut result);
        data::count_broken(&mut result, data.tell_broken());
        let float = plan.float;
        Ok(Made {
            result,
            write: Box::new(move || write(out, &gene, float, about)),
        })
    })
}
