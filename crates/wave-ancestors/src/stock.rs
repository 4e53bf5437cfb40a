//! Families whose forward pass is that of candle-transformers: ConvNeXt and V2, RepVGG, MobileNetV4,
//! MobileOne and FastViT.
//!
//! It supports the sizes that timm registers, by name. Its bodies return pooled features; the classifiers on
//! top are ours, so that features equal timm's `forward_head(pre_logits=True)`.
//!
//! A body must use every tensor in the file, so a variant with an additional tensor (a norm, a scale) is
//! never mistaken for the plain network.

use crate::check::{
    batch_norm, check_weights, dims, ignored, misshapen, other_family, refuse_value, stored,
};
use crate::fold::{self, Affine};
use crate::table::{Known, five_halvings, no_name, other_name, other_tensors, usual_arguments};
use crate::{About, Checked, Frozen, FrozenNetwork, ShapeError, Weights};
use candle_core::{D, DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Func, Init, Module, VarBuilder};
use families::{Family, body, networks};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

mod families;

/// Colour channels of the images, in all of these families.
const CHANNELS: usize = 3;
/// Epsilon of a ConvNeXt's layer norms.
const LAYER_NORM_EPS: f64 = 1e-6;
/// Epsilon of batch norms.
const BATCH_NORM_EPS: f64 = 1e-5;
/// Images per forward pass of a body: convolutions unfold their inputs, which takes memory.
const IMAGES: usize = 16;

/// A network of one of these families, and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct StockShape {
    /// timm's name.
    pub name: String,
    family: Family,
    /// Its sizes.
    pub about: About,
    /// Names and shapes of all its weights.
    pub parameters: Vec<(String, Vec<usize>)>,
}

/// The network of one of these families, if the name or the weights belong to one.
pub(super) fn recognise(known: Known) -> Checked<Option<FrozenNetwork>> {
    let name = known.name;
    let of_weights = Family::of_weights(known);
    let named = networks().find(|(n, ..)| n == name);
    let Some(family) = named.as_ref().map(|(_, family, _)| *family).or(of_weights) else {
        return Ok(None);
    };
    match of_weights {
        Some(found) if found == family => {}
        Some(found) => return other_family(name, found.describe()),
        None => return Err(other_tensors(known, family.describe())),
    }
    usual_arguments(known, &[])?;
    let [_, channels, ..] = dims::<4>(known.weights, family.first())?;
    if channels != CHANNELS {
        let expected = format!(
            "{CHANNELS}: {} is supported only for colour images; use a network of another family",
            family.describe()
        );
        return refuse_value("in_chans", channels, expected);
    }
    if let Some(network) = named {
        return shape(known, network).map(|found| Some(FrozenNetwork::Stock(found)));
    }
    if !name.is_empty() {
        return Err(others(name, family));
    }
    if family == Family::MobileNetV4 {
        return Err(no_name("a mobilenetv4_conv_aa or _blur"));
    }
    let mut first = None;
    for network in networks().filter(|(_, f, _)| *f == family) {
        match shape(known, network) {
            Ok(found) => return Ok(Some(FrozenNetwork::Stock(found))),
            Err(error) => _ = first.get_or_insert(error),
        }
    }
    first.map_or(Ok(None), Err)
}

/// Refuses a name that has the prefix of a family here, but is not supported.
pub(crate) fn check_name(name: &str) -> Checked<()> {
    if name.starts_with("convnext_isotropic") || networks().any(|(n, ..)| n == name) {
        return Ok(());
    }
    let family = networks().find(|(_, family, _)| name.starts_with(family.prefix()));
    family.map_or(Ok(()), |(_, family, _)| Err(others(name, family)))
}

/// The error of an unsupported name with the prefix of a family here.
fn others(name: &str, family: Family) -> ShapeError {
    let names = networks().filter(|(_, f, _)| *f == family);
    let names: Vec<String> = names.map(|(name, ..)| name).collect();
    other_name(name, &names)
}

/// The shape of a registered network.
fn shape(known: Known, (name, family, side): (String, Family, usize)) -> Checked<StockShape> {
    let source = Source::new(known.weights);
    let built = Built::new(&name, family, &source);
    let built = built.map_err(|error| ShapeError::Other(error.to_string()))?;
    let parameters: Vec<_> = source.taken().clone().into_iter().collect();
    check_weights(known.weights, &parameters)?;
    let image_size = known.image_size(side);
    five_halvings(image_size)?;
    Ok(StockShape {
        name,
        family,
        about: About {
            family: family.describe(),
            depth: depth(known.weights),
            width: built.width,
            channels: CHANNELS,
            image_size,
            classes: built.classifier.map_or(0, |map| map.bias.elem_count()),
        },
        parameters,
    })
}

/// Number of blocks: `stages.I.blocks.J`, `stages.I.J` or `blocks.I.J`.
fn depth(weights: &Weights) -> usize {
    let block = |name: &String| {
        let name = name.replace(".blocks.", ".");
        let mut parts = name.split('.');
        let of_blocks = ["stages", "blocks"].contains(&parts.next()?);
        let mut number = || parts.next()?.parse::<usize>().ok();
        of_blocks.then_some((number()?, number()?))
    };
    let blocks: BTreeSet<_> = weights.keys().filter_map(block).collect();
    blocks.len()
}

/// Names and shapes of weights.
type Named = BTreeMap<String, Vec<usize>>;

/// The weights that a body reads, and those that it has read.
#[derive(Clone)]
struct Source {
    weights: Weights,
    taken: Arc<Mutex<Named>>,
}

impl Source {
    fn new(weights: &Weights) -> Source {
        let mut weights = weights.clone();
        weights.retain(|name, _| !ignored(name));
        let taken = Arc::default();
        Source { weights, taken }
    }

