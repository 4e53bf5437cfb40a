//! Reading and writing template directories.

use crate::model::{Model, Network, decimal, task, unusual};
use crate::origin;
use crate::preprocessing;
use anyhow::{Context as _, Result};
use candle_core::Tensor;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use wave_data::Transform;
use wave_hub::{Accuracy, CardFront, CardResult, FloatType, LevelConfig, TemplateConfig, millions};
use wave_learngene::{DepthRule, Kronecker, Learngene, Level, Part, Plan, Scalers};
use wave_models::vit::{self, LAYER_NORM_EPS, VitShape};
use wave_models::{Weights, refuse};
use wave_run::context::Context;
use wave_run::error::{Error, request};

/// The tags of template sets on a hub.
pub const TAGS: [&str; 2] = ["wave", "learngene"];

/// Templates as named by a user.
pub struct Source {
    /// A directory, or a name on a hub.
    pub path: PathBuf,
    /// The name of the built-in set, if it is one.
    pub shipped: Option<&'static str>,
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Source {
        let shipped = None;
        Source { path, shipped }
    }
}

/// A template directory.
pub struct TemplateDir {
    /// The templates.
    pub learngene: Learngene,
    /// Its configuration.
    pub config: TemplateConfig,
    /// Preprocessing of images.
    pub transform: Transform,
    /// SHA-256 of the file of templates.
    pub digest: String,
}

impl TemplateDir {
    /// Preprocessing for a model of this shape.
    pub fn transform_of(&self, shape: &VitShape) -> Transform {
        Transform {
            image_size: shape.image_size,
            ..self.transform.clone()
        }
    }

    /// A model of this depth, at least 1, and of this width, a multiple of the head width, composed without data.
    pub fn expand(&self, depth: usize, width: usize) -> Result<Model, Error> {
        let shape = self.learngene.shape(depth, width, None);
        self.model(&shape.map_err(anyhow::Error::from)?)
    }

    /// The model of a shape, composed without data.
    pub fn model(&self, shape: &VitShape) -> Result<Model, Error> {
        let weights = self.learngene.weights(shape).map_err(anyhow::Error::from)?;
        Ok(Model {
            network: Network::Vit(shape.clone()),
            weights,
            transform: self.transform_of(shape),
            label_names: self.config.label_names.clone(),
            provenance: Value::Null,
        })
    }
}

/// The learngene as it would be read from a directory that stores values as `float`.
pub fn rounded(learngene: &Learngene, float: FloatType) -> Result<Learngene> {
    let tensors = learngene.tensors().into_iter().collect();
    let mut gene = learngene.with_tensors(&float.rounded(&tensors)?);
    for smaller in &mut gene.smaller {
        *smaller = rounded(smaller, float)?;
    }
    Ok(gene)
}

/// Reads a template directory, or `hf:OWNER/NAME` after a download.
pub fn fetch(name: &Path, context: &Context) -> Result<TemplateDir, Error> {
    read(&wave_run::locate::locate(name, context)?)
}

/// Reads a template directory; an error if its files do not fit together.
pub fn read(dir: &Path) -> Result<TemplateDir, Error> {
    Ok(read_directory(dir)?)
}

