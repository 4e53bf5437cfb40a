//! The curves of a report.

use super::Findings;
use super::break_even::Totals;
use super::document::Plot;
use super::summary::{Summaries, Summary};
use super::tables::number;
use anyhow::Result;
use wave_run::plot::{Chart, Series, Unit};

/// Largest number of models in the plot of total epochs.
const MOST_MODELS: usize = 20;
/// Methods in colours of their own; of more, the others are grey.
const STRONG: usize = 4;

/// Name and `(x, mean, standard deviation)` of a curve.
type Band = (String, Vec<(f64, f64, f64)>);

/// A chart of accuracies. Of many methods the subject, its rivals for break-even and those that are most
/// accurate on average have colours.
fn accuracies(
    findings: &Findings,
    summaries: &Summaries,
    (dataset, question): (&str, &str),
    x_label: &str,
    bands: Vec<Band>,
) -> Result<String> {
    let data = match dataset {
        "" => findings.name,
        dataset => dataset,
    };
    let strong = strong(findings, summaries, &bands);
    let rank = |name: &String| strong.iter().position(|s| s == name);
    let mut series: Vec<Series> = bands
        .into_iter()
        .map(|(name, points)| Series {
            strong: rank(&name).is_some(),
            name,
            points,
        })
        .collect();
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

/// The methods of these curves that have colours, the most important first.
fn strong(findings: &Findings, summaries: &Summaries, bands: &[Band]) -> Vec<String> {
    let drawn = |name: &str| bands.iter().any(|(own, _)| own == name);
    let mean = |name: &str| {
        let all: Vec<f64> = summaries.of(name).map(|s| s.top1).collect();
        all.iter().sum::<f64>() / all.len() as f64
    };
    let mut best: Vec<&str> = bands.iter().map(|(name, _)| name.as_str()).collect();
    best.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let pairs = findings.break_even.iter();
    let rivals = pairs.filter(|(own, _)| Some(own.as_str()) == findings.subject);
    let mut strong: Vec<String> = Vec::new();
    let wanted = findings.subject.into_iter();
    for name in wanted
        .chain(rivals.map(|(_, rival)| rival.as_str()))
        .chain(best)
    {
        if drawn(name) && !strong.iter().any(|s| s == name) {
            strong.push(name.to_owned());
        }
    }
    if strong.len() > STRONG + 2 {
        strong.truncate(STRONG);
    }
    strong
}

/// Accuracy against epoch, for each size at which a method was tested during training.
pub(super) fn curves(findings: &Findings, summaries: &Summaries) -> Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for dataset in findings.datasets {
        for &(depth, width) in findings.sizes {
            let series: Vec<Band> = summaries
                .at(dataset, (depth, width))
                .filter(|s| s.is_long())
                .map(|s| (s.method.clone(), s.curve.clone()))
                .collect();
            let series = without_low_starts(series);
            if series.is_empty() {
                continue;
            }
            let title = title(dataset, &format!("depth {depth}, width {width}"));
            plots.push(Plot {
                file: file_name(&["curve", dataset, &format!("{depth}x{width}")]),
                svg: accuracies(
                    findings,
                    summaries,
                    (dataset, &format!("accuracy by epoch at {depth} x {width}")),
                    "epoch",
                    series,
                )?,
                title: format!("Top-1 by epoch, {title}"),
            });
        }
    }
    Ok(plots)
}

/// What sizes are drawn over: file name, name, label, and the place of a summary.
type Axis<'a> = (&'a str, &'a str, &'a str, &'a dyn Fn(&Summary) -> f64);

/// Final accuracy against parameters, and against multiply-adds, for each data set and the methods with
/// several sizes.
pub(super) fn sizes(findings: &Findings, summaries: &Summaries) -> Result<Vec<Plot>> {
    let parameters = |s: &Summary| (findings.parameters)(s.depth, s.width) as f64 / 1e3;
    let multiply_adds = |s: &Summary| (findings.multiply_adds)(s.depth, s.width) as f64 / 1e6;
    let axes: [Axis; 2] = [
        ("sizes", "parameters", "thousand parameters", &parameters),
        (
            "sizes-work",
            "multiply-adds",
            "million multiply-adds of an image",
            &multiply_adds,
        ),
    ];
    let mut plots = Vec::new();
    for dataset in findings.datasets {
        for (file, of, axis, x) in axes {
            let points = |method: &String| -> Vec<(f64, f64, f64)> {
                let of = summaries.of(method).filter(|s| s.dataset == *dataset);
                let point = |s: &Summary| (x(s), s.top1, s.deviation.unwrap_or(0.0));
                let mut points: Vec<_> = of.map(point).collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                points
            };
            let methods = findings.methods.iter();
            let mut series: Vec<Band> = methods.map(|m| (m.clone(), points(m))).collect();
            series.retain(|(_, points)| points.len() > 1);
            if series.is_empty() {
                continue;
            }
            let title = title(dataset, "models of several sizes");
            plots.push(Plot {
                file: file_name(&[file, dataset]),
                svg: accuracies(
                    findings,
                    summaries,
                    (dataset, "accuracy by size"),
                    axis,
                    series,
                )?,
                title: format!("Top-1 by {of}, {title}"),
            });
        }
    }
    Ok(plots)
}

