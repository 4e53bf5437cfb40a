//! The record of a template directory about the shapes it makes: the accuracy to expect without
//! measuring it, and where a shape is outside the condensed range.

use anyhow::Result;
use std::collections::BTreeMap;
use wave_hub::{Accuracy, ShapeAccuracy, TemplateConfig};
use wave_models::vit::VitShape;
use wave_run::plot::{Chart, Series, Unit};

type Property = fn(&VitShape) -> f64;

/// The recorded properties of a shape, each with the key of its sampled values in the provenance.
const PROPERTIES: [(&str, &str, Property); 6] = [
    ("depth", "depths", |s| s.depth as f64),
    ("width", "widths", |s| s.width as f64),
    ("head width", "head_widths", |s| s.head_width() as f64),
    ("MLP ratio", "mlp_ratios", |s| s.mlp_ratio),
    ("image size", "image_sizes", |s| s.image_size as f64),
    ("patch", "patches", |s| s.patch as f64),
];
const DEPTH: usize = 0;
const WIDTH: usize = 1;

/// The properties of a shape, in the order of [`PROPERTIES`].
fn properties(shape: &VitShape) -> [f64; 6] {
    PROPERTIES.map(|(.., value)| value(shape))
}

pub(crate) struct Record<'a> {
    auxiliary: &'a VitShape,
    config: &'a TemplateConfig,
    pub(crate) surface: Surface,
}

impl<'a> Record<'a> {
    /// The record in a configuration, for templates with this auxiliary.
    pub(crate) fn new(config: &'a TemplateConfig, auxiliary: &'a VitShape) -> Record<'a> {
        Record {
            auxiliary,
            config,
            surface: Surface::new(&config.accuracies),
        }
    }

    /// The expected accuracy of a shape made without data, 0 to 1, and its source. If it was not measured, the losses
    /// of all properties in which it differs from measured shapes are added up; `None` if one is unknown.
    pub(crate) fn expected(&self, shape: &VitShape) -> Option<(f64, &'static str)> {
        let same = |a: &&ShapeAccuracy| self.shape_of(a) == *shape;
        if let Some(at) = self.config.shapes.iter().find(same) {
            return Some((at.top1, "measured at this shape, without data"));
        }
        let VitShape { depth, width, .. } = *shape;
        let differing = self.differing(shape);
        if differing.is_empty() {
            return self.surface.expected(depth, width);
        }
        let own = properties(shape);
        let losses = differing.into_iter().map(|p| self.loss(p, own[p]));
        let loss: f64 = losses.collect::<Option<Vec<f64>>>()?.iter().sum();
        let chance = 1.0 / self.auxiliary.classes.max(1) as f64;
        let top1 = (self.surface.at(depth, width)? - loss).max(chance);
        let from = "estimated from shapes that each differ in one property";
        Some((top1, from))
    }

    /// A line for each property in which a shape is outside the condensed range, with the loss of
    /// accuracy, if recorded.
    pub(crate) fn outside(&self, shape: &VitShape) -> Vec<String> {
        let mut lines = Vec::new();
        for (property, value) in properties(shape).into_iter().enumerate() {
            let (least, most) = self.condensed(property);
            if (least..=most).contains(&value) {
                continue;
            }
            let condensed = match least == most {
                true => least.to_string(),
                false => format!("{least} to {most}"),
            };
            let cost = match self.loss(property, value) {
                Some(loss) if loss < 5e-4 => "no less accurate".to_owned(),
                Some(loss) => format!("about {:.1} points lower", 100.0 * loss),
                None => "no accuracy is recorded there".to_owned(),
            };
            let name = PROPERTIES[property].0;
            let mut line = format!("{name} {value}, condensed {condensed}: {cost}");
            if property == WIDTH && value > most {
                line += &format!(
                    "; at {:.1} times the widest, blocks repeat: expect the accuracy of width {most}; fine-tune to gain from the size",
                    value / most
                );
            }
            lines.push(line);
        }
        lines
    }

    fn shape_of(&self, entry: &ShapeAccuracy) -> VitShape {
        VitShape {
            depth: entry.depth,
            width: entry.width,
            heads: entry.heads,
            mlp_ratio: entry.mlp_ratio,
            image_size: entry.image_size,
            patch: entry.patch,
            ..self.auxiliary.clone()
        }
    }

    /// Properties in which a shape differs from the shapes whose accuracy the surface holds.
    fn differing(&self, shape: &VitShape) -> Vec<usize> {
        let (own, plain) = (properties(shape), properties(self.auxiliary));
        let differs = |property: &usize| match *property {
            at @ (DEPTH | WIDTH) => self.without_loss(at, own[at]) != Some(own[at]),
            at => own[at] != plain[at],
        };
        (0..PROPERTIES.len()).filter(differs).collect()
    }

    /// The smallest and the largest condensed value of a property. The auxiliary's was condensed even if it was never
    /// sampled, except for depth and width.
    fn condensed(&self, property: usize) -> (f64, f64) {
        let mut all = self.config.sampled(PROPERTIES[property].1);
        if all.is_empty() || ![DEPTH, WIDTH].contains(&property) {
            all.push(properties(self.auxiliary)[property]);
        }
        all.sort_by(f64::total_cmp);
        (all[0], all[all.len() - 1])
    }

    /// The loss of accuracy of models that differ in this property alone, interpolated between the measured values. Outside
    /// their range it is unknown, but for widths above it, where blocks repeat.
    fn loss(&self, property: usize, value: f64) -> Option<f64> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for entry in &self.config.shapes {
            let shape = self.shape_of(entry);
            if self.differing(&shape) == [property] {
                let plain = self.surface.at(entry.depth, entry.width)?;
                points.push((properties(&shape)[property], plain - entry.top1));
            }
        }
        if points.is_empty() {
            return None;
        }
        if let Some(own) = self.without_loss(property, value) {
            points.push((own, 0.0));
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let above = points.partition_point(|point| point.0 < value);
        let (below, above) = (points.get(above.wrapping_sub(1)), points.get(above));
        match (below, above) {
            (_, Some((b, y))) if *b == value => Some(*y),
            (Some((a, x)), Some((b, y))) => Some(x + (y - x) * (value - a) / (b - a)),
            (Some((_, x)), None) if property == WIDTH => Some(*x),
            _ => None,
        }
    }

    /// The value of a property nearest to `value` at which nothing is lost.
    fn without_loss(&self, property: usize, value: f64) -> Option<f64> {
        let nearest = self.surface.nearest_size(value as usize, value as usize);
        match property {
            DEPTH => nearest.map(|(depth, _)| depth as f64),
            WIDTH => nearest.map(|(_, width)| width as f64),
            _ => Some(properties(self.auxiliary)[property]),
        }
    }
}

