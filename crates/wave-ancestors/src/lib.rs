//! Inference-only networks of any family, used as ancestors in distillation. This crate also holds the bottom
//! layer that all networks share: weights by name, and checks of their shapes.
//!
//! 1. [`Weights`] are tensors by timm's names. [`check_weights`] compares them with a network's list of names
//!    and shapes.
//! 2. [`recognise`] infers the family and sizes, a [`FrozenNetwork`], from the weights and timm's
//!    `config.json`.
//! 3. [`FrozenNetwork::freeze`] folds batch norms ([`fold`]) and returns a network that is ready to run.
//! 4. [`Frozen`] is its interface: features and logits of images. [`frozen`] has its operators.
//!
//! ```
//! use candle_core::{DType, Device, Tensor};
//! use wave_ancestors::{FrozenNetwork, Weights, vgg::VggShape};
//!
//! let shape = VggShape {
//!     image_size: 16,
//!     channels: 3,
//!     convolutions: vec![(0, 4, true), (3, 8, false)],
//!     norms: false,
//!     head: (6, 5),
//!     classes: 2,
//! };
//! let zeros = |dims: Vec<usize>| Tensor::zeros(dims, DType::F32, &Device::Cpu);
//! let mut weights = Weights::new();
//! for (name, dims) in shape.parameters() {
//!     weights.insert(name, zeros(dims)?);
//! }
//! weights.insert("head.fc.bias".into(), Tensor::new(&[1f32, -1.], &Device::Cpu)?);
//!
//! let ancestor = FrozenNetwork::Vgg(shape).freeze(&weights)?;
//! assert_eq!(ancestor.about().family, "a VGG");
//! let logits = ancestor.logits(&zeros(vec![4, 3, 16, 16])?)?;
//! assert_eq!(logits.to_vec2::<f32>()?, [[1., -1.]; 4]);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! | family | forward pass |
//! |---|---|
//! | ConvNeXt and V2, RepVGG, MobileNetV4, MobileOne, FastViT | candle-transformers, [`stock`] |
//! | ResNet | [`resnet`]: candle-transformers' unfolds its inputs, and takes two to three times as long on processors |
//! | VGG | [`vgg`]: candle-transformers' has one size of image, one image at a time and a rectified classifier |
//! | EfficientViT (MSRA) | [`efficientvit`]: candle-transformers' has no attention biases and one size of image |
//! | Hiera | [`hiera`]: candle-transformers' has the approximate GELU, and no window where a stage begins |
//! | BEiT, EVA, EVA-02, DINOv2, DINOv3, CLIP's and SigLIP's towers | wave-models' `transformer`: candle-transformers' have one size of image, fixed classifiers, or the approximate GELU |
//! | LeViT, EfficientNet-Lite | [`levit`], [`efficientnet`]: candle-transformers has none |
//!
//! A family is included only if its logits match timm's: `ancestors_tests.rs` of wave-models compares each with timm.

mod activation;
pub mod check;
pub mod efficientnet;
pub mod efficientvit;
pub mod fold;
pub mod frozen;
pub mod hiera;
pub mod levit;
mod refusal;
pub mod resnet;
#[cfg(feature = "stock")]
pub mod stock;
pub mod table;
#[cfg(test)]
mod testing;
pub mod vgg;

pub use activation::Activation;
pub use check::{Checked, ShapeError, check_weights, default_patch};
pub use refusal::{NetworkError, Refusal};

use candle_core::{Device, Result, Tensor};
use efficientnet::EfficientNetShape;
use efficientvit::EfficientVitShape;
use fold::Affine;
use hiera::HieraShape;
use levit::LevitShape;
use resnet::ResNetShape;
use std::collections::BTreeMap;
#[cfg(feature = "stock")]
use stock::StockShape;
use table::{Known, agree};
use vgg::VggShape;

/// Weights by name.
pub type Weights = BTreeMap<String, Tensor>;

/// Checks that images are (b, channels, size, size), and moves them to the device of a weight.
pub fn checked_images(
    images: &Tensor,
    channels: usize,
    size: usize,
    weight: &Tensor,
) -> Result<Tensor> {
    images_on(weight.device(), images, channels, size)
}

/// Checks that images are (b, channels, size, size), and moves them to this device.
fn images_on(device: &Device, images: &Tensor, channels: usize, size: usize) -> Result<Tensor> {
    match images.dims() {
        [_, c, h, w] if (*c, *h, *w) == (channels, size, size) => images.to_device(device),
        found => candle_core::bail!(
            "images of shape {found:?}, expected (b, {channels}, {size}, {size}); resize them"
        ),
    }
}

