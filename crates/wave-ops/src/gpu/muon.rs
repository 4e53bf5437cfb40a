//! Muon over stacked matrices: all matrices of a tensor in each launch.

use super::optimiser::address;
use super::{
    Argument, Factor, Kind, Place, Products, View, int, long, plain, transposed, with_views,
};
use crate::optimiser::Move;
use crate::optimiser::muon::{MOMENTUM, QUINTIC, STEP_SIZE, STEPS};
use candle_core::{Result, Tensor};

/// Threads of a block.
const THREADS: u32 = 256;
/// Minimum number of values in a part of a matrix, and maximum number of parts.
const PART: (usize, usize) = (4096, 32);

/// See [`crate::muon_step`], for matrices (count, r, c); `scale` is applied to gradients.
pub(crate) fn muon(
    place: &Place,
    moved: &Move,
    momentum: &Tensor,
    (count, r, c): (usize, usize, usize),
    scale: f32,
) -> Result<()> {
    let n = r * c;
    let gradient = moved.gradient.contiguous()?;
    let parts = |n: usize| n.div_ceil(PART.0).min(PART.1);
    let launch = |name: &str, grid: [usize; 2], arguments: &[Argument]| {
        place.launch(name, [grid[0], grid[1], 1], THREADS, arguments)
    };
    let grid = [parts(n), count];
    let room = |len| place.values(Kind::F32, len);
    let (of_g, of_u) = (room(count * parts(n))?, room(count * parts(n))?);
    let (mut x, mut next) = (room(count * n)?, room(count * n)?);
    let m = Argument::Pointer(address(place, momentum)?);
    with_views(place, [&gradient], |[g]| {
        let g = g.expect(Kind::F32, count * n);
        launch("muon_squares", grid, &arguments![g, of_g.view(), long(n)])?;
        let (u, of_g, of_u) = (x.view(), of_g.view(), of_u.view());
        let scale = scale * (1.0 - MOMENTUM);
        let arguments = arguments![g, of_g, m, u, of_u, long(n), MOMENTUM, scale,];
        launch("muon_momentum", grid, &arguments)?;
        launch("muon_normalise", grid, &arguments![u, of_u, long(n)])
    })?;

    // Newton-Schulz on the smaller side, S = X X^T or X^T X: X becomes P X or X P.
    let k = r.min(c);
    let (s, ss) = (room(count * k * k)?, room(count * k * k)?);
    let (s, ss) = (s.view(), ss.view());
    let [a, b, c2] = QUINTIC.map(|q| q as f32);
    let product = |size, a: Factor, b: Factor, c: View| {
        let how = Products {
            count,
            size,
            tf32: true,
        };
        place.products(how, a, b, c)
    };
    for _ in 0..STEPS {
        let (from, to) = (x.view(), next.view());
        let (left, right) = match r <= c {
            true => (plain(from), transposed(from)),
            false => (transposed(from), plain(from)),
        };
        product((k, k, r.max(c)), left, right, s)?;
        product((k, k, k), plain(s), plain(s), ss)?;
        let arguments = arguments![s, ss, long(k * k), int(k), a, b, c2,];
        launch("muon_polynomial", [parts(k * k), count], &arguments)?;
        let (left, right) = if r <= c { (ss, from) } else { (from, ss) };
        product((r, c, k), plain(left), plain(right), to)?;
        std::mem::swap(&mut x, &mut next);
    }

    let size = STEP_SIZE * (r.max(c) as f32).sqrt();
    let arguments = arguments![
        Argument::Pointer(address(place, moved.var)?),
        x.view(),
        long(count * n),
        moved.learning_rate,
        moved.weight_decay,
        size,
    ];
    let all = (count * n).div_ceil(THREADS as usize).min(4096);
    launch("muon_step", [all, 1], &arguments)
}
