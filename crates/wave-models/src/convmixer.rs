//! ConvMixer (Trockman and Kolter 2022, "Patches Are All You Need?"): depthwise and pointwise
//! convolutions over patches, with timm's weight names.
//!
//! ```text
//! z_0  = BN(gelu(Conv_{c -> h}(X)))     kernel = stride = patch
//! z'   = BN(gelu(DWConv_k(z))) + z      for each block
//! z+   = BN(gelu(Conv_1x1(z')))
//! out  = head(mean over pixels of z)
//! ```
//!
//! Activations are channels-last, (b, rows, columns, width). Letters in shape comments: `b` images,
//! `c` channels, `p` patch, `g` patches along a side, `h` width, `k` kernel.

use candle_core::{Device, Result, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wave_ops::{batch_norm_eval, depthwise_conv, gelu, gelu_batch_norm_train, linear};

/// Added to variances, as PyTorch and timm do by default.
const EPS: f64 = 1e-5;

/// Share of the newest batch in the running statistics, as in PyTorch.
const MOMENTUM: f64 = 0.1;

/// The sizes of a ConvMixer. All are at least 1; see [`ConvMixerShape::validate`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConvMixerShape {
    /// Height and width of the square images, in pixels. What exceeds a whole number of patches
    /// is cropped at the bottom and the right.
    pub image_size: usize,
    /// Channels of the images.
    pub channels: usize,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// Number of blocks.
    pub depth: usize,
    /// Channels of the activations.
    pub width: usize,
    /// Side of the depthwise kernels, in patches. Even sizes pad more at the end.
    pub kernel: usize,
    /// Number of classes.
    pub classes: usize,
}

/// Why a [`ConvMixerShape`] is not one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConvMixerShapeError {
    /// A size is zero.
    #[error("convmixer: {name} is 0; it must be at least 1")]
    Zero {
        /// The field of [`ConvMixerShape`].
        name: &'static str,
    },
    /// Not even one patch fits.
    #[error(
        "convmixer: images of {image_size} pixels hold no patch of {patch}; \
         use a patch of at most {image_size}"
    )]
    PatchTooLarge {
        /// Side of the images.
        image_size: usize,
        /// Side of a patch.
        patch: usize,
    },
    /// The number of weights overflows.
    #[error("convmixer: the sizes {0:?} are too large; reduce the width, patch or kernel")]
    TooLarge(ConvMixerShape),
}

impl ConvMixerShape {
    /// Checks that a network of this shape exists.
    ///
    /// # Errors
    /// When a size is zero or absurdly large, or a patch is larger than the images.
    pub fn validate(&self) -> std::result::Result<(), ConvMixerShapeError> {
        let sizes = [
            ("image_size", self.image_size),
            ("channels", self.channels),
            ("patch", self.patch),
            ("depth", self.depth),
            ("width", self.width),
            ("kernel", self.kernel),
            ("classes", self.classes),
        ];
        if let Some((name, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return Err(ConvMixerShapeError::Zero { name });
        }
        if self.patch > self.image_size {
            let (image_size, patch) = (self.image_size, self.patch);
            return Err(ConvMixerShapeError::PatchTooLarge { image_size, patch });
        }
        let product = |sizes: &[usize]| {
            sizes
                .iter()
                .try_fold(1_u32, |n, s| n.checked_mul(u32::try_from(*s).ok()?))
        };
        let (h, k) = (self.width, self.kernel);
        let largest: [&[usize]; 5] = [
            &[h, self.channels, self.patch, self.patch],
            &[h, k, k, self.depth],
            &[h, h, self.depth],
            &[h, self.classes],
            &[self.image_size, self.image_size, self.channels],
        ];
        if largest.iter().any(|sizes| product(sizes).is_none()) {
            return Err(ConvMixerShapeError::TooLarge(self.clone()));
        }
        Ok(())
    }

    /// Name and shape of every weight, in timm's order. Those that [`is_running_statistic`] names
    /// are not trained.
    ///
    /// Without them there are `h (d (k^2 + h + 6) + c p^2 + classes + 3) + classes` values.
    /// timm's `num_batches_tracked` counters are neither listed nor needed, and ignored when
    /// present.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let (h, k, p) = (self.width, self.kernel, self.patch);
        let mut out = Vec::new();
        let convolution = |out: &mut Vec<_>, name: &str, shape: Vec<usize>| {
            out.push((format!("{name}.weight"), shape));
            out.push((format!("{name}.bias"), vec![h]));
        };
        let norm = |out: &mut Vec<_>, name: &str| {
            for part in ["weight", "bias", "running_mean", "running_var"] {
                out.push((format!("{name}.{part}"), vec![h]));
            }
        };
        convolution(&mut out, "stem.0", vec![h, self.channels, p, p]);
        norm(&mut out, "stem.2");
        for i in 0..self.depth {
            convolution(&mut out, &format!("blocks.{i}.0.fn.0"), vec![h, 1, k, k]);
            norm(&mut out, &format!("blocks.{i}.0.fn.2"));
            convolution(&mut out, &format!("blocks.{i}.1"), vec![h, h, 1, 1]);
            norm(&mut out, &format!("blocks.{i}.3"));
        }
        out.push(("head.weight".into(), vec![self.classes, h]));
        out.push(("head.bias".into(), vec![self.classes]));
        out
    }

