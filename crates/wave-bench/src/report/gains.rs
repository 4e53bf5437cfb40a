//! The lead of the subject over the other methods.

use super::page::Page;
use super::statistics::{differences, paired};
use super::summary::{Found, Summary, best, words};
use std::collections::BTreeSet;

/// The lead of the subject over the best other method at each size.
pub(super) fn lead(page: &mut Page, found: &Found, dataset: &str) {
    let subject = found.findings.grid.subject();
    if found.on(dataset, subject).next().is_none() {
        return;
    }
    let rows = rows(found, dataset);
    if rows.is_empty() {
        page.paragraph(&format!(
            "No other method was fine-tuned for as long as {subject}."
        ));
        return;
    }
    page.paragraph(&format!(
        "{subject} minus the best other method with the same number of fine-tuning epochs, in \
         points: among all methods, and, if different, among the baselines (without ablation \
         variants or methods trained for each model). t and p (two-sided, not corrected for the \
         number of sizes) are from a paired t-test over the seeds that both have."
    ));
    let columns = [
        "depth x width",
        "best other",
        "of",
        "gain",
        "t",
        "p",
        "pairs",
    ];
    page.table(&columns, rows);
}

/// Compares the subject with the best other method at each size. If that method pretrains each model or is a variant
/// of the subject, also with the best of the remaining ones.
fn rows(found: &Found, dataset: &str) -> Vec<Vec<String>> {
    let grid = &found.findings.grid;
    let subject = grid.subject();
    // The subject's length comes first.
    let peers = found.lengths(dataset).into_iter().next();
    let peers = peers.unwrap_or_default();
    let is_peer = |method: &str| peers.iter().any(|cost| cost.method == method);
    if !is_peer(subject) {
        return Vec::new();
    }
    let listed = grid.bench.ablations.values();
    let variants = listed.filter(|methods| methods.iter().any(|m| m == subject));
    let variants: BTreeSet<&String> = variants.flatten().collect();
    let trains_each = |method: &String| {
        let mut costs = peers.iter();
        costs.any(|cost| cost.method == *method && cost.own_epochs >= 1.0)
    };
    let is_baseline = |s: &Summary| !variants.contains(&s.method) && !trains_each(&s.method);
    let mut rows = Vec::new();
    for own in found.on(dataset, subject) {
        let rivals = || {
            let all = found.at(dataset, own.size);
            all.filter(|s| s.method != subject && is_peer(&s.method))
        };
        let Some(rival) = best(rivals()) else {
            continue;
        };
        rows.push(row(own, rival, "all"));
        let baseline = best(rivals().filter(|s| is_baseline(s)));
        let another = baseline.filter(|s| s.method != rival.method);
        rows.extend(another.map(|rival| row(own, rival, "baselines")));
    }
    rows
}

/// The mean accuracy of the subject minus the rival's, over all seeds of each, and the test over those that both have.
fn row(own: &Summary, rival: &Summary, of: &str) -> Vec<String> {
    let differences = differences(&own.top1_by_seed, &rival.top1_by_seed);
    let test = paired(&differences);
    let probability = |p: f64| match p < 0.001 {
        true => "< 0.001".to_owned(),
        false => format!("{p:.3}"),
    };
    vec![
        words(own.size),
        rival.method.clone(),
        of.to_owned(),
        format!("{:+.2}", 100.0 * (own.top1 - rival.top1)),
        test.map_or(String::new(), |(t, _)| format!("{t:.2}")),
        test.map_or(String::new(), |(_, p)| probability(p)),
        match differences.len() {
            0 => String::new(),
            pairs => pairs.to_string(),
        },
    ]
}

#[cfg(test)]
#[path = "gains_tests.rs"]
mod tests;
