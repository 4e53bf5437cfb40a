//! EfficientViT (Liu et al. 2023, "EfficientViT: Memory Efficient Vision Transformer with Cascaded Group
//! Attention"), frozen, under timm's weight names.
//!
//! ```text
//! x = convolutions(image)                               3 x 3, stride 2, four of them
//! x = x + dw(x);  x = x + ffn(x);  x = x + W(relu(attention(x)));  x = x + dw(x);  x = x + ffn(x)
//! attention, head i of h:  y_i = softmax(dw_i(q) k^T / sqrt(key) + bias[|dy|, |dx|]) v
//!                          [q, k, v] = W_i (x_i + y_{i-1}),   x_i the i-th share of the channels
//! z = linear(mean over pixels of x)
//! ```
//!
//! Attention stays within windows of 7 x 7. A batch norm follows every map; `EfficientVit::new` folds
//! them away. Activations are channels-last.

use crate::check::{batch_norm, count, dims, divides, sizes, unsupported};
use crate::frozen::{self, Columns, Window};
use crate::table::{Known, agree, pooling, refuse_arguments};
use crate::{About, Body};
use crate::{Activation, ShapeError, Weights, check_weights, fold};
use candle_core::{DType, Result, Tensor};

/// Added to variances.
const EPS: f64 = 1e-5;
/// Largest side of an attention window, in pixels of a stage.
const WINDOW: usize = 7;
/// Convolutions before the stages, each of half the side.
const STEM: usize = 4;
/// Side of all kernels but the queries'.
const KERNEL: usize = 3;
/// Expansion ratio between stages: hidden channels over the channels before.
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
    /// Sides of the kernels over queries, head by head.
    pub kernels: Vec<usize>,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

/// A convolution with the batch norm that follows it.
struct Convolution {
    name: String,
    dims: [usize; 4],
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

    /// Side of a stage, in pixels of its own.
    fn side(&self, stage: usize) -> usize {
        (0..stage).fold(self.image_size >> STEM, |side, _| side.div_ceil(2))
    }

    /// Side of a stage's windows.
    fn window(&self, stage: usize) -> usize {
        self.side(stage).min(WINDOW)
    }

