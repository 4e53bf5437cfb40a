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
//! norm, which freezing folds into it. Activations are channels-last.

use crate::check::{affine, batch_norm, count, dims, divides, multiple, sizes, unsupported};
use crate::fold::{self, Affine, Normed};
use crate::frozen::{self, Columns, Window};
use crate::table::{Known, usual_arguments};
use crate::{About, Activation, Checked, Family, FrozenNetwork, Weights};
use candle_core::{Result, Tensor};

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
/// Names of the maps of squeeze and excitation between stages.
const SQUEEZE: [&str; 2] = ["patchmerge.se.fc1", "patchmerge.se.fc2"];
/// Name of the attention in a block.
const ATTENTION: &str = "mixer.m.attn";

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

impl EfficientVitShape {
    /// Side of a stage's windows, at most that of its activations.
    fn window(&self, stage: usize) -> usize {
        let side = (0..stage).fold(self.image_size >> STEM, |side, _| side.div_ceil(2));
        side.min(WINDOW)
    }

    /// All convolutions and linear maps but the classifier and those of [`SQUEEZE`].
    fn maps(&self) -> Vec<Normed> {
        let mut all = Vec::new();
        let mut add = |name: String, dims: [usize; 4], depthwise: bool| {
            all.push(Normed {
                stored: format!("{name}.conv"),
                norm: format!("{name}.bn"),
                name,
                dims: dims.to_vec(),
                depthwise,
            });
        };
        let k = KERNEL;
        let first = self.stages.first().map_or(0, |(width, ..)| *width);
        let mut inputs = self.channels;
        for i in 1..=STEM {
            let out = first >> (STEM - i);
            add(format!("patch_embed.conv{i}"), [out, inputs, k, k], false);
            inputs = out;
        }
        for (s, &(width, depth, heads)) in self.stages.iter().enumerate() {
            let mut residuals = Vec::new();
            if s > 0 {
                let name = format!("stages.{s}.downsample");
                residuals.extend(residuals_of_merging(&name).into_iter().zip([inputs, width]));
                let (merge, hidden) = (format!("{name}.patchmerge"), MERGING * inputs);
                add(format!("{merge}.conv1"), [hidden, inputs, 1, 1], false);
                add(format!("{merge}.conv2"), [hidden, 1, k, k], true);
                add(format!("{merge}.conv3"), [width, hidden, 1, 1], false);
            }
            let share = width / heads.max(1);
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}");
                residuals.extend(residuals_of_block(&name).map(|names| (names, width)));
                let name = format!("{name}.{ATTENTION}");
                for (h, &k) in self.kernels.iter().take(heads).enumerate() {
                    let out = 2 * self.key + share;
                    add(format!("{name}.qkvs.{h}"), [out, share, 1, 1], false);
                    add(format!("{name}.dws.{h}"), [self.key, 1, k, k], true);
                }
                let dims = [width, share * heads, 1, 1];
                add(format!("{name}.proj.1"), dims, false);
            }
            for ([dw, ffn], width) in residuals {
                add(dw, [width, 1, k, k], true);
                add(format!("{ffn}.pw1"), [2 * width, width, 1, 1], false);
                add(format!("{ffn}.pw2"), [width, 2 * width, 1, 1], false);
            }
            inputs = width;
        }
        all
    }

    /// Names and shapes of all weights, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = fold::parameters(&self.maps());
        let mut inputs = 0;
        for (s, &(width, depth, heads)) in self.stages.iter().enumerate() {
            if s > 0 {
                let hidden = MERGING * inputs;
                let sizes = [[hidden / 4, hidden], [hidden, hidden / 4]];
                for (part, [out, inputs]) in SQUEEZE.into_iter().zip(sizes) {
                    let name = format!("stages.{s}.downsample.{part}");
                    all.extend(affine(&name, vec![out, inputs, 1, 1]));
                }
            }
            inputs = width;
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}.{ATTENTION}.attention_biases");
                all.push((name, vec![heads, self.window(s).pow(2)]));
            }
        }
        if self.classes > 0 {
            all.extend(batch_norm("head.bn", inputs));
            all.extend(affine("head.linear", vec![self.classes, inputs]));
        }
        all
    }
}

/// Names of the depthwise convolution and of the feed-forward network of the two [`residuals`] of a block.
fn residuals_of_block(name: &str) -> [[String; 2]; 2] {
    [0, 1].map(|i| [format!("{name}.dw{i}.m"), format!("{name}.ffn{i}.m")])
}

/// The same of the layers between two stages.
fn residuals_of_merging(name: &str) -> [[String; 2]; 2] {
    ["res1", "res2"].map(|part| [0, 1].map(|i| format!("{name}.{part}.{i}.m")))
}

