//! Export to ONNX: a vision transformer as a graph that any runtime executes.
//!
//! The graph takes `images` (batch, channels, side, side), normalised as the model expects, and gives `logits` (batch,
//! classes); the batch is free. Operator set 17 is the first with LayerNormalization; GELU is stated by its definition,
//! since the operator came later. Weights keep timm's names, except that the matrices of the blocks are stored
//! transposed, as MatMul expects them, under the name with `_t` appended. Weights stored as f16 or bf16, under their
//! name with the type appended, are widened to f32 by Cast nodes, which runtimes fold away when they load the file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::atomic::Staged;
use crate::proto::Message;
use crate::tensors::raw;
use crate::{FloatType, HubError, Weights};

mod graph;
mod schema;

/// The version of ONNX's operators that the graph uses.
const OPSET: i64 = 17;
/// The file format's version that came with [`OPSET`].
const IR_VERSION: i64 = 8;
/// Protocol Buffers cannot hold more.
const MAX_BYTES: u64 = 2_147_483_647;

/// The sizes of a vision transformer, whose weights have timm's names.
#[derive(Debug, Clone, PartialEq)]
pub struct VitSizes {
    /// Side of the square input, in pixels; a multiple of `patch`.
    pub image_size: usize,
    /// Channels of the input.
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of a token; a multiple of `heads`.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Outputs of the classifier.
    pub classes: usize,
    /// True if a class token is classified (and the last norm is `norm`); otherwise the mean
    /// over the tokens is (and it is `fc_norm`).
    pub class_token: bool,
    /// The epsilon of every layer norm; timm's is 1e-6.
    pub norm_eps: f32,
}

impl VitSizes {
    /// Patches along a side.
    fn grid(&self) -> usize {
        self.image_size / self.patch
    }

    fn last_norm(&self) -> &'static str {
        if self.class_token { "norm" } else { "fc_norm" }
    }
}

/// Stages a vision transformer as the ONNX file `path`. `weights` are those of timm's network of these sizes, all of
/// type `float`. `metadata` becomes the file's free text: label names, normalisation and the like.
///
/// Everything before the weights is put together first, then they are written one by one, so that they are never in
/// memory twice. Refuses a file beyond the format's 2 GiB.
pub(crate) fn stage(
    path: &Path,
    sizes: &VitSizes,
    weights: &Weights,
    metadata: &BTreeMap<String, String>,
    float: FloatType,
) -> Result<Staged, HubError> {
    let graph = graph::vit(sizes, weights, float).map_err(HubError::tensor(path, "blocks"))?;
    let side = sizes.image_size;
    let mut body = Message::new().text(schema::GRAPH_NAME, "vit");
    for node in graph.nodes {
        body = body.message(schema::GRAPH_NODE, node);
    }
    let image = [None, Some(sizes.channels), Some(side), Some(side)];
    let logits = [None, Some(sizes.classes)];
    body = body
        .message(schema::GRAPH_INPUT, schema::float_value("images", &image))
        .message(schema::GRAPH_OUTPUT, schema::float_value("logits", &logits));
    for constant in graph.constants {
        body = body.message(schema::GRAPH_INITIALIZER, constant);
    }
    let mut length = body.as_bytes().len();
    let mut heads = Vec::new();
    for (name, tensor) in &graph.weights {
        let head = schema::float_head(name, tensor.dims(), float);
        let bytes = float.bytes() * tensor.elem_count();
        let open = Message::new().open(schema::GRAPH_INITIALIZER, head.as_bytes().len() + bytes);
        let head = open.then(head.as_bytes());
        length += head.as_bytes().len() + bytes;
        heads.push(head);
    }
    let opset = Message::new()
        .text(schema::OPSET_DOMAIN, "")
        .int(schema::OPSET_VERSION, OPSET);
    let mut file = Message::new()
        .int(schema::MODEL_IR_VERSION, IR_VERSION)
        .text(schema::MODEL_PRODUCER_NAME, "wave")
        .text(schema::MODEL_PRODUCER_VERSION, env!("CARGO_PKG_VERSION"))
        .message(schema::MODEL_OPSET_IMPORT, opset);
    for (key, value) in metadata {
        let entry = Message::new()
            .text(schema::ENTRY_KEY, key)
            .text(schema::ENTRY_VALUE, value);
        file = file.message(schema::MODEL_METADATA_PROPS, entry);
    }
    let file = file.open(schema::MODEL_GRAPH, length);
    let total = (file.as_bytes().len() + length) as u64;
    if total > MAX_BYTES {
        let found =
            format!("the model takes {total} bytes, but an ONNX file holds at most {MAX_BYTES}");
        return Err(HubError::unwritable(path, found, "export a smaller model"));
    }
    Staged::new(path, |out| {
        let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(HubError::io("write", path));
        put(file.as_bytes())?;
        put(body.as_bytes())?;
        for (head, (name, tensor)) in heads.iter().zip(&graph.weights) {
            put(head.as_bytes())?;
            put(&raw(tensor).map_err(HubError::tensor(path, name))?)?;
        }
        Ok(())
    })
}

#[cfg(test)]
#[path = "onnx_tests.rs"]
mod tests;
