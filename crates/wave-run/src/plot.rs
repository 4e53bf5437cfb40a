//! Pictures of a run: heat maps of matrices as PNG, curves as SVG.
//!
//! Every function returns the content of a file. Equal input gives equal bytes: no time stamp, font
//! file or hash order is involved.

use std::io::Cursor;

use anyhow::{Context, Result, bail, ensure};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{ExtendedColorType, ImageEncoder, Rgb, RgbImage};
use plotters::prelude::*;

/// A single heat map is enlarged until its larger side lies in (256, 512] pixels.
const LARGEST_SIDE: usize = 512;
/// A panel of a grid is enlarged until its larger side lies in (96, 192] pixels.
const LARGEST_PANEL_SIDE: usize = 192;
/// Width of the lines between panels and around the grid, in pixels.
const SEPARATOR: usize = 4;
/// Largest number of pixels of a PNG; a larger picture would be a mistake.
const MOST_PIXELS: usize = 1 << 28;

const SEPARATOR_COLOUR: Rgb<u8> = Rgb([64, 64, 64]);
const NAN_COLOUR: Rgb<u8> = Rgb([160, 160, 160]);
// The ends of ColorBrewer's RdBu map, legible with every common colour blindness.
const NEGATIVE: [f32; 3] = [33.0, 102.0, 172.0];
const POSITIVE: [f32; 3] = [178.0, 24.0, 43.0];

/// A PNG of one matrix: blue is negative, white zero, red positive, grey not a number.
///
/// `values` holds `rows * cols` numbers in row-major order; row 0 is at the top. Each value becomes a
/// square of whole pixels, as large as keeps the larger side within 512 pixels and at least one
/// pixel. The colours saturate at plus and minus the 99th percentile of the absolute values, so that
/// one outlier does not whiten the rest; infinities take the end colours.
///
/// # Errors
/// If `rows * cols` is zero, differs from the number of values, or exceeds 2^28 pixels.
pub fn heat_map(rows: usize, cols: usize, values: &[f32]) -> Result<Vec<u8>> {
    lone_heat_map(rows, cols, values, LARGEST_SIDE)
}

/// [`heat_map`] with one pixel for each value, to be enlarged by the viewer.
///
/// # Errors
/// Those of [`heat_map`].
pub fn heat_map_of_pixels(rows: usize, cols: usize, values: &[f32]) -> Result<Vec<u8>> {
    lone_heat_map(rows, cols, values, 1)
}

fn lone_heat_map(rows: usize, cols: usize, values: &[f32], side: usize) -> Result<Vec<u8>> {
    let tile = Tile::new(rows, cols, values, side)?;
    let mut picture = blank(tile.width(), tile.height())?;
    tile.draw(&mut picture, 0, 0);
    encode_png(&picture)
}

/// A PNG of many matrices, `columns` to a line, in the order given: left to right, then down.
///
/// A panel is a name (used in error messages only; the picture carries no text), rows, columns and
/// row-major values. Each panel is coloured as by [`heat_map`] **on its own scale**, enlarged to a
/// larger side of at most 192 pixels, and put at the top left of its cell. A column of the grid is as
/// wide as its widest panel and a line as high as its highest; dark lines separate them.
///
/// # Errors
/// If there is no panel, `columns` is zero, a panel's shape and values disagree, or the picture would
/// exceed 2^28 pixels.
pub fn heat_map_grid(
    panels: &[(String, usize, usize, Vec<f32>)],
    columns: usize,
) -> Result<Vec<u8>> {
    ensure!(
        !panels.is_empty(),
        "a heat map grid needs at least one panel"
    );
    ensure!(columns > 0, "a heat map grid needs at least one column");
    let tiles = panels
        .iter()
        .map(|(name, rows, cols, values)| {
            Tile::new(*rows, *cols, values, LARGEST_PANEL_SIDE)
                .with_context(|| format!("panel `{name}`"))
        })
        .collect::<Result<Vec<_>>>()?;

    let columns = columns.min(tiles.len());
    let mut widths = vec![0; columns];
    let mut heights = vec![0; tiles.len().div_ceil(columns)];
    for (i, tile) in tiles.iter().enumerate() {
        widths[i % columns] = tile.width().max(widths[i % columns]);
        heights[i / columns] = tile.height().max(heights[i / columns]);
    }
    let (lefts, width) = offsets(&widths);
    let (tops, height) = offsets(&heights);
    let mut picture = blank(width, height)?;
    for (i, tile) in tiles.iter().enumerate() {
        tile.draw(&mut picture, lefts[i % columns], tops[i / columns]);
    }
    encode_png(&picture)
}

