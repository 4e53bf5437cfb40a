//! ConvNeXts (Liu et al. 2022, "A ConvNet for the 2020s"): isotropic ones (section 3.3), of one width and
//! one resolution throughout, as a vision transformer, without layer scale; and ones of four stages, each
//! of half the resolution and twice the width of the one before it, which are timm's `ConvNeXt`.
//!
//! ```text
//! z    = Conv_{c -> h}(X)                                     kernel = stride = patch
//! z    = LN(z)                                                in stages
//! z    = Conv_{h -> 2h}(LN(z))                                kernel = stride = 2, between stages
//! z+   = z + gamma * W_2 gelu(W_1 LN(DWConv_k(z)))            for each block; isotropic: gamma = 1
//! out  = head(LN(mean over pixels of z))
//! ```
//!
//! Activations are channels-last, (b, rows, columns, width). Letters in shape comments: `b` images,
//! `c` channels, `p` patch, `g` patches along a side, `h` width, `k` kernel, `m` hidden channels. Weights
//! have timm's names; isotropic ConvNeXts, which timm has not, have timm's names within a block.

use crate::check::{self, affine, check_weights, count, dims, sizes};
use crate::initial::pytorch_default;
use crate::{Checked, ShapeError, Weights, mean_over_pixels};
use candle_core::{D, Device, Result, Tensor};
use serde::{Deserialize, Serialize};
use wave_ops::{depthwise_conv, gelu, layer_norm, linear, patchify};

/// Added to variances, as in timm's ConvNeXt.
const EPS: f64 = 1e-6;

/// First value of the layer scale in a ConvNeXt of stages, as in timm's.
const LAYER_SCALE: f64 = 1e-6;

/// The sizes of a ConvNeXt. All are at least 1; see [`ConvNextShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvNextShape {
    /// Height and width of the square images, in pixels. They are cropped at the bottom and the right to a
    /// whole number of patches.
    pub image_size: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Blocks of each stage, which add up to `depth`; none: isotropic.
    pub stages: Option<[usize; 4]>,
    /// Channels of the activations, in the first stage; each further one has twice as many.
    pub width: usize,
    /// Side of the depthwise kernels, in patches; odd.
    pub kernel: usize,
    /// Hidden channels of the MLP over the width; of stages 4, as in timm.
    pub mlp_ratio: f64,
    /// Number of classes.
    pub classes: usize,
}

impl ConvNextShape {
    /// Hidden channels of the MLP in the first stage: the nearest whole number.
    pub fn hidden(&self) -> usize {
        self.hidden_of(self.width)
    }

    fn hidden_of(&self, width: usize) -> usize {
        (width as f64 * self.mlp_ratio).round() as usize
    }

    /// Blocks and channels of each stage; of an isotropic ConvNeXt the only one.
    fn per_stage(&self) -> Vec<(usize, usize)> {
        match self.stages {
            None => vec![(self.depth, self.width)],
            Some(depths) => std::iter::zip(depths, self.widths()).collect(),
        }
    }

    /// Channels of each of four stages.
    pub fn widths(&self) -> [usize; 4] {
        [0, 1, 2, 3].map(|stage| self.width << stage)
    }

    /// Channels of the features.
    pub fn last_width(&self) -> usize {
        self.stages.map_or(self.width, |_| self.widths()[3])
    }

    /// True if a stage begins by halving the resolution: every one but the first, and after patches of
    /// side 2 that too, as in timm.
    fn halves(&self, stage: usize) -> bool {
        self.stages.is_some() && (stage > 0 || self.patch == 2)
    }

    /// Pixels along a side of the activations in each stage.
    fn grids(&self) -> Vec<usize> {
        let mut side = self.image_size / self.patch.max(1);
        (0..self.per_stage().len())
            .map(|stage| {
                side >>= usize::from(self.halves(stage));
                side
            })
            .collect()
    }

