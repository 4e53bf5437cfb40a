//! The Python module `wave_templates._native`: models in memory, and the stages of `wave`.
//!
//! Settings and results cross as JSON, tensors as arrays of bytes. `python/wave_templates` makes of them
//! what Python users expect.

mod foreign;
mod run;

use anyhow::Result;
use candle_core::{Device, Tensor};
use foreign::{Foreign, floats, values};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use run::{Run, raised};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use toml::Table;
use wave::predict::{self, Picture};
use wave::recipe::{Recipe, parse};
use wave_artefacts::layout::Layout;
use wave_artefacts::{origin, zero_shot};
use wave_models::Weights;
use wave_run::error::request;
use wave_run::locate::locate;
use wave_run::out_dir::work_in;
use wave_run::settings::{
    Adapt, Condense, Eval, Expand, Finetune, Init, Output, Pictures, ZeroShot,
};
use wave_stages::ancestor::Ancestors;

/// The name, shape and values of a weight, the values as little-endian f32.
type Array<'py> = (String, Vec<usize>, Bound<'py, PyByteArray>);

/// A model in memory.
#[pyclass(frozen)]
#[derive(Clone)]
struct Model {
    model: wave::model::Model,
    /// Scalers of an expanded model whose weights are still the composed ones.
    scalers: Option<Weights>,
    summary: String,
    /// The output of `--json`.
    result: String,
}

impl From<wave::model::Model> for Model {
    fn from(model: wave::model::Model) -> Model {
        Model {
            model,
            scalers: None,
            summary: "Made with wave.".into(),
            result: "{}".into(),
        }
    }
}

#[pymethods]
impl Model {
    /// All weights.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Array<'py>>> {
        let array = |(name, t): (&String, &Tensor)| {
            let values = values(t).map_err(raised)?;
            let bytes = PyByteArray::new_with(py, 4 * values.len(), |bytes| {
                for (to, value) in bytes.chunks_exact_mut(4).zip(&values) {
                    to.copy_from_slice(&value.to_le_bytes());
                }
                Ok(())
            })?;
            Ok((name.clone(), t.dims().to_vec(), bytes))
        };
        self.model.weights.iter().map(array).collect()
    }

    /// The model with these values, little-endian f32, in the place of its own.
    fn with_tensors(&self, tensors: Vec<(String, Vec<u8>)>) -> PyResult<Model> {
        let mut changed = self.clone();
        for (name, bytes) in tensors {
            let Some(own) = changed.model.weights.get_mut(&name) else {
                continue;
            };
            let found = floats(&bytes);
            if values(own).map_err(raised)? != found {
                *own = Tensor::from_vec(found, own.dims(), &Device::Cpu).map_err(raised)?;
                changed.scalers = None;
            }
        }
        Ok(changed)
    }

    /// timm's `config.json`.
    fn config(&self) -> PyResult<String> {
        let config = self.model.config().map_err(raised)?;
        serde_json::to_string(&config).map_err(raised)
    }

    /// The output of `--json` when the model was made.
    fn result(&self) -> &str {
        &self.result
    }

    /// The number of parameters.
    fn parameters(&self) -> usize {
        self.model.parameters()
    }

    /// Writes a model directory.
    fn write(&self, py: Python, out: PathBuf, settings: &str, run: Run) -> PyResult<()> {
        run.working(py, |_| {
            let output: Output = parse(&table(settings)?, "convert", "save", &[])?;
            let layout = Layout::of(&output, &self.model.network)?;
            let scalers = self.scalers.as_ref();
            self.model.write(&out, layout, scalers, &self.summary)
        })
    }

    /// Classifies images: paths, or names with the contents of files.
    fn predict(
        &self,
        py: Python,
        images: Vec<(String, Option<Vec<u8>>)>,
        run: Run,
    ) -> PyResult<String> {
        run.json(py, |options| {
            let mut pictures = Vec::new();
            for (name, content) in images {
                match content {
                    Some(bytes) => pictures.push(Picture::Bytes(name, bytes)),
                    None => {
                        let files = predict::files(&[PathBuf::from(name)])?;
                        pictures.extend(files.into_iter().map(Picture::File));
                    }
                }
            }
            let (verbosity, context) = (options.verbosity, &options.context);
            let result = predict::classify(&self.model, pictures, verbosity, context)?;
            predict::check(&result)?;
            Ok(result)
        })
    }
}

