//! Networks whose initialisation is learned: small ones, and the scalers of a transformer.

use super::learned;
use super::settings::{Distribution, MetaArch};
use super::small::{AutoencoderShape, Examples, FixupShape, LstmShape, Small};
use anyhow::Result;
use candle_core::{DType, Tensor};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, StandardNormal};
use serde::{Deserialize, Serialize};
use std::path::Path;
use wave_data::Transform;
use wave_learngene::{Learngene, Part, Scalers};
use wave_models::Weights;
use wave_models::vit::{self, VitShape};
use wave_run::context::Context;
use wave_run::error::request;
use wave_stages::templates;

/// A network with its sizes, as in `config.json` of an initialiser.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum About {
    /// A small network.
    Small(Small),
    /// The scalers of a transformer composed from templates.
    Scalers {
        /// The template directory.
        templates: String,
        /// Blocks of the transformer.
        depth: usize,
        /// Channels of the transformer.
        width: usize,
    },
}

/// A network ready for training.
pub(super) enum Network {
    /// A small network, in single precision.
    Small(Small),
    /// A transformer with trained scalers, in double precision, where its operators are candle's own
    /// and have second derivatives.
    Scalers(Box<Composed>),
}

/// Templates, and the transformer composed from them.
#[derive(Clone)]
pub(super) struct Composed {
    /// As on disk.
    pub(super) gene: Learngene,
    shape: VitShape,
    /// Templates in double precision.
    precise: Learngene,
    /// All weights that are not composed, stacked, in double precision.
    inherited: Weights,
}

impl Network {
    /// From the name of an architecture, its sizes, and its input: image side, channels and classes, or
    /// a vocabulary.
    pub(super) fn about(
        settings: &Distribution,
        frame: Option<(usize, usize, usize)>,
        vocabulary: Option<usize>,
    ) -> Result<About> {
        let image =
            || frame.ok_or_else(|| request("this network sees images; give --data with images"));
        Ok(match arch(settings) {
            MetaArch::Autoencoder => {
                let (image_size, channels, _) = image()?;
                About::Small(Small::Autoencoder(AutoencoderShape {
                    image_size,
                    channels,
                    widths: settings.conv_widths.clone().unwrap_or_else(|| vec![8, 16]),
                    latent: settings.latent.unwrap_or(16),
                }))
            }
            MetaArch::Fixup => {
                let (image_size, channels, classes) = image()?;
                About::Small(Small::Fixup(FixupShape {
                    image_size,
                    channels,
                    width: settings.width.unwrap_or(16),
                    blocks: settings.depth.unwrap_or(2),
                    stages: settings.stages.unwrap_or(1),
                    classes,
                }))
            }
            MetaArch::Lstm => {
                let task = "lstm reads sequences; give --data with a task, such as copy:length=8";
                let width = settings.width.unwrap_or(32);
                About::Small(Small::Lstm(LstmShape {
                    vocabulary: vocabulary.ok_or_else(|| request(task))?,
                    embedding: width.div_ceil(2),
                    width,
                    layers: settings.depth.unwrap_or(2),
                }))
            }
            MetaArch::Scalers => {
                let missing = |what: &str| request(format!("no {what} of scalers; give --{what}"));
                let templates = settings.templates.clone();
                About::Scalers {
                    templates: templates.ok_or_else(|| missing("templates"))?,
                    depth: settings.depth.ok_or_else(|| missing("depth"))?,
                    width: settings.width.ok_or_else(|| missing("width"))?,
                }
            }
        })
    }

    /// Checks the sizes, and reads the templates.
    pub(super) fn new(about: &About, context: &Context) -> Result<Network> {
        match about {
            About::Small(small) => {
                small.validate()?;
                Ok(Network::Small(small.clone()))
            }
            About::Scalers {
                templates,
                depth,
                width,
            } => {
                let gene = templates::fetch(Path::new(templates), context)?.learngene;
                let shape = gene.shape(*depth, *width, None)?;
                let gene = gene.used_by(&shape).clone();
                let inherited = precise(&gene.inherited(&shape)?)?;
                let mut precise = gene.clone();
                for t in precise.templates.values_mut() {
                    *t = t.to_dtype(DType::F64)?;
                }
                Ok(Network::Scalers(Box::new(Composed {
                    gene,
                    shape,
                    precise,
                    inherited,
                })))
            }
        }
    }

    /// The network for a task of so many classes or tokens, with images as this one sees: that of other
    /// classes has another head, that of other tokens another embedding too. None, if there is no such
    /// network.
    pub(super) fn on(&self, classes: Option<usize>, vocabulary: Option<usize>) -> Option<Network> {
        Some(match self {
            Network::Small(small @ Small::Autoencoder(_)) => Network::Small(small.clone()),
            Network::Small(Small::Fixup(shape)) => Network::Small(Small::Fixup(FixupShape {
                classes: classes?,
                ..shape.clone()
            })),
            Network::Small(Small::Lstm(shape)) => Network::Small(Small::Lstm(LstmShape {
                vocabulary: vocabulary?,
                ..shape.clone()
            })),
            Network::Scalers(of) if classes == Some(of.shape.classes) => {
                Network::Scalers(of.clone())
            }
            Network::Scalers(_) => return None,
        })
    }

