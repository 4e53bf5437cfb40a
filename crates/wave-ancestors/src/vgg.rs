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
//! numbers show where max pooling occurs. Freezing folds the batch norms. Activations are channels-last.

use crate::check::{affine, batch_norm, dims, refuse_value, sizes, unsupported};
use crate::fold::{self, Affine};
use crate::frozen::{self, Window};
use crate::table::{Known, usual_arguments};
use crate::{About, Activation, Checked, Family, FrozenNetwork, ShapeError, Weights};
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

impl Family for VggShape {
    const HEAD: &'static str = "head.fc";
    const AT_ONCE: Option<usize> = Some(8);

    fn about(&self) -> About {
        About {
            family: "a VGG",
            depth: self.convolutions.len(),
            width: self.head.1,
            channels: self.channels,
            image_size: self.image_size,
            classes: self.classes,
        }
    }

    fn fuse(&self, weights: &Weights) -> Result<Weights> {
        let mut all = Weights::new();
        for (i, ..) in &self.convolutions {
            let name = format!("features.{i}");
            let norm = format!("features.{}", i + 1);
            let map = match self.norms {
                true => fold::into_outputs(weights, &name, &norm, EPS)?,
                false => Affine::stored(weights, &name)?,
            };
            map.columns()?.store(&mut all, &name);
        }
        for name in ["pre_logits.fc1", "pre_logits.fc2"] {
            Affine::map(weights, name)?.store(&mut all, name);
        }
        if self.classes > 0 {
            Affine::map(weights, "head.fc")?.store(&mut all, "head.fc");
        }
        Ok(all)
    }

    fn forward(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        let map = |name: &str| Affine::stored(weights, name);
        let mut x = images.clone();
        for (i, _, pooled) in &self.convolutions {
            let window = Window::padded(x.dim(1)?, KERNEL, 1, 1);
            x = map(&format!("features.{i}"))?.convolve(&x, window, None, Activation::Relu)?;
            if *pooled {
                x = frozen::max_pool(&x, Window::padded(x.dim(1)?, 2, 2, 0))?;
            }
        }
        if x.dim(1)? < WINDOW {
            x = averaged_to(&x, WINDOW)?;
        }
        let window = Window::padded(x.dim(1)?, WINDOW, 1, 0);
        let x = map("pre_logits.fc1")?.convolve(&x, window, None, Activation::Relu)?;
        let x = map("pre_logits.fc2")?.linear(&x, Activation::Relu)?;
        frozen::mean_rows(&x.flatten(1, 2)?)
    }
}

/// Recognises a VGG; `None` if the weights are not those of one.
pub(super) fn recognise(known: Known) -> Checked<Option<FrozenNetwork>> {
    let weights = known.weights;
    if !known.has("features.0.weight") || !known.has("pre_logits.fc1.weight") {
        return Ok(None);
    }
    let named = ["vgg11", "vgg13", "vgg16", "vgg19"];
    let name = known.name.strip_suffix("_bn").unwrap_or(known.name);
    if !name.is_empty() && !named.contains(&name) {
        let what = "only vgg11, vgg13, vgg16 and vgg19 of its family are supported, with or \
                    without _bn";
        return Err(unsupported(known.name, what, "by its name"));
    }
    usual_arguments(known, &[])?;
    let [_, channels, _, _] = dims(weights, "features.0.weight")?;
    let norms = known.has("features.1.running_mean");
    let step = if norms { 3 } else { 2 };
    let kernel = |i: &usize| -> bool {
        let tensor = weights.get(&format!("features.{i}.weight"));
        tensor.is_some_and(|t| t.rank() == 4)
    };
    let numbers: Vec<usize> = (0..3 * weights.len()).filter(kernel).collect();
    let mut convolutions = Vec::new();
    for (place, i) in numbers.iter().enumerate() {
        let [out, ..] = dims::<4>(weights, &format!("features.{i}.weight"))?;
        let pooled = match numbers.get(place + 1) {
            None => true,
            Some(next) if *next == i + step => false,
            Some(next) if *next == i + step + 1 => true,
            Some(next) => return Err(ShapeError::Unexpected(format!("features.{next}.weight"))),
        };
        convolutions.push((*i, out, pooled));
    }
    let [hidden, _, _, _] = dims(weights, "pre_logits.fc1.weight")?;
    let [width, _, _, _] = dims(weights, "pre_logits.fc2.weight")?;
    let shape = VggShape {
        image_size: known.image_size(224),
        channels,
        norms,
        head: (hidden, width),
        classes: known.rows("head.fc")?,
        convolutions,
    };
    sizes(&[("channels", channels), ("hidden", hidden), ("width", width)])?;
    for (_, out, _) in &shape.convolutions {
        sizes(&[("channels of a convolution", *out)])?;
    }
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
