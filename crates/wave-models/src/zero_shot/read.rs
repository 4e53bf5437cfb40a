//! Recognition of [`super::DualEncoder`] from transformers' `config.json` and weights.
//!
//! Sizes are inferred from weights; number of heads, activations, epsilons and the end of a text come from
//! the configuration, or from transformers' defaults for missing keys.

use super::{DualEncoder, EndOfText, PROJECTION, TextShape, ZeroShotShape};
use crate::check::{
    affine, contradiction, count, dims, divides, misshapen, refuse_value, sizes, stored,
    unsupported,
};
use crate::transformer::{Between, Pooling, TransformerShape};
use crate::{Checked, Weights, check_weights};
use candle_core::Tensor;
use serde_json::{Map, Value};

const VISION: &str = "vision_model";
const TEXT: &str = "text_model";

/// Default number of heads of both image towers.
const VISION_HEADS: usize = 12;
/// Default end-of-text token of a CLIP.
const CLIP_END: u64 = 49407;
/// An `eos_token_id` in the configuration of older CLIPs that is not their actual end token.
const LEGACY_END: u64 = 2;

impl DualEncoder {
    /// True if a `config.json` describes a CLIP or SigLIP, without a classifier.
    pub fn is_one(config: &Value) -> bool {
        let class = config["architectures"][0].as_str().unwrap_or_default();
        matches!(config["model_type"].as_str(), Some("clip" | "siglip"))
            && !class.ends_with("ForImageClassification")
    }

    /// Reads a CLIP or SigLIP from transformers' `config.json` and weights.
    ///
    /// # Errors
    /// If it is neither, has an unsupported part, or weights are missing, misshapen, too many, or contradict
    /// the configuration.
    pub fn read(config: &Value, weights: &Weights) -> Checked<DualEncoder> {
        let clip = match config["model_type"].as_str() {
            Some("clip") => true,
            Some("siglip") => false,
            other => {
                let what = "it is not a CLIP or SigLIP, so it cannot classify by class names";
                let found = "model_type in its config.json";
                return Err(unsupported(other.unwrap_or_default(), what, found));
            }
        };
        let mut weights = crate::transformers::unwrapped(weights);
        weights.retain(|name, _| !name.ends_with(".position_ids")); // they count from 0
        let of = Of {
            config,
            weights: &weights,
            clip,
        };
        let (vision, mut expected) = of.vision()?;
        let (text, of_text) = of.text()?;
        expected.extend(of_text);
        let (embedding, head) = match clip {
            true => (
                dims::<2>(&weights, PROJECTION)?[0],
                "text_projection.weight",
            ),
            false => (vision.width, "text_model.head.weight"),
        };
        sizes(&[("embedding", embedding)])?;
        expected.push((head.into(), vec![embedding, text.blocks.width]));
        expected.push(match clip {
            true => (PROJECTION.into(), vec![embedding, vision.width]),
            false => ("text_model.head.bias".into(), vec![embedding]),
        });
        let logit_scale = scalar(&weights, "logit_scale", &mut expected)?;
        let logit_bias = match clip {
            true => None,
            false => Some(scalar(&weights, "logit_bias", &mut expected)?),
        };
        check_weights(&weights, &expected)?;
        let mut image_weights = crate::transformers::tower(&weights, VISION)?;
        let mut text_weights = crate::transformers::tower(&weights, TEXT)?;
        if clip {
            of.said("projection_dim", embedding)?;
            image_weights.insert(PROJECTION.into(), weights[PROJECTION].clone());
            text_weights.insert("head.weight".into(), weights[head].clone());
        }
        let images = ZeroShotShape {
            clip,
            tower: vision,
            embedding,
            classes: 0,
        };
        Ok(DualEncoder {
            images,
            text,
            logit_scale,
            logit_bias,
            image_weights,
            text_weights,
        })
    }
}

/// A scalar tensor, whose shape is added to the expected ones.
fn scalar(weights: &Weights, name: &str, expected: &mut Named) -> Checked<f32> {
    let tensor = stored(weights, name)?;
    let one = |t: &Tensor| t.reshape(())?.to_scalar::<f32>();
    let value = one(tensor).map_err(|_| misshapen(name, tensor, &[1]))?;
    expected.push((name.into(), tensor.dims().to_vec()));
    Ok(value)
}

type Named = Vec<(String, Vec<usize>)>;

/// The configuration and weights of a CLIP or SigLIP.
struct Of<'a> {
    config: &'a Value,
    weights: &'a Weights,
    clip: bool,
}