/// Recognises an EfficientViT; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> Checked<Option<FrozenNetwork>> {
    let weights = known.weights;
    if !known.has("patch_embed.conv1.conv.weight") {
        return Ok(None);
    }
    let named = (0..6).any(|i| known.name == format!("efficientvit_m{i}"));
    if !known.name.is_empty() && !named {
        let what = "only efficientvit_m0 to efficientvit_m5 of its family are supported";
        return Err(unsupported(known.name, what, "by its name"));
    }
    usual_arguments(known, &[])?;
    let [_, channels, _, _] = dims(weights, "patch_embed.conv1.conv.weight")?;
    // A map of the attention in the first block of a stage.
    let map = |s: usize, part: &str| format!("stages.{s}.blocks.0.{ATTENTION}.{part}.conv.weight");
    let n_stages = count(weights, |s| map(s, "qkvs.0"));
    let stage = |s: usize| {
        let [width, ..] = dims::<4>(weights, &map(s, "proj.1"))?;
        let block = |l| format!("stages.{s}.blocks.{l}.dw0.m.conv.weight");
        let heads = count(weights, |h| map(s, &format!("qkvs.{h}")));
        Ok((width, count(weights, block), heads))
    };
    let stages = (0..n_stages).map(stage).collect::<Checked<Vec<_>>>()?;
    let kernel = |h: usize| {
        let mut names = (0..n_stages).map(|s| map(s, &format!("dws.{h}")));
        let found = names.find(|name| known.has(name))?;
        Some(dims::<4>(weights, &found).map(|[_, _, kernel, _]| kernel))
    };
    let kernels = (0..).map_while(kernel).collect::<Checked<Vec<_>>>()?;
    let [key, ..] = dims::<4>(weights, &map(0, "dws.0"))?;
    let shape = EfficientVitShape {
        image_size: known.image_size(224),
        channels,
        key,
        stages,
        kernels,
        classes: known.rows("head.linear")?,
    };
    sizes(&[("channels", channels), ("key", key)])?;
    for &(width, _, heads) in &shape.stages {
        sizes(&[("width", width), ("heads", heads)])?;
        divides("heads", heads, "width", width)?;
    }
    multiple("image_size", shape.image_size, 1 << STEM)?;
    if let Some((width, ..)) = shape.stages.first() {
        multiple("width", *width, 8)?;
    }
    Ok(Some(FrozenNetwork::EfficientVit(shape)))
}

impl Family for EfficientVitShape {
    const HEAD: &'static str = "head";
    const AT_ONCE: Option<usize> = Some(16);

    fn about(&self) -> About {
        About {
            family: "an EfficientViT",
            depth: self.stages.iter().map(|(_, depth, _)| depth).sum(),
            width: self.stages.last().map_or(0, |(width, ..)| *width),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// Attention biases are expanded to every pair of tokens, `1 / sqrt(key)` is folded into the queries, and
    /// `x + dw(x)` is a single kernel.
    fn fuse(&self, weights: &Weights) -> Result<Weights> {
        let maps = self.maps();
        let mut all = fold::fused(weights, &maps, EPS)?;
        let scale = (self.key as f64).powf(-0.5);
        for Normed { name, dims, .. } in maps.into_iter().filter(|map| map.depthwise) {
            let Affine { weight, bias } = Affine::stored(&all, &name)?; // (k k, c), (c)
            let map = if name.contains(".dws.") {
                Affine {
                    weight: (weight * scale)?,
                    bias: (bias * scale)?,
                }
            } else if name.ends_with(".m") {
                let taps = dims[2] * dims[3];
                let mut centre = vec![0.0_f32; taps];
                centre[taps / 2] = 1.0;
                let centre = Tensor::from_vec(centre, (taps, 1), weight.device())?;
                Affine {
                    weight: weight.broadcast_add(&centre)?,
                    bias,
                }
            } else {
                continue;
            };
            map.store(&mut all, &name);
        }
        for (s, &(_, depth, _)) in self.stages.iter().enumerate() {
            for part in SQUEEZE.iter().filter(|_| s > 0) {
                let name = format!("stages.{s}.downsample.{part}");
                Affine::map(weights, &name)?.store(&mut all, &name);
            }
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}.{ATTENTION}.attention_biases");
                let biases = fold::get(weights, &name)?;
                let biases = fold::biases_by_distance(biases, self.window(s), 1)?;
                all.insert(name, biases);
            }
        }
        if self.classes > 0 {
            fold::classifier(weights, "head", EPS)?.store(&mut all, "head");
        }
        Ok(all)
    }

    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let mut x = images.clone();
        for i in 1..=STEM {
            let window = Window::padded(x.dim(1)?, KERNEL, 2, 1);
            let act = match i == STEM {
                true => Activation::Identity,
                false => Activation::Relu,
            };
            let map = Affine::stored(weights, &format!("patch_embed.conv{i}"))?;
            x = map.convolve(&x, window, None, act)?;
        }
        for (s, &(_, depth, _)) in self.stages.iter().enumerate() {
            if s > 0 {
                x = merged(weights, &format!("stages.{s}.downsample"), &x)?;
            }
            for l in 0..depth {
                let name = format!("stages.{s}.blocks.{l}");
                let [before, after] = residuals_of_block(&name);
                x = residuals(weights, before, &x)?;
                x = (&x + self.attend_in_windows(weights, s, &name, &x)?)?;
                x = residuals(weights, after, &x)?;
            }
        }
        frozen::mean_rows(&x.flatten(1, 2)?)
    }
}