    /// Weights as PyTorch draws them: convolutions and the head, weight and bias alike, uniform
    /// within `1 / sqrt(fan_in)` of zero; norms the identity, with running mean 0 and variance 1.
    /// The same seed gives the same weights.
    ///
    /// # Errors
    /// When the shape is not valid.
    pub fn initialise(&self, seed: u64) -> Result<BTreeMap<String, Tensor>> {
        self.validate().map_err(candle_core::Error::wrap)?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut bound = 0.0; // of the layer at hand: its weight comes before its bias
        let mut weights = BTreeMap::new();
        for (name, shape) in self.parameters() {
            let n = shape.iter().product();
            let values: Vec<f32> = if is_norm(&name) {
                let one = name.ends_with(".weight") || name.ends_with(".running_var");
                vec![if one { 1.0 } else { 0.0 }; n]
            } else {
                if name.ends_with(".weight") {
                    let fan_in: usize = shape[1..].iter().product();
                    bound = 1.0 / (fan_in as f32).sqrt();
                }
                (0..n).map(|_| rng.random_range(-bound..bound)).collect()
            };
            weights.insert(name, Tensor::from_vec(values, shape, &Device::Cpu)?);
        }
        Ok(weights)
    }
}

/// Whether `name` is a running statistic of a batch norm: kept by [`logits_train`], not trained.
pub fn is_running_statistic(name: &str) -> bool {
    [".running_mean", ".running_var", ".num_batches_tracked"]
        .iter()
        .any(|e| name.ends_with(e))
}

/// Whether `name` belongs to a batch norm: `stem.2`, `blocks.{i}.0.fn.2` or `blocks.{i}.3`.
fn is_norm(name: &str) -> bool {
    let layer = name.rsplit_once('.').map_or(name, |(layer, _)| layer);
    layer == "stem.2" || layer.ends_with(".fn.2") || layer.ends_with(".3")
}

/// Class scores in evaluation mode: norms use their running statistics.
///
/// # Shapes
/// `images` (b, channels, height, width) gives (b, classes).
///
/// # Errors
/// When the shape is not valid, a weight is missing, or a size disagrees with the shape.
pub fn logits(
    shape: &ConvMixerShape,
    weights: &BTreeMap<String, Tensor>,
    images: &Tensor,
) -> Result<Tensor> {
    let weights = Weights(weights);
    forward(shape, weights, images, |x, name| {
        let [w, b, mean, var] = weights.norm(name, shape.width)?;
        batch_norm_eval(&gelu(x)?, w, b, mean, var, EPS)
    })
}

/// Class scores in training mode, and the new running statistics by name: norms use the batch's
/// statistics, and gradients flow through them. The running ones move a tenth of the way towards
/// the batch's (variance: unbiased); they carry no gradient.
///
/// # Shapes
/// `images` (b, channels, height, width) gives (b, classes).
///
/// # Errors
/// As [`logits`]; also when the batch gives a single value per channel, which has no variance.
pub fn logits_train(
    shape: &ConvMixerShape,
    weights: &BTreeMap<String, Tensor>,
    images: &Tensor,
) -> Result<(Tensor, BTreeMap<String, Tensor>)> {
    let weights = Weights(weights);
    let mut running = BTreeMap::new();
    let logits = forward(shape, weights, images, |x, name| {
        let [w, b, old_mean, old_var] = weights.norm(name, shape.width)?;
        let n = x.elem_count() / shape.width;
        if n < 2 {
            candle_core::bail!(
                "{name}: training needs at least 2 values per channel, found {n}; \
                 use a larger batch or smaller patches"
            );
        }
        let (y, mean, var) = gelu_batch_norm_train(x, w, b, EPS)?;
        let unbiased = n as f64 / (n - 1) as f64;
        for (part, old, new) in [
            ("mean", old_mean, mean),
            ("var", old_var, (var * unbiased)?),
        ] {
            let moved = ((old.detach() * (1.0 - MOMENTUM))? + (new * MOMENTUM)?)?;
            running.insert(format!("{name}.running_{part}"), moved);
        }
        Ok(y)
    })?;
    Ok((logits, running))
}

