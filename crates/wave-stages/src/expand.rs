//! `wave expand`: a transformer of any depth and width from a template directory
//! (WAVE, section 3.3).
//!
//! Scalers start from the bank, or at random; a few hundred steps may fit them, and the head, on a
//! little data while the templates stay as they are. The weights are composed at the end, and
//! from then on the model is an ordinary one. Without steps no data is needed.

use crate::budget;
use crate::finetune::{self, Options, drop_path};
use crate::model::{Model, Network};
use crate::origin;
use crate::templates::TemplateDir;
use anyhow::Result;
use candle_core::Tensor;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use serde_json::{Value, json};
use std::path::Path;
use wave_init::DirectMethod;
use wave_learngene::{Learngene, Part, Scalers};
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_run::data::{self, Data};
use wave_run::device::{device, place};
use wave_run::error::request;
use wave_run::inputs::Inputs;
use wave_run::paths;
use wave_run::progress;
use wave_run::ranks;
use wave_run::run_dir::{Opened, RunDir};
use wave_run::settings::{Duration, Expand};
use wave_run::train::{self, Defaults, Job, Resolved};
use wave_train::{Scores, Variable};

mod plan;

use plan::Plan;
pub use plan::{describe, shape, sized};

/// What fitting scalers does where the settings are silent.
pub const DEFAULTS: Defaults = Defaults {
    duration: Duration::Steps(300),
    lr: 1e-2,
    weight_decay: 0.0,
};

/// Learning rate of the head over that of the scalers.
const HEAD_RATIO: f32 = 0.1;

