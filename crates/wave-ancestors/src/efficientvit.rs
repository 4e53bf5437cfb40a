//! EfficientViT (Liu et al. 2023, "EfficientViT: Memory Efficient Vision Transformer with Cascaded Group
//! Attention"), inference-only, with timm's weight names.
//!
//! ```text
//! x = convolutions(image)                               3 x 3, stride 2, four of them
//! x = x + dw(x);  x = x + ffn(x);  x = x + W(relu(attention(x)));  x = x + dw(x);  x = x + ffn(x)
//! attention, head i of h:  y_i = softmax(dw_i(q) k^T / sqrt(key) + bias[|dy|, |dx|]) v
//!                          [q, k, v] = W_i (x_i + y_{i-1}),   x_i the i-th share of the channels
//! z = linear(mean over pixels of x)
//! ```
//!
//! Attention is computed within windows of 7 x 7. Every convolution and linear map is followed by a batch
//! norm, which `EfficientVit::new` folds into it. Activations are channels-last.

use crate::check::{affine, batch_norm, count, dims, divides, sizes, unsupported};
use crate::fold::{self, Affine};
use crate::frozen::{self, Columns, Window};
use crate::table::{Known, agree, usual_arguments};
use crate::{About, Body, FrozenNetwork};
use crate::{Activation, ShapeError, Weights, check_weights};
use candle_core::{DType, Result, Tensor};

