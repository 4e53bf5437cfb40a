//! Options of [`initialise`](crate::initialise).

use crate::error::named;
use crate::mean_shift::MlpMean;
use crate::mimetic::Attention;

/// The choices for [`initialise`](crate::initialise).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectOptions {
    /// The distribution of the weight matrices.
    pub method: DirectMethod,
    /// The position embedding.
    pub positions: Positions,
    /// Mean shift added to the first MLP matrix of every block, after `method` has filled it.
    pub mlp_mean: MlpMean,
    /// Mimetic only: (alpha, beta) of W_Q W_Kᵀ ≈ alpha Z + beta I. With (0, 0), Q and K start as `base` says.
    pub qk: (f64, f64),
    /// Mimetic only: (alpha, beta) of W_V W_proj = alpha Z − beta I. With (0, 0), V and the projection start
    /// as `base` says.
    pub vp: (f64, f64),
    /// Mimetic only: the factorisation of attention.
    pub attention: Attention,
    /// Mimetic only: the initialisation of the matrices that the method does not define.
    pub base: Base,
}

impl DirectOptions {
    /// The usual choices for `method`.
    ///
    /// Positions are sinusoidal with scale 1 for [`DirectMethod::Mimetic`], which depends on them, and
    /// learned otherwise. Weights that mimetic attention leaves unchanged get timm's default. The mixing
    /// factors are the thesis' for ImageNet: 0.7, 0.7 for Q and K, 0.4, 0.4 for V and the projection. There
    /// is no mean shift.
    pub fn new(method: DirectMethod) -> Self {
        Self {
            method,
            positions: match method {
                DirectMethod::Mimetic => Positions::Sinusoidal { scale: 1.0 },
                _ => Positions::Learned,
            },
            mlp_mean: MlpMean::None,
            qk: (0.7, 0.7),
            vp: (0.4, 0.4),
            attention: Attention::Products,
            base: Base::Timm,
        }
    }
}

/// The distribution of the weight matrices. The formulas are listed at [`initialise`](crate::initialise).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// Truncated normal numbers with standard deviation 0.02.
    Learned,
    /// [`sinusoidal_positions`](crate::sinusoidal_positions), with zeros for the class token.
    Sinusoidal {
        /// Factor on the embedding, the thesis' gamma; usually [`Positions::usual_scale`].
        scale: f64,
    },
}

impl Positions {
    /// The thesis' factor for an image size: about 2 for CIFAR-10, 1 for ImageNet (section 3.2.4). Our
    /// interpretation: images of up to 64 pixels count as CIFAR-10's.
    pub fn usual_scale(image_size: usize) -> f64 {
        if image_size <= 64 { 2.0 } else { 1.0 }
    }
}

/// The distribution of matrices that mimetic initialisation leaves unchanged, mainly the MLP's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// As [`DirectMethod::Timm`], which isolates the effect of mimetic attention.
    #[default]
    Timm,
    /// As [`DirectMethod::Xavier`], which trains better at narrow widths, where 0.02 is too small.
    Xavier,
}

named!(Base, "base", "timm" => Timm, "xavier" => Xavier);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for method in DirectMethod::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
        }
        for base in Base::ALL {
            assert_eq!(base.to_string().parse(), Ok(base));
        }
        for attention in Attention::ALL {
            assert_eq!(attention.name().parse(), Ok(attention));
        }
        assert_eq!(format!("{:>8}|", DirectMethod::He), "      he|");
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
