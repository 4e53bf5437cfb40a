//! Sizes of a hypernetwork, the names of its weights, and their start.
//!
//! Names and shapes are those of the published hypernetworks (h hidden channels, C channels and s pixels of
//! the largest decoded kernel):
//!
//! | name | shape |
//! |---|---|
//! | `embed.weight` | (15, h) |
//! | `shape_enc.embed_{channel,spatial}.weight` | (known sizes + 1, h/4) |
//! | `centrality_embed_{in,out}.weight`, `input_dist_embed.weight` | (101, h), (1001, h) |
//! | `gnn.0.attn.edge_embed.embed.weight` | (257, h) |
//! | `gnn.0.attn.proj_e.{0,2}` | (h, 2 h), (heads, h), and biases |
//! | `gnn.N.{ln1,ln2}`, `ln` | (h), weight and bias |
//! | `gnn.N.attn.to_qkv.weight`, `gnn.N.attn.to_out.0` | (3 h, h), (h, h) and bias |
//! | `gnn.N.ff.net.{0,3}` | (4 h, h), (h, 4 h), and biases |
//! | `decoder.fc.0`, `decoder.conv.{0,2}` | (4 h s², h), (8 h, 4 h), (C², 8 h), and biases |
//! | `decoder.class_layer_predictor.1`, `bias_class.1` | (classes, C), and biases |
//! | `decoder_1d.fc.{0,2}` | (2 h, h), (2 C, 2 h), and biases |

use candle_core::{DType, Device, Tensor};
use wave_models::vit::check_weights;
use wave_models::{ShapeError, Weights};

use super::vit_graph::OPERATIONS;
use crate::error::InitError;
use crate::random::{generator, truncated_normal, uniform};

/// The largest degree of a node with an embedding; larger ones share it.
pub(super) const MOST_DEGREE: usize = 100;

/// The longest path from the input with an embedding; longer ones share it.
pub(super) const LONGEST_FROM_INPUT: usize = 1000;

/// Rows of the embedding of paths.
const PATHS: usize = 257;

/// By how much the last maps of the decoders begin smaller than PyTorch's, as published.
const SMALL: f64 = 5.0;

/// The sizes of a hypernetwork.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperShape {
    /// Channels of a node.
    pub hidden: usize,
    /// Graphormer layers.
    pub layers: usize,
    /// Attention heads of each.
    pub heads: usize,
    /// Input and output channels of the largest kernel that is decoded; larger ones are tiled.
    pub channels: usize,
    /// Its side in pixels.
    pub spatial: usize,
    /// Classes of the head that is decoded.
    pub classes: usize,
    /// A norm stands between the last layer and the decoders.
    pub final_norm: bool,
}

impl HyperShape {
    /// Checks that such a hypernetwork exists.
    ///
    /// # Errors
    /// Names the sizes that do not fit, and what would.
    pub fn validate(&self) -> Result<(), InitError> {
        let sizes = [
            ("hidden", self.hidden),
            ("layers", self.layers),
            ("heads", self.heads),
            ("channels", self.channels),
            ("spatial", self.spatial),
            ("classes", self.classes),
        ];
        for (name, value) in sizes {
            if value == 0 || value > 1 << 14 {
                return Err(InitError::OutOfRange {
                    name: "a size of the hypernetwork",
                    value: value as f64,
                    expected: format!("{name} from 1 to {}", 1 << 14),
                });
            }
        }
        for (name, divisor) in [("4", 4), ("the number of heads", self.heads)] {
            if !self.hidden.is_multiple_of(divisor) {
                return Err(InitError::OutOfRange {
                    name: "the width of the hypernetwork",
                    value: self.hidden as f64,
                    expected: format!("a multiple of {name}"),
                });
            }
        }
        Ok(())
    }

