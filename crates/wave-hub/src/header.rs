//! The header of a safetensors file: 8 bytes of little-endian length, then JSON, then the data.
//!
//! The errors of the `safetensors` crate do not always name the tensor, and its sum of offsets may overflow on a
//! hostile file, so headers are checked here. It also takes the metadata as a `HashMap`, whose order differs between
//! runs, so headers are built here: metadata first, in key order, then the tensors.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::Tensor;
use safetensors::tensor::{TensorInfo, TensorView};
use serde_json::{Map, Value, json};

use crate::{HubError, Metadata};

/// The key that the format reserves for free text.
pub(crate) const METADATA: &str = "__metadata__";
const LENGTH_BYTES: usize = 8;
/// The format's own limit, in bytes.
const MAX_HEADER: u64 = 100_000_000;
const COPY_AGAIN: &str = "the file is damaged or cut short: copy, download or write it again";

pub(crate) struct Parsed<'a> {
    /// In name order.
    pub(crate) tensors: BTreeMap<String, TensorView<'a>>,
    pub(crate) metadata: Metadata,
    /// All bytes after the header.
    pub(crate) data: &'a [u8],
}

pub(crate) fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<Parsed<'a>, HubError> {
    taken_apart(bytes).map_err(|found| match another_format(bytes) {
        Some((found, remedy)) => HubError::malformed(path, found, remedy),
        None => HubError::malformed(path, found, COPY_AGAIN),
    })
}

/// The bytes before the data: length and padded JSON. `tensors` in the order of their data.
pub(crate) fn build(metadata: &Metadata, tensors: &[(&String, &Tensor)]) -> Vec<u8> {
    let mut entries = Map::new();
    if !metadata.is_empty() {
        entries.insert(METADATA.to_owned(), json!(metadata));
    }
    let mut start = 0;
    for (name, tensor) in tensors {
        let end = start + tensor.elem_count() * tensor.dtype().size_in_bytes();
        let info = TensorInfo {
            dtype: tensor.dtype().into(),
            shape: tensor.dims().to_vec(),
            data_offsets: (start, end),
        };
        entries.insert((*name).clone(), json!(info));
        start = end;
    }
    let mut json = Value::Object(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(LENGTH_BYTES), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.extend(json);
    header
}

fn taken_apart(bytes: &[u8]) -> Result<Parsed<'_>, String> {
    if bytes.is_empty() {
        return Err("is empty (0 bytes), expected a safetensors file".to_owned());
    }
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        let n = bytes.len();
        return Err(format!(
            "holds {n} bytes, fewer than the {LENGTH_BYTES} a safetensors file starts with"
        ));
    };
    let (length, held) = (u64::from_le_bytes(*length), rest.len());
    if length > MAX_HEADER.min(held as u64) {
        let start = match length > MAX_HEADER {
            true => "does not begin like a safetensors file: ",
            false => "",
        };
        return Err(format!(
            "{start}its first {LENGTH_BYTES} bytes declare a safetensors header of {length} bytes, \
             but {held} bytes follow"
        ));
    }
    let (json, data) = rest.split_at(length as usize);
    let mut entries: BTreeMap<String, Value> = serde_json::from_slice(json)
        .map_err(|cause| format!("its safetensors header is not a JSON object: {cause}"))?;
    let metadata = match entries.remove(METADATA) {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(texts) => serde_json::from_value(texts)
            .map_err(|cause| format!("`{METADATA}` is invalid, expected strings: {cause}"))?,
    };
    let mut tensors = BTreeMap::new();
    let mut places = Vec::with_capacity(entries.len());
    for (name, entry) in entries {
        let info: TensorInfo = serde_json::from_value(entry)
            .map_err(|cause| format!("tensor `{name}` has a broken header entry: {cause}"))?;
        check_entry(&name, &info, data.len())?;
        let (start, end) = info.data_offsets;
        let view = TensorView::new(info.dtype, info.shape, &data[start..end])
            .map_err(|cause| format!("tensor `{name}` is not valid: {cause}"))?;
        places.push((start, end, name.clone()));
        tensors.insert(name, view);
    }
    places.sort();
    let mut held = 0;
    for (start, end, name) in places {
        if start != held {
            return Err(format!(
                "the bytes of tensor `{name}` overlap the tensor before it or leave a gap"
            ));
        }
        held = end;
    }
    if held != data.len() {
        return Err("holds bytes that belong to no tensor after the last one".to_owned());
    }
    Ok(Parsed {
        tensors,
        metadata,
        data,
    })
}

fn check_entry(name: &str, info: &TensorInfo, held: usize) -> Result<(), String> {
    let (start, end) = info.data_offsets;
    if start > end {
        return Err(format!(
            "tensor `{name}` ends at byte {end}, before its start at {start}"
        ));
    }
    if end > held {
        return Err(format!(
            "tensor `{name}` ends at byte {end} of the data, but the file holds {held}"
        ));
    }
    let (shape, dtype) = (&info.shape, info.dtype);
    // A zero dimension does not excuse the others: strides are products too.
    let sides = shape.iter().map(|&side| side.max(1));
    let mut factors = sides.chain([dtype.bitsize()]);
    let bits = match factors.try_fold(1usize, usize::checked_mul) {
        Some(_) if shape.contains(&0) => 0,
        Some(bits) => bits,
        None => return Err(format!("tensor `{name}` has an impossible shape {shape:?}")),
    };
    let (needed, held) = (bits.div_ceil(8), end - start);
    if needed != held {
        return Err(format!(
            "tensor `{name}` of shape {shape:?} and type {dtype} needs {needed} bytes, but has {held}"
        ));
    }
    Ok(())
}

/// Recognises formats that people mistake for safetensors. Called only once the file is known to be invalid: a valid
/// file may begin with any of these bytes, since they are its header's length.
fn another_format(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    if bytes.get(LENGTH_BYTES) == Some(&b'{') {
        return None;
    }
    let convert = "load it in Python and save the weights with `safetensors.torch.save_file`";
    let archive = "is a zip archive, like PyTorch's .pt, .pth and .bin files, not safetensors";
    let pickle = "is a Python pickle, like old PyTorch files, not safetensors";
    let pointer = "is a Git LFS pointer, not the file it stands for";
    let pull = "run `git lfs pull` where it came from";
    let other = "name a .safetensors file, a .pth file of PyTorch or a model directory";
    let known: [(&[u8], _, _); 5] = [
        (b"PK", archive, convert),
        (&[0x80], pickle, convert),
        (b"version https://git-lfs", pointer, pull),
        (b"\x89PNG", "is a PNG image, not safetensors", other),
        (b"\xff\xd8\xff", "is a JPEG image, not safetensors", other),
    ];
    let mut known = known.into_iter();
    let found = known.find(|(start, ..)| bytes.starts_with(start));
    let printable = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let start = bytes.first_chunk::<LENGTH_BYTES>();
    let is_text = start.is_some_and(|start| start.iter().all(printable));
    let text = is_text.then_some(("is text, not safetensors", other));
    found.map(|(_, found, remedy)| (found, remedy)).or(text)
}