    /// Preprocessing for a network with an input of its own.
    pub(super) fn transform(about: &About, context: &Context) -> Result<Option<Transform>> {
        match about {
            About::Small(_) => Ok(None),
            About::Scalers { templates, .. } => Ok(Some(
                templates::fetch(Path::new(templates), context)?.transform,
            )),
        }
    }

    /// Type of its weights.
    pub(super) fn dtype(&self) -> DType {
        match self {
            Network::Small(_) => DType::F32,
            Network::Scalers(_) => DType::F64,
        }
    }

    /// Names and shapes of the trained tensors.
    pub(super) fn shapes(&self) -> Result<Vec<(String, Vec<usize>)>> {
        Ok(match self {
            Network::Small(small) => {
                let all = small.parameters().into_iter();
                all.map(|p| (p.name, p.dims)).collect()
            }
            Network::Scalers(of) => {
                let bank = split(&of.gene.scalers(&of.shape)?)?;
                let shape = |(name, t): (&String, &Tensor)| (name.clone(), t.dims().to_vec());
                bank.iter().map(shape).collect()
            }
        })
    }

    /// The usual initialisation: PyTorch's of a small network, random scalers.
    pub(super) fn usual(&self, seed: u64) -> Result<Weights> {
        match self {
            Network::Small(small) => Ok(learned::usual(&small.parameters(), seed)?),
            Network::Scalers(of) => {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut normal = || StandardNormal.sample(&mut rng);
                let blocks = &of.shape;
                let (plan, depth) = (&of.gene.plan, of.shape.depth);
                let random = wave_learngene::random_scalers(plan, blocks, depth, &mut normal)?;
                split(&random)
            }
        }
    }

    /// The training loss.
    pub(super) fn loss(
        &self,
        weights: &Weights,
        examples: &Examples,
    ) -> candle_core::Result<Tensor> {
        match self {
            Network::Small(small) => small.loss(weights, examples),
            Network::Scalers(of) => {
                let all = of.precise.assemble(
                    &joined(weights, of.shape.depth)?,
                    &of.inherited,
                    &of.shape,
                )?;
                let logits = vit::logits(&of.shape, &all, &examples.input, None)?;
                let targets =
                    wave_train::smoothed_targets(&examples.targets, of.shape.classes, 0.0)?;
                wave_ops::soft_cross_entropy(&logits, &targets.to_dtype(DType::F64)?)
            }
        }
    }
}

impl Composed {
    /// The bank's scalers, interpolated, by name.
    pub(super) fn bank(&self) -> Result<Weights> {
        split(&self.gene.scalers(&self.shape)?)
    }

    /// The transformer's shape.
    pub(super) fn shape(&self) -> &VitShape {
        &self.shape
    }

    /// All weights of the transformer with these scalers, under timm's names.
    pub(super) fn weights(&self, scalers: &Weights) -> Result<Weights> {
        let (gene, shape) = (&self.gene, &self.shape);
        let scalers = joined(scalers, shape.depth)?;
        let all = gene.assemble(&scalers, &gene.inherited(shape)?, shape)?;
        Ok(vit::unstack(&all)?)
    }
}

/// The architecture in the settings.
pub(super) fn arch(settings: &Distribution) -> MetaArch {
    settings.arch.unwrap_or_default()
}

fn precise(weights: &Weights) -> candle_core::Result<Weights> {
    let tensors = weights.iter();
    tensors
        .map(|(name, t)| Ok((name.clone(), t.to_dtype(DType::F64)?)))
        .collect()
}

/// Scalers of each layer and part, under their names on disk.
fn split(scalers: &Scalers) -> Result<Weights> {
    let mut all = Weights::new();
    for (part, s) in scalers {
        for l in 0..s.dim(0)? {
            let name = format!("scalers.{l}.{}", part.name());
            all.insert(name, s.get(l)?.contiguous()?);
        }
    }
    Ok(all)
}

/// The inverse of [`split`], differentiable.
fn joined(weights: &Weights, depth: usize) -> candle_core::Result<Scalers> {
    let part = |part: &Part| {
        let layer = |l: usize| {
            let name = format!("scalers.{l}.{}", part.name());
            let found = weights.get(&name);
            found.ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {name}")))
        };
        let layers: Vec<&Tensor> = (0..depth).map(layer).collect::<candle_core::Result<_>>()?;
        Ok((*part, Tensor::stack(&layers, 0)?))
    };
    Part::ALL.iter().map(part).collect()
}
