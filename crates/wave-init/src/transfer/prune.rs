//! A trained network made smaller without training: structured pruning by least squares on images.
//!
//! 1. Layers: the first stays, and those that turn the tokens most.
//! 2. Heads: those stay that write most to the residual stream. Within each, queries and keys keep the
//!    leading directions of their products for the images seen, values those of what the head writes.
//! 3. MLP channels are removed one at a time, always the one whose output the others can best make up
//!    for (Hassibi and Stork 1993, "Optimal brain surgeon", with the MLP's outputs as the loss).
//! 4. The residual stream keeps its leading directions (as in SliceGPT, Ashkboos et al. 2024).
//! 5. Every matrix is fitted by least squares, from the first layer to the last, to what the donor
//!    computes for the same images. So each makes up for errors of those before it.
//!
//! Gains and biases of norms move into the matrices that read them. No labels are used.

mod fit;
mod thin;

use super::{Carry, Stored, same};
use crate::error::InitError;
use crate::ledger::Ledger;
use crate::start::{Donor, Request, Start, StartMethod};
use candle_core::{D, DType, Device, Error, Result, Tensor};
use faer::Mat;
use fit::{Moments, matrix, tensor};
use wave_models::Weights;
use wave_models::vit::VitShape;

const NAME: &str = "prune";

/// Tokens that are looked at together.
const AT_ONCE: usize = 8192;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: NAME,
    description: "a larger donor made smaller without training: layers, heads and channels that matter \
                  least leave, and the rest is fitted to the donor's activations on images of --data",
    donors: 1,
    images: true,
    ledger: |shape, _| Ledger::blocks(shape.depth),
    run: start,
};

fn start(request: &Request) -> std::result::Result<Start, InitError> {
    let mut carry = Carry::new(NAME, request)?;
    let (from, to) = (carry.donor.shape(), carry.shape);
    for (size, donor, target) in [
        ("depth", from.depth, to.depth),
        ("width", from.width, to.width),
        ("number of heads", from.heads, to.heads),
        ("hidden width of the MLP", from.hidden(), to.hidden()),
    ] {
        carry.at_least(size, donor, target)?;
    }
    let count = |yes: bool| usize::from(yes);
    let sizes = [
        ("patch", from.patch, to.patch),
        ("number of channels", from.channels, to.channels),
        ("image size", from.image_size, to.image_size),
        (
            "number of class tokens",
            count(from.class_token),
            count(to.class_token),
        ),
        (
            "number of distillation tokens",
            count(from.distilled),
            count(to.distilled),
        ),
    ];
    same(NAME, &sizes)?;
    let images = request.images.ok_or(InitError::NoImages { method: NAME })?;
    for (name, tensor) in pruned(carry.donor, to, images)? {
        carry.put(&name, &name, tensor)?;
    }
    Ok(carry.finish(Stored::Donor))
}

/// The weights of the target; without a classifier where it has other classes.
fn pruned(donor: &Donor, to: &VitShape, images: &Tensor) -> Result<Weights> {
    let network = Network::of(donor)?;
    let mut streams = network.embed(images)?;
    let seen = network.seen(&streams)?;
    let kept = most(&seen.turns, to.depth);
    let narrow = Narrow::new(&seen.covariance, to.width)?;
    let mut weights = narrow.outside(donor)?;
    let mut made = streams
        .iter()
        .map(|x| narrow.of(x))
        .collect::<Result<Vec<_>>>()?;
    for (l, &index) in kept.iter().enumerate() {
        let goals = network.goals(&streams, index, kept.get(l + 1))?;
        let layer = &network.layers[index];
        let thin = layer.thinned(&network, &streams, &goals, to)?;
        let narrowed = thin.narrowed(&narrow)?;
        let fitted = narrowed.refitted(&network, &thin, &narrow, &streams, &goals, &mut made)?;
        weights.extend(fitted.named(l, to.width)?);
        streams = goals.into_iter().map(|goal| goal.after).collect();
    }
    if let Some(head) = &network.head
        && to.classes == network.shape.classes
    {
        let mut moments = Moments::default();
        for (x, new) in streams.iter().zip(&made) {
            let read = |x: &Tensor| network.norm(&network.pooled(x)?);
            moments.add(&read(new)?, &head.of(&read(x)?)?)?;
        }
        let head = moments.fit(&narrow.read(head)?)?;
        weights.insert("head.weight".into(), head.weight);
        weights.insert("head.bias".into(), head.bias);
    }
    let gain = Tensor::ones(to.width, DType::F32, &Device::Cpu)?;
    weights.insert(format!("{}.bias", to.final_norm()), gain.zeros_like()?);
    weights.insert(format!("{}.weight", to.final_norm()), gain);
    Ok(weights)
}

