//! The recurrence of a selective state space layer (Gu and Dao 2023, algorithm 2):
//!
//! ```text
//! h_t = exp(A s_t) h_{t-1} + s_t B_t x_t        for each channel d and entry n of its state
//! y_t = sum over n of C_t h_t
//! ```
//!
//! Letters in shape comments: `b` sequences, `t` positions, `e` channels, `n` state.

use crate::fused::{Gradients, Operator, Output, call, gradients};
use crate::simd::{dot, exp, sum, vectorised};
use crate::stock;
use crate::storage::{fused, with_slices};
use crate::threads::{split, sum_over, thread_ranges};
use candle_core::{Layout, Result, Tensor};
use rayon::prelude::*;

/// The outputs y of the recurrence, starting from a state of zero.
///
/// # Shapes
/// `x` and step sizes `step` (b, t, e), `a` (e, n), `input` B and `output` C (b, t, n) give (b, t, e).
pub fn selective_scan(
    x: &Tensor,
    step: &Tensor,
    a: &Tensor,
    input: &Tensor,
    output: &Tensor,
) -> Result<Tensor> {
    let ((b, t, e), (rows, n)) = (x.dims3()?, a.dims2()?);
    let fits = step.dims() == x.dims()
        && rows == e
        && [input, output].iter().all(|m| m.dims() == [b, t, n])
        && e * n > 0;
    if !fits {
        let [x, step, a, b, c] = [x, step, a, input, output].map(Tensor::dims);
        candle_core::bail!(
            "selective scan of {x:?} with steps {step:?}, A {a:?}, B {b:?} and C {c:?}"
        );
    }
    if fused(&[x, step, a, input, output])? {
        // An operator takes at most three arguments.
        let steps = Tensor::cat(&[x, step], 2)?.contiguous()?;
        let maps = Tensor::cat(&[input, output], 2)?.contiguous()?;
        call(SelectiveScan, [&steps, a, &maps])
    } else {
        stock::selective_scan(x, step, a, input, output)
    }
}

/// One sequence: at every position, `x` and `step` (t, 2 e), `B` and `C` (t, 2 n).
#[derive(Clone, Copy)]
struct Sequence<'a> {
    steps: &'a [f32],
    a: &'a [f32],
    maps: &'a [f32],
    e: usize,
    n: usize,
}

impl<'a> Sequence<'a> {
    /// Sequence `i` of `steps` (b, t, 2 e), `a` (e, n) and `maps` (b, t, 2 n).
    fn new(
        [steps, a, maps]: [&'a [f32]; 3],
        (t, e, n): (usize, usize, usize),
        i: usize,
    ) -> Sequence<'a> {
        Sequence {
            steps: &steps[i * t * 2 * e..(i + 1) * t * 2 * e],
            a,
            maps: &maps[i * t * 2 * n..(i + 1) * t * 2 * n],
            e,
            n,
        }
    }

    /// `x`, `step`, `B` and `C` of every position.
    fn positions(self) -> impl DoubleEndedIterator<Item = [&'a [f32]; 4]> + ExactSizeIterator {
        let steps = self.steps.chunks_exact(2 * self.e);
        let maps = self.maps.chunks_exact(2 * self.n);
        steps.zip(maps).map(move |(steps, maps)| {
            let ((x, step), (b, c)) = (steps.split_at(self.e), maps.split_at(self.n));
            [x, step, b, c]
        })
    }
}

/// Advances the states `from` (e, n) by one position, into `to`.
#[inline(always)]
fn advance(s: Sequence, [x, step, b, _]: [&[f32]; 4], from: &[f32], to: &mut [f32]) {
    let n = s.n;
    for d in 0..s.e {
        let (step, gain) = (step[d], step[d] * x[d]);
        let at = d * n..(d + 1) * n;
        let (a, from, to) = (&s.a[at.clone()], &from[at.clone()], &mut to[at]);
        for i in 0..n {
            to[i] = exp(a[i] * step).mul_add(from[i], gain * b[i]);
        }
    }
}

/// `y` (t, e).
#[inline(always)]
fn forward(s: Sequence, y: &mut [f32]) {
    let mut states = [vec![0.0; s.e * s.n], vec![0.0; s.e * s.n]];
    for (position, y) in s.positions().zip(y.chunks_exact_mut(s.e)) {
        let [from, to] = &mut states;
        advance(s, position, from, to);
        for (y, h) in y.iter_mut().zip(to.chunks_exact(s.n)) {
            *y = dot(h, position[3]);
        }
        states.swap(0, 1);
    }
}

