//! Export to ONNX: a vision transformer as a graph that any runtime executes.
//!
//! The graph uses operator set 17, the first with LayerNormalization, and states GELU by its
//! definition (the operator came later). It takes `images` (batch, channels, side, side),
//! normalised as the model expects, and gives `logits` (batch, classes); the batch is free.
//! Weights keep timm's names, save that the matrices of the blocks are stored transposed, as
//! MatMul wants them, under the name with `_t` appended. It computes in f32; weights stored as f16
//! or bf16, under their name with the type appended, are widened by Cast nodes, which runtimes
//! fold away when they load the file.
//!
//! The schema is onnx.proto's; field numbers stand beside their names in `schema`.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use safetensors::tensor::View;

use crate::atomic::Staged;
use crate::differences::check_tensors;
use crate::float::cast;
use crate::proto::Message;
use crate::{FloatType, HubError, Weights};
use graph::Graph;

mod graph;
mod schema;

/// The version of ONNX's operators that the graph uses.
pub const OPSET: i64 = 17;
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
    /// Hidden channels of the MLP.
    pub hidden: usize,
    /// Outputs of the classifier.
    pub classes: usize,
    /// True if a class token is classified (and the last norm is `norm`); otherwise the mean
    /// over the tokens is (and it is `fc_norm`).
    pub class_token: bool,
    /// The epsilon of every layer norm; timm's is 1e-6.
    pub norm_eps: f32,
}

impl VitSizes {
    /// Names and shapes of the weights that [`vit()`] takes: timm's.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (d, h, p) = (self.width, self.hidden, self.patch);
        let mut all = vec![
            ("pos_embed".to_owned(), vec![1, self.tokens(), d]),
            (
                "patch_embed.proj.weight".to_owned(),
                vec![d, self.channels, p, p],
            ),
            ("patch_embed.proj.bias".to_owned(), vec![d]),
            (format!("{}.weight", self.last_norm()), vec![d]),
            (format!("{}.bias", self.last_norm()), vec![d]),
            ("head.weight".to_owned(), vec![self.classes, d]),
            ("head.bias".to_owned(), vec![self.classes]),
        ];
        if self.class_token {
            all.push(("cls_token".to_owned(), vec![1, 1, d]));
        }
        for l in 0..self.depth {
            for (name, shape) in [
                ("norm1.weight", vec![d]),
                ("norm1.bias", vec![d]),
                ("attn.qkv.weight", vec![3 * d, d]),
                ("attn.qkv.bias", vec![3 * d]),
                ("attn.proj.weight", vec![d, d]),
                ("attn.proj.bias", vec![d]),
                ("norm2.weight", vec![d]),
                ("norm2.bias", vec![d]),
                ("mlp.fc1.weight", vec![h, d]),
                ("mlp.fc1.bias", vec![h]),
                ("mlp.fc2.weight", vec![d, h]),
                ("mlp.fc2.bias", vec![d]),
            ] {
                all.push((format!("blocks.{l}.{name}"), shape));
            }
        }
        all
    }

    /// Patches along a side.
    fn grid(&self) -> usize {
        self.image_size / self.patch
    }

    fn tokens(&self) -> usize {
        self.grid() * self.grid() + usize::from(self.class_token)
    }

    fn last_norm(&self) -> &'static str {
        if self.class_token { "norm" } else { "fc_norm" }
    }

    /// Refuses sizes that no network has.
    fn check(&self) -> Result<(), String> {
        let sizes = [
            ("image size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("heads", self.heads),
            ("hidden", self.hidden),
            ("classes", self.classes),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{name} is 0, expected at least 1"));
        }
        for (divisor, d, number, n) in [
            ("patch", self.patch, "image size", self.image_size),
            ("heads", self.heads, "width", self.width),
        ] {
            if n % d != 0 {
                return Err(format!("{divisor} {d} does not divide {number} {n}"));
            }
        }
        Ok(())
    }
}

/// Writes a vision transformer as the ONNX file `path`, whole or not at all, its weights stored as
/// `float`. `metadata` becomes the file's free text: label names, normalisation and the like.
///
/// # Errors
/// [`HubError::Unwritable`] when `weights` are not exactly [`VitSizes::parameters`], the sizes
/// contradict each other, `float` cannot hold a weight, or the file would exceed the format's
/// 2 GiB; [`HubError::Io`] and [`HubError::Tensor`] when the work fails. No temporary file stays
/// behind.
pub fn vit(
    path: &Path,
    sizes: &VitSizes,
    weights: &Weights,
    metadata: &BTreeMap<String, String>,
    float: FloatType,
) -> Result<(), HubError> {
    stage(path, sizes, weights, metadata, float)?.commit_synced()
}

