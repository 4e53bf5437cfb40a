//! Initialisation of sequence networks: state space layers that begin as linear attention (Trockman,
//! Harutyunyan, Kolter, Kumar and Bhojanapalli 2024, "Mimetic Initialization Helps State Space Models
//! Learn to Recall"; the thesis' section 3.3.2), and [mimetic attention](wave_init::mimetic) in language
//! models (its section 3.2.6).
//!
//! By default every layer is initialised as by its authors: linear maps as in PyTorch, A from -16 to
//! -1, step sizes from 0.001 to 0.1. Four changes, each a [`Change`], make it mimetic:
//!
//! ```text
//! state        A = -exp(-c A_log)                         so that exp(A step) is close to 1
//! step         W_step ~ 0, b_step = ln(e - 1)             so that step = softplus(..) is close to 1
//! correlation  W_C := (W_C' + W_B) / 2                    so that W_C^T W_B resembles the identity
//! convolution  last tap 1, all else 0, no bias            so that the layer sees its tokens unmixed
//! ```
//!
//! With the first two, the layer is linear attention with queries C and keys B (equation 3.38). The first
//! entry of each of Mamba's states has `A_log = 0` and stays at A = -1 for every c. The thesis
//! ignores this, and so does this code.
//!
//! Attention layers are mimetic if no layer is a state space layer; in the thesis' hybrids they are not.

use super::network::{KERNEL, Mixer, SequenceShape};
use crate::run::inverse_softplus;
use candle_core::{D, Tensor};
use clap::ValueEnum;
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use wave_init::mimetic::{Attention, query_key, value_projection};
use wave_init::random::{generator, normal, of_layer, uniform};
use wave_models::{NetworkError, Weights, refuse};

/// Standard deviation of the embedding, as in the authors' code of Mamba.
const EMBEDDING: f64 = 0.02;

/// Minimum and maximum of the initial step sizes, which are log-uniform between them.
const STEPS: (f64, f64) = (1e-3, 1e-1);

/// The factor by which `step` scales the map to step sizes. The thesis says "about 0"; at exactly 0 neither of
/// Mamba's two factors would have a gradient.
const STEP_SHARE: f64 = 0.01;

/// The factor c of part `state`; the thesis takes 2, 4 or 8.
const POWER: f64 = 8.0;

/// (alpha, beta) of mimetic attention, W_Q W_K^T = alpha Z + beta I and W_V W_O = alpha Z - beta I: chosen in the
/// thesis (section 3.2.6) on characters of the Penn Treebank.
const QK: (f64, f64) = (0.0, 0.5);
const VP: (f64, f64) = (0.2, 0.2);

/// Random streams of a layer's attention: one for values and projection, one for each head's queries and keys.
const VALUE_PROJECTION: u64 = 10;
const FIRST_HEAD: u64 = 16;

/// Ways to start a sequence network.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// As by the layers' authors
    Default,
    /// With the parts of --parts
    #[default]
    Mimetic,
    /// Copies one layer of --from to every layer
    PretrainedLayer,
}

/// One of the four parts of a mimetic start, in the order in which they are applied.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    State,
    Step,
    Correlation,
    Convolution,
}

impl Change {
    /// The parts that the thesis uses for a layer: all for Mamba-2, all but the convolution for Mamba,
    /// where it hurts; none for layers without a state space.
    fn usual(mixer: Mixer) -> &'static [Change] {
        match mixer {
            Mixer::Mamba2 => Change::value_variants(),
            Mixer::Mamba => &Change::value_variants()[..3],
            Mixer::Attention | Mixer::LinearAttention | Mixer::Mlp => &[],
        }
    }
}

/// Initial weights of a sequence network by this method; a mimetic start changes the `parts`, by default
/// [`Change::usual`]. The `donor` is a trained network and one of its layers, counted from 0. Every tensor uses its own
/// random generator, so that all methods sample the same numbers where they agree.
pub fn start(
    method: Method,
    shape: &SequenceShape,
    parts: Option<&[Change]>,
    donor: Option<(&Weights, usize)>,
    seed: u64,
) -> Result<Weights, NetworkError> {
    let mut weights = Weights::new();
    for (stream, (name, dims)) in shape.parameters().into_iter().enumerate() {
        let t = default(shape, &name, &dims, &mut generator(seed, stream as u64))?;
        weights.insert(name, t);
    }
    match (method, donor) {
        (Method::Default, None) => {}
        (Method::Mimetic, None) => mimetic(shape, &mut weights, parts, seed)?,
        (Method::PretrainedLayer, Some((donor, layer))) => repeat(&mut weights, donor, layer)?,
        _ => refuse!("--from and --method pretrained-layer go together; give both or neither"),
    }
    Ok(weights)
}

