//! The Python module `wave_templates._native`: models in memory, and the stages of `wave`.
//!
//! Settings and results cross as JSON, tensors as arrays of bytes. `python/wave_templates` makes of them
//! what Python users expect.

mod foreign;
mod run;

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use foreign::Foreign;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use run::{Run, raised};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use wave::expand::InMemory;
use wave::finetune::Options;
use wave::predict::{self, Picture};
use wave::recipe::Recipe;
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
        let weights = self.model.weights.iter();
        weights
            .map(|(name, t)| {
                let values = values(t).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
                let bytes = PyByteArray::new_with(py, 4 * values.len(), |bytes| {
                    for (to, value) in bytes.chunks_exact_mut(4).zip(&values) {
                        to.copy_from_slice(&value.to_le_bytes());
                    }
                    Ok(())
                })?;
                Ok((name.clone(), t.dims().to_vec(), bytes))
            })
            .collect()
    }

    /// The model with these values, little-endian f32, in the place of its own.
    fn with_tensors(&self, tensors: Vec<(String, Vec<u8>)>) -> PyResult<Model> {
        let mut model = self.model.clone();
        let mut changed = false;
        for (name, bytes) in tensors {
            let Some(own) = model.weights.get_mut(&name) else {
                continue;
            };
            let (found, _) = bytes.as_chunks::<4>();
            let found: Vec<f32> = found.iter().map(|v| f32::from_le_bytes(*v)).collect();
            let replace = || -> candle_core::Result<Option<Tensor>> {
                if values(own)? == found {
                    return Ok(None);
                }
                Tensor::from_vec(found, own.dims(), &Device::Cpu).map(Some)
            };
            if let Some(new) = replace().map_err(|e| raised(e.into()))? {
                *own = new;
                changed = true;
            }
        }
        Ok(Model {
            model,
            scalers: self.scalers.clone().filter(|_| !changed),
            summary: self.summary.clone(),
            result: self.result.clone(),
        })
    }

    /// timm's `config.json`.
    fn config(&self) -> PyResult<String> {
        let config = self.model.config().map_err(raised)?;
        serde_json::to_string(&config).map_err(|e| raised(e.into()))
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
            let output: Output = serde_json::from_str(settings)?;
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
        run.working(py, |options| {
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
            let result =
                predict::classify(&self.model, pictures, options.verbosity, &options.context)?;
            predict::check(&result)?;
            Ok(result.to_string())
        })
    }
}

