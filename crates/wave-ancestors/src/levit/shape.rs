//! Sizes of a LeViT, and the names and shapes of its weights.

use crate::check::{affine, batch_norm, check_weights, count, dims, divides, refuse_value, sizes};
use crate::fold::{self, Normed};
use crate::{Activation, Checked, Weights};

/// Value channels divided by key channels in downsampling attention.
pub(super) const SHRINKING_VALUES: usize = 4;

/// Hidden channels divided by width in the MLP after downsampling.
const SHRINKING_MLP: usize = 2;

/// The sizes of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct LevitStage {
    /// Channels of a token.
    pub width: usize,
    /// Number of blocks, without the downsampling one.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Value channels of a head.
    pub value: usize,
    /// Hidden channels of the MLP.
    pub hidden: usize,
}

/// The sizes of a LeViT.
#[derive(Clone, Debug, PartialEq)]
pub struct LevitShape {
    /// Side of the square input in pixels, a multiple of 2 to the power of `stem`.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Convolutions before the first stage, 3 or 4.
    pub stem: usize,
    /// Query and key channels of a head.
    pub key: usize,
    /// The stages; the resolution is halved between them.
    pub stages: Vec<LevitStage>,
    /// Outputs of each classifier.
    pub classes: usize,
    /// True if there are two classifiers, whose outputs are averaged.
    pub distilled: bool,
    /// True if linear maps are stored as 1 x 1 convolutions (timm's `levit_conv_*`).
    pub convolutional: bool,
    /// The activation everywhere: hard swish, or SiLU in timm's untrained variants.
    pub activation: Activation,
}

impl LevitShape {
    /// Channels of the last stage.
    pub(super) fn last_width(&self) -> usize {
        self.stages.last().map_or(0, |s| s.width)
    }

    /// Tokens along a side in a stage.
    pub fn resolution(&self, stage: usize) -> usize {
        let first = self.image_size >> self.stem; // each convolution halves it
        (0..stage).fold(first, |side, _| side.div_ceil(2))
    }

    /// Infers the sizes from weights under timm's names.
    pub fn infer(weights: &Weights, activation: Activation) -> Checked<LevitShape> {
        let [_, channels, _, _] = dims(weights, "stem.conv1.linear.weight")?;
        let stem = count(weights, |i| format!("stem.conv{}.linear.weight", i + 1));
        let first = "stages.0.blocks.0.attn.qkv.linear.weight";
        let convolutional = weights.get(first).is_some_and(|t| t.rank() == 4);
        let rows = |name: &str| -> Checked<[usize; 2]> {
            if convolutional {
                let [out, inputs, _, _] = dims(weights, name)?;
                return Ok([out, inputs]);
            }
            dims(weights, name)
        };
        let biases = |i: usize, l: usize| format!("stages.{i}.blocks.{l}.attn.attention_biases");
        let attention = |stage: usize| -> Checked<[usize; 5]> {
            let name = format!("stages.{stage}.blocks.0.attn");
            let [heads, tokens] = dims(weights, &biases(stage, 0))?;
            let [outputs, _] = rows(&format!("{name}.qkv.linear.weight"))?;
            let [width, values] = rows(&format!("{name}.proj.ln.linear.weight"))?;
            Ok([heads, tokens, outputs, width, values])
        };
        let [heads, tokens, outputs, _, values] = attention(0)?;
        let key = outputs.saturating_sub(values) / (2 * heads).max(1);
        let n_stages = count(weights, |i| biases(i, 0));
        let stages = (0..n_stages)
            .map(|i| {
                let [heads, _, _, width, values] = attention(i)?;
                let [hidden, _] = rows(&format!("stages.{i}.blocks.0.mlp.ln1.linear.weight"))?;
                Ok(LevitStage {
                    width,
                    depth: count(weights, |l| biases(i, l)),
                    heads,
                    value: values / heads.max(1),
                    hidden,
                })
            })
            .collect::<Checked<Vec<_>>>()?;
        let [classes, _] = dims(weights, "head.linear.weight")?;
        let shape = LevitShape {
            image_size: tokens.isqrt() << stem.min(4),
            channels,
            stem,
            key,
            stages,
            classes,
            distilled: weights.contains_key("head_dist.linear.weight"),
            convolutional,
            activation,
        };
        sizes(&[
            ("image_size", shape.image_size),
            ("channels", shape.channels),
            ("key", shape.key),
            ("stages", shape.stages.len()),
            ("classes", shape.classes),
        ])?;
        if !(3..=4).contains(&shape.stem) {
            return refuse_value("stem", format!("{} convolutions", shape.stem), "3 or 4");
        }
        for stage in &shape.stages {
            sizes(&[
                ("width", stage.width),
                ("depth", stage.depth),
                ("heads", stage.heads),
                ("value", stage.value),
                ("hidden", stage.hidden),
                ("width / key", stage.width / shape.key),
            ])?;
        }
        let width = shape.stages[0].width;
        divides("stem", 1 << (shape.stem - 1), "width", width)?;
        let activations = [Activation::HardSwish, Activation::Silu];
        shape.activation.among(&activations, "hard_swish or silu")?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }

