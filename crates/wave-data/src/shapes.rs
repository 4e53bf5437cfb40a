//! A procedural data set: grey images of eight kinds of figures.
//!
//! A figure has a random position, size, angle, contrast and polarity, on an uneven and noisy background.
//! No single pixel carries information on the class, so a linear classifier fails where a network that
//! can relate pixels succeeds. The same program makes the same images on every run.

use std::f32::consts::{PI, TAU};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::Dataset;
use crate::source::InMemory;

const SIDE: usize = 28;
const TRAIN: usize = 6000;
const TEST: usize = 1000;
const SEED: u64 = 0x5AA9E5;
/// The random stream of the first test image; the first training image has 0.
const FIRST_TEST: u64 = 1 << 32;

const CLASSES: [&str; 8] = [
    "disc", "ring", "square", "frame", "triangle", "cross", "star", "stripes",
];

/// Renders 6,000 training and 1,000 test images of 28 x 28 pixels, the classes in turn.
pub(crate) fn open() -> Dataset {
    let part = |first, n| {
        let draw = |i| Scene::new(first, i).draw();
        let pixels = (0..n).into_par_iter().flat_map_iter(draw);
        InMemory {
            size: (1, SIDE, SIDE),
            pixels: pixels.collect(),
            labels: (0..n).map(|i| (i % CLASSES.len()) as u8).collect(),
        }
    };
    let (train, test) = (part(0, TRAIN), part(FIRST_TEST, TEST));
    let class_names = CLASSES.map(str::to_owned).to_vec();
    Dataset::new("shapes".to_owned(), class_names, train, test)
}

/// Everything random about an image. Lengths are in pixels, brightness is from 0 to 1.
struct Scene {
    class: usize,
    centre: (f32, f32),
    radius: f32,
    angle: f32,
    ground: f32,
    contrast: f32,
    /// Brightness gradient from the centre to the border of the image, to the right and down.
    slope: (f32, f32),
    noise: f32,
    rng: ChaCha8Rng,
}

impl Scene {
    /// Image `i` of the part whose first image has the stream `first`.
    fn new(first: u64, i: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        rng.set_stream(first + i as u64);
        let radius = rng.random_range(6.5..10.5);
        let middle = SIDE as f32 / 2.0;
        let reach = middle - radius - 0.5; // the figure stays within the image
        let mut place = || middle + rng.random_range(-reach..reach);
        let centre = (place(), place());
        let angle = rng.random_range(0.0..TAU);
        let ground = rng.random_range(0.1..0.3);
        let contrast = rng.random_range(0.3..0.65);
        let inverted = rng.random_bool(0.35);
        let (steepness, direction) = (rng.random_range(0.0..0.15), rng.random_range(0.0..TAU));
        let (sin, cos) = f32::sin_cos(direction);
        Self {
            class: i % CLASSES.len(),
            centre,
            radius,
            angle,
            ground: if inverted { 1.0 - ground } else { ground },
            contrast: if inverted { -contrast } else { contrast },
            slope: (steepness * cos, steepness * sin),
            noise: rng.random_range(0.02..0.08),
            rng,
        }
    }

    /// (SIDE, SIDE)
    fn draw(mut self) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(SIDE * SIDE);
        let half = SIDE as f32 / 2.0;
        for row in 0..SIDE {
            for column in 0..SIDE {
                let (x, y) = (column as f32 + 0.5, row as f32 + 0.5);
                let uneven = (self.slope.0 * (x - half) + self.slope.1 * (y - half)) / half;
                let figure = self.contrast * self.coverage(self.class, x, y);
                // The sum of four bytes is nearly normal: mean 510, standard deviation 147.8.
                let bytes: [u8; 4] = self.rng.random();
                let sum: i32 = bytes.iter().map(|&b| i32::from(b)).sum();
                let noise = self.noise * (sum - 510) as f32 / 147.8;
                let value = self.ground + uneven + figure + noise;
                pixels.push((255.0 * value).round().clamp(0.0, 255.0) as u8);
            }
        }
        pixels
    }

    /// Fraction of the pixel around (x, y) that a figure of `class` covers in this pose: 0 to 1.
    fn coverage(&self, class: usize, x: f32, y: f32) -> f32 {
        let (sin, cos) = self.angle.sin_cos();
        let (x, y) = (x - self.centre.0, y - self.centre.1);
        let (u, v) = (cos * x + sin * y, cos * y - sin * x);
        let d = distance(class, u / self.radius, v / self.radius) * self.radius;
        let t = (0.5 - d / 1.5).clamp(0.0, 1.0); // an edge of one and a half pixels
        t * t * (3.0 - 2.0 * t)
    }
}

/// Signed distance from (x, y) to the outline of a figure that just fits into the unit disc,
/// negative within. Near the outline it is a true distance; farther away at least its sign is correct.
fn distance(class: usize, x: f32, y: f32) -> f32 {
    let r = x.hypot(y);
    match CLASSES[class] {
        "disc" => r - 0.9,
        "ring" => (r - 0.75).abs() - 0.2,
        "square" => bar(x, y, 0.68, 0.68),
        "frame" => bar(x, y, 0.55, 0.55).abs() - 0.16,
        "triangle" => {
            let side = |k: f32| x * (k * TAU / 3.0).sin() - y * (k * TAU / 3.0).cos();
            side(0.0).max(side(1.0)).max(side(2.0)) - 0.5
        }
        "cross" => bar(x, y, 0.95, 0.25).min(bar(x, y, 0.25, 0.95)),
        "star" => star(x, y, r),
        _ => [-0.62, 0.0, 0.62]
            .map(|offset| bar(x - offset, y, 0.17, 0.75))
            .into_iter()
            .fold(f32::INFINITY, f32::min),
    }
}

/// A rectangle of these half sides.
fn bar(x: f32, y: f32, half_x: f32, half_y: f32) -> f32 {
    let (dx, dy) = (x.abs() - half_x, y.abs() - half_y);
    dx.max(0.0).hypot(dy.max(0.0)) + dx.max(dy).min(0.0)
}

/// Five points, by folding the plane into half a point and measuring from the line between its tip
/// at radius 1 and the notch beside it.
fn star(x: f32, y: f32, r: f32) -> f32 {
    const NOTCH: f32 = 0.42;
    let sector = TAU / 5.0;
    let angle = (y.atan2(x).rem_euclid(sector) - sector / 2.0).abs(); // the notch at 0, the tip at PI / 5
    let (u, v) = (r * angle.cos(), r * angle.sin());
    let (tip_u, tip_v) = ((PI / 5.0).cos(), (PI / 5.0).sin());
    let (along_u, along_v) = (tip_u - NOTCH, tip_v);
    (along_v * (u - NOTCH) - along_u * v) / along_u.hypot(along_v)
}

#[cfg(test)]
#[path = "shapes_tests.rs"]
mod tests;
