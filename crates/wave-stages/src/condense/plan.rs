//! The plan of a condensation: sizes, templates and initial scalers, checked against each other.

use super::defaults;
use crate::ancestor::{Ancestor, AncestorOutput};
use crate::cache;
use crate::elastic;
use anyhow::Result;
use std::collections::BTreeMap;
use wave_artefacts::{layout, zero_shot};
use wave_data::Transform;
use wave_hub::FloatType;
use wave_learngene::{DepthRule, Kronecker, Objective, Part, Plan, Sizes};
use wave_models::vit::VitShape;
use wave_models::{default_patch, refuse};
use wave_run::context::Context;
use wave_run::data::{DEFAULT_SIDE, Data, DataPlan, Input};
use wave_run::settings::{self, Condense, CondenseValues, ScalerStart, TemplateStart, Trained};
use wave_run::train::TrainingPlan;

/// The settings of a condensation, checked.
#[derive(Clone, Debug)]
pub struct CondensePlan {
    /// The settings with their defaults.
    pub given: CondenseValues,
    /// A given setting that applies to class scores only.
    of_scores: Option<&'static str>,
    /// The auxiliary's largest shape; its depth is the number of anchors. Channels and classes are
    /// ImageNet's until [`CondensePlan::on`] sets those of the data.
    pub auxiliary: VitShape,
    /// Depths and widths to sample from.
    pub(super) sizes: Sizes,
    /// The work of each of the equal parts of the steps, see [`Sizes::work`].
    pub(super) work: Vec<f64>,
    pub(super) objective: Objective,
    pub(super) templates: Plan,
    /// Position of layers between the anchors.
    pub(super) depth_rule: DepthRule,
    /// The values that the optimiser updates.
    pub(super) train: Trained,
    /// Element type of all stored values, also used for evaluation.
    pub(super) float: FloatType,
    /// The preprocessing of the templates to grow, whose models keep it.
    pub(super) transform: Option<Transform>,
    pub(super) data: DataPlan,
    pub(super) training: TrainingPlan,
}

/// Checks the settings on their own: their ranges, that each term of the objective has a target, and each key a use.
pub fn check(settings: &Condense) -> Result<()> {
    settings::check(settings)?;
    if settings.ancestor.is_none() && settings.kl_weight != Some(0.0) {
        refuse!(
            "no ancestor to distil; give --ancestor A, or --kl-weight 0 to learn from the labels \
             alone"
        );
    }
    zero_shot::check(&settings.zero_shot, settings.ancestor.as_deref())?;
    if let (Some(sizes), None) = (settings.sizes, settings.minutes) {
        refuse!(
            "sizes = {sizes} belongs to a plan for --minutes; give --minutes N, or replace sizes by \
             depths and widths"
        );
    }
    let starts = (settings.template_start, settings.scaler_start);
    if let (Some(TemplateStart::Ancestor), Some(scalers)) = starts {
        refuse!(
            "scaler_start = {scalers}, but template_start = ancestor begins with the scalers of the \
             ancestor's weights too; remove one of them"
        );
    }
    if settings.ce_weight == Some(0.0) && settings.kl_weight == Some(0.0) {
        refuse!("ce_weight = 0 and kl_weight = 0 leave nothing to learn; raise one of them");
    }
    let smoothing = settings.training.optimisation.label_smoothing;
    if let (Some(0.0), Some(smoothing)) = (settings.ce_weight, smoothing.filter(|x| *x > 0.0)) {
        refuse!(
            "label_smoothing = {smoothing}, but ce_weight = 0 leaves the labels unused; raise \
             ce_weight, or remove label_smoothing"
        );
    }
    let outputs_unused = settings.ancestor.is_some() && settings.kl_weight == Some(0.0);
    if let (true, Some(temperature)) = (outputs_unused, settings.temperature) {
        refuse!(
            "temperature = {temperature}, but kl_weight = 0 leaves the ancestor's outputs unused; \
             raise kl_weight, or remove temperature"
        );
    }
    let output = settings.ancestor_output.map(|output| output.to_string());
    let temperature = settings.temperature.map(|t| t.to_string());
    let mut of_ancestor = [("ancestor_output", output), ("temperature", temperature)].into_iter();
    let given = of_ancestor.find_map(|(key, value)| Some((key, value?)));
    match (given, &settings.ancestor) {
        (Some((key, value)), None) => {
            refuse!("{key} = {value}, but there is no ancestor; give --ancestor A, or remove {key}")
        }
        _ => Ok(()),
    }
}

