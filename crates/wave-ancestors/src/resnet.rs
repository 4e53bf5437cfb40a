//! ResNets (He et al. 2016, "Deep Residual Learning for Image Recognition"), including wide ones,
//! inference-only, with timm's weight names.
//!
//! ```text
//! x = max pool(relu(BN(Conv_7(x))))                             each halves the side
//! x = relu(shortcut(x) + F(x))                                  each block
//! F = BN Conv_3 relu BN Conv_3                                  up to 34 layers
//! F = BN Conv_1 relu BN Conv_3 relu BN Conv_1                   deeper: a bottleneck
//! z = fc(mean over pixels of x)
//! ```
//!
//! The first 3 x 3 convolution of stages 2 to 4 halves the side. Where a block changes the shape, the
//! shortcut is a 1 x 1 convolution with a batch norm, otherwise the identity. `ResNet::new` folds the batch
//! norms. Activations are channels-last.

use crate::check::{affine, batch_norm, count, dims, sizes};
use crate::fold::{self, Affine};
use crate::frozen::{self, Window};
use crate::table::{
    Known, agree, five_halvings, no_name, other_name, other_tensors, usual_arguments,
};
use crate::{About, Body, FrozenNetwork};
use crate::{Activation, ShapeError, Weights, check_weights};
use candle_core::{Result, Tensor};

/// Epsilon of the batch norms.
const EPS: f64 = 1e-5;
/// Kernel size of the first convolution.
const STEM: usize = 7;
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
    /// Four stages: number of blocks, channels within a block and after it.
    pub stages: Vec<(usize, usize, usize)>,
    /// True if blocks are bottlenecks.
    pub bottleneck: bool,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

/// A block of a network.
struct Place {
    name: String,
    /// Channels before, within and after the block.
    channels: [usize; 3],
    stride: usize,
}

impl Place {
    /// Input channels, output channels, kernel size and stride of its convolutions.
    fn convolutions(&self, bottleneck: bool) -> Vec<[usize; 4]> {
        let ([before, within, after], stride) = (self.channels, self.stride);
        match bottleneck {
            false => vec![[before, within, 3, stride], [within, after, 3, 1]],
            true => vec![
                [before, within, 1, 1],
                [within, within, 3, stride],
                [within, after, 1, 1],
            ],
        }
    }

    /// True if the shortcut is a convolution.
    fn projects(&self) -> bool {
        self.stride > 1 || self.channels[0] != self.channels[2]
    }
}

impl ResNetShape {
    pub(super) fn about(&self) -> About {
        About {
            family: FAMILY,
            depth: self.stages.iter().map(|(blocks, ..)| blocks).sum(),
            width: self.stages.last().map_or(self.stem, |(.., after)| *after),
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    fn places(&self) -> Vec<Place> {
        let mut before = self.stem;
        let mut places = Vec::new();
        for (stage, &(blocks, within, after)) in self.stages.iter().enumerate() {
            for block in 0..blocks {
                places.push(Place {
                    name: format!("layer{}.{block}", stage + 1),
                    channels: [before, within, after],
                    stride: if stage > 0 && block == 0 { 2 } else { 1 },
                });
                before = after;
            }
        }
        places
    }

    /// Names and shapes of all weights.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let stem = vec![self.stem, self.channels, STEM, STEM];
        let mut all = vec![("conv1.weight".to_owned(), stem)];
        all.extend(batch_norm("bn1", self.stem));
        for place in self.places() {
            let name = &place.name;
            let convolutions = place.convolutions(self.bottleneck);
            for (i, [inputs, out, kernel, _]) in (1..).zip(convolutions) {
                let dims = vec![out, inputs, kernel, kernel];
                all.push((format!("{name}.conv{i}.weight"), dims));
                all.extend(batch_norm(&format!("{name}.bn{i}"), out));
            }
            if place.projects() {
                let [before, _, after] = place.channels;
                let dims = vec![after, before, 1, 1];
                all.push((format!("{name}.downsample.0.weight"), dims));
                all.extend(batch_norm(&format!("{name}.downsample.1"), after));
            }
        }
        if self.classes > 0 {
            all.extend(affine("fc", vec![self.classes, self.about().width]));
        }
        all
    }
}

/// Recognises a ResNet; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> std::result::Result<Option<FrozenNetwork>, ShapeError> {
    let weights = known.weights;
    let name = known.name;
    let named = name.starts_with("resnet") || name.starts_with("wide_resnet");
    let found = known.has("conv1.weight") && known.has("layer1.0.conv1.weight");
    match (named, found) {
        (false, false) => return Ok(None),
        (true, _) if !NAMES.contains(&name) => return Err(other_name(name, &NAMES)),
        (true, false) => return Err(other_tensors(known, FAMILY)),
        (false, true) if name.is_empty() => return Err(no_name("a resnetblur or resnetaa")),
        (false, true) => {
            return Err(ShapeError::Architecture {
                said: name.into(),
                found: FAMILY,
            });
        }
        (true, true) => {}
    }
    usual_arguments(known)?;
    let [stem, channels, ..] = dims::<4>(weights, "conv1.weight")?;
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
        stages: (1..5)
            .map(stage)
            .collect::<std::result::Result<_, ShapeError>>()?,
        bottleneck,
        classes: known.rows("fc")?,
    };
    check_weights(weights, &shape.parameters())?;
    let width = shape.about().width;
    sizes(&[("channels", channels), ("stem", stem), ("width", width)])?;
    agree(known, "num_classes", shape.classes)?;
    agree(known, "in_chans", channels)?;
    five_halvings(shape.image_size)?;
    Ok(Some(FrozenNetwork::ResNet(shape)))
}

