//! The growth operator as a function of tensors.

use super::{module, operator_shapes};
use candle_core::{Result, Tensor};
use wave_models::vit::{BLOCK_TENSORS, VitShape};
use wave_models::{Weights, refuse};

/// Grows `small` with `operator` into the weights of a network of shape `target`.
///
/// # Shapes
/// `small` and the result are stacked ([`wave_models::vit::stack`]), as for [`wave_models::vit::logits`]; the
/// shapes of `operator` are given by [`operator_shapes`]. The classifier keeps the classes of `small`.
///
/// # Errors
/// As [`operator_shapes`]; or if a tensor of the operator is missing or
/// misshapen, or one of `small` is.
pub fn grow(
    small: &Weights,
    small_shape: &VitShape,
    operator: &Weights,
    target: &VitShape,
) -> crate::Result<Weights> {
    for (name, expected) in operator_shapes(small_shape, target)? {
        let found = operator.get(&name).map_or(&[][..], Tensor::dims).to_vec();
        if found != expected {
            refuse!(
                "the growth operator's {name} has shape {found:?}, expected {expected:?}: use the \
                 operator that `operator_start` makes for these two shapes"
            );
        }
    }
    wave_models::check_weights(small, &small_shape.stacked_parameters())?;
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
            let parts: Vec<Tensor> = ["q", "k", "v"]
                .iter()
                .enumerate()
                .map(|(i, name)| widen_layers(&mixed.narrow(1, i * d, d)?, 1, width(name)))
                .collect::<Result<_>>()?;
            Tensor::cat(&parts, 1)? // (L, 3 D, ..)
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
