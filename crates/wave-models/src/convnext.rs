//! ConvNeXts (Liu et al. 2022, "A ConvNet for the 2020s"). Isotropic ones (section 3.3) have the same width
//! and resolution throughout, like a vision transformer, and no layer scale. Four-stage ones, timm's
//! `ConvNeXt`, halve the resolution and double the width at each stage.
//!
//! ```text
//! z    = Conv_{c -> h}(X)                                     kernel = stride = patch
//! z    = LN(z)                                                in stages
//! z    = Conv_{h -> 2h}(LN(z))                                kernel = stride = 2, between stages
//! z+   = z + gamma * W_2 gelu(W_1 LN(DWConv_k(z)))            for each block; isotropic: gamma = 1
//! out  = head(LN(mean over pixels of z))
//! ```
//!
//! Activations are channels-last, (b, rows, columns, width). Letters in shape comments: `b` images, `c`
//! channels, `p` patch, `g` patches along a side, `h` width, `k` kernel, `m` hidden channels. Weights have
//! timm's names; timm has no isotropic ConvNeXts, so these use its names within a block.

use crate::check::{self, affine, check_weights, count, dims, refuse_value, sizes};
use crate::fold::{Affine, get};
use crate::initial::pytorch_default;
use crate::{Checked, Weights, mean_over_pixels};
use candle_core::{Device, Result, Tensor};
use serde::{Deserialize, Serialize};
use wave_ops::{depthwise_conv, gelu, linear, patchify};

/// Epsilon of the layer norms, as in timm's ConvNeXt.
const EPS: f64 = 1e-6;

/// Initial layer scale of a four-stage ConvNeXt, as in timm.
const LAYER_SCALE: f32 = 1e-6;

/// The sizes of a ConvNeXt. All are at least 1; see [`ConvNextShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvNextShape {
    /// Side of the square images, in pixels. They are cropped at the bottom and the right to whole patches.
    pub image_size: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Blocks in each stage, which add up to `depth`; `None`: isotropic.
    pub stages: Option<[usize; 4]>,
    /// Channels of the activations in the first stage; each later stage has twice as many.
    pub width: usize,
    /// Side of the depthwise kernels, in patches; odd.
    pub kernel: usize,
    /// Hidden channels of the MLP divided by the width; for stages 4, as in timm.
    pub mlp_ratio: f64,
    /// Number of classes.
    pub classes: usize,
}

impl ConvNextShape {
    /// Hidden channels of the MLP in the first stage, rounded to the nearest integer.
    pub fn hidden(&self) -> usize {
        self.hidden_of(self.width)
    }

    fn hidden_of(&self, width: usize) -> usize {
        (width as f64 * self.mlp_ratio).round() as usize
    }

    /// Blocks and channels of each stage; an isotropic ConvNeXt has one.
    fn per_stage(&self) -> Vec<(usize, usize)> {
        match self.stages {
            None => vec![(self.depth, self.width)],
            Some(depths) => std::iter::zip(depths, self.widths()).collect(),
        }
    }

