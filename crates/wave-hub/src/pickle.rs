//! PyTorch's `.pth` files that hold tensors, read by candle, which runs no code from them.

use std::cell::Cell;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use candle_core::Tensor;
use candle_core::pickle::{PthTensors, TensorInfo};

use crate::element::type_in_memory;
use crate::files::read_start;
use crate::{HubError, Weights};

/// Keys of the weights in checkpoints, in timm's order: averaged ones first. A plain state dict has none of these, and
/// a checkpoint may have other tensors beside them, such as its accuracy.
const KEYS: [Option<&str>; 5] = [
    Some("state_dict_ema"),
    Some("model_ema"),
    Some("state_dict"),
    Some("model"),
    None,
];

/// True if a file begins as a zip archive and not as safetensors, whose header opens at byte 8.
pub(crate) fn is_archive(path: &Path) -> Result<bool, HubError> {
    let start = read_start(path, 9)?;
    Ok(start.starts_with(b"PK\x03\x04") && start.get(8) != Some(&b'{'))
}

/// The tensors of a state dict, or of a checkpoint with one; names lose the prefix `module.` of parallel training.
pub(crate) fn read(path: &Path) -> Result<Weights, HubError> {
    let about = fs::metadata(path).map_err(HubError::io("read", path))?;
    let damaged = || Err("it is damaged".to_owned());
    let tensors = quietly(|| read_keys(path, about.len() as usize)).unwrap_or_else(damaged);
    let tensors = tensors.map_err(|cause| {
        let found = format!("is a zip archive, but not a PyTorch state dict: {cause}");
        let remedy = "load it in Python and save the weights with `safetensors.torch.save_file`";
        HubError::malformed(path, found, remedy)
    })?;
    let kept = |(name, tensor): (String, Tensor)| {
        let kept = type_in_memory(path, &name, tensor.dtype().into(), tensor.dims())?;
        let tensor = tensor.to_dtype(kept);
        let tensor = tensor.map_err(HubError::tensor(path, &name))?;
        Ok((name, tensor))
    };
    tensors.into_iter().map(kept).collect()
}

fn read_keys(path: &Path, file_bytes: usize) -> Result<Vec<(String, Tensor)>, String> {
    for key in KEYS {
        // A key that is not there is an error of candle's, as a damaged file is.
        let Ok(pth) = PthTensors::new(path, key) else {
            continue;
        };
        let infos = pth.tensor_infos();
        if infos.is_empty() {
            continue;
        }
        let one = |(name, info): (&String, &TensorInfo)| {
            let sides = info.layout.dims().iter().copied();
            let bytes = sides.fold(info.dtype.size_in_bytes(), usize::saturating_mul);
            if bytes > file_bytes {
                return Err(format!("tensor `{name}` is larger than the file"));
            }
            let tensor = pth.get(name);
            let tensor = tensor.map_err(|cause| format!("tensor `{name}`: {cause}"))?;
            let tensor = tensor.ok_or_else(|| format!("tensor `{name}` is missing"))?;
            let name = name.strip_prefix("module.").unwrap_or(name);
            Ok((name.to_owned(), tensor))
        };
        return infos.iter().map(one).collect();
    }
    Err("it holds no named tensors".to_owned())
}

/// The result of `work`, or nothing if it panics, as candle's reader does on some damaged files. The hook of panics is
/// set once and is silent on this thread alone, so that other threads still print theirs.
fn quietly<T>(work: impl FnOnce() -> T) -> Option<T> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                others(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    result.ok()
}

#[cfg(test)]
#[path = "pickle_tests.rs"]
mod tests;