fn read_directory(dir: &Path) -> Result<TemplateDir> {
    let (config, weights) = wave_hub::read_templates(dir)?;
    let auxiliary = auxiliary(&config, &dir.join("config.json"))?;
    let kronecker = Kronecker::from_name(&config.kronecker).unwrap_or_default();
    let sets = Part::ALL
        .iter()
        .filter_map(|part| Some((*part, config.sets.get(part.name())?.clone())))
        .collect();
    let wide = |level: &&LevelConfig| level.width > auxiliary.width;
    if let Some(level) = config.levels.iter().find(wide) {
        refuse!(
            "{}: config.json has a level of width {}, but its auxiliary has width {}",
            dir.display(),
            level.width,
            auxiliary.width
        );
    }
    let levels = config.levels.iter().map(|level| Level {
        depth: level.depth,
        width: level.width,
        counts: level.counts.clone(),
    });
    let plan = Plan::new(config.template_size, kronecker, sets, config.counts.clone());
    let plan = plan
        .with_levels(levels.collect())
        .with_context(|| dir.join("config.json").display().to_string())?;
    let rule = config.depth_rule.as_deref();
    let depth_rule = rule.and_then(DepthRule::from_formula).unwrap_or_default();
    let mut smaller = Vec::new();
    let beside = plan.levels.len().saturating_sub(1);
    for (at, level) in plan.levels[..beside].iter().enumerate() {
        let narrow = auxiliary.with_size(auxiliary.depth, level.width);
        let (prefix, plan) = (format!("levels.{at}."), plan.of_level(level));
        smaller.push(read_level(
            dir, &weights, &prefix, plan, narrow, depth_rule,
        )?);
    }
    let learngene = Learngene {
        smaller,
        ..read_level(dir, &weights, "", plan, auxiliary, depth_rule)?
    };
    let file = "templates.safetensors";
    let digest = match wave_hub::check_digest(dir, file)? {
        Some(digest) => digest,
        None => wave_hub::sha256_file(&dir.join(file))?,
    };
    let steps = config.preprocessing();
    let transform = preprocessing::transform(&steps, dir, config.image_size)?;
    Ok(TemplateDir {
        learngene,
        config,
        transform,
        digest,
    })
}

/// The auxiliary's shape in the configuration that `file` holds.
fn auxiliary(config: &TemplateConfig, file: &Path) -> Result<VitShape> {
    let file = file.display().to_string();
    let said = |key: &str| config.auxiliary.get(key).filter(|value| !value.is_null());
    let wrong = |key: &str, expected: &str| {
        let found = said(key).map_or_else(|| "missing".to_owned(), Value::to_string);
        request(format!(
            "{file}: auxiliary.{key} is {found}, expected {expected}; correct the file"
        ))
    };
    let size = |key: &str| {
        let size = said(key).and_then(Value::as_u64).filter(|size| *size > 0);
        let size = size.and_then(|size| usize::try_from(size).ok());
        size.ok_or_else(|| wrong(key, "a whole number of at least 1"))
    };
    let number = |key: &str| {
        let number = said(key).and_then(Value::as_f64);
        number.ok_or_else(|| wrong(key, "a number"))
    };
    let flag = |key: &str| match said(key) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| wrong(key, "true or false")),
    };
    let shape = VitShape {
        image_size: config.image_size,
        channels: config.channels,
        patch: config.patch,
        depth: config.anchors,
        width: size("width")?,
        heads: size("heads")?,
        mlp_ratio: number("mlp_ratio")?,
        classes: config.classes,
        class_token: flag("class_token")?,
        distilled: flag("distilled")?,
        norm_eps: match said("norm_eps") {
            None => LAYER_NORM_EPS,
            Some(_) => number("norm_eps")?,
        },
    };
    shape.validate().with_context(|| file.clone())?;
    if said("depth").is_some_and(|depth| *depth != json!(shape.depth)) {
        let expected = format!("{} as in `anchors`", shape.depth);
        return Err(wrong("depth", &expected));
    }
    if config.head_width != shape.head_width() {
        refuse!(
            "{file}: head_width is {}, expected {}, the auxiliary's width over its heads; \
             correct the file",
            config.head_width,
            shape.head_width()
        );
    }
    Ok(shape)
}

