//! The lead of the subject over the other methods.

use super::page::Page;
use super::statistics::{differences, paired};
use super::summary::{Size, Summaries, Summary, words};
use super::{Findings, Found};
use std::collections::BTreeSet;

/// The subject against one rival at one size.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Gain {
    pub(super) size: Size,
    pub(super) rival: String,
    /// True if the rival is the best of the baselines only: methods that are neither pretrained nor variants of the
    /// subject.
    pub(super) of_baselines: bool,
    /// Mean accuracy of the subject minus the rival's, over all seeds of each.
    pub(super) difference: f64,
    pub(super) rival_deviation: Option<f64>,
    /// Student's t and p, over the seeds that both have.
    pub(super) paired: Option<(f64, f64)>,
    /// Seeds that both have.
    pub(super) pairs: usize,
}

/// Compares the subject with the best other method at each size. If that method pretrains each model or is a variant
/// of the subject, also with the best of the remaining ones.
pub(super) fn gains(found: &Found, dataset: &str) -> Vec<Gain> {
    let (findings, summaries) = (found.findings, &found.summaries);
    let subject = &findings.subject;
    let is_subject = |m: &String| m == subject;
    let Some(peers) = found
        .lengths
        .iter()
        .find(|l| l.methods.iter().any(is_subject))
    else {
        return Vec::new();
    };
    let variants = variants(findings, subject);
    let trains_each = |method: &str| {
        let mut costs = found.costs.iter();
        costs.any(|cost| cost.method == method && cost.own_epochs >= 1.0)
    };
    let mut gains = Vec::new();
    for &size in &findings.sizes {
        let Some(own) = summaries.get(dataset, subject, size) else {
            continue;
        };
        let rivals = summaries.at(dataset, size);
        let rivals: Vec<&Summary> = rivals
            .filter(|s| s.method != *subject && peers.methods.contains(&s.method))
            .collect();
        let baselines = rivals.iter().copied();
        let baselines =
            baselines.filter(|s| !variants.contains(&*s.method) && !trains_each(&s.method));
        let baseline = Summaries::best(baselines);
        let all = Summaries::best(rivals.iter().copied());
        gains.extend(all.map(|rival| gain(own, rival, false)));
        let another = baseline.filter(|b| all.is_some_and(|all| all.method != b.method));
        gains.extend(another.map(|rival| gain(own, rival, true)));
    }
    gains
}

fn gain(own: &Summary, rival: &Summary, of_baselines: bool) -> Gain {
    let differences = differences(&own.top1_by_seed, &rival.top1_by_seed);
    Gain {
        size: own.size,
        rival: rival.method.clone(),
        of_baselines,
        difference: own.top1 - rival.top1,
        rival_deviation: rival.deviation,
        paired: paired(&differences),
        pairs: differences.len(),
    }
}

/// Methods listed together with the subject in an ablation.
fn variants<'a>(findings: &'a Findings, subject: &str) -> BTreeSet<&'a str> {
    let with_subject = |methods: &&Vec<String>| methods.iter().any(|m| m == subject);
    let methods = findings.ablations.values().filter(with_subject).flatten();
    methods.map(String::as_str).collect()
}

/// The sizes where the subject is first, and its lead over the best other method.
pub(super) fn lead(page: &mut Page, found: &Found, dataset: &str) {
    let subject = &found.findings.subject;
    if found.summaries.on(dataset, subject).next().is_none() {
        return;
    }
    let gains = gains(found, dataset);
    page.list(standing(subject, &gains));
    if gains.is_empty() {
        return;
    }
    page.paragraph(&format!(
        "{subject} minus the best other method with the same number of fine-tuning epochs, in \
         points: among all methods, and, if different, among the baselines (without ablation \
         variants or methods trained for each model). t and p (two-sided, not corrected for the \
         number of sizes) are from a paired t-test over the seeds that both have."
    ));
    let probability = |p: f64| match p < 0.001 {
        true => "< 0.001".to_owned(),
        false => format!("{p:.3}"),
    };
    let row = |g: &Gain| {
        vec![
            words(g.size),
            g.rival.clone(),
            if g.of_baselines { "baselines" } else { "all" }.to_owned(),
            format!("{:+.2}", 100.0 * g.difference),
            g.paired.map_or(String::new(), |(t, _)| format!("{t:.2}")),
            g.paired.map_or(String::new(), |(_, p)| probability(p)),
            match g.pairs {
                0 => String::new(),
                pairs => pairs.to_string(),
            },
        ]
    };
    let columns = [
        "depth x width",
        "best other",
        "of",
        "gain",
        "t",
        "p",
        "pairs",
    ];
    page.table(&columns, gains.iter().map(row));
}

/// Sentences on the sizes where the subject is first, and its distance elsewhere.
fn standing(subject: &str, gains: &[Gain]) -> Vec<String> {
    let all = gains.iter().filter(|g| !g.of_baselines);
    let (first, behind): (Vec<&Gain>, Vec<&Gain>) = all.partition(|g| g.difference >= 0.0);
    let mut lines = vec![match (first.len(), behind.len()) {
        (0, 0) => format!("No other method was fine-tuned for as long as {subject}."),
        (1, 0) => format!("{subject} is first."),
        (n, 0) => format!("{subject} is first at all {n} sizes."),
        (0, 1) => format!("{subject} is not first."),
        (0, n) => format!("{subject} is first at none of {n} sizes."),
        (n, m) => {
            let sizes: Vec<String> = first.iter().map(|g| words(g.size)).collect();
            let all = n + m;
            format!(
                "{subject} is first at {n} of {all} sizes: {}.",
                sizes.join(", ")
            )
        }
    }];
    lines.extend(behind.iter().map(|g| {
        let within = match g.rival_deviation {
            None => "one run has no standard deviation".to_owned(),
            Some(sd) => {
                let within = if -g.difference <= sd {
                    "within"
                } else {
                    "more than"
                };
                format!(
                    "{within} one standard deviation of the first ({:.2})",
                    100.0 * sd
                )
            }
        };
        format!(
            "At {}, {subject} is not first: {:.2} points behind {}, {within}.",
            words(g.size),
            -100.0 * g.difference,
            g.rival
        )
    }));
    lines
}

#[cfg(test)]
#[path = "gains_tests.rs"]
mod tests;