    /// The blocks in order: prefix of their weights' names, channels and stage.
    pub fn blocks(&self) -> Vec<(String, usize, usize)> {
        let stages = self.per_stage().into_iter().enumerate();
        stages
            .flat_map(|(stage, (depth, width))| {
                (0..depth).map(move |block| match self.stages {
                    None => (format!("blocks.{block}"), width, stage),
                    Some(_) => (format!("stages.{stage}.blocks.{block}"), width, stage),
                })
            })
            .collect()
    }

    /// Pixels, channels and hidden channels of each block's activations.
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

    /// Checks that a network of this shape exists.
    ///
    /// # Errors
    /// When a size is zero or absurdly large, the kernel even, a patch larger than the images, or a
    /// stage without blocks, without pixels or with an MLP of another ratio than 4.
    pub fn validate(&self) -> std::result::Result<(), ShapeError> {
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
        check::patch_fits(self.patch, self.image_size)?;
        let wrong = |name, found: String, expected| {
            Err(ShapeError::Choice {
                name,
                found,
                expected,
            })
        };
        if self.kernel.is_multiple_of(2) {
            return wrong("kernel", self.kernel.to_string(), "an odd size");
        }
        if let Some(stages) = self.stages {
            let text = || stages.map(|n| n.to_string()).join(",");
            sizes(&stages.map(|n| ("blocks of a stage", n)))?;
            if stages.iter().sum::<usize>() != self.depth {
                let (found, of) = (self.depth.to_string(), "the sum of the stages");
                return wrong("depth", format!("{found} with stages {}", text()), of);
            }
            if self.mlp_ratio != 4.0 {
                let expected = "4, as in timm, of a ConvNeXt of stages";
                return wrong("mlp_ratio", self.mlp_ratio.to_string(), expected);
            }
            if self.grids().contains(&0) {
                let found = format!("{} in patches of {}", self.image_size, self.patch);
                let expected = "a smaller patch or a larger image: each stage halves the side and must leave a pixel";
                return wrong("image_size", found, expected);
            }
        }
        let (h, k, side) = (self.last_width(), self.kernel, self.image_size);
        check::products(&[
            (
                "width x channels x patch^2",
                &[h, self.channels, self.patch, self.patch],
            ),
            ("width x kernel^2 x depth", &[h, k, k, self.depth]),
            (
                "width x mlp_ratio x width x depth",
                &[h, self.hidden_of(h), self.depth],
            ),
            ("width x classes", &[h, self.classes]),
            ("image_size^2 x channels", &[side, side, self.channels]),
        ])
    }

    /// Multiply-adds of a forward pass of one image: patches, kernels, MLPs, steps between stages and head.
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