impl CondensePlan {
    /// The plan of these settings.
    pub fn new(settings: &Condense) -> Result<CondensePlan> {
        settings::check(settings)?;
        let own = CondenseValues::from(settings.clone());
        let auxiliary = auxiliary(&own)?;
        let sizes = sizes(&own, &auxiliary)?;
        let train = trained(&own, &sizes, &auxiliary)?;
        let muon = own.training.transformer.muon;
        let muon = muon.unwrap_or(train == Trained::Weights);
        let mut data = DataPlan::new(&settings.training)?;
        cache::set_views(&settings.outputs, &mut data)?;
        Ok(CondensePlan {
            work: sizes.work(&auxiliary),
            templates: template_plan(&own, sizes.widths[0])?,
            depth_rule: depth_rule(&own, &auxiliary)?,
            of_scores: of_scores(settings),
            auxiliary,
            sizes,
            objective: Objective {
                ce_weight: own.ce_weight,
                kl_weight: own.kl_weight,
                temperature: own.temperature,
            },
            train,
            float: layout::float(own.dtype.as_deref())?,
            given: own,
            transform: None,
            data,
            training: TrainingPlan {
                muon,
                ..TrainingPlan::new(&settings.training, defaults(muon))?
            },
        })
    }

    /// With the channels and classes of the data.
    pub fn on(mut self, channels: usize, classes: usize) -> CondensePlan {
        self.auxiliary.channels = channels;
        self.auxiliary.classes = classes;
        self
    }

    /// Opens the data of a condensation, with `ancestor` if it has one.
    ///
    /// # Errors
    /// If there is no such data, or it lacks labels that are needed.
    pub fn open_data(&self, ancestor: Option<&Ancestor>, context: &Context) -> Result<Data> {
        let input = match &self.transform {
            Some(transform) => Input::Like(transform.clone()),
            None => Input::Size {
                image_size: self.auxiliary.image_size,
                channels: ancestor.map(|ancestor| ancestor.transform.channels),
            },
        };
        match ancestor {
            Some(_) if self.output(ancestor) == AncestorOutput::Features => match self.of_scores {
                None => Data::open_unlabelled(&self.data, input, &[], context),
                Some(key) => refuse!(
                    "{key} applies only to score distillation, but the ancestor teaches by its \
                     features{}; remove it",
                    match self.given.ancestor_output {
                        Some(_) => "",
                        None => ", since it has no classifier",
                    }
                ),
            },
            Some(ancestor) if self.objective.ce_weight == 0.0 => {
                Data::open_unlabelled(&self.data, input, &ancestor.label_names, context)
            }
            _ => Data::open(&self.data, input, context),
        }
    }

    /// Opens its data, checks that the ancestor fits, and sets the channels and classes of the data.
    pub(super) fn with_data(
        self,
        ancestor: Option<&Ancestor>,
        context: &Context,
    ) -> Result<(CondensePlan, Data)> {
        let data = self.open_data(ancestor, context)?;
        if let Some(ancestor) = ancestor {
            ancestor.check(&data, self.output(Some(ancestor)))?;
        }
        let classes = match (self.output(ancestor), ancestor) {
            (AncestorOutput::Features, Some(ancestor)) => ancestor.width(AncestorOutput::Features),
            _ => data.class_names.len(),
        };
        Ok((self.on(data.transform.channels, classes), data))
    }

    /// The ancestor, if steps learn from its outputs: with no weight on them, it may only be the start.
    pub(super) fn taught_by<'a>(&self, ancestor: Option<&'a Ancestor>) -> Option<&'a Ancestor> {
        ancestor.filter(|_| self.objective.kl_weight > 0.0)
    }

    pub(super) fn output(&self, ancestor: Option<&Ancestor>) -> AncestorOutput {
        let usual = ancestor.map_or(AncestorOutput::Scores, Ancestor::usual_output);
        self.given.ancestor_output.unwrap_or(usual)
    }
}

/// The values that the optimiser updates: composed weights, or factors if a setting rules out composed weights.
/// `sizes` are within those of `auxiliary`.
fn trained(settings: &CondenseValues, sizes: &Sizes, auxiliary: &VitShape) -> Result<Trained> {
    let (mut ratios, most) = (sizes.variants.mlp_ratios.iter(), auxiliary.mlp_ratio);
    let ratio = ratios.find(|ratio| **ratio > most);
    let interleaved = settings.kronecker == "interleave";
    let wrong = match (settings.scaler_lr_ratio, ratio, interleaved) {
        (Some(_), ..) => "scaler_lr_ratio applies to trained scalers".to_owned(),
        (_, Some(ratio), _) => format!("mlp_ratios: {ratio} is more than the auxiliary's {most}"),
        (.., true) => {
            "kronecker = interleave: a smaller model's weights are not a part of a larger model's"
                .into()
        }
        _ => return Ok(settings.train.unwrap_or(Trained::Weights)),
    };
    match settings.train {
        Some(Trained::Weights) => refuse!(
            "{wrong}, but composed weights are trained here; remove it, or give --train factors"
        ),
        _ => Ok(Trained::Factors),
    }
}

