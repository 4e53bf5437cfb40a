//! Activation functions by timm's names.

use crate::Checked;
use crate::check::refuse_value;
use serde::{Deserialize, Serialize};

/// An elementwise function between layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `x`.
    Identity,
    /// `x Phi(x)`, with the exact normal distribution function.
    #[default]
    Gelu,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `x / (1 + e^-x)`.
    Silu,
}

impl Activation {
    /// The activation that timm's `act_layer` names.
    pub fn from_timm(name: &str) -> Checked<Activation> {
        Ok(match name {
            "gelu" => Activation::Gelu,
            "relu" => Activation::Relu,
            "relu6" => Activation::Relu6,
            "hard_swish" => Activation::HardSwish,
            "silu" | "swish" => Activation::Silu,
            _ => return refuse_value("act_layer", name, "gelu, relu, relu6, hard_swish or silu"),
        })
    }

    /// Its name in timm.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Identity => "identity",
            Activation::Gelu => "gelu",
            Activation::Relu => "relu",
            Activation::Relu6 => "relu6",
            Activation::HardSwish => "hard_swish",
            Activation::Silu => "silu",
        }
    }

    /// Checks that a network supports this activation; `expected` names the supported ones.
    pub fn among(self, offered: &[Activation], expected: &'static str) -> Checked<()> {
        if offered.contains(&self) {
            return Ok(());
        }
        refuse_value("activation", self.name(), expected)
    }
}
