//! EfficientNet-Lite (Tan and Le 2019, "EfficientNet: Rethinking Model Scaling for Convolutional Neural
//! Networks", the variant without squeeze-and-excitation), inference-only, with timm's weight names.
//!
//! ```text
//! x = relu6(BN(Conv_3(image)))                                   stride 2
//! y = BN(Conv_1(relu6(BN(DWConv_k(relu6(BN(Conv_1(x))))))))      [+ x] where sizes agree
//! z = classifier(mean over pixels of relu6(BN(Conv_1(x))))
//! ```
//!
//! Freezing folds the batch norms into the convolutions. Activations are channels-last.

use crate::check::{affine, check_weights, count, dims, refuse_value, sizes};
use crate::fold::{self, Affine, Normed};
use crate::frozen::{self, Window};
use crate::{About, Activation, Checked, Family, Weights};
use candle_core::{Result, Tensor};

/// Strides of the stages, which cannot be inferred from the weights: the same in the whole family.
pub const STRIDES: [usize; 7] = [1, 2, 2, 2, 1, 2, 1];

/// Kernel size of the first convolution.
const STEM_KERNEL: usize = 3;

const ACTIVATION: Activation = Activation::Relu6;

/// The sizes of a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct EfficientNetStage {
    /// Channels after each block.
    pub width: usize,
    /// Number of blocks; the first may downsample.
    pub depth: usize,
    /// Size of the depthwise kernels, odd.
    pub kernel: usize,
    /// Expansion ratio: channels inside a block divided by its input channels; 1 without expansion.
    pub expansion: usize,
}

/// The sizes of an EfficientNet-Lite.
#[derive(Clone, Debug, PartialEq)]
pub struct EfficientNetShape {
    /// Side of the square input in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Channels after the first convolution.
    pub stem: usize,
    /// The seven stages.
    pub stages: Vec<EfficientNetStage>,
    /// Channels before the classifier.
    pub features: usize,
    /// Outputs of the classifier.
    pub classes: usize,
    /// True if the weights come from TensorFlow (timm's `tf_efficientnet_lite*`): the odd zero of the padding
    /// then comes last, and the epsilon of batch norms is 1e-3 instead of 1e-5.
    pub tensorflow: bool,
}

/// One block.
struct Block {
    name: String,
    inputs: usize,
    hidden: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
    expands: bool,
}

impl EfficientNetShape {
    /// Infers the sizes from weights under timm's names. The weights tell neither the image size nor their origin
    /// (see [`EfficientNetShape::tensorflow`]).
    pub fn infer(
        weights: &Weights,
        image_size: usize,
        tensorflow: bool,
    ) -> Checked<EfficientNetShape> {
        let [stem, channels, _, _] = dims(weights, "conv_stem.weight")?;
        let [features, _, _, _] = dims(weights, "conv_head.weight")?;
        let [classes, _] = dims(weights, "classifier.weight")?;
        let n_stages = count(weights, |s| format!("blocks.{s}.0.conv_dw.weight"));
        let stages = (0..n_stages)
            .map(|s| {
                let name = format!("blocks.{s}.0");
                let expands = weights.contains_key(&format!("{name}.conv_pwl.weight"));
                let [hidden, _, kernel, _] = dims(weights, &format!("{name}.conv_dw.weight"))?;
                let last = if expands { "conv_pwl" } else { "conv_pw" };
                let [width, ..] = dims::<4>(weights, &format!("{name}.{last}.weight"))?;
                let expansion = if expands {
                    let [_, inputs, ..] = dims::<4>(weights, &format!("{name}.conv_pw.weight"))?;
                    hidden / inputs.max(1)
                } else {
                    1
                };
                let depth = count(weights, |i| format!("blocks.{s}.{i}.conv_dw.weight"));
                Ok(EfficientNetStage {
                    width,
                    depth,
                    kernel,
                    expansion,
                })
            })
            .collect::<Checked<Vec<_>>>()?;
        let shape = EfficientNetShape {
            image_size,
            channels,
            stem,
            stages,
            features,
            classes,
            tensorflow,
        };
        sizes(&[
            ("image_size", shape.image_size),
            ("channels", shape.channels),
            ("stem", shape.stem),
            ("features", shape.features),
            ("classes", shape.classes),
        ])?;
        if shape.stages.len() != STRIDES.len() {
            return refuse_value("stages", shape.stages.len(), "7");
        }
        for stage in &shape.stages {
            sizes(&[
                ("width", stage.width),
                ("depth", stage.depth),
                ("kernel", stage.kernel),
                ("expansion", stage.expansion),
            ])?;
            if stage.kernel % 2 == 0 {
                return refuse_value("kernel", stage.kernel, "an odd number");
            }
        }
        check_weights(weights, &shape.parameters())?;
        Ok(shape)
    }