/// An SVG of curves over common axes, with a legend to their right.
///
/// Each series is a name and its `(x, y)` points in drawing order. Points with a coordinate that is
/// not finite (or beyond f32's range) are skipped and their neighbours joined. A series of few points,
/// or of one, also gets markers; one without any keeps its line in the legend. The axes cover all
/// points with a small margin, and 0..1 if there are none. The picture grows with the legend, so
/// that long names and many series fit.
///
/// # Errors
/// Only if the drawing itself fails.
pub fn line_plot(
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[(String, Vec<(f64, f64)>)],
) -> Result<String> {
    let curves: Vec<(&str, Curve)> = series
        .iter()
        .map(|(name, points)| (name.as_str(), Curve::line(points)))
        .collect();
    plot(title, x_label, y_label, &curves)
}

/// Name and `(x, y, spread)` of a curve.
pub type Band = (String, Vec<(f64, f64, f64)>);

/// [`line_plot`] of `(x, y, spread)`, with y - spread..y + spread shaded around each curve.
///
/// # Errors
/// Only if the drawing itself fails.
pub fn band_plot(title: &str, x_label: &str, y_label: &str, series: &[Band]) -> Result<String> {
    let curves: Vec<(&str, Curve)> = series
        .iter()
        .map(|(name, points)| (name.as_str(), Curve::band(points)))
        .collect();
    plot(title, x_label, y_label, &curves)
}

fn plot(title: &str, x_label: &str, y_label: &str, series: &[(&str, Curve)]) -> Result<String> {
    const CHART: (u32, u32) = (720, 440);
    const LEGEND_LINE: i32 = 20;
    const LEGEND_TOP: i32 = 48;

    let longest = series.iter().map(|(name, _)| name.chars().count()).max();
    let legend_width = longest.map_or(16, |n| 56 + 8 * n as u32);
    let legend_height = (LEGEND_TOP + LEGEND_LINE * series.len() as i32) as u32;
    let size = (CHART.0 + legend_width, CHART.1.max(legend_height));

    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let (chart_area, legend_area) = root.split_horizontally(CHART.0);
        let curves: Vec<&Curve> = series.iter().map(|(_, curve)| curve).collect();
        draw_curves(&chart_area, title, x_label, y_label, &curves)?;
        for (i, (name, _)) in series.iter().enumerate() {
            let y = LEGEND_TOP + LEGEND_LINE * i as i32;
            let line = PathElement::new(vec![(4, y), (26, y)], colour(i).stroke_width(3));
            legend_area.draw(&line)?;
            let text = Text::new(*name, (34, y - 6), ("sans-serif", 13));
            legend_area.draw(&text)?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// [`line_plot`] of one unnamed curve, as wide as a telephone.
///
/// # Errors
/// Only if the drawing itself fails.
pub fn narrow_line_plot(title: &str, x_label: &str, points: &[(f64, f64)]) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (400, 260)).into_drawing_area();
        draw_curves(&root, title, x_label, "", &[&Curve::line(points)])?;
        root.present()?;
    }
    Ok(svg)
}

/// The drawing of a series.
struct Curve {
    line: Vec<(f64, f64)>,
    /// Outline of the shaded area; empty where there is none.
    outline: Vec<(f64, f64)>,
}

impl Curve {
    fn line(points: &[(f64, f64)]) -> Curve {
        Curve {
            line: finite(points),
            outline: Vec::new(),
        }
    }

