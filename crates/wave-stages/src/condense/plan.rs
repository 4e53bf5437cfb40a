//! The plan of a condensation: sizes, templates and first scalers, checked against each other.

use super::defaults;
use crate::ancestor::{Ancestor, AncestorOutput};
use crate::cache::CachePlan;
use crate::elastic;
use crate::layout;
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use toml::Table;
use wave_hub::FloatType;
use wave_init::DirectMethod;
use wave_learngene::{DepthRule, Kronecker, Level, Objective, Part, Plan, Sizes};
use wave_models::default_patch;
use wave_models::vit::VitShape;
use wave_ops::Mode;
use wave_run::context::Context;
use wave_run::data::{Channels, DEFAULT_SIDE, Data, DataPlan, Input};
use wave_run::error::request;
use wave_run::forecast::{self, Memory};
use wave_run::recipe::to_table;
use wave_run::settings::{
    self, Condense, CondenseValues, Duration, ScalerStart, TemplateStart, Trained, ZeroShot,
};
use wave_run::train::{self, TrainingPlan};

/// Default share of the steps over which sizes grow.
const DEFAULT_GROWTH: f64 = 0.9;

/// The settings of a condensation, checked.
#[derive(Clone, Debug)]
pub struct CondensePlan {
    /// The settings, which a resumed run must repeat.
    pub table: Table,
    /// The frozen model to distil.
    pub ancestor: Option<String>,
    /// Names of its classes, where it is a CLIP or SigLIP.
    pub classes: ZeroShot,
    /// What it teaches by, if that is said.
    output: Option<AncestorOutput>,
    /// The auxiliary's largest shape; its depth is the number of anchors. Channels and classes are
    /// ImageNet's until [`CondensePlan::on`] sets those of the data.
    pub auxiliary: VitShape,
    /// Depths and widths to draw from.
    pub sizes: Sizes,
    /// The work of each of equal parts of the steps, as [`Sizes::work`] has it.
    pub(super) work: Vec<f64>,
    /// The objective.
    pub objective: Objective,
    /// Templates and parts.
    pub templates: Plan,
    /// First templates, and first values of the auxiliary's other weights.
    pub template_start: DirectMethod,
    /// First scalers.
    pub start: ScalerStart,
    /// Position of layers between the anchors.
    pub depth_rule: DepthRule,
    /// The values that the optimiser updates.
    pub train: Trained,
    /// Learning rate of the scalers over that of the rest.
    pub scaler_lr_ratio: f32,
    /// The cache of the ancestor's outputs, if they are kept.
    pub cache: Option<CachePlan>,
    /// Type of all stored values, which the measurements use too.
    pub float: FloatType,
    /// Data.
    pub data: DataPlan,
    /// Training.
    pub training: TrainingPlan,
}

/// Checks the settings alone: their ranges, and that each term of the objective has a target.
///
/// # Errors
/// If a number is out of its range, or a term of the objective lacks its target.
pub fn check(settings: &Condense) -> Result<()> {
    settings::check(settings)?;
    if settings.ancestor.is_none() && settings.kl_weight != Some(0.0) {
        return Err(request(
            "no ancestor to distil; give --ancestor A, or --kl-weight 0 to learn from the labels \
             alone",
        ));
    }
    if settings.ancestor.is_none() && settings.zero_shot.is_given() {
        return Err(request(
            "labels and prompt name the classes of an ancestor, and there is none; give --ancestor A, a \
             CLIP or SigLIP",
        ));
    }
    if settings.ce_weight == Some(0.0) && settings.kl_weight == Some(0.0) {
        return Err(request(
            "ce_weight = 0 and kl_weight = 0 leave nothing to learn; raise one of them",
        ));
    }
    if let (Some(output), None) = (settings.ancestor_output, &settings.ancestor) {
        return Err(request(format!(
            "ancestor_output = {output}, and there is no ancestor; give --ancestor A"
        )));
    }
    Ok(())
}

