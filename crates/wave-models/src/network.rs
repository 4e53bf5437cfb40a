//! One type for all networks.

use crate::check::{contradiction, other_family, unsupported};
use crate::convmixer::{self, ConvMixerShape};
use crate::convnext::{self, ConvNextShape};
use crate::efficientnet::EfficientNetShape;
use crate::heads::{self, known_heads};
use crate::levit::{self, LevitShape};
use crate::transformer::{self, Transformer, TransformerShape};
use crate::unsupported;
use crate::vit::{self, VitShape};
use crate::zero_shot::{ZeroShot, ZeroShotShape};
use crate::{About, Activation, Checked, Dilations, Frozen, FrozenNetwork, ShapeError, Weights};
use candle_core::{Result, Tensor};
use serde_json::{Map, Value, json};
use wave_ancestors::table::{Known, mean_pooling, refuse_arguments};

/// Default input size, used if neither weights nor configuration give one: ImageNet's 224.
const IMAGE_SIZE: usize = 224;

const VIT: &str = "a vision transformer";
const CONVMIXER: &str = "a ConvMixer";
const CONVNEXT: &str = "a ConvNeXt";
const LEVIT: &str = "a LeViT";
const EFFICIENTNET: &str = "an EfficientNet-Lite";

/// Families, the first tensor that identifies each, and the prefixes of their names, timm's or wave's own.
const FAMILIES: [(&str, &str, &[&str]); 6] = [
    (VIT, "patch_embed.proj.weight", &["vit_", "deit"]),
    (CONVNEXT, "stages.0.blocks.0.conv_dw.weight", &["convnext_"]),
    (CONVMIXER, "stem.0.weight", &["convmixer_"]),
    (CONVNEXT, "blocks.0.conv_dw.weight", &["convnext_"]),
    (LEVIT, "stem.conv1.linear.weight", &["levit_"]),
    (
        EFFICIENTNET,
        "conv_stem.weight",
        &["efficientnet_", "tf_efficientnet_"],
    ),
];

/// Input sizes of the EfficientNets that timm registers, if not the default.
const EFFICIENTNET_SIZES: [(&str, usize); 4] = [
    ("lite1", 240),
    ("lite2", 260),
    ("lite3", 280),
    ("lite4", 300),
];

/// A network and its sizes.
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    /// A vision transformer, DeiT included.
    Vit(VitShape),
    /// A ConvMixer.
    ConvMixer(ConvMixerShape),
    /// A ConvNeXt, isotropic or of four stages.
    ConvNext(ConvNextShape),
    /// A vision transformer with parts that DeiT lacks; some variants are inference-only.
    Transformer(TransformerShape),
    /// A network of an inference-only family.
    Frozen(FrozenNetwork),
    /// A CLIP or SigLIP whose classes are texts; inference-only ([`crate::DualEncoder::classifier`]).
    ZeroShot(ZeroShotShape),
}