/// `y = W x + b`.
#[derive(Clone)]
struct Linear {
    /// (outputs, inputs)
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// With the gain and the bias of the norm before it in it.
    fn of_norm(weights: &Weights, name: &str, norm: &str) -> Result<Linear> {
        let own = Linear::named(weights, name)?;
        let norm = Linear::named(weights, norm)?;
        let shift = own.weight.matmul(&norm.bias.unsqueeze(1)?)?.squeeze(1)?;
        Ok(Linear {
            weight: own.weight.broadcast_mul(&norm.weight)?,
            bias: (own.bias + shift)?,
        })
    }

    fn named(weights: &Weights, name: &str) -> Result<Linear> {
        let get = |kind: &str| {
            let name = format!("{name}.{kind}");
            let found = weights.get(&name).cloned();
            found.ok_or_else(|| Error::Msg(format!("missing tensor {name}")))
        };
        Ok(Linear {
            weight: get("weight")?,
            bias: get("bias")?,
        })
    }

    fn of(&self, x: &Tensor) -> Result<Tensor> {
        wave_ops::linear(x, &self.weight, &self.bias)
    }
}

/// A block without norms, whose gains and biases are in what reads them.
struct Layer {
    /// (3 heads width-of-a-head, stream)
    qkv: Linear,
    /// (stream, heads width-of-a-head)
    proj: Linear,
    /// (hidden, stream)
    fc1: Linear,
    /// (stream, hidden)
    fc2: Linear,
    heads: usize,
}

impl Layer {
    /// Outputs of all heads (b, tokens, heads width-of-a-head) for queries, keys and values.
    fn attend(&self, qkv: &Tensor) -> Result<Tensor> {
        let (b, tokens, all) = qkv.dims3()?;
        let parts = qkv.reshape((b, tokens, 3, self.heads, all / 3 / self.heads))?;
        let parts = parts.permute((2, 0, 3, 1, 4))?; // (3, b, heads, tokens, width of a head)
        let part = |i: usize| parts.get(i)?.contiguous();
        let (q, k, v) = (part(0)?, part(1)?, part(2)?);
        let scale = ((all / 3 / self.heads) as f64).powf(-0.5);
        let scores = (q.matmul(&k.t()?)? * scale)?;
        let shares = scores
            .broadcast_sub(&scores.max_keepdim(D::Minus1)?)?
            .exp()?;
        let shares = shares.broadcast_div(&shares.sum_keepdim(D::Minus1)?)?;
        let outputs = shares.matmul(&v)?.transpose(1, 2)?;
        outputs.contiguous()?.reshape((b, tokens, all / 3))
    }

    fn hidden(&self, h: &Tensor) -> Result<Tensor> {
        wave_ops::gelu(&self.fc1.of(h)?)
    }

    /// In another basis of the residual stream, or in fewer directions of it.
    fn narrowed(&self, narrow: &Narrow) -> Result<Layer> {
        Ok(Layer {
            qkv: narrow.read(&self.qkv)?,
            proj: narrow.written(&self.proj)?,
            fc1: narrow.read(&self.fc1)?,
            fc2: narrow.written(&self.fc2)?,
            heads: self.heads,
        })
    }

