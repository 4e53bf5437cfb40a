//! Sizes of a sequence network, and the names of its weights.

use clap::ValueEnum;
use serde::Serialize;
use wave_models::ShapeError;
use wave_models::check::{divides, sizes};

/// Taps of the convolution before a state space layer.
pub const KERNEL: usize = 4;

/// A layer, between its norm and its skip connection.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mixer {
    /// The selective state space layer of Mamba (Gu and Dao 2023).
    Mamba,
    /// The mixer of Mamba-2 (Dao and Gu 2024).
    Mamba2,
    /// Causal softmax attention: the layer that makes a hybrid, and every second one of a transformer.
    Attention,
    /// Causal linear attention without a kernel, with one head.
    LinearAttention,
    /// No mixing of positions: the MLP between a transformer's attention layers.
    Mlp,
}

/// The sizes of a sequence network. All are at least 1; see [`SequenceShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SequenceShape {
    pub vocabulary: usize,
    /// Channels of a token.
    pub width: usize,
    pub mixers: Vec<Mixer>,
    /// Channels inside a state space layer: usually twice the width.
    pub inner: usize,
    /// Size N of the state of each channel, and of the queries and keys of linear attention.
    pub state: usize,
    /// Heads of Mamba-2; they share the inner channels evenly.
    pub heads: usize,
    /// Heads of softmax attention; they share the width evenly.
    pub attention_heads: usize,
    /// Hidden channels of an MLP.
    pub hidden: usize,
    /// Sinusoidal positions are added to the embedded tokens: [`sinusoidal_positions`](super::sinusoidal_positions).
    pub positions: bool,
    /// Rank of Mamba's map to step sizes.
    pub step_rank: usize,
}

/// The name of a layer's weight.
pub(super) fn name(layer: usize, weight: &str) -> String {
    format!("backbone.layers.{layer}.{weight}")
}

impl SequenceShape {
    /// The default shape for a vocabulary, a depth and a width: the same mixer in every layer, twice
    /// the width inside, heads of 64 channels (or all of them), a state of 16 for Mamba and 128 for
    /// Mamba-2.
    pub fn new(vocabulary: usize, depth: usize, width: usize, mixer: Mixer) -> SequenceShape {
        let inner = width.saturating_mul(2);
        SequenceShape {
            vocabulary,
            width,
            mixers: vec![mixer; depth],
            inner,
            state: if mixer == Mixer::Mamba { 16 } else { 128 },
            heads: (inner / 64).max(1),
            attention_heads: 1,
            hidden: width.saturating_mul(4),
            positions: false,
            step_rank: width.div_ceil(16),
        }
    }

    /// A transformer's shape: attention and an MLP in each block, heads of 64 channels (or all of them),
    /// and sinusoidal positions, as in section 3.2.6 of the thesis.
    pub fn transformer(vocabulary: usize, blocks: usize, width: usize) -> SequenceShape {
        SequenceShape {
            mixers: [Mixer::Attention, Mixer::Mlp].repeat(blocks),
            attention_heads: (width / 64).max(1),
            positions: true,
            ..SequenceShape::new(vocabulary, 0, width, Mixer::Attention)
        }
    }

    pub fn depth(&self) -> usize {
        self.mixers.len()
    }

    pub fn validate(&self) -> Result<(), ShapeError> {
        sizes(&[
            ("width", self.width),
            ("depth", self.depth()),
            ("state", self.state),
            ("heads", self.heads),
            ("heads of attention", self.attention_heads),
        ])?;
        if self.mixers.contains(&Mixer::Mamba2) {
            divides("heads", self.heads, "inner channels", self.inner)?;
        }
        if self.mixers.contains(&Mixer::Attention) {
            let heads = self.attention_heads;
            divides("heads of attention", heads, "width", self.width)?;
        }
        if self.positions {
            divides("a sine and a cosine:", 2, "width", self.width)?;
        }
        Ok(())
    }

    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (d, v) = (self.width, self.vocabulary);
        let mut out = vec![("backbone.embeddings.weight".to_owned(), vec![v, d])];
        for (layer, mixer) in self.mixers.iter().enumerate() {
            out.push((name(layer, "norm.weight"), vec![d]));
            let of = |(weight, dims): &(&str, Vec<usize>)| {
                (name(layer, &format!("mixer.{weight}")), dims.clone())
            };
            out.extend(self.of_mixer(*mixer).iter().map(of));
        }
        out.push(("backbone.norm_f.weight".to_owned(), vec![d]));
        out.push(("lm_head.weight".to_owned(), vec![v, d]));
        out
    }

    fn of_mixer(&self, mixer: Mixer) -> Vec<(&'static str, Vec<usize>)> {
        let (d, e, n) = (self.width, self.inner, self.state);
        let (h, k, r) = (self.heads, KERNEL, self.step_rank);
        match mixer {
            Mixer::Mamba2 => vec![
                ("in_proj.weight", vec![2 * e + 2 * n + h, d]),
                ("conv1d.weight", vec![e + 2 * n, 1, k]),
                ("conv1d.bias", vec![e + 2 * n]),
                ("dt_bias", vec![h]),
                ("A_log", vec![h]),
                ("D", vec![h]),
                ("norm.weight", vec![e]),
                ("out_proj.weight", vec![d, e]),
            ],
            Mixer::Mamba => vec![
                ("in_proj.weight", vec![2 * e, d]),
                ("conv1d.weight", vec![e, 1, k]),
                ("conv1d.bias", vec![e]),
                ("x_proj.weight", vec![r + 2 * n, e]),
                ("dt_proj.weight", vec![e, r]),
                ("dt_proj.bias", vec![e]),
                ("A_log", vec![e, n]),
                ("D", vec![e]),
                ("out_proj.weight", vec![d, e]),
            ],
            Mixer::Attention => vec![
                ("q_proj.weight", vec![d, d]),
                ("k_proj.weight", vec![d, d]),
                ("v_proj.weight", vec![d, d]),
                ("o_proj.weight", vec![d, d]),
            ],
            Mixer::LinearAttention => vec![
                ("q_proj.weight", vec![n, d]),
                ("k_proj.weight", vec![n, d]),
                ("v_proj.weight", vec![d, d]),
                ("norm.weight", vec![d]),
                ("o_proj.weight", vec![d, d]),
            ],
            Mixer::Mlp => vec![
                ("fc1.weight", vec![self.hidden, d]),
                ("fc2.weight", vec![d, self.hidden]),
            ],
        }
    }
}