/// The mean of `z` (b, g, g, h) over its pixels, (b, h), as a matrix product, which on the CPU is many times
/// faster than a reduction over a middle dimension.
pub fn mean_over_pixels(z: &Tensor) -> Result<Tensor> {
    let z = z.flatten(1, 2)?; // (b, n, h)
    let (b, n, _) = z.dims3()?;
    let share = Tensor::full(1.0 / n as f64, (b, 1, n), z.device())?.to_dtype(z.dtype())?;
    share.matmul(&z)?.squeeze(1)
}

/// A network with its weights, for inference without gradients. Images of another size are errors.
pub trait Frozen: Send + Sync {
    /// Its family and sizes.
    fn about(&self) -> About;

    /// Features (b, [`About::width`]) of images (b, channels, h, w), the input of the classifier; an error if the
    /// network does not expose them.
    fn features(&self, images: &Tensor) -> Result<Tensor>;

    /// Logits (b, classes) of images (b, channels, h, w); an error if the network has no classifier.
    fn logits(&self, images: &Tensor) -> Result<Tensor>;

    /// Its weights in the form of wave-models' `Network::prepare`, if the network is trainable.
    fn prepared(&self) -> Option<&Weights> {
        None
    }
}

/// Family and sizes of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// The family, with an article: "a ConvNeXt V2".
    pub family: &'static str,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of the features.
    pub width: usize,
    /// Colour channels of the images.
    pub channels: usize,
    /// Side of the square images, in pixels.
    pub image_size: usize,
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

impl About {
    /// Images (b, channels, image_size, image_size), detached from the graph, on this device.
    pub fn checked(&self, images: &Tensor, device: &Device) -> Result<Tensor> {
        images_on(device, &images.detach(), self.channels, self.image_size)
    }

    /// The error of a network without a classifier.
    pub fn headless<T>(&self) -> Result<T> {
        candle_core::bail!(
            "{} without a classifier gives features but no logits; use one with a classifier",
            self.family
        )
    }
}

/// An inference-only network, and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum FrozenNetwork {
    /// A LeViT.
    Levit(LevitShape),
    /// An EfficientNet-Lite.
    EfficientNet(EfficientNetShape),
    /// A VGG.
    Vgg(VggShape),
    /// A ResNet.
    ResNet(ResNetShape),
    /// An EfficientViT.
    EfficientVit(EfficientVitShape),
    /// A Hiera.
    Hiera(HieraShape),
    /// A family of candle-transformers.
    #[cfg(feature = "stock")]
    Stock(StockShape),
    /// A network run by another library: only its sizes are known here, and no weight file holds it.
    Foreign(About),
}

impl FrozenNetwork {
    /// Its family and sizes.
    pub fn about(&self) -> About {
        match self {
            FrozenNetwork::Levit(s) => s.about(),
            FrozenNetwork::EfficientNet(s) => s.about(),
            FrozenNetwork::Vgg(s) => s.about(),
            FrozenNetwork::ResNet(s) => s.about(),
            FrozenNetwork::EfficientVit(s) => s.about(),
            FrozenNetwork::Hiera(s) => s.about(),
            #[cfg(feature = "stock")]
            FrozenNetwork::Stock(s) => s.about.clone(),
            FrozenNetwork::Foreign(about) => about.clone(),
        }
    }

    /// Names and shapes of all weights under timm's names, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            FrozenNetwork::Levit(s) => s.parameters(),
            FrozenNetwork::EfficientNet(s) => s.parameters(),
            FrozenNetwork::Vgg(s) => s.parameters(),
            FrozenNetwork::ResNet(s) => s.parameters(),
            FrozenNetwork::EfficientVit(s) => s.parameters(),
            FrozenNetwork::Hiera(s) => s.parameters(),
            #[cfg(feature = "stock")]
            FrozenNetwork::Stock(s) => s.parameters.clone(),
            FrozenNetwork::Foreign(_) => Vec::new(),
        }
    }

    /// Approximate number of values that a forward pass holds at a time, per image.
    pub fn floats(&self) -> f64 {
        let about = self.about();
        let side = about.image_size as f64;
        let pixels = about.channels as f64 * side * side;
        match self {
            FrozenNetwork::Levit(_) | FrozenNetwork::EfficientNet(_) => 8.0 * pixels,
            // Windows of 3 x 3 over 64 channels are unfolded at full resolution.
            FrozenNetwork::Vgg(_) => 250.0 * pixels,
            _ => 64.0 * pixels,
        }
    }

    /// The network with these weights, under timm's names.
    pub fn freeze(&self, weights: &Weights) -> Result<Box<dyn Frozen>> {
        check_weights(weights, &self.parameters())?;
        match self {
            FrozenNetwork::Levit(shape) => Folded::boxed(shape, weights),
            FrozenNetwork::EfficientNet(shape) => Folded::boxed(shape, weights),
            FrozenNetwork::Vgg(shape) => Folded::boxed(shape, weights),
            FrozenNetwork::ResNet(shape) => Folded::boxed(shape, weights),
            FrozenNetwork::EfficientVit(shape) => Folded::boxed(shape, weights),
            FrozenNetwork::Hiera(shape) => Folded::boxed(shape, weights),
            #[cfg(feature = "stock")]
            FrozenNetwork::Stock(shape) => Ok(Box::new(stock::Stock::new(shape, weights)?)),
            FrozenNetwork::Foreign(about) => {
                candle_core::bail!("{} runs only in the library that made it", about.family)
            }
        }
    }
}

