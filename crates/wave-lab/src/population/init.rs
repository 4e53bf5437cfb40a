//! `wave init --arch population`: many small networks in closed form.

use super::model::{PopulationModel, float};
use super::network::{Mixer, PopulationShape};
use super::settings::Init;
use super::start;
use super::{TRANSFORMERS, WHAT};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use toml::Table;
use wave_init::Cost;
use wave_run::context::Context;
use wave_run::inputs::Inputs;
use wave_run::recipe::{means_nothing, narrow};
use wave_stages::finetune::Options;
use wave_stages::init::{Begun, FrameSettings, frame, mlp_mean, size, write_start};

/// Default number of networks.
const NETWORKS: usize = 500;

/// Default side of a patch.
const PATCH: usize = 7;

/// Default side of a kernel.
const KERNEL: usize = 3;

/// Default number of heads.
const HEADS: usize = 2;

/// Default ratio of hidden channels to width, as in the thesis.
const EXPANSION: f64 = 2.0;

/// Initialises a population by `method` and writes it to `out`. Returns the output of `--json`.
///
/// # Errors
/// If settings are missing or wrong, or the work fails.
pub(super) fn init(method: &str, settings: &Table, out: &Path, options: &Options) -> Result<Value> {
    let settings = &narrow::<Init>(settings, WHAT)?;
    let model = new_model(method, settings, &options.context)?;
    let float = float(&settings.output)?;
    let summary = format!("Initialised with wave, method {method}; not trained.");
    let begun = Begun {
        method,
        parameters: model.parameters(),
        cost: Cost::default(),
    };
    let inputs = Inputs::new(&options.context).frame(&model.transform, &[]);
    write_start(begun, settings, out, options, inputs, || {
        model.write(out, float, &summary)
    })
}

/// The output of `--dry-run`.
///
/// # Errors
/// As [`init`].
pub(super) fn describe(method: &str, settings: &Table, context: &Context) -> Result<String> {
    let settings = &narrow::<Init>(settings, WHAT)?;
    let model = new_model(method, settings, context)?;
    float(&settings.output)?;
    let n = model.parameters();
    Ok(format!("{:#?}\n{n} parameters\n", model.shape))
}

fn new_model(method: &str, settings: &Init, context: &Context) -> Result<PopulationModel> {
    let (depth, width) = size(settings.depth, settings.width)?;
    let frame = frame(
        &FrameSettings {
            data: settings.data.clone(),
            image_size: settings.image_size,
            channels: settings.channels,
            classes: settings.classes,
            ..Default::default()
        },
        context,
    )?;
    let shape = PopulationShape {
        networks: settings.networks.unwrap_or(NETWORKS),
        image_size: frame.transform.image_size,
        channels: frame.transform.channels,
        patch: settings.patch.unwrap_or(PATCH),
        depth,
        width,
        mixer: mixer(settings)?,
        hidden: (width as f64 * settings.mlp_ratio.unwrap_or(EXPANSION)) as usize,
        classes: frame.label_names.len(),
    };
    let shift = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    let seed = settings.seed.unwrap_or(0);
    let weights = start::start(method, &shape, shift, seed)?;
    Ok(PopulationModel {
        shape,
        weights,
        transform: frame.transform,
        provenance: json!({
            "stage": "init",
            "version": env!("CARGO_PKG_VERSION"),
            "method": method,
            "mlp_mean": settings.mlp_mean,
            "data": settings.data,
            "seed": seed,
        }),
    })
}

/// Convolution or attention, by the architecture.
fn mixer(settings: &Init) -> Result<Mixer> {
    let transformers = settings.arch.as_deref() == Some(TRANSFORMERS);
    match (transformers, settings.kernel, settings.heads) {
        (true, Some(_), _) => Err(means_nothing("kernel", "a population of transformers")),
        (false, _, Some(_)) => Err(means_nothing("heads", "a population of ConvNeXts")),
        (true, None, heads) => Ok(Mixer::Attention {
            heads: heads.unwrap_or(HEADS),
        }),
        (false, kernel, None) => Ok(Mixer::Convolution {
            kernel: kernel.unwrap_or(KERNEL),
        }),
    }
}
