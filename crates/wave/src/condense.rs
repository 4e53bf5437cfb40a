//! `wave condense`: distils an ancestor, through an auxiliary transformer whose large matrices are
//! composed from shared templates, into those templates (WAVE, section 3.2).
//!
//! Trained are the templates, the bank of scalers, and the auxiliary's other weights, together,
//! towards `KL(ancestor || auxiliary) + CE(labels, auxiliary)`. Weights are composed anew in every
//! step. With one depth and one width this is plain WAVE; with ranges, each step draws the
//! auxiliary's depth and width, and the same bank learns to make models of all of them.

use crate::ancestor::{Ancestor, Ancestors};
use crate::data::{Data, Input};
use crate::elastic::{self, About, Learngene, block_shape};
use crate::error::request;
use crate::finetune::{Options, drop_path};
use crate::run_dir::{Opened, RunDir};
use crate::settings::{Condense, Duration};
use crate::train::{self, Defaults, Job, Outcome, Resolved};
use anyhow::Result;
use candle_core::{Device, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use wave_hub::{Accuracy, CardFront};
use wave_learngene::{Kronecker, Part, Plan, Scalers};
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_train::{Scores, Variable};

mod factorise;

/// What condensing does where the settings are silent.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Epochs(150.0),
    lr: 5e-4,
    weight_decay: 0.05,
};

/// Noise on structured first scalers, so that equal blocks can part.
const SCALER_NOISE: f32 = 0.03;

/// Condensation settings that make sense together.
#[derive(Clone, Debug)]
pub struct CondensePlan {
    /// The auxiliary's largest shape; its depth is the number of anchors.
    pub auxiliary: VitShape,
    /// The depths drawn from, least and most.
    pub depths: (usize, usize),
    /// The widths drawn from.
    pub widths: Vec<usize>,
    /// Templates and parts.
    pub templates: Plan,
    /// First scalers.
    pub start: ScalerStart,
}

/// How the scalers of a condensation begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalerStart {
    /// From one half of the templates at the first layer to the other half at the last.
    Ramp,
    /// Linear expansion, as TELG: a base and a slope.
    Telg,
    /// Normal, variance 1 / N.
    Random,
}

impl CondensePlan {
    /// Checks the settings against each other, and against the data.
    pub fn new(settings: &Condense, channels: usize, classes: usize) -> Result<CondensePlan> {
        let a = &settings.auxiliary;
        let head_width = a.head_width.unwrap_or(64);
        let width = a.width.unwrap_or(384);
        if head_width == 0 || !width.is_multiple_of(head_width) || width == 0 {
            return Err(request(format!(
                "auxiliary.width {width} is not a multiple of auxiliary.head_width {head_width}"
            )));
        }
        let depth = a.depth.unwrap_or(12);
        let depths = match settings.depths.as_deref() {
            None => (depth, depth),
            Some([one]) => (*one, *one),
            Some([least, most]) if least <= most => (*least, *most),
            Some(other) => {
                return Err(request(format!(
                    "depths = {other:?}; give one depth, or the least and the most"
                )));
            }
        };
        if depths.0 == 0 {
            return Err(request("depths start at 0; expected at least 1"));
        }
        let auxiliary = VitShape {
            image_size: a.image_size.unwrap_or(224),
            channels,
            patch: a.patch.unwrap_or(16),
            depth: settings.anchors.unwrap_or(depth),
            width,
            heads: width / head_width,
            mlp_ratio: a.mlp_ratio.unwrap_or(4.0),
            classes,
            class_token: a.class_token.unwrap_or(false),
            ..VitShape::default()
        };
        auxiliary.validate()?;
        let widths = settings.widths.clone().unwrap_or_else(|| vec![width]);
        if widths.is_empty() {
            return Err(request("widths is empty; give at least one"));
        }
        for w in &widths {
            if *w == 0 || *w > width || !w.is_multiple_of(head_width) {
                return Err(request(format!(
                    "widths: {w} is not a multiple of the head width {head_width} up to the \
                     auxiliary's width {width}"
                )));
            }
        }
        let templates = template_plan(settings, &auxiliary, &widths)?;
        let start = match settings.scaler_start.as_deref().unwrap_or("ramp") {
            "ramp" => ScalerStart::Ramp,
            "telg" => ScalerStart::Telg,
            "random" => ScalerStart::Random,
            other => {
                return Err(request(format!(
                    "scaler_start = {other}; expected ramp, telg or random"
                )));
            }
        };
        Ok(CondensePlan {
            auxiliary,
            depths,
            widths,
            templates,
            start,
        })
    }