/// Accuracy against stored values, for each data set: at the size that most methods have, those that
/// store anything, with the fewest epochs of fine-tuning.
pub(super) fn kept(findings: &Findings, summaries: &Summaries) -> Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for dataset in findings.datasets {
        let keeping = |size| -> Vec<&Summary> {
            let all = summaries.at(dataset, size);
            let mut all: Vec<&Summary> = all.filter(|s| s.stored_parameters > 0).collect();
            let fewest = all.iter().map(|s| s.epochs).fold(f64::INFINITY, f64::min);
            all.retain(|s| s.epochs <= fewest);
            all
        };
        let sizes = findings.sizes.iter().rev(); // of equals, the last one counts: the first
        let Some(&size) = sizes.max_by_key(|size| keeping(**size).len()) else {
            continue;
        };
        let point = |s: &Summary| {
            let x = s.stored_parameters as f64 / 1e3;
            (x, s.top1, s.deviation.unwrap_or(0.0))
        };
        let series: Vec<Band> = keeping(size)
            .into_iter()
            .map(|s| (s.method.clone(), vec![point(s)]))
            .collect();
        if series.len() < 2 {
            continue;
        }
        let title = title(dataset, &format!("depth {}, width {}", size.0, size.1));
        plots.push(Plot {
            file: file_name(&["kept", dataset]),
            svg: accuracies(
                findings,
                summaries,
                (
                    dataset,
                    &format!("accuracy at {} x {} by values kept", size.0, size.1),
                ),
                "thousand values kept",
                series,
            )?,
            title: format!("Top-1 by the values kept, {title}"),
        });
    }
    Ok(plots)
}

/// Leaves out starts below half of everything after them on any curve: those of untrained models would
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

/// Total epochs against the number of models.
pub(super) fn totals(totals: &[Totals]) -> Result<Vec<Plot>> {
    let draw = |t: &Totals| -> Result<Plot> {
        let series: Vec<Series> = t
            .lines
            .iter()
            .map(|(name, line)| {
                let points = (1..=MOST_MODELS).map(|n| (n as f64, line.at(n)));
                Series::new(name, &points.collect::<Vec<_>>())
            })
            .collect();
        let size = format!("{} x {}", t.depth, t.width);
        let title = title(&t.dataset, &format!("{:.2} % at {size}", 100.0 * t.target));
        let chart = Chart {
            title: &format!("Epochs to {title}"),
            x_label: "models",
            y_label: "epochs in all",
            unit: Unit::Plain,
            series: &series,
        };
        Ok(Plot {
            file: file_name(&[
                "break-even",
                &t.method,
                &t.dataset,
                &format!("{}x{}", t.depth, t.width),
                &format!("epoch-{}", number(t.target_epoch)),
            ]),
            svg: chart.svg()?,
            title: format!("Epochs to {title}, by the number of models"),
        })
    };
    totals.iter().map(draw).collect()
}

fn title(dataset: &str, text: &str) -> String {
    match dataset {
        "" => text.to_owned(),
        dataset => format!("{dataset}, {text}"),
    }
}

/// A file name `a-b.svg` from the parts that are not empty, without special characters of paths and
/// links.
fn file_name(parts: &[&str]) -> String {
    let safe = |part: &str| -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        part.chars()
            .map(|c| if plain(c) { c } else { '-' })
            .collect()
    };
    let parts: Vec<String> = parts
        .iter()
        .filter(|p| !p.is_empty())
        .map(|p| safe(p))
        .collect();
    format!("{}.svg", parts.join("-"))
}

#[cfg(test)]
#[path = "plots_tests.rs"]
mod tests;