/// The values of a level, whose names begin with `prefix`.
fn read_level(
    dir: &Path,
    weights: &Weights,
    prefix: &str,
    plan: Plan,
    auxiliary: VitShape,
    depth_rule: DepthRule,
) -> Result<Learngene> {
    // The reader of the directory has checked that they are there.
    let get = |name: String| &weights[&format!("{prefix}{name}")];
    let sets = plan.counts.keys();
    let templates = sets.map(|set| (set.clone(), get(format!("templates.{set}")).clone()));
    let templates = templates.collect();
    let anchors = auxiliary.depth;
    let mut bank = Scalers::new();
    for part in Part::ALL {
        let of_anchors: Vec<&Tensor> = (0..anchors)
            .map(|k| get(format!("bank.{k}.{}", part.name())))
            .collect();
        let scalers = Tensor::stack(&of_anchors, 0)?;
        let expected = plan.scaler_shape(part, &auxiliary);
        let found = &scalers.dims()[1..];
        if *found != expected {
            refuse!(
                "the {prefix}bank of {} has scalers {found:?}, expected {expected:?} for width {}; \
                 the files in {} do not belong together",
                part.name(),
                auxiliary.width,
                dir.display()
            );
        }
        bank.insert(part, scalers);
    }
    let prefix = format!("{prefix}auxiliary.");
    let own = weights.iter();
    let own = own.filter_map(|(name, t)| Some((name.strip_prefix(&prefix)?, t)));
    let inherited: Weights = own.map(|(name, t)| (name.to_owned(), t.clone())).collect();
    vit::check_weights(&inherited, &plan.inherited_parameters(&auxiliary))
        .with_context(|| dir.join("templates.safetensors").display().to_string())?;
    Ok(Learngene {
        inherited: vit::stack(&inherited, anchors)?,
        plan,
        templates,
        bank,
        auxiliary,
        depth_rule,
        smaller: Vec::new(),
    })
}

/// The configuration of a template directory, without accuracies.
pub fn config(
    learngene: &Learngene,
    transform: &Transform,
    label_names: Vec<String>,
    provenance: Value,
) -> TemplateConfig {
    let (a, plan, t) = (&learngene.auxiliary, &learngene.plan, transform);
    let auxiliary = json!({
        "depth": a.depth,
        "width": a.width,
        "heads": a.heads,
        "mlp_ratio": a.mlp_ratio,
        "class_token": a.class_token,
        "distilled": a.distilled,
        "norm_eps": a.norm_eps,
    });
    let sets = plan.sets.iter();
    let levels = plan.levels.iter().map(|level| LevelConfig {
        depth: level.depth,
        width: level.width,
        counts: level.counts.clone(),
    });
    TemplateConfig {
        format_version: wave_hub::FORMAT_VERSION,
        kronecker: plan.kronecker.name().to_string(),
        template_size: plan.template_size,
        counts: plan.counts.clone(),
        sets: sets
            .map(|(p, s)| (p.name().to_string(), s.clone()))
            .collect(),
        levels: levels.collect(),
        anchors: a.depth,
        depth_rule: unusual(&learngene.depth_rule),
        auxiliary: auxiliary.as_object().cloned().unwrap_or_default(),
        head_width: a.head_width(),
        patch: a.patch,
        image_size: a.image_size,
        channels: a.channels,
        classes: a.classes,
        label_names,
        mean: t.mean.iter().map(|v| decimal(*v)).collect(),
        std: t.std.iter().map(|v| decimal(*v)).collect(),
        crop_pct: decimal(t.crop_pct),
        interpolation: unusual(&t.interpolation),
        crop_mode: unusual(&t.crop_mode),
        crop_offset: unusual(&t.crop_offset),
        provenance,
        accuracies: Vec::new(),
        shapes: Vec::new(),
    }
}

/// Writes a template directory, all values as `float`; an error if a value is out of the range of `float`.
pub fn write(
    dir: &Path,
    learngene: &Learngene,
    float: FloatType,
    config: &TemplateConfig,
    card: &str,
) -> Result<()> {
    let mut weights = stored(learngene.tensors())?;
    for (at, smaller) in learngene.smaller.iter().enumerate() {
        let own = stored(smaller.tensors())?.into_iter();
        weights.extend(own.map(|(name, t)| (format!("levels.{at}.{name}"), t)));
    }
    wave_hub::write_templates(dir, config, &weights, float, card)?;
    Ok(())
}

