//! Initialisation of transformers with positional attention: GPSA and convolutional biases, which the thesis
//! compares with mimetic attention (section 3.2.5).
//!
//! The weights that a plain transformer also has start as in [`initialise`]. The others:
//!
//! ```text
//! default    pos_proj as all matrices, gates 1; taps uniform within ±1/k, γ = 1
//! local      pos_proj[p] = (2 (i − c), 2 (j − c), −1), p = j + K i in K² heads, K = ⌊√h⌋, c = (K − 1) / 2;
//!            W_V = I
//! ```
//!
//! The local map of head p is softmax(−‖Δ − (i − c, j − c)‖²), up to terms that a softmax does not see.
//! Each head attends to one nearby patch, like the taps of a K x K convolution (d'Ascoli et al. 2021,
//! section 3.2, with locality strength 1). Heads beyond K² have no such patch and keep the default; of 8
//! heads, this affects 4.

use super::network::{KERNEL, PositionalAttention, PositionalShape};
use candle_core::{DType, Device, Tensor};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use wave_init::random::{of_layer, truncated_normal, uniform};
use wave_init::{Choices, DirectMethod, Positions, initialise};
use wave_models::{NetworkError, Refusal, Weights};

/// Standard deviation of sampled `pos_proj`, as in timm.
const STD: f64 = 0.02;

/// The random stream of a layer that these weights use; the transformer's own weights use others.
const STREAM: u64 = 15;

/// Ways to start a transformer with positional attention.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// timm's default for transformers; PyTorch's default for convolution kernels; gates and gamma 1
    Default,
    /// gpsa only: each head attends to one neighbour, and V is the identity (d'Ascoli et al. 2021, section
    /// 3.2)
    Local,
    /// Mimetic attention; in gpsa, mimetic V and projection with local heads (thesis, table 3.4)
    #[default]
    Mimetic,
}

/// Weights of a transformer with positional attention.
pub fn start(method: Method, shape: &PositionalShape, seed: u64) -> Result<Weights, NetworkError> {
    let gpsa = shape.attention == PositionalAttention::Gpsa;
    if method == Method::Local && !gpsa {
        let kind = "method for a convolution in attention";
        return Err(Refusal::unknown(kind, "local", ["default", "mimetic"]).into());
    }
    let (d, h) = (shape.vit.width, shape.vit.heads);
    let plain = match method {
        Method::Mimetic => DirectMethod::Mimetic,
        _ => DirectMethod::Timm,
    };
    let choices = Choices {
        positions: Some(Positions::Sinusoidal),
        qk: gpsa.then_some((0.0, 0.0)), // table 3.4 adds V and projection alone to GPSA
        ..Choices::default()
    };
    let mut weights = initialise(&shape.vit, plain, &choices, seed)?;
    for layer in 0..shape.vit.depth {
        let at = |part: &str| format!("blocks.{layer}.attn.{part}");
        let rng = &mut of_layer(seed, layer, STREAM);
        let own = shape.attention.own_name();
        if !gpsa {
            let taps = uniform((h, KERNEL, KERNEL), 1.0 / KERNEL as f64, rng)?;
            weights.insert(at(&format!("{own}.weight")), taps);
            weights.insert(at(&format!("{own}.gamma")), ones(1)?);
            continue;
        }
        for part in ["weight", "bias"] {
            if let Some(qkv) = weights.remove(&at(&format!("qkv.{part}"))) {
                weights.insert(at(&format!("qk.{part}")), qkv.narrow(0, 0, 2 * d)?);
                weights.insert(at(&format!("v.{part}")), qkv.narrow(0, 2 * d, d)?);
            }
        }
        let drawn = truncated_normal((h, 3), STD, rng)?;
        let positions = match method {
            Method::Default => drawn,
            _ => local_positions(&drawn, h)?,
        };
        weights.insert(at(&format!("{own}.weight")), positions);
        weights.insert(at(&format!("{own}.bias")), ones(h)?.zeros_like()?);
        weights.insert(at("gating_param"), ones(h)?);
        if method == Method::Local {
            weights.insert(at("v.weight"), Tensor::eye(d, DType::F32, &Device::Cpu)?);
        }
    }
    Ok(weights)
}

fn ones(n: usize) -> candle_core::Result<Tensor> {
    Tensor::ones(n, DType::F32, &Device::Cpu)
}

/// `pos_proj` (h, 3) with its first ⌊√h⌋² heads at the taps of a convolution.
fn local_positions(drawn: &Tensor, heads: usize) -> candle_core::Result<Tensor> {
    let side = heads.isqrt();
    let centre = (side as f64 - 1.0) / 2.0;
    let from_centre = |i: usize| 2.0 * (i as f64 - centre) as f32;
    let row = |head: usize| [from_centre(head / side), from_centre(head % side), -1.0];
    let rows: Vec<f32> = (0..side * side).flat_map(row).collect();
    let placed = Tensor::from_vec(rows, (side * side, 3), &Device::Cpu)?;
    let rest = drawn.narrow(0, side * side, heads - side * side)?;
    Tensor::cat(&[placed, rest], 0)
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
