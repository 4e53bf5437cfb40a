//! Auto-LG: the ancestor's layers that resemble a small network's most, and fresh ones.
//!
//! Wang et al. 2023 train a pseudo-descendant, measure by learned gates how similar each of the
//! ancestor's layers is to its own, and stack fresh layers on the chosen ones. The number, 4, follows from
//! WAVE's parameter counts. Here the similarities are given. The layers with the largest are chosen,
//! in their order, which is our reading.

use super::{Carry, Stored};
use crate::choices::{AutoLg, AutoLgPlace, AutoLgRule};
use crate::error::{InitError, finite};
use crate::ledger::Ledger;
use crate::start::{Request, Start, StartMethod};

const NAME: &str = "auto-lg";

pub(crate) const METHOD: StartMethod = StartMethod {
    name: NAME,
    description: "the donor's 4 layers of the largest --similarity, below fresh ones: our reading of \
                  Auto-LG (Wang et al. 2023), whose gates are learned",
    donors: 1,
    images: false,
    ledger: |shape, choices| {
        let AutoLg {
            similarity, rule, ..
        } = &choices.auto_lg;
        let blocks = match *rule {
            AutoLgRule::Most(blocks) => blocks.min(shape.depth),
            AutoLgRule::AtLeast(_) => chosen(similarity, *rule, shape.depth).len(),
        };
        Ledger::blocks(blocks)
    },
    run: start,
};

fn start(request: &Request) -> Result<Start, InitError> {
    let mut carry = Carry::new(NAME, request)?;
    carry.same_blocks()?;
    let AutoLg {
        similarity,
        rule,
        place,
    } = &request.choices.auto_lg;
    let (depth, donor_depth) = (request.shape.depth, carry.donor.shape().depth);
    if similarity.len() != donor_depth {
        return Err(InitError::Similarities {
            found: similarity.len(),
            expected: donor_depth,
        });
    }
    for value in similarity {
        finite("a similarity", *value)?;
    }
    if let AutoLgRule::Most(blocks) = rule {
        carry.at_least("depth", donor_depth, *blocks)?;
    }
    let layers = chosen(similarity, *rule, depth);
    let lowest = match place {
        AutoLgPlace::Bottom => 0,
        AutoLgPlace::Top => depth - layers.len(),
    };
    for (i, layer) in layers.into_iter().enumerate() {
        carry.copy_block(lowest + i, layer)?;
    }
    carry.outside(super::AS_IS)?;
    Ok(carry.finish(Stored::Taken))
}

/// The chosen layers, at most `at_most`, in ascending order.
pub fn chosen(similarity: &[f64], rule: AutoLgRule, at_most: usize) -> Vec<usize> {
    let mut layers: Vec<usize> = (0..similarity.len()).collect();
    layers.sort_by(|a, b| similarity[*b].total_cmp(&similarity[*a])); // stable: lower first
    let count = match rule {
        AutoLgRule::Most(count) => count,
        AutoLgRule::AtLeast(least) => similarity.iter().filter(|s| **s >= least).count(),
    };
    layers.truncate(count.min(at_most));
    layers.sort_unstable();
    layers
}

#[cfg(test)]
#[path = "auto_lg_tests.rs"]
mod tests;