/// The values of a tensor.
fn values(t: &Tensor) -> candle_core::Result<Vec<f32>> {
    t.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
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
fn expand(py: Python, templates: Option<PathBuf>, settings: &str, run: Run) -> PyResult<Model> {
    run.working(py, |options| {
        let settings: Expand = parsed("expand", None, settings)?.1;
        nothing_written(&settings.output)?;
        let source = wave::shipped::resolve(templates.as_deref(), &options.context)?;
        let InMemory {
            model,
            scalers,
            summary,
            result,
        } = wave::expand::in_memory(&source, &settings, options)?;
        Ok(Model {
            model,
            scalers: Some(scalers),
            summary,
            result: result.to_string(),
        })
    })
}

/// A model by a method of `wave init`.
#[pyfunction]
fn init(py: Python, method: &str, settings: &str, run: Run) -> PyResult<Model> {
    run.working(py, |options| {
        let settings: Init = parsed("init", None, settings)?.1;
        nothing_written(&settings.output)?;
        let model = wave::init::new_model(method, &settings, &options.context)?;
        Ok(model.into())
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
        let classes: ZeroShot = serde_json::from_str(classes)?;
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
fn condense(
    py: Python,
    recipe: Option<Written>,
    out: Option<PathBuf>,
    settings: &str,
    ancestor: Option<Foreign>,
    run: Run,
) -> PyResult<String> {
    run.working(py, |options| {
        let planned = recipe.is_none();
        let (name, mut settings): (_, Condense) = parsed("condense", recipe, settings)?;
        if planned {
            settings.minutes.get_or_insert(wave::condense::MINUTES);
        }
        let ancestors = Ancestors::default();
        if let Some(foreign) = ancestor {
            let (name, ancestor) = foreign.ancestor(&options.context)?;
            ancestors.insert(&name, ancestor);
            settings.ancestor = Some(name);
        }
        made("condense", out, options, |out, options| {
            wave::condense::condense(&name, &settings, &ancestors, out, options)
        })
    })
}

/// Adapts templates to other data.
#[pyfunction]
fn adapt(
    py: Python,
    templates: PathBuf,
    recipe: Option<Written>,
    out: Option<PathBuf>,
    settings: &str,
    run: Run,
) -> PyResult<String> {
    run.working(py, |options| {
        let settings: Adapt = parsed("adapt", recipe, settings)?.1;
        let templates = wave::shipped::resolve(Some(&templates), &options.context)?.path;
        made("adapt", out, options, |out, options| {
            wave::adapt::adapt(&templates, &settings, out, options)
        })
    })
}

/// Fine-tunes a model directory.
#[pyfunction]
fn finetune(
    py: Python,
    model: PathBuf,
    recipe: Option<Written>,
    out: Option<PathBuf>,
    settings: &str,
    run: Run,
) -> PyResult<String> {
    run.working(py, |options| {
        let settings: Finetune = parsed("finetune", recipe, settings)?.1;
        made("finetune", out, options, |out, options| {
            wave::finetune::finetune(&model, &settings, out, options)
        })
    })
}

/// Writes a model directory in another layout or precision.
#[pyfunction]
fn convert(
    py: Python,
    model: PathBuf,
    out: Option<PathBuf>,
    settings: &str,
    run: Run,
) -> PyResult<String> {
    run.working(py, |options| {
        let output: Output = serde_json::from_str(settings)?;
        made("convert", out, options, |out, options| {
            wave::convert::convert(&model, &output, out, options)
        })
    })
}

/// Accuracy of a model directory.
#[pyfunction]
fn evaluate(py: Python, model: PathBuf, settings: &str, run: Run) -> PyResult<String> {
    run.working(py, |options| {
        let settings: Eval = parsed("eval", None, settings)?.1;
        Ok(wave::eval::eval(&model, &settings, &options.context)?.to_string())
    })
}

/// Contents of a template or model directory; the result is that of `--json`.
#[pyfunction]
fn inspect(py: Python, path: PathBuf, run: Run) -> PyResult<String> {
    run.working(py, |options| {
        Ok(wave::inspect::inspect(&path, &Pictures::default(), &options.context)?.to_string())
    })
}

/// The templates at hand.
#[pyfunction]
fn templates(py: Python, dirs: Vec<PathBuf>, run: Run) -> PyResult<String> {
    run.working(py, |options| {
        Ok(wave::shipped::list(&dirs, &options.context)?.to_string())
    })
}

/// The names of the templates that come with wave.
#[pyfunction]
fn shipped() -> Vec<&'static str> {
    wave::shipped::names().collect()
}

/// Publishes a directory as one commit.
#[pyfunction]
fn publish(py: Python, dir: PathBuf, settings: &str, dry_run: bool, run: Run) -> PyResult<String> {
    run.working(py, |options| {
        let settings: wave::hub::Publish = serde_json::from_str(settings)?;
        Ok(wave::hub::publish(&dir, &settings, dry_run, &options.context)?.to_string())
    })
}

/// Downloads an artefact.
#[pyfunction]
fn pull(py: Python, name: &str, out: Option<PathBuf>, run: Run) -> PyResult<String> {
    run.working(py, |_| {
        Ok(wave::hub::pull(name, out.as_deref())?.to_string())
    })
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
    match all.map_err(|e| raised(e.into()))? {
        Value::Object(map) => Ok(map.into_iter().map(|(key, _)| key).collect()),
        _ => Ok(Vec::new()),
    }
}

/// Works in `out`, or in a new directory, and returns the output of `--json`.
fn made(
    stage: &str,
    out: Option<PathBuf>,
    options: &Options,
    work: impl FnOnce(&Path, &Options) -> Result<Value>,
) -> Result<String> {
    Ok(work_in(out.as_deref(), stage, options, work)?.to_string())
}

/// A recipe: a file, or its content as JSON.
#[derive(FromPyObject)]
struct Written {
    path: Option<PathBuf>,
    table: Option<String>,
}

/// The name of a recipe, and the settings of its table with those that a caller gives, as JSON.
fn parsed<T>(table: &str, recipe: Option<Written>, settings: &str) -> Result<(String, T)>
where
    T: Serialize + DeserializeOwned + Default,
{
    let recipe = match recipe {
        Some(Written {
            path: Some(path), ..
        }) => Recipe::read(&path, &[])?,
        Some(Written {
            table: Some(content),
            ..
        }) => Recipe::of_table(serde_json::from_str(&content)?)?,
        _ => Recipe::empty(table, &[])?,
    };
    let given: toml::Table = serde_json::from_str(settings)?;
    let settings = recipe.stage(table, Some(&given))?;
    Ok((recipe.name, settings))
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