impl Of<'_> {
    fn vision(&self) -> Checked<(TransformerShape, Named)> {
        let weights = self.weights;
        let patches = dims::<4>(weights, "vision_model.embeddings.patch_embedding.weight")?;
        let [width, channels, patch, _] = patches;
        let table = "vision_model.embeddings.position_embedding.weight";
        let [places, _] = dims(weights, table)?;
        let prefix = usize::from(self.clip);
        let grid = places.saturating_sub(prefix).isqrt();
        if grid == 0 || grid * grid + prefix != places {
            let what = format!("its {places} positions do not fit a square grid of patches");
            return Err(unsupported(self.name(), &what, &format!("by {table}")));
        }
        if !self.clip && self.value("vision_config.vision_use_head") == Some(&Value::Bool(false)) {
            let found = "vision_use_head in its config.json";
            return Err(unsupported(self.name(), "it has no pooling", found));
        }
        let blocks = self.blocks((VISION, "vision_config"), width, VISION_HEADS)?;
        sizes(&[("channels", channels), ("patch_size", patch)])?;
        let pooling_hidden = match self.clip {
            true => 0,
            false => dims::<2>(weights, "vision_model.head.mlp.fc1.weight")?[0],
        };
        let shape = TransformerShape {
            image_size: grid * patch,
            channels,
            patch,
            class_token: self.clip,
            patch_bias: !self.clip,
            norm_pre: self.clip,
            pooling: match self.clip {
                true => Pooling::Token,
                false => Pooling::Attention,
            },
            pooling_hidden,
            ..blocks
        };
        self.said("vision_config.image_size", shape.image_size)?;
        self.said("vision_config.patch_size", patch)?;
        self.said("vision_config.num_channels", channels)?;
        let mut all = of_tower(VISION, &shape, places, "post_layernorm");
        let name = |part: &str| format!("{VISION}.{part}");
        if self.clip {
            all.push((name("embeddings.class_embedding"), vec![width]));
            all.push((name("embeddings.patch_embedding.weight"), patches.into()));
            all.extend(affine(&name("pre_layrnorm"), vec![width]));
        } else {
            let (d, m) = (width, pooling_hidden);
            all.push((name("head.probe"), vec![1, 1, d]));
            all.push((name("head.attention.in_proj_weight"), vec![3 * d, d]));
            all.push((name("head.attention.in_proj_bias"), vec![3 * d]));
            for (module, dims) in [
                ("embeddings.patch_embedding", patches.into()),
                ("head.attention.out_proj", vec![d, d]),
                ("head.layernorm", vec![d]),
                ("head.mlp.fc1", vec![m, d]),
                ("head.mlp.fc2", vec![d, m]),
            ] {
                all.extend(affine(&name(module), dims));
            }
        }
        Ok((shape, all))
    }

    fn text(&self) -> Checked<(TextShape, Named)> {
        let name = "text_model.embeddings.token_embedding.weight";
        let [vocabulary, width] = dims(self.weights, name)?;
        let table = "text_model.embeddings.position_embedding.weight";
        let [context, _] = dims(self.weights, table)?;
        sizes(&[
            ("vocab_size", vocabulary),
            ("max_position_embeddings", context),
        ])?;
        let heads = if self.clip { 8 } else { 12 };
        let blocks = self.blocks((TEXT, "text_config"), width, heads)?;
        self.said("text_config.vocab_size", vocabulary)?;
        self.said("text_config.max_position_embeddings", context)?;
        let mut all = of_tower(TEXT, &blocks, context, "final_layer_norm");
        all.push((name.into(), vec![vocabulary, width]));
        let text = TextShape {
            blocks,
            vocabulary,
            context,
            end: self.end()?,
        };
        Ok((text, all))
    }

    /// The token whose hidden state represents the whole text.
    fn end(&self) -> Checked<EndOfText> {
        if !self.clip {
            return Ok(EndOfText::Last);
        }
        let path = "text_config.eos_token_id";
        match self.value(path).map_or(Some(CLIP_END), Value::as_u64) {
            Some(LEGACY_END) => Ok(EndOfText::Largest),
            Some(end) if end <= u64::from(u32::MAX) => Ok(EndOfText::Token(end as u32)),
            _ => self.refuse(path, "a token id"),
        }
    }

    /// Blocks of a tower: the module of its weights and its section of the configuration.
    fn blocks(
        &self,
        (module, section): (&str, &str),
        width: usize,
        usual_heads: usize,
    ) -> Checked<TransformerShape> {
        let layer = |l: usize| format!("{module}.encoder.layers.{l}.layer_norm1.weight");
        let depth = count(self.weights, layer);
        let fc1 = format!("{module}.encoder.layers.0.mlp.fc1.weight");
        let [hidden, _] = dims(self.weights, &fc1)?;
        let path = |key: &str| format!("{section}.{key}");
        for (key, found) in [
            ("hidden_size", width),
            ("num_hidden_layers", depth),
            ("intermediate_size", hidden),
        ] {
            sizes(&[(key, found)])?;
            self.said(&path(key), found)?;
        }
        let heads = self.number(&path("num_attention_heads"))?;
        let heads = heads.unwrap_or(usual_heads);
        divides("num_attention_heads", heads, "hidden_size", width)?;
        Ok(TransformerShape {
            family: match self.clip {
                true => "the tower of a CLIP",
                false => "the tower of a SigLIP",
            },
            depth,
            width,
            heads,
            hidden,
            norm_eps: self.eps(&path("layer_norm_eps"))?,
            between: self.activation(&path("hidden_act"))?,
            norm: true,
            ..TransformerShape::default()
        })
    }

    fn activation(&self, path: &str) -> Checked<Between> {
        let usual = match self.clip {
            true => "quick_gelu",
            false => "gelu_pytorch_tanh",
        };
        match self.value(path).map_or(Some(usual), Value::as_str) {
            Some("quick_gelu") => Ok(Between::QuickGelu),
            Some("gelu") => Ok(Between::Gelu),
            Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Between::GeluTanh),
            _ => self.refuse(path, "quick_gelu, gelu or gelu_pytorch_tanh"),
        }
    }

    fn eps(&self, path: &str) -> Checked<f64> {
        let usual = if self.clip { 1e-5 } else { 1e-6 };
        match self.value(path).map_or(Some(usual), Value::as_f64) {
            Some(eps) if eps > 0.0 && eps < 1.0 => Ok(eps),
            _ => self.refuse(path, "a number between 0 and 1"),
        }
    }

    fn name(&self) -> &'static str {
        if self.clip { "clip" } else { "siglip" }
    }

    /// The error of a configuration value that is not among the expected ones.
    fn refuse<T>(&self, path: &str, expected: &str) -> Checked<T> {
        let found = self.value(path).map_or(String::new(), Value::to_string);
        refuse_value(path, found, expected)
    }

    /// A value of the configuration by `section.key`, or `key`; null counts as absent. Like transformers, it
    /// prefers `text_config_dict` of older files to `text_config`, if present.
    fn value(&self, path: &str) -> Option<&Value> {
        let Some((section, key)) = path.split_once('.') else {
            return self.config.get(path).filter(|value| !value.is_null());
        };
        let old = self.config.get(format!("{section}_dict"));
        let section: &Map<String, Value> = old
            .and_then(Value::as_object)
            .or_else(|| self.config.get(section)?.as_object())?;
        section.get(key).filter(|value| !value.is_null())
    }

    fn number(&self, path: &str) -> Checked<Option<usize>> {
        match self.value(path).map(Value::as_u64) {
            None => Ok(None),
            Some(Some(n @ 1..=0x10_0000)) => Ok(Some(n as usize)),
            Some(_) => self.refuse(path, "a whole number of at least 1"),
        }
    }

    /// Checks a size of the weights against the configuration's, if that gives one.
    fn said(&self, path: &str, found: usize) -> Checked<()> {
        match self.number(path)? {
            Some(said) if said != found => contradiction(path, said, found),
            _ => Ok(()),
        }
    }
}

/// Names and shapes of the tensors that both towers have, in `module`, with `places` positions and the norm `last`.
fn of_tower(module: &str, shape: &TransformerShape, places: usize, last: &str) -> Named {
    let (d, h) = (shape.width, shape.hidden);
    let positions = format!("{module}.embeddings.position_embedding.weight");
    let mut all = vec![(positions, vec![places, d])];
    all.extend(affine(&format!("{module}.{last}"), vec![d]));
    for l in 0..shape.depth {
        for (part, dims) in [
            ("layer_norm1", vec![d]),
            ("layer_norm2", vec![d]),
            ("self_attn.q_proj", vec![d, d]),
            ("self_attn.k_proj", vec![d, d]),
            ("self_attn.v_proj", vec![d, d]),
            ("self_attn.out_proj", vec![d, d]),
            ("mlp.fc1", vec![h, d]),
            ("mlp.fc2", vec![d, h]),
        ] {
            all.extend(affine(&format!("{module}.encoder.layers.{l}.{part}"), dims));
        }
    }
    all
}
