//! Share: one block for every layer, after ALBERT (Lan et al. 2020).
//!
//! The donor is an auxiliary that was distilled with a single block shared by all of its layers
//! (WAVE, Table 1). Any other model serves too.

use super::{Carry, Stored};
use crate::error::InitError;
use crate::ledger::Ledger;
use crate::start::{Request, Start, StartMethod};

const NAME: &str = "share";

pub(crate) const METHOD: StartMethod = StartMethod {
    name: NAME,
    description: "one block of the donor for every layer (Share Init of WAVE, after Lan et al. 2020)",
    donors: 1,
    images: false,
    ledger: |_, _| Ledger::blocks(1),
    run: start,
};

fn start(request: &Request) -> Result<Start, InitError> {
    let mut carry = Carry::new(NAME, request)?;
    carry.same_blocks()?;
    let layer = request.choices.share.layer;
    carry.at_least("depth", carry.donor.shape().depth, layer + 1)?;
    for l in 0..request.shape.depth {
        carry.copy_block(l, layer)?;
    }
    carry.outside(super::AS_IS)?;
    Ok(carry.finish(Stored::Taken))
}

#[cfg(test)]
#[path = "share_tests.rs"]
mod tests;