/// The recipe, the output and the settings of a stage.
#[derive(FromPyObject)]
struct Given {
    /// The file of a recipe.
    recipe: Option<PathBuf>,
    /// The content of a recipe in its place, as JSON.
    table: Option<String>,
    out: Option<PathBuf>,
    /// Settings that override the recipe's, as JSON.
    settings: String,
}

impl Given {
    /// The name of the recipe, and the settings of the stage.
    fn parsed<T>(&self, stage: &str) -> Result<(String, T)>
    where
        T: Serialize + DeserializeOwned + Default,
    {
        let recipe = match (&self.recipe, &self.table) {
            (Some(path), _) => Recipe::read(path, &[])?,
            (_, Some(content)) => Recipe::of_table(table(content)?)?,
            _ => Recipe::empty(stage, &[])?,
        };
        let given = table(&self.settings)?;
        recipe.refuse_in_levels(stage, [&given, &Table::new()])?;
        let settings = recipe.stage(stage, Some(&given))?;
        Ok((recipe.name, settings))
    }
}

/// A table as JSON.
fn table(json: &str) -> Result<Table> {
    serde_json::from_str(json).map_err(|e| request(format!("settings as JSON: {e}")))
}

/// The directory of templates: of a shipped set, without a name the first; downloaded, if a hub has them.
#[pyfunction]
fn resolve(py: Python, name: Option<PathBuf>, run: Run) -> PyResult<PathBuf> {
    run.working(py, |options| {
        let path = wave::shipped::resolve(name.as_deref(), &options.context)?.path;
        wave::templates::fetch(&path, &options.context)?; // refuses what is no set
        locate(&path, &options.context)
    })
}

/// A model from templates, of a size or within limits.
#[pyfunction]
fn expand(py: Python, templates: Option<PathBuf>, given: Given, run: Run) -> PyResult<Model> {
    run.working(py, |options| {
        let (_, settings): (_, Expand) = given.parsed("expand")?;
        nothing_written(&settings.output)?;
        let source = wave::shipped::resolve(templates.as_deref(), &options.context)?;
        let (made, summary, result) = wave::expand::in_memory(&source, &settings, options)?;
        Ok(Model {
            model: made.model,
            scalers: Some(made.scalers),
            summary,
            result: result.to_string(),
        })
    })
}

/// A model by a method of `wave init`.
#[pyfunction]
fn init(py: Python, method: &str, given: Given, run: Run) -> PyResult<Model> {
    run.working(py, |options| {
        let (_, settings): (_, Init) = given.parsed("init")?;
        nothing_written(&settings.output)?;
        Ok(wave::init::new_model(method, &settings, &options.context)?.into())
    })
}

/// Refuses settings of a directory for what is in memory.
fn nothing_written(output: &Output) -> Result<()> {
    match *output == Output::default() {
        true => Ok(()),
        false => Err(request(
            "format and dtype apply to a directory; pass them to save(out, format=..., dtype=...)",
        )),
    }
}

/// The model in a directory; a CLIP or SigLIP with a classifier of names, if given.
#[pyfunction]
fn read(
    py: Python,
    path: PathBuf,
    heads: Option<usize>,
    classes: &str,
    run: Run,
) -> PyResult<Model> {
    run.working(py, |options| {
        let classes: ZeroShot = parse(&table(classes)?, "eval", "predict", &[])?;
        let (mut model, _) = zero_shot::open(&path, heads, &classes, &options.context)?;
        let origin = origin::of(&path, &model.provenance, &options.context);
        if !origin.is_null() {
            model.provenance["origin"] = origin;
        }
        Ok(model.into())
    })
}

/// Condenses as a recipe says, from a network of Python's if given. Without a recipe, what is not given is planned.
#[pyfunction]
fn condense(py: Python, given: Given, ancestor: Option<Foreign>, run: Run) -> PyResult<String> {
    run.json(py, |options| {
        let (name, mut settings): (_, Condense) = given.parsed("condense")?;
        if given.recipe.is_none() && given.table.is_none() {
            settings.minutes.get_or_insert(wave::condense::MINUTES);
        }
        let ancestors = Ancestors::default();
        if let Some(foreign) = ancestor {
            let (name, ancestor) = foreign.ancestor(&options.context)?;
            ancestors.insert(&name, ancestor);
            settings.ancestor = Some(name);
        }
        work_in(given.out.as_deref(), "condense", options, |out, options| {
            wave::condense::condense(&name, &settings, &ancestors, out, options)
        })
    })
}