/// Gradients of one sequence; those of `steps` and `maps` are written, that of `a` is added.
///
/// With `g_t` the gradient of the state, `g_t = dy_t C_t + exp(A s_{t+1}) g_{t+1}` and
///
/// ```text
/// dC_t = sum over d of dy_t h_t      dB_t = sum over d of g_t s_t x_t      dx_t = s_t (g_t . B_t)
/// ds_t = x_t (g_t . B_t) + sum over n of g_t A k_t,     dA = sum over t of g_t s_t k_t
/// ```
///
/// where `k_t = exp(A s_t) h_{t-1}` is the decayed previous state. The states are recomputed.
#[inline(always)]
fn backward(s: Sequence, dy: &[f32], d_steps: &mut [f32], d_maps: &mut [f32], da: &mut [f32]) {
    let (e, n) = (s.e, s.n);
    let size = e * n;
    let t = dy.len() / e;
    let mut states = vec![0.0; (t + 1) * size]; // h_0 = 0 comes first
    for (i, position) in s.positions().enumerate() {
        let (before, after) = states.split_at_mut((i + 1) * size);
        advance(s, position, &before[i * size..], &mut after[..size]);
    }
    let mut g = vec![0.0; size];
    let (mut slopes, mut decays) = (vec![0.0; n], vec![0.0; n]);
    for (i, [x, step, b, c]) in s.positions().enumerate().rev() {
        let (h, dy) = (&states[i * size..], &dy[i * e..(i + 1) * e]);
        let (dx, d_step) = d_steps[i * 2 * e..(i + 1) * 2 * e].split_at_mut(e);
        let (db, dc) = d_maps[i * 2 * n..(i + 1) * 2 * n].split_at_mut(n);
        for d in 0..e {
            let at = d * n..(d + 1) * n;
            let (before, after) = (&h[at.clone()], &h[size + d * n..size + (d + 1) * n]);
            let (a, g, da) = (&s.a[at.clone()], &mut g[at.clone()], &mut da[at]);
            let (step, gain, dy) = (step[d], step[d] * x[d], dy[d]);
            for k in 0..n {
                dc[k] = dy.mul_add(after[k], dc[k]);
                g[k] = dy.mul_add(c[k], g[k]);
                db[k] = g[k].mul_add(gain, db[k]);
                decays[k] = exp(a[k] * step);
                let slope = g[k] * decays[k] * before[k];
                da[k] = slope.mul_add(step, da[k]);
                slopes[k] = slope * a[k];
            }
            let along = dot(g, b);
            dx[d] = step * along;
            d_step[d] = x[d].mul_add(along, sum(&slopes));
            for k in 0..n {
                g[k] *= decays[k];
            }
        }
    }
}

struct SelectiveScan;

impl Operator<3> for SelectiveScan {
    const NAME: &'static str = "selective-scan";

    fn forward(&self, [steps, a, maps]: [&[f32]; 3], [ls, la, _]: [&Layout; 3]) -> Result<Output> {
        let ((b, t, _), (e, n)) = (ls.shape().dims3()?, la.shape().dims2()?);
        let mut y = vec![0.0; b * t * e];
        if !y.is_empty() {
            y.par_chunks_mut(t * e).enumerate().for_each(|(i, y)| {
                let s = Sequence::new([steps, a, maps], (t, e, n), i);
                vectorised!(forward(s, y));
            });
        }
        Ok((y, (b, t, e).into()))
    }

    fn backward(&self, [steps, a, maps]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let ((b, t, _), (e, n)) = (steps.dims3()?, a.dims2()?);
        let (per, last) = (t * 2 * e, t * 2 * n);
        let (d_steps, da, d_maps) = with_slices([steps, a, maps, dy], |[steps, a, maps, dy]| {
            // The gradients of `steps` and `maps` are per sequence; the gradient of `a` is a sum.
            let mut d_steps = vec![0.0; b * per];
            let mut d_maps = vec![0.0; b * last];
            let ranges = thread_ranges(b);
            let steps_of = split(&mut d_steps, b, &ranges);
            let maps_of = split(&mut d_maps, b, &ranges);
            let jobs = ranges.iter().cloned().zip(steps_of.zip(maps_of)).collect();
            let da = sum_over(e * n, jobs, |(range, (d_steps, d_maps)), da| {
                let parts = d_steps.chunks_mut(per).zip(d_maps.chunks_mut(last));
                for (i, (d_steps, d_maps)) in range.zip(parts) {
                    let s = Sequence::new([steps, a, maps], (t, e, n), i);
                    let dy = &dy[i * t * e..(i + 1) * t * e];
                    vectorised!(backward(s, dy, d_steps, d_maps, da));
                }
            });
            (d_steps, da, d_maps)
        })?;
        gradients([steps, a, maps], [Some(d_steps), Some(da), Some(d_maps)])
    }
}