impl Network {
    /// Identifies the network by its weights, under timm's names ([`crate::import`] converts others).
    ///
    /// `architecture` is timm's name (`levit_384`, with or without a tag after a dot), or empty if unknown.
    /// `model_args` come from timm's `config.json`, or are a whole `config.json` of transformers.
    /// `image_size` is the side of the input (`pretrained_cfg.input_size`), used where the weights do not
    /// show it: for ConvMixer, ConvNeXt and EfficientNet. Without it, the size implied by the name is used.
    ///
    /// Not everything can be inferred from weights. The arguments or the name give a transformer's number of
    /// heads ([`known_heads`]; otherwise heads have width 64), the epsilon of its layer norms, the
    /// activation, a ConvMixer's `dilation` (one number, or a list with one per layer), and the origin of an
    /// EfficientNet (TensorFlow if it has no name).
    ///
    /// # Errors
    /// If the weights belong to no known network, or to another than `architecture`, are incomplete, are not
    /// `f32`, or contradict `model_args`.
    pub fn recognise(
        architecture: &str,
        model_args: &Map<String, Value>,
        image_size: Option<usize>,
        weights: &Weights,
    ) -> Checked<Network> {
        let name = architecture.split('.').next().unwrap_or_default();
        unsupported::check(name, model_args, weights)?;
        let known = Known {
            name,
            args: model_args,
            image_size,
            weights,
        };
        // timm registers ConvNeXts by name; one described by its sizes is trainable.
        if model_args.contains_key("dims") && ConvNextShape::has_stages(weights) {
            unsupported::check_stages(name, model_args, weights)?;
        } else {
            wave_ancestors::check_name(name)?;
            if let Some(found) = wave_ancestors::recognise(known)? {
                return Ok(Network::Frozen(found));
            }
        }
        if known.has("patch_embed.proj.weight") {
            for key in ["num_heads", "num_attention_heads"] {
                heads::check(key, model_args.get(key))?;
            }
        }
        if let Some(found) = unsupported::variant(name, model_args, weights) {
            return transformer::recognise(known, &found).map(Network::Transformer);
        }
        let of_weights = FAMILIES.iter().find(|(_, first, _)| known.has(first));
        let Some((family, ..)) = of_weights.copied() else {
            let first = weights.keys().next().map_or("(none)", String::as_str);
            let found = format!("tensor {first}");
            let module = first.split('.').next().unwrap_or_default();
            let in_module = |name: &String| name.starts_with(&format!("{module}."));
            let what = match weights.len() > 1 && weights.keys().all(in_module) {
                true => &format!(
                    "all tensor names start with `{module}.`; save the weights without this prefix"
                ),
                false => "it is none of the supported networks under timm's names",
            };
            return Err(unsupported(name, what, &found));
        };
        let starts = |of: &[&str]| of.iter().any(|start| name.starts_with(start));
        let named = FAMILIES.iter().find(|(.., of)| starts(of));
        if named.is_some_and(|(said, ..)| *said != family) {
            return other_family(architecture, family);
        }
        // MNASNet and others have the tensors of an EfficientNet-Lite, and another activation.
        if family == EFFICIENTNET && !name.is_empty() && !name.contains("efficientnet_lite") {
            let what = "it is none of the supported networks";
            return Err(unsupported(name, what, "by its name"));
        }
        let image_size = image_size.or(known.size("img_size"));
        let head = match family {
            LEVIT => Some("head.linear.weight"),
            EFFICIENTNET => Some("classifier.weight"),
            CONVNEXT if known.has("stages.0.blocks.0.conv_dw.weight") => Some("head.fc.weight"),
            _ => None,
        };
        if let Some(head) = head.filter(|head| !known.has(head)) {
            let what = format!("it is {family} without its classifier, which is all that it gives");
            return Err(unsupported(name, &what, &format!("no tensor {head}")));
        }
        let network = match family {
            VIT => {
                activation(model_args, Activation::Gelu)?.among(&[Activation::Gelu], "gelu")?;
                let mut shape = VitShape::infer(weights, known_heads(architecture, model_args))?;
                shape.norm_eps = known.norm_eps()?.unwrap_or(shape.norm_eps);
                Network::Vit(shape)
            }
            CONVMIXER => {
                let registered = match name {
                    "convmixer_768_32" => Activation::Relu,
                    _ => Activation::Gelu,
                };
                let size = image_size.unwrap_or(IMAGE_SIZE);
                let activation = activation(model_args, registered)?;
                let mut shape = ConvMixerShape::infer(weights, size, activation)?;
                if let Some(dilation) = known.argument("dilation") {
                    shape.dilations = Dilations::from_json(dilation, shape.depth)?;
                    shape.validate()?;
                }
                Network::ConvMixer(shape)
            }
            CONVNEXT => {
                activation(model_args, Activation::Gelu)?.among(&[Activation::Gelu], "gelu")?;
                let size = image_size.unwrap_or(IMAGE_SIZE);
                Network::ConvNext(ConvNextShape::infer(weights, size)?)
            }
            LEVIT => {
                let silu = ["_s8", "_512", "_256d"].iter().any(|v| name.contains(v));
                let registered = match silu {
                    true => Activation::Silu,
                    false => Activation::HardSwish,
                };
                let shape = LevitShape::infer(weights, activation(model_args, registered)?)?;
                Network::Frozen(FrozenNetwork::Levit(shape))
            }
            _ => {
                activation(model_args, Activation::Relu6)?.among(&[Activation::Relu6], "relu6")?;
                let mut sizes = EFFICIENTNET_SIZES.iter();
                let usual = sizes.find(|(part, _)| name.contains(part));
                let size = image_size.unwrap_or(usual.map_or(IMAGE_SIZE, |(_, side)| *side));
                let tensorflow = name.is_empty() || name.starts_with("tf_");
                let is_null = |key: &&&str| model_args.get(**key) == Some(&Value::Null);
                let replaced = ["bn_eps", "pad_type"].iter().find(is_null);
                if let Some(key) = replaced.filter(|_| name.starts_with("tf_")) {
                    let what =
                        format!("{key} is null, which replaces the value that its name implies");
                    return Err(unsupported(name, &what, "model_args of its config.json"));
                }
                let shape = EfficientNetShape::infer(weights, size, tensorflow)?;
                Network::Frozen(FrozenNetwork::EfficientNet(shape))
            }
        };
        agree(known, &network)?;
        Ok(network)
    }

