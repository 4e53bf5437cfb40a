//! The record of a template directory about the shapes it makes: the accuracy to expect without
//! measuring it, and where a shape is outside the condensed range.

use crate::budget::Surface;
use wave_hub::{Provenance, ShapeAccuracy, TemplateConfig};
use wave_models::vit::VitShape;

/// The recorded properties of a shape.
const NAMES: [&str; 6] = [
    "depth",
    "width",
    "head width",
    "MLP ratio",
    "image size",
    "patch",
];
const DEPTH: usize = 0;
const WIDTH: usize = 1;

/// The properties of a shape, in the order of [`NAMES`].
fn properties(shape: &VitShape) -> [f64; 6] {
    [
        shape.depth as f64,
        shape.width as f64,
        shape.head_width() as f64,
        shape.mlp_ratio,
        shape.image_size as f64,
        shape.patch as f64,
    ]
}

/// The sampled values of each property, as far as they are recorded.
fn sampled(provenance: &Provenance) -> [Vec<f64>; 6] {
    let numbers = |sizes: &[usize]| sizes.iter().map(|n| *n as f64).collect::<Vec<f64>>();
    [
        numbers(&provenance.depths),
        numbers(&provenance.widths),
        numbers(&provenance.head_widths),
        provenance.mlp_ratios.clone(),
        numbers(&provenance.image_sizes),
        numbers(&provenance.patches),
    ]
}

/// The record of a template directory.
pub(crate) struct Record<'a> {
    auxiliary: &'a VitShape,
    provenance: &'a Provenance,
    surface: Surface,
    shapes: &'a [ShapeAccuracy],
}

impl<'a> Record<'a> {
    /// The record in a configuration, for templates with this auxiliary.
    pub(crate) fn new(config: &'a TemplateConfig, auxiliary: &'a VitShape) -> Record<'a> {
        Record {
            auxiliary,
            provenance: &config.provenance,
            surface: Surface::new(&config.accuracies),
            shapes: &config.shapes,
        }
    }

    /// The expected accuracy of a shape made without data, 0 to 1, and its source. If it was not measured, the losses
    /// of all properties in which it differs from measured shapes are added up; `None` if one is unknown.
    pub(crate) fn expected(&self, shape: &VitShape) -> Option<(f64, &'static str)> {
        let same = |a: &&ShapeAccuracy| self.shape_of(a) == *shape;
        if let Some(at) = self.shapes.iter().find(same) {
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
        let top1 = (self.surface.nearest(depth, width)? - loss).max(0.0);
        Some((
            top1,
            "estimated from shapes that each differ in one property",
        ))
    }

    /// A line for each property in which a shape is outside the condensed range, with the loss of
    /// accuracy, if recorded.
    pub(crate) fn outside(&self, shape: &VitShape) -> Vec<String> {
        let mut lines = Vec::new();
        for (property, (name, value)) in NAMES.into_iter().zip(properties(shape)).enumerate() {
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
        let nearest = self.surface.nearest_size(shape.depth, shape.width);
        let plain = self.auxiliary.with_size(shape.depth, shape.width);
        let (own, plain) = (properties(shape), properties(&plain));
        let differs = |property: &usize| match *property {
            DEPTH => nearest.map(|(depth, _)| depth) != Some(shape.depth),
            WIDTH => nearest.map(|(_, width)| width) != Some(shape.width),
            property => own[property] != plain[property],
        };
        (0..NAMES.len()).filter(differs).collect()
    }

    /// The smallest and the largest condensed value of a property. The auxiliary's was condensed even if it was never
    /// sampled, except for depth and width.
    fn condensed(&self, property: usize) -> (f64, f64) {
        let mut all = sampled(self.provenance)[property].clone();
        if all.is_empty() || ![DEPTH, WIDTH].contains(&property) {
            all.push(properties(self.auxiliary)[property]);
        }
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }

    /// The loss of accuracy of models that differ in this property alone, interpolated between the
    /// measured values; outside their range, that of the nearest.
    fn loss(&self, property: usize, value: f64) -> Option<f64> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for entry in self.shapes {
            let shape = self.shape_of(entry);
            if self.differing(&shape) == [property] {
                let plain = self.surface.nearest(entry.depth, entry.width)?;
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
            (Some((a, x)), Some((b, y))) => Some(x + (y - x) * (value - a) / (b - a)),
            (one, other) => one.or(other).map(|(_, x)| *x),
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

#[cfg(test)]
mod tests;
