//! Auto-LG: the ancestor's layers most similar to a small network's, combined with fresh ones.
//!
//! Wang et al. 2023 train a pseudo-descendant, measure by learned gates how similar each of the ancestor's
//! layers is to its own, and stack fresh layers on the selected ones. Their number, 4, follows from WAVE's
//! parameter counts. Here the similarities are given, and the layers with the largest are taken, in their
//! original order, which is our interpretation.

use super::{largest, with_whole_blocks};
use crate::error::{Result, finite};
use crate::start::{Request, Start, StartMethod};
use wave_models::refuse;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "auto-lg",
    description: "the donor's 4 layers with the largest --similarity, below newly initialised \
                  ones: our interpretation of Auto-LG (Wang et al. 2023), which learns gates",
    donor: true,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start> {
    let similarity = &request.choices.similarity;
    with_whole_blocks(METHOD.name, request, 4, |blocks, donor_depth| {
        if similarity.len() != donor_depth {
            refuse!(
                "found {} similarities for the {donor_depth} layers of the donor: give one number \
                 per layer (--similarity X,X,..)",
                similarity.len()
            );
        }
        for value in similarity {
            finite("a similarity", *value)?;
        }
        Ok(largest(similarity, blocks).into_iter().enumerate())
    })
}

#[cfg(test)]
#[path = "auto_lg_tests.rs"]
mod tests;