/// Epsilon of the batch norms.
const EPS: f64 = 1e-5;
/// Maximum side of an attention window, in pixels of the stage.
const WINDOW: usize = 7;
/// Convolutions before the stages, each of which halves the side.
const STEM: usize = 4;
/// Size of all kernels except the queries'.
const KERNEL: usize = 3;
/// Expansion ratio between stages: hidden channels divided by input channels.
const MERGING: usize = 4;
/// The sizes of an EfficientViT.
#[derive(Clone, Debug, PartialEq)]
pub struct EfficientVitShape {
    /// Side of the square input in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Channels of queries and keys of a head.
    pub key: usize,
    /// Channels, blocks and heads of the stages.
    pub stages: Vec<(usize, usize, usize)>,
    /// Kernel sizes for the queries, by head.
    pub kernels: Vec<usize>,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

/// Names and shapes of weights.
type Parameters = Vec<(String, Vec<usize>)>;

/// Adds a convolution followed by a batch norm.
fn add(all: &mut Parameters, name: String, dims: [usize; 4]) {
    all.push((format!("{name}.conv.weight"), dims.to_vec()));
    all.extend(batch_norm(&format!("{name}.bn"), dims[0]));
}

/// Adds the convolutions of [`Residuals`].
fn add_residuals(all: &mut Parameters, dw: String, ffn: String, width: usize) {
    add(all, dw, [width, 1, KERNEL, KERNEL]);
    add(all, format!("{ffn}.pw1"), [2 * width, width, 1, 1]);
    add(all, format!("{ffn}.pw2"), [width, 2 * width, 1, 1]);
}

impl EfficientVitShape {
    pub(super) fn about(&self) -> About {
        About {
            family: "an EfficientViT",
            depth: self.stages.iter().map(|(_, depth, _)| depth).sum(),
            width: self.stages.last().map_or(0, |(width, ..)| *width),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// Side of a stage's activations, in pixels.
    fn side(&self, stage: usize) -> usize {
        (0..stage).fold(self.image_size >> STEM, |side, _| side.div_ceil(2))
    }

    /// Side of a stage's windows.
    fn window(&self, stage: usize) -> usize {
        self.side(stage).min(WINDOW)
    }

    /// Names and shapes of all weights, running statistics included.
    pub fn parameters(&self) -> Parameters {
        let mut parameters = Vec::new();
        let all = &mut parameters;
        let k = KERNEL;
        let first = self.stages.first().map_or(0, |(width, ..)| *width);
        let mut inputs = self.channels;
        for i in 1..=STEM {
            let out = first >> (STEM - i);
            add(all, format!("patch_embed.conv{i}"), [out, inputs, k, k]);
            inputs = out;
        }
        for (s, &(width, depth, heads)) in self.stages.iter().enumerate() {
            if s > 0 {
                let name = format!("stages.{s}.downsample");
                let hidden = MERGING * inputs;
                for (part, width) in [("res1", inputs), ("res2", width)] {
                    let (dw, ffn) = (format!("{name}.{part}.0.m"), format!("{name}.{part}.1.m"));
                    add_residuals(all, dw, ffn, width);
                }
                let merge = format!("{name}.patchmerge");
                add(all, format!("{merge}.conv1"), [hidden, inputs, 1, 1]);
                add(all, format!("{merge}.conv2"), [hidden, 1, k, k]);
                add(all, format!("{merge}.conv3"), [width, hidden, 1, 1]);
                let squeezed = hidden / 4;
                for (part, out, inputs) in [("fc1", squeezed, hidden), ("fc2", hidden, squeezed)] {
                    let name = format!("{merge}.se.{part}");
                    all.extend(affine(&name, vec![out, inputs, 1, 1]));
                }
            }
            inputs = width;
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}");
                for i in 0..2 {
                    let (dw, ffn) = (format!("{name}.dw{i}.m"), format!("{name}.ffn{i}.m"));
                    add_residuals(all, dw, ffn, width);
                }
                let attention = format!("{name}.mixer.m.attn");
                let share = width / heads.max(1);
                for (h, kernel) in self.kernels.iter().take(heads).enumerate() {
                    let out = 2 * self.key + share;
                    add(all, format!("{attention}.qkvs.{h}"), [out, share, 1, 1]);
                    let dims = [self.key, 1, *kernel, *kernel];
                    add(all, format!("{attention}.dws.{h}"), dims);
                }
                let dims = [width, share * heads, 1, 1];
                add(all, format!("{attention}.proj.1"), dims);
                let biases = vec![heads, self.window(s).pow(2)];
                all.push((format!("{attention}.attention_biases"), biases));
            }
        }
        if self.classes > 0 {
            all.extend(batch_norm("head.bn", inputs));
            all.extend(affine("head.linear", vec![self.classes, inputs]));
        }
        parameters
    }
}

/// Recognises an EfficientViT; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> std::result::Result<Option<FrozenNetwork>, ShapeError> {
    let weights = known.weights;
    if !known.has("patch_embed.conv1.conv.weight") {
        return Ok(None);
    }
    let named = (0..6).any(|i| known.name == format!("efficientvit_m{i}"));
    if !known.name.is_empty() && !named {
        let what = "only efficientvit_m0 to efficientvit_m5 of its family are supported";
        return Err(unsupported(known.name, what, "by its name"));
    }
    usual_arguments(known)?;
    let [_, channels, _, _] = dims(weights, "patch_embed.conv1.conv.weight")?;
    let first = "blocks.0.mixer.m.attn";
    let n_stages = count(weights, |s| {
        format!("stages.{s}.{first}.qkvs.0.conv.weight")
    });
    let stage = |s: usize| {
        let [width, ..] = dims::<4>(weights, &format!("stages.{s}.{first}.proj.1.conv.weight"))?;
        let depth = count(weights, |l| {
            format!("stages.{s}.blocks.{l}.dw0.m.conv.weight")
        });
        let head = |h| format!("stages.{s}.{first}.qkvs.{h}.conv.weight");
        Ok((width, depth, count(weights, head)))
    };
    let stages = (0..n_stages)
        .map(stage)
        .collect::<std::result::Result<Vec<_>, ShapeError>>()?;
    let most = stages
        .iter()
        .enumerate()
        .max_by_key(|(_, (.., heads))| *heads);
    let Some((widest, (.., heads))) = most else {
        let name = format!("stages.0.{first}.qkvs.0.conv.weight");
        return Err(ShapeError::Missing { name });
    };
    let kernel = |h: usize| {
        let name = format!("stages.{widest}.{first}.dws.{h}.conv.weight");
        dims::<4>(weights, &name).map(|[_, _, kernel, _]| kernel)
    };
    let kernels = (0..*heads)
        .map(kernel)
        .collect::<std::result::Result<Vec<_>, ShapeError>>()?;
    let [key, ..] = dims::<4>(weights, &format!("stages.0.{first}.dws.0.conv.weight"))?;
    let classes = known.rows("head.linear")?;
    let shape = EfficientVitShape {
        image_size: known.image_size(224),
        channels,
        key,
        stages,
        kernels,
        classes,
    };
    sizes(&[("channels", channels), ("key", key)])?;
    divides("16", 1 << STEM, "image_size", shape.image_size)?;
    for &(width, _, heads) in &shape.stages {
        sizes(&[("width", width), ("heads", heads)])?;
        divides("heads", heads, "width", width)?;
        divides("8", 8, "width", shape.stages[0].0)?;
    }
    check_weights(weights, &shape.parameters())?;
    for (key, found) in [("num_classes", classes), ("in_chans", channels)] {
        agree(known, key, found)?;
    }
    Ok(Some(FrozenNetwork::EfficientVit(shape)))
}

