//! Names of devices: the CPU, or a GPU in builds with the feature `cuda`.

use anyhow::Result;
use candle_core::Device;
use wave_models::refuse;

/// The device named on the command line: `cpu`, `cuda:N`, or `cuda` for GPU number `own`. Refuses one that is missing,
/// or that this build cannot use.
pub fn choose(name: &str, own: usize) -> Result<Device> {
    let own = own.to_string();
    match name.split_once(':') {
        None if name == "cpu" => Ok(Device::Cpu),
        None if name == "cuda" => cuda(name, &own),
        Some(("cpu", "0")) => Ok(Device::Cpu),
        Some(("cuda", number)) => cuda(name, number),
        _ => refuse!("--device {name}: expected cpu, cuda or cuda:N"),
    }
}

#[cfg(feature = "cuda")]
fn cuda(name: &str, number: &str) -> Result<Device> {
    let wrong = |why: String| crate::error::request(format!("--device {name}: {why}"));
    let number = number
        .parse()
        .map_err(|_| wrong("expected a number after cuda:".into()))?;
    Device::new_cuda(number).map_err(|e| wrong(e.to_string()))
}

#[cfg(not(feature = "cuda"))]
fn cuda(name: &str, _: &str) -> Result<Device> {
    refuse!(
        "--device {name}: this build runs on the CPU only; build wave with --features cuda, or \
         drop --device"
    )
}
