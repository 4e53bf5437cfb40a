//! Initialisations that take weights from a trained model.
//!
//! Each begins with a fresh network ([`Choices::rest`](crate::Choices::rest)), in which some tensors are then
//! replaced. Outside the blocks a tensor is taken only if it fits: the patch embedding if patches and
//! channels agree, positions if the grids do, the classifier if the number of classes does, a class token if
//! both networks have one.
//! The final norm is taken under either name, `norm` or, after mean pooling, `fc_norm`. (The papers start
//! from a donor that agrees in all of this; for others this is our interpretation.)

pub mod auto_lg;
pub mod heru_lg;
pub mod ligo;
pub mod nested;
pub mod pretrained_attention;
pub mod prune;
pub mod weight_selection;

use crate::error::wrong_donor;
use crate::fill::fill;
use crate::start::{Cost, Donor, Request, Start};
use candle_core::{Result, Tensor};
use std::collections::BTreeMap;
use wave_models::fold::get;
use wave_models::vit::{BLOCK_TENSORS, VitShape};
use wave_models::{Weights, refuse};

/// Selects the target's channels along an axis of a donor's tensor.
type Channels<'c> = &'c dyn Fn(&Tensor, usize) -> Result<Tensor>;

const AS_IS: Channels = &|tensor, _| Ok(tensor.clone());

/// Checks that donor and target agree in each size: its name, the donor's value, the target's value.
pub(crate) fn same(
    method: &'static str,
    sizes: &[(&'static str, usize, usize)],
) -> crate::Result<()> {
    for &(size, donor, target) in sizes {
        if donor != target {
            refuse!(
                "{method}: the donor's {size} is {donor}, the target's {target}, but whole layers \
                 need equal sizes: set the target's {size} to {donor}"
            );
        }
    }
    Ok(())
}

/// Checks that donor and target tokenise the same images in the same way.
fn same_tokens(method: &'static str, donor: &VitShape, target: &VitShape) -> crate::Result<()> {
    if donor.distilled {
        refuse!(
            "{method}: the donor has a distillation token, which no initialised target has: use a donor without one"
        );
    }
    let both = |size, of: fn(&VitShape) -> usize| (size, of(donor), of(target));
    let sizes = [
        both("patch", |s| s.patch),
        both("number of channels", |s| s.channels),
        both("image size", |s| s.image_size),
        both("number of class tokens", |s| s.class_token.into()),
        both("number of distillation tokens", |s| s.distilled.into()),
    ];
    same(method, &sizes)
}

/// Checks that a donor has at least as many layers and channels as the target.
fn as_large(method: &'static str, donor: &VitShape, target: &VitShape) -> crate::Result<()> {
    at_least(method, "depth", donor.depth, target.depth)?;
    at_least(method, "width", donor.width, target.width)?;
    let hidden = "hidden width of the MLP";
    at_least(method, hidden, donor.hidden(), target.hidden())
}

/// Checks that a size of the donor is at least the target's.
pub(crate) fn at_least(
    method: &'static str,
    size: &'static str,
    donor: usize,
    target: usize,
) -> crate::Result<()> {
    if donor >= target {
        return Ok(());
    }
    refuse!(
        "{method}: the donor's {size} is {donor}, less than the target's {target}: use a donor \
         with at least {target}, or make the target no larger than {donor}"
    )
}

/// Fresh weights with some whole blocks of the donor, by default `usual`, and everything outside the blocks that
/// fits. `pick` pairs blocks of the target and of the donor, given how many and the donor's depth.
fn with_whole_blocks<P: IntoIterator<Item = (usize, usize)>>(
    method: &'static str,
    request: &Request,
    usual: usize,
    pick: impl FnOnce(usize, usize) -> crate::Result<P>,
) -> crate::Result<Start> {
    let mut carry = Carry::new(method, request)?;
    carry.same_blocks()?;
    let depth = carry.donor.shape.depth;
    let blocks = request.choices.blocks.unwrap_or(usual);
    if !(1..=depth).contains(&blocks) {
        refuse!("{method}: {blocks} blocks of a donor with {depth}: give --blocks N, 1 to {depth}");
    }
    let layers = pick(blocks.min(request.shape.depth), depth)?;
    carry.blocks(layers, &BLOCK_TENSORS, |_, t, _| Ok(t.clone()))?;
    carry.outside(AS_IS)?;
    Ok(carry.finish(Stored::Taken))
}

/// The indices of the `count` largest values, in ascending order; ties go to the lower index.
fn largest(values: &[f64], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*b].total_cmp(&values[*a])); // stable
    order.truncate(count);
    order.sort_unstable();
    order
}

/// The values to keep in storage so that an initialisation can be repeated.
enum Stored {
    /// The values that were taken.
    Taken,
    /// All of the donor's.
    Donor,
}

/// An initialisation in progress.
struct Carry<'a> {
    method: &'static str,
    donor: &'a Donor,
    shape: &'a VitShape,
    weights: Weights,
    /// Number of values taken, by the name of the donor's tensor.
    taken: BTreeMap<String, usize>,
}