    /// The shape that a step trains.
    fn shape_of_step(&self, seed: u64, step: u64) -> VitShape {
        let mut rng = train::step_generator(seed ^ 0xe1a5, step);
        let depth = rng.random_range(self.depths.0..=self.depths.1);
        let width = self.widths[rng.random_range(0..self.widths.len())];
        self.shape(depth, width)
    }

    fn shape(&self, depth: usize, width: usize) -> VitShape {
        let heads = width / self.auxiliary.head_width();
        VitShape {
            depth,
            width,
            heads,
            ..self.auxiliary.clone()
        }
    }

    /// Multiply-adds of an average forward pass of one image, over the sizes drawn.
    fn mean_multiply_adds(&self) -> f64 {
        let depths = self.depths.0..=self.depths.1;
        let n = (depths.clone().count() * self.widths.len()) as f64;
        let sizes = depths.flat_map(|d| self.widths.iter().map(move |w| (d, *w)));
        sizes
            .map(|(d, w)| self.shape(d, w).multiply_adds() as f64)
            .sum::<f64>()
            / n
    }
}

fn template_plan(settings: &Condense, auxiliary: &VitShape, widths: &[usize]) -> Result<Plan> {
    let reference = widths.iter().copied().min().unwrap_or(auxiliary.width);
    let t = settings.template_size.unwrap_or(reference);
    if t == 0 {
        return Err(request("template_size = 0; expected at least 1"));
    }
    let kronecker: Kronecker = settings.kronecker.as_deref().unwrap_or("tile").parse()?;
    let default = Plan::default_budget(reference, t)?;
    let mut counts: BTreeMap<Part, usize> = Part::ALL
        .iter()
        .map(|part| (*part, default.counts[&default.sets[part]]))
        .collect();
    if let Some(given) = &settings.templates {
        let [qkv, proj, fc1, fc2] = given[..] else {
            return Err(request(format!(
                "templates = {given:?}; give four counts, of qkv, proj, fc1 and fc2"
            )));
        };
        counts = Part::ALL.into_iter().zip([qkv, proj, fc1, fc2]).collect();
    }
    let mut sets: BTreeMap<Part, String> = Part::ALL
        .iter()
        .map(|part| (*part, part.name().to_string()))
        .collect();
    let mut by_set: BTreeMap<String, usize> = counts
        .iter()
        .map(|(part, n)| (part.name().to_string(), *n))
        .collect();
    if settings.share_mlp.unwrap_or(false) {
        let shared = by_set.remove("fc1").unwrap_or(0) + by_set.remove("fc2").unwrap_or(0);
        by_set.insert("mlp".into(), shared);
        sets.insert(Part::Fc1, "mlp".into());
        sets.insert(Part::Fc2, "mlp".into());
    }
    Ok(Plan::new(t, kronecker, sets, by_set)?)
}

/// The templates, bank and other weights before the first step.
pub fn start(plan: &CondensePlan, seed: u64) -> Result<Learngene> {
    let a = &plan.auxiliary;
    let t = plan.templates.template_size;
    let mean_width = plan.widths.iter().sum::<usize>() as f64 / plan.widths.len() as f64;
    // Xavier for a square matrix of the mean width: too small a start (0.02) costs dearly in
    // narrow networks.
    let bound = (3.0 / mean_width).sqrt() as f32;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let uniform = rand_distr::Uniform::new_inclusive(-bound, bound)?;
    let templates = plan
        .templates
        .counts
        .iter()
        .map(|(set, n)| {
            let values: Vec<f32> = (0..n * t * t).map(|_| uniform.sample(&mut rng)).collect();
            Ok((
                set.clone(),
                Tensor::from_vec(values, (*n, t, t), &Device::Cpu)?,
            ))
        })
        .collect::<Result<_>>()?;
    let mut normal = || StandardNormal.sample(&mut rng);
    let shape = block_shape(a);
    let bank = match plan.start {
        ScalerStart::Ramp => wave_learngene::ramp_scalers(
            &plan.templates,
            &shape,
            a.depth,
            SCALER_NOISE,
            &mut normal,
        )?,
        ScalerStart::Random => {
            wave_learngene::random_scalers(&plan.templates, &shape, a.depth, &mut normal)?
        }
        ScalerStart::Telg => wave_learngene::telg_scalers(&plan.templates, &shape, a.depth)?,
    };
    let mut outer =
        crate::init::fill(a, &wave_init::Options::new(wave_init::Method::Xavier), seed)?;
    outer = vit::stack(&outer, a.depth)?;
    for part in Part::ALL {
        outer.remove(&part.stacked_name());
    }
    let (templates, auxiliary) = (templates, a.clone());
    Ok(Learngene {
        plan: plan.templates.clone(),
        templates,
        bank,
        outer,
        auxiliary,
    })
}

