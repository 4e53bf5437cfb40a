//! Common properties of all models of a grid.

use anyhow::Result;
use serde_json::Value;
use wave_artefacts::model::{Model, Network};
use wave_data::Transform;
use wave_models::vit::VitShape;
use wave_models::{Weights, refuse};
use wave_run::context::Context;
use wave_run::recipe::Recipe;
use wave_run::settings::{Condense, Finetune, Outputs, ZeroShot};
use wave_stages::ancestor::Ancestors;
use wave_stages::condense;

/// Properties shared by all models of a grid: the auxiliary's shape except depth and width, the input, and the classes.
pub(super) struct Frame {
    pub(super) auxiliary: VitShape,
    pub(super) transform: Transform,
    pub(super) label_names: Vec<String>,
    /// Directory of the ancestor for condensation.
    pub(super) ancestor: Option<String>,
    /// The ancestor's class names, if it is a CLIP or SigLIP.
    pub(super) classes: ZeroShot,
    /// Directory where the ancestor's outputs are cached, if they are.
    pub(super) cache: Option<String>,
    /// Number of training images.
    pub(super) images: usize,
}

impl Frame {
    pub(super) fn new(
        recipe: &Recipe,
        cache: Option<&str>,
        ancestors: &Ancestors,
        context: &Context,
    ) -> Result<Frame> {
        let condense: Condense = recipe.stage("condense", None)?;
        let plan = condense::plans(&condense)?.remove(0);
        let name = plan.given.ancestor.as_deref();
        let ancestor = ancestors.get(name, &plan.given.zero_shot, context)?;
        let data = plan.open_data(ancestor.as_deref(), context)?;
        let plan = plan.on(data.transform.channels, data.class_names.len());
        Ok(Frame {
            auxiliary: plan.auxiliary,
            transform: data.transform,
            label_names: data.class_names,
            ancestor: plan.given.ancestor,
            classes: plan.given.zero_shot,
            cache: cache.map(str::to_owned),
            images: data.train_indices.len(),
        })
    }

    /// Makes a fine-tuning distil from the ancestor too.
    pub(super) fn distil(&self, settings: &mut Finetune) -> Result<()> {
        if self.ancestor.is_none() {
            refuse!(
                "distil = true, but there is no ancestor; add [ancestor], or `ancestor` to \
                 [condense]"
            );
        }
        settings.ancestor.clone_from(&self.ancestor);
        settings.zero_shot = self.classes.clone();
        self.keep_outputs(&mut settings.outputs);
        Ok(())
    }

    /// Makes a training cache the ancestor's outputs in the shared directory, unless it sets its own.
    pub(super) fn keep_outputs(&self, outputs: &mut Outputs) {
        outputs.cache = outputs.cache.take().or_else(|| self.cache.clone());
    }

    pub(super) fn shape(&self, depth: usize, width: usize) -> Result<VitShape> {
        let shape = self.auxiliary.with_size(depth, width);
        shape.validate()?;
        Ok(shape)
    }

    pub(super) fn model(&self, shape: VitShape, weights: Weights, provenance: Value) -> Model {
        Model {
            network: Network::Vit(shape),
            weights,
            // All methods use the normalisation of the condensation.
            transform: self.transform.clone(),
            label_names: self.label_names.clone(),
            provenance,
        }
    }
}