    fn band(points: &[(f64, f64, f64)]) -> Curve {
        let line: Vec<(f64, f64)> = points.iter().map(|&(x, y, _)| (x, y)).collect();
        let mut outline = Vec::new();
        if points.iter().any(|p| p.2 > 0.0) {
            outline.extend(points.iter().map(|&(x, y, spread)| (x, y + spread)));
            outline.extend(points.iter().rev().map(|&(x, y, spread)| (x, y - spread)));
        }
        Curve {
            line: finite(&line),
            outline: finite(&outline),
        }
    }
}

/// Draws axes around all points, and the curves.
fn draw_curves(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    x_label: &str,
    y_label: &str,
    curves: &[&Curve],
) -> Result<()> {
    const MOST_MARKED: usize = 24;

    let points = || curves.iter().flat_map(|c| c.line.iter().chain(&c.outline));
    let (x_min, x_max) = span(points().map(|p| p.0), 0.02);
    let (y_min, y_max) = span(points().map(|p| p.1), 0.05);
    // Without a label, the axis needs room only for its numbers.
    let left = if y_label.is_empty() { 60 } else { 68 };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(left)
        .build_cartesian_2d(x_min..x_max, y_min..y_max)?;
    let ticks = (area.dim_in_pixel().0 / 90).clamp(4, 8) as usize;
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc(y_label)
        .x_labels(ticks)
        .y_labels(8)
        .max_light_lines(1)
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 12))
        .x_label_formatter(&|x| tick(*x, x_max - x_min))
        .y_label_formatter(&|y| tick(*y, y_max - y_min))
        .draw()?;
    for (i, curve) in curves.iter().enumerate() {
        if !curve.outline.is_empty() {
            let band = Polygon::new(curve.outline.clone(), colour(i).mix(0.15));
            chart.draw_series(std::iter::once(band))?;
        }
    }
    for (i, curve) in curves.iter().enumerate() {
        let colour = colour(i);
        let line = LineSeries::new(curve.line.iter().copied(), colour.stroke_width(2));
        chart.draw_series(line)?;
        if curve.line.len() <= MOST_MARKED {
            let markers = curve
                .line
                .iter()
                .map(|&p| Circle::new(p, 3, colour.filled()));
            chart.draw_series(markers)?;
        }
    }
    Ok(())
}

/// One matrix with its enlargement and colour scale.
struct Tile<'a> {
    rows: usize,
    cols: usize,
    values: &'a [f32],
    factor: usize,
    scale: f32,
}

impl<'a> Tile<'a> {
    fn new(rows: usize, cols: usize, values: &'a [f32], largest_side: usize) -> Result<Self> {
        let count = rows.checked_mul(cols).filter(|&n| n <= MOST_PIXELS);
        let Some(count) = count else {
            bail!("a heat map of {rows} x {cols} values is too large; draw a part of it");
        };
        ensure!(
            count > 0 && count == values.len(),
            "a heat map of {rows} x {cols} needs {count} values (at least one), found {}",
            values.len()
        );
        Ok(Tile {
            rows,
            cols,
            values,
            factor: (largest_side / rows.max(cols)).max(1),
            scale: robust_scale(values),
        })
    }

    fn width(&self) -> usize {
        self.cols * self.factor
    }

    fn height(&self) -> usize {
        self.rows * self.factor
    }

    /// Fills the tile's pixels; the picture is at least `left + width` by `top + height`.
    fn draw(&self, picture: &mut RgbImage, left: usize, top: usize) {
        for y in 0..self.height() {
            for x in 0..self.width() {
                let value = self.values[y / self.factor * self.cols + x / self.factor];
                let pixel = diverging(value / self.scale);
                picture.put_pixel((left + x) as u32, (top + y) as u32, pixel);
            }
        }
    }
}

/// The 99th percentile of the finite absolute values, or their maximum where that is zero. All zeros
/// give 1, so that division is always defined.
fn robust_scale(values: &[f32]) -> f32 {
    let mut sizes: Vec<f32> = values
        .iter()
        .map(|v| v.abs())
        .filter(|v| v.is_finite())
        .collect();
    sizes.sort_by(f32::total_cmp);
    let percentile = sizes.get((sizes.len() * 99).div_ceil(100).saturating_sub(1));
    [percentile, sizes.last()]
        .into_iter()
        .flatten()
        .copied()
        .find(|&scale| scale > 0.0)
        .unwrap_or(1.0)
}