/// All that a condensation trains, by name: `templates.SET`, `bank.PART` and the other weights.
pub fn values(gene: &Learngene) -> Vec<(String, Tensor)> {
    let templates = gene.templates.iter();
    let bank = gene.bank.iter();
    templates
        .map(|(set, t)| (format!("templates.{set}"), t.clone()))
        .chain(bank.map(|(part, t)| (format!("bank.{}", part.name()), t.clone())))
        .chain(gene.outer.iter().map(|(name, t)| (name.clone(), t.clone())))
        .collect()
}

/// The learngene as variables, with their learning rates.
fn variables(gene: &Learngene, settings: &Condense, resolved: &Resolved) -> Result<Vec<Variable>> {
    let template_ratio = settings.template_lr_ratio.unwrap_or(1.0) as f32;
    let scaler_ratio = settings.scaler_lr_ratio.unwrap_or(1.0) as f32;
    let variable = |(name, t): &(String, Tensor)| {
        let mut v = train::variable(name, t, resolved, gene.auxiliary.depth)?;
        v.rate = vec![1.0];
        if name.starts_with("templates.") {
            v.rate = vec![template_ratio];
            v.weight_decay = resolved.weight_decay;
        } else if name.starts_with("bank.") {
            v.rate = vec![scaler_ratio];
            v.weight_decay = 0.0;
        }
        Ok(v)
    };
    values(gene).iter().map(variable).collect()
}

/// The learngene that values by the names of [`values`] stand for.
pub fn with_values(gene: &Learngene, values: &Weights) -> Learngene {
    let get = |name: &str, old: &Tensor| values.get(name).unwrap_or(old).clone();
    Learngene {
        plan: gene.plan.clone(),
        auxiliary: gene.auxiliary.clone(),
        templates: gene
            .templates
            .iter()
            .map(|(set, t)| (set.clone(), get(&format!("templates.{set}"), t)))
            .collect(),
        bank: gene
            .bank
            .iter()
            .map(|(part, t)| (*part, get(&format!("bank.{}", part.name()), t)))
            .collect::<Scalers>(),
        outer: gene
            .outer
            .iter()
            .map(|(name, t)| (name.clone(), get(name, t)))
            .collect(),
    }
}

/// Accuracy of the model of a shape, made from the learngene alone.
pub fn score(gene: &Learngene, shape: &VitShape, data: &Data) -> Result<Scores> {
    let weights = gene.weights(shape)?;
    Ok(wave_train::evaluate(data.test_batches(), |x| {
        vit::logits(shape, &weights, x, None)
    })?)
}

/// A condensation, ready to run.
struct Task<'a> {
    label: String,
    settings: &'a Condense,
    resolved: &'a Resolved,
    plan: &'a CondensePlan,
    data: &'a Data,
    ancestor: Option<Arc<Ancestor>>,
    options: Options,
}

/// Trains the templates, from `gene` on.
fn distil(task: &Task, gene: &Learngene, run: &mut RunDir) -> Result<(Learngene, Outcome)> {
    let Task {
        settings,
        resolved,
        plan,
        data,
        ancestor,
        options,
        ..
    } = task;
    if let Some(ancestor) = ancestor {
        ancestor.check(data)?;
    }
    let variables = variables(gene, settings, resolved)?;
    let live = with_values(gene, &train::tracked(&variables));
    let kl_weight = settings.kl_weight.unwrap_or(1.0);
    let ce_weight = settings.ce_weight.unwrap_or(1.0);
    let temperature = settings.temperature.unwrap_or(1.0);
    let loss = |batch: &wave_data::Batch, images: &Tensor, step: u64| {
        let shape = plan.shape_of_step(resolved.seed, step);
        // Composed anew each step: yesterday's weights belong to yesterday's templates.
        let weights = live.weights(&shape)?;
        let scales = drop_path(shape.depth, batch.labels.len(), resolved, step);
        let logits = vit::logits_in(resolved.precision, &shape, &weights, images, scales)?;
        let targets = wave_train::batch_targets(batch, shape.classes, resolved.label_smoothing)?;
        let ce = (wave_ops::soft_cross_entropy(&logits, &targets)? * ce_weight)?;
        let Some(ancestor) = ancestor else {
            return Ok(ce);
        };
        let (views, verbosity) = (settings.training.views, options.verbosity);
        let seen = (batch, images);
        let kl = ancestor.divergence(&logits, seen, temperature, data, views, verbosity)?;
        ce + (kl * kl_weight)?
    };
    let largest = plan.shape(plan.depths.1, plan.auxiliary.width);
    let score = |values: &Weights| score(&with_values(gene, values), &largest, data);
    let job = Job {
        label: task.label.clone(),
        settings: resolved,
        data,
        variables: &variables,
        run: Some(run),
        resume: options.resume,
        verbosity: options.verbosity,
        every_epoch: true,
    };
    let outcome = train::train(job, loss, score)?;
    Ok((with_values(gene, &outcome.values), outcome))
}

