//! Checks of sizes and weights shared by all networks, and their errors.

use crate::Weights;
use candle_core::{DType, Tensor};
use std::collections::BTreeSet;
use std::fmt::Display;

/// Default patch size for square images: `usual` if it divides the images into at least 4 x 4 patches, else 7
/// or 4, else the largest divisor up to 16. If nothing divides, `usual`.
pub fn default_patch(image_size: usize, usual: usize) -> usize {
    let fits = |patch: &usize| image_size.is_multiple_of(*patch) && image_size / patch >= 4;
    let mut patches = [usual, 7, 4].into_iter().chain((2..=16).rev());
    patches.find(fits).unwrap_or(usual)
}

/// The largest allowed size: beyond it, products of sizes could overflow.
const LARGEST: usize = 1 << 20;

/// The maximum number of values in the stacked tensor of a layer kind, or in an image.
const MOST_VALUES: usize = u32::MAX as usize;

/// Supported families, listed in errors about other networks.
const SUPPORTED: &str = "vision transformers (ViT, DeiT, DINOv2, DINOv3, BEiT, EVA, the towers of CLIP \
     and SigLIP), ConvNeXt, ResNet, RepVGG, VGG, MobileNetV4, MobileOne, FastViT, EfficientViT, Hiera, \
     LeViT, ConvMixer and EfficientNet-Lite";

/// Sizes or weights that do not fit a network.
#[derive(Clone, Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// A tensor of this name is missing.
    #[error("tensor {0} is missing; is this the right architecture for these weights?")]
    Missing(String),
    /// A tensor of this name does not belong to the network.
    #[error("tensor {0} does not belong to this architecture")]
    Unexpected(String),
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
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// A result that fails if sizes or weights do not fit a network.
pub type Checked<T> = Result<T, ShapeError>;

/// The error of a tensor with another shape than the expected one.
pub fn misshapen(name: &str, tensor: &Tensor, expected: &[usize]) -> ShapeError {
    let found = tensor.dims();
    ShapeError::Other(format!(
        "tensor {name} has shape {found:?}, expected {expected:?}"
    ))
}

/// The error of a setting that a network does not support.
pub fn refuse_value<T>(name: &str, found: impl Display, expected: impl Display) -> Checked<T> {
    let text = format!("{name} is {found}, expected {expected}");
    Err(ShapeError::Other(text))
}

/// The error of a configuration with a value that contradicts the weights.
pub fn contradiction<T>(key: &str, said: impl Display, found: impl Display) -> Checked<T> {
    Err(ShapeError::Other(format!(
        "the configuration says {key} = {said}, the weights have {found}; correct whichever is wrong"
    )))
}

/// The error of weights that belong to another family than the named architecture.
pub fn other_family<T>(said: &str, found: &'static str) -> Checked<T> {
    let said = said.into();
    Err(ShapeError::Architecture { said, found })
}

/// The error of an unsupported network with this name, or with none: its kind or part with a verb, and the evidence.
pub fn unsupported(name: &str, what: &str, found: &str) -> ShapeError {
    let name = match name {
        "" => "the network of these weights",
        name => name,
    };
    let but_for = match what.starts_with("it is a") || what.starts_with("it is none") {
        true => "",
        false => " apart from that",
    };
    ShapeError::Other(format!(
        "{name} is not supported: {what} ({found}); supported{but_for}: {SUPPORTED}"
    ))
}

/// Checks that `weights` has exactly the named tensors, with these shapes, as `f32`. Counters of batch norms
/// and stored attention bias indices are ignored.
///
/// # Errors
/// Names the first tensor that is missing, misshapen, of another dtype, or unexpected.
pub fn check_weights(weights: &Weights, parameters: &[(String, Vec<usize>)]) -> Checked<()> {
    for (name, expected) in parameters {
        let tensor = stored(weights, name)?;
        if tensor.dims() != expected {
            return Err(misshapen(name, tensor, expected));
        }
        check_type(name, tensor)?;
    }
    let known: BTreeSet<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    let odd = |name: &&String| !known.contains(name.as_str()) && !ignored(name);
    match weights.keys().find(odd) {
        Some(name) => Err(ShapeError::Unexpected(name.clone())),
        None => Ok(()),
    }
}