    /// Channels of each of the four stages.
    pub fn widths(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|stage| self.width << stage)
    }

    /// Channels of the features.
    pub fn last_width(&self) -> usize {
        self.stages.map_or(self.width, |_| self.widths()[3])
    }

    /// True if a stage begins by halving the resolution: all but the first do, and the first too if patches
    /// have side 2, as in timm.
    fn halves(&self, stage: usize) -> bool {
        self.stages.is_some() && (stage > 0 || self.patch == 2)
    }

    /// Pixels along a side of the activations in each stage.
    fn grids(&self) -> Vec<usize> {
        let mut side = self.image_size / self.patch.max(1);
        let grid = |stage| {
            side >>= usize::from(self.halves(stage));
            side
        };
        (0..self.per_stage().len()).map(grid).collect()
    }

    /// The blocks in order: prefix of their weights' names, channels and stage.
    pub fn blocks(&self) -> Vec<(String, usize, usize)> {
        let of_stage = |(stage, (depth, width)): (usize, (usize, usize))| {
            (0..depth).map(move |block| match self.stages {
                None => (format!("blocks.{block}"), width, stage),
                Some(_) => (format!("stages.{stage}.blocks.{block}"), width, stage),
            })
        };
        let stages = self.per_stage().into_iter().enumerate();
        stages.flat_map(of_stage).collect()
    }

    /// Pixels, channels and hidden channels of each block.
    pub fn activations(&self) -> Vec<(usize, usize, usize)> {
        let grids = self.grids();
        let of_block = |(_, width, stage): (String, usize, usize)| {
            (grids[stage] * grids[stage], width, self.hidden_of(width))
        };
        self.blocks().into_iter().map(of_block).collect()
    }

    /// Names of the patch embedding, the last norm and the classifier.
    fn ends(&self) -> [&'static str; 3] {
        match self.stages {
            None => ["stem", "norm", "head"],
            Some(_) => ["stem.0", "head.norm", "head.fc"],
        }
    }

    /// Name of the patch embedding's weight, (width, channels, patch, patch).
    pub fn stem(&self) -> String {
        format!("{}.weight", self.ends()[0])
    }

    /// Name of the classifier.
    pub fn head(&self) -> &'static str {
        self.ends()[2]
    }

    /// Checks that the sizes are valid.
    pub fn validate(&self) -> Checked<()> {
        sizes(&[
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("kernel", self.kernel),
            ("mlp_ratio x width", self.hidden()),
            ("classes", self.classes),
        ])?;
        check::at_most("patch", self.patch, self.image_size)?;
        if self.kernel.is_multiple_of(2) {
            return refuse_value("kernel", self.kernel, "an odd size");
        }
        if let Some(stages) = self.stages {
            sizes(&stages.map(|n| ("blocks of a stage", n)))?;
            if stages.iter().sum::<usize>() != self.depth {
                let text = stages.map(|n| n.to_string()).join(",");
                let found = format!("{} with stages {text}", self.depth);
                return refuse_value("depth", found, "the sum of the stages");
            }
            if self.mlp_ratio != 4.0 {
                let expected = "4 for a ConvNeXt with stages, as in timm";
                return refuse_value("mlp_ratio", self.mlp_ratio, expected);
            }
            if self.patch > 7 {
                let expected = "at most 7 for a ConvNeXt with stages: from a stride of 32 on, timm dilates \
                                kernels where it would halve the resolution";
                return refuse_value("patch", self.patch, expected);
            }
            if self.grids().contains(&0) {
                let found = format!("{} in patches of {}", self.image_size, self.patch);
                let expected = "a smaller patch or a larger image: each stage halves the side, and \
                                one pixel must remain";
                return refuse_value("image_size", found, expected);
            }
        }
        let (h, k, c) = (self.last_width(), self.kernel, self.channels);
        let (m, p, side) = (self.hidden_of(h), self.patch, self.image_size);
        check::products(&[
            ("width x channels x patch^2", &[h, c, p, p]),
            ("width x kernel^2 x depth", &[h, k, k, self.depth]),
            ("width x mlp_ratio x width x depth", &[h, m, self.depth]),
            ("width x classes", &[h, self.classes]),
            ("image_size^2 x channels", &[side, side, c]),
        ])
    }

    /// Multiply-adds of a forward pass on one image: patch embedding, kernels, MLPs, downsampling and head.
    pub fn multiply_adds(&self) -> usize {
        let patches = self.image_size / self.patch.max(1);
        let stem = patches * patches * self.channels * self.patch * self.patch * self.width;
        let kernel = self.kernel * self.kernel;
        let blocks = self.activations().into_iter();
        let blocks: usize = blocks.map(|(n, h, m)| n * h * (kernel + 2 * m)).sum();
        let halvings = std::iter::zip(self.grids(), self.per_stage()).enumerate();
        let halvings: usize = halvings
            .filter(|(stage, _)| self.halves(*stage))
            .map(|(stage, (grid, (_, h)))| grid * grid * 4 * h * (h >> usize::from(stage > 0)))
            .sum();
        stem + blocks + halvings + self.last_width() * self.classes
    }

    /// Infers the sizes from weights. The image size cannot be inferred.
    pub fn infer(weights: &Weights, image_size: usize) -> Checked<ConvNextShape> {
        let staged = Self::has_stages(weights);
        let (stem, first, head) = match staged {
            false => ("stem.weight", "blocks.0", "head.weight"),
            true => ("stem.0.weight", "stages.0.blocks.0", "head.fc.weight"),
        };
        let [width, channels, patch, _] = dims(weights, stem)?;
        let [_, _, kernel, _] = dims(weights, &format!("{first}.conv_dw.weight"))?;
        let [hidden, _] = dims(weights, &format!("{first}.mlp.fc1.weight"))?;
        let [classes, _] = dims(weights, head)?;
        let blocks = |of: &str| count(weights, |i| format!("{of}.{i}.conv_dw.weight"));
        let stages = staged.then(|| [0, 1, 2, 3].map(|i| blocks(&format!("stages.{i}.blocks"))));
        let shape = ConvNextShape {
            image_size,
            channels,
            patch,
            depth: stages.map_or_else(|| blocks("blocks"), |depths| depths.iter().sum()),
            stages,
            width,
            kernel,
            mlp_ratio: hidden as f64 / width.max(1) as f64,
            classes,
        };
        shape.validate()?;
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }

    /// True if these are the weights of a four-stage ConvNeXt.
    pub fn has_stages(weights: &Weights) -> bool {
        weights.contains_key("stages.0.blocks.0.conv_dw.weight")
    }

    /// Name and shape of every weight, in the order of the forward pass; all are trained.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (k, p) = (self.kernel, self.patch);
        let [stem, norm, head] = self.ends();
        let mut out = Vec::new();
        out.extend(affine(stem, vec![self.width, self.channels, p, p]));
        if self.stages.is_some() {
            out.extend(affine("stem.1", vec![self.width]));
        }
        let mut before = self.width;
        let mut last = None;
        for (name, h, stage) in self.blocks() {
            if last != Some(stage) && self.halves(stage) {
                let name = format!("stages.{stage}.downsample");
                out.extend(affine(&format!("{name}.0"), vec![before]));
                out.extend(affine(&format!("{name}.1"), vec![h, before, 2, 2]));
            }
            (before, last) = (h, Some(stage));
            let m = self.hidden_of(h);
            if self.stages.is_some() {
                out.push((format!("{name}.gamma"), vec![h]));
            }
            out.extend(affine(&format!("{name}.conv_dw"), vec![h, 1, k, k]));
            out.extend(affine(&format!("{name}.norm"), vec![h]));
            out.extend(affine(&format!("{name}.mlp.fc1"), vec![m, h]));
            out.extend(affine(&format!("{name}.mlp.fc2"), vec![h, m]));
        }
        out.extend(affine(norm, vec![self.last_width()]));
        out.extend(affine(head, vec![self.classes, self.last_width()]));
        out
    }

    /// Weights with PyTorch's default initialisation, as a ConvMixer's, and layer scales 1e-6. (ConvNeXt's own
    /// initialisation is normal with standard deviation 0.02; the papers that start here use this one instead.)
    pub fn initialise(&self, seed: u64) -> Result<Weights> {
        self.validate()?;
        let constant = |name: &str| {
            let parts = ["norm.", "stem.1.", "downsample.0.", ".gamma"];
            parts.iter().any(|part| name.contains(part))
        };
        let mut weights = pytorch_default(self.parameters(), constant, seed)?;
        for (name, scale) in &mut weights {
            if name.ends_with(".gamma") {
                *scale = Tensor::full(LAYER_SCALE, scale.shape(), &Device::Cpu)?;
            }
        }
        Ok(weights)
    }
}