    /// Its family and sizes; the width is that of a token, even if the features have more channels.
    fn about(&self) -> About {
        macro_rules! trained {
            ($family:ident, $shape:ident, $width:expr) => {
                About {
                    family: $family,
                    depth: $shape.depth,
                    width: $width,
                    channels: $shape.channels,
                    image_size: $shape.image_size,
                    classes: $shape.classes,
                }
            };
        }
        match self {
            Network::Vit(shape) => trained!(VIT, shape, shape.width),
            Network::ConvMixer(shape) => trained!(CONVMIXER, shape, shape.width),
            Network::ConvNext(shape) => trained!(CONVNEXT, shape, shape.last_width()),
            Network::Transformer(shape) => About {
                width: shape.width,
                ..shape.about()
            },
            Network::Frozen(network) => network.about(),
            Network::ZeroShot(shape) => shape.about(),
        }
    }

    /// The name of the family, for messages.
    pub fn family(&self) -> &'static str {
        self.about().family
    }

    /// Refuses networks that give class scores alone, without [`Frozen::features`].
    pub fn check_features(&self) -> Checked<()> {
        match self {
            Network::ConvMixer(_) | Network::ConvNext(_) => Err(self.no_features()),
            _ => Ok(()),
        }
    }

    fn no_features(&self) -> ShapeError {
        let family = self.family();
        let text = format!("{family} gives class scores but no features; use another network");
        ShapeError::Other(text)
    }

    /// Multiply-adds of a forward pass on one image, for trainable networks.
    pub fn multiply_adds(&self) -> Option<usize> {
        match self {
            Network::Vit(shape) => Some(shape.multiply_adds()),
            Network::ConvMixer(shape) => Some(shape.multiply_adds()),
            Network::ConvNext(shape) => Some(shape.multiply_adds()),
            _ => None,
        }
    }

    /// Features beyond the plainest network of its family.
    pub fn parts(&self) -> Vec<String> {
        match self {
            Network::Transformer(shape) => shape.parts(),
            Network::ZeroShot(shape) => shape.tower.parts(),
            _ => Vec::new(),
        }
    }

    /// True if gradients flow through [`Network::logits`]; other networks only run through [`Network::freeze`].
    pub fn trainable(&self) -> bool {
        match self {
            Network::Transformer(shape) => shape.trains(),
            Network::Frozen(_) | Network::ZeroShot(_) => false,
            _ => true,
        }
    }

    /// Outputs of the classifier; 0 if there is none.
    pub fn classes(&self) -> usize {
        self.about().classes
    }

    /// Channels and side of the square input images.
    pub fn input(&self) -> (usize, usize) {
        let about = self.about();
        (about.channels, about.image_size)
    }

    /// Number of blocks, and channels of the features.
    pub fn size(&self) -> (usize, usize) {
        let about = self.about();
        (about.depth, about.width)
    }

    /// Names and shapes of all weights under timm's names, running statistics included.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        match self {
            Network::Vit(shape) => shape.parameters(),
            Network::ConvMixer(shape) => shape.parameters(),
            Network::ConvNext(shape) => shape.parameters(),
            Network::Transformer(shape) => shape.parameters(),
            Network::Frozen(network) => network.parameters(),
            Network::ZeroShot(shape) => shape.parameters(),
        }
    }

    /// Converts timm's weights to the form that [`Network::logits`] takes: a transformer's layers are stacked.
    pub fn prepare(&self, weights: &Weights) -> Result<Weights> {
        match self {
            Network::Vit(shape) => vit::stack(weights, shape.depth),
            Network::Transformer(shape) => vit::stack(weights, shape.depth),
            _ => Ok(weights.clone()),
        }
    }

    /// Logits (b, classes) of images (b, channels, h, w) in evaluation mode, for a trainable network;
    /// `weights` come from [`Network::prepare`].
    ///
    /// # Errors
    /// If a weight is missing, sizes contradict the network, or it is inference-only.
    pub fn logits(&self, weights: &Weights, images: &Tensor) -> Result<Tensor> {
        match self {
            Network::Vit(shape) => vit::logits(shape, weights, images, None),
            Network::ConvMixer(shape) => convmixer::logits(shape, weights, images),
            Network::ConvNext(shape) => convnext::logits(shape, weights, images),
            Network::Transformer(shape) => {
                transformer::logits_in(wave_ops::Precision::F32, shape, weights, images, None)
            }
            Network::Frozen(_) | Network::ZeroShot(_) => {
                let family = self.family();
                candle_core::bail!(
                    "{family} is inference-only: it gives no gradients for its weights"
                )
            }
        }
    }

    /// The network with its weights, under timm's names, for inference without gradients. Every network that
    /// is not trained runs this way.
    pub fn freeze(&self, weights: &Weights) -> Result<Box<dyn Frozen>> {
        match self {
            Network::Transformer(shape) => Ok(Box::new(Transformer::new(shape, weights)?)),
            Network::Frozen(network) => network.freeze(weights),
            Network::ZeroShot(shape) => Ok(Box::new(ZeroShot::new(shape, weights)?)),
            trained => Ok(Box::new(Prepared {
                weights: trained.prepare(weights)?,
                network: trained.clone(),
            })),
        }
    }
}

