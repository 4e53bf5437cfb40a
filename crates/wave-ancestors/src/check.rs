//! Checks of sizes and weights shared by all networks, and their errors.

use crate::Weights;
use candle_core::{DType, Tensor};

/// Default patch size for square images: `usual` if it divides the images into at least 4 x 4 patches, else 7
/// or 4, else the largest divisor up to 16. If nothing divides, `usual`.
pub fn default_patch(image_size: usize, usual: usize) -> usize {
    let fits = |patch: &usize| image_size.is_multiple_of(*patch) && image_size / patch >= 4;
    [usual, 7, 4]
        .into_iter()
        .chain((2..=16).rev())
        .find(fits)
        .unwrap_or(usual)
}

/// The largest allowed size: beyond it, products of sizes could overflow.
const LARGEST: usize = 1 << 20;

/// The maximum number of values in the stacked tensor of a layer kind, or in an image.
const MOST_VALUES: usize = u32::MAX as usize;

/// Tensors that other projects store but no network here needs: counters of batch norms, and the attention
/// bias indices of old LeViT and BEiT files, which follow from the sizes.
const IGNORED: [&str; 3] = [
    "num_batches_tracked",
    "attention_bias_idxs",
    "relative_position_index",
];

/// Supported families, listed in errors about other networks.
const SUPPORTED: &str = "vision transformers (ViT, DeiT, DINOv2, DINOv3, BEiT, EVA, the towers of CLIP \
     and SigLIP), ConvNeXt, ResNet, RepVGG, VGG, MobileNetV4, MobileOne, FastViT, EfficientViT, Hiera, \
     LeViT, ConvMixer and EfficientNet-Lite";

/// Sizes or weights that do not fit a network.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// A size is zero.
    #[error("{name} is 0; it must be at least 1")]
    Zero {
        /// The size's name.
        name: &'static str,
    },
    /// A size, or a product of sizes, is too large.
    #[error("{name} is {value}; it must be at most {at_most}")]
    TooLarge {
        /// The size's name.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The maximum.
        at_most: usize,
    },
    /// A size does not divide another.
    #[error(
        "{of} {value} is not a multiple of {name} {divisor}; use {of} {}, or set {name} to a divisor \
         of {value}",
        multiples(*value, *divisor)
    )]
    NotDivisible {
        /// The size that should be the divisor.
        name: &'static str,
        /// Its value.
        divisor: usize,
        /// The size that it should divide.
        of: &'static str,
        /// Its value.
        value: usize,
    },
    /// A value that a network does not support.
    #[error("{name} is {found}, expected {expected}")]
    Choice {
        /// The setting.
        name: &'static str,
        /// Its value.
        found: String,
        /// The supported values.
        expected: &'static str,
    },
    /// A tensor is missing.
    #[error("tensor {name} is missing; is this the right architecture for these weights?")]
    Missing {
        /// Its name.
        name: String,
    },
    /// A tensor has the wrong shape.
    #[error("tensor {name} has shape {found:?}, expected {expected:?}")]
    Misshapen {
        /// Its name.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The expected shape (zeros where only the rank is known).
        expected: Vec<usize>,
    },
    /// A tensor has the wrong dtype.
    #[error("tensor {name} holds {found}, expected {expected}; convert the file to {expected}")]
    Type {
        /// Its name.
        name: String,
        /// The dtype of its values.
        found: &'static str,
        /// The expected dtype.
        expected: &'static str,
    },
    /// A tensor that the network does not have.
    #[error("tensor {name} does not belong to this architecture")]
    Unexpected {
        /// Its name.
        name: String,
    },
    /// Weights of an unknown network.
    #[error(
        "tensor {first} belongs to no known architecture; expected, under timm's names, the \
         weights of {}",
        SUPPORTED
    )]
    Unrecognised {
        /// The first tensor's name, or `(none)`.
        first: String,
    },
    /// A network, or a variant of one, that is not supported.
    #[error(
        "{name} is not supported: {what} ({found}); supported{}: {}",
        but_for(what),
        SUPPORTED
    )]
    Unsupported {
        /// The architecture's name in the configuration.
        name: String,
        /// Its kind or part, with a verb.
        what: String,
        /// The evidence.
        found: String,
    },
    /// Weights of another network than the configuration names.
    #[error(
        "the architecture given is {said}, but the weights belong to {found}; correct whichever is \
         wrong"
    )]
    Architecture {
        /// The architecture that was named.
        said: String,
        /// The family that the tensors belong to.
        found: &'static str,
    },
    /// The configuration of a network contradicts its weights.
    #[error(
        "the configuration says {key} = {said}, the weights have {found}; correct whichever is \
         wrong"
    )]
    Contradiction {
        /// The configuration's key.
        key: String,
        /// Its value.
        said: String,
        /// The value found in the weights.
        found: String,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// Words that keep the list of supported families from contradicting an unsupported part.
fn but_for(what: &str) -> &'static str {
    match what.starts_with("it is a") || what.starts_with("it is none") {
        true => "",
        false => " apart from that",
    }
}

/// The error of a setting that a network does not support.
pub fn refuse_value<T>(
    name: &'static str,
    found: impl ToString,
    expected: &'static str,
) -> Result<T, ShapeError> {
    Err(ShapeError::Choice {
        name,
        found: found.to_string(),
        expected,
    })
}

/// The error of a configuration with a value that contradicts the weights.
pub fn contradiction<T>(
    key: &str,
    said: impl ToString,
    found: impl ToString,
) -> Result<T, ShapeError> {
    Err(ShapeError::Contradiction {
        key: key.into(),
        said: said.to_string(),
        found: found.to_string(),
    })
}

