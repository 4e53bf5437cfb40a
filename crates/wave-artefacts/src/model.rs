//! Reading and writing model directories.

use crate::layout::{Format, Layout};
use crate::origin;
use crate::preprocessing;
use crate::towers;
use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};
use std::path::Path;
use wave_data::Transform;
use wave_hub::{CardFront, Kind, ModelConfig, PretrainedCfg, Source};
pub use wave_models::Network;
use wave_models::transformer::{Pooling, Positions, Scale};
use wave_models::vit::{LAYER_NORM_EPS, VitShape, mlp_ratio};
use wave_models::{Activation, Weights, convmixer, refuse, transformers};
use wave_run::context::Context;
use wave_run::error::{Error, request};
use wave_run::locate;
use wave_run::progress;

/// A model as stored in a directory.
#[derive(Clone, Debug)]
pub struct Model {
    /// Network and sizes.
    pub network: Network,
    /// Weights under timm's names.
    pub weights: Weights,
    /// Preprocessing of images.
    pub transform: Transform,
    /// Names of the classes.
    pub label_names: Vec<String>,
    /// Provenance.
    pub provenance: Value,
}

impl Model {
    /// Reads a model directory (timm's or transformers' layout, local or `hf:OWNER/NAME[@REV]`), or a
    /// safetensors file, whose architecture is inferred from its tensor names; `model.safetensors` beside a
    /// `config.json` stands for their directory. If a transformer's number of heads is not given anywhere, it is
    /// assumed, with a warning on stderr.
    ///
    /// # Errors
    /// If there is no model, its files do not fit together, or its network is not supported.
    pub fn read(path: &Path, context: &Context) -> Result<Model, Error> {
        Ok(Model::read_with_heads(path, None, context)?)
    }

    /// [`Model::read`] for a transformer with this number of heads, if its description gives none.
    ///
    /// # Errors
    /// Also if the description gives another number, or the model is not a transformer.
    pub fn read_with_heads(path: &Path, heads: Option<usize>, context: &Context) -> Result<Model> {
        let path = &*locate::locate(path, context)?;
        let path = wave_hub::model_directory(path);
        if path.is_file() {
            return Model::from_parts(path, None, wave_hub::read_weights(path)?, heads);
        }
        towers::refuse_open_clip(path)?;
        let model = match wave_hub::directory_kind(path)? {
            Kind::Transformers => Model::from_transformers(path, heads)?,
            _ => {
                let (config, weights) = wave_hub::read_model(path)?;
                Model::from_parts(path, Some(config), weights, heads)?
            }
        };
        wave_hub::check_digests(path)?;
        Ok(model)
    }

    fn from_transformers(dir: &Path, heads: Option<usize>) -> Result<Model> {
        towers::refuse_nameless(dir)?;
        let (config, weights) = wave_hub::read_transformers(dir)?;
        let transformers::InTimm {
            name,
            mut args,
            weights,
        } = transformers::in_timm(&config, &weights).with_context(|| dir.display().to_string())?;
        if matches!(config["model_type"].as_str(), Some("vit" | "deit")) {
            // transformers' default, for a file that omits it.
            args.entry("layer_norm_eps").or_insert(json!(1e-12));
        }
        let size = wave_hub::read_preprocessing(dir)?.size;
        let side = match size.source {
            Source::File(_) => Some(size.value[0]),
            _ => usize::try_from(config["image_size"].as_u64().unwrap_or(0)).ok(),
        };
        let side = side.filter(|side| *side > 0);
        let network = recognise(dir, (&name, &mut args), side, &weights, heads)?;
        let (_, transform) = preprocessing::read(dir, network.input())?;
        let label = |i: usize| {
            let named = config["id2label"][i.to_string()].as_str();
            named.map_or_else(|| i.to_string(), String::from)
        };
        Ok(Model {
            label_names: (0..network.classes()).map(label).collect(),
            network,
            weights,
            transform,
            provenance: config["wave"].clone(),
        })
    }

    fn from_parts(
        path: &Path,
        config: Option<ModelConfig>,
        weights: Weights,
        heads: Option<usize>,
    ) -> Result<Model> {
        let weights = wave_models::import(&weights).with_context(|| path.display().to_string())?;
        if let Some([_, height, width]) = config.as_ref().map(|c| c.pretrained_cfg.input_size)
            && height != width
        {
            refuse!(
                "{}: input_size in config.json is {height} x {width} pixels; expected a square",
                path.display()
            );
        }
        let image_size = config.as_ref().map(|c| c.pretrained_cfg.input_size[1]);
        let mut config = config.unwrap_or_default();
        if let Some(eps) = config.layer_norm_eps {
            let args = &mut config.model_args;
            args.insert("layer_norm_eps".into(), json!(eps));
        }
        let description = (&config.architecture[..], &mut config.model_args);
        let network = recognise(path, description, image_size, &weights, heads)?;
        if config.num_classes != 0 && config.num_classes != network.classes() {
            refuse!(
                "{}: config.json says {} classes, the weights have {}; correct the file \
                 that is wrong",
                path.display(),
                config.num_classes,
                network.classes()
            );
        }
        let (network, weights) = preprocessing::resized(path, &config, network, weights)?;
        let (_, transform) = preprocessing::read(path, network.input())?;
        let classes = network.classes();
        let numbers = || (0..classes).map(|i| i.to_string()).collect();
        Ok(Model {
            network,
            weights,
            transform,
            label_names: config.label_names.unwrap_or_else(numbers),
            provenance: config.wave.unwrap_or(Value::Null),
        })
    }