/// A trainable network with its weights, for inference.
struct Prepared {
    network: Network,
    weights: Weights,
}

impl Frozen for Prepared {
    fn about(&self) -> About {
        self.network.about()
    }

    fn features(&self, images: &Tensor) -> Result<Tensor> {
        match &self.network {
            Network::Vit(shape) => vit::features(shape, &self.weights, images),
            other => Err(other.no_features().into()),
        }
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        self.network.logits(&self.weights, images)
    }

    fn prepared(&self) -> Option<&Weights> {
        Some(&self.weights)
    }
}

/// The named activation, or the usual one.
fn activation(args: &Map<String, Value>, usual: Activation) -> Checked<Activation> {
    let text = |key: &str| args.get(key).and_then(Value::as_str);
    let named = text("act_layer").or_else(|| text("hidden_act"));
    named.map_or(Ok(usual), Activation::from_timm)
}

/// True if this MLP ratio gives as many hidden channels as the weights have, rounded as the network rounds.
fn same_hidden(network: &Network, mlp_ratio: f64) -> bool {
    match network {
        Network::Vit(s) => VitShape { mlp_ratio, ..*s }.hidden() == s.hidden(),
        Network::ConvNext(s) => ConvNextShape { mlp_ratio, ..*s }.hidden() == s.hidden(),
        _ => false,
    }
}

