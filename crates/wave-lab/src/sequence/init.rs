//! `wave init --arch mamba2`: a sequence model in closed form.

use super::WHAT;
use super::model::{SequenceModel, float};
use super::network::{Mixer, SequenceShape};
use super::settings::Init;
use crate::sequence::start::{self, Donor, SequenceChoices};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use toml::Table;
use wave_data::Tokenizer;
use wave_data::task::Task;
use wave_init::Cost;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::inputs::Inputs;
use wave_run::recipe::narrow;
use wave_stages::finetune::Options;
use wave_stages::init::{self, Begun};

/// The architecture with layers of two kinds.
const TRANSFORMER: &str = "transformer";

/// The architectures of sequence networks: one for each mixer, and the transformer.
pub(super) fn architectures() -> Vec<&'static str> {
    let alone = Mixer::ALL.iter().filter(|(_, mixer)| *mixer != Mixer::Mlp);
    alone.map(|(name, _)| *name).chain([TRANSFORMER]).collect()
}

/// Initialises a sequence model by `method` and writes it to `out`. Returns the output of `--json`.
///
/// # Errors
/// If settings are missing or wrong, or the work fails.
pub(super) fn init(method: &str, settings: &Table, out: &Path, options: &Options) -> Result<Value> {
    let settings = &narrow::<Init>(settings, WHAT)?;
    let donor = donor(settings, &options.context)?;
    let model = new_model(method, settings, donor.as_ref())?;
    let float = float(&settings.output)?;
    let summary = format!("Initialised with wave, method {method}; not trained.");
    let taken = match &donor {
        Some((trained, layer)) => trained.layer_parameters(*layer),
        None => 0,
    };
    let begun = Begun {
        method,
        parameters: model.parameters(),
        cost: Cost {
            transferred: taken,
            stored: taken,
            ..Cost::default()
        },
    };
    let mut inputs = Inputs::new(&options.context).known("shape", format!("{:?}", model.shape));
    if let Some(tokenizer) = &model.tokenizer {
        let digest = wave_hub::sha256_hex(tokenizer.json());
        inputs = inputs.known("tokenizer", format!("digest {digest}"));
    }
    init::write_start(begun, settings, out, options, inputs, || {
        model.write(out, float, &summary)
    })
}

/// The output of `--dry-run`.
///
/// # Errors
/// As [`init()`].
pub(super) fn describe(method: &str, settings: &Table, context: &Context) -> Result<String> {
    let settings = &narrow::<Init>(settings, WHAT)?;
    let donor = donor(settings, context)?;
    let model = new_model(method, settings, donor.as_ref())?;
    float(&settings.output)?;
    let n = model.parameters();
    Ok(format!("{:#?}\n{n} parameters\n", model.shape))
}

/// The trained network of `--from`, and its layer of `--donor-layer`.
fn donor(settings: &Init, context: &Context) -> Result<Option<(SequenceModel, usize)>> {
    match (&settings.from, settings.own.donor_layer) {
        (None, None) => Ok(None),
        (Some(from), Some(layer)) => {
            let trained = SequenceModel::read(Path::new(from), context)?;
            Ok(Some((trained, layer)))
        }
        (Some(_), None) => Err(request("no donor_layer; give --donor-layer N with --from")),
        (None, Some(_)) => Err(request("no from; give --from DIR with --donor-layer")),
    }
}

fn new_model(
    method: &str,
    settings: &Init,
    donor: Option<&(SequenceModel, usize)>,
) -> Result<SequenceModel> {
    let Some(spec) = &settings.data else {
        return Err(request(
            "no task; give --data copy, stack, recall or sort, with sizes: copy:length=16,symbols=16, or \
             text:FILE",
        ));
    };
    let tokenizer = match &settings.own.tokenizer {
        Some(file) => Some(Arc::new(Tokenizer::read(Path::new(file))?)),
        None => None,
    };
    let task = Task::read(spec, tokenizer.as_ref())?;
    if let (Some(tokenizer), None) = (&tokenizer, task.text()) {
        return Err(request(format!(
            "--tokenizer {}: {task} has tokens of its own; leave it out, or give --data text:FILE",
            tokenizer.path()
        )));
    }
    let shape = shape(settings, &task)?;
    let choices = choices(settings)?;
    let seed = settings.seed.unwrap_or(0);
    let donor = donor.map(|(trained, layer)| Donor {
        shape: &trained.shape,
        weights: &trained.weights,
        layer: *layer,
    });
    let weights = start::start(method, &shape, &choices, donor, seed)?;
    let mut model = SequenceModel {
        shape,
        weights,
        provenance: json!({
            "stage": "init",
            "version": env!("CARGO_PKG_VERSION"),
            "method": method,
            "data": task.to_string(),
            "seed": seed,
        }),
        tokenizer,
    };
    model.know(&task);
    Ok(model)
}

fn shape(settings: &Init, task: &Task) -> Result<SequenceShape> {
    let given = |name: &str, value: Option<usize>| match value {
        Some(n @ 1..=65536) => Ok(n),
        Some(n) => Err(request(format!("{name} = {n}; expected 1 to 65536"))),
        None => Err(request(format!("no {name}; give --{name} N"))),
    };
    let depth = given("depth", settings.depth)?;
    let width = given("width", settings.width)?;
    let arch = settings.arch.as_deref().unwrap_or_default();
    let mut shape = match Mixer::find(arch) {
        _ if arch == TRANSFORMER => SequenceShape::transformer(task.vocabulary(), depth, width),
        mixer => {
            let mixer = mixer.unwrap_or(Mixer::Mamba2);
            SequenceShape::new(task.vocabulary(), depth, width, mixer)
        }
    };
    let own = &settings.own;
    shape.state = own.state.unwrap_or(shape.state);
    let heads = match shape.mixers.first() {
        Some(Mixer::Attention) => &mut shape.attention_heads,
        _ => &mut shape.heads,
    };
    *heads = settings.heads.unwrap_or(*heads);
    if let Some(ratio) = settings.mlp_ratio {
        shape.hidden = (width as f64 * ratio) as usize; // 0, which is refused, if it is no number
    }
    shape.kernel = settings.kernel.unwrap_or(shape.kernel);
    let replaced = [
        ("attention_layers", &own.attention_layers, Mixer::Attention),
        (
            "linear_attention_layers",
            &own.linear_attention_layers,
            Mixer::LinearAttention,
        ),
    ];
    let last = shape.depth() - 1;
    for (key, layers, mixer) in replaced {
        for layer in layers.iter().flatten() {
            match shape.mixers.get_mut(*layer) {
                Some(place) => *place = mixer,
                None => {
                    return Err(request(format!(
                        "{key}: there is no layer {layer}; layers count from 0 to {last}"
                    )));
                }
            }
        }
    }
    shape.validate()?;
    Ok(shape)
}

fn choices(settings: &Init) -> Result<SequenceChoices> {
    let own = &settings.own;
    let mut choices = SequenceChoices {
        layers: own.mimetic_layers.clone(),
        ..SequenceChoices::default()
    };
    if let Some(parts) = &own.parts {
        let parts = parts.iter().map(|part| part.parse());
        choices.parts = Some(parts.collect::<Result<_, _>>()?);
    }
    choices.qk = init::mixture("qk", settings.qk.as_deref())?.unwrap_or(choices.qk);
    choices.vp = init::mixture("vp", settings.vp.as_deref())?.unwrap_or(choices.vp);
    choices.power = own.state_power.unwrap_or(choices.power);
    Ok(choices)
}
