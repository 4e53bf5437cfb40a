//! The choices that the methods' papers leave open, for all methods in one struct.

use crate::error::named;
use crate::indices::Layers;
use crate::mean_shift::MlpMean;
use crate::mimetic::Attention;

/// The choices of all methods. Defaults are the papers'. Where a paper gives none, the field says whose
/// interpretation the default is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choices {
    /// Position embedding; by default sinusoidal for mimetic initialisation, which depends on it, and learned
    /// otherwise. This and its scale are refused where all positions come from a donor.
    pub positions: Option<Positions>,
    /// Factor on sinusoidal positions, the thesis' gamma; by default about 2 for CIFAR-10, 1 for ImageNet
    /// (section 3.2.4). Our interpretation: images of up to 64 pixels count as CIFAR-10's.
    pub position_scale: Option<f64>,
    /// Mean shift of the first MLP matrix; by default none, except for `mlp-mean`.
    pub mlp_mean: Option<MlpMean>,
    /// Mimetic only: (alpha, beta) of W_Q W_Kᵀ ≈ alpha Z + beta I; by default the thesis' for ImageNet, (0.7,
    /// 0.7). With (0, 0), Q and K start as `rest`.
    pub qk: Option<(f64, f64)>,
    /// Mimetic only: (alpha, beta) of W_V W_proj = alpha Z − beta I; by default the thesis' for ImageNet, (0.4,
    /// 0.4). With (0, 0), V and the projection start as `rest`.
    pub vp: Option<(f64, f64)>,
    /// Mimetic only: the factorisation of attention.
    pub attention: Attention,
    /// Initialisation of everything that a transfer, or a method for some matrices only, leaves unchanged.
    /// Our interpretation: timm's default, which is also DeiT's and isolates the effect of the method. Xavier
    /// trains better at narrow widths, where 0.02 is too small.
    pub rest: DirectMethod,
    /// The layers taken from a deeper donor.
    pub layers: Layers,
    /// The matrices that `zero` fills.
    pub zero: ZeroScope,
    /// The scale of `layerscale`, from 0 to 1; by default 0.1, our choice.
    pub gamma: Option<f64>,
    /// `layerscale` scales the skip connections instead of the residual branches; by default false, our choice.
    pub scaled_skip: bool,
    /// The number of donor blocks that `heru-lg` and `auto-lg` copy; by default 3 and 4.
    pub blocks: Option<usize>,
    /// For `auto-lg`, a similarity (or gate) for each layer of the donor: larger is more similar.
    pub similarity: Vec<f64>,
}

impl Choices {
    /// The mixing factors of Q and K, and of V and the projection.
    pub(crate) fn mixes(&self) -> [(f64, f64); 2] {
        [self.qk.unwrap_or((0.7, 0.7)), self.vp.unwrap_or((0.4, 0.4))]
    }
}

/// The distribution of the weight matrices. The formulas are listed at [`initialise`](crate::initialise).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectMethod {
    /// Kaiming normal.
    He,
    /// timm's default for vision transformers.
    #[default]
    Timm,
    /// Xavier uniform.
    Xavier,
    /// Mimetic attention.
    Mimetic,
}

named!(DirectMethod, "method", "he" => He, "timm" => Timm, "xavier" => Xavier, "mimetic" => Mimetic);

/// The position embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// Truncated normal numbers with standard deviation 0.02.
    Learned,
    /// [`sinusoidal_positions`](crate::sinusoidal_positions), with zeros for the class token.
    Sinusoidal,
}

/// The matrices that ZerO fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroScope {
    /// Q and K only, the ones that the thesis names.
    QueryKey,
    /// Q, K, V and the projection: the self-attention layers, as in the thesis.
    #[default]
    Attention,
    /// Every matrix of the blocks, as the method's authors fill the whole network.
    Blocks,
}

named!(
    ZeroScope, "part of the network for ZerO",
    "query-key" => QueryKey, "attention" => Attention, "blocks" => Blocks
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for method in DirectMethod::ALL {
            assert_eq!(method.name().parse(), Ok(method));
        }
        for attention in Attention::ALL {
            assert_eq!(attention.name().parse(), Ok(attention));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let message = "Kaiming".parse::<DirectMethod>().unwrap_err().to_string();
        assert_eq!(
            message,
            "unknown method `Kaiming`: use one of he, timm, xavier, mimetic"
        );
    }
}
