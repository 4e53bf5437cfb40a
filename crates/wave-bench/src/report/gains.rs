//! The lead of the subject over the other methods.

use super::Findings;
use super::statistics::{Paired, paired};
use super::summary::{Cost, Length, Size, Summaries, Summary};
use serde::Serialize;
use std::collections::BTreeSet;

/// The subject against one rival at one size.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub(super) struct Gain {
    pub(super) dataset: String,
    pub(super) depth: usize,
    pub(super) width: usize,
    pub(super) rival: String,
    /// The methods of which the rival is the best.
    pub(super) among: Among,
    /// Mean accuracy of the subject minus the rival's, over all seeds of each.
    pub(super) difference: f64,
    /// The rival's standard deviation.
    pub(super) rival_deviation: Option<f64>,
    /// Over the seeds that both have.
    pub(super) paired: Option<Paired>,
}

impl Gain {
    /// Whether the subject is behind by no more than the rival's standard deviation.
    pub(super) fn is_within_deviation(&self) -> Option<bool> {
        self.rival_deviation.map(|sd| -self.difference <= sd)
    }
}

/// Methods of which a rival is the best.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Among {
    /// All others with as many epochs of fine-tuning.
    All,
    /// Those of them that are neither trained beforehand nor variants of the subject.
    Baselines,
}

/// The subject against the best other method at each size. Where that one trains each model beforehand
/// or is a variant of the subject, also against the best of the remaining ones.
pub(super) fn gains(
    findings: &Findings,
    summaries: &Summaries,
    costs: &[Cost],
    lengths: &[Length],
) -> Vec<Gain> {
    let Some(subject) = findings.subject else {
        return Vec::new();
    };
    let Some(peers) = lengths
        .iter()
        .find(|l| l.methods.iter().any(|m| m == subject))
    else {
        return Vec::new();
    };
    let variants = variants(findings, subject);
    let trains_each = |method: &str| {
        costs
            .iter()
            .any(|cost| cost.method == method && cost.own_epochs >= 1.0)
    };
    let mut gains = Vec::new();
    for dataset in findings.datasets {
        for &size in findings.sizes {
            let Some(own) = summaries.get(dataset, subject, size) else {
                continue;
            };
            let rivals = || {
                summaries
                    .at(dataset, size)
                    .filter(|s| s.method != subject && peers.methods.contains(&s.method))
            };
            let all = Summaries::best(rivals());
            let baseline = Summaries::best(
                rivals().filter(|s| !variants.contains(&*s.method) && !trains_each(&s.method)),
            );
            gains.extend(all.map(|rival| gain(own, rival, Among::All)));
            if let Some(rival) = baseline
                && all.is_some_and(|all| all.method != rival.method)
            {
                gains.push(gain(own, rival, Among::Baselines));
            }
        }
    }
    gains
}

fn gain(own: &Summary, rival: &Summary, among: Among) -> Gain {
    Gain {
        dataset: own.dataset.clone(),
        depth: own.depth,
        width: own.width,
        rival: rival.method.clone(),
        among,
        difference: own.top1 - rival.top1,
        rival_deviation: rival.deviation,
        paired: paired(&own.top1_by_seed, &rival.top1_by_seed),
    }
}

/// Methods beside the subject in an ablation.
fn variants<'a>(findings: &'a Findings, subject: &str) -> BTreeSet<&'a str> {
    findings
        .ablations
        .values()
        .filter(|methods| methods.iter().any(|m| m == subject))
        .flatten()
        .map(String::as_str)
        .collect()
}

/// Sentences on the sizes where the subject is first, and its distance elsewhere.
pub(super) fn standing(subject: &str, dataset: &str, gains: &[Gain]) -> Vec<String> {
    let size = |g: &Gain| format!("{} x {}", g.depth, g.width);
    let all: Vec<&Gain> = gains
        .iter()
        .filter(|g| g.dataset == dataset && g.among == Among::All)
        .collect();
    let (first, behind): (Vec<&Gain>, Vec<&Gain>) =
        all.iter().copied().partition(|g| g.difference >= 0.0);
    if all.is_empty() {
        return vec![format!(
            "No other method was fine-tuned for as long as {subject}."
        )];
    }
    let mut lines = vec![match (first.len(), behind.len()) {
        (1, 0) => format!("{subject} is first."),
        (n, 0) => format!("{subject} is first at all {n} sizes."),
        (0, 1) => format!("{subject} is not first."),
        (0, n) => format!("{subject} is first at none of {n} sizes."),
        (n, _) => {
            let sizes: Vec<String> = first.iter().map(|g| size(g)).collect();
            format!(
                "{subject} is first at {n} of {} sizes: {}.",
                all.len(),
                sizes.join(", ")
            )
        }
    }];
    lines.extend(behind.iter().map(|g| {
        let points = -100.0 * g.difference;
        let within = match (g.is_within_deviation(), g.rival_deviation) {
            (Some(true), Some(sd)) => {
                format!(
                    "within one standard deviation of the first ({:.2})",
                    100.0 * sd
                )
            }
            (Some(false), Some(sd)) => format!(
                "more than one standard deviation of the first ({:.2})",
                100.0 * sd
            ),
            _ => "one run has no standard deviation".to_owned(),
        };
        format!(
            "At {}, {subject} is not first: {points:.2} points behind {}, {within}.",
            size(g),
            g.rival
        )
    }));
    lines
}

/// The sizes of a data set at which any of these methods has rows, in the bench's order.
pub(super) fn sizes_of(
    findings: &Findings,
    summaries: &Summaries,
    dataset: &str,
    methods: &[String],
) -> Vec<Size> {
    let has = |size: Size| {
        summaries
            .at(dataset, size)
            .any(|s| methods.contains(&s.method))
    };
    findings.sizes.iter().copied().filter(|&s| has(s)).collect()
}

#[cfg(test)]
#[path = "gains_tests.rs"]
mod tests;