/// The network; `norm(x, name)` is the batch norm `name` of `gelu(x)`.
fn forward(
    shape: &ConvMixerShape,
    weights: Weights,
    images: &Tensor,
    mut norm: impl FnMut(&Tensor, &str) -> Result<Tensor>,
) -> Result<Tensor> {
    shape.validate().map_err(candle_core::Error::wrap)?;
    let (h, k, p) = (shape.width, shape.kernel, shape.patch);
    let patches = patches(shape, images)?; // (b, g, g, c p p)
    let w = weights.get("stem.0.weight", &[h, shape.channels, p, p])?;
    let w = w.reshape((h, shape.channels * p * p))?;
    let mut z = linear(&patches, &w, weights.get("stem.0.bias", &[h])?)?; // (b, g, g, h)
    z = norm(&z, "stem.2")?;
    for i in 0..shape.depth {
        let name = format!("blocks.{i}.0.fn.0");
        let w = weights
            .get(&format!("{name}.weight"), &[h, 1, k, k])?
            .reshape((h, k, k))?;
        let spatial = depthwise_conv(&z, &w, weights.get(&format!("{name}.bias"), &[h])?)?;
        z = (norm(&spatial, &format!("blocks.{i}.0.fn.2"))? + z)?;
        let name = format!("blocks.{i}.1");
        let w = weights
            .get(&format!("{name}.weight"), &[h, h, 1, 1])?
            .reshape((h, h))?;
        z = linear(&z, &w, weights.get(&format!("{name}.bias"), &[h])?)?;
        z = norm(&z, &format!("blocks.{i}.3"))?;
    }
    let pooled = mean_over_pixels(&z)?; // (b, h)
    let (w, b) = ("head.weight", "head.bias");
    linear(
        &pooled,
        weights.get(w, &[shape.classes, h])?,
        weights.get(b, &[shape.classes])?,
    )
}

/// The mean of `z` (b, g, g, h) over its pixels, (b, h): as a matrix product, which is many times
/// faster on the CPU than a reduction over a middle dimension.
fn mean_over_pixels(z: &Tensor) -> Result<Tensor> {
    let z = z.flatten(1, 2)?; // (b, n, h)
    let (b, n, _) = z.dims3()?;
    let share = Tensor::full(1.0 / n as f64, (b, 1, n), z.device())?.to_dtype(z.dtype())?;
    share.matmul(&z)?.squeeze(1)
}

/// Whole patches of `images` (b, c, height, width) as (b, g, g, c p p), each in the order of a
/// convolution's weight.
fn patches(shape: &ConvMixerShape, images: &Tensor) -> Result<Tensor> {
    let (size, c, p) = (shape.image_size, shape.channels, shape.patch);
    let (b, found_c, height, width) = images.dims4()?;
    if (found_c, height, width) != (c, size, size) {
        candle_core::bail!(
            "convmixer: images of shape {:?}, expected (b, {c}, {size}, {size}); resize them",
            images.dims()
        );
    }
    let g = size / p;
    images
        .narrow(2, 0, g * p)?
        .narrow(3, 0, g * p)?
        .contiguous()?
        .reshape((b, c, g, p, g, p))?
        .permute((0, 2, 4, 1, 3, 5))? // (b, g, g, c, p, p)
        .contiguous()?
        .reshape((b, g, g, c * p * p))
}

/// Checked access to a weight map.
#[derive(Clone, Copy)]
struct Weights<'a>(&'a BTreeMap<String, Tensor>);