/// `x + dw(x)` and `x + ffn(x)`, the first as a single kernel.
struct Residuals {
    dw: Affine,
    ffn: [Affine; 2],
}

struct Head {
    qkv: Affine,
    dw: Affine,
    kernel: usize,
    bias: Tensor,
}

struct Block {
    before: Residuals,
    heads: Vec<Head>,
    proj: Affine,
    after: Residuals,
}

struct Merging {
    before: Residuals,
    maps: [Affine; 3],
    squeeze: [Affine; 2],
    after: Residuals,
}

struct Stage {
    merging: Option<Merging>,
    blocks: Vec<Block>,
    window: usize,
}

/// An EfficientViT with its weights.
pub(super) struct EfficientVit {
    key: usize,
    stem: Vec<Affine>,
    stages: Vec<Stage>,
}

/// Weights by name, folded on demand.
struct Folding<'a>(&'a Weights);

impl Folding<'_> {
    /// A convolution (out, in, k, k) with its batch norm folded in.
    fn normed(&self, name: &str) -> Result<Affine> {
        let norm = format!("{name}.bn");
        fold::into_outputs(self.0, &format!("{name}.conv.weight"), &norm, EPS)
    }

    fn dense(&self, name: &str) -> Result<Affine> {
        self.normed(name)?.columns()
    }

    /// A depthwise convolution times `scale`, plus `own` times its input.
    fn depthwise(&self, name: &str, scale: f64, own: f64) -> Result<Affine> {
        let Affine { weight, bias } = self.normed(name)?; // (c, 1, k, k)
        let (c, _, k, _) = weight.dims4()?;
        let mut centre = vec![0.0_f32; k * k];
        centre[k * k / 2] = own as f32;
        let centre = Tensor::from_vec(centre, (k * k, 1), weight.device())?;
        let columns = (weight.reshape((c, k * k))?.t()? * scale)?;
        Ok(Affine {
            weight: columns.broadcast_add(&centre)?.contiguous()?,
            bias: (bias * scale)?,
        })
    }

    fn residuals(&self, dw: &str, ffn: &str) -> Result<Residuals> {
        Ok(Residuals {
            dw: self.depthwise(dw, 1.0, 1.0)?,
            ffn: [
                self.dense(&format!("{ffn}.pw1"))?,
                self.dense(&format!("{ffn}.pw2"))?,
            ],
        })
    }

    fn merging(&self, name: &str) -> Result<Merging> {
        let merge = format!("{name}.patchmerge");
        let residuals = |part: &str| {
            self.residuals(&format!("{name}.{part}.0.m"), &format!("{name}.{part}.1.m"))
        };
        Ok(Merging {
            before: residuals("res1")?,
            maps: [
                self.dense(&format!("{merge}.conv1"))?,
                self.depthwise(&format!("{merge}.conv2"), 1.0, 0.0)?,
                self.dense(&format!("{merge}.conv3"))?,
            ],
            squeeze: [
                Affine::map(self.0, &format!("{merge}.se.fc1"))?,
                Affine::map(self.0, &format!("{merge}.se.fc2"))?,
            ],
            after: residuals("res2")?,
        })
    }

    fn block(
        &self,
        shape: &EfficientVitShape,
        name: &str,
        heads: usize,
        side: usize,
    ) -> Result<Block> {
        let attention = format!("{name}.mixer.m.attn");
        let biases = fold::get(self.0, &format!("{attention}.attention_biases"))?;
        let biases = fold::biases_by_distance(biases, side, 1)?;
        let share = (shape.key as f64).powf(-0.5);
        let head = |(h, kernel): (usize, &usize)| {
            Ok(Head {
                qkv: self.dense(&format!("{attention}.qkvs.{h}"))?,
                dw: self.depthwise(&format!("{attention}.dws.{h}"), share, 0.0)?,
                kernel: *kernel,
                bias: biases.narrow(0, h, 1)?,
            })
        };
        let residuals =
            |i: usize| self.residuals(&format!("{name}.dw{i}.m"), &format!("{name}.ffn{i}.m"));
        Ok(Block {
            before: residuals(0)?,
            heads: shape
                .kernels
                .iter()
                .take(heads)
                .enumerate()
                .map(head)
                .collect::<Result<_>>()?,
            proj: self.dense(&format!("{attention}.proj.1"))?,
            after: residuals(1)?,
        })
    }
}