/// Makes every layer a copy of this one of the donor's.
fn repeat(weights: &mut Weights, donor: &Weights, layer: usize) -> Result<(), NetworkError> {
    for (name, own) in weights.iter_mut() {
        let place = name.strip_prefix("backbone.layers.");
        let Some((_, part)) = place.and_then(|place| place.split_once('.')) else {
            continue;
        };
        let name = format!("backbone.layers.{layer}.{part}");
        let found = donor.get(&name);
        let Some(trained) = found.filter(|t| t.dims() == own.dims()) else {
            refuse!(
                "{name} of --from has shape {:?}, expected {:?}; give a --donor-layer of --from, counted from 0, and \
                 its --arch, --width, --state and --heads",
                found.map(Tensor::dims),
                own.dims()
            );
        };
        *own = trained.copy()?;
    }
    Ok(())
}

/// A weight as the layer's authors initialise it.
fn default(
    shape: &SequenceShape,
    name: &str,
    dims: &[usize],
    rng: &mut ChaCha8Rng,
) -> Result<Tensor, NetworkError> {
    let of_layer = name.strip_prefix("backbone.layers.");
    let weight = of_layer.and_then(|rest| rest.split_once('.'));
    let (layer, weight) = weight.unwrap_or(("0", name));
    let mamba2 = layer.parse().map(|i: usize| shape.mixers[i]) == Ok(Mixer::Mamba2);
    let inputs: usize = dims[1..].iter().product();
    let by_inputs = 1.0 / (inputs as f64).sqrt();
    let vector = |values: Vec<f64>| {
        let values: Vec<f32> = values.into_iter().map(|v| v as f32).collect();
        Tensor::from_vec(values, dims, &candle_core::Device::Cpu)
    };
    let n = dims.iter().product();
    Ok(match weight {
        // On the scale of the positions added to it.
        "backbone.embeddings.weight" if shape.positions => normal(dims, 1.0, rng)?,
        "backbone.embeddings.weight" => normal(dims, EMBEDDING, rng)?,
        "mixer.A_log" if mamba2 => {
            vector((0..n).map(|_| rng.random_range(1f64..16.0).ln()).collect())?
        }
        // S4D-real: the states of a channel decay at rates 1, 2, 3, ..
        "mixer.A_log" => vector((0..n).map(|i| ((i % dims[1] + 1) as f64).ln()).collect())?,
        "mixer.dt_bias" | "mixer.dt_proj.bias" => {
            let (least, most) = (STEPS.0.ln(), STEPS.1.ln());
            let step = |_| inverse_softplus(rng.random_range(least..most).exp());
            vector((0..n).map(step).collect())?
        }
        _ if weight == "mixer.D" || weight.contains("norm") => vector(vec![1.0; n])?,
        // A bias has the bounds of its weight, which depend on the number of taps.
        "mixer.conv1d.bias" => uniform(dims, 1.0 / (KERNEL as f64).sqrt(), rng)?,
        // Residual branches are scaled down, so that their sum does not grow with depth.
        "mixer.out_proj.weight" | "mixer.o_proj.weight" | "mixer.fc2.weight" => {
            uniform(dims, by_inputs / (shape.depth() as f64).sqrt(), rng)?
        }
        _ => uniform(dims, by_inputs, rng)?,
    })
}

