//! LiGO: a larger network as a learned linear function of a smaller one.
//!
//! ```text
//! depth     W_l = sum_k w_lk W_k
//! width     W   -> [I; C_out] W [I, C_in^T]         b -> [I; C_out] b
//! ```
//!
//! with W_k the small network's K layers, and C (D - d, d) for channels of the residual stream (one for the
//! whole network), of Q, K and V, and of the MLP's hidden layer (one each per layer). Norms and biases are
//! mixed over depth with their matrices, and widened like outputs (Wang et al. 2023, sections 3.2 and 3.3).
//!
//! [`grow`] is this function. Gradients flow to the operator (and to the small weights, if they are
//! variables): its authors train the operator for 100 steps from [`operator_start`] with the small weights
//! frozen. The method named `ligo` uses the untrained operator.
//!
//! The paper's networks are language models. Our interpretation for vision transformers: the patch embedding,
//! positions, class token, final norm and classifier are widened with the residual stream, and each of a
//! block's six modules has its own depth weights.

use super::{Carry, Stored, same, same_tokens};
use crate::random::{generator, uniform};
use crate::start::{Request, Start, StartMethod};
use candle_core::{Device, Result, Tensor};
use wave_models::vit::{BLOCK_TENSORS, VitShape, stack, unstack};
use wave_models::{Weights, refuse};

/// The maximum weight, before normalisation, of the layers that a layer does not copy.
pub const NOISE: f64 = 0.03;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "ligo",
    description: "a smaller donor grown in depth and width by LiGO's untrained operator (Wang et \
                  al. 2023, section 3)",
    donor: true,
    images: false,
    run: start,
};

fn start(request: &Request) -> crate::Result<Start> {
    let mut carry = Carry::new(METHOD.name, request)?;
    let (donor, target) = (carry.donor, request.shape);
    let (small, seed) = (&donor.shape, request.seed);
    let operator = operator_start(small, target, NOISE, seed)?;
    let stacked = stack(&donor.weights, small.depth)?;
    let grown = grow(&stacked, &operator)?;
    // A classifier with a different number of classes stays fresh.
    let kept = |name: &str| !name.starts_with("head") || small.classes == target.classes;
    for (name, tensor) in unstack(&grown)? {
        if kept(&name) {
            carry.put(&name, &name, tensor)?;
        }
    }
    // The number of values taken is the donor's, not the grown network's.
    let taken = donor.weights.iter().filter(|(name, _)| kept(name));
    carry.taken = taken
        .map(|(name, t)| (name.clone(), t.elem_count()))
        .collect();
    Ok(carry.finish(Stored::Donor))
}

/// The authors' initial operator: layer l copies layer l mod K, with a little of the others (weights 1 and
/// uniform up to `noise`, normalised to sum 1), and every new channel is a random average of the old ones
/// (rows uniform in 0..1, normalised to sum 1).
///
/// | name | shape |
/// |---|---|
/// | `depth.{module}` for each of a block's six modules | (L, K) |
/// | `width.stream` | (D - d, d) |
/// | `width.{q,k,v}` | (L, D - d, d) |
/// | `width.mlp` | (L, H - h, h) |
///
/// Widths that do not change have no tensor.
///
/// # Errors
/// If the target is shallower or narrower than the small network, or differs in heads, patches or tokens.
pub fn operator_start(
    small: &VitShape,
    target: &VitShape,
    noise: f64,
    seed: u64,
) -> crate::Result<Weights> {
    for (size, donor, target) in [
        ("depth", small.depth, target.depth),
        ("width", small.width, target.width),
        ("hidden width of the MLP", small.hidden(), target.hidden()),
    ] {
        if donor > target {
            refuse!(
                "ligo: the donor's {size} is {donor}, more than the target's {target}: use a donor \
                 with at most {target}, or make the target at least {donor}"
            );
        }
    }
    let heads = ("head width", small.head_width(), target.head_width());
    same(METHOD.name, &[heads])?;
    same_tokens(METHOD.name, small, target)?;
    let (l, k, d, h) = (target.depth, small.depth, small.width, small.hidden());
    let depth = |weight: &str| (format!("depth.{}", module(weight)), vec![l, k]);
    let weights = BLOCK_TENSORS.into_iter().step_by(2); // one per module
    let mut shapes: Vec<(String, Vec<usize>)> = weights.map(depth).collect();
    if target.width > d {
        shapes.push(("width.stream".into(), vec![target.width - d, d]));
        for part in ["q", "k", "v"] {
            shapes.push((format!("width.{part}"), vec![l, target.width - d, d]));
        }
    }
    if target.hidden() > h {
        shapes.push(("width.mlp".into(), vec![l, target.hidden() - h, h]));
    }
    let mut operator = Weights::new();
    for (stream, (name, dims)) in shapes.into_iter().enumerate() {
        // Streams above the fresh network's, whose layer streams start at 1 << 32.
        let rng = &mut generator(seed, (1 << 60) + stream as u64);
        let draws = (uniform(dims.as_slice(), 0.5, rng)? + 0.5)?; // 0..1
        let rows = if name.starts_with("depth.") {
            let eye = repeat(small.depth, target.depth)?; // (L, K)
            let others = (draws * noise)?;
            (eye.affine(-1.0, 1.0)?.mul(&others)? + eye)?
        } else {
            draws
        };
        let sums = rows.sum_keepdim(candle_core::D::Minus1)?;
        operator.insert(name, rows.broadcast_div(&sums)?);
    }
    Ok(operator)
}

