//! From a node's embedding to its weights (GHN-2's decoder with the changes of GHN-3).
//!
//! ```text
//! D    = conv2(relu(conv1(relu(fc(x)))))         (C, C, k, k): outputs, inputs, the middle of an (s, s) kernel
//! W_ij = D_{i mod C, j mod C}                    slicing where a weight is smaller than C, tiling where larger
//! W    = sqrt(beta / fan-in) W                   beta = 2; 1 for a convolution of a single input channel
//! norms' scales   2 sigmoid(v / 2)               v, v': the two rows that another MLP makes of x
//! biases          tanh(v' / 5)
//! ```
//!
//! The head and its bias go through one more linear map, from C to the classes. Positions are the first
//! output channel, not normalised. Their grid is interpolated where it is larger than s.

use candle_core::{D, Device, Result, Tensor};
use std::collections::BTreeMap;
use wave_models::Weights;

use super::vit_graph::{Node, Operation};
use super::{HyperShape, VitGraph, get, linear};

/// Weights by their names, from embeddings (nodes, hidden).
///
/// # Errors
/// If a weight of the hypernetwork is missing or of another shape.
pub fn decode(
    shape: &HyperShape,
    weights: &Weights,
    graph: &VitGraph,
    nodes: &Tensor,
) -> Result<Weights> {
    let of = Decoder { shape, weights };
    let mut out = Weights::new();
    // Nodes that are decoded alike are decoded at once.
    let mut alike: BTreeMap<[usize; 4], Vec<usize>> = BTreeMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let Some(dims) = node.dims else {
            continue;
        };
        let own = || nodes.narrow(0, i, 1);
        match node.operation {
            Operation::LayerNorm => {
                let [v, shift] = of.vectors(&own()?, dims[0])?;
                let scale = ((v * 0.25)?.tanh()? + 1.0)?; // 2 sigmoid(v / 2)
                out.insert(format!("{}.weight", node.name), scale);
                out.insert(format!("{}.bias", node.name), bias(&shift)?);
            }
            Operation::Bias if node.name == "head.bias" => {
                out.insert(node.name.clone(), bias(&of.class_bias(&own()?, dims[0])?)?);
            }
            Operation::Bias => {
                let [_, v] = of.vectors(&own()?, dims[0])?;
                out.insert(node.name.clone(), bias(&v)?);
            }
            Operation::Positions => {
                out.insert(node.name.clone(), of.positions(&own()?, dims)?);
            }
            _ if node.name == "head.weight" => {
                let w = fan_in(of.head(&own()?, dims)?, dims)?;
                out.insert(node.name.clone(), w.reshape((dims[0], dims[1]))?);
            }
            _ => alike.entry(dims).or_default().push(i),
        }
    }
    for (dims, places) in alike {
        let names: Vec<&Node> = places.iter().map(|i| &graph.nodes[*i]).collect();
        let n = places.len();
        let rows: Vec<u32> = places.into_iter().map(|i| i as u32).collect();
        let rows = Tensor::from_vec(rows, n, &Device::Cpu)?.to_device(nodes.device())?;
        let x = nodes.index_select(&rows, 0)?;
        let decoded = tile(tile(of.kernels(&x, dims)?, 1, dims[0])?, 2, dims[1])?;
        let decoded = fan_in(decoded, dims)?; // (n, outputs, inputs, height, width)
        for (i, node) in names.into_iter().enumerate() {
            let w = decoded.get(i)?;
            let w = match node.name.starts_with("patch_embed") {
                true => w,
                false => w.reshape((dims[0], dims[1]))?,
            };
            out.insert(node.name.clone(), w.contiguous()?);
        }
    }
    Ok(out)
}

/// A bias of what was decoded for it.
fn bias(v: &Tensor) -> Result<Tensor> {
    (v * 0.2)?.tanh()
}

/// Scales weights for the number of their inputs.
fn fan_in(w: Tensor, [_, inputs, height, width]: [usize; 4]) -> Result<Tensor> {
    let kernel = height * width > 1;
    let beta = if kernel && (inputs == 1 || height < width) {
        1.0
    } else {
        2.0
    };
    w * (beta / (inputs * height * width) as f64).sqrt()
}

/// Repeats a dimension to this size, or takes the first entries of it.
fn tile(t: Tensor, dim: usize, size: usize) -> Result<Tensor> {
    let own = t.dim(dim)?;
    if own >= size {
        return t.narrow(dim, 0, size);
    }
    let copies = vec![&t; size.div_ceil(own)];
    Tensor::cat(&copies, dim)?.narrow(dim, 0, size)
}

struct Decoder<'a> {
    shape: &'a HyperShape,
    weights: &'a Weights,
}