    /// The model's `config.json`, in timm's terms; a network for inference only has none.
    pub fn config(&self) -> Result<ModelConfig> {
        let t = &self.transform;
        let of_vit = ("patch_embed.proj", "head");
        let (architecture, (first_conv, classifier), args) = match &self.network {
            Network::Vit(s) => {
                let args = json!({
                    "img_size": s.image_size,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                    "embed_dim": s.width,
                    "depth": s.depth,
                    "num_heads": s.heads,
                    "mlp_ratio": s.mlp_ratio,
                    "class_token": s.class_token,
                    "global_pool": if s.class_token { "token" } else { "avg" },
                });
                let architecture = match s.distilled {
                    true => "deit_tiny_distilled_patch16_224",
                    false => "vit_tiny_patch16_224",
                };
                (architecture, of_vit, args)
            }
            Network::ConvMixer(s) => {
                let mut args = json!({
                    "dim": s.width,
                    "depth": s.depth,
                    "kernel_size": s.kernel,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                });
                if let Some(dilation) = s.dilations.to_json() {
                    args["dilation"] = dilation;
                }
                // timm encodes the activation in the name only.
                let architecture = match s.activation {
                    Activation::Relu => "convmixer_768_32",
                    _ => "convmixer_1536_20",
                };
                (architecture, ("stem.0", "head"), args)
            }
            Network::ConvNext(s) if s.stages.is_some() => {
                let args = json!({
                    "depths": s.stages,
                    "dims": s.widths(),
                    "kernel_sizes": s.kernel,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                });
                ("convnext_tiny", ("stem.0", "head.fc"), args)
            }
            Network::ConvNext(s) => {
                let args = json!({
                    "dim": s.width,
                    "depth": s.depth,
                    "kernel_size": s.kernel,
                    "mlp_ratio": s.mlp_ratio,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                });
                ("convnext_isotropic", ("stem", "head"), args)
            }
            Network::Transformer(s) if s.trains() => {
                let args = json!({
                    "img_size": s.image_size,
                    "patch_size": s.patch,
                    "in_chans": s.channels,
                    "embed_dim": s.width,
                    "depth": s.depth,
                    "num_heads": s.heads,
                    "mlp_ratio": mlp_ratio(s.width, s.hidden),
                    "class_token": s.class_token,
                    "global_pool": if s.pooling == Pooling::Token { "token" } else { "avg" },
                    "init_values": (s.scale != Scale::None).then_some(1e-5),
                    "reg_tokens": s.registers,
                    "no_embed_class": s.positions == Positions::Patches,
                    "pre_norm": s.norm_pre,
                    "fc_norm": s.fc_norm,
                });
                ("vit_tiny_patch16_224", of_vit, args)
            }
            only_runs => {
                refuse!(
                    "{} is inference-only and cannot be written",
                    only_runs.family()
                );
            }
        };
        Ok(ModelConfig {
            architecture: architecture.into(),
            num_classes: self.network.classes(),
            num_features: self.network.size().1,
            global_pool: args["global_pool"].as_str().unwrap_or("avg").into(),
            model_args: args.as_object().cloned().unwrap_or_default(),
            pretrained_cfg: PretrainedCfg {
                tag: "wave".into(),
                input_size: [t.channels, t.image_size, t.image_size],
                // timm passes a fixed size on to the network, and convolutional networks take none.
                fixed_input_size: of_vit == (first_conv, classifier),
                interpolation: t.interpolation.to_string(),
                crop_pct: decimal(t.crop_pct),
                crop_mode: t.crop_mode.to_string(),
                mean: t.mean.iter().map(|v| decimal(*v)).collect(),
                std: t.std.iter().map(|v| decimal(*v)).collect(),
                num_classes: self.network.classes(),
                first_conv: Some(first_conv.into()),
                classifier: Some(classifier.into()),
                ..PretrainedCfg::default()
            },
            label_names: Some(self.label_names.clone()).filter(|names| !names.is_empty()),
            crop_offset: unusual(&t.crop_offset),
            layer_norm_eps: match &self.network {
                Network::Vit(s) if s.norm_eps != LAYER_NORM_EPS => Some(s.norm_eps),
                _ => None,
            },
            wave: (!self.provenance.is_null()).then(|| self.provenance.clone()),
        })
    }