/// [`vit()`] up to the rename.
pub(crate) fn stage(
    path: &Path,
    sizes: &VitSizes,
    weights: &Weights,
    metadata: &BTreeMap<String, String>,
    float: FloatType,
) -> Result<Staged, HubError> {
    let refuse = |found: String, remedy: &str| HubError::unwritable(path, found, remedy);
    sizes
        .check()
        .map_err(|found| refuse(found, "correct the sizes"))?;
    check_tensors(weights, &sizes.parameters()).map_err(|found| {
        refuse(
            found,
            "give the weights of a vision transformer of these sizes",
        )
    })?;
    let weights = cast(path, weights, float)?;
    let graph = graph::vit(sizes, &weights, float);
    write(path, &graph, sizes, metadata)
}

/// The file: everything before the graph, the graph's nodes, then its weights one by one, so
/// that the weights are never in memory twice.
fn write(
    path: &Path,
    graph: &Graph<'_>,
    sizes: &VitSizes,
    metadata: &BTreeMap<String, String>,
) -> Result<Staged, HubError> {
    let side = sizes.image_size;
    let mut body = Message::new().text(schema::graph::NAME, "vit");
    for node in &graph.nodes {
        body = body.message(schema::graph::NODE, node.clone());
    }
    let image = [None, Some(sizes.channels), Some(side), Some(side)];
    body = body
        .message(schema::graph::INPUT, schema::float_value("images", &image))
        .message(
            schema::graph::OUTPUT,
            schema::float_value("logits", &[None, Some(sizes.classes)]),
        );
    for (name, values) in &graph.integers {
        body = body.message(schema::graph::INITIALIZER, schema::integers(name, values));
    }
    for (name, value) in &graph.indices {
        body = body.message(schema::graph::INITIALIZER, schema::index(name, *value));
    }
    for (name, value) in &graph.scalars {
        body = body.message(schema::graph::INITIALIZER, schema::scalar(name, *value));
    }
    let heads: Vec<Message> = graph
        .weights
        .iter()
        .map(|weight| {
            let head = schema::tensor_head(&weight.name, &weight.shape(), graph.float);
            let length = head.as_bytes().len() + weight.bytes();
            Message::new()
                .open(schema::graph::INITIALIZER, length)
                .then(&head)
        })
        .collect();
    let weights: usize = heads
        .iter()
        .zip(&graph.weights)
        .map(|(head, weight)| head.as_bytes().len() + weight.bytes())
        .sum();
    let mut file = Message::new()
        .int(schema::model::IR_VERSION, IR_VERSION)
        .text(schema::model::PRODUCER_NAME, "wave")
        .text(schema::model::PRODUCER_VERSION, env!("CARGO_PKG_VERSION"))
        .message(
            schema::model::OPSET_IMPORT,
            Message::new()
                .text(schema::opset::DOMAIN, "")
                .int(schema::opset::VERSION, OPSET),
        );
    for (key, value) in metadata {
        let entry = Message::new()
            .text(schema::entry::KEY, key)
            .text(schema::entry::VALUE, value);
        file = file.message(schema::model::METADATA_PROPS, entry);
    }
    let file = file.open(schema::model::GRAPH, body.as_bytes().len() + weights);
    let total = (file.as_bytes().len() + body.as_bytes().len() + weights) as u64;
    if total > MAX_BYTES {
        let found = format!("the model takes {total} bytes, an ONNX file holds {MAX_BYTES}");
        return Err(HubError::unwritable(path, found, "export a smaller model"));
    }
    Staged::new(path, |out| {
        let mut put = |bytes: &[u8]| out.write_all(bytes).map_err(HubError::io("write", path));
        put(file.as_bytes())?;
        put(body.as_bytes())?;
        for (head, weight) in heads.iter().zip(&graph.weights) {
            put(head.as_bytes())?;
            let values = values_of(weight).map_err(HubError::tensor(path, &weight.name))?;
            put(&View::data(&values))?;
        }
        Ok(())
    })
}

/// The values as they are stored: in CPU memory, row by row.
fn values_of(weight: &graph::Weight<'_>) -> candle_core::Result<Tensor> {
    let values = weight.tensor.to_device(&Device::Cpu)?;
    if weight.transposed {
        values.t()?.contiguous()
    } else {
        values.contiguous()
    }
}

#[cfg(test)]
#[path = "onnx_tests.rs"]
mod tests;
