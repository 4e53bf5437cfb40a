//! Networks that only run: what is distilled from, of whatever family.
//!
//! [`Frozen`] is how they are used. [`FrozenNetwork`] is what of them is known before any weight is
//! placed: their family and sizes, read off the weights and timm's `config.json`.
//!
//! | family | forward pass |
//! |---|---|
//! | ConvNeXt and V2, ResNet, RepVGG, MobileNetV4, MobileOne, FastViT | candle-transformers, [`stock`] |
//! | VGG | [`vgg`]: candle-transformers' has one size of image, one image at a time and a rectified classifier |
//! | EfficientViT (MSRA) | [`efficientvit`]: candle-transformers' has no attention biases and one size of image |
//! | Hiera | [`hiera`]: candle-transformers' has the approximate GELU, and no window where a stage begins |
//! | BEiT, EVA, EVA-02, DINOv2, DINOv3, CLIP's and SigLIP's towers | [`crate::transformer`]: candle-transformers' have one size of image, fixed classifiers, or the approximate GELU |
//! | LeViT, EfficientNet-Lite | [`crate::levit`], [`crate::efficientnet`]: candle-transformers has none |
//!
//! A family is only here if its logits are timm's: `ancestors_tests.rs` compares each with timm.

pub mod efficientvit;
pub mod hiera;
#[cfg(feature = "ancestors")]
pub mod stock;
pub(crate) mod table;
pub mod vgg;

use crate::efficientnet::{self, EfficientNetShape};
use crate::frozen;
use crate::levit::{self, LevitShape};
use crate::{Activation, ShapeError, Weights};
use candle_core::{Device, Result, Tensor};
use efficientvit::EfficientVitShape;
use hiera::HieraShape;
#[cfg(feature = "ancestors")]
use stock::StockShape;
use vgg::VggShape;

use table::Known;

/// A network with its weights, which gives outputs and no gradients.
pub trait Frozen: Send + Sync {
    /// What it is, and its sizes.
    fn about(&self) -> &About;

    /// What the classifier sees (b, [`About::width`]), of images (b, channels, h, w).
    ///
    /// # Errors
    /// If the images have another size, or the network shows no features.
    fn features(&self, images: &Tensor) -> Result<Tensor>;

    /// Class scores (b, classes) of images (b, channels, h, w).
    ///
    /// # Errors
    /// If the images have another size, or the network has no classifier.
    fn logits(&self, images: &Tensor) -> Result<Tensor>;

    /// Its weights as [`crate::Network::prepare`] gives them, if it is a network that could be trained.
    fn prepared(&self) -> Option<&Weights> {
        None
    }
}

/// What a network is, and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The family, with an article: "a ConvNeXt V2".
    pub family: &'static str,
    /// Blocks.
    pub depth: usize,
    /// Channels of what the classifier sees.
    pub width: usize,
    /// Colour channels of the images.
    pub channels: usize,
    /// Side of the square images, in pixels.
    pub image_size: usize,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

impl About {
    /// Images (b, channels, image_size, image_size), without their history, on this device.
    pub(crate) fn checked(&self, images: &Tensor, device: &Device) -> Result<Tensor> {
        crate::images_on(device, &images.detach(), self.channels, self.image_size)
    }

    /// The error of a network without a classifier.
    pub(crate) fn headless<T>(&self) -> Result<T> {
        candle_core::bail!(
            "{} without a classifier gives features and no logits; take one with a classifier",
            self.family
        )
    }
}

/// A network that only runs, and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum FrozenNetwork {
    /// A LeViT.
    Levit(LevitShape),
    /// An EfficientNet-Lite.
    EfficientNet(EfficientNetShape),
    /// A VGG.
    Vgg(VggShape),
    /// An EfficientViT.
    EfficientVit(EfficientVitShape),
    /// A Hiera.
    Hiera(HieraShape),
    /// A family of candle-transformers.
    #[cfg(feature = "ancestors")]
    Stock(StockShape),
}