    /// SHA-256 of the weights file of a model directory, or of a safetensors file.
    pub fn digest(path: &Path) -> Result<String> {
        Ok(match path.is_file() {
            true => wave_hub::sha256_file(path)?,
            false => wave_hub::sha256_file(&path.join("model.safetensors"))?,
        })
    }

    /// Writes the model directory in a layout that fits the network ([`Layout::of`]); `scalers` belong to an expanded
    /// model. Fails if a value is out of the range of the element type.
    pub fn write(
        &self,
        dir: &Path,
        layout: Layout,
        scalers: Option<&Weights>,
        summary: &str,
    ) -> Result<()> {
        let config = self.config()?;
        let Layout { format, float } = layout;
        if format != Format::Transformers {
            let onnx = format == Format::Onnx;
            if !onnx {
                preprocessing::note_for_timm(&config);
            }
            let card = self.card(&config, format, false, summary);
            wave_hub::write_model(dir, &config, &self.weights, scalers, &card, float, onnx)?;
            return Ok(());
        }
        let Network::Vit(shape) = &self.network else {
            refuse!(
                "only vision transformers are written in this layout, not {}",
                self.network.family()
            );
        };
        let processor = preprocessing::processor(&config)?;
        let by_timm = processor.get("pretrained_cfg").is_some();
        let card = self.card(&config, format, by_timm, summary);
        let labels = Some(&self.label_names[..]).filter(|names| !names.is_empty());
        let (weights, mut config) = transformers::export(shape, &self.weights, labels)?;
        if !self.provenance.is_null() {
            config["wave"] = self.provenance.clone();
        }
        let steps = Some(&processor);
        wave_hub::write_transformers(dir, &config, steps, &weights, scalers, &card, float)?;
        Ok(())
    }

    /// The number of values in all weights.
    pub fn parameters(&self) -> usize {
        let trained = |name: &str| !convmixer::is_running_statistic(name);
        let weights = self.weights.iter().filter(|(name, _)| trained(name));
        weights.map(|(_, t)| t.elem_count()).sum()
    }

    /// The card; `by_timm` if transformers lets timm prepare the images.
    fn card(&self, config: &ModelConfig, format: Format, by_timm: bool, summary: &str) -> String {
        let library = match format {
            Format::Timm | Format::Onnx => "timm",
            Format::Transformers => "transformers",
        };
        let task = task(self.network.classes());
        let onnx = (format == Format::Onnx).then_some("onnx");
        let tags = [task, library, "wave"].into_iter().chain(onnx);
        let front = CardFront {
            tags: tags.map(str::to_owned).collect(),
            library_name: Some(library.into()),
            pipeline_tag: Some(task.into()),
            ..CardFront::default()
        };
        let (depth, width) = self.network.size();
        let (t, classes) = (&self.transform, self.network.classes());
        let named = !self.label_names.is_empty();
        let in_timm = || wave_hub::card_timm("local-dir:DIR", t.channels, classes, named);
        let mut loading = match (format, &self.network) {
            (Format::Transformers, _) => wave_hub::card_transformers(t.channels),
            (_, Network::Vit(_) | Network::Transformer(_)) => in_timm(),
            (_, Network::ConvNext(shape)) if shape.stages.is_some() => in_timm(),
            // timm registers ConvMixers of fixed sizes only, and no isotropic ConvNeXts: users load these
            // weights by hand.
            _ => String::new(),
        };
        if by_timm {
            loading += BY_TIMM;
        }
        if format == Format::Onnx {
            loading += FROM_ONNX;
        }
        let kind = without_article(self.network.family());
        let (first, rest) = kind.split_at(kind.chars().next().map_or(0, char::len_utf8));
        let layers = if depth == 1 { "layer" } else { "layers" };
        let title = format!(
            "{}{rest}, {depth} {layers} of width {width}",
            first.to_uppercase()
        );
        let work = self.network.multiply_adds();
        let mut body = format!(
            "| parameters | multiply-adds | input | classes |\n|---|---|---|---|\n| {} | {} | {} x {s} x {s} | {classes} |\n",
            self.parameters(),
            work.map_or(String::new(), wave_hub::millions),
            t.channels,
            s = t.image_size,
        );
        if from_templates(&self.provenance) {
            body = format!("{}\n{body}", wave_hub::PAPER);
        }
        if classes > 0 {
            body += "\n## Limits\n\nEvery image is assigned one of the classes, even if it shows \
                     none of them.\n";
        }
        body += &wave_hub::card_interface(&self.label_names, classes, &config.into());
        if !loading.is_empty() {
            body += &format!("\n## From an image to a class\n{loading}");
        }
        body += &format!("\n## Made by\n\n{summary}\n");
        origin::card(front, &self.provenance, &title, &body)
    }
}