    fn taken(&self) -> MutexGuard<'_, Named> {
        self.taken.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn device(&self) -> Device {
        let first = self.weights.values().next();
        first.map_or(Device::Cpu, |tensor| tensor.device().clone())
    }

    /// The tensor of this name and shape. A matrix and a 1 x 1 kernel are interchangeable, as timm stores
    /// either within one family.
    fn take(&self, name: &str, dims: &[usize]) -> Result<Tensor> {
        let tensor = stored(&self.weights, name)?;
        let found = tensor.dims();
        let same = |a: &[usize], b: &[usize]| {
            a == b || (a.len() == b.len() + 2 && a[..b.len()] == *b && a[b.len()..] == [1, 1])
        };
        if !same(found, dims) && !same(dims, found) {
            return Err(misshapen(name, tensor, dims).into());
        }
        self.taken().insert(name.into(), found.to_vec());
        tensor.reshape(dims)
    }

    /// The sizes of an existing tensor.
    fn dims(&self, name: &str) -> Result<Vec<usize>> {
        match stored(&self.weights, name)?.dims() {
            [] => Err(ShapeError::Missing(name.into()).into()),
            dims => Ok(dims.to_vec()),
        }
    }
}

impl SimpleBackend for Source {
    fn get(&self, s: Shape, name: &str, _: Init, _: DType, _: &Device) -> Result<Tensor> {
        self.take(name, s.dims())
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        self.take(name, &self.dims(name)?)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.weights.contains_key(name)
    }
}

/// A body, the layer between it and the classifier, and the classifier.
struct Built {
    body: Func<'static>,
    /// The layer before the features, if any: a ConvNeXt's norm, or a MobileNetV4's last convolution and norm.
    before: Option<Affine>,
    /// In the stored layout, (classes, width).
    classifier: Option<Affine>,
    width: usize,
}

impl Built {
    fn new(name: &str, family: Family, source: &Source) -> Result<Built> {
        let vb = VarBuilder::from_backend(Box::new(source.clone()), DType::F32, source.device());
        let body = body(name, family, vb)?;
        let before = match family {
            Family::ConvNext | Family::ConvNextV2 => {
                let dims = source.dims("head.norm.weight")?;
                Some(Affine {
                    weight: source.take("head.norm.weight", &dims)?,
                    bias: source.take("head.norm.bias", &dims)?,
                })
            }
            Family::MobileNetV4 => Some(folded(source, "conv_head", "norm_head")?),
            _ => None,
        };
        let width = source.dims(family.last())?[0];
        let module = match family {
            Family::MobileNetV4 => "classifier",
            _ => "head.fc",
        };
        let classifier = format!("{module}.weight");
        let classifier = match source.weights.contains_key(&classifier) {
            false => None,
            true => {
                let classes = source.dims(&classifier)?[0];
                Some(Affine {
                    weight: source.take(&classifier, &[classes, width])?,
                    bias: source.take(&format!("{module}.bias"), &[classes])?,
                })
            }
        };
        Ok(Built {
            body,
            before,
            classifier,
            width,
        })
    }
}

/// A 1 x 1 convolution with its batch norm folded in, as a linear map (out, in).
fn folded(source: &Source, conv: &str, norm: &str) -> Result<Affine> {
    let weight = format!("{conv}.weight");
    let dims = source.dims(&weight)?;
    let (out, inputs) = (dims[0], dims.get(1).copied().unwrap_or(0));
    let tensor = source.take(&weight, &[out, inputs])?;
    let mut parts = Weights::from([(weight, tensor)]);
    for (name, dims) in batch_norm(norm, out) {
        let tensor = source.take(&name, &dims)?;
        parts.insert(name, tensor);
    }
    fold::into_outputs(&parts, conv, norm, BATCH_NORM_EPS)
}

/// A network of one of these families with its weights.
pub(super) struct Stock {
    about: About,
    family: Family,
    /// Activation after a MobileNetV4's last convolution: GELU in the largest, otherwise ReLU.
    gelu: bool,
    device: Device,
    at_once: usize,
    built: Built,
}

impl Stock {
    pub(super) fn new(shape: &StockShape, weights: &Weights) -> Result<Stock> {
        let (name, family) = (&shape.name, shape.family);
        let attention = "stages.3.blocks.0.token_mixer.qkv.weight";
        let source = Source::new(weights);
        Ok(Stock {
            about: shape.about.clone(),
            family,
            gelu: name == "mobilenetv4_hybrid_large",
            device: source.device(),
            // candle-transformers' FastViT attention mixes up the images of a batch.
            at_once: match family {
                Family::FastVit if weights.contains_key(attention) => 1,
                _ => IMAGES,
            },
            built: Built::new(name, family, &source)?,
        })
    }

    fn some(&self, images: &Tensor) -> Result<Tensor> {
        // candle's batch norms hold variables, so an output would keep the activations of all layers.
        let x = self.built.body.forward(images)?.detach();
        match (self.family, &self.built.before) {
            (Family::FastVit, _) => x.mean(D::Minus1)?.mean(D::Minus1),
            (Family::MobileNetV4, Some(map)) => {
                let x = map.apply(&x.flatten_from(1)?)?;
                if self.gelu { x.gelu_erf() } else { x.relu() }
            }
            (_, Some(norm)) => norm.norm(&x, LAYER_NORM_EPS),
            (_, None) => Ok(x),
        }
    }
}

impl Frozen for Stock {
    fn about(&self) -> About {
        self.about.clone()
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        let images = self.about.checked(images, &self.device)?;
        crate::in_parts(&images, self.at_once, |images| self.some(images))
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        match &self.built.classifier {
            Some(map) => map.apply(&self.features(images)?),
            None => self.about.headless(),
        }
    }
}