impl From<LevitShape> for FrozenNetwork {
    fn from(shape: LevitShape) -> FrozenNetwork {
        FrozenNetwork::Levit(shape)
    }
}

impl From<EfficientNetShape> for FrozenNetwork {
    fn from(shape: EfficientNetShape) -> FrozenNetwork {
        FrozenNetwork::EfficientNet(shape)
    }
}

impl FrozenNetwork {
    /// What it is, and its sizes.
    pub fn about(&self) -> About {
        match self {
            FrozenNetwork::Levit(s) => About {
                family: "a LeViT",
                depth: s.stages.iter().map(|s| s.depth).sum(),
                width: s.stages.last().map_or(0, |s| s.width),
                channels: s.channels,
                image_size: s.image_size,
                classes: s.classes,
            },
            FrozenNetwork::EfficientNet(s) => About {
                family: "an EfficientNet-Lite",
                depth: s.stages.iter().map(|s| s.depth).sum(),
                width: s.features,
                channels: s.channels,
                image_size: s.image_size,
                classes: s.classes,
            },
            FrozenNetwork::Vgg(s) => s.about(),
            FrozenNetwork::EfficientVit(s) => s.about(),
            FrozenNetwork::Hiera(s) => s.about(),
            #[cfg(feature = "ancestors")]
            FrozenNetwork::Stock(s) => s.about.clone(),
        }
    }

    /// Names and shapes of all weights under timm's names, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            FrozenNetwork::Levit(s) => s.parameters(),
            FrozenNetwork::EfficientNet(s) => s.parameters(),
            FrozenNetwork::Vgg(s) => s.parameters(),
            FrozenNetwork::EfficientVit(s) => s.parameters(),
            FrozenNetwork::Hiera(s) => s.parameters(),
            #[cfg(feature = "ancestors")]
            FrozenNetwork::Stock(s) => s.parameters.clone(),
        }
    }

    /// Numbers that a forward pass of an image holds at a time, about.
    pub fn floats(&self) -> f64 {
        let about = self.about();
        let pixels = (about.channels * about.image_size * about.image_size) as f64;
        match self {
            FrozenNetwork::Levit(_) | FrozenNetwork::EfficientNet(_) => 8.0 * pixels,
            // Windows of 3 x 3 over 64 channels are unfolded at full size.
            FrozenNetwork::Vgg(_) => 250.0 * pixels,
            _ => 64.0 * pixels,
        }
    }

    /// The network with these weights, timm's.
    ///
    /// # Errors
    /// If the weights do not fit it.
    pub fn freeze(&self, weights: &Weights) -> Result<Box<dyn Frozen>> {
        let about = self.about();
        let device = weights.values().next().map_or(&Device::Cpu, Tensor::device);
        Ok(match self {
            FrozenNetwork::Levit(shape) => Box::new(Folded {
                about,
                shape: shape.clone(),
                weights: levit::fuse(shape, weights)?,
                features: levit::features,
                logits: levit::logits,
            }),
            FrozenNetwork::EfficientNet(shape) => Box::new(Folded {
                about,
                shape: shape.clone(),
                weights: efficientnet::fuse(shape, weights)?,
                features: efficientnet::features,
                logits: efficientnet::logits,
            }),
            FrozenNetwork::Vgg(shape) => {
                Headed::boxed(about, device, vgg::Vgg::new(shape, weights)?)
            }
            FrozenNetwork::EfficientVit(shape) => {
                let parts = efficientvit::EfficientVit::new(shape, weights)?;
                Headed::boxed(about, device, parts)
            }
            FrozenNetwork::Hiera(shape) => {
                Headed::boxed(about, device, hiera::Hiera::new(shape, weights)?)
            }
            #[cfg(feature = "ancestors")]
            FrozenNetwork::Stock(shape) => Box::new(stock::Stock::new(shape, weights)?),
        })
    }
}

