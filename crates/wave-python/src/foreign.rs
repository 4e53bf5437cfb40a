//! Networks of Python as ancestors.

use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::Path;
use wave::context::Context;
use wave_artefacts::origin;
use wave_artefacts::preprocessing::transform;
use wave_hub::{Preprocessing, PretrainedCfg};
use wave_models::{About, Frozen};
use wave_run::error::request;
use wave_stages::ancestor::Ancestor;

/// A network of Python.
#[derive(FromPyObject)]
pub(crate) struct Foreign {
    /// The name of the class that it is of.
    name: String,
    parameters: usize,
    /// SHA-256 of its weights.
    digest: String,
    /// timm's, as JSON.
    pretrained_cfg: String,
    classes: usize,
    /// Width of the features.
    width: usize,
    /// Takes images (b, channels, side, side) as bytes of little-endian f32, b, and whether features are
    /// asked for; returns the outputs (b, n) in the same way.
    run: Py<PyAny>,
}

impl Foreign {
    /// The ancestor, with the name that it goes by in the settings.
    pub(crate) fn ancestor(self, context: &Context) -> Result<(String, Ancestor)> {
        let cfg: PretrainedCfg = serde_json::from_str(&self.pretrained_cfg)?;
        let [channels, height, width] = cfg.input_size;
        if height != width {
            return Err(request(format!(
                "input_size: {height} x {width} pixels; expected square images"
            )));
        }
        let steps = Preprocessing::from(&cfg);
        let transform = transform(&steps, Path::new("preprocessing"), height)?;
        let network = Network {
            about: About {
                family: "a network in Python",
                depth: 0,
                width: self.width,
                channels,
                image_size: height,
                classes: self.classes,
            },
            run: self.run,
        };
        let ancestor = Ancestor::foreign(
            Box::new(network),
            self.parameters,
            transform,
            self.digest,
            // `pretrained_cfg` names a checkpoint of the architecture. Whose weights these are, nothing says.
            origin::unknown(),
            context,
        );
        Ok((format!("python:{}", self.name), ancestor))
    }
}

/// A network that Python runs.
struct Network {
    about: About,
    run: Py<PyAny>,
}

impl Network {
    fn outputs(&self, images: &Tensor, features: bool) -> candle_core::Result<Tensor> {
        let images = self.about.checked(images, &Device::Cpu)?;
        let values = values(&images)?.into_iter();
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let b = images.dim(0)?;
        let outputs = Python::attach(|py| {
            let given = (PyBytes::new(py, &bytes), b, features);
            self.run.call1(py, given)?.extract::<Vec<u8>>(py)
        });
        let outputs = outputs.map_err(candle_core::Error::wrap)?;
        let n = match features {
            true => self.about.width,
            false => self.about.classes,
        };
        Tensor::from_vec(floats(&outputs), (b, n), &Device::Cpu)
    }
}

impl Frozen for Network {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn features(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        self.outputs(images, true)
    }

    fn logits(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        match self.about.classes {
            0 => self.about.headless(),
            _ => self.outputs(images, false),
        }
    }
}

/// The values of a tensor.
pub(crate) fn values(t: &Tensor) -> candle_core::Result<Vec<f32>> {
    t.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
}

/// Little-endian f32.
pub(crate) fn floats(bytes: &[u8]) -> Vec<f32> {
    let (values, _) = bytes.as_chunks::<4>();
    values.iter().map(|v| f32::from_le_bytes(*v)).collect()
}
