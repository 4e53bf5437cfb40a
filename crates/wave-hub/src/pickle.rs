//! PyTorch's `.pth` files that hold tensors, read by candle, which runs no code from them.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use candle_core::Tensor;
use candle_core::pickle::{Object, PthTensors, Stack, TensorInfo};

use crate::element::{CONVERT, type_in_memory};
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
///
/// # Errors
/// If the file cannot be read.
pub(crate) fn is_archive(path: &Path) -> Result<bool, HubError> {
    let start = read_start(path, 9)?;
    Ok(start.starts_with(b"PK\x03\x04") && start.get(8) != Some(&b'{'))
}

/// The tensors of a state dict, or of a checkpoint that holds one; the prefix `module.`, which training on several
/// devices adds to each name, is removed.
///
/// # Errors
/// [`HubError::Malformed`] when the file is not such an archive, holds no tensors or one of another element type.
pub(crate) fn read(path: &Path) -> Result<Weights, HubError> {
    let about = fs::metadata(path).map_err(HubError::io("read", path))?;
    let damaged = || Err("it is damaged".to_owned());
    let read = quietly(|| read_keys(path, about.len() as usize)).unwrap_or_else(damaged);
    let (tensors, fault) = read.map_err(|cause| {
        let found = format!("is a zip archive, but not a PyTorch state dict: {cause}");
        let remedy = "load it in Python and save the weights with `safetensors.torch.save_file`";
        HubError::malformed(path, found, remedy)
    })?;
    if let Some(found) = fault {
        return Err(HubError::malformed(path, found, CONVERT));
    }
    let kept = |(name, tensor): (String, Tensor)| {
        let kept = type_in_memory(path, &name, tensor.dtype().into(), tensor.dims())?;
        let tensor = tensor.to_dtype(kept);
        let tensor = tensor.map_err(HubError::tensor(path, &name))?;
        Ok((name, tensor))
    };
    tensors.into_iter().map(kept).collect()
}

/// Named tensors, and the fault of one that was left out.
type Found = (Vec<(String, Tensor)>, Option<String>);

fn read_keys(path: &Path, file_bytes: usize) -> Result<Found, String> {
    for key in KEYS {
        // A key that is not there is an error of candle's, as a damaged file is.
        let Ok(pth) = PthTensors::new(path, key) else {
            continue;
        };
        let (infos, fault) = (pth.tensor_infos(), left_out(path, key));
        if infos.is_empty() && fault.is_none() {
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
        let tensors = infos.iter().map(one).collect::<Result<_, _>>()?;
        return Ok((tensors, fault));
    }
    Err("it holds no named tensors".to_owned())
}

/// The fault of a tensor under `key` that candle's reader leaves out, if there is one: its element type is not
/// supported, or it is quantised. Only in files as PyTorch writes them, which begin with the pickle, not compressed.
fn left_out(path: &Path, key: Option<&str>) -> Option<String> {
    let mut file = BufReader::new(File::open(path).ok()?);
    let mut header = [0; 30];
    file.read_exact(&mut header).ok()?;
    let lengths = [26, 28].map(|at| i64::from(u16::from_le_bytes([header[at], header[at + 1]])));
    file.seek_relative(lengths.iter().sum()).ok()?; // the name, and padding
    let mut stack = Stack::empty();
    stack.read_loop(&mut file).ok()?;
    let mut entries = stack.finalize().ok()?.dict().ok()?;
    if let Some(key) = key {
        let key = Object::Unicode(key.to_owned());
        let (_, under) = entries.into_iter().find(|(name, _)| *name == key)?;
        entries = under.dict().ok()?;
    }
    entries.into_iter().find_map(|(name, value)| {
        let (callable, _) = value.clone().reduce().ok()?;
        let (_, class) = callable.class().ok()?;
        let said = name.clone().unicode().ok()?;
        match value.into_tensor_info(name, Path::new("")) {
            Err(cause) => Some(format!("tensor `{said}`: {cause}")),
            Ok(None) if class.starts_with("_rebuild") => {
                Some(format!("tensor `{said}` is stored as {class}"))
            }
            Ok(_) => None,
        }
    })
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
