//! The plots of a report.

use super::page::Page;
use super::summary::{Summary, on, words};
use super::{Found, number, statistics};
use anyhow::Result;
use wave_run::plot::{Chart, Series, Unit};

/// Maximum number of models in the plot of total epochs.
const MOST_MODELS: usize = 20;
/// Number of methods with their own colour; the others are grey.
const STRONG: usize = 4;

/// Epochs for models of one size.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Line {
    /// Spent once.
    pub(super) shared: f64,
    /// Spent for each model.
    pub(super) each: f64,
}

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

/// Plots accuracy against epoch, for each size at which a method was tested during training. Returns true if there is
/// any.
pub(super) fn curves(page: &mut Page, found: &Found) -> Result<bool> {
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
    Ok(intro.is_none())
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

/// Plots final accuracy against parameters, and against multiply-adds, for each data set and the methods with several
/// sizes, under the title `section` unless it is empty.
pub(super) fn sizes(page: &mut Page, found: &Found, section: &str) -> Result<()> {
    let mut intro = Some((
        section,
        "Mean over seeds; the shaded area is the standard deviation. Secondary methods are grey.",
    ));
    let parameters = |s: &Summary| (found.findings.parameters)(s.size.0, s.size.1) as f64 / 1e3;
    let work = |s: &Summary| (found.findings.multiply_adds)(s.size.0, s.size.1) as f64 / 1e6;
    // File name, name, label, and the x value of a summary.
    type Axis<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(&Summary) -> f64);
    let axes: [Axis; 2] = [
        ("sizes", "parameters", "thousand parameters", &parameters),
        (
            "sizes-work",
            "multiply-adds",
            "million multiply-adds per image",
            &work,
        ),
    ];
    for dataset in &found.findings.datasets {
        for (file, name, label, x) in axes {
            let band = |method: &String| -> Band {
                let points = found.summaries.on(dataset, method);
                let mut points: Vec<_> = points.map(|s| point(x(s), s)).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                (method.clone(), points)
            };
            let mut bands: Vec<Band> = found.findings.methods.iter().map(band).collect();
            bands.retain(|(_, points)| points.len() > 1);
            if bands.is_empty() {
                continue;
            }
            page.once(&mut intro);
            let title = on(dataset, "models of several sizes");
            let svg = accuracies(found, (dataset, "accuracy by size"), label, bands)?;
            page.plot(&[file, dataset], &format!("Top-1 by {name}, {title}"), &svg)?;
        }
    }
    Ok(())
}

/// Plots accuracy against stored values for each data set: the methods that store values and have the fewest epochs
/// of fine-tuning, at the size that most of them have.
pub(super) fn kept(page: &mut Page, found: &Found) -> Result<()> {
    let mut intro = Some((
        "Accuracy by stored values",
        "Values stored so that a model of any size can be started: templates, scalers and \
         inherited weights, or donors. Each takes four bytes in f32.",
    ));
    for dataset in &found.findings.datasets {
        let keeping = |size| -> Vec<&Summary> {
            let all = found.summaries.at(dataset, size);
            let mut all: Vec<&Summary> = all.filter(|s| s.stored_parameters > 0).collect();
            let fewest = all.iter().map(|s| s.epochs).fold(f64::INFINITY, f64::min);
            all.retain(|s| s.epochs <= fewest);
            all
        };
        let sizes = found.findings.sizes.iter().rev(); // reversed: ties go to the first size
        let Some(&size) = sizes.max_by_key(|size| keeping(**size).len()) else {
            continue;
        };
        let stored = |s: &Summary| s.stored_parameters as f64 / 1e3;
        let bands = keeping(size).into_iter();
        let bands: Vec<Band> = bands
            .map(|s| (s.method.clone(), vec![point(stored(s), s)]))
            .collect();
        if bands.len() < 2 {
            continue;
        }
        page.once(&mut intro);
        let title = on(dataset, &format!("depth {}, width {}", size.0, size.1));
        let question = format!("accuracy at {} by stored values", words(size));
        let svg = accuracies(found, (dataset, &question), "thousand stored values", bands)?;
        page.plot(
            &["kept", dataset],
            &format!("Top-1 by stored values, {title}"),
            &svg,
        )?;
    }
    Ok(())
}

/// A summary as a point at `x`.
fn point(x: f64, s: &Summary) -> (f64, f64, f64) {
    (x, s.top1, s.deviation.unwrap_or(0.0))
}

/// Plots total epochs to the accuracy that `own` has after an epoch, against the number of models.
pub(super) fn totals(
    page: &mut Page,
    own: &Summary,
    (target, epoch): (f64, f64),
    lines: &[(String, Line)],
) -> Result<()> {
    let series = lines.iter().map(|(name, line)| {
        let points = (1..=MOST_MODELS).map(|n| (n as f64, line.at(n)));
        Series::new(name, &points.collect::<Vec<_>>())
    });
    let target = format!("{:.2} % at {}", 100.0 * target, words(own.size));
    let title = format!("Epochs to {}", on(&own.dataset, &target));
    let chart = Chart {
        title: &title,
        x_label: "models",
        y_label: "total epochs",
        unit: Unit::Plain,
        series: &series.collect::<Vec<_>>(),
    };
    let size = format!("{}x{}", own.size.0, own.size.1);
    let epoch = format!("epoch-{}", number(epoch));
    page.plot(
        &["break-even", &own.method, &own.dataset, &size, &epoch],
        &format!("{title}, by the number of models"),
        &chart.svg()?,
    )
}

#[cfg(test)]
#[path = "plots_tests.rs"]
mod tests;