/// Opens the data of a condensation.
pub fn open_data(settings: &Condense) -> Result<Data> {
    let image_size = settings.auxiliary.image_size.unwrap_or(224);
    Data::open(
        &settings.training,
        Input::Size {
            image_size,
            channels: None,
        },
    )
}

/// Condenses and writes a template directory. Returns what `--json` prints.
///
/// `recipe` is the recipe's name, for the card.
pub fn condense(
    recipe: &str,
    settings: &Condense,
    ancestors: &Ancestors,
    out: &Path,
    options: Options,
) -> Result<Value> {
    let ancestor = ancestors.get(settings.ancestor.as_deref())?;
    let factorises = match settings.method.as_deref().unwrap_or("distil") {
        "distil" => false,
        "factorise" => true,
        other => {
            return Err(request(format!(
                "method = {other}; expected distil or factorise"
            )));
        }
    };
    let training = &settings.training;
    if factorises && training.epochs.is_none() && training.steps.is_none() {
        return factorise::factorise(recipe, settings, ancestor, out, options);
    }
    let data = open_data(settings)?;
    let plan = CondensePlan::new(settings, data.transform.channels, data.class_names.len())?;
    let resolved = Resolved::new(training, DEFAULTS, &data)?;
    let mut run = match RunDir::open(out, &crate::recipe::to_table(settings)?, options.resume)? {
        Opened::Complete(result) => return Ok(result),
        Opened::Run(run) => run,
    };
    let began = Instant::now();
    let start = match factorises {
        true => factorise::start(&plan, ancestor.as_deref())?.0,
        false => start(&plan, resolved.seed)?,
    };
    let name = out.file_name().map(|n| n.to_string_lossy());
    let task = Task {
        label: format!("condense {}", name.unwrap_or_default()),
        settings,
        resolved: &resolved,
        plan: &plan,
        data: &data,
        ancestor,
        options,
    };
    let (gene, outcome) = distil(&task, &start, &mut run)?;
    let ancestor = task.ancestor.as_deref();
    let provenance = json!({
        "recipe": recipe,
        "version": env!("CARGO_PKG_VERSION"),
        "ancestor": ancestor.map(Ancestor::describe),
        "ancestor_sha256": ancestor.map(|a| &a.digest),
        "data": data.spec,
        "training_images": data.train_indices.len(),
        "seed": resolved.seed,
        "steps": resolved.steps,
        "epochs": resolved.steps as f64 / data.loader.steps_per_epoch() as f64,
        "depths": [plan.depths.0, plan.depths.1],
        "widths": plan.widths,
    });
    let about = About {
        transform: &data.transform,
        label_names: data.class_names.clone(),
        provenance,
        accuracies: accuracies(&gene, &plan, &data)?,
    };
    write(out, &gene, about)?;
    let result = json!({
        "out": out,
        "parameters": gene.ledger().iter().map(|(_, n)| n).sum::<usize>(),
        "top1": outcome.scores.map(|s| s.top1),
        "seconds": began.elapsed().as_secs_f64().round(),
    });
    run.complete(&result)?;
    Ok(result)
}

/// Writes the template directory, with its card.
fn write(out: &Path, gene: &Learngene, about: About) -> Result<()> {
    let card = card(gene, &about.accuracies, &about.provenance);
    elastic::write(out, gene, about, &card)
}