/// Refuses a configuration that contradicts the weights.
fn agree(known: Known, network: &Network) -> Checked<()> {
    let per_stage = |of: &dyn Fn(&levit::LevitStage) -> usize, shape: &LevitShape| -> Value {
        shape.stages.iter().map(of).collect::<Vec<_>>().into()
    };
    let mut facts = match network {
        Network::Vit(s) => json!({
            "embed_dim": s.width,
            "hidden_size": s.width,
            "depth": s.depth,
            "num_hidden_layers": s.depth,
            "intermediate_size": s.hidden(),
            "mlp_ratio": s.mlp_ratio,
            "patch_size": s.patch,
            "num_channels": s.channels,
            "img_size": s.image_size,
            "image_size": s.image_size,
            "class_token": s.class_token,
            "global_pool": if s.class_token { "token" } else { "avg" },
        }),
        Network::ConvMixer(s) => json!({
            "dim": s.width,
            "depth": s.depth,
            "kernel_size": s.kernel,
            "patch_size": s.patch,
        }),
        Network::ConvNext(s) => json!({
            "dims": s.widths(),
            "depths": s.stages,
            "kernel_sizes": s.kernel,
            "dim": s.width,
            "depth": s.depth,
            "kernel_size": s.kernel,
            "mlp_ratio": s.mlp_ratio,
            "patch_size": s.patch,
        }),
        Network::Frozen(FrozenNetwork::Levit(s)) => json!({
            "embed_dim": per_stage(&|s| s.width, s),
            "depth": per_stage(&|s| s.depth, s),
            "num_heads": per_stage(&|s| s.heads, s),
            "key_dim": s.key,
            "img_size": s.image_size,
        }),
        Network::Frozen(FrozenNetwork::EfficientNet(s)) => json!({
            "stem_size": s.stem,
            "num_features": s.features,
        }),
        // These were already checked during recognition.
        Network::Transformer(_) | Network::Frozen(_) | Network::ZeroShot(_) => return Ok(()),
    };
    let about = network.about();
    facts["in_chans"] = about.channels.into();
    facts["num_classes"] = about.classes.into();
    for (key, found) in facts.as_object().into_iter().flatten() {
        let Some(said) = known.argument(key) else {
            continue;
        };
        let agrees = match (said.as_f64(), found.as_f64()) {
            (Some(said), Some(found)) => {
                (said - found).abs() < 1e-3 || key == "mlp_ratio" && same_hidden(network, said)
            }
            (None, Some(_)) => known.size(key).map(|s| json!(s)).as_ref() == Some(found),
            _ => said == found,
        };
        if !agrees {
            return contradiction(key, said, found);
        }
    }
    match network {
        // A plain vision transformer is checked above; its arguments may be a whole `config.json` of transformers.
        Network::Vit(_) => Ok(()),
        _ => others(known, &facts),
    }
}

/// Refuses other arguments of a network than `facts` and those that the weights show, unless they are timm's defaults.
fn others(known: Known, facts: &Value) -> Checked<()> {
    const READ: &str = "act_layer attn_ratio conv_bias conv_mlp dilation down_ops global_pool img_size \
                        ls_init_value mlp_ratio use_conv use_grn";
    let tensorflow = known.name.starts_with("tf_");
    let padding = if tensorflow { "same" } else { "" };
    let defaults = json!({
        "down_op": "subsample", "output_stride": 32, "pad_type": padding, "stem_type": "patch",
    });
    let facts = facts.as_object().into_iter().flat_map(Map::keys);
    let is_usual = |(key, value): &(&String, &Value)| defaults[key.as_str()] == **value;
    let usual = known.args.iter().filter(is_usual).map(|(key, _)| key);
    let keys = facts.chain(usual).map(String::as_str);
    let read: Vec<&str> = keys.chain(READ.split(' ')).collect();
    refuse_arguments(known, &read)?;
    mean_pooling(known)
}

#[cfg(test)]
#[path = "network_tests.rs"]
mod tests;