impl CondensePlan {
    /// The plan of these settings.
    ///
    /// # Errors
    /// If a value is out of its range, or settings contradict each other.
    pub fn new(settings: &Condense) -> Result<CondensePlan> {
        settings::check(settings)?;
        let own = CondenseValues::from(settings.clone());
        let auxiliary = auxiliary(&own)?;
        let sizes = sizes(&own, &auxiliary)?;
        let train = trained(&own, &sizes, &auxiliary)?;
        let muon = own.training.transformer.muon;
        let muon = muon.unwrap_or(train == Trained::Weights);
        let mut data = DataPlan::new(&settings.training)?;
        let work = sizes.work(&auxiliary);
        Ok(CondensePlan {
            work,
            table: to_table(settings)?,
            templates: template_plan(&own, sizes.widths[0])?,
            depth_rule: depth_rule(&own, &auxiliary)?,
            ancestor: own.ancestor,
            output: own.ancestor_output,
            classes: own.zero_shot,
            auxiliary,
            sizes,
            objective: Objective {
                ce_weight: own.ce_weight,
                kl_weight: own.kl_weight,
                temperature: own.temperature,
            },
            template_start: match own.template_start {
                TemplateStart::Mimetic => DirectMethod::Mimetic,
                TemplateStart::Xavier => DirectMethod::Xavier,
            },
            start: own.scaler_start,
            train,
            scaler_lr_ratio: own.scaler_lr_ratio.unwrap_or(1.0) as f32,
            cache: CachePlan::new(&settings.outputs, &mut data)?,
            float: layout::float(own.dtype.as_deref())?,
            data,
            training: TrainingPlan {
                muon,
                ..TrainingPlan::of_images(&settings.training, defaults(muon))?
            },
        })
    }

    /// As a growth of templates of this plan and for this auxiliary; `smaller` has levels. `given` says whether the
    /// numbers of templates are the settings', of all of them.
    ///
    /// # Errors
    /// If these are other templates, or the sizes or numbers are no larger.
    pub(super) fn grows(
        mut self,
        smaller: &Plan,
        auxiliary: &VitShape,
        given: bool,
    ) -> Result<CondensePlan> {
        let own = VitShape {
            channels: auxiliary.channels,
            classes: auxiliary.classes,
            ..self.auxiliary.clone()
        };
        if own != *auxiliary {
            return Err(request(format!(
                "grow: the templates were condensed with {}, and this is {}; leave out the keys of the auxiliary",
                words(auxiliary),
                words(&own)
            )));
        }
        let same = |p: &Plan| (p.template_size, p.kronecker, p.sets.clone());
        if same(&self.templates) != same(smaller) {
            return Err(request(format!(
                "grow: the templates are of {t} x {t}, in {} order; leave out template_size, kronecker and share_mlp",
                smaller.kronecker.name(),
                t = smaller.template_size
            )));
        }
        let (depth, width) = self.most();
        if !given {
            let added = Plan::default_budget(width, smaller.template_size)?;
            self.templates.counts = smaller.counts.clone();
            for (part, set) in &smaller.sets {
                *self.templates.counts.entry(set.clone()).or_default() += added.n_templates(*part);
            }
        }
        let level = Level {
            depth,
            width,
            counts: self.templates.counts.clone(),
        };
        let last = smaller.levels.last();
        if let Some(last) = last.filter(|last| last.holds(depth, width)) {
            return Err(request(format!(
                "grow: the templates make models of up to {} layers of width {} already; give larger --depths or \
                 --widths",
                last.depth, last.width
            )));
        }
        self.sizes.smaller = smaller.levels.iter().map(|l| (l.depth, l.width)).collect();
        self.work = self.sizes.work(&self.auxiliary);
        let levels = smaller.levels.iter().cloned().chain([level]).collect();
        self.templates = self.templates.with_levels(levels)?;
        Ok(self)
    }

    /// The plan of its templates, with what it condenses as a level.
    pub(super) fn leveled(&self) -> Plan {
        let (depth, width) = self.most();
        leveled(self.templates.clone(), depth, width)
    }

    /// With the channels and classes of the data.
    pub fn on(self, channels: usize, classes: usize) -> CondensePlan {
        CondensePlan {
            auxiliary: VitShape {
                channels,
                classes,
                ..self.auxiliary
            },
            ..self
        }
    }

