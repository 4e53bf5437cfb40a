//! Indices of the channels taken from a wider network, or the layers taken from a deeper one.

use crate::error::named;

/// The layers taken from a deeper donor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layers {
    /// The first ones.
    #[default]
    First,
    /// Evenly spaced, as by [`uniform`].
    Uniform,
}

named!(Layers, "layers", "first" => First, "uniform" => Uniform);

impl Layers {
    /// The layers taken from `of`, in order; `count` is at most `of`.
    pub fn pick(self, of: usize, count: usize) -> Vec<usize> {
        match self {
            Layers::First => (0..count.min(of)).collect(),
            Layers::Uniform => uniform(of, count),
        }
    }
}

/// `count` evenly spaced indices below `of`: `i * (of / count)` if `count` divides `of`, otherwise
/// `round(linspace(0, of - 1, count))`, with halves rounded to even, as in numpy.
///
/// This is weight selection's rule (Xu et al. 2024, section 3), extended by linspace to sizes that do not
/// divide. `count` is at most `of`.
pub fn uniform(of: usize, count: usize) -> Vec<usize> {
    if count == 0 {
        return Vec::new();
    }
    if of.is_multiple_of(count) {
        return (0..count).map(|i| i * (of / count)).collect();
    }
    // `count` does not divide `of`, so it is at least 2.
    let step = (of - 1) as f64 / (count - 1) as f64;
    let index = |i: usize| (i as f64 * step).round_ties_even() as usize;
    let mut indices: Vec<usize> = (0..count).map(index).collect();
    indices[count - 1] = of - 1; // numpy's linspace sets its end exactly
    indices
}

#[cfg(test)]
#[path = "indices_tests.rs"]
mod tests;
