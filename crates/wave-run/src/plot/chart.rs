//! Charts: curves and marks over common axes, as SVG on white, with names next to the lines' ends.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

/// A curve, or a mark if there is one point.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// `(x, y, spread)` in drawing order; y - spread to y + spread is shaded. A point with a coordinate that
    /// is not finite (or beyond f32's range) is skipped, and its neighbours joined.
    pub points: Vec<(f64, f64, f64)>,
    /// True for a colour of its own. The others are grey, and their spreads not drawn.
    pub strong: bool,
}

impl Series {
    /// A curve in a colour of its own.
    pub fn new(name: impl Into<String>, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.into(),
            points: points.iter().map(|&(x, y)| (x, y, 0.0)).collect(),
            strong: true,
        }
    }
}

/// The unit of the vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Numbers.
    Plain,
    /// Fractions, shown in percent. The axis spans at least two points.
    Percent,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart<'a> {
    /// The data, and the question that the chart answers.
    pub title: &'a str,
    /// The name of the horizontal axis.
    pub x_label: &'a str,
    /// The name of the vertical axis; empty if the title says it.
    pub y_label: &'a str,
    /// The unit of the vertical axis.
    pub unit: Unit,
    /// The curves, the most important first: it is drawn on top.
    pub series: &'a [Series],
}

/// Okabe and Ito's colours, told apart with every common colour blindness.
const STRONG: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(176, 128, 0),
    RGBColor(90, 80, 180),
];
const INK: RGBColor = RGBColor(34, 34, 34);
const GREY: RGBColor = RGBColor(150, 150, 150);
const GRID: RGBColor = RGBColor(224, 224, 224);

/// Width and height of the part with axes, in pixels.
const SIZE: (u32, u32) = (640, 420);
const NARROW: (u32, u32) = (400, 260);
const TITLE_HEIGHT: i32 = 40;
/// Font size of names, and the minimum distance between two of them.
const NAME: i32 = 14;
const NAME_STEP: f64 = 16.0;
/// Approximate width of a letter in a name.
const LETTER: f64 = 7.4;
/// Room for a line from a curve's end to its name.
const LEADER: i32 = 22;
/// A curve with more points gets no marks.
const MOST_MARKED: usize = 24;

