//! Recognition of [`super::DualEncoder`] from transformers' `config.json` and weights.
//!
//! Sizes are inferred from weights; number of heads, activations, epsilons and the end of a text come from
//! the configuration, or from transformers' defaults for missing keys.

use super::names;
use super::{DualEncoder, EndOfText, PROJECTION, TextShape, ZeroShotShape};
use crate::check::{contradiction, count, dims, divides, sizes, unsupported};
use crate::transformer::{
    Between, Mlp, Pooling, Positions, Queries, Relative, Scale, TransformerShape,
};
use crate::{ShapeError, Weights, check_weights};
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
    pub fn read(config: &Value, weights: &Weights) -> Result<DualEncoder, ShapeError> {
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
        let (embedding, head, last) = if clip {
            let [embedding, _] = dims(&weights, PROJECTION)?;
            let projection = (PROJECTION.to_owned(), vec![embedding, vision.width]);
            (embedding, "text_projection.weight", projection)
        } else {
            let bias = ("text_model.head.bias".to_owned(), vec![vision.width]);
            (vision.width, "text_model.head.weight", bias)
        };
        sizes(&[("embedding", embedding)])?;
        expected.push((head.into(), vec![embedding, text.blocks.width]));
        expected.push(last);
        let logit_scale = scalar(&weights, "logit_scale", &mut expected)?;
        let logit_bias = match clip {
            true => None,
            false => Some(scalar(&weights, "logit_bias", &mut expected)?),
        };
        check_weights(&weights, &expected)?;
        of.number("projection_dim")?;
        if clip {
            of.said("projection_dim", embedding)?;
        }
        let mut image_weights = crate::transformers::tower(&weights, VISION)?;
        let mut text_weights = crate::transformers::tower(&weights, TEXT)?;
        if clip {
            image_weights.insert(PROJECTION.into(), weights[PROJECTION].clone());
            text_weights.insert("head.weight".into(), weights[head].clone());
        }
        let images = ZeroShotShape {
            family: if clip { "a CLIP" } else { "a SigLIP" },
            tower: vision,
            embedding,
            projection: clip,
            bias: !clip,
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
fn scalar(weights: &Weights, name: &str, expected: &mut Named) -> Result<f32, ShapeError> {
    let missing = || ShapeError::Missing { name: name.into() };
    let tensor = weights.get(name).ok_or_else(missing)?;
    let misshapen = |_| ShapeError::Misshapen {
        name: name.into(),
        found: tensor.dims().to_vec(),
        expected: vec![1],
    };
    let one = |t: &Tensor| t.reshape(())?.to_scalar::<f32>();
    let value = one(tensor).map_err(misshapen)?;
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
    fn vision(&self) -> Result<(TransformerShape, Named), ShapeError> {
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
        let blocks = self.blocks(VISION, width, VISION_HEADS)?;
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
        let mut all = names::of_tower(VISION, &shape, places, "post_layernorm");
        all.extend(match self.clip {
            true => names::of_clip_images(patches),
            false => names::of_siglip_images(patches, pooling_hidden),
        });
        Ok((shape, all))
    }

    fn text(&self) -> Result<(TextShape, Named), ShapeError> {
        let name = "text_model.embeddings.token_embedding.weight";
        let [vocabulary, width] = dims(self.weights, name)?;
        let table = "text_model.embeddings.position_embedding.weight";
        let [context, _] = dims(self.weights, table)?;
        sizes(&[
            ("vocab_size", vocabulary),
            ("max_position_embeddings", context),
        ])?;
        let blocks = self.blocks(TEXT, width, if self.clip { 8 } else { 12 })?;
        self.said("text_config.vocab_size", vocabulary)?;
        self.said("text_config.max_position_embeddings", context)?;
        let mut all = names::of_tower(TEXT, &blocks, context, "final_layer_norm");
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
    fn end(&self) -> Result<EndOfText, ShapeError> {
        if !self.clip {
            return Ok(EndOfText::Last);
        }
        let path = "text_config.eos_token_id";
        match self.value(path).map_or(Some(CLIP_END), Value::as_u64) {
            Some(LEGACY_END) => Ok(EndOfText::Largest),
            Some(end) if end <= u64::from(u32::MAX) => Ok(EndOfText::Token(end as u32)),
            _ => Err(self.wrong(path, "a token id")),
        }
    }

    /// Blocks of either tower.
    fn blocks(
        &self,
        prefix: &str,
        width: usize,
        usual_heads: usize,
    ) -> Result<TransformerShape, ShapeError> {
        let layer = |l: usize| format!("{prefix}.encoder.layers.{l}.layer_norm1.weight");
        let depth = count(self.weights, layer);
        let fc1 = format!("{prefix}.encoder.layers.0.mlp.fc1.weight");
        let [hidden, _] = dims(self.weights, &fc1)?;
        let key = |[vision, text]: [&'static str; 2]| if prefix == VISION { vision } else { text };
        let heads = key([
            "vision_config.num_attention_heads",
            "text_config.num_attention_heads",
        ]);
        let activation = key(["vision_config.hidden_act", "text_config.hidden_act"]);
        let eps = key(["vision_config.layer_norm_eps", "text_config.layer_norm_eps"]);
        let widths = ["vision_config.hidden_size", "text_config.hidden_size"];
        let hiddens = [
            "vision_config.intermediate_size",
            "text_config.intermediate_size",
        ];
        let depths = [
            "vision_config.num_hidden_layers",
            "text_config.num_hidden_layers",
        ];
        let heads = self.number(heads)?.unwrap_or(usual_heads);
        sizes(&[
            ("hidden_size", width),
            ("num_hidden_layers", depth),
            ("intermediate_size", hidden),
        ])?;
        divides("num_attention_heads", heads, "hidden_size", width)?;
        self.said(key(widths), width)?;
        self.said(key(hiddens), hidden)?;
        self.said(key(depths), depth)?;
        Ok(TransformerShape {
            family: match self.clip {
                true => "the tower of a CLIP",
                false => "the tower of a SigLIP",
            },
            image_size: 0,
            channels: 0,
            patch: 0,
            depth,
            width,
            heads,
            hidden,
            classes: 0,
            norm_eps: self.eps(eps)?,
            class_token: false,
            registers: 0,
            patch_bias: false,
            positions: Positions::All,
            rotary: None,
            relative: Relative::None,
            queries: Queries::Joint,
            qk_norm: false,
            attention_norm: false,
            mlp_norm: false,
            scale: Scale::None,
            mlp: Mlp::Plain,
            between: self.activation(activation)?,
            norm_pre: false,
            norm: true,
            fc_norm: false,
            pooling: Pooling::Token,
            pooling_hidden: 0,
        })
    }

    fn activation(&self, path: &'static str) -> Result<Between, ShapeError> {
        let usual = match self.clip {
            true => "quick_gelu",
            false => "gelu_pytorch_tanh",
        };
        match self.value(path).map_or(Some(usual), Value::as_str) {
            Some("quick_gelu") => Ok(Between::QuickGelu),
            Some("gelu") => Ok(Between::Gelu),
            Some("gelu_pytorch_tanh" | "gelu_new") => Ok(Between::GeluTanh),
            _ => Err(self.wrong(path, "quick_gelu, gelu or gelu_pytorch_tanh")),
        }
    }

    fn eps(&self, path: &'static str) -> Result<f64, ShapeError> {
        let usual = if self.clip { 1e-5 } else { 1e-6 };
        let eps = self.value(path).map_or(Some(usual), Value::as_f64);
        eps.filter(|eps| *eps > 0.0 && *eps < 1.0)
            .ok_or_else(|| self.wrong(path, "a number between 0 and 1"))
    }

    fn name(&self) -> &'static str {
        if self.clip { "clip" } else { "siglip" }
    }

    /// The error of a configuration value that is not among the expected ones.
    fn wrong(&self, path: &'static str, expected: &'static str) -> ShapeError {
        ShapeError::Choice {
            name: path,
            found: self.value(path).map_or(String::new(), Value::to_string),
            expected,
        }
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

    fn number(&self, path: &'static str) -> Result<Option<usize>, ShapeError> {
        match self.value(path) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|n| (1..=1 << 20).contains(n)) {
                Some(n) => Ok(Some(n as usize)),
                None => Err(self.wrong(path, "a whole number of at least 1")),
            },
        }
    }

    /// Checks a size of the weights against the configuration's, if that gives one.
    fn said(&self, path: &'static str, found: usize) -> Result<(), ShapeError> {
        match self.number(path)? {
            Some(said) if said != found => contradiction(path, said, found),
            _ => Ok(()),
        }
    }
}
