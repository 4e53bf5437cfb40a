//! Pictures of a run: heat maps of matrices as PNG, charts as SVG.
//!
//! Every function returns the content of a file. Equal input gives equal bytes: no time stamp, font
//! file or hash order is involved.

use std::io::Cursor;

use anyhow::{Context, Result, bail, ensure};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{Rgb, RgbImage, imageops};

mod chart;

pub use chart::{Chart, Series, Unit};

/// A panel of a grid is enlarged until its larger side lies in (96, 192] pixels.
const LARGEST_PANEL_SIDE: usize = 192;
/// Width of the lines between panels and around the grid, in pixels.
const SEPARATOR: u64 = 4;
/// Largest number of pixels of a PNG; a larger picture would be a mistake.
const MOST_PIXELS: usize = 1 << 28;

const SEPARATOR_COLOUR: Rgb<u8> = Rgb([64, 64, 64]);
const NAN_COLOUR: Rgb<u8> = Rgb([160, 160, 160]);
// The ends of ColorBrewer's RdBu map, legible with every common colour blindness.
const NEGATIVE: [f32; 3] = [33.0, 102.0, 172.0];
const POSITIVE: [f32; 3] = [178.0, 24.0, 43.0];

/// A PNG of one matrix (rows, cols), a pixel for each value: blue is negative, white zero, red positive, grey not a
/// number.
///
/// The colours saturate at plus and minus the [`scale`], so that one outlier does not whiten the rest; infinities
/// take the end colours.
///
/// # Errors
/// If `rows * cols` is zero, differs from the number of values, or exceeds 2^28 pixels.
pub fn heat_map(rows: usize, cols: usize, values: &[f32]) -> Result<Vec<u8>> {
    encode_png(&tile(rows, cols, values, 1)?)
}

/// A PNG of many matrices, `columns` to a line, in the order given: left to right, then down.
///
/// A panel is a name (used in error messages only; the picture carries no text), rows, columns and values. Each is
/// coloured as by [`heat_map`] **on its own scale**, enlarged to a larger side of at most 192 pixels, and put at the
/// top left of its cell. A column of the grid is as wide as its widest panel and a line as high as its highest; dark
/// lines separate them.
pub fn heat_map_grid(
    panels: &[(String, usize, usize, Vec<f32>)],
    columns: usize,
) -> Result<Vec<u8>> {
    ensure!(
        !panels.is_empty(),
        "a heat map grid needs at least one panel"
    );
    ensure!(columns > 0, "a heat map grid needs at least one column");
    let panel = |(name, rows, cols, values): &(String, usize, usize, Vec<f32>)| {
        let tile = tile(*rows, *cols, values, LARGEST_PANEL_SIDE);
        tile.with_context(|| format!("panel `{name}`"))
    };
    let tiles: Vec<RgbImage> = panels.iter().map(panel).collect::<Result<_>>()?;
    let columns = columns.min(tiles.len());
    let mut widths = vec![0; columns];
    let mut heights = vec![0; tiles.len().div_ceil(columns)];
    for (i, tile) in tiles.iter().enumerate() {
        widths[i % columns] = tile.width().max(widths[i % columns]);
        heights[i / columns] = tile.height().max(heights[i / columns]);
    }
    let (lefts, width) = offsets(&widths);
    let (tops, height) = offsets(&heights);
    if width * height > MOST_PIXELS as u64 {
        bail!(
            "a picture of {width} x {height} pixels is too large (at most {MOST_PIXELS} in all); \
             draw fewer or smaller matrices"
        );
    }
    let mut picture = RgbImage::from_pixel(width as u32, height as u32, SEPARATOR_COLOUR);
    for (i, tile) in tiles.iter().enumerate() {
        imageops::replace(&mut picture, tile, lefts[i % columns], tops[i / columns]);
    }
    encode_png(&picture)
}

/// One matrix on its own colour scale, enlarged to at most `largest_side` pixels.
fn tile(rows: usize, cols: usize, values: &[f32], largest_side: usize) -> Result<RgbImage> {
    let Some(count) = rows.checked_mul(cols).filter(|&n| n <= MOST_PIXELS) else {
        bail!("a heat map of {rows} x {cols} values is too large; draw a part of it");
    };
    ensure!(
        count > 0 && count == values.len(),
        "a heat map of {rows} x {cols} needs {count} values (at least one), found {}",
        values.len()
    );
    let factor = (largest_side / rows.max(cols)).max(1);
    let scale = scale(values);
    let (width, height) = ((cols * factor) as u32, (rows * factor) as u32);
    Ok(RgbImage::from_fn(width, height, |x, y| {
        let (row, col) = (y as usize / factor, x as usize / factor);
        diverging(values[row * cols + col] / scale)
    }))
}

/// The value at the ends of a heat map's colours: the 99th percentile of the finite absolute values, or their
/// maximum where that is zero. All zeros give 1, so that division is always defined.
pub fn scale(values: &[f32]) -> f32 {
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
fn offsets(sizes: &[u32]) -> (Vec<i64>, u64) {
    let mut at = SEPARATOR;
    let starts = sizes.iter().map(|size| {
        let start = at as i64;
        at += u64::from(*size) + SEPARATOR;
        start
    });
    (starts.collect(), at)
}

fn encode_png(picture: &RgbImage) -> Result<Vec<u8>> {
    let mut bytes = Cursor::new(Vec::new());
    let encoder =
        PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive);
    let encoded = picture.write_with_encoder(encoder);
    encoded.context("cannot encode a PNG")?;
    Ok(bytes.into_inner())
}

#[cfg(test)]
#[path = "plot_tests.rs"]
mod tests;
