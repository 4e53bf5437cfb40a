//! Memory per example during training and inference, in bytes.
//!
//! The leading terms count what each operator keeps for its gradient. The rest, gradients and scratch
//! memory, is fitted to measured peaks of resident memory, some of which are in the test.

use super::FLOAT;
use wave_models::Network;
use wave_models::transformer::TransformerShape;
use wave_ops::Mode;

/// Bytes per image in a training step.
pub(super) fn of_step(network: &Network, mode: Mode) -> u64 {
    let kept = match network {
        Network::Vit(s) => transformer((s.tokens(), s.depth, s.width, s.hidden()), mode),
        Network::Transformer(s) if s.trains() => {
            transformer((s.tokens(), s.depth, s.width, s.hidden), mode)
        }
        Network::ConvMixer(shape) => {
            let places = places(shape.image_size, shape.patch);
            places * shape.width as f64 * (6 * shape.depth + 8) as f64
        }
        Network::ConvNext(shape) => {
            let ends =
                places(shape.image_size, shape.patch) * isotropic(0, shape.width, shape.hidden());
            let of_block = |(n, h, m): (usize, usize, usize)| {
                n as f64 * (isotropic(1, h, m) - isotropic(0, h, m))
            };
            ends + shape.activations().into_iter().map(of_block).sum::<f64>()
        }
        // These networks do not train.
        Network::Transformer(_) | Network::Frozen(_) | Network::ZeroShot(_) => 0.0,
    };
    bytes(kept + pixels(network))
}

/// Bytes per image in a forward pass alone.
pub fn of_forward(network: &Network) -> u64 {
    let kept = match network {
        Network::Vit(shape) => (shape.tokens() * (8 * shape.width + shape.hidden())) as f64,
        Network::ConvMixer(shape) => {
            places(shape.image_size, shape.patch) * 6.0 * shape.width as f64
        }
        Network::ConvNext(shape) => {
            places(shape.image_size, shape.patch) * (4 * shape.width + 2 * shape.hidden()) as f64
        }
        Network::Transformer(s) => tower(s),
        Network::ZeroShot(s) => tower(&s.tower),
        Network::Frozen(network) => network.floats(),
    };
    bytes(kept + 2.0 * pixels(network))
}

/// Activations per image of a transformer with any options, in elements.
fn tower(s: &TransformerShape) -> f64 {
    s.tokens() as f64 * (10 * s.width + 2 * s.hidden) as f64
}

/// For every token: inputs of the blocks (d), q, k and v (3 d), output of attention (d), its sum with
/// the input (d), hidden values of the MLP, and gradients.
fn transformer((tokens, depth, d, hidden): (usize, usize, usize, usize), mode: Mode) -> f64 {
    let kept = match mode.recompute {
        true => depth * d, // their inputs
        false => depth * (6 * d + hidden),
    };
    tokens as f64 * (kept + 10 * d) as f64
}

/// Elements that an isotropic ConvNeXt keeps in a training step, for each position.
fn isotropic(depth: usize, width: usize, hidden: usize) -> f64 {
    let (h, m) = (width as f64, hidden as f64);
    1.15 * depth as f64 * (4.0 * h + 2.0 * m) + 12.0 * h + 2.0 * m
}

/// Number of patches of an image.
fn places(side: usize, patch: usize) -> f64 {
    let grid = side / patch.max(1);
    (grid * grid) as f64
}

fn pixels(network: &Network) -> f64 {
    let (channels, side) = network.input();
    (channels * side * side) as f64
}

fn bytes(floats: f64) -> u64 {
    (FLOAT as f64 * floats) as u64
}
