//! CLIP and SigLIP: two towers that embed images and texts in one space, so that text prompts classify images
//! without labelled training data.
//!
//! ```text
//! u   = v / |v|,      v   = P f(image)           f the image tower, P CLIP's projection
//! c_k = m_k / |m_k|,  m_k = mean over prompts of t / |t|,  t = Q g(prompt of class k)
//! z_k = exp(s) u . c_k + b                       s the logit scale, b SigLIP's bias
//! ```
//!
//! [`DualEncoder`] is the pair as stored by transformers; [`TextTower`] is `Q g`. With the embeddings `c` of
//! its classes, the pair becomes an inference-only [`Network`] with a classifier ([`DualEncoder::classifier`]).
//!
//! The image tower is [`crate::transformer`]'s, and the text tower has the same blocks. candle-transformers'
//! CLIP has one activation, `x sigmoid(1.702 x)`, but most CLIPs after OpenAI's use GELU.

mod read;

use crate::fold::{Affine, get};
use crate::transformer::{Layer, Transformer, TransformerShape};
use crate::{About, Frozen, Network, Weights};
use candle_core::{D, DType, Device, Result, Tensor};

/// Texts per forward pass.
const TEXTS: usize = 32;

/// Attention bias of masked tokens: their weight after the softmax is 0.
const UNSEEN: f32 = -1e9;

/// Names of the tensors after the image tower.
const PROJECTION: &str = "visual_projection.weight";
const CLASSES: &str = "class_embeddings";
const SCALE: &str = "logit_scale";
const BIAS: &str = "logit_bias";

/// The token whose hidden state represents the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfText {
    /// The first token with this id (CLIP).
    Token(u32),
    /// The first token with the largest id (CLIPs whose `eos_token_id` is 2, whatever their actual end token).
    Largest,
    /// The last token, after padding (SigLIP).
    Last,
}

impl EndOfText {
    /// Its position in a text.
    pub fn place(self, tokens: &[u32]) -> Option<usize> {
        match self {
            EndOfText::Token(end) => tokens.iter().position(|token| *token == end),
            EndOfText::Largest => {
                let largest = tokens.iter().max()?;
                tokens.iter().position(|token| token == largest)
            }
            EndOfText::Last => tokens.len().checked_sub(1),
        }
    }
}

/// The sizes of a text tower.
#[derive(Clone, Debug, PartialEq)]
pub struct TextShape {
    /// Its blocks; the image fields have no meaning.
    pub blocks: TransformerShape,
    /// Number of distinct tokens.
    pub vocabulary: usize,
    /// Maximum number of tokens in a text.
    pub context: usize,
    /// The token whose hidden state represents the whole text.
    pub end: EndOfText,
}

impl TextShape {
    /// True if attention is causal. Then tokens after the end of a text have no effect; otherwise every text
    /// is padded to the whole context.
    pub fn causal(&self) -> bool {
        self.end != EndOfText::Last
    }
}

/// A CLIP or SigLIP without classes yet, with its weights.
#[derive(Clone, Debug)]
pub struct DualEncoder {
    /// Its image classifier, with 0 classes.
    pub images: ZeroShotShape,
    /// Its text tower.
    pub text: TextShape,
    /// Logarithm of the logit scale.
    pub logit_scale: f32,
    /// Bias of the logits.
    pub logit_bias: Option<f32>,
    /// Weights of the image tower, under timm's names, and its projection.
    image_weights: Weights,
    text_weights: Weights,
}

impl DualEncoder {
    /// The text tower with its weights on a device.
    pub fn texts(&self, device: &Device) -> Result<TextTower> {
        let placed = |(name, t): (&String, &Tensor)| Ok((name.clone(), t.to_device(device)?));
        let weights = self.text_weights.iter().map(placed);
        let weights = weights.collect::<Result<Weights>>()?;
        let weight = get(&weights, "head.weight")?.clone();
        let bias = match weights.get("head.bias") {
            Some(bias) => bias.clone(),
            None => Tensor::zeros(self.images.embedding, weight.dtype(), device)?,
        };
        let (shape, blocks) = (&self.text, &self.text.blocks);
        let scores = scores(blocks.heads, shape.context, shape.causal(), device)?;
        let layers = (0..blocks.depth).map(|l| Layer::new(blocks, &weights, l, &scores));
        Ok(TextTower {
            shape: shape.clone(),
            tokens: get(&weights, "tokens")?.clone(),
            positions: get(&weights, "pos_embed")?.reshape(((), blocks.width))?,
            layers: layers.collect::<Result<_>>()?,
            norm: Affine::stored(&weights, "norm")?,
            head: Affine { weight, bias },
        })
    }