impl<'a> Weights<'a> {
    fn get(self, name: &str, dims: &[usize]) -> Result<&'a Tensor> {
        match self.0.get(name) {
            Some(t) if t.dims() == dims => Ok(t),
            Some(t) => candle_core::bail!(
                "convmixer: weight {name} has shape {:?}, expected {dims:?}; \
                 check that the shape is that of these weights",
                t.dims()
            ),
            None => candle_core::bail!(
                "convmixer: weight {name} of shape {dims:?} is missing; \
                 check the depth and that the names are timm's"
            ),
        }
    }

    /// Weight, bias, running mean and running variance of a batch norm.
    fn norm(self, name: &str, width: usize) -> Result<[&'a Tensor; 4]> {
        let get = |part: &str| self.get(&format!("{name}.{part}"), &[width]);
        Ok([
            get("weight")?,
            get("bias")?,
            get("running_mean")?,
            get("running_var")?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{D, DType, Var};
    use proptest::prelude::*;

    const TOLERANCE: f32 = 1e-5;

    fn small() -> ConvMixerShape {
        ConvMixerShape {
            image_size: 9,
            channels: 2,
            patch: 2,
            depth: 4,
            width: 10,
            kernel: 3,
            classes: 4,
        }
    }

    /// Reproducible images in [-1, 1], (b, channels, size, size).
    fn images(shape: &ConvMixerShape, b: usize) -> Tensor {
        let dims = (b, shape.channels, shape.image_size, shape.image_size);
        let n = b * shape.channels * shape.image_size * shape.image_size;
        let values: Vec<f32> = (0..n)
            .map(|i| (i as f32 * 1.7 + (i as f32).sqrt()).sin())
            .collect();
        Tensor::from_vec(values, dims, &Device::Cpu).unwrap()
    }

    /// The mean over images of `log sum exp(logits) - logits[label]`.
    fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
        let normaliser = logits.exp().unwrap().sum(D::Minus1).unwrap().log().unwrap();
        let chosen = logits
            .gather(&labels.unsqueeze(1).unwrap(), 1)
            .unwrap()
            .squeeze(1)
            .unwrap();
        (normaliser - chosen).unwrap().mean_all().unwrap()
    }

    /// The weights, each trained one a variable.
    fn variables(weights: &BTreeMap<String, Tensor>) -> BTreeMap<String, Var> {
        let trained = weights
            .iter()
            .filter(|(name, _)| !is_running_statistic(name));
        trained
            .map(|(name, w)| (name.clone(), Var::from_tensor(w).unwrap()))
            .collect()
    }

    fn with_variables(
        weights: &BTreeMap<String, Tensor>,
        variables: &BTreeMap<String, Var>,
    ) -> BTreeMap<String, Tensor> {
        let mut weights = weights.clone();
        weights.extend(
            variables
                .iter()
                .map(|(name, v)| (name.clone(), v.as_tensor().clone())),
        );
        weights
    }

    fn values(t: &Tensor) -> Vec<f32> {
        t.flatten_all().unwrap().to_vec1().unwrap()
    }

    fn assert_close(name: &str, got: &Tensor, want: &Tensor) {
        assert_eq!(got.dims(), want.dims(), "{name}");
        for (got, want) in values(got).iter().zip(values(want)) {
            assert!((got - want).abs() < TOLERANCE, "{name}: {got}, want {want}");
        }
    }

    fn check_against_timm(case: &str, shape: &ConvMixerShape) {
        // Written by tests/fixtures/make_convmixer.py.
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/convmixer.safetensors"
        );
        let fixture: BTreeMap<String, Tensor> = candle_core::safetensors::load(path, &Device::Cpu)
            .unwrap()
            .into_iter()
            .filter_map(|(name, t)| Some((name.strip_prefix(case)?[1..].to_owned(), t)))
            .collect();
        let part = |prefix: &str| -> BTreeMap<String, &Tensor> {
            let named = |(name, t): (&String, _)| Some((name.strip_prefix(prefix)?.to_owned(), t));
            fixture.iter().filter_map(named).collect()
        };
        let weights: BTreeMap<String, Tensor> = part("weights.")
            .into_iter()
            .map(|(name, t)| (name, t.clone()))
            .collect();
        let images = &fixture["images"];

        assert_close(
            "eval",
            &logits(shape, &weights, images).unwrap(),
            &fixture["logits_eval"],
        );

        let variables = variables(&weights);
        let weights = with_variables(&weights, &variables);
        let (out, running) = logits_train(shape, &weights, images).unwrap();
        assert_close("train", &out, &fixture["logits_train"]);
        let updated = part("updated.");
        assert!(updated.keys().eq(running.keys()));
        for (name, want) in updated {
            assert_close(&name, &running[&name], want);
        }
        let grads = cross_entropy(&out, &fixture["labels"]).backward().unwrap();
        let gradients = part("gradients.");
        assert!(gradients.keys().eq(variables.keys()));
        for (name, want) in gradients {
            assert_close(&name, grads.get(&variables[&name]).unwrap(), want);
        }
    }

    #[test]
    fn agrees_with_timm() {
        let shape = ConvMixerShape {
            image_size: 14,
            channels: 1,
            patch: 2,
            depth: 2,
            width: 24,
            kernel: 5,
            classes: 5,
        };
        check_against_timm("odd", &shape);
    }

    #[test]
    fn agrees_with_timm_for_even_kernels_and_cropped_images() {
        let shape = ConvMixerShape {
            image_size: 15,
            channels: 1,
            patch: 2,
            depth: 1,
            width: 20,
            kernel: 4,
            classes: 5,
        };
        check_against_timm("even", &shape);
    }

    #[test]
    fn parameter_count_is_the_papers() {
        let mut shape = ConvMixerShape {
            image_size: 32,
            channels: 3,
            patch: 1,
            depth: 8,
            width: 256,
            kernel: 8,
            classes: 10,
        };
        let count = |shape: &ConvMixerShape| -> usize {
            let trained = shape
                .parameters()
                .into_iter()
                .filter(|p| !is_running_statistic(&p.0));
            trained
                .map(|(_, dims)| dims.iter().product::<usize>())
                .sum()
        };
        assert_eq!(count(&shape), 671_754);
        // ConvMixer-1536/20 for ImageNet.
        (shape.patch, shape.depth, shape.width) = (7, 20, 1536);
        (shape.kernel, shape.classes) = (9, 1000);
        assert_eq!(count(&shape), 51_625_960);
    }

    #[test]
    fn initialises_as_pytorch_does() {
        let shape = small();
        let weights = shape.initialise(3).unwrap();
        let listed: BTreeMap<_, _> = shape.parameters().into_iter().collect();
        assert!(
            listed
                .iter()
                .map(|(n, d)| (n, &d[..]))
                .eq(weights.iter().map(|(n, w)| (n, w.dims())))
        );
        let extent = |name: &str| {
            values(&weights[name])
                .iter()
                .fold(0f32, |m, v| m.max(v.abs()))
        };
        for (layer, fan_in) in [
            ("stem.0", 8.0),
            ("blocks.3.0.fn.0", 9.0),
            ("blocks.3.1", 10.0),
        ] {
            let bound = 1.0 / f32::sqrt(fan_in);
            for part in ["weight", "bias"] {
                let extent = extent(&format!("{layer}.{part}"));
                assert!(
                    extent <= bound && extent > bound / 2.0,
                    "{layer}.{part}: {extent}"
                );
            }
        }
        for norm in ["stem.2", "blocks.0.0.fn.2", "blocks.3.3"] {
            for (part, want) in [
                ("weight", 1.0),
                ("bias", 0.0),
                ("running_mean", 0.0),
                ("running_var", 1.0),
            ] {
                assert!(
                    values(&weights[&format!("{norm}.{part}")])
                        .iter()
                        .all(|v| *v == want)
                );
            }
        }
        let again = shape.initialise(3).unwrap();
        assert!(
            weights
                .iter()
                .all(|(name, w)| values(w) == values(&again[name]))
        );
        let other = shape.initialise(4).unwrap();
        assert_ne!(
            values(&weights["head.weight"]),
            values(&other["head.weight"])
        );
    }

    #[test]
    fn every_trained_weight_has_a_gradient() {
        let shape = small();
        let weights = shape.initialise(0).unwrap();
        let variables = variables(&weights);
        let weights = with_variables(&weights, &variables);
        let labels = Tensor::new(&[0u32, 3, 1], &Device::Cpu).unwrap();
        let images = images(&shape, 3);
        let train = logits_train(&shape, &weights, &images).unwrap().0;
        let eval = logits(&shape, &weights, &images).unwrap();
        for out in [train, eval] {
            let grads = cross_entropy(&out, &labels).backward().unwrap();
            for (name, v) in &variables {
                let g = grads
                    .get(v)
                    .unwrap_or_else(|| panic!("{name} has no gradient"));
                assert!(
                    values(g).iter().any(|g| g.abs() > 1e-7),
                    "{name} has a zero gradient"
                );
            }
        }
    }

    #[test]
    fn repeats_bit_for_bit() {
        let shape = small();
        let weights = shape.initialise(0).unwrap();
        let images = images(&shape, 5);
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(2)
            .build()
            .unwrap();
        let once = || {
            let variables = variables(&weights);
            let weights = with_variables(&weights, &variables);
            let (out, running) = logits_train(&shape, &weights, &images).unwrap();
            let grads = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let grads = variables.values().map(|v| values(grads.get(v).unwrap()));
            running
                .values()
                .map(values)
                .chain(grads)
                .collect::<Vec<_>>()
        };
        assert_eq!(pool.install(once), pool.install(once));
    }

    #[test]
    fn running_statistics_settle_where_eval_equals_train() {
        let shape = small();
        let mut weights = shape.initialise(1).unwrap();
        let images = images(&shape, 40);
        let mut train = None;
        for _ in 0..150 {
            let (out, running) = logits_train(&shape, &weights, &images).unwrap();
            weights.extend(running);
            train = Some(out);
        }
        let eval = logits(&shape, &weights, &images).unwrap();
        // Not exactly: the running variance is the unbiased one.
        for (a, b) in values(&eval).iter().zip(values(&train.unwrap())) {
            assert!((a - b).abs() < 0.02, "{a} and {b}");
        }
    }

    #[test]
    fn wrong_requests_say_what_is_wrong() {
        let shape = small();
        let weights = shape.initialise(0).unwrap();
        let images = images(&shape, 1);
        let message = |r: Result<Tensor>| r.unwrap_err().to_string();

        let zero = ConvMixerShape {
            kernel: 0,
            ..small()
        };
        assert_eq!(
            zero.validate(),
            Err(ConvMixerShapeError::Zero { name: "kernel" })
        );
        let large = ConvMixerShape {
            patch: 10,
            ..small()
        };
        assert!(
            large
                .validate()
                .unwrap_err()
                .to_string()
                .contains("patch of at most 9")
        );
        let huge = ConvMixerShape {
            width: usize::MAX,
            ..small()
        };
        assert!(matches!(
            huge.validate(),
            Err(ConvMixerShapeError::TooLarge(_))
        ));
        assert!(huge.initialise(0).is_err());

        let turned = images
            .flatten(2, 3)
            .unwrap()
            .reshape((1, 2, 27, 3))
            .unwrap();
        assert!(message(logits(&shape, &weights, &turned)).contains("expected (b, 2, 9, 9)"));
        let deeper = ConvMixerShape {
            depth: 5,
            ..small()
        };
        assert!(message(logits(&deeper, &weights, &images)).contains("blocks.4.0.fn.0.weight"));
        let wider = ConvMixerShape {
            width: 12,
            ..small()
        };
        assert!(message(logits(&wider, &weights, &images)).contains("[12, 2, 2, 2]"));

        let single = ConvMixerShape {
            patch: 9,
            ..small()
        };
        let weights = single.initialise(0).unwrap();
        let one = logits_train(&single, &weights, &images).map(|out| out.0);
        assert!(message(one).contains("larger batch"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn any_shape_gives_finite_logits(
            image_size in 2usize..13, channels in 1usize..4, patch in 1usize..5, depth in 1usize..4,
            width in 1usize..20, kernel in 1usize..6, classes in 1usize..6,
        ) {
            let patch = patch.min(image_size);
            let shape =
                ConvMixerShape { image_size, channels, patch, depth, width, kernel, classes };
            let mut weights = shape.initialise(7).unwrap();
            // Counters that timm writes are ignored.
            let counter = Tensor::zeros((), DType::I64, &Device::Cpu).unwrap();
            weights.insert("stem.2.num_batches_tracked".into(), counter);
            let images = images(&shape, 3);
            let eval = logits(&shape, &weights, &images).unwrap();
            let (train, _) = logits_train(&shape, &weights, &images).unwrap();
            for out in [eval, train] {
                prop_assert_eq!(out.dims(), &[3, classes]);
                prop_assert!(values(&out).iter().all(|v| v.is_finite()));
            }
        }
    }
}