/// Adapts templates to other data.
#[pyfunction]
fn adapt(py: Python, templates: PathBuf, given: Given, run: Run) -> PyResult<String> {
    run.json(py, |options| {
        let (_, settings): (_, Adapt) = given.parsed("adapt")?;
        let templates = wave::shipped::resolve(Some(&templates), &options.context)?.path;
        work_in(given.out.as_deref(), "adapt", options, |out, options| {
            wave::adapt::adapt(&templates, &settings, out, options)
        })
    })
}

/// Fine-tunes a model directory.
#[pyfunction]
fn finetune(py: Python, model: PathBuf, given: Given, run: Run) -> PyResult<String> {
    run.json(py, |options| {
        let (_, settings): (_, Finetune) = given.parsed("finetune")?;
        work_in(given.out.as_deref(), "finetune", options, |out, options| {
            wave::finetune::finetune(&model, &settings, out, options)
        })
    })
}

/// Writes a model directory in another layout or precision.
#[pyfunction]
fn convert(py: Python, model: PathBuf, given: Given, run: Run) -> PyResult<String> {
    run.json(py, |options| {
        let output: Output = parse(&table(&given.settings)?, "convert", "convert", &[])?;
        work_in(given.out.as_deref(), "convert", options, |out, options| {
            wave::convert::convert(&model, &output, out, options)
        })
    })
}

/// Accuracy of a model directory.
#[pyfunction]
fn evaluate(py: Python, model: PathBuf, given: Given, run: Run) -> PyResult<String> {
    run.json(py, |options| {
        let (_, settings): (_, Eval) = given.parsed("eval")?;
        wave::eval::eval(&model, &settings, &options.context)
    })
}

/// Contents of a template or model directory; the result is that of `--json`.
#[pyfunction]
fn inspect(py: Python, path: PathBuf, run: Run) -> PyResult<String> {
    let pictures = Pictures::default();
    run.json(py, |o| wave::inspect::inspect(&path, &pictures, &o.context))
}

/// The templates at hand.
#[pyfunction]
fn templates(py: Python, dirs: Vec<PathBuf>, run: Run) -> PyResult<String> {
    run.json(py, |o| wave::shipped::list(&dirs, &o.context))
}

/// The names of the templates that come with wave.
#[pyfunction]
fn shipped() -> Vec<&'static str> {
    wave::shipped::names().collect()
}

/// Publishes a directory as one commit.
#[pyfunction]
fn publish(py: Python, dir: PathBuf, settings: &str, dry_run: bool, run: Run) -> PyResult<String> {
    run.json(py, |options| {
        let settings: wave::hub::Publish = serde_json::from_str(settings)?;
        wave::hub::publish(&dir, &settings, dry_run, &options.context)
    })
}

/// Downloads an artefact.
#[pyfunction]
fn pull(py: Python, name: &str, out: Option<PathBuf>, run: Run) -> PyResult<String> {
    run.json(py, |_| wave::hub::pull(name, out.as_deref()))
}

/// The settings of a stage.
#[pyfunction]
fn keys(stage: &str) -> PyResult<Vec<String>> {
    let all = match stage {
        "condense" => serde_json::to_value(Condense::default()),
        "adapt" => serde_json::to_value(Adapt::default()),
        "expand" => serde_json::to_value(Expand::default()),
        "init" => serde_json::to_value(Init::default()),
        "finetune" => serde_json::to_value(Finetune::default()),
        _ => serde_json::to_value(Eval::default()),
    };
    let all = all.map_err(raised)?;
    let keys = all.as_object().into_iter().flat_map(|map| map.keys());
    Ok(keys.cloned().collect())
}

/// The module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::{
        Model, adapt, condense, convert, evaluate, expand, finetune, init, inspect, keys, publish,
        pull, read, resolve, shipped, templates,
    };
    #[pymodule_export]
    #[expect(non_upper_case_globals)] // Python's name
    const version: &str = env!("CARGO_PKG_VERSION");
}
