//! Geometry: Pillow's affine transform with bicubic interpolation.

use crate::RawImage;

/// A map from output to input positions: `x' = a x + b y + c`, `y' = d x + e y + f`.
pub(crate) type Affine = [f64; 6];

/// Rotates about the centre, anticlockwise.
pub(crate) fn rotation(degrees: f64, width: usize, height: usize) -> Affine {
    let (sin, cos) = (-degrees.to_radians()).sin_cos();
    let (x, y) = (width as f64 / 2.0, height as f64 / 2.0);
    let (c, f) = (x - cos * x - sin * y, y + sin * x - cos * y);
    [cos, sin, c, -sin, cos, f]
}

/// Resamples; pixels from outside the image get the colour `fill`.
///
/// The kernel is Pillow's for transforms, the cubic with a = -1. The border is repeated beyond the image.
pub(crate) fn transform(image: &RawImage, map: &Affine, fill: [u8; 3]) -> RawImage {
    let (w, h, n) = (image.width, image.height, image.channels);
    let mut pixels = Vec::with_capacity(image.pixels.len());
    let [a, b, c, d, e, f] = *map;
    for row in 0..h {
        for column in 0..w {
            let (x, y) = (column as f64 + 0.5, row as f64 + 0.5);
            let (u, v) = (a * x + b * y + c, d * x + e * y + f);
            if !(0.0..w as f64).contains(&u) || !(0.0..h as f64).contains(&v) {
                pixels.extend_from_slice(&fill[..n]);
                continue;
            }
            let (columns, across) = neighbours(u - 0.5, w);
            let (rows, down) = neighbours(v - 0.5, h);
            let mut value = [0.0f32; 3];
            for (r, wr) in rows.into_iter().zip(down) {
                for (k, wk) in columns.into_iter().zip(across) {
                    let weight = wr * wk;
                    let at = &image.pixels[(r * w + k) * n..][..n];
                    for (sum, &x) in value.iter_mut().zip(at) {
                        *sum += weight * f32::from(x);
                    }
                }
            }
            // Truncated, as in Pillow; the offset keeps whole numbers exact despite 32-bit rounding.
            pixels.extend(value[..n].iter().map(|x| (x + 1e-4) as u8));
        }
    }
    RawImage { pixels, ..*image }
}

/// The four pixels around position `t` of an axis, and their weights.
fn neighbours(t: f64, length: usize) -> ([usize; 4], [f32; 4]) {
    let first = t.floor();
    let x = (t - first) as f32;
    let clamp = |offset: f64| (first + offset).clamp(0.0, (length - 1) as f64) as usize;
    let y = 1.0 - x;
    let weights = [
        -x * y * y,
        1.0 - x * x * (2.0 - x),
        1.0 - y * y * (2.0 - y),
        -y * x * x,
    ];
    ([-1.0, 0.0, 1.0, 2.0].map(clamp), weights)
}