/// The error of an unsupported network with this name, or with none.
pub fn unsupported(name: &str, what: &str, found: &str) -> ShapeError {
    ShapeError::Unsupported {
        name: match name {
            "" => "the network of these weights".to_owned(),
            name => name.to_owned(),
        },
        what: what.to_owned(),
        found: found.to_owned(),
    }
}

/// Checks that `weights` has exactly the named tensors, with these shapes, as `f32`. Counters of batch norms
/// and stored attention bias indices are ignored.
///
/// # Errors
/// Names the first tensor that is missing, misshapen, of another dtype, or unexpected.
pub fn check_weights(
    weights: &Weights,
    parameters: &[(String, Vec<usize>)],
) -> Result<(), ShapeError> {
    for (name, expected) in parameters {
        let tensor = stored(weights, name)?;
        if tensor.dims() != expected {
            return Err(ShapeError::Misshapen {
                name: name.clone(),
                found: tensor.dims().to_vec(),
                expected: expected.clone(),
            });
        }
        if tensor.dtype() != DType::F32 {
            return Err(ShapeError::Type {
                name: name.clone(),
                found: tensor.dtype().as_str(),
                expected: DType::F32.as_str(),
            });
        }
    }
    let known: std::collections::BTreeSet<&str> =
        parameters.iter().map(|(name, _)| name.as_str()).collect();
    match weights
        .keys()
        .find(|name| !known.contains(name.as_str()) && !ignored(name))
    {
        Some(name) => Err(ShapeError::Unexpected { name: name.clone() }),
        None => Ok(()),
    }
}

/// True if other projects store a tensor with this name that no network needs.
pub fn ignored(name: &str) -> bool {
    let part = name.rsplit_once('.').map_or(name, |(_, part)| part);
    IGNORED.contains(&part)
}

fn stored<'a>(weights: &'a Weights, name: &str) -> Result<&'a Tensor, ShapeError> {
    let found = weights.get(name);
    found.ok_or_else(|| ShapeError::Missing { name: name.into() })
}

/// The sizes of a tensor of `N` dimensions.
pub fn dims<const N: usize>(weights: &Weights, name: &str) -> Result<[usize; N], ShapeError> {
    let tensor = stored(weights, name)?;
    tensor.dims().try_into().map_err(|_| ShapeError::Misshapen {
        name: name.into(),
        found: tensor.dims().to_vec(),
        expected: vec![0; N],
    })
}

/// The number of `name(0)`, `name(1)`, .. that exist.
pub fn count(weights: &Weights, name: impl Fn(usize) -> String) -> usize {
    (0..)
        .take_while(|i| weights.contains_key(&name(*i)))
        .count()
}

/// Checks that every size is at least 1 and not too large.
pub fn sizes(sizes: &[(&'static str, usize)]) -> Result<(), ShapeError> {
    for &(name, value) in sizes {
        if value == 0 {
            return Err(ShapeError::Zero { name });
        }
        at_most(name, value, LARGEST)?;
    }
    Ok(())
}

/// Checks that no product of these sizes exceeds 2^32 values.
pub fn products(products: &[(&'static str, &[usize])]) -> Result<(), ShapeError> {
    for &(name, sizes) in products {
        let value = sizes.iter().fold(1_usize, |n, s| n.saturating_mul(*s));
        at_most(name, value, MOST_VALUES)?;
    }
    Ok(())
}

/// Checks that a size is not larger than this.
pub fn at_most(name: &'static str, value: usize, at_most: usize) -> Result<(), ShapeError> {
    match value > at_most {
        false => Ok(()),
        true => Err(ShapeError::TooLarge {
            name,
            value,
            at_most,
        }),
    }
}

/// Checks that `divisor` divides `value`.
///
/// # Errors
/// Names the nearest multiples of the divisor.
pub fn divides(
    name: &'static str,
    divisor: usize,
    of: &'static str,
    value: usize,
) -> Result<(), ShapeError> {
    if value.is_multiple_of(divisor) {
        return Ok(());
    }
    Err(ShapeError::NotDivisible {
        name,
        divisor,
        of,
        value,
    })
}

/// The multiples of `divisor` just below and above `value`, for a message.
fn multiples(value: usize, divisor: usize) -> String {
    match value / divisor * divisor {
        0 => divisor.to_string(),
        below => format!("{below} or {}", below + divisor),
    }
}

/// The names and shapes of a weight and its bias, with one value per row of the weight.
pub fn affine(name: &str, dims: Vec<usize>) -> [(String, Vec<usize>); 2] {
    let bias = vec![dims[0]];
    [
        (format!("{name}.weight"), dims),
        (format!("{name}.bias"), bias),
    ]
}

/// The names and shapes of a batch norm over `width` channels.
pub fn batch_norm(name: &str, width: usize) -> [(String, Vec<usize>); 4] {
    ["weight", "bias", "running_mean", "running_var"]
        .map(|part| (format!("{name}.{part}"), vec![width]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_does_not_divide_names_the_multiples_beside_it() {
        for (heads, multiples) in [(5, "60 or 65"), (100, "100")] {
            let error = divides("heads", heads, "width", 64).unwrap_err();
            let expected = format!(
                "width 64 is not a multiple of heads {heads}; use width {multiples}, or set heads to a divisor of 64"
            );
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_patch_that_is_not_asked_for_divides_the_image() {
        for (side, vit, convolution) in [
            (224, 16, 7),
            (64, 16, 4),
            (32, 4, 4),
            (28, 7, 7),
            (30, 6, 6),
            (227, 16, 7), // a prime: the usual one is refused by name
        ] {
            assert_eq!(default_patch(side, 16), vit, "{side}");
            assert_eq!(default_patch(side, 7), convolution, "{side}");
        }
    }
}