    /// The image classifier with these class embeddings (classes, embedding): a network and its weights.
    pub fn classifier(&self, classes: &Tensor) -> Result<(Network, Weights)> {
        let (n, width) = classes.dims2()?;
        let embedding = self.images.embedding;
        if width != embedding {
            candle_core::bail!(
                "class embeddings have {width} channels, image embeddings have {embedding}"
            );
        }
        let mut weights = self.image_weights.clone();
        let number = |value: f32| Tensor::new(&[value], classes.device());
        weights.insert(CLASSES.into(), classes.clone());
        weights.insert(SCALE.into(), number(self.logit_scale)?);
        if let Some(bias) = self.logit_bias {
            weights.insert(BIAS.into(), number(bias)?);
        }
        let shape = ZeroShotShape {
            classes: n,
            ..self.images.clone()
        };
        Ok((Network::ZeroShot(shape), weights))
    }

    /// The number of values in all weights.
    pub fn parameters(&self) -> usize {
        let towers = [&self.image_weights, &self.text_weights].into_iter();
        let tensors = towers.flat_map(Weights::values);
        let values: usize = tensors.map(Tensor::elem_count).sum();
        values + 1 + usize::from(self.logit_bias.is_some())
    }
}

/// A text tower with its weights.
pub struct TextTower {
    shape: TextShape,
    /// (vocabulary, d)
    tokens: Tensor,
    /// (context, d)
    positions: Tensor,
    layers: Vec<Layer>,
    norm: Affine,
    /// The map to embeddings, (embedding, d) and (embedding).
    head: Affine,
}

impl TextTower {
    /// Embeddings (texts, embedding) of unit length, of tokenised texts.
    ///
    /// # Errors
    /// If a text is empty or longer than the context, has no end token, or a token is not in the vocabulary.
    pub fn embed(&self, texts: &[Vec<u32>]) -> Result<Tensor> {
        let parts = texts.chunks(TEXTS).map(|some| self.some(some));
        Tensor::cat(&parts.collect::<Result<Vec<_>>>()?, 0)
    }

    fn some(&self, texts: &[Vec<u32>]) -> Result<Tensor> {
        let (context, vocabulary) = (self.shape.context, self.shape.vocabulary);
        let n = texts.iter().map(Vec::len).max().unwrap_or(0);
        if n > context || (!self.shape.causal() && texts.iter().any(|text| text.len() != context)) {
            candle_core::bail!("texts have up to {n} tokens, the text tower takes {context}");
        }
        let mut tokens = Vec::with_capacity(texts.len() * n);
        let mut places = Vec::with_capacity(texts.len());
        for (i, text) in texts.iter().enumerate() {
            let end = self.shape.end;
            let Some(place) = end.place(text) else {
                candle_core::bail!("a text has no end token ({end:?}) among its tokens {text:?}");
            };
            if let Some(odd) = text.iter().find(|token| **token as usize >= vocabulary) {
                candle_core::bail!("token {odd} is outside the vocabulary of {vocabulary} tokens");
            }
            places.push((i * n + place) as u32);
            tokens.extend(text);
            tokens.resize((i + 1) * n, 0); // after the end, where nothing looks
        }
        let (b, device, blocks) = (texts.len(), self.tokens.device(), &self.shape.blocks);
        let tokens = Tensor::from_vec(tokens, b * n, device)?;
        let places = Tensor::from_vec(places, b, device)?;
        let x = self.tokens.index_select(&tokens, 0)?;
        let x = x.reshape((b, n, blocks.width))?;
        let mut x = x.broadcast_add(&self.positions.narrow(0, 0, n)?)?;
        for layer in &self.layers {
            x = layer.run(blocks, None, &x)?;
        }
        let states = self.norm.norm(&x, blocks.norm_eps)?.flatten_to(1)?; // (b n, d)
        let ends = states.index_select(&places, 0)?; // (b, d)
        normalised(&self.head.apply(&ends)?)
    }
}