/// Refuses a network without a classifier, where logits are needed.
pub fn check_classifier(network: &Network) -> Result<()> {
    if network.classes() > 0 {
        return Ok(());
    }
    refuse!(
        "{} without a classifier gives no class scores; use a model with one, or, if it can be \
         trained, add one with `wave finetune --new-head true`",
        network.family()
    )
}

/// The network of this name and arguments, with the user's number of `heads` if given. Warns if the number is a guess.
fn recognise(
    path: &Path,
    (name, args): (&str, &mut Map<String, Value>),
    side: Option<usize>,
    weights: &Weights,
    heads: Option<usize>,
) -> Result<Network> {
    if let Some(heads) = heads {
        match wave_models::known_heads(name, args) {
            Some(known) if known != heads => {
                refuse!(
                    "--heads {heads}: the model's config.json says {known}; drop --heads, or \
                     correct the file"
                );
            }
            _ => _ = args.insert("num_heads".into(), json!(heads)),
        }
    }
    let network = Network::recognise(name, args, side, weights)
        .map_err(|error| {
            let patches = uneven(args).filter(|_| weights.contains_key("pos_embed"));
            patches.map_or_else(|| error.into(), request)
        })
        .with_context(|| path.display().to_string())?;
    match (&network, heads) {
        (Network::Vit(shape), _) if wave_models::known_heads(name, args).is_none() => {
            progress::note(&format!(
                "wave: warning: {}: the number of attention heads is unknown; assuming {} of width \
                 {}. If this is wrong, so are the outputs: give --heads N (predict, eval), or \
                 model_args.num_heads in a config.json beside model.safetensors",
                path.display(),
                shape.heads,
                shape.head_width()
            ));
        }
        (Network::Vit(_) | Network::Transformer(_), _) | (_, None) => {}
        (other, Some(heads)) => {
            refuse!(
                "--heads {heads}: {} is {}, whose weights determine the heads; drop --heads",
                path.display(),
                other.family()
            );
        }
    }
    Ok(network)
}

/// The refusal of timm's arguments for images that are not a whole number of patches.
fn uneven(args: &Map<String, Value>) -> Option<String> {
    let side = |key: &str| {
        let value = args.get(key)?;
        value.get(0).unwrap_or(value).as_u64()
    };
    let (image, patch) = (side("img_size")?, side("patch_size")?);
    (image.checked_rem(patch)? > 0).then(|| {
        format!(
            "patch_size {patch} does not divide img_size {image}; timm drops the remainder, which \
             is not supported: use a model whose patches fill the image"
        )
    })
}

/// True if a model, or one that it started from, was made from templates.
fn from_templates(provenance: &Value) -> bool {
    !provenance["templates_sha256"].is_null()
        || (provenance["start"].is_object() && from_templates(&provenance["start"]))
}

const BY_TIMM: &str = "
timm prepares the images; it must be installed alongside transformers.
";

const FROM_ONNX: &str = "
```python
import onnxruntime
session = onnxruntime.InferenceSession(\"DIR/model.onnx\")
(logits,) = session.run(None, {\"images\": images})  # normalised, any batch size
```
";

/// The size of a transformer, its input and its options, in words.
pub fn shape_in_words(shape: &VitShape) -> String {
    let token = match (shape.class_token, shape.distilled) {
        (_, true) => ", class and distillation tokens",
        (true, false) => ", class token",
        (false, false) => "",
    };
    format!(
        "{} layers, width {}, {} heads, MLP ratio {}, {} x {} pixels, patch size {}, {} classes{token}",
        shape.depth,
        shape.width,
        shape.heads,
        shape.mlp_ratio,
        shape.image_size,
        shape.image_size,
        shape.patch,
        shape.classes,
    )
}

/// A family name without its article.
pub fn without_article(family: &str) -> &str {
    let short = family.strip_prefix("an ").or(family.strip_prefix("a "));
    short.unwrap_or(family)
}

/// The hub's task name for a network with this number of classes.
pub fn task(classes: usize) -> &'static str {
    match classes {
        0 => "image-feature-extraction",
        _ => "image-classification",
    }
}

/// A value as text, if it is not the default.
pub fn unusual<T: Default + PartialEq + ToString>(value: &T) -> Option<String> {
    (*value != T::default()).then(|| value.to_string())
}

/// The shortest decimal of this `f32`, so that 0.286 is not written 0.2860000133514404.
pub fn decimal(v: f32) -> f64 {
    v.to_string().parse().unwrap_or(f64::from(v))
}