impl<'a> Carry<'a> {
    /// Starts with fresh weights throughout. Refuses a choice of positions that the donor's would replace.
    fn new(method: &'static str, request: &Request<'a>) -> crate::Result<Self> {
        let donor = request.donor.ok_or_else(|| wrong_donor(method, true))?;
        let choices = request.choices;
        let chosen = choices.positions.is_some() || choices.position_scale.is_some();
        if chosen && donor.gives_all_positions(request.shape) {
            refuse!(
                "{method}: all positions come from the donor, whose grid is the target's: remove --positions and \
                 --position-scale"
            );
        }
        Ok(Self {
            method,
            donor,
            shape: request.shape,
            weights: fill(request, choices.rest)?,
            taken: BTreeMap::new(),
        })
    }

    /// Checks that whole layers of the donor fit.
    fn same_blocks(&self) -> crate::Result<()> {
        let (donor, target) = (&self.donor.shape, self.shape);
        let sizes = [
            ("width", donor.width, target.width),
            ("head width", donor.head_width(), target.head_width()),
            ("hidden width of the MLP", donor.hidden(), target.hidden()),
        ];
        same(self.method, &sizes)
    }

    /// Replaces `to` by `tensor`, made from the donor's tensor `from`.
    fn put(&mut self, to: &str, from: &str, tensor: Tensor) -> Result<()> {
        let place = self.weights.get_mut(to);
        let place = place.ok_or_else(|| candle_core::Error::Msg(format!("missing tensor {to}")))?;
        if place.dims() != tensor.dims() {
            let (found, expected) = (tensor.dims(), place.dims());
            candle_core::bail!("{from} became {found:?}, but {to} has shape {expected:?}");
        }
        let taken = self.taken.entry(from.to_owned()).or_default();
        *taken = (*taken).max(tensor.elem_count());
        *place = tensor.contiguous()?;
        Ok(())
    }

    fn from(&self, name: &str) -> Result<&'a Tensor> {
        get(&self.donor.weights, name)
    }

    /// Fills these tensors in the blocks of `layers`, pairs of a block and a layer of the donor. `take` makes
    /// a tensor of the given sizes from the donor's, given its name within the block.
    fn blocks(
        &mut self,
        layers: impl IntoIterator<Item = (usize, usize)>,
        tensors: &[&str],
        take: impl Fn(&str, &Tensor, &[usize]) -> Result<Tensor>,
    ) -> Result<()> {
        for (to, from) in layers {
            for tensor in tensors {
                let name = |layer: usize| format!("blocks.{layer}.{tensor}");
                let (to, from) = (name(to), name(from));
                let dims = self.weights[&to].dims().to_vec();
                let taken = take(tensor, self.from(&from)?, &dims)?;
                self.put(&to, &from, taken)?;
            }
        }
        Ok(())
    }

    /// Takes everything outside the blocks that fits.
    fn outside(&mut self, channels: Channels) -> Result<()> {
        let (donor, target) = (&self.donor.shape, self.shape);
        let patches = (donor.channels, donor.patch) == (target.channels, target.patch);
        let classes = donor.classes == target.classes;
        for (fits, name, axis) in [
            (patches, "patch_embed.proj.weight", 0),
            (patches, "patch_embed.proj.bias", 0),
            (donor.class_token && target.class_token, "cls_token", 2), // (1, 1, d)
            (classes, "head.weight", 1),                               // (classes, d)
        ] {
            if fits {
                self.put(name, name, channels(self.from(name)?, axis)?)?;
            }
        }
        if classes {
            self.put("head.bias", "head.bias", self.from("head.bias")?.clone())?;
        }
        self.positions(channels)?;
        for kind in ["weight", "bias"] {
            let (from, to) = (donor.final_norm(), target.final_norm());
            let (from, to) = (format!("{from}.{kind}"), format!("{to}.{kind}"));
            self.put(&to, &from, channels(self.from(&from)?, 0)?)?;
        }
        Ok(())
    }

    /// Takes the positions of the patches, and of the class token if both networks have one.
    fn positions(&mut self, channels: Channels) -> Result<()> {
        const NAME: &str = "pos_embed";
        let (donor, target) = (&self.donor.shape, self.shape);
        if donor.grid() != target.grid() {
            return Ok(());
        }
        let from = channels(self.from(NAME)?, 2)?; // (1, n, d)
        let patches = from.narrow(1, donor.prefix(), donor.grid() * donor.grid())?;
        let rows = match (donor.class_token, target.class_token) {
            (_, false) => patches,
            (true, true) => Tensor::cat(&[from.narrow(1, 0, 1)?, patches], 1)?,
            (false, true) => Tensor::cat(&[self.weights[NAME].narrow(1, 0, 1)?, patches], 1)?,
        };
        let taken = rows.elem_count();
        let fresh = usize::from(target.class_token && !donor.class_token) * target.width;
        self.put(NAME, NAME, rows)?;
        self.taken.insert(NAME.into(), taken - fresh);
        Ok(())
    }

    fn finish(self, stored: Stored) -> Start {
        let transferred = self.taken.values().sum();
        Start {
            weights: self.weights,
            cost: Cost {
                transferred,
                stored: match stored {
                    Stored::Taken => transferred,
                    Stored::Donor => self.donor.shape.parameter_count(),
                },
                extra_epochs: self.donor.epochs,
            },
        }
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
