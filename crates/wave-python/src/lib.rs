//! The Python module `wave_templates._native`: models in memory, and the stages of `wave`.
//!
//! Settings and results cross as JSON, tensors as arrays of bytes. `python/wave_templates` makes of them
//! what Python users expect.

mod foreign;

use anyhow::Result;
use candle_core::{DType, Tensor};
use foreign::Foreign;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use wave::context::Context;
use wave::finetune::Options;
use wave::recipe::Recipe;
use wave_run::error::{describe, exit_code};
use wave_run::interrupt::Interruption;
use wave_run::settings::{Adapt, Condense, Eval, Finetune, Init, Output, Pictures};
use wave_stages::ancestor::Ancestors;
use wave_stages::layout::Layout;
use wave_train::Alone;

/// Time between two looks at Python's signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// The name, shape and values of a weight, the values as little-endian f32.
type Array<'py> = (String, Vec<usize>, Bound<'py, PyByteArray>);

/// A model in memory.
#[pyclass(frozen)]
struct Model(wave::model::Model);

#[pymethods]
impl Model {
    /// All weights.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Vec<Array<'py>>> {
        let weights = self.0.weights.iter();
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

    /// timm's `config.json`.
    fn config(&self) -> PyResult<String> {
        let config = self.0.config().map_err(raised)?;
        serde_json::to_string(&config).map_err(|e| raised(e.into()))
    }

    /// The number of parameters.
    fn parameters(&self) -> usize {
        self.0.parameters()
    }

    /// Writes a model directory.
    fn write(&self, py: Python, out: PathBuf, settings: &str) -> PyResult<()> {
        working(py, |_| {
            let output: Output = serde_json::from_str(settings)?;
            let layout = Layout::of(&output, &self.0.network)?;
            self.0.write(&out, layout, None, "Made with wave.")
        })
    }
}

