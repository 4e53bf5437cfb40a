//! Learned distributions: the stage and its directory.
//!
//! `model.safetensors` holds the parameters (`mean.NAME`, `std.NAME`; or `start.NAME`, `slopes.NAME`,
//! `scale.NAME`; or `constant.NAME`, a single number), `config.json` describes the network.

use super::learn;
use super::learned::{self, DistributionFamily};
use super::network::{About, Network};
use super::plan::{Plan, draw_weights};
use super::problem::Source;
use super::settings::{Draw, Meta};
use super::trial;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_hub::{CardFront, FloatType};
use wave_init::Cost;
use wave_models::Weights;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::inputs::Inputs;
use wave_run::plot::{Chart, Series, Unit};
use wave_run::run_dir::{self, Made};
use wave_stages::finetune::Options;
use wave_stages::init::{self, Begun};
use wave_stages::layout::{self, Layout};
use wave_stages::model::{self, Model};
use wave_stages::origin;
use wave_train::unrolled::Gradient;

/// `model_type` of an initialiser.
const INITIALISER: &str = "wave_initialiser";

/// `model_type` of a small network drawn from an initialiser.
const SMALL: &str = "wave_small";

/// The output of `--dry-run`.
pub(super) fn describe(settings: &Meta, context: &Context) -> Result<String> {
    let plan = Plan::new(settings, context)?;
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

/// Learns, tests, and writes an initialiser. Returns the output of `--json`.
pub(super) fn meta(name: &str, settings: &Meta, out: &Path, options: &Options) -> Result<Value> {
    let plan = Plan::new(settings, &options.context)?;
    trial::check(settings, &plan)?;
    let table = wave_run::recipe::to_table(settings)?;
    let inputs = Inputs::new(&options.context);
    let inputs = match &plan.source {
        Source::Images(data) => inputs.images(settings.training.images.data.as_deref(), data),
        Source::Tokens(task, _) => inputs.task(task),
    };
    let inputs = inputs.place(settings.distribution.test_data.as_deref());
    run_dir::fill(out, &table, &inputs, options, |run| {
        let parameters = learn::learn(&plan, run, options)?;
        let tests = trial::tests(settings, &plan, &parameters, options)?;
        let moments = learned::moments(plan.family, &parameters)?;
        let result = json!({
            "method": plan.family.name(),
            "parameters": count(&parameters),
            "steps": plan.steps,
            "tests": tests.summary(),
        });
        let config = json!({
            "model_type": INITIALISER,
            "family": plan.family.name(),
            "pieces": match plan.family {
                DistributionFamily::Plif { pieces } => json!(pieces),
                DistributionFamily::Normal => Value::Null,
            },
            "network": plan.about,
            "wave": {
                "stage": "meta",
                "version": env!("CARGO_PKG_VERSION"),
                "recipe": name,
                "data": settings.training.images.data,
                "seed": plan.seed,
                "steps": plan.steps,
                "inner_steps": plan.inner.steps,
                "tests": tests.summary(),
            },
        });
        let card = card(&plan, &moments, &tests);
        let quantiles = quantile_chart(&plan, &moments, &parameters)?;
        let write = move || {
            tests.write(out)?;
            if let Some(svg) = &quantiles {
                wave_hub::write_atomic(&out.join("quantiles.svg"), svg.as_bytes())?;
            }
            wave_hub::write_transformers(
                out,
                &config,
                None,
                &parameters,
                &[],
                &card,
                FloatType::F32,
            )?;
            Ok(())
        };
        Ok(Made {
            result,
            write: Box::new(write),
        })
    })
}

fn card(plan: &Plan, moments: &[(String, f64, f64)], tests: &trial::Tests) -> String {
    let front = model::card_front();
    let mut body = format!(
        "A distribution for each weight tensor ({}), learned with wave {} {} trainings of {} steps. `wave init \
         learned --from DIR` draws models.\n\n| tensor | mean | standard deviation |\n|---|---|---|\n",
        plan.family.name(),
        match plan.inner.gradient {
            Gradient::Full => "by back-propagating through",
            Gradient::FirstOrder => "by the first-order gradients of",
            Gradient::Reptile => "by Reptile from",
        },
        plan.steps,
        plan.inner.steps
    );
    for (name, mean, std) in moments {
        body += &format!("| {name} | {mean:.5} | {std:.5} |\n");
    }
    body += &tests.table();
    origin::card(front, &Value::Null, "A learned initialiser", &body)
}

/// Places of a quantile function in its chart.
const PLACES: usize = 100;

/// The quantile functions of learned matrices and kernels, beside the uniform's that they began as; none of
/// normal distributions. Each is shown less its mean, in its standard deviation.
fn quantile_chart(
    plan: &Plan,
    moments: &[(String, f64, f64)],
    parameters: &Weights,
) -> Result<Option<String>> {
    let DistributionFamily::Plif { .. } = plan.family else {
        return Ok(None);
    };
    let place = |i: usize| (i as f64 + 0.5) / PLACES as f64;
    let uniform = (0..PLACES).map(|i| (place(i), (place(i) - 0.5) * 12f64.sqrt()));
    let mut lines = vec![("uniform".to_owned(), uniform.collect::<Vec<_>>())];
    let shapes = plan.network.shapes()?;
    let is_matrix = |name: &String| shapes.iter().any(|(n, dims)| n == name && dims.len() > 1);
    for (name, mean, std) in moments {
        if is_matrix(name) && *std > 0.0 {
            let all = learned::quantiles(parameters, name, PLACES)?;
            let all = all.iter().enumerate();
            let points = all.map(|(i, q)| (place(i), (q - mean) / std));
            lines.push((name.clone(), points.collect()));
        }
    }
    let series: Vec<Series> = lines.iter().map(|(n, p)| Series::new(n, p)).collect();
    let chart = Chart {
        title: "Quantiles of the learned distributions",
        x_label: "probability",
        y_label: "weight, in standard deviations",
        unit: Unit::Plain,
        series: &series,
    };
    Ok(Some(chart.svg()?))
}

/// An initialiser as stored in a directory.
struct Initialiser {
    family: DistributionFamily,
    about: About,
    network: Network,
    parameters: Weights,
    config: Value,
}

impl Initialiser {
    fn read(dir: &Path, context: &Context) -> Result<Initialiser> {
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
        let mut family: DistributionFamily =
            config["family"].as_str().unwrap_or_default().parse()?;
        if let (DistributionFamily::Plif { pieces }, Some(n)) =
            (&mut family, config["pieces"].as_u64())
        {
            *pieces = usize::try_from(n).unwrap_or(0);
        }
        family.validate()?;
        let about: About = serde_json::from_value(config["network"].clone())
            .map_err(|e| wrong(format!("config.json does not say of which network ({e})")))?;
        let network = Network::new(&about, context)?;
        learned::check(family, &network.shapes()?, &parameters)?;
        wave_hub::check_digests(dir)?;
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

/// The output of `wave init learned --dry-run`.
pub(super) fn describe_draw(dir: &Path, context: &Context) -> Result<String> {
    let learned = Initialiser::read(dir, context)?;
    learned.draw(0)?;
    Ok(format!("{:#?}\n", learned.about))
}

/// Writes a model of drawn weights.
pub(super) fn draw(dir: &Path, settings: &Draw, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let learned = Initialiser::read(dir, context)?;
    let seed = settings.seed.unwrap_or(0);
    let weights = learned.draw(seed)?;
    let provenance = json!({
        "stage": "init",
        "version": env!("CARGO_PKG_VERSION"),
        "method": super::METHOD,
        "seed": seed,
        "initialiser": learned.config["wave"],
    });
    let summary = "Drawn with wave from learned distributions; not trained.";
    let cost = Cost {
        stored: count(&learned.parameters),
        ..Cost::default()
    };
    let write_start = |parameters: usize, write: &dyn Fn() -> Result<()>| {
        let begun = Begun {
            method: super::METHOD,
            parameters,
            cost,
        };
        let inputs = Inputs::new(&options.context);
        init::write_start(begun, settings, out, options, inputs, write)
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
            let templates = wave_stages::templates::fetch(Path::new(templates), context)?;
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