    /// Names and shapes of all weights, as in timm, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = fold::parameters(&self.maps());
        for attention in self.attentions() {
            let name = format!("{}.attention_biases", attention.name);
            all.push((name, vec![attention.heads, attention.side.pow(2)]));
        }
        let mut heads = vec!["head"];
        if self.distilled {
            heads.push("head_dist");
        }
        for head in heads {
            let dims = vec![self.classes, self.last_width()];
            all.extend(batch_norm(&format!("{head}.bn"), self.last_width()));
            all.extend(affine(&format!("{head}.linear"), dims));
        }
        all
    }

    /// Attention heads of the downsampling before a stage.
    fn shrinking_heads(&self, stage: usize) -> usize {
        self.stages[stage - 1].width / self.key
    }

    /// The convolutions of the stem, and every linear map of the stages.
    pub(super) fn maps(&self) -> Vec<Normed> {
        let mut all = Vec::new();
        let mut add = |name: String, dims: Vec<usize>| {
            all.push(Normed {
                stored: format!("{name}.linear"),
                norm: format!("{name}.bn"),
                name,
                dims,
                depthwise: false,
            });
        };
        let first = self.stages.first().map_or(0, |s| s.width);
        let mut inputs = self.channels;
        for i in 1..=self.stem {
            let width = first >> (self.stem - i);
            add(format!("stem.conv{i}"), vec![width, inputs, 3, 3]);
            inputs = width;
        }
        let mut add = |name: String, outputs: usize, inputs: usize| {
            let kernel: &[usize] = if self.convolutional { &[1, 1] } else { &[] };
            add(name, [&[outputs, inputs], kernel].concat());
        };
        for (i, stage) in self.stages.iter().enumerate() {
            if i > 0 {
                let (from, to) = (self.stages[i - 1].width, stage.width);
                let heads = self.shrinking_heads(i);
                let values = SHRINKING_VALUES * self.key;
                let name = format!("stages.{i}.downsample");
                let attention = format!("{name}.attn_downsample");
                add(format!("{attention}.kv"), heads * (self.key + values), from);
                add(format!("{attention}.q.ln"), heads * self.key, from);
                add(format!("{attention}.proj.ln"), to, heads * values);
                add(format!("{name}.mlp.ln1"), SHRINKING_MLP * to, to);
                add(format!("{name}.mlp.ln2"), to, SHRINKING_MLP * to);
            }
            for l in 0..stage.depth {
                let name = format!("stages.{i}.blocks.{l}");
                let (d, values) = (stage.width, stage.heads * stage.value);
                let keys = stage.heads * self.key;
                add(format!("{name}.attn.qkv"), 2 * keys + values, d);
                add(format!("{name}.attn.proj.ln"), d, values);
                add(format!("{name}.mlp.ln1"), stage.hidden, d);
                add(format!("{name}.mlp.ln2"), d, stage.hidden);
            }
        }
        all
    }

    /// Every attention layer.
    pub(super) fn attentions(&self) -> Vec<Attention> {
        let mut all = Vec::new();
        for (i, stage) in self.stages.iter().enumerate() {
            if i > 0 {
                all.push(Attention {
                    name: format!("stages.{i}.downsample.attn_downsample"),
                    heads: self.shrinking_heads(i),
                    side: self.resolution(i - 1),
                    stride: 2,
                    queries: "q.ln",
                });
            }
            all.extend((0..stage.depth).map(|l| Attention {
                name: format!("stages.{i}.blocks.{l}.attn"),
                heads: stage.heads,
                side: self.resolution(i),
                stride: 1,
                queries: "qkv",
            }));
        }
        all
    }
}

/// An attention layer over `side` x `side` tokens, with queries from every `stride`-th row and column.
pub(super) struct Attention {
    pub(super) name: String,
    pub(super) heads: usize,
    pub(super) side: usize,
    pub(super) stride: usize,
    /// The map that computes the queries.
    pub(super) queries: &'static str,
}
