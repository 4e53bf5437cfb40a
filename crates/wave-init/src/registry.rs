//! All methods by name. A new one needs a file with a `METHOD`, and a line here.

use crate::direct::{basic, layer_scale, mlp_mean, t_fixup, zero};
use crate::error::by_name;
use crate::start::StartMethod;
use crate::transfer;
use wave_models::Refusal;

/// All methods, in the order of messages and tables.
pub const METHODS: [StartMethod; 15] = [
    basic::HE,
    basic::TIMM,
    basic::XAVIER,
    basic::MIMETIC,
    mlp_mean::METHOD,
    t_fixup::METHOD,
    zero::METHOD,
    layer_scale::METHOD,
    transfer::weight_selection::METHOD,
    transfer::pretrained_attention::METHOD,
    transfer::heru_lg::METHOD,
    transfer::auto_lg::METHOD,
    transfer::ligo::METHOD,
    transfer::nested::METHOD,
    transfer::prune::METHOD,
];

/// The method of this name; if there is none, the error lists all names.
pub fn find(name: &str) -> Result<StartMethod, Refusal> {
    by_name("method", name, &METHODS.map(|method| (method.name, method)))
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