    /// The layer whose every matrix is fitted to what `thin`, which reads the donor's stream, computes
    /// there. `made` are the new network's streams: before the layer, and afterwards behind it.
    fn refitted(
        mut self,
        network: &Network,
        thin: &Layer,
        narrow: &Narrow,
        streams: &[Tensor],
        goals: &[Goal],
        made: &mut [Tensor],
    ) -> Result<Layer> {
        let norm = |x: &Tensor| network.norm(x);
        let mut moments = Moments::default();
        for (x, new) in streams.iter().zip(&*made) {
            network.add(&mut moments, &norm(new)?, &thin.qkv.of(&norm(x)?)?)?;
        }
        self.qkv = moments.fit(&self.qkv)?;
        let mut moments = Moments::default();
        let mut outputs = Vec::new();
        for (goal, new) in goals.iter().zip(&*made) {
            let output = self.attend(&self.qkv.of(&norm(new)?)?)?;
            network.add(&mut moments, &output, &(narrow.of(&goal.middle)? - new)?)?;
            outputs.push(output);
        }
        self.proj = moments.fit(&self.proj)?;
        let mut moments = Moments::default();
        for ((goal, new), output) in goals.iter().zip(&mut *made).zip(outputs) {
            *new = (&*new + self.proj.of(&output)?)?;
            network.add(
                &mut moments,
                &norm(new)?,
                &thin.fc1.of(&norm(&goal.middle)?)?,
            )?;
        }
        self.fc1 = moments.fit(&self.fc1)?;
        let mut moments = Moments::default();
        for (goal, new) in goals.iter().zip(&*made) {
            let hidden = self.hidden(&norm(new)?)?;
            network.add(&mut moments, &hidden, &(narrow.of(&goal.after)? - new)?)?;
        }
        self.fc2 = moments.fit(&self.fc2)?;
        for new in made {
            *new = (&*new + self.fc2.of(&self.hidden(&norm(new)?)?)?)?;
        }
        Ok(self)
    }

    /// Under timm's names, as layer `l`.
    fn named(self, l: usize, width: usize) -> Result<Weights> {
        let mut weights = Weights::new();
        for norm in ["norm1", "norm2"] {
            let gain = Tensor::ones(width, DType::F32, &Device::Cpu)?;
            weights.insert(format!("blocks.{l}.{norm}.bias"), gain.zeros_like()?);
            weights.insert(format!("blocks.{l}.{norm}.weight"), gain);
        }
        for (name, linear) in [
            ("attn.qkv", self.qkv),
            ("attn.proj", self.proj),
            ("mlp.fc1", self.fc1),
            ("mlp.fc2", self.fc2),
        ] {
            weights.insert(format!("blocks.{l}.{name}.weight"), linear.weight);
            weights.insert(format!("blocks.{l}.{name}.bias"), linear.bias);
        }
        Ok(weights)
    }
}

/// What a layer of the new network is to reach for a batch of images.
struct Goal {
    /// The donor's stream between attention and MLP of the layer.
    middle: Tensor,
    /// The donor's stream before the layer that stays next, or at its end.
    after: Tensor,
}

/// The donor, without norms' gains and biases.
struct Network<'d> {
    shape: &'d VitShape,
    weights: &'d Weights,
    layers: Vec<Layer>,
    /// The classifier, if there is one.
    head: Option<Linear>,
    /// (tokens, 1): the root of a token's weight in a fit. A class token weighs as much as all patches.
    share: Tensor,
}

/// What a pass through the donor tells.
struct Seen {
    /// The mean over tokens of 1 - cosine between the stream before and behind each layer.
    turns: Vec<f64>,
    /// (width, width): second moments of what the layers read.
    covariance: Mat<f64>,
}