fn mimetic(
    shape: &SequenceShape,
    weights: &mut Weights,
    parts: Option<&[Change]>,
    seed: u64,
) -> Result<(), NetworkError> {
    let hybrid = shape.mixers.iter().any(|m| !Change::usual(*m).is_empty());
    if !hybrid && !shape.mixers.contains(&Mixer::Attention) {
        refuse!(
            "this network has no state space layers or softmax attention, which the mimetic start changes: start it as \
             `default`"
        );
    }
    for (layer, mixer) in shape.mixers.iter().copied().enumerate() {
        if mixer == Mixer::Attention && !hybrid {
            attention(shape, weights, layer, seed)?;
        }
        let usual = Change::usual(mixer);
        if usual.is_empty() {
            continue;
        }
        let wanted = parts.unwrap_or(usual);
        let parts = Change::value_variants().iter();
        for part in parts.filter(|part| wanted.contains(part)) {
            apply(*part, shape, mixer, weights, layer)?;
        }
    }
    Ok(())
}

/// Makes a layer's attention mimetic, head by head. Without a random part (alpha 0) the singular values
/// of Q and K are all equal, and every head gets its own random axes.
fn attention(
    shape: &SequenceShape,
    weights: &mut Weights,
    layer: usize,
    seed: u64,
) -> Result<(), NetworkError> {
    let (d, h) = (shape.width, shape.attention_heads);
    let of_head = |head: usize| {
        let rng = &mut of_layer(seed, layer, FIRST_HEAD + head as u64);
        query_key(Attention::Products, d, d / h, QK, rng) // (d / h, d) each
    };
    let pairs = (0..h).map(of_head).collect::<Result<Vec<_>, _>>()?;
    let (q, k): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let rng = &mut of_layer(seed, layer, VALUE_PROJECTION);
    let (v, o) = value_projection(Attention::Products, d, VP, rng)?; // (d, d), (d, d)
    let (q, k) = (Tensor::cat(&q, 0)?, Tensor::cat(&k, 0)?); // (d, d), (d, d)
    for (map, w) in [("q", q), ("k", k), ("v", v), ("o", o)] {
        let name = format!("backbone.layers.{layer}.mixer.{map}_proj.weight");
        weights.insert(name, w);
    }
    Ok(())
}

/// Applies one part to a layer.
fn apply(
    part: Change,
    shape: &SequenceShape,
    mixer: Mixer,
    weights: &mut Weights,
    layer: usize,
) -> Result<(), NetworkError> {
    let (e, n) = (shape.inner, shape.state);
    // The weight, and its rows, for B, C and the map to steps.
    let (maps, input, bias) = match mixer {
        Mixer::Mamba2 => ("in_proj.weight", 2 * e, "dt_bias"),
        _ => ("x_proj.weight", shape.step_rank, "dt_proj.bias"),
    };
    let mut change = |weight: &str, f: &dyn Fn(&Tensor) -> candle_core::Result<Tensor>| {
        let name = format!("backbone.layers.{layer}.mixer.{weight}");
        match weights.get_mut(&name) {
            Some(t) => f(t).map(|new| *t = new),
            None => candle_core::bail!("tensor {name} is missing"),
        }
    };
    match part {
        Change::State => change("A_log", &|a| a * -POWER)?,
        Change::Step => {
            change(bias, &|b| b.zeros_like()? + inverse_softplus(1.0))?;
            match mixer {
                Mixer::Mamba2 => change(maps, &|w| {
                    let steps = 2 * e + 2 * n;
                    let small = (w.narrow(0, steps, shape.heads)? * STEP_SHARE)?;
                    Tensor::cat(&[w.narrow(0, 0, steps)?, small], 0)
                })?,
                _ => change("dt_proj.weight", &|w| w * STEP_SHARE)?,
            }
        }
        Change::Correlation => change(maps, &|w| {
            let rest = w.dim(0)? - input - 2 * n;
            let (b, c) = (w.narrow(0, input, n)?, w.narrow(0, input + n, n)?);
            let mean = ((&b + c)? * 0.5)?;
            let (before, after) = (w.narrow(0, 0, input)?, w.narrow(0, input + 2 * n, rest)?);
            Tensor::cat(&[before, b, mean, after], 0)
        })?,
        Change::Convolution => {
            change("conv1d.bias", &|b| b.zeros_like())?;
            change("conv1d.weight", &|w| {
                let past = w.narrow(D::Minus1, 0, KERNEL - 1)?.zeros_like()?;
                let own = w.narrow(D::Minus1, 0, 1)?.ones_like()?;
                Tensor::cat(&[past, own], D::Minus1)
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
