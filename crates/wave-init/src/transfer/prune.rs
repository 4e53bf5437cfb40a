//! Shrinks a trained network without training: structured pruning with least squares on images.
//!
//! 1. Layers: the first is kept, and those that rotate the tokens most.
//! 2. Heads: those that write most to the residual stream are kept. Within each, queries and keys keep the
//!    leading directions of their products on the given images, and values those of the head's output.
//! 3. MLP channels are removed one at a time, always the one for which the others can best compensate
//!    (Hassibi and Stork 1993, "Optimal brain surgeon", with the MLP's outputs as the loss).
//! 4. The residual stream keeps its leading directions (as in SliceGPT, Ashkboos et al. 2024).
//! 5. Every matrix is fitted by least squares, from the first layer to the last, to the donor's values on the
//!    same images, so each compensates for errors of the previous ones.
//!
//! Weights and biases of norms are folded into the matrices that read them. No labels are used.

mod fit;
mod narrow;
mod network;
mod thin;

use super::{Carry, Stored, as_large, at_least, largest, same_tokens};
use crate::fill::identity_norm;
use crate::start::{Donor, Request, Start, StartMethod};
use candle_core::{D, Result, Tensor};
use faer::Mat;
use fit::{Moments, matrix};
use narrow::Narrow;
use network::{Layer, Network, Passage};
use wave_models::fold::Affine;
use wave_models::vit::VitShape;
use wave_models::{Weights, refuse};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "prune",
    description: "a larger donor pruned without training: drops the least important layers, heads \
                  and channels, and fits the rest to the donor's activations on images of --data",
    donor: true,
    images: true,
    run: start,
};

fn start(request: &Request) -> crate::Result<Start> {
    let mut carry = Carry::new(METHOD.name, request)?;
    let (from, to) = (&carry.donor.shape, carry.shape);
    as_large(METHOD.name, from, to)?;
    at_least(METHOD.name, "number of heads", from.heads, to.heads)?;
    same_tokens(METHOD.name, from, to)?;
    let Some(images) = request.images else {
        refuse!("prune found no images: name some with --data D; labels are not needed");
    };
    for (name, tensor) in pruned(carry.donor, to, images)? {
        carry.put(&name, &name, tensor)?;
    }
    Ok(carry.finish(Stored::Donor))
}

/// The weights of the target; without a classifier if its number of classes differs.
fn pruned(donor: &Donor, to: &VitShape, images: &Tensor) -> Result<Weights> {
    let network = Network::of(donor)?;
    let mut streams = network.embed(images)?;
    let (mut turns, covariance) = look(&network, &streams)?;
    turns[0] = f64::INFINITY; // always kept
    let kept = largest(&turns, to.depth);
    let narrow = Narrow::new(&covariance, to.width)?;
    let mut weights = narrow.outside(donor)?;
    let made = streams.iter().map(|x| narrow.of(x));
    let mut made = made.collect::<Result<Vec<_>>>()?;
    for (l, &index) in kept.iter().enumerate() {
        let next = kept.get(l + 1).unwrap_or(&network.donor.shape.depth);
        let passages = network.pass(streams, index, *next)?;
        let thin = network.layers[index].thinned(&network, &passages, to)?;
        let new = narrow.layer(&thin)?;
        let new = new.fitted(&network, &thin, &narrow, &passages, &mut made)?;
        weights.extend(new.named(l, to.width)?);
        streams = passages.into_iter().map(|passage| passage.after).collect();
    }
    if let Some(head) = &network.head
        && to.classes == network.donor.shape.classes
    {
        let mut moments = Moments::default();
        for (x, new) in streams.iter().zip(&made) {
            let read = |x: &Tensor| network.norm(&network.pooled(x)?);
            moments.add(&read(new)?, &head.apply(&read(x)?)?)?;
        }
        let head = moments.fit(&narrow.read(head)?)?;
        head.store(&mut weights, "head");
    }
    identity_norm(to.width)?.store(&mut weights, to.final_norm());
    Ok(weights)
}