fn accuracies(gene: &Learngene, plan: &CondensePlan, data: &Data) -> Result<Vec<Accuracy>> {
    if data.test_indices.is_empty() {
        return Ok(Vec::new());
    }
    let (least, most) = plan.depths;
    let mut depths = vec![least, (least + most) / 2, most];
    depths.dedup();
    let mut all = Vec::new();
    for &width in &plan.widths {
        for &depth in &depths {
            let scores = score(gene, &plan.shape(depth, width), data)?;
            all.push(Accuracy {
                depth,
                width,
                top1: scores.top1,
                condition: "expanded without data".into(),
            });
        }
    }
    Ok(all)
}

fn card(gene: &Learngene, accuracies: &[Accuracy], provenance: &Value) -> String {
    let front = CardFront {
        license: Some("apache-2.0".into()),
        tags: vec![
            "image-classification".into(),
            "wave".into(),
            "learngene".into(),
        ],
        library_name: Some("wave".into()),
        pipeline_tag: Some("image-classification".into()),
        ..CardFront::default()
    };
    let a = &gene.auxiliary;
    let mut body = format!(
        "Weight templates for vision transformers of any depth and of any width that is a \
         multiple of {}. Make one with\n\n```sh\nwave expand DIR --depth 6 --width {} --steps \
         0\n```\n\n| parameters | |\n|---|---|\n",
        a.head_width(),
        a.width
    );
    for (name, n) in gene.ledger() {
        body += &format!("| {name} | {n} |\n");
    }
    body += "\n| depth | width | top-1, expanded without data |\n|---|---|---|\n";
    for accuracy in accuracies {
        let Accuracy {
            depth, width, top1, ..
        } = accuracy;
        body += &format!("| {depth} | {width} | {:.2} % |\n", 100.0 * top1);
    }
    body += &format!("\n```json\n{provenance:#}\n```\n");
    let title = format!(
        "Weight templates, {}",
        provenance["data"].as_str().unwrap_or("wave")
    );
    wave_hub::model_card(&front, &title, &body)
}

/// What `--dry-run` prints: sizes, parameters and work. Where the data is not at hand, its numbers
/// are those of ImageNet.
pub fn describe(settings: &Condense) -> Result<String> {
    let (images, channels, classes, data) = match crate::data::open(&settings.training) {
        Ok(dataset) => {
            let channels = crate::data::native(&dataset).map_or(3, |n| n.0);
            let classes = dataset.train.class_names().len();
            (dataset.train.len(), channels, classes, dataset.name)
        }
        Err(error) => {
            let why = format!("{error}; assuming ImageNet's numbers");
            (1_281_167, 3, 1000, why)
        }
    };
    let images = settings
        .training
        .train_limit
        .map_or(images, |n| n.min(images));
    let plan = CondensePlan::new(settings, channels, classes)?;
    let gene = start(&plan, 0)?;
    let a = &plan.auxiliary;
    let batch = settings.training.batch.unwrap_or(128);
    let per_epoch = (images / batch.max(1)).max(1);
    let steps = settings
        .training
        .duration(DEFAULTS.duration)?
        .steps(per_epoch);
    let counts = &plan.templates.counts;
    let t = plan.templates.template_size;
    let mut text = format!(
        "data: {data}\n{images} images, {classes} classes\nauxiliary: {} anchors, width {}, {} \
         heads, {} x {} pixels in patches of {}\n",
        a.depth, a.width, a.heads, a.image_size, a.image_size, a.patch
    );
    text += &format!(
        "depths {:?}, widths {:?}\ntemplates of {t} x {t}:",
        plan.depths, plan.widths
    );
    for (set, n) in counts {
        text += &format!(" {n} {set}");
    }
    text += &format!(" ({} in all)\n", counts.values().sum::<usize>());
    let ledger = gene.ledger();
    for (name, n) in &ledger {
        text += &format!("{name:12} {n:>12}\n");
    }
    text += &format!(
        "{:12} {:>12}\n",
        "transferred",
        ledger.iter().map(|(_, n)| n).sum::<usize>()
    );
    text += &format!(
        "{:12} {:>12}\n",
        "free twin",
        plan.shape(plan.depths.1, a.width).parameter_count()
    );
    // Forward and backward: three times the multiply-adds, two operations each.
    let flops = plan.mean_multiply_adds() * 6.0 * batch as f64 * steps as f64;
    text += &format!(
        "{steps} steps of {batch} images ({:.1} epochs), {:.3e} floating-point operations without \
         the ancestor's\n",
        steps as f64 / per_epoch as f64,
        flops
    );
    Ok(text)
}