    /// Names and shapes of all weights, as in timm, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = fold::parameters(&self.convolutions());
        all.extend(affine("classifier", vec![self.classes, self.features]));
        all
    }

    /// The convolution windows along a side of `size` pixels.
    fn window(&self, size: usize, kernel: usize, stride: usize) -> Window {
        if self.tensorflow {
            Window::same(size, kernel, stride)
        } else {
            Window::padded(size, kernel, stride, kernel / 2)
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let mut all = Vec::new();
        let mut inputs = self.stem;
        for (s, (stage, first_stride)) in self.stages.iter().zip(STRIDES).enumerate() {
            for i in 0..stage.depth {
                all.push(Block {
                    name: format!("blocks.{s}.{i}"),
                    inputs,
                    hidden: inputs * stage.expansion,
                    outputs: stage.width,
                    kernel: stage.kernel,
                    stride: if i == 0 { first_stride } else { 1 },
                    expands: stage.expansion > 1,
                });
                inputs = stage.width;
            }
        }
        all
    }

    fn convolutions(&self) -> Vec<Normed> {
        let mut all = Vec::new();
        let mut add = |name: String, norm: String, dims: [usize; 4]| {
            all.push(Normed {
                stored: name.clone(),
                depthwise: name.ends_with("conv_dw"),
                name,
                norm,
                dims: dims.to_vec(),
            });
        };
        let (k, width) = (STEM_KERNEL, self.stages.last().map_or(0, |s| s.width));
        let stem = [self.stem, self.channels, k, k];
        add("conv_stem".into(), "bn1".into(), stem);
        for block in self.blocks() {
            let (name, hidden, k) = (&block.name, block.hidden, block.kernel);
            let inner = ("conv_dw", [hidden, 1, k, k]);
            let last = [block.outputs, hidden, 1, 1];
            let parts = match block.expands {
                true => vec![
                    ("conv_pw", [hidden, block.inputs, 1, 1]),
                    inner,
                    ("conv_pwl", last),
                ],
                false => vec![inner, ("conv_pw", last)],
            };
            for (i, (part, dims)) in (1..).zip(parts) {
                add(format!("{name}.{part}"), format!("{name}.bn{i}"), dims);
            }
        }
        let head = [self.features, width, 1, 1];
        add("conv_head".into(), "bn2".into(), head);
        all
    }
}

impl Family for EfficientNetShape {
    const HEAD: &'static str = "classifier";

    fn about(&self) -> About {
        About {
            family: "an EfficientNet-Lite",
            depth: self.stages.iter().map(|s| s.depth).sum(),
            width: self.features,
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    fn fuse(&self, weights: &Weights) -> Result<Weights> {
        let eps = if self.tensorflow { 1e-3 } else { 1e-5 };
        let mut all = fold::fused(weights, &self.convolutions(), eps)?;
        Affine::map(weights, "classifier")?.store(&mut all, "classifier");
        Ok(all)
    }

    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let map = |name: &str| Affine::stored(weights, name);
        let window = self.window(images.dim(1)?, STEM_KERNEL, 2);
        let mut x = map("conv_stem")?.convolve(images, window, None, ACTIVATION)?;
        for block in self.blocks() {
            let name = &block.name;
            let (inner, last) = match block.expands {
                true => {
                    let first = map(&format!("{name}.conv_pw"))?;
                    (first.linear(&x, ACTIVATION)?, "conv_pwl")
                }
                false => (x.clone(), "conv_pw"),
            };
            let window = self.window(inner.dim(1)?, block.kernel, block.stride);
            let inner = map(&format!("{name}.conv_dw"))?.depthwise(&inner, window, ACTIVATION)?;
            let last = map(&format!("{name}.{last}"))?;
            x = match block.stride == 1 && block.inputs == block.outputs {
                true => last.onto(&x, &inner)?,
                false => last.linear(&inner, Activation::Identity)?,
            };
        }
        let x = map("conv_head")?.linear(&x, ACTIVATION)?.flatten(1, 2)?; // (b, n, features)
        frozen::mean_rows(&x)
    }
}

#[cfg(test)]
#[path = "efficientnet_tests.rs"]
mod tests;
