//! The record of a template directory about the shapes it makes: the accuracy to expect without
//! measuring it, and where a shape is outside the condensed range.

use crate::budget::Surface;
use wave_hub::{Provenance, ShapeAccuracy, TemplateConfig};
use wave_models::vit::VitShape;

/// A recorded property of a shape.
struct Property {
    /// Its name in messages.
    name: &'static str,
    /// The sampled values, as far as they are recorded.
    sampled: fn(&Provenance) -> Vec<f64>,
    /// True if the auxiliary's value was condensed too, even if never sampled.
    own: bool,
    of: fn(&VitShape) -> f64,
}

const PROPERTIES: [Property; 6] = [
    Property {
        name: "depth",
        sampled: |provenance| numbers(&provenance.depths),
        own: false,
        of: |shape| shape.depth as f64,
    },
    Property {
        name: "width",
        sampled: |provenance| numbers(&provenance.widths),
        own: false,
        of: |shape| shape.width as f64,
    },
    Property {
        name: "head width",
        sampled: |provenance| numbers(&provenance.head_widths),
        own: true,
        of: |shape| shape.head_width() as f64,
    },
    Property {
        name: "MLP ratio",
        sampled: |provenance| provenance.mlp_ratios.clone(),
        own: true,
        of: |shape| shape.mlp_ratio,
    },
    Property {
        name: "image size",
        sampled: |provenance| numbers(&provenance.image_sizes),
        own: true,
        of: |shape| shape.image_size as f64,
    },
    Property {
        name: "patch",
        sampled: |provenance| numbers(&provenance.patches),
        own: true,
        of: |shape| shape.patch as f64,
    },
];

fn numbers(sizes: &[usize]) -> Vec<f64> {
    sizes.iter().map(|n| *n as f64).collect()
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
        let losses = differing.into_iter().map(|p| self.loss(p, (p.of)(shape)));
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
        for property in &PROPERTIES {
            let value = (property.of)(shape);
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
            let name = property.name;
            let mut line = format!("{name} {value}, condensed {condensed}: {cost}");
            if name == "width" && value > most {
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
    fn differing(&self, shape: &VitShape) -> Vec<&'static Property> {
        let plain = self.auxiliary.with_size(shape.depth, shape.width);
        let known = self.surface.nearest_size(shape.depth, shape.width);
        let outside = |property: &&Property| match property.name {
            "depth" => known.map(|(depth, _)| depth) != Some(shape.depth),
            "width" => known.map(|(_, width)| width) != Some(shape.width),
            _ => (property.of)(shape) != (property.of)(&plain),
        };
        PROPERTIES.iter().filter(outside).collect()
    }

    /// The smallest and the largest condensed value of a property.
    fn condensed(&self, property: &Property) -> (f64, f64) {
        let mut all = (property.sampled)(self.provenance);
        if property.own || all.is_empty() {
            all.push((property.of)(self.auxiliary));
        }
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (least, most)
    }

    /// The loss of accuracy of models that differ in this property alone, interpolated between the
    /// measured values; outside their range, that of the nearest.
    fn loss(&self, property: &Property, value: f64) -> Option<f64> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for entry in self.shapes {
            let shape = self.shape_of(entry);
            if let [only] = self.differing(&shape)[..]
                && only.name == property.name
            {
                let plain = self.surface.nearest(entry.depth, entry.width)?;
                points.push(((property.of)(&shape), plain - entry.top1));
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
        Some(match (below, above) {
            (Some((a, x)), Some((b, y))) => x + (y - x) * (value - a) / (b - a),
            (Some((_, x)), None) | (None, Some((_, x))) => *x,
            (None, None) => return None,
        })
    }

    /// The value of a property nearest to `value` at which nothing is lost.
    fn without_loss(&self, property: &Property, value: f64) -> Option<f64> {
        let nearest = self.surface.nearest_size(value as usize, value as usize);
        match property.name {
            "depth" => nearest.map(|(depth, _)| depth as f64),
            "width" => nearest.map(|(_, width)| width as f64),
            _ => Some((property.of)(self.auxiliary)),
        }
    }
}

#[cfg(test)]
mod tests;
