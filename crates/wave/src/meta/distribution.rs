//! Learned distributions: the stage, and the directory that it writes.
//!
//! `model.safetensors` holds the parameters (`mean.NAME`, `std.NAME`; or `start.NAME`, `slopes.NAME`,
//! `scale.NAME`; `constant.NAME` of what is one number), `config.json` says of which network they are.

use super::learn;
use super::network::{About, Network, arch};
use super::problem::{self, Source};
use super::trial;
use crate::error::request;
use crate::finetune::Options;
use crate::init;
use crate::inputs::Inputs;
use crate::layout::{self, Layout};
use crate::model::{self, Model};
use crate::origin;
use crate::paths;
use crate::recipe;
use crate::run_dir::{Opened, RunDir};
use crate::settings::{Distribution, Init, Meta};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_hub::{CardFront, FloatType};
use wave_init::Cost;
use wave_init::learned::{self, Family};
use wave_models::Weights;
use wave_train::unrolled::{Optimiser, Unrolled};

/// `model_type` of an initialiser.
const INITIALISER: &str = "wave_initialiser";

/// `model_type` of a small network drawn from one.
const SMALL: &str = "wave_small";

/// Keys of the training that mean something here.
const KEYS: [&str; 14] = [
    "data",
    "train_limit",
    "test_limit",
    "hold_out",
    "steps",
    "batch",
    "lr",
    "clip",
    "mean",
    "std",
    "checkpoint_steps",
    "checkpoint_minutes",
    "seed",
    "method",
];

/// Everything that is to be done, checked.
pub(super) struct Plan {
    pub(super) family: Family,
    pub(super) about: About,
    pub(super) network: Network,
    pub(super) source: Source,
    /// What is differentiated.
    pub(super) inner: Unrolled,
    /// How often.
    pub(super) steps: u64,
    /// Learning rate of the distributions.
    pub(super) learning_rate: f64,
    /// Largest norm of their gradient.
    pub(super) clip: f64,
    /// Trainings between two checkpoints.
    pub(super) checkpoint_steps: Option<u64>,
    /// Time between two checkpoints.
    pub(super) checkpoint_every: Option<std::time::Duration>,
    pub(super) seed: u64,
}

impl Plan {
    fn new(settings: &Meta) -> Result<Plan> {
        let own = &settings.distribution;
        check_keys(settings)?;
        crate::settings::check(settings)?;
        let mut family: Family = settings.method.as_deref().unwrap_or("normal").parse()?;
        if let (Family::Plif { pieces }, Some(given)) = (&mut family, own.pieces) {
            *pieces = given;
        }
        family.validate()?;
        let training = &settings.training;
        let spec = training.data.as_deref();
        let spec = spec.ok_or_else(|| request("no data; give --data, such as fashion-mnist"))?;
        let like = match arch(own) {
            "scalers" => Network::transform(&Network::about(own, None, None)?)?,
            _ => None,
        };
        let source = Source::open(spec, own, training, like)?;
        let about = problem::about(own, &source)?;
        let inner = inner(own)?;
        let network = Network::new(&about)?;
        if let (Network::Scalers(of), Source::Images(data)) = (&network, &source) {
            let remedy = "give data of as many classes as the templates'";
            data.check_classes(of.shape().classes, remedy)?;
        }
        Ok(Plan {
            family,
            network,
            about,
            source,
            inner,
            steps: training.steps.unwrap_or(100),
            learning_rate: training.lr.unwrap_or(1e-3),
            clip: training.clip.unwrap_or(10.0),
            checkpoint_steps: training.checkpoint_steps.filter(|n| *n > 0),
            checkpoint_every: crate::train::checkpoint_every(training.checkpoint_minutes)?,
            seed: training.seed.unwrap_or(0),
        })
    }
}

/// Refuses keys of the training that mean nothing here.
fn check_keys(settings: &Meta) -> Result<()> {
    let table = crate::recipe::to_table(settings)?;
    let own = crate::recipe::to_table(&settings.distribution)?;
    let strange = |key: &&String| !KEYS.contains(&key.as_str()) && !own.contains_key(*key);
    match table.keys().find(strange) {
        None => Ok(()),
        Some(key) => Err(request(format!(
            "{key} means nothing to a learned distribution; leave it out (of the training it knows: {})",
            KEYS[..KEYS.len() - 1].join(", ")
        ))),
    }
}