/// A family whose forward pass is a function of folded weights.
pub(crate) trait Family: Clone + Send + Sync + 'static {
    /// Name of the classifier.
    const HEAD: &'static str;
    /// Images per forward pass; by default [`frozen::IMAGES_PER_THREAD`] for each thread.
    const AT_ONCE: Option<usize> = None;

    /// Its family and sizes.
    fn about(&self) -> About;

    /// Checked weights in the form of the forward pass: batch norms folded into the adjacent maps, matrices (in, out),
    /// convolutions laid out for channels-last images.
    fn fuse(&self, weights: &Weights) -> Result<Weights>;

    /// Features (b, width) of images (b, s, s, channels), with fused weights.
    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor>;
}

/// A network of such a family, with fused weights, which include the classifier's.
struct Folded<S> {
    shape: S,
    weights: Weights,
}

impl<S: Family> Folded<S> {
    fn new(shape: &S, weights: Weights) -> Folded<S> {
        let shape = shape.clone();
        Folded { shape, weights }
    }

    fn boxed(shape: &S, weights: &Weights) -> Result<Box<dyn Frozen>> {
        Ok(Box::new(Folded::new(shape, shape.fuse(weights)?)))
    }
}

impl<S: Family> Frozen for Folded<S> {
    fn about(&self) -> About {
        self.shape.about()
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        let first = self.weights.values().next();
        let device = first.map_or(&Device::Cpu, Tensor::device);
        let about = self.about();
        let images = images_on(device, images, about.channels, about.image_size)?;
        let of_threads = || frozen::IMAGES_PER_THREAD * rayon::current_num_threads();
        let at_once = S::AT_ONCE.unwrap_or_else(of_threads);
        in_parts(&images, at_once, |images| {
            let images = images.permute((0, 2, 3, 1))?.contiguous()?; // (b, s, s, channels)
            self.shape.forward(&self.weights, &images)
        })
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        let about = self.about();
        if about.classes == 0 {
            return about.headless();
        }
        let head = Affine::stored(&self.weights, S::HEAD)?;
        head.linear(&self.features(images)?, Activation::Identity)
    }
}

/// Runs `f` on a few images at a time and concatenates the results.
pub fn in_parts(
    images: &Tensor,
    at_once: usize,
    f: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    let b = images.dim(0)?;
    if b <= at_once {
        return f(images);
    }
    let part = |i: usize| f(&images.narrow(0, i, at_once.min(b - i))?);
    let parts = (0..b).step_by(at_once).map(part);
    Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 0)
}

/// The network, if its name or its weights belong to a family here: see `Network::recognise` of wave-models.
pub fn recognise(known: Known) -> Checked<Option<FrozenNetwork>> {
    for recognise in [
        vgg::recognise,
        resnet::recognise,
        efficientvit::recognise,
        hiera::recognise,
        #[cfg(feature = "stock")]
        stock::recognise,
    ] {
        if let Some(found) = recognise(known)? {
            let about = found.about();
            check::sizes(&[("image_size", about.image_size)])?;
            check_weights(known.weights, &found.parameters())?;
            agree(known, "num_classes", about.classes)?;
            agree(known, "in_chans", about.channels)?;
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Refuses a name with the prefix of a family here that is none of its networks.
pub fn check_name(name: &str) -> Checked<()> {
    #[cfg(feature = "stock")]
    return stock::check_name(name);
    #[cfg(not(feature = "stock"))]
    {
        let families = "convnext_ convnextv2_ repvgg_ mobilenetv4_ mobileone_ fastvit_";
        let of_family = families.split(' ').any(|start| name.starts_with(start));
        if of_family && !name.starts_with("convnext_isotropic") {
            let what = "this build lacks its family; build with the feature ancestors";
            return Err(check::unsupported(name, what, "by its name"));
        }
        Ok(())
    }
}