/// The values of a tensor.
fn values(t: &Tensor) -> candle_core::Result<Vec<f32>> {
    t.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

/// A model of a depth and width from templates, with a delta of them if given; without a name, from the
/// first shipped set.
#[pyfunction]
#[pyo3(signature = (templates, depth, width, heads, delta))]
fn expand(
    py: Python,
    templates: Option<PathBuf>,
    depth: usize,
    width: usize,
    heads: Option<usize>,
    delta: Option<PathBuf>,
) -> PyResult<Model> {
    working(py, |context| {
        let dir = wave::shipped::resolve(templates.as_deref(), context)?;
        let mut templates = wave::templates::fetch(&dir, context)?;
        if let Some(delta) = &delta {
            templates = templates.adapted(&wave::delta::fetch(delta, context)?)?;
        }
        let shape = templates.learngene.shape(depth, width, heads)?;
        Ok(templates.model(&shape)?)
    })
    .map(Model)
}

/// A model by a method of `wave init`.
#[pyfunction]
fn init(py: Python, method: &str, settings: &str) -> PyResult<Model> {
    working(py, |context| {
        let settings: Init = parsed("init", None, settings)?.1;
        wave::init::new_model(method, &settings, context)
    })
    .map(Model)
}

/// The model in a directory.
#[pyfunction]
fn read(py: Python, path: PathBuf) -> PyResult<Model> {
    working(py, |context| Ok(wave::model::Model::read(&path, context)?)).map(Model)
}

/// Condenses as a recipe says, from a network of Python's if given; the result is that of `--json`.
#[pyfunction]
#[pyo3(signature = (recipe, out, settings, ancestor))]
fn condense(
    py: Python,
    recipe: PathBuf,
    out: PathBuf,
    settings: &str,
    ancestor: Option<Foreign>,
) -> PyResult<String> {
    working(py, |context| {
        let (name, mut settings): (_, Condense) = parsed("condense", Some(&recipe), settings)?;
        let ancestors = Ancestors::default();
        if let Some(foreign) = ancestor {
            let (name, ancestor) = foreign.ancestor(context)?;
            ancestors.insert(&name, ancestor);
            settings.ancestor = Some(name);
        }
        let result =
            wave::condense::condense(&name, &settings, &ancestors, &out, &options(context))?;
        Ok(result.to_string())
    })
}

/// Adapts templates to other data; the result is that of `--json`.
#[pyfunction]
fn adapt(py: Python, templates: PathBuf, out: PathBuf, settings: &str) -> PyResult<String> {
    working(py, |context| {
        let settings: Adapt = parsed("adapt", None, settings)?.1;
        let templates = wave::shipped::resolve(Some(&templates), context)?;
        let result = wave::adapt::adapt(&templates, &settings, &out, &options(context))?;
        Ok(result.to_string())
    })
}

/// Fine-tunes a model directory; the result is that of `--json`.
#[pyfunction]
fn finetune(py: Python, model: PathBuf, out: PathBuf, settings: &str) -> PyResult<String> {
    working(py, |context| {
        let settings: Finetune = parsed("finetune", None, settings)?.1;
        let result = wave::finetune::finetune(&model, &settings, &out, &options(context))?;
        Ok(result.to_string())
    })
}

/// Accuracy of a model directory; the result is that of `--json`.
#[pyfunction]
fn evaluate(py: Python, model: PathBuf, settings: &str) -> PyResult<String> {
    working(py, |context| {
        let settings: Eval = parsed("eval", None, settings)?.1;
        Ok(wave::eval::eval(&model, &settings, context)?.to_string())
    })
}

/// Contents of a template or model directory; the result is that of `--json`.
#[pyfunction]
fn inspect(py: Python, path: PathBuf) -> PyResult<String> {
    working(py, |context| {
        Ok(wave::inspect::inspect(&path, &Pictures::default(), context)?.to_string())
    })
}

/// The templates at hand; the result is that of `--json`.
#[pyfunction]
fn templates(py: Python, dirs: Vec<PathBuf>) -> PyResult<String> {
    working(py, |context| {
        Ok(wave::shipped::list(&dirs, context)?.to_string())
    })
}

/// The name of a recipe, and the settings of its table with those that a caller gives, as JSON.
fn parsed<T>(table: &str, recipe: Option<&Path>, settings: &str) -> Result<(String, T)>
where
    T: Serialize + DeserializeOwned + Default,
{
    let recipe = match recipe {
        Some(path) => Recipe::read(path, &[])?,
        None => Recipe::empty(table, &[])?,
    };
    let given: toml::Table = serde_json::from_str(settings)?;
    let settings = recipe.stage(table, Some(&given), &T::default())?;
    Ok((recipe.name, settings))
}

fn options(context: &Context) -> Options {
    Options {
        context: context.clone(),
        ..Options::default()
    }
}

/// Works on a thread of its own, so that Python's signals are seen meanwhile: Ctrl-C asks a training to
/// save its state and end.
fn working<T: Send>(py: Python, work: impl FnOnce(&Context) -> Result<T> + Send) -> PyResult<T> {
    let interruption = Interruption::default();
    let context = Context::new(
        candle_core::Device::Cpu,
        Box::new(Alone),
        interruption.clone(),
    );
    std::thread::scope(|scope| {
        let (done, end) = mpsc::channel::<()>();
        let worker = scope.spawn(|| {
            let _done = done; // nothing is sent: its end wakes the other thread
            work(&context)
        });
        let (signal, result) = py.detach(move || {
            let mut signal = Ok(());
            while end.recv_timeout(SIGNALS) == Err(RecvTimeoutError::Timeout) {
                if signal.is_ok() {
                    signal = Python::attach(|py| py.check_signals());
                    if signal.is_err() {
                        interruption.request();
                    }
                }
            }
            (signal, worker.join())
        });
        signal?;
        match result {
            Ok(result) => result.map_err(raised),
            Err(_) => Err(PyRuntimeError::new_err("wave failed; its message is above")),
        }
    })
}

/// `ValueError` where the request is wrong, `RuntimeError` where the work failed.
fn raised(error: anyhow::Error) -> PyErr {
    const WRONG_REQUEST: u8 = 2;
    match exit_code(&error) {
        WRONG_REQUEST => PyValueError::new_err(describe(&error)),
        _ => PyRuntimeError::new_err(describe(&error)),
    }
}

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Model>()?;
    module.add_function(wrap_pyfunction!(expand, module)?)?;
    module.add_function(wrap_pyfunction!(init, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(condense, module)?)?;
    module.add_function(wrap_pyfunction!(adapt, module)?)?;
    module.add_function(wrap_pyfunction!(finetune, module)?)?;
    module.add_function(wrap_pyfunction!(evaluate, module)?)?;
    module.add_function(wrap_pyfunction!(inspect, module)?)?;
    module.add_function(wrap_pyfunction!(templates, module)?)?;
    Ok(())
}
