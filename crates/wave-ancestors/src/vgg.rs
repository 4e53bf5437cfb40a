//! VGG (Simonyan and Zisserman 2015, "Very Deep Convolutional Networks for Large-Scale Image Recognition"),
//! with and without batch norms, inference-only, with timm's weight names.
//!
//! ```text
//! x = pool(relu([BN](Conv_3(x))) ..)       2 x 2 maxima after each group of convolutions
//! f = relu(W_2 relu(Conv_7(x)))            a map below 7 x 7 is first averaged up to that
//! z = fc(mean over pixels of f)
//! ```
//!
//! Convolutions and batch norms are numbered together with modules without weights, so gaps between the
//! numbers show where max pooling occurs. `Vgg::new` folds the batch norms. Activations are channels-last.

use crate::check::{affine, batch_norm, dims, refuse_value, sizes, unsupported};
use crate::fold::{self, Affine};
use crate::frozen::{self, Window};
use crate::table::{Known, agree, usual_arguments};
use crate::{About, Body, FrozenNetwork};
use crate::{Activation, ShapeError, Weights, check_weights};
use candle_core::{Result, Tensor};

/// Epsilon of the batch norms.
const EPS: f64 = 1e-5;
/// Kernel size of the convolution that replaces the first fully connected layer.
const WINDOW: usize = 7;
/// Kernel size of all other convolutions.
const KERNEL: usize = 3;
/// The sizes of a VGG.
#[derive(Clone, Debug, PartialEq)]
pub struct VggShape {
    /// Side of the square input in pixels.
    pub image_size: usize,
    /// Colour channels of the input.
    pub channels: usize,
    /// Convolutions: index among all modules, channels, true if max pooling follows.
    pub convolutions: Vec<(usize, usize, bool)>,
    /// True if a batch norm follows each convolution.
    pub norms: bool,
    /// Channels inside the head, and of the features.
    pub head: (usize, usize),
    /// Outputs of the classifier; 0 if there is none.
    pub classes: usize,
}

impl VggShape {
    pub(super) fn about(&self) -> About {
        About {
            family: "a VGG",
            depth: self.convolutions.len(),
            width: self.head.1,
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    /// Names and shapes of all weights.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = Vec::new();
        let mut inputs = self.channels;
        for &(i, out, _) in &self.convolutions {
            let kernel = vec![out, inputs, KERNEL, KERNEL];
            all.extend(affine(&format!("features.{i}"), kernel));
            if self.norms {
                all.extend(batch_norm(&format!("features.{}", i + 1), out));
            }
            inputs = out;
        }
        let (hidden, width) = self.head;
        let first = vec![hidden, inputs, WINDOW, WINDOW];
        all.extend(affine("pre_logits.fc1", first));
        all.extend(affine("pre_logits.fc2", vec![width, hidden, 1, 1]));
        if self.classes > 0 {
            all.extend(affine("head.fc", vec![self.classes, width]));
        }
        all
    }
}

/// Recognises a VGG; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> std::result::Result<Option<FrozenNetwork>, ShapeError> {
    let weights = known.weights;
    let found = known.has("features.0.weight") && known.has("pre_logits.fc1.weight");
    if !found {
        return Ok(None);
    }
    let named = ["vgg11", "vgg13", "vgg16", "vgg19"];
    let name = known.name.strip_suffix("_bn").unwrap_or(known.name);
    if !name.is_empty() && !named.contains(&name) {
        let what = "only vgg11, vgg13, vgg16 and vgg19 of its family are supported, with or \
                    without _bn";
        return Err(unsupported(known.name, what, "by its name"));
    }
    usual_arguments(known)?;
    let [_, channels, _, _] = dims(weights, "features.0.weight")?;
    let norms = known.has("features.1.running_mean");
    let step = if norms { 3 } else { 2 };
    let kernel = |i: &usize| -> bool {
        let tensor = weights.get(&format!("features.{i}.weight"));
        tensor.is_some_and(|t| t.rank() == 4)
    };
    let most = weights.len();
    let numbers: Vec<usize> = (0..3 * most).filter(kernel).collect();
    let mut convolutions = Vec::new();
    for (place, i) in numbers.iter().enumerate() {
        let [out, ..] = dims::<4>(weights, &format!("features.{i}.weight"))?;
        let pooled = match numbers.get(place + 1) {
            None => true,
            Some(next) if *next == i + step => false,
            Some(next) if *next == i + step + 1 => true,
            Some(next) => {
                let name = format!("features.{next}.weight");
                return Err(ShapeError::Unexpected { name });
            }
        };
        convolutions.push((*i, out, pooled));
    }
    let [hidden, _, _, _] = dims(weights, "pre_logits.fc1.weight")?;
    let [width, _, _, _] = dims(weights, "pre_logits.fc2.weight")?;
    let classes = known.rows("head.fc")?;
    let shape = VggShape {
        image_size: known.image_size(224),
        channels,
        norms,
        head: (hidden, width),
        classes,
        convolutions,
    };
    check_weights(weights, &shape.parameters())?;
    sizes(&[("channels", channels), ("hidden", hidden), ("width", width)])?;
    agree(known, "num_classes", classes)?;
    agree(known, "in_chans", channels)?;
    let halvings = shape.convolutions.iter().filter(|(.., p)| *p).count();
    if shape.image_size >> halvings.min(32) == 0 {
        return refuse_value(
            "image_size",
            shape.image_size,
            "at least 2 to the power of the number of pooling layers, 32 for registered networks",
        );
    }
    Ok(Some(FrozenNetwork::Vgg(shape)))
}