/// The colour of `t` in [-1, 1], blue over white to red, clamped outside; NaN is grey.
fn diverging(t: f32) -> Rgb<u8> {
    if t.is_nan() {
        return NAN_COLOUR;
    }
    let end = if t < 0.0 { NEGATIVE } else { POSITIVE };
    let t = t.abs().min(1.0);
    Rgb(end.map(|c| (255.0 + (c - 255.0) * t).round() as u8))
}

/// Start of each cell in a line, with separators between and around, and the total length.
fn offsets(sizes: &[usize]) -> (Vec<usize>, usize) {
    let mut at = SEPARATOR;
    let starts = sizes.iter().map(|size| {
        let start = at;
        at += size + SEPARATOR;
        start
    });
    (starts.collect(), at)
}

fn blank(width: usize, height: usize) -> Result<RgbImage> {
    let pixels = width.checked_mul(height);
    match (pixels, u32::try_from(width), u32::try_from(height)) {
        (Some(pixels), Ok(width), Ok(height)) if pixels <= MOST_PIXELS => {
            Ok(RgbImage::from_pixel(width, height, SEPARATOR_COLOUR))
        }
        _ => bail!(
            "a picture of {width} x {height} pixels is too large (at most {MOST_PIXELS} in all); \
             draw fewer or smaller matrices"
        ),
    }
}

fn encode_png(picture: &RgbImage) -> Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive)
        .write_image(
            picture.as_raw(),
            picture.width(),
            picture.height(),
            ExtendedColorType::Rgb8,
        )
        .context("encoding a PNG")?;
    Ok(bytes.into_inner())
}

/// The points that can be drawn. Beyond the range of f32, differences could overflow f64.
fn finite(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let drawable = |v: f64| (v as f32).is_finite();
    points
        .iter()
        .copied()
        .filter(|&(x, y)| drawable(x) && drawable(y))
        .collect()
}

/// The range of an axis: all values and a margin on both sides, as a fraction of their range.
fn span(values: impl Iterator<Item = f64> + Clone, margin: f64) -> (f64, f64) {
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
    (low - margin, high + margin)
}

/// Label of a tick: enough decimals to tell neighbouring ticks apart, or a power of ten where those
/// would be long.
fn tick(value: f64, range: f64) -> String {
    // Zero, up to the rounding error of summed steps.
    let value = if value.abs() < 1e-9 * range {
        0.0
    } else {
        value
    };
    let digits = (1.0 - (range / 4.0).log10()).ceil().max(0.0);
    if range < 1e-3 || value.abs() >= 1e6 {
        let extra = (value.abs() / range).log10().ceil().clamp(0.0, 9.0) as usize;
        return if value == 0.0 {
            "0".to_owned()
        } else {
            format!("{value:.*e}", extra + 1)
        };
    }
    let text = format!("{value:.*}", digits as usize);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The colour of the i-th series: ten distinct ones, then hues a golden angle apart.
fn colour(i: usize) -> RGBColor {
    const FIRST: [(u8, u8, u8); 10] = [
        (31, 119, 180),
        (214, 39, 40),
        (44, 160, 44),
        (255, 127, 14),
        (148, 103, 189),
        (23, 190, 207),
        (140, 86, 75),
        (227, 119, 194),
        (127, 127, 127),
        (188, 189, 34),
    ];
    match FIRST.get(i) {
        Some(&(r, g, b)) => RGBColor(r, g, b),
        None => {
            let hue = (i as f64 * 0.618_033_988_75).fract();
            let (r, g, b) = HSLColor(hue, 0.7, 0.4).to_backend_color().rgb;
            RGBColor(r, g, b)
        }
    }
}

#[cfg(test)]
#[path = "plot_tests.rs"]
mod tests;