    /// Reads the sizes off weights. The images' size leaves no trace in them.
    ///
    /// # Errors
    /// If the weights are not an isotropic ConvNeXt's or a four-stage one's: names the missing or
    /// misshapen tensor.
    pub fn infer(
        weights: &Weights,
        image_size: usize,
    ) -> std::result::Result<ConvNextShape, ShapeError> {
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

    /// True if these are the weights of a ConvNeXt of stages.
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

    /// Weights as PyTorch draws them: convolutions and linear layers, weight and bias alike, uniform
    /// within `1 / sqrt(fan_in)` of zero; norms the identity; layer scales 1e-6. (ConvNeXt's own start is
    /// a normal distribution of 0.02; the papers that start here replace it by this one.) The same seed
    /// gives the same weights.
    ///
    /// # Errors
    /// When the shape is not valid.
    pub fn initialise(&self, seed: u64) -> Result<Weights> {
        self.validate().map_err(candle_core::Error::wrap)?;
        let (scales, drawn): (Vec<_>, Vec<_>) = self
            .parameters()
            .into_iter()
            .partition(|(name, _)| name.ends_with(".gamma"));
        let norm = |name: &str| {
            let of_stages = name.starts_with("stem.1.") || name.contains("downsample.0.");
            name.contains("norm.") || of_stages
        };
        let mut weights = pytorch_default(drawn, norm, seed)?;
        for (name, shape) in scales {
            let scale = Tensor::full(LAYER_SCALE as f32, shape, &Device::Cpu)?;
            weights.insert(name, scale);
        }
        Ok(weights)
    }
}

/// Class scores, in training and in evaluation.
///
/// # Shapes
/// `images` (b, channels, height, width) gives (b, classes).
///
/// # Errors
/// When the shape is not valid, a weight is missing, or a size disagrees with the shape.
pub fn logits(shape: &ConvNextShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    shape.validate().map_err(candle_core::Error::wrap)?;
    let weights = Checked::new("convnext", weights);
    let (h, p) = (shape.width, shape.patch);
    let [stem, norm, head] = shape.ends();
    let pair = |name: &str, dims: &[usize]| weights.pair(name, dims);
    let (w, b) = pair(stem, &[h, shape.channels, p, p])?;
    let images = crate::checked_images(images, shape.channels, shape.image_size, w)?;
    let g = shape.image_size / p;
    let patches = patchify(&images, p)?.reshape((images.dim(0)?, g, g, ()))?; // (b, g, g, c p p)
    let mut z = linear(&patches, &w.reshape((h, ()))?, b)?; // (b, g, g, h)
    if shape.stages.is_some() {
        let (w, b) = pair("stem.1", &[h])?;
        z = layer_norm(&z, w, b, EPS)?;
    }
    let mut last = None;
    for (name, h, stage) in shape.blocks() {
        if last != Some(stage) && shape.halves(stage) {
            let before = z.dim(D::Minus1)?;
            let (w, b) = pair(&format!("stages.{stage}.downsample.0"), &[before])?;
            z = layer_norm(&z, w, b, EPS)?;
            let (w, b) = pair(&format!("stages.{stage}.downsample.1"), &[h, before, 2, 2])?;
            z = halve(&z, w, b)?;
        }
        last = Some(stage);
        let (k, m) = (shape.kernel, shape.hidden_of(h));
        let (w, b) = pair(&format!("{name}.conv_dw"), &[h, 1, k, k])?;
        let x = depthwise_conv(&z, &w.reshape((h, k, k))?, b)?;
        let (w, b) = pair(&format!("{name}.norm"), &[h])?;
        let x = layer_norm(&x, w, b, EPS)?;
        let (w, b) = pair(&format!("{name}.mlp.fc1"), &[m, h])?;
        let x = gelu(&linear(&x, w, b)?)?; // (b, g, g, m)
        let (w, b) = pair(&format!("{name}.mlp.fc2"), &[h, m])?;
        let mut x = linear(&x, w, b)?;
        if shape.stages.is_some() {
            x = x.broadcast_mul(weights.get(&format!("{name}.gamma"), &[h])?)?;
        }
        z = (z + x)?;
    }
    let h = shape.last_width();
    let (w, b) = pair(norm, &[h])?;
    let pooled = layer_norm(&mean_over_pixels(&z)?, w, b, EPS)?; // (b, h)
    let (w, b) = pair(head, &[shape.classes, h])?;
    linear(&pooled, w, b)
}

/// A convolution of kernel and stride 2: `z` (b, g, g, c) gives (b, g / 2, g / 2, h), by `w` (h, c, 2, 2)
/// and `b` (h). An odd last row and column are left out.
fn halve(z: &Tensor, w: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (n, g, _, c) = z.dims4()?;
    let half = g / 2;
    let even = z.narrow(1, 0, 2 * half)?.narrow(2, 0, 2 * half)?;
    let patches = even
        .reshape(&[n, half, 2, half, 2, c])?
        .permute([0, 1, 3, 2, 4, 5])?
        .reshape((n, half, half, 4 * c))?; // row, column, channel
    let w = w.permute((0, 2, 3, 1))?.reshape(((), 4 * c))?;
    linear(&patches, &w, b)
}

#[cfg(test)]
#[path = "convnext_tests.rs"]
mod tests;