/// A VGG with its weights.
pub(super) struct Vgg {
    /// Matrices (9 in, out) with biases, and true if max pooling follows.
    convolutions: Vec<(Affine, bool)>,
    /// The linear maps of the head: (49 in, hidden) and (hidden, width).
    head: [Affine; 2],
}

impl Vgg {
    /// The network and its classifier, if there is one.
    pub(super) fn new(shape: &VggShape, weights: &Weights) -> Result<(Vgg, Option<Affine>)> {
        check_weights(weights, &shape.parameters()).map_err(candle_core::Error::wrap)?;
        let map = |name: &str| Affine::map(weights, name);
        let convolution = |&(i, _, pooled): &(usize, usize, bool)| {
            let name = format!("features.{i}");
            if !shape.norms {
                return Ok((map(&name)?, pooled));
            }
            let norm = format!("features.{}", i + 1);
            let folded = fold::into_outputs(weights, &format!("{name}.weight"), &norm, EPS)?;
            let (scale, _) = fold::affine(weights, &norm, EPS)?;
            let bias = fold::get(weights, &format!("{name}.bias"))?;
            let bias = (bias.to_dtype(scale.dtype())? * scale)?.to_dtype(folded.bias.dtype())?;
            let map = Affine {
                bias: (bias + folded.bias)?,
                weight: folded.weight,
            };
            Ok((map.columns()?, pooled))
        };
        let vgg = Vgg {
            convolutions: shape
                .convolutions
                .iter()
                .map(convolution)
                .collect::<Result<_>>()?,
            head: [map("pre_logits.fc1")?, map("pre_logits.fc2")?],
        };
        let classifier = (shape.classes > 0).then(|| map("head.fc"));
        Ok((vgg, classifier.transpose()?))
    }
}

impl Body for Vgg {
    const AT_ONCE: usize = 8;

    fn run(&self, images: &Tensor) -> Result<Tensor> {
        let mut x = images.permute((0, 2, 3, 1))?.contiguous()?; // (b, s, s, channels)
        for (map, pooled) in &self.convolutions {
            let window = Window::padded(x.dim(1)?, KERNEL, 1, 1);
            x = map.convolve(&x, window, Activation::Relu)?;
            if *pooled {
                x = frozen::max_pool(&x, Window::padded(x.dim(1)?, 2, 2, 0))?;
            }
        }
        if x.dim(1)? < WINDOW {
            x = averaged_to(&x, WINDOW)?;
        }
        let window = Window::padded(x.dim(1)?, WINDOW, 1, 0);
        let [first, second] = &self.head;
        let x = first.convolve(&x, window, Activation::Relu)?;
        let x = second.linear(&x, Activation::Relu)?;
        frozen::mean_rows(&x.flatten(1, 2)?)
    }
}

/// Adaptive average pooling to `to` x `to`: output `i` averages pixels from `floor(i s / to)` to
/// `ceil((i + 1) s / to)`.
fn averaged_to(x: &Tensor, to: usize) -> Result<Tensor> {
    let (b, s, _, c) = x.dims4()?;
    let mut shares = vec![0.0_f32; to * s];
    for i in 0..to {
        let (from, end) = (i * s / to, ((i + 1) * s).div_ceil(to));
        for j in from..end {
            shares[i * s + j] = 1.0 / (end - from) as f32;
        }
    }
    let shares = Tensor::from_vec(shares, (1, to, s), x.device())?;
    let rows = shares.broadcast_matmul(&x.reshape((b, s, s * c))?)?; // (b, to, s c)
    let columns = rows.reshape((b * to, s, c))?;
    shares.broadcast_matmul(&columns)?.reshape((b, to, to, c))
}
