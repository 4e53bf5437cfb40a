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

use crate::check::{affine, count, dims, divides, multiple, refuse_value, sizes, unsupported};
use crate::fold::{self, Affine};
use crate::frozen::{self, Columns, Window};
use crate::table::{Known, agree, usual_arguments};
use crate::{About, Activation, Checked, Family, FrozenNetwork, Weights};
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

    /// Reorders tokens (b, g g, d) so that, stage by stage, four that are pooled lie a quarter of the tokens
    /// apart, and those of a window lie in steps of the number of windows.
    fn reordered(&self, x: &Tensor) -> Result<Tensor> {
        let (b, n, d) = x.dims3()?;
        let (mut outer, mut side) = (b, self.grid());
        let mut x = x.clone();
        for _ in 1..self.stages.len() {
            side /= 2;
            x = x
                .reshape(&[outer, side, 2, side, 2, d][..])?
                .permute(vec![0, 2, 4, 1, 3, 5])? // (outer, 2, 2, side, side, d)
                .contiguous()?;
            outer *= POOLED;
        }
        x.reshape((b, n, d))
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

impl Family for HieraShape {
    const HEAD: &'static str = "head.fc";
    const AT_ONCE: Option<usize> = Some(8);

    fn about(&self) -> About {
        About {
            family: "a Hiera",
            depth: self.stages.iter().sum(),
            width: self.last(),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// `1 / sqrt(d)` is folded into the queries: a positive factor commutes with max pooling.
    fn fuse(&self, weights: &Weights) -> Result<Weights> {
        let mut all = Weights::new();
        for (name, dims) in self.parameters() {
            let stored = fold::get(weights, &name)?;
            let t = match dims.len() {
                2 | 4 => fold::as_columns(stored)?,
                _ => stored.clone(),
            };
            all.insert(name, t);
        }
        for block in self.blocks() {
            let d = block.outputs;
            let scale = ((d / block.heads) as f64).powf(-0.5) as f32;
            fold::scale_queries(&mut all, &format!("{}.attn.qkv", block.name), (1, d), scale)?;
        }
        Ok(all)
    }

    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let map = |name: &str| Affine::stored(weights, name);
        let (kernel, stride, zeros) = STEM;
        let window = Window::padded(images.dim(1)?, kernel, stride, zeros);
        let x = map("patch_embed.proj")?.convolve(images, window, None, Activation::Identity)?; // (b, g, g, d)
        let positions = fold::get(weights, "pos_embed")?;
        let mut x = self.reordered(&x.flatten(1, 2)?.broadcast_add(positions)?)?;
        for block in self.blocks() {
            x = block.run(weights, &x)?;
        }
        map("head.norm")?.norm(&frozen::mean_rows(&x)?, EPS)
    }
}

/// Recognises a Hiera; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> Checked<Option<FrozenNetwork>> {
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
    usual_arguments(known, &["embed_dim", "num_heads", "stages"])?;
    let [width, channels, _, _] = dims(weights, "patch_embed.proj.weight")?;
    let [_, tokens, _] = dims(weights, "pos_embed")?;
    let depth = count(weights, |i| format!("blocks.{i}.attn.qkv.weight"));
    let widens = |i: &usize| weights.contains_key(&format!("blocks.{i}.proj.weight"));
    let firsts: Vec<usize> = (0..depth).filter(widens).collect();
    let ends = firsts.iter().copied().chain([depth]);
    let starts = [0].into_iter().chain(firsts.iter().copied());
    let stages: Vec<usize> = starts.zip(ends).map(|(from, to)| to - from).collect();
    let shape = HieraShape {
        image_size: tokens.isqrt() * STEM.1,
        channels,
        width,
        heads,
        stages,
        classes: known.rows("head.fc")?,
    };
    sizes(&[("channels", channels), ("width", width), ("heads", heads)])?;
    if shape.stages.len() > 8 || shape.stages.contains(&0) {
        let found = format!("{:?}", shape.stages);
        let expected = "one to eight, each with at least one block";
        return refuse_value("stages", found, expected);
    }
    divides("heads", heads, "width", width)?;
    // Whole windows, and halvings of the grid; both are powers of two.
    let whole = STEM.1 * WINDOW.max(1 << (shape.stages.len() - 1));
    multiple("image_size", shape.image_size, whole)?;
    agree(known, "embed_dim", width)?;
    agree(known, "img_size", shape.image_size)?;
    Ok(Some(FrozenNetwork::Hiera(shape)))
}

impl Block {
    fn run(&self, weights: &Weights, x: &Tensor) -> Result<Tensor> {
        let (none, d) = (Activation::Identity, self.outputs);
        let map = |part: &str| Affine::stored(weights, &format!("{}.{part}", self.name));
        let normed = map("norm1")?.norm(x, EPS)?;
        let x = match self.inputs == self.outputs {
            true => x.clone(),
            false => quarters(&map("proj")?.linear(&normed, none)?)?,
        };
        let qkv = map("attn.qkv")?.linear(&normed, none)?; // (b, n, 3 d)
        let (b, n, _) = qkv.dims3()?;
        let before = if self.pools { POOLED } else { 1 };
        let keys = self.window.map_or(n, |window| window * before);
        let windows = n / keys;
        // Token t of window w has index t windows + w. Nothing is copied if there is only one window.
        let gathered = qkv
            .reshape((b, keys, windows, 3 * d))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((b * windows, keys, 3 * d))?;
        let queries = gathered.narrow(2, 0, d)?.contiguous()?;
        let queries = match self.pools {
            true => quarters(&queries)?,
            false => queries,
        };
        let width = d / self.heads;
        let k = gathered.narrow(2, d, d)?.contiguous()?;
        let v = gathered.narrow(2, 2 * d, d)?.contiguous()?;
        let biases = Tensor::zeros((self.heads, keys / before, keys), DType::F32, x.device())?;
        let [q, k, v] = [&queries, &k, &v].map(|tokens| Columns::new(tokens, 0, width));
        let mixed = frozen::attention(q, k, v, &biases, (width, width), none)?;
        let mixed = mixed
            .reshape((b, windows, keys / before, d))?
            .transpose(1, 2)?
            .contiguous()?
            .reshape((b, n / before, d))?;
        let x = map("attn.proj")?.onto(&x, &mixed)?;
        let inner = map("mlp.fc1")?.linear(&map("norm2")?.norm(&x, EPS)?, Activation::Gelu)?;
        map("mlp.fc2")?.onto(&x, &inner)
    }
}

/// Max pooling of tokens (b, n, d) that are a quarter of `n` apart: (b, n / 4, d).
fn quarters(x: &Tensor) -> Result<Tensor> {
    let (b, n, d) = x.dims3()?;
    x.reshape((b, POOLED, n / POOLED, d))?.max(1)
}