/// `x + dw(x)`, then `x + ffn(x)`.
fn residuals(weights: &Weights, [dw, ffn]: [String; 2], x: &Tensor) -> Result<Tensor> {
    let map = |name: &str| Affine::stored(weights, name);
    let window = Window::padded(x.dim(1)?, KERNEL, 1, 1);
    let x = map(&dw)?.depthwise(x, window, Activation::Identity)?;
    let inner = map(&format!("{ffn}.pw1"))?.linear(&x, Activation::Relu)?;
    map(&format!("{ffn}.pw2"))?.onto(&x, &inner)
}

/// The layers between two stages.
fn merged(weights: &Weights, name: &str, x: &Tensor) -> Result<Tensor> {
    let map = |part: &str| Affine::stored(weights, &format!("{name}.{part}"));
    let [before, after] = residuals_of_merging(name);
    let x = residuals(weights, before, x)?;
    let x = map("patchmerge.conv1")?.linear(&x, Activation::Relu)?;
    let window = Window::padded(x.dim(1)?, KERNEL, 2, 1);
    let x = map("patchmerge.conv2")?.depthwise(&x, window, Activation::Relu)?;
    let [squeeze, expand] = SQUEEZE;
    let means = frozen::mean_rows(&x.flatten(1, 2)?)?; // (b, hidden)
    let gate = map(squeeze)?.linear(&means, Activation::Relu)?;
    let gate = map(expand)?.linear(&gate, Activation::Identity)?;
    let gate = (gate.neg()?.exp()? + 1.0)?.recip()?; // the logistic function
    let x = x.broadcast_mul(&gate.unsqueeze(1)?.unsqueeze(1)?)?;
    let x = map("patchmerge.conv3")?.linear(&x, Activation::Identity)?;
    residuals(weights, after, &x)
}

impl EfficientVitShape {
    /// The attention of the block `name`, within windows: (b, s, s, c).
    fn attend_in_windows(
        &self,
        weights: &Weights,
        stage: usize,
        name: &str,
        x: &Tensor,
    ) -> Result<Tensor> {
        let window = self.window(stage);
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
        let (name, heads) = (format!("{name}.{ATTENTION}"), self.stages[stage].2);
        self.attention(weights, &name, heads, &cut)?
            .reshape(&[b, windows, windows, window, window, c][..])?
            .transpose(2, 3)?
            .contiguous()?
            .reshape((b, padded, padded, c))?
            .narrow(1, 0, s)?
            .narrow(2, 0, s)?
            .contiguous()
    }

    /// Attention within each of the windows (b, s, s, c), head by head.
    fn attention(&self, weights: &Weights, name: &str, heads: usize, x: &Tensor) -> Result<Tensor> {
        let map = |part: &str| Affine::stored(weights, &format!("{name}.{part}"));
        let biases = fold::get(weights, &format!("{name}.attention_biases"))?;
        let (b, s, _, c) = x.dims4()?;
        let (key, share) = (self.key, c / heads);
        let mut outputs: Vec<Tensor> = Vec::with_capacity(heads);
        for (h, &kernel) in self.kernels.iter().take(heads).enumerate() {
            let mut input = x.narrow(3, h * share, share)?.contiguous()?;
            if let Some(last) = outputs.last() {
                input = (input + last)?;
            }
            let qkv = map(&format!("qkvs.{h}"))?.linear(&input, Activation::Identity)?;
            let q = qkv.narrow(3, 0, key)?.contiguous()?;
            let window = Window::padded(s, kernel, 1, kernel / 2);
            let q = map(&format!("dws.{h}"))?.depthwise(&q, window, Activation::Identity)?;
            let (q, qkv) = (q.flatten(1, 2)?, qkv.flatten(1, 2)?); // (b, n, ..)
            let of = |offset| Columns::new(&qkv, offset, 2 * key + share);
            let (query, bias) = (Columns::new(&q, 0, key), biases.narrow(0, h, 1)?);
            let (widths, none) = ((key, share), Activation::Identity);
            let y = frozen::attention(query, of(key), of(2 * key), &bias, widths, none)?;
            outputs.push(y.reshape((b, s, s, share))?);
        }
        let mixed = Tensor::cat(&outputs, 3)?.relu()?;
        map("proj.1")?.linear(&mixed, Activation::Identity)
    }
}