    /// Sets an automatic batch to one that fits the auxiliary at its largest.
    ///
    /// # Errors
    /// If none fits.
    pub fn fit_batch(&mut self, earlier: Option<&Path>, context: &Context) -> Result<()> {
        // Before the data is read: channels and classes hardly matter here.
        let here = self.clone();
        let memory = |mode| here.memory(None, mode);
        let batch = forecast::fit_batch(&mut self.data, &self.training, memory, earlier, context)?;
        self.table.extend(batch);
        Ok(())
    }

    /// Opens the data of a condensation, with `ancestor` if it has one.
    ///
    /// # Errors
    /// If there is no such data, or it lacks labels that are needed.
    pub fn open_data(&self, ancestor: Option<&Ancestor>, context: &Context) -> Result<Data> {
        let input = Input::Size {
            image_size: self.auxiliary.image_size,
            channels: match ancestor {
                Some(ancestor) => Channels::Exactly(ancestor.transform.channels),
                None => Channels::Otherwise(3),
            },
        };
        match ancestor {
            Some(_) if self.output(ancestor) == AncestorOutput::Features => {
                self.check_features()?;
                Data::open_unlabelled(&self.data, input, &[], context)
            }
            Some(ancestor) if self.objective.ce_weight == 0.0 => {
                Data::open_unlabelled(&self.data, input, &ancestor.label_names, context)
            }
            _ => Data::open(&self.data, input, context),
        }
    }

    /// What the ancestor teaches by.
    pub fn output(&self, ancestor: Option<&Ancestor>) -> AncestorOutput {
        let usual = ancestor.map_or(AncestorOutput::Scores, Ancestor::usual_output);
        self.output.unwrap_or(usual)
    }

    /// Outputs of the auxiliary: classes, or the ancestor's features.
    pub fn outputs(&self, ancestor: Option<&Ancestor>, data: &Data) -> usize {
        match (self.output(ancestor), ancestor) {
            (AncestorOutput::Features, Some(ancestor)) => ancestor.width(AncestorOutput::Features),
            _ => data.class_names.len(),
        }
    }

    /// Refuses settings on class scores where the ancestor teaches by its features.
    fn check_features(&self) -> Result<()> {
        let other = |key: &str, than: f64| {
            let given = self.table.get(key).and_then(toml::Value::as_float);
            given.is_some_and(|value| value != than)
        };
        let scores = ["temperature", "cache_top", "label_smoothing"];
        let given = scores.into_iter().find(|key| self.table.contains_key(*key));
        let weight = [("ce_weight", 0.0), ("kl_weight", 1.0)];
        let weight = weight.into_iter().find(|(key, usual)| other(key, *usual));
        match given.or(weight.map(|(key, _)| key)) {
            None => Ok(()),
            Some(key) => Err(request(format!(
                "{key} applies only to score distillation, and the ancestor teaches by its features{}; \
                 leave it out",
                match self.output {
                    Some(_) => "",
                    None => ", since it has no classifier",
                }
            ))),
        }
    }

    /// The most layers and channels of a token that are trained.
    fn most(&self) -> (usize, usize) {
        let widest = self.sizes.widths.last();
        (
            self.sizes.depths.1,
            *widest.unwrap_or(&self.auxiliary.width),
        )
    }

    /// The work of its steps, in multiply-adds and the unit of its duration: epochs or steps.
    pub(super) fn work_in_all(&self) -> f64 {
        let length = match self.training.duration {
            Duration::Epochs(epochs) => epochs,
            Duration::Steps(steps) => steps as f64,
        };
        length * self.work.iter().sum::<f64>() / self.work.len().max(1) as f64
    }

    /// The largest shape that is trained.
    pub fn largest(&self) -> VitShape {
        let (depth, width) = self.most();
        self.auxiliary.with_size(depth, width)
    }

