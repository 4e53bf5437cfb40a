//! The surroundings of Python's calls: device, threads, progress, and Ctrl-C.

use anyhow::Result;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use serde_json::Value;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use wave::context::Context;
use wave::finetune::Options;
use wave::progress::{self, Event, Verbosity, Watcher};
use wave_run::error::{describe, exit_code};
use wave_run::interrupt::Interruption;
use wave_run::{device, threads};
use wave_train::Alone;

/// Time between two looks at Python's signals.
const SIGNALS: Duration = Duration::from_millis(50);

/// The keywords that all calls share.
#[derive(FromPyObject)]
pub(crate) struct Run {
    device: String,
    threads: Option<usize>,
    resume: bool,
    overwrite: bool,
    /// Takes `(task, label, done, total, text)`: a task's steps, without `done` its end, without `task` a line.
    progress: Option<Py<PyAny>>,
}

impl Run {
    /// Works on threads of its own, so that Python's signals are seen meanwhile: Ctrl-C asks a training to
    /// save its state and end.
    pub(crate) fn working<T: Send>(
        &self,
        py: Python,
        work: impl FnOnce(&Options) -> Result<T> + Send,
    ) -> PyResult<T> {
        let interruption = Interruption::default();
        let (to, events) = mpsc::channel();
        std::thread::scope(|scope| {
            let asked = interruption.clone();
            // The channel closes when the work is over, also where it panics.
            let worker = scope.spawn(move || self.work(asked, &to, work));
            let (signal, result) = py.detach(move || {
                let mut signal = Ok(());
                loop {
                    let told = match events.recv_timeout(SIGNALS) {
                        Ok(event) => self.show(event),
                        Err(RecvTimeoutError::Timeout) if !worker.is_finished() => Ok(()),
                        Err(_) => break,
                    };
                    if signal.is_ok() {
                        signal = told.and_then(|()| Python::attach(|py| py.check_signals()));
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

    /// [`Run::working`] for the output of `--json`.
    pub(crate) fn json(
        &self,
        py: Python,
        work: impl FnOnce(&Options) -> Result<Value> + Send,
    ) -> PyResult<String> {
        self.working(py, |options| Ok(work(options)?.to_string()))
    }

    fn work<T: Send>(
        &self,
        interruption: Interruption,
        to: &Sender<Event>,
        work: impl FnOnce(&Options) -> Result<T> + Send,
    ) -> Result<T> {
        let device = device::choose(&self.device, 0)?;
        let watched = self.progress.is_some();
        let options = Options {
            context: Context::new(device, Box::new(Alone), interruption),
            resume: self.resume,
            overwrite: self.overwrite,
            verbosity: match watched {
                true => Verbosity::Normal,
                false => Verbosity::Quiet,
            },
            profile: false,
        };
        let watcher: Option<Watcher> = watched.then(|| -> Watcher {
            let to = to.clone();
            Arc::new(move |event| {
                let _ = to.send(event); // nobody listens after an error
            })
        });
        threads::pool(self.threads)?.install(|| progress::watched(watcher, || work(&options)))
    }

    /// Hands a message on to Python.
    fn show(&self, event: Event) -> PyResult<()> {
        let Some(progress) = &self.progress else {
            return Ok(());
        };
        let message = match event {
            Event::Step {
                task,
                label,
                done,
                total,
                text,
            } => (Some(task), label, Some(done), total, text),
            Event::End { task } => (Some(task), String::new(), None, 0, String::new()),
            Event::Line(text) => (None, String::new(), None, 0, text),
        };
        Python::attach(|py| progress.call1(py, message).map(drop))
    }
}

/// `ValueError` where the request is wrong, `RuntimeError` where the work failed.
pub(crate) fn raised(error: impl Into<anyhow::Error>) -> PyErr {
    const WRONG_REQUEST: u8 = 2;
    let error = error.into();
    match exit_code(&error) {
        WRONG_REQUEST => PyValueError::new_err(describe(&error)),
        _ => PyRuntimeError::new_err(describe(&error)),
    }
}
