//! ResNets (He et al. 2016, "Deep Residual Learning for Image Recognition"), including wide ones,
//! inference-only, with timm's weight names.
//!
//! ```text
//! x = max pool(relu(BN(Conv_7(x))))                             each halves the side, or
//! x = relu(BN(Conv_3(x)))                                       for small images
//! x = relu(shortcut(x) + F(x))                                  each block
//! F = BN Conv_3 relu BN Conv_3                                  up to 34 layers
//! F = BN Conv_1 relu BN Conv_3 relu BN Conv_1                   deeper: a bottleneck
//! z = fc(mean over pixels of x)
//! ```
//!
//! The first 3 x 3 convolution of stages 2 to 4 halves the side. Where a block changes the shape, the
//! shortcut is a 1 x 1 convolution with a batch norm, otherwise the identity. Freezing folds the batch
//! norms. Activations are channels-last.

use crate::check::{Checked, affine, count, dims, other_family, sizes};
use crate::fold::{self, Affine, Normed};
use crate::frozen::{self, Window};
use crate::table::{Known, five_halvings, no_name, other_name, other_tensors, usual_arguments};
use crate::{About, Activation, Family, FrozenNetwork, Weights};
use candle_core::{Result, Tensor};

/// Epsilon of the batch norms.
const EPS: f64 = 1e-5;
/// Kernel size of the first convolution.
const STEM: usize = 7;
/// Kernel size of the first convolution of networks for small images. It keeps the side, and no pooling follows.
const SMALL_STEM: usize = 3;
/// The family's name in messages.
const FAMILY: &str = "a ResNet";
/// timm's names of networks with this stem and these blocks.
const NAMES: [&str; 9] = [
    "resnet18",
    "resnet26",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnet200",
    "wide_resnet50_2",
    "wide_resnet101_2",
];

/// The sizes of a ResNet.
#[derive(Clone, Debug, PartialEq)]
pub struct ResNetShape {
    /// Side of the square input in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Channels after the first convolution.
    pub stem: usize,
    /// True if the first convolution is the one for small images.
    pub small: bool,
    /// Four stages: number of blocks, channels within a block and after it.
    pub stages: Vec<(usize, usize, usize)>,
    /// True if blocks are bottlenecks.
    pub bottleneck: bool,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

/// A convolution followed by a batch norm.
struct Convolution {
    map: Normed,
    stride: usize,
}

impl Convolution {
    fn new(
        name: String,
        norm: String,
        [inputs, outputs, kernel, stride]: [usize; 4],
    ) -> Convolution {
        let map = Normed {
            stored: name.clone(),
            name,
            norm,
            dims: vec![outputs, inputs, kernel, kernel],
            depthwise: false,
        };
        Convolution { map, stride }
    }

    /// `activation(conv(x) [+ residual])` for `x` (b, s, s, in).
    fn run(
        &self,
        weights: &Weights,
        x: &Tensor,
        residual: Option<&Tensor>,
        activation: Activation,
    ) -> Result<Tensor> {
        let kernel = self.map.dims[2];
        let window = Window::padded(x.dim(1)?, kernel, self.stride, kernel / 2);
        let map = Affine::stored(weights, &self.map.name)?;
        map.convolve(x, window, residual, activation)
    }
}

/// A residual block.
struct Block {
    convolutions: Vec<Convolution>,
    /// The convolution of the shortcut; `None` for the identity.
    shortcut: Option<Convolution>,
}

impl ResNetShape {
    fn stem(&self) -> Convolution {
        let [kernel, stride] = if self.small {
            [SMALL_STEM, 1]
        } else {
            [STEM, 2]
        };
        let sizes = [self.channels, self.stem, kernel, stride];
        Convolution::new("conv1".into(), "bn1".into(), sizes)
    }

    fn blocks(&self) -> Vec<Block> {
        let mut before = self.stem;
        let mut blocks = Vec::new();
        for (stage, &(depth, within, after)) in self.stages.iter().enumerate() {
            for block in 0..depth {
                let name = format!("layer{}.{block}", stage + 1);
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let sizes = match self.bottleneck {
                    false => vec![[before, within, 3, stride], [within, after, 3, 1]],
                    true => vec![
                        [before, within, 1, 1],
                        [within, within, 3, stride],
                        [within, after, 1, 1],
                    ],
                };
                let numbered = (1..).zip(sizes);
                let convolutions = numbered.map(|(i, sizes)| {
                    Convolution::new(format!("{name}.conv{i}"), format!("{name}.bn{i}"), sizes)
                });
                let [conv, norm] = [0, 1].map(|i| format!("{name}.downsample.{i}"));
                blocks.push(Block {
                    convolutions: convolutions.collect(),
                    shortcut: (stride > 1 || before != after)
                        .then(|| Convolution::new(conv, norm, [before, after, 1, stride])),
                });
                before = after;
            }
        }
        blocks
    }