/// A network whose forward passes are functions of folded weights.
struct Folded<S> {
    about: About,
    shape: S,
    weights: Weights,
    features: fn(&S, &Weights, &Tensor) -> Result<Tensor>,
    logits: fn(&S, &Weights, &Tensor) -> Result<Tensor>,
}

impl<S: Send + Sync> Frozen for Folded<S> {
    fn about(&self) -> &About {
        &self.about
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        (self.features)(&self.shape, &self.weights, images)
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        (self.logits)(&self.shape, &self.weights, images)
    }
}

/// A forward pass from images to what a classifier sees, by weights of its own.
pub(crate) trait Body: Send + Sync {
    /// Images that pass through together.
    const AT_ONCE: usize;

    /// Outputs (b, width) of images (b, channels, h, w) of the network's size.
    fn run(&self, images: &Tensor) -> Result<Tensor>;
}

/// A body and the linear classifier above it, if there is one.
struct Headed<B> {
    about: About,
    device: Device,
    body: B,
    /// A matrix (width, classes) and its biases.
    classifier: Option<(Tensor, Tensor)>,
}

impl<B: Body + 'static> Headed<B> {
    fn boxed(
        about: About,
        device: &Device,
        (body, classifier): (B, Option<(Tensor, Tensor)>),
    ) -> Box<dyn Frozen> {
        Box::new(Headed {
            about,
            device: device.clone(),
            body,
            classifier,
        })
    }
}

impl<B: Body> Frozen for Headed<B> {
    fn about(&self) -> &About {
        &self.about
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        let images = self.about.checked(images, &self.device)?;
        in_parts(&images, B::AT_ONCE, |images| self.body.run(images))
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        match &self.classifier {
            Some((w, b)) => {
                frozen::linear(&self.features(images)?, w, b, None, Activation::Identity)
            }
            None => self.about.headless(),
        }
    }
}

/// Runs `f` over some images at a time and joins the results.
pub(crate) fn in_parts(
    images: &Tensor,
    at_once: usize,
    f: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let b = images.dim(0)?;
    if b <= at_once {
        return f(images);
    }
    let parts = (0..b)
        .step_by(at_once)
        .map(|i| f(&images.narrow(0, i, at_once.min(b - i))?))
        .collect::<Result<Vec<_>>>()?;
    Tensor::cat(&parts, 0)
}

/// The network of one of the families that only run and say so by their tensors, if the name or the
/// weights are of one: see [`crate::Network::recognise`].
pub(crate) fn recognise(known: Known) -> std::result::Result<Option<FrozenNetwork>, ShapeError> {
    if let Some(found) = vgg::recognise(known)? {
        return Ok(Some(FrozenNetwork::Vgg(found)));
    }
    if let Some(found) = efficientvit::recognise(known)? {
        return Ok(Some(FrozenNetwork::EfficientVit(found)));
    }
    if let Some(found) = hiera::recognise(known)? {
        return Ok(Some(FrozenNetwork::Hiera(found)));
    }
    #[cfg(feature = "ancestors")]
    if let Some(found) = stock::recognise(known)? {
        return Ok(Some(FrozenNetwork::Stock(found)));
    }
    Ok(None)
}

/// Refuses a name that is of one of the families here, but of none of their networks.
pub(crate) fn check_name(name: &str) -> std::result::Result<(), ShapeError> {
    #[cfg(feature = "ancestors")]
    return stock::check_name(name);
    #[cfg(not(feature = "ancestors"))]
    {
        let families = [
            "convnext_",
            "convnextv2_",
            "resnet",
            "repvgg_",
            "mobilenetv4_",
            "mobileone_",
            "fastvit_",
        ];
        match families.iter().any(|start| name.starts_with(start))
            && !name.starts_with("convnext_isotropic")
        {
            true => Err(crate::check::unsupported(
                name,
                "this build is without its family; build with the feature ancestors",
                "by its name",
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "ancestors_tests.rs"]
mod tests;