impl<'d> Network<'d> {
    fn of(donor: &'d Donor) -> Result<Network<'d>> {
        let (shape, weights) = (donor.shape(), donor.weights());
        let layer = |l: usize| {
            let name = |part: &str| format!("blocks.{l}.{part}");
            Ok(Layer {
                qkv: Linear::of_norm(weights, &name("attn.qkv"), &name("norm1"))?,
                proj: Linear::named(weights, &name("attn.proj"))?,
                fc1: Linear::of_norm(weights, &name("mlp.fc1"), &name("norm2"))?,
                fc2: Linear::named(weights, &name("mlp.fc2"))?,
                heads: shape.heads,
            })
        };
        let patches = shape.tokens() - shape.prefix();
        let share = (0..shape.tokens()).map(|token| match token < shape.prefix() {
            true => (patches as f32).sqrt(),
            false => 1.0,
        });
        let share: Vec<f32> = share.collect();
        let head =
            (shape.classes > 0).then(|| Linear::of_norm(weights, "head", shape.final_norm()));
        Ok(Network {
            shape,
            weights,
            layers: (0..shape.depth).map(layer).collect::<Result<_>>()?,
            head: head.transpose()?,
            share: Tensor::from_vec(share, (shape.tokens(), 1), &Device::Cpu)?,
        })
    }

    /// Tokens of the images (b, tokens, width) before the first layer, in batches.
    fn embed(&self, images: &Tensor) -> Result<Vec<Tensor>> {
        let at_once = (AT_ONCE / self.shape.tokens()).max(1);
        let count = images.dim(0)?;
        let batches = (0..count).step_by(at_once).map(|first| {
            let images = images.narrow(0, first, at_once.min(count - first))?;
            wave_models::vit::embedded(self.shape, self.weights, &images)
        });
        batches.collect()
    }

    fn norm(&self, x: &Tensor) -> Result<Tensor> {
        let gain = Tensor::ones(x.dim(D::Minus1)?, x.dtype(), x.device())?;
        wave_ops::layer_norm(x, &gain, &gain.zeros_like()?, self.shape.norm_eps)
    }

    /// What the classifier's norm reads (b, width).
    fn pooled(&self, x: &Tensor) -> Result<Tensor> {
        match self.shape.class_token {
            true => x.narrow(1, 0, 1)?.squeeze(1),
            false => x.mean(1),
        }
    }

    /// Adds inputs and outputs (b, tokens, ..), each token with its weight.
    fn add(&self, moments: &mut Moments, x: &Tensor, y: &Tensor) -> Result<()> {
        moments.add_weighted(x, y, &self.share)
    }

    /// The stream between attention and MLP of a layer, and behind it.
    fn through(&self, layer: &Layer, x: &Tensor) -> Result<(Tensor, Tensor)> {
        let attended = layer.attend(&layer.qkv.of(&self.norm(x)?)?)?;
        let middle = (x + layer.proj.of(&attended)?)?;
        let hidden = layer.hidden(&self.norm(&middle)?)?;
        let after = (&middle + layer.fc2.of(&hidden)?)?;
        Ok((middle, after))
    }

    /// A pass of all images.
    fn seen(&self, streams: &[Tensor]) -> Result<Seen> {
        let width = self.shape.width;
        let mut turns = vec![0.0; self.shape.depth];
        let mut covariance = Mat::zeros(width, width);
        for stream in streams {
            let mut x = stream.clone();
            for (layer, turn) in self.layers.iter().zip(&mut turns) {
                let (middle, after) = self.through(layer, &x)?;
                for read in [&x, &middle] {
                    let read = self.norm(read)?.broadcast_mul(&self.share)?;
                    let read = read.reshape(((), width))?;
                    covariance += matrix(&read.t()?.matmul(&read)?)?;
                }
                let length = |x: &Tensor| x.sqr()?.sum(D::Minus1)?.sqrt();
                let cosine = ((&x * &after)?.sum(D::Minus1)? / (length(&x)? * length(&after)?)?)?;
                *turn += (1.0 - cosine)?.sum_all()?.to_scalar::<f32>()? as f64;
                x = after;
            }
        }
        Ok(Seen { turns, covariance })
    }

    /// Goals of the layer `index` after which `next` follows.
    fn goals(&self, streams: &[Tensor], index: usize, next: Option<&usize>) -> Result<Vec<Goal>> {
        let next = next.copied().unwrap_or(self.shape.depth);
        let goals = streams.iter().map(|x| {
            let (middle, mut after) = self.through(&self.layers[index], x)?;
            for layer in &self.layers[index + 1..next] {
                after = self.through(layer, &after)?.1;
            }
            Ok(Goal { middle, after })
        });
        goals.collect()
    }
}

/// The first layer and those of the largest `turns`, `count` in all, in their order.
fn most(turns: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (1..turns.len()).collect();
    order.sort_by(|a, b| turns[*b].total_cmp(&turns[*a]));
    order.truncate(count - 1);
    order.push(0);
    order.sort_unstable();
    order
}

/// A map `R` from the donor's stream to a narrower one that keeps its leading directions. Streams of
/// mean 0 over channels stay so, as the norms of both networks take the mean away.
struct Narrow {
    /// (new, old); none for streams of the same width.
    map: Option<Tensor>,
}

impl Narrow {
    /// `R = H[:, 1..] P'`: P the leading directions of the stream, and H the reflection that takes the
    /// first axis to the direction of the mean over channels.
    fn new(covariance: &Mat<f64>, width: usize) -> Result<Narrow> {
        let old = covariance.nrows();
        if width == old {
            return Ok(Narrow { map: None });
        }
        let eigen = covariance
            .self_adjoint_eigen(faer::Side::Lower)
            .map_err(|error| Error::Msg(format!("directions of the stream: {error:?}")))?;
        let leading = eigen.U().subcols(old - (width - 1), width - 1);
        let mean = (width as f64).powf(-0.5);
        let axis = |i: usize| f64::from(u8::from(i == 0)) - mean;
        let square: f64 = (0..width).map(|i| axis(i) * axis(i)).sum();
        let reflection = Mat::from_fn(width, width - 1, |i, j| {
            f64::from(u8::from(i == j + 1)) - 2.0 * axis(i) * axis(j + 1) / square.max(1e-12)
        });
        let map = tensor(&(reflection * leading.transpose()))?;
        Ok(Narrow { map: Some(map) })
    }