impl<'a> Chart<'a> {
    /// A chart of values over the epochs of a training, which its title names.
    pub fn over_epochs(title: &'a str, unit: Unit, series: &'a [Series]) -> Chart<'a> {
        Chart {
            title,
            x_label: "epoch",
            y_label: "",
            unit,
            series,
        }
    }

    /// The chart as SVG. Equal charts give equal text.
    pub fn svg(&self) -> Result<String> {
        let longest = self.series.iter().map(|s| s.name.chars().count()).max();
        let room = longest.map_or(8, |n| LEADER as u32 + 8 + (LETTER * n as f64) as u32);
        let lines = TITLE_HEIGHT + 60 + (NAME_STEP * self.series.len() as f64) as i32;
        let size = (SIZE.0 + room, SIZE.1.max(lines as u32));
        self.picture(size, |root| {
            let curves = self.curves();
            let (_, below) = root.split_vertically(TITLE_HEIGHT);
            let (area, _) = below.split_horizontally(SIZE.0);
            let ends = self.draw(&area, &curves)?;
            name(root, &curves, &ends)
        })
    }

    /// The chart without names, as narrow as a phone screen.
    pub fn narrow(&self) -> Result<String> {
        self.picture(NARROW, |root| {
            let (_, below) = root.split_vertically(32);
            self.draw(&below, &self.curves()).map(drop)
        })
    }

    /// A white picture with the title, and the output of `draw` below it.
    fn picture(
        &self,
        size: (u32, u32),
        draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Result<()>,
    ) -> Result<String> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            root.fill(&WHITE)?;
            root.draw(&Text::new(self.title, (16, 10), text(17, INK)))?;
            draw(&root)?;
            root.present()?;
        }
        Ok(svg)
    }

    fn curves(&self) -> Vec<Curve<'_>> {
        let mut colours = (0..).map(colour);
        let mut curves = Vec::new();
        for series in self.series {
            let own = colours.by_ref().take(usize::from(series.strong)).next();
            curves.push(Curve::new(series, own.unwrap_or(GREY)));
        }
        curves
    }

    /// Draws axes around all points, and the curves. Returns the pixel where each curve ends.
    fn draw(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        curves: &[Curve],
    ) -> Result<Vec<Option<(i32, i32)>>> {
        let points = || curves.iter().flat_map(|c| c.line.iter().chain(&c.outline));
        let (x_min, x_max) = span(points().map(|p| p.0), 0.03, 0.0);
        let least = match self.unit {
            Unit::Plain => 0.0,
            Unit::Percent => 0.02,
        };
        let (y_min, y_max) = span(points().map(|p| p.1), 0.05, least);
        // Without a label, the axis needs room only for its numbers.
        let left = if self.y_label.is_empty() { 60 } else { 76 };
        let mut chart = ChartBuilder::on(area)
            .margin_left(8)
            .margin_right(4)
            .margin_bottom(8)
            .x_label_area_size(48)
            .y_label_area_size(left)
            .build_cartesian_2d(x_min..x_max, y_min..y_max)?;
        let ticks = (area.dim_in_pixel().0 / 90).clamp(4, 8) as usize;
        let y_tick = |y: &f64| match self.unit {
            Unit::Plain => tick(*y, y_max - y_min),
            Unit::Percent => tick(100.0 * y, 100.0 * (y_max - y_min)) + " %",
        };
        chart
            .configure_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels(ticks)
            .y_labels(7)
            .disable_x_mesh()
            .max_light_lines(1)
            .bold_line_style(GRID)
            .light_line_style(GRID)
            .axis_style(INK)
            .axis_desc_style(text(15, INK))
            .label_style(text(14, INK))
            .x_label_formatter(&|x| tick(*x, x_max - x_min))
            .y_label_formatter(&y_tick)
            .draw()?;
        // Grey below, and the first curve above all others.
        let mut order: Vec<&Curve> = curves.iter().rev().collect();
        order.sort_by_key(|curve| curve.series.strong);
        for curve in &order {
            if curve.series.strong && !curve.outline.is_empty() {
                let band = Polygon::new(curve.outline.clone(), curve.colour.mix(0.15));
                chart.draw_series(std::iter::once(band))?;
            }
        }
        for curve in order {
            let (width, radius) = if curve.series.strong { (2, 3) } else { (1, 2) };
            let style = curve.colour.stroke_width(width);
            chart.draw_series(LineSeries::new(curve.line.iter().copied(), style))?;
            if curve.line.len() <= MOST_MARKED {
                let style = curve.colour.filled();
                let marks = curve.line.iter().map(|&p| Circle::new(p, radius, style));
                chart.draw_series(marks)?;
            }
        }
        let pixel = |curve: &Curve| curve.line.last().map(|p| chart.backend_coord(p));
        Ok(curves.iter().map(pixel).collect())
    }
}

/// The part of a series that can be drawn.
struct Curve<'a> {
    series: &'a Series,
    colour: RGBColor,
    line: Vec<(f64, f64)>,
    /// Outline of the shaded area; empty if there is none.
    outline: Vec<(f64, f64)>,
}