    /// All convolutions, in timm's order.
    fn maps(&self) -> Vec<Normed> {
        let blocks = self.blocks().into_iter();
        let of_blocks =
            blocks.flat_map(|block| block.convolutions.into_iter().chain(block.shortcut));
        let all = [self.stem()].into_iter().chain(of_blocks);
        all.map(|of| of.map).collect()
    }

    /// Names and shapes of all weights.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = fold::parameters(&self.maps());
        if self.classes > 0 {
            all.extend(affine("fc", vec![self.classes, self.about().width]));
        }
        all
    }
}

impl Family for ResNetShape {
    const HEAD: &'static str = "fc";
    const AT_ONCE: Option<usize> = Some(32);

    fn about(&self) -> About {
        About {
            family: FAMILY,
            depth: self.stages.iter().map(|(blocks, ..)| blocks).sum(),
            width: self.stages.last().map_or(self.stem, |(.., after)| *after),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    fn fuse(&self, weights: &Weights) -> Result<Weights> {
        let mut all = fold::fused(weights, &self.maps(), EPS)?;
        if self.classes > 0 {
            Affine::map(weights, "fc")?.store(&mut all, "fc");
        }
        Ok(all)
    }

    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let x = self.stem().run(weights, images, None, Activation::Relu)?;
        let mut x = match self.small {
            true => x,
            false => frozen::max_pool(&x, Window::padded(x.dim(1)?, 3, 2, 1))?,
        };
        for block in self.blocks() {
            let shortcut = match &block.shortcut {
                Some(map) => map.run(weights, &x, None, Activation::Identity)?,
                None => x.clone(),
            };
            for (i, map) in (1..).zip(&block.convolutions) {
                let residual = (i == block.convolutions.len()).then_some(&shortcut);
                x = map.run(weights, &x, residual, Activation::Relu)?;
            }
        }
        frozen::mean_rows(&x.flatten(1, 2)?)
    }
}

/// Recognises a ResNet; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> Checked<Option<FrozenNetwork>> {
    let Known { name, weights, .. } = known;
    let named = name.starts_with("resnet") || name.starts_with("wide_resnet");
    let found = known.has("conv1.weight") && known.has("layer1.0.conv1.weight");
    match (named, found) {
        (false, false) => return Ok(None),
        (true, _) if !NAMES.contains(&name) => return Err(other_name(name, &NAMES)),
        (true, false) => return Err(other_tensors(known, FAMILY)),
        (false, true) if name.is_empty() => return Err(no_name("a resnetblur or resnetaa")),
        (false, true) => return other_family(name, FAMILY),
        (true, true) => {}
    }
    // The weights determine blocks (`layers`) and `channels` of the stages.
    usual_arguments(known, &["layers", "channels"])?;
    let [stem, channels, kernel, _] = dims::<4>(weights, "conv1.weight")?;
    let bottleneck = known.has("layer1.0.conv3.weight");
    let last = if bottleneck { 3 } else { 2 };
    let stage = |stage: usize| {
        let [within, ..] = dims::<4>(weights, &format!("layer{stage}.0.conv1.weight"))?;
        let [after, ..] = dims::<4>(weights, &format!("layer{stage}.0.conv{last}.weight"))?;
        let blocks = count(weights, |i| format!("layer{stage}.{i}.conv1.weight"));
        Ok((blocks, within, after))
    };
    let shape = ResNetShape {
        image_size: known.image_size(224),
        channels,
        stem,
        small: kernel == SMALL_STEM,
        stages: (1..5).map(stage).collect::<Checked<_>>()?,
        bottleneck,
        classes: known.rows("fc")?,
    };
    sizes(&[("channels", channels), ("stem", stem)])?;
    for &(_, within, after) in &shape.stages {
        sizes(&[
            ("channels within a block", within),
            ("channels after a block", after),
        ])?;
    }
    if !shape.small {
        five_halvings(shape.image_size)?;
    }
    Ok(Some(FrozenNetwork::ResNet(shape)))
}