impl Decoder<'_> {
    /// The middle of decoded kernels for as many channels as are wanted: of embeddings (n, hidden),
    /// (n, at most C outputs, at most C inputs, height, width).
    fn kernels(&self, x: &Tensor, [out, inp, height, width]: [usize; 4]) -> Result<Tensor> {
        let c = self.shape.channels;
        let (out, inp) = (out.min(c), inp.min(c));
        let x = self.pixels(x, height, width)?; // (n, rows, columns, 4 hidden)
        let (n, rows, columns, _) = x.dims4()?;
        let x = linear(self.weights, "decoder.conv.0", &x)?.relu()?;
        // Of the last map only the rows of channels that are wanted.
        let wanted = (0..out * inp).map(|oi| (oi / inp * c + oi % inp) as u32);
        let x = self.some_rows("decoder.conv.2", &x, wanted.collect())?;
        let x = x
            .reshape((n, rows, columns, out, inp))?
            .permute((0, 3, 4, 1, 2))?;
        let x = interpolate(x.contiguous()?, 3, height)?;
        interpolate(x, 4, width)
    }

    /// The output of `fc` at the pixels in the middle: (n, rows, columns, 4 hidden).
    fn pixels(&self, x: &Tensor, height: usize, width: usize) -> Result<Tensor> {
        let (s, wide) = (self.shape.spatial, 4 * self.shape.hidden);
        let middle =
            |size: usize| (s / 2).saturating_sub(size / 2)..(s / 2 + size.div_ceil(2)).min(s);
        let (ys, xs) = (middle(height), middle(width));
        let (rows, columns) = (ys.len(), xs.len());
        let mut wanted = Vec::with_capacity(rows * columns * wide);
        for y in ys {
            for x in xs.clone() {
                wanted.extend((0..wide).map(|c| (c * s * s + y * s + x) as u32));
            }
        }
        let n = x.dim(0)?;
        let x = self.some_rows("decoder.fc.0", x, wanted)?.relu()?;
        x.reshape((n, rows, columns, wide))
    }

    /// A linear map of which only some outputs are wanted.
    fn some_rows(&self, name: &str, x: &Tensor, rows: Vec<u32>) -> Result<Tensor> {
        let weight = get(self.weights, &format!("{name}.weight"))?;
        let all = rows.len() == weight.dim(0)? && rows.is_sorted();
        if all {
            return linear(self.weights, name, x);
        }
        let bias = get(self.weights, &format!("{name}.bias"))?;
        let n = rows.len();
        let rows = Tensor::from_vec(rows, n, &Device::Cpu)?.to_device(weight.device())?;
        let (weight, bias) = (weight.index_select(&rows, 0)?, bias.index_select(&rows, 0)?);
        wave_ops::linear(x, &weight, &bias)
    }

    /// The two rows that a node's embedding (1, hidden) makes vectors of: (size) both.
    fn vectors(&self, x: &Tensor, size: usize) -> Result<[Tensor; 2]> {
        let both = self.both(x)?;
        Ok([tile(both.get(0)?, 0, size)?, tile(both.get(1)?, 0, size)?])
    }

    /// (2, C)
    fn both(&self, x: &Tensor) -> Result<Tensor> {
        let x = linear(self.weights, "decoder_1d.fc.0", x)?.relu()?;
        let x = linear(self.weights, "decoder_1d.fc.2", &x)?;
        x.reshape((2, self.shape.channels))
    }

    fn class_bias(&self, x: &Tensor, classes: usize) -> Result<Tensor> {
        let v = self.both(x)?.narrow(0, 1, 1)?.relu()?;
        let v = linear(self.weights, "bias_class.1", &v)?.squeeze(0)?;
        tile(v, 0, classes)
    }

    /// (classes, inputs, 1, 1) for one node.
    fn head(&self, x: &Tensor, dims: [usize; 4]) -> Result<Tensor> {
        let [classes, inp, ..] = dims;
        let all = [self.shape.channels, inp, 1, 1];
        let w = self.kernels(x, all)?.flatten_from(2)?.squeeze(0)?; // (C, inputs)
        let w = linear(
            self.weights,
            "decoder.class_layer_predictor.1",
            &w.relu()?.t()?,
        )?;
        tile(tile(w.t()?.contiguous()?, 0, classes)?, 1, inp)
    }

    /// (1, tokens, width) for one node.
    fn positions(&self, x: &Tensor, [_, width, rows, columns]: [usize; 4]) -> Result<Tensor> {
        let w = self.kernels(x, [1, width, rows, columns])?;
        let w = w.squeeze(0)?.flatten_from(2)?.transpose(1, 2)?; // (1, tokens, at most C)
        tile(w.contiguous()?, 2, width)
    }
}

/// Linear interpolation of a dimension to a larger size, as PyTorch's with `align_corners` false; a size
/// that is not larger stays.
fn interpolate(t: Tensor, dim: usize, size: usize) -> Result<Tensor> {
    let own = t.dim(dim)?;
    if size <= own {
        return Ok(t);
    }
    let mut shares = vec![0f32; own * size]; // (own, size)
    for to in 0..size {
        let at = ((to as f64 + 0.5) * own as f64 / size as f64 - 0.5).max(0.0);
        let below = (at as usize).min(own - 1);
        let above = (below + 1).min(own - 1);
        let share = (at - below as f64) as f32;
        shares[below * size + to] += 1.0 - share;
        shares[above * size + to] += share;
    }
    let shares = Tensor::from_vec(shares, (own, size), &Device::Cpu)?;
    let shares = shares.to_dtype(t.dtype())?.to_device(t.device())?;
    let last = t.transpose(dim, D::Minus1)?.contiguous()?;
    last.broadcast_matmul(&shares)?
        .transpose(dim, D::Minus1)?
        .contiguous()
}
