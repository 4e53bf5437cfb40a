//! How far the subject is ahead of the others, or behind.

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
    /// Which of the others the rival is the best of.
    pub(super) among: Among,
    /// Mean accuracy of the subject less the rival's, over all seeds of each.
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

/// The methods that a rival is the best of.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub(super) enum Among {
    /// All others that were fine-tuned for as long.
    All,
    /// Those of them that neither train each model beforehand nor are the subject's variants.
    Baselines,
}

/// The subject against the best others at each size: of all, and, where that one trained each
/// model beforehand or is a variant of the subject from an ablation, of the remaining ones too.
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

/// What stands beside the subject in an ablation.
fn variants<'a>(findings: &'a Findings, subject: &str) -> BTreeSet<&'a str> {
    findings
        .ablations
        .values()
        .filter(|methods| methods.iter().any(|m| m == subject))
        .flatten()
        .map(String::as_str)
        .collect()
}

/// Sentences: at which sizes the subject is first, and by how much it is behind elsewhere.
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
        (n, 0) => format!("{subject} is first at all {n} sizes."),
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

/// The sizes of a data set that some method of a list has rows at, in the bench's order.
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