/// Attention bias (heads, n, n).
fn scores(heads: usize, n: usize, causal: bool, device: &Device) -> Result<Tensor> {
    if !causal {
        return Tensor::zeros((heads, n, n), DType::F32, device);
    }
    let of_head = (0..n).flat_map(|of| (0..n).map(move |to| if to > of { UNSEEN } else { 0.0 }));
    let of_head = Tensor::from_iter(of_head, device)?.reshape((1, n, n))?;
    of_head.broadcast_as((heads, n, n))?.contiguous()
}

/// Rows divided by their L2 norms.
pub fn normalised(rows: &Tensor) -> Result<Tensor> {
    let length = rows.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?;
    rows.broadcast_div(&length)
}

/// The sizes of a CLIP or SigLIP that classifies images by texts.
#[derive(Clone, Debug, PartialEq)]
pub struct ZeroShotShape {
    /// True for a CLIP, where a projection follows the image tower; false for a SigLIP, whose logits have a bias.
    pub clip: bool,
    /// The image tower.
    pub tower: TransformerShape,
    /// Channels of an embedding.
    pub embedding: usize,
    /// Number of classes.
    pub classes: usize,
}

impl ZeroShotShape {
    /// Its family and sizes.
    pub fn about(&self) -> About {
        About {
            family: if self.clip { "a CLIP" } else { "a SigLIP" },
            width: self.embedding,
            classes: self.classes,
            ..self.tower.about()
        }
    }

    /// Names and shapes of all weights.
    pub fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.tower.parameters();
        let mut one = |name: &str, dims: Vec<usize>| all.push((name.to_owned(), dims));
        one(CLASSES, vec![self.classes, self.embedding]);
        one(SCALE, vec![1]);
        match self.clip {
            true => one(PROJECTION, vec![self.embedding, self.tower.width]),
            false => one(BIAS, vec![1]),
        }
        all
    }
}

/// A CLIP or SigLIP that classifies images by texts, with its weights.
pub(crate) struct ZeroShot {
    about: About,
    tower: Transformer,
    /// (embedding, width) and zeros.
    projection: Option<Affine>,
    /// Class embeddings times the logit scale, and the logit bias.
    head: Affine,
}

impl ZeroShot {
    pub(crate) fn new(shape: &ZeroShotShape, weights: &Weights) -> Result<ZeroShot> {
        crate::check_weights(weights, &shape.parameters())?;
        let own = [PROJECTION, CLASSES, SCALE, BIAS];
        let mut tower = weights.clone();
        tower.retain(|name, _| !own.contains(&name.as_str()));
        let number = |name: &str| get(weights, name)?.to_vec1::<f32>();
        let classes = get(weights, CLASSES)?;
        let zeros = |n: usize| Tensor::zeros(n, classes.dtype(), classes.device());
        let (projection, bias) = match shape.clip {
            true => {
                let weight = get(weights, PROJECTION)?.clone();
                let bias = zeros(shape.embedding)?;
                (Some(Affine { weight, bias }), 0.0)
            }
            false => (None, f64::from(number(BIAS)?[0])),
        };
        let factor = f64::from(number(SCALE)?[0]).exp();
        Ok(ZeroShot {
            about: shape.about(),
            tower: Transformer::new(&shape.tower, &tower)?,
            projection,
            head: Affine {
                weight: (classes * factor)?,
                bias: (zeros(shape.classes)? + bias)?,
            },
        })
    }
}

impl Frozen for ZeroShot {
    fn about(&self) -> About {
        self.about.clone()
    }

    /// Embeddings of unit length.
    fn features(&self, images: &Tensor) -> Result<Tensor> {
        let features = self.tower.features(images)?;
        match &self.projection {
            Some(map) => normalised(&map.apply(&features)?),
            None => normalised(&features),
        }
    }

    fn logits(&self, images: &Tensor) -> Result<Tensor> {
        self.head.apply(&self.features(images)?)
    }
}

#[cfg(test)]
#[path = "zero_shot_tests.rs"]
mod tests;