/// An expanded model and what it was made of.
pub struct Expanded {
    /// The model.
    pub model: Model,
    /// Its scalers, as they go to disk.
    pub scalers: Weights,
    /// Parameters by origin.
    pub ledger: Vec<(&'static str, usize)>,
    /// Accuracy, where there was data.
    pub scores: Option<Scores>,
}

/// Expands a template directory and writes a model directory. Returns what `--json` prints.
pub fn expand(dir: &Path, settings: &Expand, out: &Path, options: Options) -> Result<Value> {
    let source = dir;
    let dir = &wave_run::locate::locate(dir)?;
    let plan = Plan::read(dir, settings, out, options.repeats(out))?;
    plan.check()?;
    let sizes = plan.sizes();
    if !sizes.is_empty() {
        progress::say(options.verbosity, sizes.trim_end());
    }
    let expected = plan.expected();
    let Plan {
        templates,
        settings,
        candidates,
        shape,
        layout,
        data,
        ..
    } = plan;
    let settings = &settings;
    let mut inputs = Inputs::default().artefact("templates", dir)?;
    if let Some(data) = &data {
        inputs = inputs.images(settings.training.data.as_deref(), data);
        data.tell_classes(&templates.config.label_names);
    }
    let table = wave_run::recipe::to_table(settings)?;
    let mut run = match RunDir::open(out, &table, &inputs, options)? {
        Opened::Complete(result) => return Ok(result),
        Opened::Run(run) => run,
    };
    let expanded = make(
        &templates,
        settings,
        &shape,
        data.as_ref(),
        Some(&mut run),
        options,
        "expand",
    )?;
    let Expanded {
        mut model,
        scalers,
        ledger,
        scores,
    } = expanded;
    let scores = match &data {
        Some(data) => finetune::stored_scores(&model, layout.float, data, scores)?,
        None => scores,
    };
    let digest = wave_hub::sha256_file(&dir.join("templates.safetensors"))?;
    model.provenance = json!({
        "stage": "expand",
        "version": env!("CARGO_PKG_VERSION"),
        "templates_sha256": digest,
        "origin": origin::of(source, &templates.config.provenance),
        "data": settings.training.data,
        "seed": settings.training.seed.unwrap_or(0),
        "parameters": ledger.iter().map(|(k, n)| (k.to_string(), json!(n))).collect::<serde_json::Map<_, _>>(),
    });
    let mut summary =
        "Expanded from weight templates with wave.\n\n| parameters | |\n|---|---|\n".to_string();
    for (name, n) in &ledger {
        summary += &format!("| {name} | {n} |\n");
    }
    let mut result = json!({
        "out": paths::text(out),
        "parameters": model.parameters(),
        "top1": scores.map(|s| s.top1),
        "ledger": ledger.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    });
    if let Some((top1, from)) = expected {
        result["expected_top1"] = json!(top1);
        result["expected_from"] = json!(from);
    }
    if let Some(candidates) = &candidates {
        result["sizes"] = budget::json(candidates);
    }
    if let Some(data) = &data {
        data::count_broken(&mut result, data.tell_broken());
    }
    ranks::on_first(|| {
        run.complete(&result, || {
            model.write(out, layout, Some(&scalers), &summary)
        })
    })?;
    Ok(result)
}

/// Makes a model: scalers from the bank or at random, fitted if `data` and the settings say so.
pub fn make(
    templates: &TemplateDir,
    settings: &Expand,
    shape: &VitShape,
    data: Option<&Data>,
    run: Option<&mut RunDir>,
    options: Options,
    label: &str,
) -> Result<Expanded> {
    let gene = &templates.learngene;
    let seed = settings.training.seed.unwrap_or(0);
    let mut shape = shape.clone();
    let mut label_names = templates.config.label_names.clone();
    let mut scalers = first_scalers(gene, settings, &shape, seed)?;
    let mut inherited = gene.inherited(&shape)?;
    fill_blocks(&mut inherited, settings, &shape, seed)?;
    if let Some(data) = data
        && data.class_names.len() != shape.classes
    {
        // Other classes: a new head, at zero, to be fitted with the scalers.
        shape.classes = data.class_names.len();
        label_names = data.class_names.clone();
        let (dtype, device) = (candle_core::DType::F32, candle_core::Device::Cpu);
        let (classes, width) = (shape.classes, shape.width);
        inherited.insert(
            "head.weight".into(),
            Tensor::zeros((classes, width), dtype, &device)?,
        );
        inherited.insert("head.bias".into(), Tensor::zeros(classes, dtype, &device)?);
    }
    let mut scores = None;
    if let Some(data) = data {
        let resolved = Resolved::new(&settings.training, DEFAULTS, data)?;
        let fitted = fit(
            gene, &shape, scalers, inherited, data, &resolved, run, options, label,
        )?;
        (scalers, inherited, scores) = fitted;
    }
    let weights = vit::unstack(&gene.assemble(&scalers, &inherited, &shape)?)?;
    let mut saved = Weights::new();
    for (part, s) in &scalers {
        for l in 0..s.dim(0)? {
            saved.insert(
                format!("scalers.{l}.{}", part.name()),
                s.get(l)?.contiguous()?,
            );
        }
    }
    let sum = |w: &Weights| w.values().map(Tensor::elem_count).sum::<usize>();
    let ledger = vec![
        ("templates", gene.plan.template_parameters()),
        ("scalers", sum(&saved)),
        ("inherited", sum(&inherited)),
        ("composed", sum(&weights) - sum(&inherited)),
    ];
    let model = Model {
        transform: templates.transform_of(&shape),
        network: Network::Vit(shape),
        weights,
        label_names,
        provenance: Value::Null,
    };
    Ok(Expanded {
        model,
        scalers: saved,
        ledger,
        scores,
    })
}

fn first_scalers(
    gene: &Learngene,
    settings: &Expand,
    shape: &VitShape,
    seed: u64,
) -> Result<Scalers> {
    match settings.scalers.as_deref().unwrap_or("bank") {
        "bank" => Ok(gene.scalers(shape)?),
        "random" => {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut normal = || StandardNormal.sample(&mut rng);
            Ok(wave_learngene::random_scalers(
                &gene.plan,
                shape,
                shape.depth,
                &mut normal,
            )?)
        }
        other => Err(request(format!(
            "scalers = {other}; expected bank or random"
        ))),
    }
}

/// Replaces the norms and biases of the blocks, if they are not to be inherited.
fn fill_blocks(
    inherited: &mut Weights,
    settings: &Expand,
    shape: &VitShape,
    seed: u64,
) -> Result<()> {
    let method = match settings.fill.as_deref().unwrap_or("inherit") {
        "inherit" => return Ok(()),
        "mimetic" => DirectMethod::Mimetic,
        "timm" => DirectMethod::Timm,
        other => {
            return Err(request(format!(
                "fill = {other}; expected inherit, mimetic or timm"
            )));
        }
    };
    let fresh = crate::init::fill(shape, &wave_init::DirectOptions::new(method), seed)?;
    for (name, t) in vit::stack(&fresh, shape.depth)? {
        if name.starts_with("blocks.") && inherited.contains_key(&name) {
            inherited.insert(name, t);
        }
    }
    Ok(())
}

/// Fits scalers and head; the templates have no part in it but to be read.
fn fit(
    gene: &Learngene,
    shape: &VitShape,
    scalers: Scalers,
    inherited: Weights,
    data: &Data,
    resolved: &Resolved,
    run: Option<&mut RunDir>,
    options: Options,
    label: &str,
) -> Result<(Scalers, Weights, Option<Scores>)> {
    let mut variables: Vec<Variable> = Vec::new();
    for (part, s) in &scalers {
        let mut v = train::variable(&format!("scalers.{}", part.name()), s, resolved, 0)?;
        v.weight_decay = 0.0;
        variables.push(v);
    }
    for name in ["head.weight", "head.bias"] {
        let mut v = train::variable(name, &inherited[name], resolved, 0)?;
        v.rate = vec![HEAD_RATIO];
        variables.push(v);
    }
    let parts = |values: &Weights, inherited: &Weights| -> (Scalers, Weights) {
        let scalers = Part::ALL
            .iter()
            .map(|part| (*part, values[&format!("scalers.{}", part.name())].clone()))
            .collect();
        let mut rest = inherited.clone();
        for name in ["head.weight", "head.bias"] {
            rest.insert(name.into(), values[name].clone());
        }
        (scalers, rest)
    };
    let (gene, placed) = (gene.to_device(device())?, place(&inherited)?);
    let assemble = |values: &Weights| {
        let (scalers, rest) = parts(values, &placed);
        gene.assemble(&scalers, &rest, shape)
    };
    let live = train::tracked(&variables);
    let loss = |batch: &wave_data::Batch, images: &Tensor, part: &wave_train::Part| {
        let weights = assemble(&live)?;
        let scales = drop_path(shape.depth, part, resolved);
        let logits = vit::logits_in(resolved.mode, shape, &weights, images, scales)?;
        let targets = wave_train::batch_targets(batch, shape.classes, resolved.label_smoothing)?;
        wave_ops::soft_cross_entropy(&logits, &targets)
    };
    let score = |values: &Weights| {
        finetune::score(
            &Network::Vit(shape.clone()),
            &assemble(values)?,
            &data.tests,
        )
    };
    let job = Job {
        label: label.to_string(),
        settings: resolved,
        data,
        variables: &variables,
        run,
        resume: options.resume,
        verbosity: options.verbosity,
        every_epoch: false,
    };
    let outcome = train::train(job, loss, score)?;
    let (scalers, rest) = parts(&outcome.values, &inherited);
    Ok((scalers, rest, outcome.scores))
}