/// Recorded accuracies: by width, and there by depth.
pub struct Surface(BTreeMap<usize, BTreeMap<usize, f64>>);

impl Surface {
    /// The recorded accuracies, by size.
    pub fn new(accuracies: &[Accuracy]) -> Surface {
        let mut points: BTreeMap<usize, BTreeMap<usize, f64>> = BTreeMap::new();
        for a in accuracies {
            points.entry(a.width).or_default().insert(a.depth, a.top1);
        }
        Surface(points)
    }

    /// Accuracy over depth as SVG, one curve per width; `None` without accuracies.
    pub fn plot(&self) -> Result<Option<String>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let curve = |(width, points): (&usize, &BTreeMap<usize, f64>)| {
            let points = points.iter().map(|(depth, top1)| (*depth as f64, *top1));
            Series::new(format!("width {width}"), &points.collect::<Vec<_>>())
        };
        let chart = Chart {
            title: "Accuracy of models made without data",
            x_label: "depth",
            y_label: "top-1",
            unit: Unit::Percent,
            series: &self.0.iter().map(curve).collect::<Vec<_>>(),
        };
        chart.svg().map(Some)
    }

    /// Expected accuracy of a size: outside the recorded range, that of the nearest recorded size; `None` without records.
    pub(crate) fn at(&self, depth: usize, width: usize) -> Option<f64> {
        let by_width = |(w, points): (&usize, &BTreeMap<usize, f64>)| {
            between(points, depth).map(|top1| (*w, top1))
        };
        between(&self.0.iter().filter_map(by_width).collect(), width)
    }

    /// Accuracy of a size and its source: recorded, or interpolated.
    pub fn expected(&self, depth: usize, width: usize) -> Option<(f64, &'static str)> {
        if let Some(top1) = self.0.get(&width).and_then(|points| points.get(&depth)) {
            return Some((*top1, "measured at this size, without data"));
        }
        let inside = self.nearest_size(depth, width)? == (depth, width);
        let from = "interpolated, not measured at this size";
        Some((self.at(depth, width)?, from)).filter(|_| inside)
    }

    /// The recorded range of depths, and of widths.
    pub(crate) fn range(&self) -> Option<((usize, usize), (usize, usize))> {
        let depths = || self.0.values().flat_map(|points| points.keys().copied());
        let widths = || self.0.keys().copied();
        Some((
            (depths().min()?, depths().max()?),
            (widths().min()?, widths().max()?),
        ))
    }

    /// The depth and the width nearest to these within the recorded range.
    pub(crate) fn nearest_size(&self, depth: usize, width: usize) -> Option<(usize, usize)> {
        let ((shallow, deep), (narrow, wide)) = self.range()?;
        Some((depth.clamp(shallow, deep), width.clamp(narrow, wide)))
    }
}

/// Linear interpolation between the points, and the nearest point outside their range.
fn between(points: &BTreeMap<usize, f64>, at: usize) -> Option<f64> {
    let below = points.range(..=at).next_back();
    let above = points.range(at..).next();
    match (below, above) {
        (Some((a, x)), Some((b, y))) if b > a => {
            Some(x + (y - x) * (at - a) as f64 / (b - a) as f64)
        }
        (one, other) => one.or(other).map(|(_, x)| *x),
    }
}

#[cfg(test)]
mod tests;
