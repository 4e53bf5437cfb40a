//! Heru-LG: the last blocks of the ancestor on top of fresh lower layers.
//!
//! Wang et al. 2022 inherit the layers whose gradients stay large during lifelong learning, which are the
//! last ones. For transformers the number, 3 blocks, follows from WAVE's parameter counts. A target with
//! fewer layers gets only the last of them (our interpretation).

use super::with_whole_blocks;
use crate::error::Result;
use crate::start::{Request, Start, StartMethod};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "heru-lg",
    description: "the donor's last 3 blocks on top of newly initialised ones: our interpretation \
                  of Heru-LG (Wang et al. 2022), which selects blocks by gradients",
    donor: true,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start> {
    let depth = request.shape.depth;
    with_whole_blocks(METHOD.name, request, 3, |blocks, donor_depth| {
        Ok((1..=blocks).map(move |i| (depth - i, donor_depth - i)))
    })
}

#[cfg(test)]
#[path = "heru_lg_tests.rs"]
mod tests;
