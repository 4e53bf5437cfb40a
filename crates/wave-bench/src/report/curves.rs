//! Accuracy by epoch: values of a curve, and the epoch at which it reaches a target.

use super::number;
use super::summary::Summary;

/// The epoch at which a curve reaches a target, or its last epoch if it does not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Reach {
    /// Epoch where the target is reached; otherwise the length of the curve.
    pub(super) epochs: f64,
    pub(super) reached: bool,
}

impl Reach {
    /// The reach of a summary's curve; `None` if it is empty.
    pub(super) fn new(summary: &Summary, target: f64) -> Option<Reach> {
        let last = summary.curve.last()?.0;
        let at = first_reach(&summary.curve, target);
        Some(Reach {
            epochs: at.unwrap_or(last),
            reached: at.is_some(),
        })
    }

    pub(super) fn words(self) -> String {
        match self.reached {
            true if self.epochs == 0.0 => "0, at the start".to_owned(),
            true => format!("{:.2}", self.epochs),
            false => format!("not within {}", number(self.epochs)),
        }
    }
}

/// The first epoch at which a curve of `(epoch, accuracy, deviation)` reaches the target, interpolated linearly;
/// `None` if it never does.
fn first_reach(curve: &[(f64, f64, f64)], target: f64) -> Option<f64> {
    let i = curve.iter().position(|&(_, y, _)| y >= target)?;
    let (x, y, _) = curve[i];
    let Some((x0, y0, _)) = i.checked_sub(1).map(|before| curve[before]) else {
        return Some(x);
    };
    // y0 < target <= y, unless y0 is NaN.
    let share = (target - y0) / (y - y0);
    Some(if share.is_finite() {
        x0 + share * (x - x0)
    } else {
        x
    })
}

/// The accuracy of a curve at an epoch, interpolated linearly; `None` outside the curve.
pub(super) fn value_at(curve: &[(f64, f64, f64)], epoch: f64) -> Option<f64> {
    let i = curve.iter().position(|&(x, ..)| x >= epoch)?;
    let (x, y, _) = curve[i];
    if x == epoch {
        return Some(y);
    }
    let (x0, y0, _) = curve[i.checked_sub(1)?];
    Some(y0 + (y - y0) * (epoch - x0) / (x - x0))
}

#[cfg(test)]
#[path = "curves_tests.rs"]
mod tests;