impl EfficientVit {
    /// The network and its classifier, if there is one.
    pub(super) fn new(
        shape: &EfficientVitShape,
        weights: &Weights,
    ) -> Result<(EfficientVit, Option<Affine>)> {
        check_weights(weights, &shape.parameters()).map_err(candle_core::Error::wrap)?;
        let folding = Folding(weights);
        let stage = |(s, &(_, depth, heads)): (usize, &(usize, usize, usize))| {
            let name = format!("stages.{s}");
            let window = shape.window(s);
            Ok(Stage {
                merging: match s {
                    0 => None,
                    _ => Some(folding.merging(&format!("{name}.downsample"))?),
                },
                blocks: (0..depth)
                    .map(|l| folding.block(shape, &format!("{name}.blocks.{l}"), heads, window))
                    .collect::<Result<_>>()?,
                window,
            })
        };
        let classifier = match shape.classes {
            0 => None,
            _ => {
                let Affine { weight, bias } = fold::classifier(weights, "head", EPS)?;
                Some(Affine {
                    weight: weight.to_dtype(DType::F32)?,
                    bias: bias.to_dtype(DType::F32)?,
                })
            }
        };
        let network = EfficientVit {
            key: shape.key,
            stem: (1..=STEM)
                .map(|i| folding.dense(&format!("patch_embed.conv{i}")))
                .collect::<Result<_>>()?,
            stages: shape
                .stages
                .iter()
                .enumerate()
                .map(stage)
                .collect::<Result<_>>()?,
        };
        Ok((network, classifier))
    }
}

impl Body for EfficientVit {
    const AT_ONCE: usize = 16;

    fn run(&self, images: &Tensor) -> Result<Tensor> {
        let mut x = images.permute((0, 2, 3, 1))?.contiguous()?; // (b, s, s, channels)
        for (i, map) in self.stem.iter().enumerate() {
            let window = Window::padded(x.dim(1)?, KERNEL, 2, 1);
            let act = match i + 1 == STEM {
                true => Activation::Identity,
                false => Activation::Relu,
            };
            x = map.convolve(&x, window, act)?;
        }
        for stage in &self.stages {
            if let Some(merging) = &stage.merging {
                x = merging.run(&x)?;
            }
            for block in &stage.blocks {
                x = block.run(&x, self.key, stage.window)?;
            }
        }
        frozen::mean_rows(&x.flatten(1, 2)?)
    }
}