/// The training that is differentiated.
fn inner(own: &Distribution) -> Result<Unrolled> {
    let arch = arch(own);
    let usual = match arch {
        "lstm" | "scalers" => "adam",
        _ => "sgd",
    };
    let (momentum, weight_decay) = (
        own.momentum.unwrap_or(0.9),
        own.inner_weight_decay.unwrap_or(0.0),
    );
    let sgd = |nesterov| Optimiser::Sgd {
        momentum,
        nesterov,
        weight_decay,
    };
    let optimiser = match own.optimiser.as_deref().unwrap_or(usual) {
        "sgd" => sgd(false),
        "nesterov" => sgd(true),
        "adam" => Optimiser::ADAM,
        "lars" => Optimiser::Lars {
            momentum,
            weight_decay,
            trust: own.trust.unwrap_or(1e-3),
        },
        other => {
            return Err(request(format!(
                "optimiser = {other}; expected sgd, nesterov, adam or lars"
            )));
        }
    };
    let learning_rate = own.inner_lr.unwrap_or(match arch {
        "fixup" => 0.1,
        "lstm" => 1e-3,
        _ => 1e-2,
    });
    let steps = own.inner_steps.unwrap_or(40);
    Ok(Unrolled {
        optimiser,
        learning_rate,
        steps,
        validate: validated(steps, own.validate_every)?,
        checkpoint: own.keep_every.unwrap_or(5),
    })
}

/// Every so many steps; the last always.
pub(super) fn validated(steps: u64, every: Option<u64>) -> Result<Vec<u64>> {
    let every = every.unwrap_or(1);
    if steps == 0 || every == 0 || steps > 100_000 {
        return Err(request(format!(
            "{steps} inner steps with a validation every {every}; expected 1 to 100000, and at least 1"
        )));
    }
    let mut all: Vec<u64> = (1..=steps).filter(|t| t.is_multiple_of(every)).collect();
    if all.last() != Some(&steps) {
        all.push(steps);
    }
    Ok(all)
}

/// What `--dry-run` prints.
pub(super) fn describe(settings: &Meta) -> Result<String> {
    let plan = Plan::new(settings)?;
    trial::check(settings, &plan)?;
    let shapes = plan.network.shapes()?;
    let values: usize = shapes
        .iter()
        .map(|(_, dims)| dims.iter().product::<usize>())
        .sum();
    Ok(format!(
        "{:#?}\n{} weights in {} tensors, {} trainings of {} steps of {}\n",
        plan.about,
        values,
        shapes.len(),
        plan.steps,
        plan.inner.steps,
        plan.source.batch()
    ))
}

/// Learns, tests, and writes an initialiser. Returns what `--json` prints.
pub(super) fn meta(name: &str, settings: &Meta, out: &Path, options: Options) -> Result<Value> {
    let plan = Plan::new(settings)?;
    trial::check(settings, &plan)?;
    let table = crate::recipe::to_table(settings)?;
    let inputs = match &plan.source {
        Source::Images(data) => Inputs::default().images(settings.training.data.as_deref(), data),
        Source::Tokens(task, _) => Inputs::default().task(task),
    };
    let inputs = inputs.place(settings.distribution.test_data.as_deref());
    let mut run = match RunDir::open(out, &table, &inputs, options)? {
        Opened::Complete(result) => return Ok(result),
        Opened::Run(run) => run,
    };
    let parameters = learn::learn(&plan, &mut run, options)?;
    let tests = trial::tests(settings, &plan, &parameters, options)?;
    let moments = learned::moments(plan.family, &parameters)?;
    let result = json!({
        "out": paths::text(out),
        "method": plan.family.name(),
        "parameters": count(&parameters),
        "steps": plan.steps,
        "tests": tests.summary(),
    });
    let config = json!({
        "model_type": INITIALISER,
        "family": plan.family.name(),
        "pieces": match plan.family {
            Family::Plif { pieces } => json!(pieces),
            Family::Normal => Value::Null,
        },
        "network": plan.about,
        "wave": {
            "stage": "meta",
            "version": env!("CARGO_PKG_VERSION"),
            "recipe": name,
            "data": settings.training.data,
            "seed": plan.seed,
            "steps": plan.steps,
            "inner_steps": plan.inner.steps,
            "tests": tests.summary(),
        },
    });
    let card = card(&plan, &moments, &tests);
    run.complete(&result, || {
        tests.write(out)?;
        wave_hub::write_transformers(out, &config, None, &parameters, &[], &card, FloatType::F32)?;
        Ok(())
    })?;
    Ok(result)
}

fn card(plan: &Plan, moments: &[(String, f64, f64)], tests: &trial::Tests) -> String {
    let front = model::card_front();
    let mut body = format!(
        "A distribution for each weight tensor ({}), learned with wave by back-propagating through \
         {} trainings of {} steps. `wave init learned --from DIR` draws models.\n\n| tensor | mean | \
         standard deviation |\n|---|---|---|\n",
        plan.family.name(),
        plan.steps,
        plan.inner.steps
    );
    for (name, mean, std) in moments {
        body += &format!("| {name} | {mean:.5} | {std:.5} |\n");
    }
    body += &tests.table();
    origin::card(front, &Value::Null, "A learned initialiser", &body)
}