    /// A stream (.., new) of one (.., old).
    fn of(&self, x: &Tensor) -> Result<Tensor> {
        match &self.map {
            None => Ok(x.clone()),
            Some(map) => x.broadcast_matmul(&map.t()?),
        }
    }

    /// What reads the normalised stream. As the new one has its length in fewer channels, its norm
    /// leaves it shorter.
    fn read(&self, linear: &Linear) -> Result<Linear> {
        let weight = match &self.map {
            None => linear.weight.clone(),
            Some(map) => {
                let longer = (map.dim(1)? as f64 / map.dim(0)? as f64).sqrt();
                (linear.weight.matmul(&map.t()?)? * longer)?
            }
        };
        let bias = linear.bias.clone();
        Ok(Linear { weight, bias })
    }

    /// What is added to the stream.
    fn written(&self, linear: &Linear) -> Result<Linear> {
        Ok(match &self.map {
            None => linear.clone(),
            Some(map) => Linear {
                weight: map.matmul(&linear.weight)?,
                bias: map.matmul(&linear.bias.unsqueeze(1)?)?.squeeze(1)?,
            },
        })
    }

    /// Patches, positions and the class token.
    fn outside(&self, donor: &Donor) -> Result<Weights> {
        let weights = donor.weights();
        let patches = Linear::named(weights, "patch_embed.proj")?;
        let (old, channels, patch, _) = patches.weight.dims4()?;
        let flat = patches.weight.reshape((old, ()))?;
        let patches = self.written(&Linear {
            weight: flat,
            bias: patches.bias,
        })?;
        let weight = patches.weight.reshape(((), channels, patch, patch))?;
        let mut new = Weights::from([
            ("patch_embed.proj.weight".into(), weight),
            ("patch_embed.proj.bias".into(), patches.bias),
        ]);
        for name in ["pos_embed", "cls_token"] {
            if let Some(tokens) = weights.get(name) {
                new.insert(name.into(), self.of(tokens)?);
            }
        }
        Ok(new)
    }
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