/// 1 in row l and column l mod K: (L, K).
fn repeat(small: usize, target: usize) -> Result<Tensor> {
    let entry = |i: usize| f32::from((i / small) % small == i % small);
    let values: Vec<f32> = (0..target * small).map(entry).collect();
    Tensor::from_vec(values, (target, small), &Device::Cpu)
}

/// Grows `small` with `operator`, one of [`operator_start`] for its shape, into the weights of a larger network with
/// the same classes. Both networks are stacked ([`wave_models::vit::stack`]), as for [`wave_models::vit::logits`].
pub fn grow(small: &Weights, operator: &Weights) -> Result<Weights> {
    let stream = operator.get("width.stream");
    let mut grown = Weights::new();
    for (name, tensor) in small {
        let wide = match name.strip_prefix("blocks.") {
            Some(part) if BLOCK_TENSORS.contains(&part) => block(part, tensor, operator)?,
            _ => match name.as_str() {
                // Input channels of the residual stream: (classes, d).
                "head.weight" | "head_dist.weight" => widen(tensor, 1, stream)?,
                "head.bias" | "head_dist.bias" => tensor.clone(),
                // Output channels of the stream: the last dimension of (1, n, d), otherwise the first.
                "pos_embed" | "cls_token" | "dist_token" => widen(tensor, 2, stream)?,
                _ => widen(tensor, 0, stream)?,
            },
        };
        grown.insert(name.clone(), wide);
    }
    Ok(grown)
}

/// One kind of tensor for all layers: (K, ..) to (L, ..).
fn block(part: &str, tensor: &Tensor, operator: &Weights) -> Result<Tensor> {
    let mixed = mix(tensor, &operator[&format!("depth.{}", module(part))])?; // (L, ..)
    let width = |name: &str| operator.get(&format!("width.{name}"));
    let stream = width("stream");
    let wide = match module(part) {
        "attn.qkv" => {
            let d = mixed.dim(1)? / 3;
            let of_part = |(i, name): (usize, &str)| {
                widen_layers(&mixed.narrow(1, i * d, d)?, 1, width(name))
            };
            let parts = ["q", "k", "v"].into_iter().enumerate().map(of_part);
            Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 1)? // (L, 3 D, ..)
        }
        "mlp.fc1" => widen_layers(&mixed, 1, width("mlp"))?, // (L, H, ..)
        _ => widen(&mixed, 1, stream)?,                      // (L, D, ..)
    };
    if wide.rank() < 3 {
        return Ok(wide);
    }
    match part {
        "attn.proj.weight" => widen_layers(&wide, 2, width("v")), // reads V's channels
        "mlp.fc2.weight" => widen_layers(&wide, 2, width("mlp")),
        _ => widen(&wide, 2, stream), // (L, .., D)
    }
}

/// `W_l = sum_k w_lk W_k` for weights (L, K).
fn mix(tensor: &Tensor, weights: &Tensor) -> Result<Tensor> {
    let mut dims = tensor.dims().to_vec();
    dims[0] = weights.dim(0)?;
    let flat = tensor.flatten_from(1)?.contiguous()?; // (K, ..)
    weights.matmul(&flat)?.reshape(dims)
}

/// `[I; C]` along an axis, with one C (D - d, d) for all.
fn widen(tensor: &Tensor, axis: usize, c: Option<&Tensor>) -> Result<Tensor> {
    let Some(c) = c else {
        return Ok(tensor.clone());
    };
    // The axis is moved to the end, where applying C is a matrix product.
    let last = tensor.rank() - 1;
    let moved = tensor.transpose(axis, last)?.contiguous()?; // (.., d)
    let mut dims = moved.dims().to_vec();
    let flat = moved.reshape(((), dims[last]))?; // (m, d)
    let new = flat.matmul(&c.t()?.contiguous()?)?; // (m, D - d)
    dims[last] = c.dim(0)?;
    let new = new.reshape(dims)?.transpose(axis, last)?; // (.., D - d, ..)
    Tensor::cat(&[tensor, &new], axis)
}

/// `[I; C_l]` along an axis after the first, with a C of (L, D - d, d).
fn widen_layers(tensor: &Tensor, axis: usize, c: Option<&Tensor>) -> Result<Tensor> {
    let Some(c) = c else {
        return Ok(tensor.clone());
    };
    if tensor.rank() == 2 {
        let wide = widen_layers(&tensor.unsqueeze(2)?, 1, Some(c))?;
        return wide.squeeze(2);
    }
    let c = c.contiguous()?;
    let new = match axis {
        1 => c.matmul(&tensor.contiguous()?)?, // (L, D - d, d) . (L, d, n)
        _ => {
            let ct = c.transpose(1, 2)?.contiguous()?;
            tensor.contiguous()?.matmul(&ct)? // (L, n, d) . (L, d, D - d)
        }
    };
    Tensor::cat(&[tensor, &new], axis)
}

/// The module of a block's tensor: its name without `.weight` or `.bias`.
fn module(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or(tensor, |(module, _)| module)
}

#[cfg(test)]
#[path = "ligo_tests.rs"]
mod tests;
