//! Heru-LG: the last blocks of the ancestor on top of fresh lower layers.
//!
//! Wang et al. 2022 inherit the layers whose gradients stay large during lifelong learning, which are the
//! last ones. For transformers the number, 3 blocks, follows from WAVE's parameter counts. A target with
//! fewer layers gets only the last of them (our interpretation).

use super::{AS_IS, BLOCK_TENSORS, Carry, Stored, check_blocks, whole};
use crate::start::{Request, Start, StartMethod};
use wave_models::NetworkError;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "heru-lg",
    description: "the donor's last 3 blocks on top of newly initialised ones: our interpretation \
                  of Heru-LG (Wang et al. 2022), which selects blocks by gradients",
    donors: 1,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start, NetworkError> {
    let mut carry = Carry::new(METHOD.name, request)?;
    carry.same_blocks()?;
    let (depth, blocks) = (request.shape.depth, request.choices.blocks.unwrap_or(3));
    let donor_depth = carry.donor.shape().depth;
    check_blocks(METHOD.name, blocks, donor_depth)?;
    let layers = (1..=blocks.min(depth)).map(|i| (depth - i, donor_depth - i));
    carry.blocks(layers, &BLOCK_TENSORS, whole)?;
    carry.outside(AS_IS)?;
    Ok(carry.finish(Stored::Taken))
}

#[cfg(test)]
#[path = "heru_lg_tests.rs"]
mod tests;
