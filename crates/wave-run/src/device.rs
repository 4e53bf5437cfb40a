//! The device that trains and runs networks: the processor, or a GPU in builds with the feature `cuda`.
//!
//! Artefacts are read and written on the host. Weights move to the device before a network runs
//! (`place`) or trains (`train::variable`); images follow the weights, targets the logits.

use crate::error::request;
use anyhow::Result;
use candle_core::Device;
use std::sync::OnceLock;
use wave_models::Weights;

static DEVICE: OnceLock<Device> = OnceLock::new();

/// Chooses the device once, by its name on the command line: `cpu`, `cuda:N`, or `cuda` for GPU number
/// `own`.
///
/// # Errors
/// If there is no such device, or this build cannot use it.
pub fn choose(name: &str, own: usize) -> Result<()> {
    let own = own.to_string();
    let device = match name.split_once(':') {
        None if name == "cpu" => Device::Cpu,
        None if name == "cuda" => cuda(name, &own)?,
        Some(("cpu", "0")) => Device::Cpu,
        Some(("cuda", number)) => cuda(name, number)?,
        _ => {
            return Err(request(format!(
                "--device {name}: expected cpu, cuda or cuda:N"
            )));
        }
    };
    DEVICE
        .set(device)
        .map_err(|_| request(format!("--device {name}: another one is in use")))
}

#[cfg(feature = "cuda")]
fn cuda(name: &str, number: &str) -> Result<Device> {
    let wrong = |why: String| request(format!("--device {name}: {why}"));
    let number = number
        .parse()
        .map_err(|_| wrong("expected a number after cuda:".into()))?;
    Device::new_cuda(number).map_err(|e| wrong(e.to_string()))
}

#[cfg(not(feature = "cuda"))]
fn cuda(name: &str, _: &str) -> Result<Device> {
    Err(request(format!(
        "--device {name}: this build computes on the processor only; build wave with --features \
         cuda, or leave the flag out"
    )))
}

/// The device chosen; the processor if none was.
pub fn device() -> &'static Device {
    DEVICE.get().unwrap_or(&Device::Cpu)
}

/// Weights on the device.
pub fn place(weights: &Weights) -> candle_core::Result<Weights> {
    weights
        .iter()
        .map(|(name, t)| Ok((name.clone(), t.to_device(device())?)))
        .collect()
}