/// Checks that a tensor holds `f32`.
pub fn check_type(name: &str, tensor: &Tensor) -> Checked<()> {
    match tensor.dtype() {
        DType::F32 => Ok(()),
        other => Err(ShapeError::Other(format!(
            "tensor {name} holds {}, expected f32; convert the file to f32",
            other.as_str()
        ))),
    }
}

/// True if other projects store a tensor with this name that no network here needs: counters of batch norms, and the
/// attention bias indices of old LeViT and BEiT files, which follow from the sizes.
pub fn ignored(name: &str) -> bool {
    matches!(
        name.rsplit('.').next(),
        Some("num_batches_tracked" | "attention_bias_idxs" | "relative_position_index")
    )
}

/// The tensor `name`.
pub fn stored<'a>(weights: &'a Weights, name: &str) -> Checked<&'a Tensor> {
    let found = weights.get(name);
    found.ok_or_else(|| ShapeError::Missing(name.into()))
}

/// The sizes of a tensor of `N` dimensions. A matrix that is flat or transposed by its bias is refused.
pub fn dims<const N: usize>(weights: &Weights, name: &str) -> Checked<[usize; N]> {
    let tensor = stored(weights, name)?;
    if let Some(expected) = by_bias(weights, name, tensor).filter(|_| N == 2) {
        return Err(misshapen(name, tensor, &expected));
    }
    let found = tensor.dims();
    found.try_into().map_err(|_| {
        let expected = format!("expected {N} dimensions; save it as the network stores it");
        ShapeError::Other(format!("tensor {name} has shape {found:?}, {expected}"))
    })
}

/// The shape of a flat or transposed matrix with one row for each value of its bias.
fn by_bias(weights: &Weights, name: &str, tensor: &Tensor) -> Option<[usize; 2]> {
    let bias = weights.get(&format!("{}.bias", name.strip_suffix(".weight")?))?;
    let rows = bias.elem_count();
    let odd = match *tensor.dims() {
        [n] => n.is_multiple_of(rows),
        [n, columns] => n != rows && columns == rows,
        _ => false,
    };
    let columns = tensor.elem_count().checked_div(rows).filter(|n| *n > 0)?;
    odd.then_some([rows, columns])
}

/// The number of `name(0)`, `name(1)`, .. that exist.
pub fn count(weights: &Weights, name: impl Fn(usize) -> String) -> usize {
    let exists = |i: &usize| weights.contains_key(&name(*i));
    (0..).take_while(exists).count()
}

/// Checks that every size is at least 1 and not too large.
pub fn sizes(sizes: &[(&str, usize)]) -> Checked<()> {
    for &(name, value) in sizes {
        if value == 0 {
            let text = format!("{name} is 0; it must be at least 1");
            return Err(ShapeError::Other(text));
        }
        at_most(name, value, LARGEST)?;
    }
    Ok(())
}

/// Checks that no product of these sizes exceeds 2^32 values.
pub fn products(products: &[(&str, &[usize])]) -> Checked<()> {
    for &(name, sizes) in products {
        let value = sizes.iter().fold(1_usize, |n, s| n.saturating_mul(*s));
        at_most(name, value, MOST_VALUES)?;
    }
    Ok(())
}

/// Checks that a size is not larger than this.
pub fn at_most(name: &str, value: usize, at_most: usize) -> Checked<()> {
    match value > at_most {
        false => Ok(()),
        true => Err(ShapeError::Other(format!(
            "{name} is {value}; it must be at most {at_most}"
        ))),
    }
}

/// Checks that `divisor` divides `value`.
pub fn divides(name: &str, divisor: usize, of: &str, value: usize) -> Checked<()> {
    if value.is_multiple_of(divisor) {
        return Ok(());
    }
    let multiples = match value / divisor * divisor {
        0 => divisor.to_string(),
        below => format!("{below} or {}", below + divisor),
    };
    Err(ShapeError::Other(format!(
        "{of} {value} is not a multiple of {name} {divisor}; use {of} {multiples}, or set {name} to a \
         divisor of {value}"
    )))
}

/// Checks that `value` is a multiple of a size that is given by the family.
pub fn multiple(name: &str, value: usize, of: usize) -> Checked<()> {
    match value.is_multiple_of(of) {
        true => Ok(()),
        false => refuse_value(name, value, format!("a multiple of {of}")),
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