impl<'a> Curve<'a> {
    fn new(series: &'a Series, colour: RGBColor) -> Curve<'a> {
        let points = &series.points;
        let mut outline = Vec::new();
        if series.strong && points.iter().any(|p| p.2 > 0.0) {
            outline.extend(points.iter().map(|&(x, y, spread)| (x, y + spread)));
            outline.extend(points.iter().rev().map(|&(x, y, spread)| (x, y - spread)));
        }
        Curve {
            series,
            colour,
            line: finite(points.iter().map(|&(x, y, _)| (x, y))),
            outline: finite(outline),
        }
    }
}

/// Writes the names right of the axes, apart from each other, with a thin line from each curve's end.
fn name(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    curves: &[Curve],
    ends: &[Option<(i32, i32)>],
) -> Result<()> {
    // A curve without points keeps its name, below the others.
    let lowest = root.dim_in_pixel().1 as i32 - 60;
    let ends = ends
        .iter()
        .map(|end| end.unwrap_or((SIZE.0 as i32, lowest)));
    let mut named: Vec<(&Curve, (i32, i32))> = curves.iter().zip(ends).collect();
    named.sort_by_key(|(_, (_, y))| *y);
    let wanted: Vec<f64> = named.iter().map(|(_, (_, y))| f64::from(*y)).collect();
    let range = (f64::from(TITLE_HEIGHT), f64::from(lowest + 40));
    for ((curve, (x, y)), at) in named.iter().zip(apart(&wanted, NAME_STEP, range)) {
        let to = (SIZE.0 as i32 + LEADER - 4, at.round() as i32);
        let thin = curve.colour.mix(0.6).stroke_width(1);
        root.draw(&PathElement::new(vec![(*x + 5, *y), to], thin))?;
        let place = (to.0 + 4, to.1 - NAME / 2);
        root.draw(&Text::new(
            &*curve.series.name,
            place,
            text(NAME, curve.colour),
        ))?;
    }
    Ok(())
}

/// Positions near those wanted, which ascend, at least `step` apart and within `range` where that has room.
fn apart(wanted: &[f64], step: f64, range: (f64, f64)) -> Vec<f64> {
    let mut at = Vec::with_capacity(wanted.len());
    let mut least = range.0;
    for want in wanted {
        let place = want.max(least);
        at.push(place);
        least = place + step;
    }
    let mut most = range.1;
    for place in at.iter_mut().rev() {
        *place = place.min(most);
        most = *place - step;
    }
    at
}

/// Text with this font size in pixels.
fn text(size: i32, colour: RGBColor) -> TextStyle<'static> {
    const OF_PIXEL: f64 = 1.24; // what plotters divides by
    ("sans-serif", OF_PIXEL * f64::from(size))
        .into_font()
        .color(&colour)
}

/// The points that can be drawn. Beyond the range of f32, differences could overflow f64.
fn finite(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let drawable = |v: f64| (v as f32).is_finite();
    points
        .into_iter()
        .filter(|&(x, y)| drawable(x) && drawable(y))
        .collect()
}

/// The range of an axis: all values and a margin on both sides, as a fraction of their range, and at least
/// `least` in all.
fn span(values: impl Iterator<Item = f64> + Clone, margin: f64, least: f64) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return (0.0, 1.0);
    }
    let size = low.abs().max(high.abs());
    // Ticks closer than the rounding error of the ends would coincide.
    let margin = if high - low > 1e-9 * size {
        margin * (high - low)
    } else if size > 0.0 {
        0.1 * size
    } else {
        0.5
    };
    let margin = margin.max((least - (high - low)) / 2.0);
    (low - margin, high + margin)
}

/// Label of a tick: enough decimals to tell neighbouring ticks apart, or a power of ten where those
/// would be long.
fn tick(value: f64, range: f64) -> String {
    // Up to the rounding error of summed steps.
    if value.abs() < 1e-9 * range {
        return "0".to_owned();
    }
    let digits = (1.0 - (range / 4.0).log10()).ceil().max(0.0);
    if range < 1e-3 || value.abs() >= 1e6 {
        let extra = (value.abs() / range).log10().ceil().clamp(0.0, 9.0) as usize;
        return format!("{value:.*e}", extra + 1);
    }
    let text = format!("{value:.*}", digits as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The colour of the i-th strong series: six that are easily told apart, then hues a golden angle apart.
fn colour(i: usize) -> RGBColor {
    match STRONG.get(i) {
        Some(&own) => own,
        None => {
            let hue = (i as f64 * 0.618_033_988_75).fract();
            let (r, g, b) = HSLColor(hue, 0.7, 0.45).to_backend_color().rgb;
            RGBColor(r, g, b)
        }
    }
}

#[cfg(test)]
#[path = "chart_tests.rs"]
mod tests;
