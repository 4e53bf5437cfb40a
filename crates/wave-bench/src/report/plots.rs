//! The plots of a report.

use super::page::Page;
use super::statistics;
use super::summary::{Found, Summary, on};
use anyhow::Result;
use wave_run::plot::{Chart, Series, Unit};

/// Number of methods with their own colour; the others are grey.
const STRONG: usize = 4;

/// The `(x, mean, standard deviation)` of a method, in grey.
fn series(method: &str, points: Vec<(f64, f64, f64)>) -> Series {
    Series {
        name: method.to_owned(),
        points,
        strong: false,
    }
}

/// A chart of accuracies. With many methods, only the subject, its break-even rivals and the methods that are most
/// accurate on average are coloured.
fn accuracies(
    found: &Found,
    (dataset, question): (&str, &str),
    x_label: &str,
    mut series: Vec<Series>,
) -> Result<String> {
    let data = match dataset {
        "" => found.findings.name,
        dataset => dataset,
    };
    let strong = strong(found, &series);
    let rank = |s: &Series| strong.iter().position(|name| *name == s.name);
    series.sort_by_key(|s| rank(s).unwrap_or(usize::MAX));
    for s in &mut series {
        s.strong = rank(s).is_some();
    }
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
fn strong(found: &Found, series: &[Series]) -> Vec<String> {
    let subject = found.findings.grid.subject();
    let mean = |name: &str| {
        let of = found.summaries.iter().filter(|s| s.method == name);
        let all: Vec<f64> = of.map(|s| s.top1).collect();
        statistics::mean(&all).unwrap_or(f64::NAN)
    };
    let mut best: Vec<&str> = series.iter().map(|s| s.name.as_str()).collect();
    best.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let pairs = found.findings.grid.bench.break_even.iter();
    let rivals = pairs.filter(|(own, _)| own == subject);
    let rivals = rivals.map(|(_, rival)| rival.as_str());
    let mut strong: Vec<String> = Vec::new();
    for name in std::iter::once(subject).chain(rivals).chain(best) {
        let drawn = series.iter().any(|s| s.name == name);
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
    for (dataset, (depth, width)) in found.findings.grid.places() {
        let tested = found.at(dataset, (depth, width));
        // More points than start and end.
        let long = tested.filter(|s| s.curve.len() > 2);
        let mut bands: Vec<Series> = long.map(|s| series(&s.method, s.curve.clone())).collect();
        if bands.is_empty() {
            continue;
        }
        page.once(&mut intro);
        drop_low_starts(&mut bands);
        let size = format!("{depth}x{width}");
        let title = on(dataset, &format!("depth {depth}, width {width}"));
        let question = format!("accuracy by epoch at {depth} x {width}");
        let svg = accuracies(found, (dataset, &question), "epoch", bands)?;
        let title = format!("Top-1 by epoch, {title}");
        page.plot(&["curve", dataset, &size], &title, &svg)?;
    }
    Ok(())
}

/// Drops starting points below half of everything after them on any curve: the accuracy of untrained models would
/// compress the rest of the plot.
fn drop_low_starts(series: &mut [Series]) {
    let later = series.iter().flat_map(|s| s.points.iter().skip(1));
    let lowest = later.map(|point| point.1).fold(f64::INFINITY, f64::min);
    for Series { points, .. } in series {
        if points.first().is_some_and(|start| start.1 < 0.5 * lowest) {
            points.remove(0);
        }
    }
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
    let grid = &found.findings.grid;
    for (dataset, _) in &grid.datasets {
        let band = |method: &String| {
            let mut points: Vec<_> = found.on(dataset, method).map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            series(method, points)
        };
        let mut bands: Vec<Series> = grid.names().map(band).collect();
        bands.retain(|s| s.points.len() > 1);
        if bands.is_empty() {
            continue;
        }
        page.once(&mut intro);
        let of = (dataset.as_str(), "accuracy by size");
        let svg = accuracies(found, of, "thousand parameters", bands)?;
        let title = on(dataset, "models of several sizes");
        let title = format!("Top-1 by parameters, {title}");
        page.plot(&["sizes", dataset], &title, &svg)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "plots_tests.rs"]
mod tests;