/// An initialiser as it stands in a directory.
struct Initialiser {
    family: Family,
    about: About,
    network: Network,
    parameters: Weights,
    config: Value,
}

impl Initialiser {
    fn read(dir: &Path) -> Result<Initialiser> {
        let wrong = |what: String| {
            request(format!(
                "{}: {what}; give the directory that `wave meta` wrote",
                dir.display()
            ))
        };
        let config: Value = wave_hub::read_json(&dir.join("config.json"))?;
        if config["model_type"] != INITIALISER {
            return Err(wrong("holds no initialiser".into()));
        }
        let (config, parameters) = wave_hub::read_transformers(dir)?;
        let mut family: Family = config["family"].as_str().unwrap_or_default().parse()?;
        if let (Family::Plif { pieces }, Some(n)) = (&mut family, config["pieces"].as_u64()) {
            *pieces = usize::try_from(n).unwrap_or(0);
        }
        family.validate()?;
        let about: About = serde_json::from_value(config["network"].clone())
            .map_err(|e| wrong(format!("config.json does not say of which network ({e})")))?;
        let network = Network::new(&about)?;
        learned::check(family, &network.shapes()?, &parameters)?;
        Ok(Initialiser {
            family,
            about,
            network,
            parameters,
            config,
        })
    }

    fn draw(&self, seed: u64) -> Result<Weights> {
        draw_weights(self.family, &self.network, &self.parameters, seed)
    }
}

/// Weights drawn from learned distributions.
pub(super) fn draw_weights(
    family: Family,
    network: &Network,
    parameters: &Weights,
    seed: u64,
) -> Result<Weights> {
    let noise = learned::Noise::new(family, &network.shapes()?, parameters, seed)?;
    Ok(learned::weights(family, parameters, &noise)?)
}

/// What `wave init learned --dry-run` prints.
pub(super) fn describe_draw(dir: &Path) -> Result<String> {
    let learned = Initialiser::read(dir)?;
    learned.draw(0)?;
    Ok(format!("{:#?}\n", learned.about))
}

/// Writes a model of drawn weights.
pub(super) fn draw(dir: &Path, settings: &Init, out: &Path, options: Options) -> Result<Value> {
    let what = "method learned, whose network is that of --from";
    recipe::check_keys(settings, &["from", "seed", "dtype", "format"], what)?;
    let learned = Initialiser::read(dir)?;
    let seed = settings.seed.unwrap_or(0);
    let weights = learned.draw(seed)?;
    let provenance = json!({
        "stage": "init",
        "version": env!("CARGO_PKG_VERSION"),
        "method": super::LEARNED,
        "seed": seed,
        "initialiser": learned.config["wave"],
    });
    let summary = "Drawn with wave from learned distributions; not trained.";
    let cost = Cost {
        stored: count(&learned.parameters),
        ..Cost::default()
    };
    let write_start = |parameters: usize, write: &dyn Fn() -> Result<()>| {
        init::write_start(
            super::LEARNED,
            settings,
            out,
            options,
            Inputs::default(),
            parameters,
            cost,
            write,
        )
    };
    match (&learned.network, &learned.about) {
        (Network::Small(small), _) => {
            if let Some(format) = &settings.output.format {
                return Err(request(format!(
                    "format = {format}: a small network has no place there; leave it out"
                )));
            }
            let config = json!({ "model_type": SMALL, "network": small, "wave": provenance });
            let front = CardFront::default();
            let card = origin::card(front, &provenance, "A small network", summary);
            let float = layout::float(settings.output.dtype.as_deref())?;
            write_start(count(&weights), &|| {
                wave_hub::write_transformers(out, &config, None, &weights, &[], &card, float)?;
                Ok(())
            })
        }
        (Network::Scalers(of), About::Scalers { templates, .. }) => {
            let templates = crate::templates::read(Path::new(templates))?;
            let network = model::Network::Vit(of.shape().clone());
            let layout = Layout::of(&settings.output, &network)?;
            let model = Model {
                network,
                weights: of.weights(&weights)?,
                transform: templates.transform,
                label_names: templates.config.label_names,
                provenance,
            };
            write_start(model.parameters(), &|| {
                model.write(out, layout, Some(&weights), summary)
            })
        }
        (Network::Scalers(_), About::Small(_)) => anyhow::bail!("scalers of no transformer"),
    }
}

/// The number of values in tensors.
fn count(tensors: &Weights) -> usize {
    tensors.values().map(|t| t.elem_count()).sum()
}
