//! Hiera (Ryali et al. 2023, "Hiera: A Hierarchical Vision Transformer without the Bells-and-Whistles"),
//! inference-only, with timm's weight names.
//!
//! ```text
//! x = Conv_7(image) + positions            stride 4; tokens reordered so that the four which later
//!                                          become one are a quarter apart, window by window
//! x = x' + attention(norm1(x));  x = x + mlp(norm2(x))
//! z = fc(norm(mean over tokens of x))
//! ```
//!
//! The first block of a stage widens the tokens and max-pools them in groups of four: `x'` is then the pooled
//! `proj(norm1(x))`, and the queries are pooled too. In the first two stages and the first block of the
//! third, attention is computed within windows of the tokens of 8 x 8 patches.

use crate::check::{affine, count, dims, divides, refuse_value, sizes, unsupported};
use crate::fold::{self, Affine};
use crate::frozen::{self, Columns, Window};
use crate::table::{Known, USUAL, agree, mean_pooling, refuse_arguments};
use crate::{About, Body, FrozenNetwork};
use crate::{Activation, ShapeError, Weights, check_weights};
use candle_core::{DType, Result, Tensor};

/// Epsilon of layer norms.
const EPS: f64 = 1e-6;
/// Kernel size of the first convolution, its stride and padding.
const STEM: (usize, usize, usize) = (7, 4, 3);
/// Patches along the side of a window in the first stage.
const WINDOW: usize = 8;
/// Tokens pooled into one between stages.
const POOLED: usize = 4;
/// Number of stages with attention within windows.
const WINDOWED: usize = 2;
/// The sizes of a Hiera.
#[derive(Clone, Debug, PartialEq)]
pub struct HieraShape {
    /// Side of the square input in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Channels of the first stage; each later stage has twice as many.
    pub width: usize,
    /// Attention heads of the first stage; each later stage has twice as many.
    pub heads: usize,
    /// Number of blocks in each stage.
    pub stages: Vec<usize>,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

/// A block's sizes.
struct Block {
    name: String,
    inputs: usize,
    outputs: usize,
    heads: usize,
    /// True if the block pools four tokens into one.
    pools: bool,
    /// Tokens of a window after pooling; `None` for global attention.
    window: Option<usize>,
}

impl HieraShape {
    pub(super) fn about(&self) -> About {
        About {
            family: "a Hiera",
            depth: self.stages.iter().sum(),
            width: self.last(),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// Channels of the last stage.
    fn last(&self) -> usize {
        self.width << (self.stages.len() - 1)
    }

    /// Patches along a side.
    fn grid(&self) -> usize {
        self.image_size / STEM.1
    }

    fn blocks(&self) -> Vec<Block> {
        let mut all = Vec::new();
        let mut inputs = self.width;
        for (s, depth) in self.stages.iter().enumerate() {
            for i in 0..*depth {
                let outputs = self.width << s;
                let pools = s > 0 && i == 0;
                // A block that pools still has the windows of the previous stage.
                let windowed = s < WINDOWED + usize::from(pools);
                all.push(Block {
                    name: format!("blocks.{}", all.len()),
                    inputs,
                    outputs,
                    heads: self.heads << s,
                    pools,
                    window: windowed.then_some(WINDOW * WINDOW / POOLED.pow(s as u32)),
                });
                inputs = outputs;
            }
        }
        all
    }

    /// Names and shapes of all weights.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (tokens, d, k) = (self.grid() * self.grid(), self.width, STEM.0);
        let mut all = vec![("pos_embed".to_owned(), vec![1, tokens, d])];
        let mut affine = |name: &str, dims: Vec<usize>| all.extend(affine(name, dims));
        affine("patch_embed.proj", vec![d, self.channels, k, k]);
        for block in self.blocks() {
            let (name, d, out) = (&block.name, block.inputs, block.outputs);
            affine(&format!("{name}.norm1"), vec![d]);
            affine(&format!("{name}.norm2"), vec![out]);
            affine(&format!("{name}.attn.qkv"), vec![3 * out, d]);
            affine(&format!("{name}.attn.proj"), vec![out, out]);
            affine(&format!("{name}.mlp.fc1"), vec![4 * out, out]);
            affine(&format!("{name}.mlp.fc2"), vec![out, 4 * out]);
            if d != out {
                affine(&format!("{name}.proj"), vec![out, d]);
            }
        }
        affine("head.norm", vec![self.last()]);
        if self.classes > 0 {
            affine("head.fc", vec![self.classes, self.last()]);
        }
        all
    }
}

/// Recognises a Hiera; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> std::result::Result<Option<FrozenNetwork>, ShapeError> {
    let weights = known.weights;
    let found = known.has("patch_embed.proj.weight")
        && known.has("head.norm.weight")
        && known.has("blocks.0.attn.qkv.weight");
    if !found && !known.name.starts_with("hiera_") {
        return Ok(None);
    }
    let heads = match known.name {
        "hiera_tiny_224" | "hiera_small_224" | "hiera_base_224" => Some(1),
        "hiera_base_plus_224" | "hiera_large_224" => Some(2),
        "hiera_huge_224" => Some(4),
        "" => None,
        other => {
            let what = "only hiera_tiny_224, hiera_small_224, hiera_base_224, hiera_base_plus_224, \
                        hiera_large_224 and hiera_huge_224 of its family are supported";
            return Err(unsupported(other, what, "by its name"));
        }
    };
    let Some(heads) = known.size("num_heads").or(heads) else {
        let what = "its number of heads is unknown";
        return Err(unsupported(known.name, what, "there is no config.json"));
    };
    let own = ["embed_dim", "num_heads", "stages"];
    refuse_arguments(known, &[&USUAL[..], &own].concat())?;
    mean_pooling(known)?;
    let [width, channels, _, _] = dims(weights, "patch_embed.proj.weight")?;
    let [_, tokens, _] = dims(weights, "pos_embed")?;
    let depth = count(weights, |i| format!("blocks.{i}.attn.qkv.weight"));
    let widens = |i: &usize| weights.contains_key(&format!("blocks.{i}.proj.weight"));
    let firsts: Vec<usize> = (0..depth).filter(widens).collect();
    let ends = firsts.iter().copied().chain([depth]);
    let starts = [0].into_iter().chain(firsts.iter().copied());
    let stages: Vec<usize> = starts.zip(ends).map(|(from, to)| to - from).collect();
    let classes = known.rows("head.fc")?;
    let shape = HieraShape {
        image_size: tokens.isqrt() * STEM.1,
        channels,
        width,
        heads,
        stages,
        classes,
    };
    sizes(&[("channels", channels), ("width", width), ("heads", heads)])?;
    if shape.stages.len() > 8 || shape.stages.contains(&0) {
        return refuse_value(
            "stages",
            format!("{:?}", shape.stages),
            "one to eight, each with at least one block",
        );
    }
    check_weights(weights, &shape.parameters())?;
    divides("heads", heads, "width", width)?;
    divides("window", WINDOW, "image_size / 4", shape.grid())?;
    divides(
        "stages",
        1 << (shape.stages.len() - 1),
        "image_size / 4",
        shape.grid(),
    )?;
    for (key, found) in [
        ("num_classes", classes),
        ("in_chans", channels),
        ("embed_dim", width),
        ("img_size", shape.image_size),
    ] {
        agree(known, key, found)?;
    }
    Ok(Some(FrozenNetwork::Hiera(shape)))
}

struct Layer {
    sizes: Block,
    norms: [Affine; 2],
    qkv: Affine,
    proj: Affine,
    fc: [Affine; 2],
    widen: Option<Affine>,
    /// Attention bias of each head: zeros.
    zeros: Tensor,
}

/// A Hiera with its weights.
pub(super) struct Hiera {
    grid: usize,
    pools: usize,
    stem: Affine,
    positions: Tensor,
    layers: Vec<Layer>,
    norm: Affine,
}

impl Hiera {
    /// The network and its classifier, if there is one.
    pub(super) fn new(shape: &HieraShape, weights: &Weights) -> Result<(Hiera, Option<Affine>)> {
        check_weights(weights, &shape.parameters()).map_err(candle_core::Error::wrap)?;
        let stored = |name: &str| Affine::stored(weights, name);
        let map = |name: &str| Affine::map(weights, name);
        let positions = fold::get(weights, "pos_embed")?.clone();
        let device = positions.device().clone();
        let mut tokens = shape.grid() * shape.grid();
        let mut layer = |sizes: Block| -> Result<Layer> {
            let name = &sizes.name;
            let before = if sizes.pools { POOLED } else { 1 };
            let keys = sizes.window.map_or(tokens, |window| window * before);
            let queries = keys / before;
            tokens /= before;
            let qkv = stored(&format!("{name}.attn.qkv"))?;
            // 1 / sqrt(d) in the queries: a positive factor commutes with max pooling.
            let scale = ((sizes.outputs / sizes.heads) as f64).powf(-0.5);
            let d = sizes.outputs;
            let scaled = |t: &Tensor| {
                Tensor::cat(&[(t.narrow(0, 0, d)? * scale)?, t.narrow(0, d, 2 * d)?], 0)
            };
            let qkv = Affine {
                weight: scaled(&qkv.weight)?,
                bias: scaled(&qkv.bias)?,
            };
            Ok(Layer {
                norms: [
                    stored(&format!("{name}.norm1"))?,
                    stored(&format!("{name}.norm2"))?,
                ],
                qkv: qkv.columns()?,
                proj: map(&format!("{name}.attn.proj"))?,
                fc: [
                    map(&format!("{name}.mlp.fc1"))?,
                    map(&format!("{name}.mlp.fc2"))?,
                ],
                widen: match sizes.inputs == sizes.outputs {
                    true => None,
                    false => Some(map(&format!("{name}.proj"))?),
                },
                zeros: Tensor::zeros((sizes.heads, queries, keys), DType::F32, &device)?,
                sizes,
            })
        };
        let hiera = Hiera {
            grid: shape.grid(),
            pools: shape.stages.len() - 1,
            stem: map("patch_embed.proj")?,
            layers: shape
                .blocks()
                .into_iter()
                .map(&mut layer)
                .collect::<Result<_>>()?,
            norm: stored("head.norm")?,
            positions,
        };
        let classifier = (shape.classes > 0).then(|| map("head.fc"));
        Ok((hiera, classifier.transpose()?))
    }