    fn convolutions(&self) -> Vec<Convolution> {
        let mut all = Vec::new();
        let mut add = |name: String, dims: [usize; 4]| all.push(Convolution { name, dims });
        let k = KERNEL;
        let first = self.stages.first().map_or(0, |(width, ..)| *width);
        let mut inputs = self.channels;
        for i in 1..=STEM {
            let out = first >> (STEM - i);
            add(format!("patch_embed.conv{i}"), [out, inputs, k, k]);
            inputs = out;
        }
        for (s, &(width, depth, heads)) in self.stages.iter().enumerate() {
            let mut residuals = |dw: String, ffn: String, width: usize| {
                add(dw, [width, 1, k, k]);
                add(format!("{ffn}.pw1"), [2 * width, width, 1, 1]);
                add(format!("{ffn}.pw2"), [width, 2 * width, 1, 1]);
            };
            if s > 0 {
                let name = format!("stages.{s}.downsample");
                let hidden = MERGING * inputs;
                residuals(
                    format!("{name}.res1.0.m"),
                    format!("{name}.res1.1.m"),
                    inputs,
                );
                residuals(
                    format!("{name}.res2.0.m"),
                    format!("{name}.res2.1.m"),
                    width,
                );
                let merge = format!("{name}.patchmerge");
                add(format!("{merge}.conv1"), [hidden, inputs, 1, 1]);
                add(format!("{merge}.conv2"), [hidden, 1, k, k]);
                add(format!("{merge}.conv3"), [width, hidden, 1, 1]);
                inputs = width;
            }
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}");
                let mut residuals = |i: usize| {
                    add(format!("{name}.dw{i}.m"), [width, 1, k, k]);
                    add(format!("{name}.ffn{i}.m.pw1"), [2 * width, width, 1, 1]);
                    add(format!("{name}.ffn{i}.m.pw2"), [width, 2 * width, 1, 1]);
                };
                residuals(0);
                residuals(1);
                let attention = format!("{name}.mixer.m.attn");
                let share = width / heads.max(1);
                for (h, kernel) in self.kernels.iter().take(heads).enumerate() {
                    let out = 2 * self.key + share;
                    add(format!("{attention}.qkvs.{h}"), [out, share, 1, 1]);
                    add(
                        format!("{attention}.dws.{h}"),
                        [self.key, 1, *kernel, *kernel],
                    );
                }
                add(format!("{attention}.proj.1"), [width, share * heads, 1, 1]);
            }
        }
        all
    }

    /// Names and shapes of all weights, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = Vec::new();
        for Convolution { name, dims } in self.convolutions() {
            all.push((format!("{name}.conv.weight"), dims.to_vec()));
            all.extend(batch_norm(&format!("{name}.bn"), dims[0]));
        }
        let mut inputs = 0;
        for (s, &(width, depth, heads)) in self.stages.iter().enumerate() {
            if s > 0 {
                let hidden = MERGING * inputs;
                let squeezed = hidden / 4;
                let name = format!("stages.{s}.downsample.patchmerge.se");
                for (part, out, inputs) in [("fc1", squeezed, hidden), ("fc2", hidden, squeezed)] {
                    all.push((format!("{name}.{part}.weight"), vec![out, inputs, 1, 1]));
                    all.push((format!("{name}.{part}.bias"), vec![out]));
                }
            }
            inputs = width;
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}.mixer.m.attn.attention_biases");
                all.push((name, vec![heads, self.window(s).pow(2)]));
            }
        }
        if self.classes > 0 {
            all.extend(batch_norm("head.bn", inputs));
            all.push(("head.linear.weight".into(), vec![self.classes, inputs]));
            all.push(("head.linear.bias".into(), vec![self.classes]));
        }
        all
    }
}

/// The EfficientViT of these weights, if they are one's.
pub(super) fn recognise(
    known: Known,
) -> std::result::Result<Option<EfficientVitShape>, ShapeError> {
    let weights = known.weights;
    if !known.has("patch_embed.conv1.conv.weight") {
        return Ok(None);
    }
    let named = (0..6).any(|i| known.name == format!("efficientvit_m{i}"));
    if !known.name.is_empty() && !named {
        let what = "of its kind only efficientvit_m0 to efficientvit_m5 are read";
        return Err(unsupported(known.name, what, "by its name"));
    }
    refuse_arguments(
        known,
        &["num_classes", "in_chans", "img_size", "global_pool"],
    )?;
    pooling(known, "avg")?;
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
    let classes = match known.has("head.linear.weight") {
        true => dims::<2>(weights, "head.linear.weight")?[0],
        false => 0,
    };
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
    Ok(Some(shape))
}

/// A map with its bias, laid out for [`frozen`].
type Map = (Tensor, Tensor);

/// `x + dw(x)` and `x + ffn(x)`: the first as one kernel.
struct Residuals {
    dw: Map,
    ffn: [Map; 2],
}

struct Head {
    qkv: Map,
    dw: Map,
    kernel: usize,
    bias: Tensor,
}

struct Block {
    before: Residuals,
    heads: Vec<Head>,
    proj: Map,
    after: Residuals,
}

struct Merging {
    before: Residuals,
    maps: [Map; 3],
    squeeze: [Map; 2],
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
    stem: Vec<Map>,
    stages: Vec<Stage>,
}

/// Weights by name, folded as they are asked for.
struct Folding<'a>(&'a Weights);