/// The auxiliary's largest shape, on images like ImageNet's.
fn auxiliary(settings: &CondenseValues) -> Result<VitShape> {
    let a = &settings.auxiliary;
    let head_width = a.head_width.unwrap_or(64);
    let width = a.width.unwrap_or(384);
    if head_width == 0 || !width.is_multiple_of(head_width) || width == 0 {
        refuse!("auxiliary.width {width} is not a multiple of auxiliary.head_width {head_width}");
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
    let given = settings.depths.clone();
    let depths = elastic::depths(&given.unwrap_or_else(|| vec![depth(settings)]))?;
    let (width, head_width) = (auxiliary.width, auxiliary.head_width());
    let widths = settings.widths.clone().unwrap_or_else(|| vec![width]);
    let drawn = &settings.variants.head_widths;
    for w in &widths {
        let fits = |head: &usize| w.is_multiple_of(*head);
        if *w == 0 || *w > width || !drawn.iter().chain([&head_width]).any(fits) {
            refuse!(
                "widths: {w}, expected a multiple of the head width {head_width}, or of one of \
                 head_widths, up to the auxiliary's width {width}"
            );
        }
    }
    let mut sizes = elastic::sizes(&settings.elastic, depths, widths, elastic::GROWTH)?;
    sizes.variants = elastic::variants(&settings.variants, &sizes, auxiliary)?;
    Ok(sizes)
}

/// Relative positions of layers between the anchors: with the fixed scalers of TELG, layers are TELG's at every depth.
fn depth_rule(settings: &CondenseValues, auxiliary: &VitShape) -> Result<DepthRule> {
    match (settings.scaler_start, settings.scaler_lr_ratio) {
        (ScalerStart::Telg, Some(0.0)) if auxiliary.depth < 2 => refuse!(
            "anchors = {}: fixed telg scalers need two, for the base and for base plus slope; set \
             anchors = 2",
            auxiliary.depth
        ),
        (ScalerStart::Telg, Some(0.0)) => Ok(DepthRule::Tleg),
        _ => Ok(DepthRule::LastIsOne),
    }
}

/// The assignment of templates to parts; the default number is for width `reference`.
fn template_plan(settings: &CondenseValues, reference: usize) -> Result<Plan> {
    let t = settings.template_size.unwrap_or(reference);
    let order = &settings.kronecker;
    let Some(kronecker) = Kronecker::from_name(order) else {
        refuse!("unknown Kronecker order {order:?}; expected tile or interleave");
    };
    let default = Plan::default_budget(reference, t);
    let counts = match settings.templates.as_deref() {
        None => Part::ALL.map(|part| default.n_templates(part)),
        Some(&[qkv, proj, fc1, fc2]) => [qkv, proj, fc1, fc2],
        Some(other) => {
            refuse!("templates = {other:?}; give four counts, for qkv, proj, fc1 and fc2")
        }
    };
    let mut sets = Plan::own_sets();
    if settings.share_mlp {
        sets.extend([Part::Fc1, Part::Fc2].map(|part| (part, "mlp".to_owned())));
    }
    let mut by_set: BTreeMap<String, usize> = BTreeMap::new();
    for (set, n) in sets.values().zip(counts) {
        *by_set.entry(set.clone()).or_default() += n;
    }
    Ok(Plan::new(t, kronecker, sets, by_set))
}

/// The first given setting that applies to class scores only and changes their use.
fn of_scores(settings: &Condense) -> Option<&'static str> {
    let optimisation = &settings.training.optimisation;
    let given = [
        ("temperature", settings.temperature.is_some()),
        ("cache_top", settings.outputs.cache_top.is_some()),
        ("label_smoothing", optimisation.label_smoothing.is_some()),
        ("ce_weight", settings.ce_weight.is_some_and(|x| x != 0.0)),
        ("kl_weight", settings.kl_weight.is_some_and(|x| x != 1.0)),
    ];
    let key = given.into_iter().find(|(_, given)| *given);
    key.map(|(key, _)| key)
}