    /// Parameters of templates, scaler bank and the auxiliary's other weights, as counted by
    /// [`wave_learngene::Learngene::ledger`].
    pub fn ledger(&self) -> [(&'static str, usize); 3] {
        let a = &self.auxiliary;
        let composed = Part::ALL.map(|part| {
            let (rows, cols) = part.rows_cols(a);
            rows * cols
        });
        let composed = a.depth * composed.iter().sum::<usize>();
        [
            ("templates", self.templates.template_parameters()),
            ("scaler bank", self.templates.scaler_count(a, a.depth)),
            ("inherited", a.parameter_count() - composed),
        ]
    }

    /// Memory of training, with an ancestor if given.
    pub fn memory(&self, ancestor: Option<&Ancestor>, mode: Mode) -> Memory {
        let values = self.values_in_training();
        let costliest = self.sizes.costliest(&self.largest());
        let memory = Memory::of_composed(&costliest, mode, values);
        match ancestor {
            Some(ancestor) => memory.beside(&ancestor.network),
            None => memory,
        }
    }

    /// The number of values that a training holds: what is transferred and, where they train, the weights that templates
    /// compose at every anchor.
    pub fn values_in_training(&self) -> usize {
        let transferred: usize = self.ledger().iter().map(|(_, n)| n).sum();
        let widest = self
            .auxiliary
            .with_size(self.auxiliary.depth, self.most().1);
        let parameters = widest.stacked_parameters().into_iter();
        let composed = parameters.filter(|(name, _)| self.templates.composes(name));
        let sizes = composed.map(|(_, dims)| dims.iter().product::<usize>());
        match self.train {
            Trained::Factors => transferred,
            Trained::Weights => transferred + sizes.sum::<usize>(),
        }
    }

    /// The shape that a step trains.
    pub(super) fn shape_of_step(&self, seed: u64, step: u64, steps: u64) -> VitShape {
        let rng = &mut train::size_generator(seed, step);
        self.sizes.shape(&self.auxiliary, step, steps, rng)
    }

    /// Multiply-adds of the forward passes of one image in an average step.
    pub fn mean_multiply_adds(&self) -> f64 {
        self.sizes.mean_multiply_adds(&self.auxiliary)
    }
}

/// A plan with all its templates as one level of sizes, unless it has levels.
pub(super) fn leveled(mut plan: Plan, depth: usize, width: usize) -> Plan {
    if plan.levels.is_empty() {
        plan.levels.push(Level {
            depth,
            width,
            counts: plan.counts.clone(),
        });
    }
    plan
}

/// An auxiliary, for people.
fn words(shape: &VitShape) -> String {
    format!(
        "{} anchors, width {}, {} heads, an MLP of {} times the width, {} x {} pixels in patches of {}, and {}",
        shape.depth,
        shape.width,
        shape.heads,
        shape.mlp_ratio,
        shape.image_size,
        shape.image_size,
        shape.patch,
        if shape.class_token {
            "a class token"
        } else {
            "no class token"
        }
    )
}

/// The values that the optimiser updates: composed weights, or factors where a key is given that weights do not allow.
/// `sizes` are those of `auxiliary`.
fn trained(settings: &CondenseValues, sizes: &Sizes, auxiliary: &VitShape) -> Result<Trained> {
    let mut ratios = sizes.variants.mlp_ratios.iter();
    let ratio = ratios.find(|ratio| **ratio > auxiliary.mlp_ratio);
    let interleaved = settings.kronecker == "interleave";
    let wrong = match (settings.scaler_lr_ratio, ratio, interleaved) {
        (Some(_), ..) => "scaler_lr_ratio applies to scalers that train".to_owned(),
        (_, Some(ratio), _) => format!(
            "mlp_ratios: {ratio} is more than the auxiliary's {}",
            auxiliary.mlp_ratio
        ),
        (.., true) => {
            "kronecker = interleave: the weights of a smaller model are no part of a larger model's"
                .into()
        }
        _ => return Ok(settings.train.unwrap_or(Trained::Weights)),
    };
    match settings.train {
        Some(Trained::Weights) => Err(request(format!(
            "{wrong}, and here composed weights train; leave it out, or give --train factors"
        ))),
        _ => Ok(Trained::Factors),
    }
}

/// The auxiliary's largest shape, on images like ImageNet's.
fn auxiliary(settings: &CondenseValues) -> Result<VitShape> {
    let a = &settings.auxiliary;
    let head_width = a.head_width.unwrap_or(64);
    let width = a.width.unwrap_or(384);
    if head_width == 0 || !width.is_multiple_of(head_width) || width == 0 {
        return Err(request(format!(
            "auxiliary.width {width} is not a multiple of auxiliary.head_width {head_width}"
        )));
    }
    let image_size = a.image_size.unwrap_or(DEFAULT_SIDE);
    let auxiliary = VitShape {
        image_size,
        channels: 3,
        patch: a.patch.unwrap_or_else(|| default_patch(image_size, 16)),
        depth: settings.anchors.unwrap_or(depth(settings)),
        width,
        heads: width / head_width,
        mlp_ratio: a.mlp_ratio.unwrap_or(4.0),
        classes: 1000,
        class_token: a.class_token.unwrap_or(false),
        ..VitShape::default()
    };
    auxiliary.validate()?;
    Ok(auxiliary)
}

fn depth(settings: &CondenseValues) -> usize {
    settings.auxiliary.depth.unwrap_or(12)
}

/// The sizes to train, within the auxiliary's.
fn sizes(settings: &CondenseValues, auxiliary: &VitShape) -> Result<Sizes> {
    let depth = depth(settings);
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
    let (width, head_width) = (auxiliary.width, auxiliary.head_width());
    let widths = settings.widths.clone().unwrap_or_else(|| vec![width]);
    if widths.is_empty() {
        return Err(request("widths is empty; give at least one"));
    }
    let drawn = &settings.variants.head_widths;
    for w in &widths {
        let fits = |head: &usize| *head > 0 && w.is_multiple_of(*head);
        if *w == 0 || *w > width || !drawn.iter().chain([&head_width]).any(fits) {
            return Err(request(format!(
                "widths: {w} is not a multiple of the head width {head_width}, or of one of head_widths, \
                 up to the auxiliary's width {width}"
            )));
        }
    }
    let mut sizes = elastic::sizes(&settings.elastic, depths, widths, DEFAULT_GROWTH);
    sizes.variants = elastic::variants(&settings.variants, &sizes.widths, auxiliary)?;
    Ok(sizes)
}

/// Position of layers between the anchors: fixed scalers of TELG make TELG's layers at every depth.
fn depth_rule(settings: &CondenseValues, auxiliary: &VitShape) -> Result<DepthRule> {
    match (settings.scaler_start, settings.scaler_lr_ratio) {
        (ScalerStart::Telg, Some(0.0)) if auxiliary.depth < 2 => Err(request(format!(
            "anchors = {}: telg scalers that stay need two, a base and a base with its slope; set \
             anchors = 2",
            auxiliary.depth
        ))),
        (ScalerStart::Telg, Some(0.0)) => Ok(DepthRule::Tleg),
        _ => Ok(DepthRule::LastIsOne),
    }
}

/// The assignment of templates to parts; the default number is for width `reference`.
fn template_plan(settings: &CondenseValues, reference: usize) -> Result<Plan> {
    let t = settings.template_size.unwrap_or(reference);
    let order = &settings.kronecker;
    let kronecker = Kronecker::from_name(order).ok_or_else(|| {
        request(format!(
            "unknown Kronecker order {order:?}; expected tile or interleave"
        ))
    })?;
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
    if settings.share_mlp {
        let shared = by_set.remove("fc1").unwrap_or(0) + by_set.remove("fc2").unwrap_or(0);
        by_set.insert("mlp".into(), shared);
        sets.insert(Part::Fc1, "mlp".into());
        sets.insert(Part::Fc2, "mlp".into());
    }
    Ok(Plan::new(t, kronecker, sets, by_set)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave_run::settings::Auxiliary;

    #[test]
    fn what_is_trained_is_counted_before_it_is_made() {
        let settings = Condense {
            depths: Some(vec![2, 12]),
            widths: Some(vec![128, 64, 192]),
            template_size: Some(64),
            auxiliary: Auxiliary {
                depth: Some(12),
                width: Some(192),
                image_size: Some(28),
                patch: Some(7),
                ..Auxiliary::default()
            },
            ..Condense::default()
        };
        let plan = CondensePlan::new(&settings).unwrap().on(1, 10);
        let gene = crate::condense::start(&plan, 0).unwrap();
        assert_eq!(plan.ledger(), gene.ledger());
    }
}