impl Folding<'_> {
    fn get(&self, name: &str) -> Result<&Tensor> {
        fold::get(self.0, name)
    }

    /// A convolution (out, in, k, k) with its batch norm.
    fn pair(&self, name: &str) -> Result<Map> {
        let norm = format!("{name}.bn");
        fold::into_outputs(self.0, &format!("{name}.conv.weight"), &norm, EPS)
    }

    fn dense(&self, name: &str) -> Result<Map> {
        let (weight, bias) = self.pair(name)?;
        Ok((fold::as_columns(&weight)?, bias))
    }

    /// A depthwise convolution times `scale`, plus the input itself `own` times.
    fn depthwise(&self, name: &str, scale: f64, own: f64) -> Result<Map> {
        let (weight, bias) = self.pair(name)?; // (c, 1, k, k)
        let (c, _, k, _) = weight.dims4()?;
        let mut centre = vec![0.0_f32; k * k];
        centre[k * k / 2] = own as f32;
        let centre = Tensor::from_vec(centre, (k * k, 1), weight.device())?;
        let columns = (weight.reshape((c, k * k))?.t()? * scale)?;
        let weight = columns.broadcast_add(&centre)?.contiguous()?;
        Ok((weight, (bias * scale)?))
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

    fn linear(&self, name: &str) -> Result<Map> {
        let weight = self.get(&format!("{name}.weight"))?;
        let bias = self.get(&format!("{name}.bias"))?;
        Ok((fold::as_columns(weight)?, bias.clone()))
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
                self.linear(&format!("{merge}.se.fc1"))?,
                self.linear(&format!("{merge}.se.fc2"))?,
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
        let biases = self.get(&format!("{attention}.attention_biases"))?; // (heads, side^2)
        let n = side * side;
        let mut places = Vec::with_capacity(n * n);
        for p in 0..n {
            for q in 0..n {
                let dy = (p / side).abs_diff(q / side);
                places.push((dy * side + (p % side).abs_diff(q % side)) as u32);
            }
        }
        let places = Tensor::from_vec(places, n * n, biases.device())?;
        let biases = biases.contiguous()?.index_select(&places, 1)?; // (heads, n n)
        let share = (shape.key as f64).powf(-0.5);
        let head = |(h, kernel): (usize, &usize)| {
            Ok(Head {
                qkv: self.dense(&format!("{attention}.qkvs.{h}"))?,
                dw: self.depthwise(&format!("{attention}.dws.{h}"), share, 0.0)?,
                kernel: *kernel,
                bias: biases.narrow(0, h, 1)?.reshape((1, n, n))?,
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
    /// With the classifier above it.
    pub(super) fn new(
        shape: &EfficientVitShape,
        weights: &Weights,
    ) -> Result<(EfficientVit, Option<Map>)> {
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
                // linear(s x + t) = (W s) x + (W t + b)
                let (scale, shift) = fold::affine(weights, "head.bn", EPS)?;
                let weight = folding.get("head.linear.weight")?.to_dtype(DType::F64)?;
                let bias = folding.get("head.linear.bias")?.to_dtype(DType::F64)?;
                let bias = (bias + weight.matmul(&shift.unsqueeze(1)?)?.squeeze(1)?)?;
                let weight = fold::as_columns(&weight.broadcast_mul(&scale)?)?;
                Some((weight.to_dtype(DType::F32)?, bias.to_dtype(DType::F32)?))
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
        for (i, (w, b)) in self.stem.iter().enumerate() {
            let window = Window::padded(x.dim(1)?, KERNEL, 2, 1);
            let act = match i + 1 == STEM {
                true => Activation::Identity,
                false => Activation::Relu,
            };
            x = frozen::convolve(&x, w, b, window, act)?;
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
        let (w, b) = &self.dw;
        let x = frozen::depthwise(x, w, b, window, Activation::Identity)?;
        let [(w1, b1), (w2, b2)] = &self.ffn;
        let hidden = frozen::linear(&x, w1, b1, None, Activation::Relu)?;
        frozen::linear(&hidden, w2, b2, Some(&x), Activation::Identity)
    }
}

impl Merging {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.before.run(x)?;
        let [(w1, b1), (w2, b2), (w3, b3)] = &self.maps;
        let x = frozen::linear(&x, w1, b1, None, Activation::Relu)?;
        let window = Window::padded(x.dim(1)?, KERNEL, 2, 1);
        let x = frozen::depthwise(&x, w2, b2, window, Activation::Relu)?;
        let [(w, b), (v, c)] = &self.squeeze;
        let means = frozen::mean_rows(&x.flatten(1, 2)?)?; // (b, hidden)
        let gate = frozen::linear(&means, w, b, None, Activation::Relu)?;
        let gate = frozen::linear(&gate, v, c, None, Activation::Identity)?;
        let gate = ((gate.neg()?.exp()? + 1.0)?.recip()?)
            .unsqueeze(1)?
            .unsqueeze(1)?;
        let x = x.broadcast_mul(&gate)?;
        let x = frozen::linear(&x, w3, b3, None, Activation::Identity)?;
        self.after.run(&x)
    }
}

impl Block {
    fn run(&self, x: &Tensor, key: usize, window: usize) -> Result<Tensor> {
        let x = self.before.run(x)?;
        let (b, s, _, c) = x.dims4()?;
        let (windows, padded) = (s.div_ceil(window), s.div_ceil(window) * window);
        let cut = match s == window {
            true => x.clone(),
            false => x
                .pad_with_zeros(1, 0, padded - s)?
                .pad_with_zeros(2, 0, padded - s)?
                .reshape(&[b, windows, window, windows, window, c][..])?
                .transpose(2, 3)?
                .contiguous()?
                .reshape((b * windows * windows, window, window, c))?,
        };
        let mixed = self.attention(&cut, key)?;
        let joined = match s == window {
            true => mixed,
            false => mixed
                .reshape(&[b, windows, windows, window, window, c][..])?
                .transpose(2, 3)?
                .contiguous()?
                .reshape((b, padded, padded, c))?
                .narrow(1, 0, s)?
                .narrow(2, 0, s)?
                .contiguous()?,
        };
        self.after.run(&(x + joined)?)
    }

    /// Attention over each of the windows (b, s, s, c), head after head.
    fn attention(&self, x: &Tensor, key: usize) -> Result<Tensor> {
        let (b, s, _, c) = x.dims4()?;
        let share = c / self.heads.len();
        let n = s * s;
        let mut outputs: Vec<Tensor> = Vec::with_capacity(self.heads.len());
        for (h, head) in self.heads.iter().enumerate() {
            let mut input = x.narrow(3, h * share, share)?.contiguous()?;
            if let Some(last) = outputs.last() {
                input = (input + last)?;
            }
            let (w, bias) = &head.qkv;
            let qkv = frozen::linear(&input, w, bias, None, Activation::Identity)?;
            let q = qkv.narrow(3, 0, key)?.contiguous()?;
            let window = Window::padded(s, head.kernel, 1, head.kernel / 2);
            let (w, bias) = &head.dw;
            let q = frozen::depthwise(&q, w, bias, window, Activation::Identity)?;
            let (q, qkv) = (q.flatten(1, 2)?, qkv.flatten(1, 2)?); // (b, n, ..)
            let of = |offset| Columns {
                tokens: &qkv,
                offset,
                per_head: 2 * key + share,
            };
            let query = Columns {
                tokens: &q,
                offset: 0,
                per_head: key,
            };
            let (widths, none) = ((key, share), Activation::Identity);
            let y = frozen::attention(query, of(key), of(2 * key), &head.bias, widths, none)?;
            outputs.push(y.reshape((b, s, s, share))?);
        }
        debug_assert_eq!(self.heads[0].bias.dims(), [1, n, n]);
        let (w, bias) = &self.proj;
        let mixed = Tensor::cat(&outputs, 3)?.relu()?;
        frozen::linear(&mixed, w, bias, None, Activation::Identity)
    }
}