/// The tensors of [`Learngene::tensors`] as they are in a file: scalers one by one, other weights layer by layer.
pub(crate) fn stored(tensors: impl IntoIterator<Item = (String, Tensor)>) -> Result<Weights> {
    let mut stored = Weights::new();
    let mut inherited = Weights::new();
    for (name, t) in tensors {
        match name.split_once('.') {
            Some(("bank", part)) => {
                for a in 0..t.dim(0)? {
                    stored.insert(format!("bank.{a}.{part}"), t.get(a)?);
                }
            }
            Some(("templates", _)) => _ = stored.insert(name, t),
            _ => _ = inherited.insert(name, t),
        }
    }
    let inherited = vit::unstack(&inherited)?.into_iter();
    stored.extend(inherited.map(|(name, t)| (format!("auxiliary.{name}"), t)));
    Ok(stored)
}

/// The card for templates, or for a delta, with these accuracies as results; its provenance comes last.
pub fn card(
    learngene: &Learngene,
    accuracies: &[Accuracy],
    provenance: &Value,
    title: &str,
    body: &str,
) -> String {
    let task = task(learngene.auxiliary.classes);
    let result = |a: &Accuracy| CardResult {
        dataset: origin::dataset(provenance),
        name: format!("top-1 at {} x {}, {}", a.depth, a.width, a.condition),
        accuracy: a.top1,
    };
    let front = CardFront {
        tags: [task].into_iter().chain(TAGS).map(str::to_owned).collect(),
        library_name: Some("wave".into()),
        pipeline_tag: Some(task.into()),
        results: accuracies.iter().map(result).collect(),
        ..CardFront::default()
    };
    let body = format!(
        "{body}\n<details>\n<summary>Provenance</summary>\n\n```json\n{provenance:#}\n```\n\n</details>\n"
    );
    origin::card(front, provenance, title, &body)
}

/// Measured accuracies as a table for a card, with the cost of each size.
pub fn card_accuracies(learngene: &Learngene, accuracies: &[Accuracy], condition: &str) -> String {
    if accuracies.is_empty() {
        return String::new();
    }
    let mut table = format!(
        "\n| depth | width | parameters | multiply-adds | top-1, {condition} |\n|---|---|---|---|---|\n"
    );
    for a in accuracies {
        let shape = learngene.auxiliary.with_size(a.depth, a.width);
        let (parameters, work) = (shape.parameter_count(), shape.multiply_adds());
        let costs = format!("{} | {}", millions(parameters), millions(work));
        let top1 = 100.0 * a.top1;
        table += &format!("| {} | {} | {costs} | {top1:.2} % |\n", a.depth, a.width);
    }
    table
}

/// The sections of a card about templates with this configuration: their limits, and their use.
pub fn card_use(learngene: &Learngene, config: &TemplateConfig) -> String {
    let a = &learngene.auxiliary;
    let condensed = |key: &str, own: usize, between: &str| {
        let sizes: Vec<String> = config.sampled(key).iter().map(f64::to_string).collect();
        match sizes.is_empty() {
            true => own.to_string(),
            false => sizes.join(between),
        }
    };
    let depths = condensed("depths", a.depth, " to ");
    let widths = condensed("widths", a.width, ", ");
    let mut text = format!(
        "\n## Limits\n\n\
         - Condensed for depth {depths} and width {widths}. No accuracy is known at other sizes; \
         a wider model repeats blocks, and is more accurate only after fine-tuning.\n\
         - Images of {s} x {s} pixels. Every image is assigned one of the classes, even if it shows \
         none of them.\n",
        s = a.image_size
    );
    text += &wave_hub::card_interface(&config.label_names, a.classes, &config.preprocessing());
    text += &format!(
        "\n## From an image to a class\n\n\
         A model of 6 layers of width {w}:\n\n```sh\nwave expand DIR --depth 6 --width {w} --out model\n```\n\n\
         or without wave, with numpy alone:\n\n```sh\npip install numpy safetensors timm\n\
         python DIR/expand.py 6 {w} model\n```\n",
        w = a.width
    );
    text + &wave_hub::card_timm(
        "local-dir:model",
        a.channels,
        a.classes,
        !config.label_names.is_empty(),
    )
}