    /// Reorders tokens (b, g g, d) so that, stage by stage, four that are pooled lie a quarter of the tokens
    /// apart, and those of a window lie in steps of the number of windows.
    fn reordered(&self, x: &Tensor) -> Result<Tensor> {
        let (b, n, d) = x.dims3()?;
        let (mut outer, mut side) = (b, self.grid);
        let mut x = x.clone();
        for _ in 0..self.pools {
            side /= 2;
            x = x
                .reshape(&[outer, side, 2, side, 2, d][..])?
                .permute(vec![0, 2, 4, 1, 3, 5])? // (outer, 2, 2, side, side, d)
                .contiguous()?;
            outer *= POOLED;
        }
        x.reshape((b, n, d))
    }
}

impl Body for Hiera {
    const AT_ONCE: usize = 8;

    fn run(&self, images: &Tensor) -> Result<Tensor> {
        let x = images.permute((0, 2, 3, 1))?.contiguous()?;
        let (kernel, stride, zeros) = STEM;
        let window = Window::padded(x.dim(1)?, kernel, stride, zeros);
        let x = self.stem.convolve(&x, window, Activation::Identity)?; // (b, g, g, d)
        let mut x = self.reordered(&x.flatten(1, 2)?.broadcast_add(&self.positions)?)?;
        for layer in &self.layers {
            x = layer.run(&x)?;
        }
        self.norm.norm(&frozen::mean_rows(&x)?, EPS)
    }
}

impl Layer {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let (none, d) = (Activation::Identity, self.sizes.outputs);
        let normed = self.norms[0].norm(x, EPS)?;
        let x = match &self.widen {
            Some(widen) => quarters(&widen.linear(&normed, none)?)?,
            None => x.clone(),
        };
        let qkv = self.qkv.linear(&normed, none)?; // (b, n, 3 d)
        let (b, n, _) = qkv.dims3()?;
        let before = if self.sizes.pools { POOLED } else { 1 };
        let keys = self.sizes.window.map_or(n, |window| window * before);
        let windows = n / keys;
        // Token t of window w has index t windows + w. Nothing is copied if there is only one window.
        let gathered = qkv
            .reshape((b, keys, windows, 3 * d))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((b * windows, keys, 3 * d))?;
        let queries = gathered.narrow(2, 0, d)?.contiguous()?;
        let queries = match self.sizes.pools {
            true => quarters(&queries)?,
            false => queries,
        };
        let heads = self.sizes.heads;
        let width = d / heads;
        let k = gathered.narrow(2, d, d)?.contiguous()?;
        let v = gathered.narrow(2, 2 * d, d)?.contiguous()?;
        let [q, k, v] = [&queries, &k, &v].map(|tokens| Columns::new(tokens, 0, width));
        let mixed = frozen::attention(q, k, v, &self.zeros, (width, width), none)?;
        let mixed = mixed
            .reshape((b, windows, keys / before, d))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((b, n / before, d))?;
        let x = self.proj.onto(&x, &mixed)?;
        let inner = self.fc[0].linear(&self.norms[1].norm(&x, EPS)?, Activation::Gelu)?;
        self.fc[1].onto(&x, &inner)
    }
}

/// Max pooling of tokens (b, n, d) that are a quarter of `n` apart: (b, n / 4, d).
fn quarters(x: &Tensor) -> Result<Tensor> {
    let (b, n, d) = x.dims3()?;
    x.reshape((b, POOLED, n / POOLED, d))?.max(1)
}