/// A ResNet with its weights.
pub(super) struct ResNet {
    stem: Convolution,
    blocks: Vec<Block>,
}

/// A convolution with its batch norm folded in.
struct Convolution {
    /// A matrix (kernel^2 in, out) with its bias.
    map: Affine,
    kernel: usize,
    stride: usize,
}

struct Block {
    convolutions: Vec<Convolution>,
    shortcut: Option<Convolution>,
}

impl ResNet {
    /// The network and its classifier, if there is one.
    pub(super) fn new(shape: &ResNetShape, weights: &Weights) -> Result<(ResNet, Option<Affine>)> {
        check_weights(weights, &shape.parameters()).map_err(candle_core::Error::wrap)?;
        let convolution = |conv: &str, norm: &str, kernel, stride| {
            let map = fold::into_outputs(weights, &format!("{conv}.weight"), norm, EPS)?;
            Ok(Convolution {
                map: map.columns()?,
                kernel,
                stride,
            })
        };
        let block = |place: Place| {
            let name = &place.name;
            let convolutions = place.convolutions(shape.bottleneck);
            let convolutions = (1..)
                .zip(convolutions)
                .map(|(i, [_, _, kernel, stride])| {
                    let (conv, norm) = (format!("{name}.conv{i}"), format!("{name}.bn{i}"));
                    convolution(&conv, &norm, kernel, stride)
                })
                .collect::<Result<_>>()?;
            let [conv, norm] = [0, 1].map(|i| format!("{name}.downsample.{i}"));
            let shortcut = place.projects();
            let shortcut = shortcut.then(|| convolution(&conv, &norm, 1, place.stride));
            Ok(Block {
                convolutions,
                shortcut: shortcut.transpose()?,
            })
        };
        let network = ResNet {
            stem: convolution("conv1", "bn1", STEM, 2)?,
            blocks: shape
                .places()
                .into_iter()
                .map(block)
                .collect::<Result<_>>()?,
        };
        let classifier = (shape.classes > 0).then(|| Affine::map(weights, "fc"));
        Ok((network, classifier.transpose()?))
    }
}

impl Convolution {
    /// `activation(conv(x) [+ residual])` for `x` (b, s, s, in).
    fn run(&self, x: &Tensor, residual: Option<&Tensor>, activation: Activation) -> Result<Tensor> {
        let window = Window::padded(x.dim(1)?, self.kernel, self.stride, self.kernel / 2);
        let Affine { weight, bias } = &self.map;
        frozen::convolve(x, weight, bias, window, residual, activation)
    }
}

impl Block {
    fn run(&self, x: &Tensor) -> Result<Tensor> {
        let shortcut = match &self.shortcut {
            Some(map) => map.run(x, None, Activation::Identity)?,
            None => x.clone(),
        };
        let mut y = x.clone();
        for (i, map) in (1..).zip(&self.convolutions) {
            let residual = (i == self.convolutions.len()).then_some(&shortcut);
            y = map.run(&y, residual, Activation::Relu)?;
        }
        Ok(y)
    }
}

impl Body for ResNet {
    const AT_ONCE: usize = 32;

    fn run(&self, images: &Tensor) -> Result<Tensor> {
        let x = images.permute((0, 2, 3, 1))?.contiguous()?; // (b, s, s, channels)
        let x = self.stem.run(&x, None, Activation::Relu)?;
        let mut x = frozen::max_pool(&x, Window::padded(x.dim(1)?, 3, 2, 1))?;
        for block in &self.blocks {
            x = block.run(&x)?;
        }
        frozen::mean_rows(&x.flatten(1, 2)?)
    }
}