/// Logits (b, classes) of `images` (b, channels, h, w), the same in training and in evaluation.
pub fn logits(shape: &ConvNextShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    shape.validate()?;
    check_weights(weights, &shape.parameters())?;
    let part = |name: &str| Affine::stored(weights, name);
    let normed = |z: &Tensor, name: &str| part(name)?.norm(z, EPS);
    let mapped = |x: &Tensor, name: &str| part(name)?.apply(x);
    let (h, p) = (shape.width, shape.patch);
    let [stem, norm, head] = shape.ends();
    let stem = part(stem)?;
    let images = crate::checked_images(images, shape.channels, shape.image_size, &stem.weight)?;
    let g = shape.image_size / p;
    let patches = patchify(&images, p)?.reshape((images.dim(0)?, g, g, ()))?; // (b, g, g, c p p)
    let mut z = linear(&patches, &stem.weight.reshape((h, ()))?, &stem.bias)?; // (b, g, g, h)
    if shape.stages.is_some() {
        z = normed(&z, "stem.1")?;
    }
    let mut last = None;
    for (name, h, stage) in shape.blocks() {
        if last != Some(stage) && shape.halves(stage) {
            z = normed(&z, &format!("stages.{stage}.downsample.0"))?;
            z = halve(&z, &part(&format!("stages.{stage}.downsample.1"))?)?;
        }
        last = Some(stage);
        let k = shape.kernel;
        let kernels = part(&format!("{name}.conv_dw"))?;
        let x = depthwise_conv(&z, &kernels.weight.reshape((h, k, k))?, &kernels.bias)?;
        let x = normed(&x, &format!("{name}.norm"))?;
        let x = gelu(&mapped(&x, &format!("{name}.mlp.fc1"))?)?; // (b, g, g, m)
        let mut x = mapped(&x, &format!("{name}.mlp.fc2"))?;
        if shape.stages.is_some() {
            x = x.broadcast_mul(get(weights, &format!("{name}.gamma"))?)?;
        }
        z = (z + x)?;
    }
    mapped(&normed(&mean_over_pixels(&z)?, norm)?, head)
}

/// A convolution with kernel and stride 2: `z` (b, g, g, c) gives (b, g / 2, g / 2, h) with a weight
/// (h, c, 2, 2). An odd last row and column are dropped.
fn halve(z: &Tensor, map: &Affine) -> Result<Tensor> {
    let (n, g, _, c) = z.dims4()?;
    let half = g / 2;
    let even = z.narrow(1, 0, 2 * half)?.narrow(2, 0, 2 * half)?;
    let patches = even
        .reshape(&[n, half, 2, half, 2, c])?
        .permute([0, 1, 3, 2, 4, 5])?
        .reshape((n, half, half, 4 * c))?; // row, column, channel
    let weight = map.weight.permute((0, 2, 3, 1))?.reshape(((), 4 * c))?;
    linear(&patches, &weight, &map.bias)
}

#[cfg(test)]
#[path = "convnext_tests.rs"]
mod tests;