/// For each layer, the sum over tokens of 1 - cosine between the donor's residual stream before and after it. Also
/// (width, width), the second moments of the inputs of attention and MLP.
fn look(network: &Network, streams: &[Tensor]) -> Result<(Vec<f64>, Mat<f64>)> {
    let width = network.donor.shape.width;
    let mut turns = vec![0.0; network.donor.shape.depth];
    let mut covariance = Mat::zeros(width, width);
    for stream in streams {
        let mut x = stream.clone();
        for (layer, turn) in network.layers.iter().zip(&mut turns) {
            let (middle, after) = network.through(layer, &x)?;
            for read in [&x, &middle] {
                let read = network.norm(read)?.broadcast_mul(&network.share)?;
                let read = read.reshape(((), width))?;
                covariance += matrix(&read.t()?.matmul(&read)?)?;
            }
            let length = |x: &Tensor| x.sqr()?.sum(D::Minus1)?.sqrt();
            let cosine = ((&x * &after)?.sum(D::Minus1)? / (length(&x)? * length(&after)?)?)?;
            let turned = (1.0 - cosine)?.broadcast_mul(&network.share.sqr()?.squeeze(1)?)?;
            *turn += f64::from(turned.sum_all()?.to_scalar::<f32>()?);
            x = after;
        }
    }
    Ok((turns, covariance))
}

/// Input and output of a linear map in the new network, for a batch.
type Pair<'p> = dyn Fn(&Passage, &Tensor) -> Result<(Tensor, Tensor)> + 'p;

impl Layer {
    /// The layer with every matrix fitted to the values of `thin` on the donor's stream. `made` holds the new
    /// network's streams: before the layer, and on return after it.
    fn fitted(
        mut self,
        network: &Network,
        thin: &Layer,
        narrow: &Narrow,
        passages: &[Passage],
        made: &mut [Tensor],
    ) -> Result<Layer> {
        let norm = |x: &Tensor| network.norm(x);
        let fit = |prior: &Affine, made: &[Tensor], pair: &Pair| {
            let mut moments = Moments::weighted(&network.share);
            for (donor, new) in passages.iter().zip(made) {
                let (input, output) = pair(donor, new)?;
                moments.add(&input, &output)?;
            }
            moments.fit(prior)
        };
        self.qkv = fit(&self.qkv, made, &|donor, new| {
            Ok((norm(new)?, thin.qkv.apply(&norm(&donor.before)?)?))
        })?;
        let attended = |new: &Tensor| self.attend(&self.qkv.apply(&norm(new)?)?);
        let proj = fit(&self.proj, made, &|donor, new| {
            Ok((attended(new)?, (narrow.of(&donor.middle)? - new)?))
        })?;
        for new in made.iter_mut() {
            *new = (&*new + proj.apply(&attended(new)?)?)?;
        }
        self.proj = proj;
        self.fc1 = fit(&self.fc1, made, &|donor, new| {
            Ok((norm(new)?, thin.fc1.apply(&norm(&donor.middle)?)?))
        })?;
        let hidden = |new: &Tensor| self.hidden(&norm(new)?);
        let fc2 = fit(&self.fc2, made, &|donor, new| {
            Ok((hidden(new)?, (narrow.of(&donor.after)? - new)?))
        })?;
        for new in made {
            *new = (&*new + fc2.apply(&hidden(new)?)?)?;
        }
        self.fc2 = fc2;
        Ok(self)
    }

    /// Under timm's names, as layer `l`.
    fn named(self, l: usize, width: usize) -> Result<Weights> {
        let mut weights = Weights::new();
        let norm = identity_norm(width)?;
        for (name, map) in [
            ("norm1", norm.clone()),
            ("attn.qkv", self.qkv),
            ("attn.proj", self.proj),
            ("norm2", norm),
            ("mlp.fc1", self.fc1),
            ("mlp.fc2", self.fc2),
        ] {
            map.store(&mut weights, &format!("blocks.{l}.{name}"));
        }
        Ok(weights)
    }
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
