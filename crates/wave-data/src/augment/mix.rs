//! Mixup (Zhang et al. 2017) and CutMix (Yun et al. 2019) of a whole batch, as timm's `Mixup` in its
//! mode `batch`: input i is mixed with input b - 1 - i, with one weight for all.

use std::ops::Range;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Beta, Distribution};

use crate::{Batch, Mix};

/// Mixup and CutMix: every batch gets one of them, either with the same probability if both are on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixing {
    /// Both parameters of the Beta distribution of Mixup's weight; 0 turns Mixup off.
    pub mixup: f64,
    /// Both parameters of the Beta distribution of CutMix's weight; 0 turns CutMix off.
    pub cutmix: f64,
}

impl Mixing {
    pub(crate) fn check(&self) -> Result<(), String> {
        let shape = |a: f64| a == 0.0 || (1e-3..=1e3).contains(&a);
        if shape(self.mixup) && shape(self.cutmix) {
            return Ok(());
        }
        Err(format!(
            "{self:?} is out of range: expected parameters of 0 (off) or 0.001 to 1000"
        ))
    }

    pub(crate) fn apply(&self, batch: &mut Batch, rng: &mut ChaCha8Rng) {
        let cutting = match (self.mixup > 0.0, self.cutmix > 0.0) {
            (false, false) => return,
            (true, true) => rng.random::<f64>() < 0.5,
            (_, cutmix) => cutmix,
        };
        let _: f64 = rng.random(); // Not used, but without it recorded runs would not repeat.
        let shape = if cutting { self.cutmix } else { self.mixup };
        let drawn = Beta::new(shape, shape).map_or(1.0, |beta| beta.sample(rng));
        let s = batch.image_size;
        let weight = if cutting {
            let (rows, columns) = rectangle(drawn, s, rng);
            cut(batch, &rows, &columns);
            // The border may have cut the rectangle short.
            1.0 - (rows.len() * columns.len()) as f64 / (s * s) as f64
        } else {
            blend(batch, drawn as f32);
            drawn
        };
        batch.mix = Some(Mix {
            partners: (0..batch.size as u32).rev().collect(),
            weight: weight as f32,
        });
    }
}

/// Rows and columns of `1 - weight` of the area around a uniformly sampled centre, clipped at the border.
fn rectangle(weight: f64, s: usize, rng: &mut ChaCha8Rng) -> (Range<usize>, Range<usize>) {
    let cut = (s as f64 * (1.0 - weight).max(0.0).sqrt()) as usize;
    let mut range = || {
        let centre = rng.random_range(0..s);
        centre.saturating_sub(cut / 2)..(centre + cut / 2).min(s)
    };
    (range(), range())
}

/// Pairs of an input and its partner, each once; an odd batch's middle is its own partner.
fn pairs(batch: &mut Batch) -> impl Iterator<Item = (&mut [f32], &mut [f32])> {
    let len = batch.images.len() / batch.size.max(1);
    let half = batch.size / 2 * len;
    let middle = batch.images.len() - half;
    let (first, second) = batch.images.split_at_mut(middle);
    let partners = second.chunks_exact_mut(len.max(1)).rev();
    first[..half].chunks_exact_mut(len.max(1)).zip(partners)
}

fn blend(batch: &mut Batch, weight: f32) {
    for (one, other) in pairs(batch) {
        for (x, y) in one.iter_mut().zip(other) {
            (*x, *y) = (
                weight * *x + (1.0 - weight) * *y,
                weight * *y + (1.0 - weight) * *x,
            );
        }
    }
}

fn cut(batch: &mut Batch, rows: &Range<usize>, columns: &Range<usize>) {
    let s = batch.image_size;
    for (one, other) in pairs(batch) {
        let lines = one.chunks_exact_mut(s).zip(other.chunks_exact_mut(s));
        for (k, (x, y)) in lines.enumerate() {
            // In every channel.
            if rows.contains(&(k % s)) {
                x[columns.clone()].swap_with_slice(&mut y[columns.clone()]);
            }
        }
    }
}

#[cfg(test)]
#[path = "mix_tests.rs"]
mod tests;
