//! Export to ONNX: a vision transformer as a graph that any runtime executes.
//!
//! The graph takes `images` (batch, channels, side, side), normalised as the model expects, and gives `logits` (batch,
//! classes); the batch is free. Operator set 17 is the first with LayerNormalization; GELU is stated by its definition,
//! since the operator came later. Weights keep timm's names, except that the matrices of the blocks are stored
//! transposed, as MatMul expects them, under the name with `_t` appended. Weights stored as f16 or bf16, under their
//! name with the type appended, are widened to f32 by Cast nodes, which runtimes fold away when they load the file.

use std::path::Path;

use crate::atomic::Staged;
use crate::proto::Message;
use crate::tensors::raw;
use crate::{FloatType, HubError, Metadata, Weights};

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
pub(crate) struct VitSizes {
    /// Side of the square input, in pixels; a multiple of `patch`.
    pub(crate) image_size: usize,
    pub(crate) channels: usize,
    pub(crate) patch: usize,
    pub(crate) depth: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) classes: usize,
    /// True if a class token is classified (and the last norm is `norm`); otherwise the mean
    /// over the tokens is (and it is `fc_norm`).
    pub(crate) class_token: bool,
    pub(crate) norm_eps: f32,
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
/// type `float`. `metadata` becomes the file's free text.
///
/// Everything before the weights is put together first, then they are written one by one, so that they are never in
/// memory twice. Refuses a file beyond the format's 2 GiB.
pub(crate) fn stage(
    path: &Path,
    sizes: &VitSizes,
    weights: &Weights,
    metadata: &Metadata,
    float: FloatType,
) -> Result<Staged, HubError> {
    let graph = graph::vit(sizes, weights, float).map_err(HubError::tensor(path, "blocks"))?;
    let side = sizes.image_size;
    // GraphProto: node 1, name 2, initializer 5, input 11, output 12.
    let mut body = Message::new().text(2, "vit");
    for node in graph.nodes {
        body = body.message(1, node);
    }
    let image = schema::float_value("images", &[sizes.channels, side, side]);
    let logits = schema::float_value("logits", &[sizes.classes]);
    body = body.message(11, image).message(12, logits);
    for constant in graph.constants {
        body = body.message(5, constant);
    }
    let mut length = body.as_bytes().len();
    let mut heads = Vec::new();
    for (name, tensor) in &graph.weights {
        let head = schema::float_head(name, tensor.dims(), float);
        let bytes = float.bytes() * tensor.elem_count();
        let open = Message::new().open(5, head.as_bytes().len() + bytes);
        let head = open.then(head.as_bytes());
        length += head.as_bytes().len() + bytes;
        heads.push(head);
    }
    // OperatorSetIdProto: domain 1, version 2.
    let opset = Message::new().text(1, "").int(2, OPSET);
    // ModelProto: ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8, metadata_props 14.
    let mut file = Message::new()
        .int(1, IR_VERSION)
        .text(2, "wave")
        .text(3, env!("CARGO_PKG_VERSION"))
        .message(8, opset);
    for (key, value) in metadata {
        // StringStringEntryProto: key 1, value 2.
        let entry = Message::new().text(1, key).text(2, value);
        file = file.message(14, entry);
    }
    let file = file.open(7, length);
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