    /// Name and shape of every weight.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let Self {
            hidden: h,
            heads,
            channels: c,
            spatial: s,
            classes,
            ..
        } = *self;
        let mut out: Vec<(String, Vec<usize>)> = Vec::new();
        let table =
            |name: &str, rows: usize, width: usize| (format!("{name}.weight"), vec![rows, width]);
        let (channels, spatial) = (self.known_channels().len(), self.known_spatial().len());
        out.extend([
            table("embed", OPERATIONS, h),
            table("shape_enc.embed_channel", channels + 1, h / 4),
            table("shape_enc.embed_spatial", spatial + 1, h / 4),
            table("centrality_embed_in", MOST_DEGREE + 1, h),
            table("centrality_embed_out", MOST_DEGREE + 1, h),
            table("input_dist_embed", LONGEST_FROM_INPUT + 1, h),
            table("gnn.0.attn.edge_embed.embed", PATHS, h),
        ]);
        let mut affine = |name: String, outputs: usize, inputs: usize| {
            out.push((format!("{name}.weight"), vec![outputs, inputs]));
            out.push((format!("{name}.bias"), vec![outputs]));
        };
        affine("gnn.0.attn.proj_e.0".into(), h, 2 * h);
        affine("gnn.0.attn.proj_e.2".into(), heads, h);
        for layer in 0..self.layers {
            affine(format!("gnn.{layer}.attn.to_out.0"), h, h);
            affine(format!("gnn.{layer}.ff.net.0"), 4 * h, h);
            affine(format!("gnn.{layer}.ff.net.3"), h, 4 * h);
        }
        for (name, outputs, inputs) in [
            ("decoder.fc.0", 4 * h * s * s, h),
            ("decoder.conv.0", 8 * h, 4 * h),
            ("decoder.conv.2", c * c, 8 * h),
            ("decoder.class_layer_predictor.1", classes, c),
            ("decoder_1d.fc.0", 2 * h, h),
            ("decoder_1d.fc.2", 2 * c, 2 * h),
            ("bias_class.1", classes, c),
        ] {
            affine(name.into(), outputs, inputs);
        }
        let norms = (0..self.layers).flat_map(|l| [format!("gnn.{l}.ln1"), format!("gnn.{l}.ln2")]);
        for name in norms.chain(self.final_norm.then(|| "ln".into())) {
            out.push((format!("{name}.weight"), vec![h]));
            out.push((format!("{name}.bias"), vec![h]));
        }
        let qkv = |l| (format!("gnn.{l}.attn.to_qkv.weight"), vec![3 * h, h]);
        out.extend((0..self.layers).map(qkv));
        out
    }

    /// Reads the sizes off weights.
    ///
    /// # Errors
    /// If they are not those of a hypernetwork, named with what is missing or misshapen.
    pub fn infer(weights: &Weights) -> Result<Self, InitError> {
        let dims = |name: &str| -> Result<(usize, usize), ShapeError> {
            let tensor = weights.get(name);
            let tensor = tensor.ok_or_else(|| ShapeError::Missing { name: name.into() })?;
            tensor.dims2().map_err(|_| ShapeError::Misshapen {
                name: name.into(),
                found: tensor.dims().to_vec(),
                expected: vec![0, 0],
            })
        };
        let hidden = dims("embed.weight")?.1;
        let layers = (0..).take_while(|l| weights.contains_key(&format!("gnn.{l}.ln1.weight")));
        let pixels = dims("decoder.fc.0.weight")?.0 / (4 * hidden).max(1);
        let shape = Self {
            hidden,
            layers: layers.count(),
            heads: dims("gnn.0.attn.proj_e.2.weight")?.0,
            channels: dims("decoder.conv.2.weight")?.0.isqrt(),
            spatial: pixels.isqrt(),
            classes: dims("decoder.class_layer_predictor.1.weight")?.0,
            final_norm: weights.contains_key("ln.weight"),
        };
        shape.validate()?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }

    /// Numbers of channels that have an embedding.
    fn known_channels(&self) -> Vec<usize> {
        let steps = [(8, 64, 8), (64, 4096, 16), (4096, 8193, 32)];
        let steps = steps.map(|(from, to, by)| (from..to).step_by(by));
        sorted(steps.into_iter().flatten().chain([1, 3, self.classes]))
    }

    /// Sides of kernels that have one.
    fn known_spatial(&self) -> Vec<usize> {
        let odd = (1..self.spatial.max(12)).step_by(2);
        sorted(odd.chain([14, 16]))
    }

    /// The row of a number of channels: its own, or the nearest known one's. The last is that of nodes
    /// without weights.
    pub(super) fn channel_row(&self, channels: Option<usize>) -> u32 {
        let known = self.known_channels();
        let channels = channels.map(|c| match c {
            4..8 => 8, // as published, however many classes there are
            _ => c,
        });
        row(&known, channels)
    }

    /// The row of a kernel's side.
    pub(super) fn spatial_row(&self, side: Option<usize>) -> u32 {
        let side = side.map(|s| if s == 2 { 3 } else { s });
        row(&self.known_spatial(), side)
    }
}

fn sorted(values: impl Iterator<Item = usize>) -> Vec<usize> {
    values
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect()
}

/// The place of the known value nearest to this one, the first of several; the number of known ones
/// for none.
fn row(known: &[usize], value: Option<usize>) -> u32 {
    let Some(value) = value else {
        return known.len() as u32;
    };
    let nearest = known
        .iter()
        .enumerate()
        .min_by_key(|(_, k)| k.abs_diff(value));
    nearest.map_or(0, |(place, _)| place as u32)
}

/// Weights of a hypernetwork that is to be trained: linear maps as PyTorch starts them, the last of each
/// decoder a fifth of that without a bias, embeddings truncated normal with standard deviation
/// 1/sqrt(width), norms the identity. Every tensor draws from a generator of its own.
///
/// # Errors
/// If the shape is not valid.
pub fn initialise(shape: &HyperShape, seed: u64) -> Result<Weights, InitError> {
    const LAST: [&str; 3] = [
        "decoder.conv.2.",
        "decoder.class_layer_predictor.1.",
        "decoder_1d.fc.2.",
    ];
    shape.validate()?;
    let mut weights = Weights::new();
    let mut bound = 0.0; // of the map at hand: its weight comes before its bias
    for (stream, (name, dims)) in shape.parameters().into_iter().enumerate() {
        let rng = &mut generator(seed, stream as u64);
        let (weight, last) = (
            name.ends_with(".weight"),
            LAST.iter().any(|l| name.starts_with(l)),
        );
        let t = if name.contains("embed") {
            truncated_normal(dims, 1.0 / (weight_width(&name, shape) as f64).sqrt(), rng)?
        } else if name.contains("ln") {
            match weight {
                true => Tensor::ones(dims, DType::F32, &Device::Cpu)?,
                false => Tensor::zeros(dims, DType::F32, &Device::Cpu)?,
            }
        } else if weight {
            bound = 1.0 / (dims[1] as f64).sqrt();
            let own = if last { bound / SMALL } else { bound };
            uniform(dims, own, rng)?
        } else if last {
            Tensor::zeros(dims, DType::F32, &Device::Cpu)?
        } else {
            uniform(dims, bound, rng)?
        };
        weights.insert(name, t);
    }
    Ok(weights)
}

/// Channels of an embedding.
fn weight_width(name: &str, shape: &HyperShape) -> usize {
    match name.starts_with("shape_enc.") {
        true => shape.hidden / 4,
        false => shape.hidden,
    }
}