impl Residuals {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let window = Window::padded(x.dim(1)?, KERNEL, 1, 1);
        let x = self.dw.depthwise(x, window, Activation::Identity)?;
        let [first, second] = &self.ffn;
        second.onto(&x, &first.linear(&x, Activation::Relu)?)
    }
}

impl Merging {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.before.run(x)?;
        let [first, second, third] = &self.maps;
        let x = first.linear(&x, Activation::Relu)?;
        let window = Window::padded(x.dim(1)?, KERNEL, 2, 1);
        let x = second.depthwise(&x, window, Activation::Relu)?;
        let [squeeze, expand] = &self.squeeze;
        let means = frozen::mean_rows(&x.flatten(1, 2)?)?; // (b, hidden)
        let gate = squeeze.linear(&means, Activation::Relu)?;
        let gate = expand.linear(&gate, Activation::Identity)?;
        let gate = ((gate.neg()?.exp()? + 1.0)?.recip()?)
            .unsqueeze(1)?
            .unsqueeze(1)?;
        let x = x.broadcast_mul(&gate)?;
        self.after.run(&third.linear(&x, Activation::Identity)?)
    }
}

impl Block {
    fn run(&self, x: &Tensor, key: usize, window: usize) -> Result<Tensor> {
        let x = self.before.run(x)?;
        let (b, s, _, c) = x.dims4()?;
        let (windows, padded) = (s.div_ceil(window), s.div_ceil(window) * window);
        // Nothing is copied if there is only one window.
        let cut = x
            .pad_with_zeros(1, 0, padded - s)?
            .pad_with_zeros(2, 0, padded - s)?
            .reshape(&[b, windows, window, windows, window, c][..])?
            .transpose(2, 3)?
            .contiguous()?
            .reshape((b * windows * windows, window, window, c))?;
        let joined = self
            .attention(&cut, key)?
            .reshape(&[b, windows, windows, window, window, c][..])?
            .transpose(2, 3)?
            .contiguous()?
            .reshape((b, padded, padded, c))?
            .narrow(1, 0, s)?
            .narrow(2, 0, s)?
            .contiguous()?;
        self.after.run(&(x + joined)?)
    }

    /// Attention within each of the windows (b, s, s, c), head by head.
    fn attention(&self, x: &Tensor, key: usize) -> Result<Tensor> {
        let (b, s, _, c) = x.dims4()?;
        let share = c / self.heads.len();
        let mut outputs: Vec<Tensor> = Vec::with_capacity(self.heads.len());
        for (h, head) in self.heads.iter().enumerate() {
            let mut input = x.narrow(3, h * share, share)?.contiguous()?;
            if let Some(last) = outputs.last() {
                input = (input + last)?;
            }
            let qkv = head.qkv.linear(&input, Activation::Identity)?;
            let q = qkv.narrow(3, 0, key)?.contiguous()?;
            let window = Window::padded(s, head.kernel, 1, head.kernel / 2);
            let q = head.dw.depthwise(&q, window, Activation::Identity)?;
            let (q, qkv) = (q.flatten(1, 2)?, qkv.flatten(1, 2)?); // (b, n, ..)
            let of = |offset| Columns::new(&qkv, offset, 2 * key + share);
            let query = Columns::new(&q, 0, key);
            let (widths, none) = ((key, share), Activation::Identity);
            let y = frozen::attention(query, of(key), of(2 * key), &head.bias, widths, none)?;
            outputs.push(y.reshape((b, s, s, share))?);
        }
        let mixed = Tensor::cat(&outputs, 3)?.relu()?;
        self.proj.linear(&mixed, Activation::Identity)
    }
}
