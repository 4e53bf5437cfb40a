//! Parts of recognition that all families share.

use crate::check::{contradiction, dims, refuse_value, unsupported};
use crate::{Checked, ShapeError, Weights};
use serde_json::{Map, Value};
use std::borrow::Borrow;

/// Weights and configuration of a network to recognise.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// timm's name without its tag, or empty.
    pub name: &'a str,
    /// `model_args` of timm's `config.json`.
    pub args: &'a Map<String, Value>,
    /// Input size of the preprocessing, if the configuration gives it.
    pub image_size: Option<usize>,
    /// The weights, under timm's names.
    pub weights: &'a Weights,
}

impl<'a> Known<'a> {
    /// True if there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.weights.contains_key(name)
    }

    /// Number of outputs of the linear map of this name; 0 if there is none.
    pub fn rows(&self, name: &str) -> Checked<usize> {
        let weight = format!("{name}.weight");
        match self.has(&weight) {
            true => Ok(dims::<2>(self.weights, &weight)?[0]),
            false => Ok(0),
        }
    }

    /// The argument of this name; `null` counts as absent.
    pub fn argument(&self, key: &str) -> Option<&'a Value> {
        self.args.get(key).filter(|said| !said.is_null())
    }

    /// A size among the arguments: a number, or a pair of equal numbers.
    pub fn size(&self, key: &str) -> Option<usize> {
        let value = match self.args.get(key)? {
            Value::Array(pair) if pair.len() == 2 && pair[0] == pair[1] => &pair[0],
            value => value,
        };
        usize::try_from(value.as_u64()?).ok()
    }

    /// Epsilon of the layer norms, if given by the network's arguments.
    pub fn norm_eps(&self) -> Checked<Option<f64>> {
        let key = "layer_norm_eps";
        let Some(said) = self.argument(key) else {
            return Ok(None);
        };
        match said.as_f64() {
            Some(eps) if eps > 0.0 && eps < 1.0 => Ok(Some(eps)),
            _ => refuse_value(key, said, "a number between 0 and 1"),
        }
    }

    /// The side of the input, if given by the network's arguments or by the preprocessing of its images.
    pub fn told_size(&self) -> Option<usize> {
        self.size("img_size").or(self.image_size)
    }

    /// The side of the input: as given, or `usual`.
    pub fn image_size(&self, usual: usize) -> usize {
        self.told_size().unwrap_or(usual)
    }
}

/// The error of a name of this kind that is not among the supported ones in `read`.
pub fn other_name(name: &str, read: &[impl Borrow<str>]) -> ShapeError {
    let what = format!("only {} of its family are supported", read.join(", "));
    unsupported(name, &what, "by its name")
}

/// The error of a family's name with tensors of another network.
pub fn other_tensors(known: Known, family: &str) -> ShapeError {
    let what = format!("these are not the tensors of {family}");
    let first = known.weights.keys().next();
    let found = format!("tensor {}", first.map_or("(none)", String::as_str));
    unsupported(known.name, &what, &found)
}

/// The error of tensors without a name, when `twin` has the same tensors.
pub fn no_name(twin: &str) -> ShapeError {
    let what = format!("no architecture is given, and {twin} has tensors of the same shapes");
    unsupported("", &what, "there is no config.json")
}

/// Checks that at least one pixel is left after five halvings.
pub fn five_halvings(image_size: usize) -> Checked<()> {
    match image_size {
        32.. => Ok(()),
        _ => refuse_value("image_size", image_size, "at least 32"),
    }
}

/// Arguments that have no effect in inference.
const OF_TRAINING: &str = "drop_rate drop_path_rate attn_drop_rate pos_drop_rate patch_drop_rate \
     proj_drop_rate weight_init fix_init head_init_scale zero_init_last pretrained wave";

/// Refuses arguments of a network, except the ones that the caller reads (`read`) or that matter only in training.
pub fn refuse_arguments(known: Known, read: &[&str]) -> Checked<()> {
    let odd = known.args.iter().find(|(key, value)| {
        let key = key.as_str();
        let off = value.is_null() || **value == Value::Bool(false);
        !off && !read.contains(&key) && !OF_TRAINING.split(' ').any(|of| of == key)
    });
    match odd {
        None => Ok(()),
        Some((key, value)) => Err(unsupported(
            known.name,
            &format!("it is built with {key} = {value}, which is not supported for its family"),
            "model_args of its config.json",
        )),
    }
}

/// Refuses arguments other than `more` and those that every family here supports, and any pooling but the mean.
pub(crate) fn usual_arguments(known: Known, more: &[&str]) -> Checked<()> {
    let usual = ["num_classes", "in_chans", "img_size", "global_pool"];
    refuse_arguments(known, &[&usual[..], more].concat())?;
    mean_pooling(known)
}

/// Checks a size in the arguments against the weights.
pub fn agree(known: Known, key: &str, found: usize) -> Checked<()> {
    match known.argument(key) {
        Some(said) if known.size(key) != Some(found) => contradiction(key, said, found),
        _ => Ok(()),
    }
}

/// Checks that the pooling in the arguments is the mean, the only supported one.
pub fn mean_pooling(known: Known) -> Checked<()> {
    match known.args.get("global_pool").and_then(Value::as_str) {
        Some(said) if said != "avg" => refuse_value("global_pool", said, "avg"),
        _ => Ok(()),
    }
}
