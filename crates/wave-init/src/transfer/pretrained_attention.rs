//! Only the attention and the position embedding of a trained model; everything else is freshly initialised.
//!
//! The upper bound for mimetic attention (thesis, section 3.2.5). [`Choices::layers`](crate::Choices::layers)
//! selects the layers of a deeper donor.

use super::{AS_IS, BLOCK_TENSORS, Carry, Stored, at_least};
use crate::error::Result;
use crate::start::{Request, Start, StartMethod};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "pretrained-attention",
    description: "the donor's attention and position embedding; all other weights are initialised \
                  anew (thesis, section 3.2.5)",
    donor: true,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start> {
    let mut carry = Carry::new(METHOD.name, request)?;
    carry.same_blocks()?;
    let (donor, target) = (&carry.donor.shape, request.shape);
    at_least(METHOD.name, "depth", donor.depth, target.depth)?;
    let layers = request.choices.layers.pick(donor.depth, target.depth);
    let attention = &BLOCK_TENSORS[2..6]; // qkv and proj
    carry.blocks(layers.into_iter().enumerate(), attention, |_, t, _| {
        Ok(t.clone())
    })?;
    carry.positions(AS_IS)?;
    Ok(carry.finish(Stored::Taken))
}

#[cfg(test)]
#[path = "pretrained_attention_tests.rs"]
mod tests;
