//! The plots of a report.

use super::page::Page;
use super::summary::{Summary, on};
use super::{Found, statistics};
use anyhow::Result;
use wave_run::plot::{Chart, Series, Unit};

/// Number of methods with their own colour; the others are grey.
const STRONG: usize = 4;

/// Name and `(x, mean, standard deviation)` of a curve.
type Band = (String, Vec<(f64, f64, f64)>);

/// A chart of accuracies. With many methods, only the subject, its break-even rivals and the methods that are most
/// accurate on average are coloured.
fn accuracies(
    found: &Found,
    (dataset, question): (&str, &str),
    x_label: &str,
    bands: Vec<Band>,
) -> Result<String> {
    let data = match dataset {
        "" => &found.findings.name,
        dataset => dataset,
    };
    let strong = strong(found, &bands);
    let rank = |name: &String| strong.iter().position(|s| s == name);
    let series = bands.into_iter().map(|(name, points)| Series {
        strong: rank(&name).is_some(),
        name,
        points,
    });
    let mut series: Vec<Series> = series.collect();
    series.sort_by_key(|s| rank(&s.name).unwrap_or(usize::MAX));
    let chart = Chart {
        title: &format!("{data}: {question}"),
        x_label,
        y_label: "top-1",
        unit: Unit::Percent,
        series: &series,
    };
    chart.svg()
}

/// The coloured methods among these curves, the most important first.
fn strong(found: &Found, bands: &[Band]) -> Vec<String> {
    let subject = &found.findings.subject;
    let mean = |name: &str| {
        let all: Vec<f64> = found.summaries.of(name).map(|s| s.top1).collect();
        statistics::mean(&all).unwrap_or(f64::NAN)
    };
    let mut best: Vec<&str> = bands.iter().map(|(name, _)| name.as_str()).collect();
    best.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let pairs = found.findings.break_even.iter();
    let rivals = pairs.filter(|(own, _)| own == subject);
    let rivals = rivals.map(|(_, rival)| rival.as_str());
    let mut strong: Vec<String> = Vec::new();
    for name in std::iter::once(subject.as_str()).chain(rivals).chain(best) {
        let drawn = bands.iter().any(|(own, _)| own == name);
        if drawn && !strong.iter().any(|s| s == name) {
            strong.push(name.to_owned());
        }
    }
    if strong.len() > STRONG + 2 {
        strong.truncate(STRONG);
    }
    strong
}

/// Plots accuracy against epoch, for each size at which a method was tested during training.
pub(super) fn curves(page: &mut Page, found: &Found) -> Result<()> {
    let mut intro = Some((
        "Accuracy by epoch",
        "Mean over seeds; the shaded area is the standard deviation. A start below half of all \
         later accuracies is not drawn.",
    ));
    for (dataset, (depth, width)) in found.findings.places() {
        let long = found
            .summaries
            .at(dataset, (depth, width))
            .filter(|s| s.is_long());
        let bands: Vec<Band> = long.map(|s| (s.method.clone(), s.curve.clone())).collect();
        if bands.is_empty() {
            continue;
        }
        page.once(&mut intro);
        let size = format!("{depth}x{width}");
        let title = on(dataset, &format!("depth {depth}, width {width}"));
        let question = format!("accuracy by epoch at {depth} x {width}");
        let bands = without_low_starts(bands);
        let svg = accuracies(found, (dataset, &question), "epoch", bands)?;
        page.plot(
            &["curve", dataset, &size],
            &format!("Top-1 by epoch, {title}"),
            &svg,
        )?;
    }
    Ok(())
}

/// Drops starting points below half of everything after them on any curve: the accuracy of untrained models would
/// compress the rest of the plot.
fn without_low_starts(mut series: Vec<Band>) -> Vec<Band> {
    let later = series.iter().flat_map(|(_, curve)| curve.iter().skip(1));
    let lowest = later.map(|point| point.1).fold(f64::INFINITY, f64::min);
    for (_, curve) in &mut series {
        if curve.first().is_some_and(|start| start.1 < 0.5 * lowest) {
            curve.remove(0);
        }
    }
    series
}

/// Plots final accuracy against parameters, for each data set and the methods with several sizes, under the title
/// `section` unless it is empty.
pub(super) fn sizes(page: &mut Page, found: &Found, section: &str) -> Result<()> {
    let mut intro = Some((
        section,
        "Mean over seeds; the shaded area is the standard deviation. Secondary methods are grey.",
    ));
    let point = |s: &Summary| {
        let parameters = (found.findings.parameters)(s.size.0, s.size.1) as f64;
        (parameters / 1e3, s.top1, s.deviation.unwrap_or(0.0))
    };
    for dataset in &found.findings.datasets {
        let band = |method: &String| -> Band {
            let mut points: Vec<_> = found.summaries.on(dataset, method).map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            (method.clone(), points)
        };
        let mut bands: Vec<Band> = found.findings.methods.iter().map(band).collect();
        bands.retain(|(_, points)| points.len() > 1);
        if bands.is_empty() {
            continue;
        }
        page.once(&mut intro);
        let of = (dataset.as_str(), "accuracy by size");
        let svg = accuracies(found, of, "thousand parameters", bands)?;
        let title = on(dataset, "models of several sizes");
        page.plot(
            &["sizes", dataset],
            &format!("Top-1 by parameters, {title}"),
            &svg,
        )?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "plots_tests.rs"]
mod tests;
