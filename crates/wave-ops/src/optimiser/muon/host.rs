//! Muon on the CPU: one matrix per thread, in place.

use super::{MOMENTUM, QUINTIC, STEP_SIZE, STEPS};
use crate::buffer::Buffer;
use crate::cpu::Simd;
use crate::gemm::{StartValue, gemm, rows, transposed};
use rayon::prelude::*;

/// A step for stacked matrices (count, r, c) of a variable and its gradient.
pub(super) struct Step {
    /// Rows and columns.
    pub(super) size: (usize, usize),
    pub(super) learning_rate: f32,
    pub(super) weight_decay: f32,
    pub(super) gradient_scale: f32,
    pub(super) simd: Simd,
}

impl Step {
    /// A step for values `p` with gradients `g` and momentum `m`.
    pub(super) fn all(&self, p: &mut [f32], g: &[f32], m: &mut [f32]) {
        let n = self.size.0 * self.size.1;
        p.par_chunks_exact_mut(n)
            .zip(g.par_chunks_exact(n))
            .zip(m.par_chunks_exact_mut(n))
            .for_each(|((p, g), m)| self.one(p, g, m));
    }

    /// A step for one matrix.
    fn one(&self, p: &mut [f32], g: &[f32], m: &mut [f32]) {
        let (r, c) = self.size;
        let kept = 1.0 - self.learning_rate * self.weight_decay;
        p.iter_mut().for_each(|p| *p *= kept);
        if g.iter().all(|g| *g == 0.0) {
            return;
        }
        let scale = self.gradient_scale * (1.0 - MOMENTUM);
        let mut u = Buffer::stale(r * c);
        for ((u, m), g) in u.iter_mut().zip(m).zip(g) {
            let g = g * scale;
            *m = *m * MOMENTUM + g;
            *u = *m * MOMENTUM + g;
        }
        let mut change = Buffer::stale(r * c);
        orthogonal(self.simd, &u, self.size, &mut change);
        let size = self.learning_rate * (STEP_SIZE * (r.max(c) as f32).sqrt());
        for (p, change) in p.iter_mut().zip(change.iter()) {
            *p -= size * change;
        }
    }
}

/// The matrix (r, c) `u` with singular values of about 1 and the same singular vectors: Newton-Schulz iteration as in
/// [`super::orthogonal`], on its Gram matrix `S`, the smaller of `U Uᵀ` and `Uᵀ U`. A step multiplies the singular
/// values by `Q = a + b S + c S²`, so `S` becomes `Q S Q`, and the product `P` of all `Q` is applied to `U` once.
pub(super) fn orthogonal(simd: Simd, u: &[f32], (r, c): (usize, usize), out: &mut [f32]) {
    let n = r.min(c);
    let norm = u.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt() + 1e-12;
    let [mut s, mut squared, mut q, mut p, mut next] = [(); 5].map(|()| Buffer::stale(n * n));
    let product = |a: &[f32], b: &[f32], out: &mut [f32]| {
        let (a, b) = (rows(a, n), rows(b, n));
        gemm(simd, (n, n, n), a, b, StartValue::Zero, out, n);
    };
    let (plain, turned) = (rows(u, c), transposed(u, c));
    let (a, b) = if r <= c {
        (plain, turned)
    } else {
        (turned, plain)
    };
    gemm(simd, (n, n, r.max(c)), a, b, StartValue::Zero, &mut s, n);
    let inverse = 1.0 / (norm * norm);
    s.iter_mut()
        .for_each(|s| *s = (f64::from(*s) * inverse) as f32);
    let [a, b, c2] = QUINTIC.map(|x| x as f32);
    for step in 0..STEPS {
        product(&s, &s, &mut squared);
        for ((q, s), squared) in q.iter_mut().zip(s.iter()).zip(squared.iter()) {
            *q = b * s + c2 * squared;
        }
        for i in 0..n {
            q[i * n + i] += a;
        }
        match step {
            0 => p.copy_from_slice(&q),
            _ => {
                product(&q, &p, &mut next);
                std::mem::swap(&mut p, &mut next);
            }
        }
        if step + 1 < STEPS {
            product(&s, &q, &mut squared);
            product(&q, &squared, &mut s);
        }
    }
    let inverse = (1.0 / norm) as f32;
    p.iter_mut().for_each(|p| *p *= inverse);
    let p = rows(&p, n);
    let (a, b) = if r <= c { (p, plain) } else { (plain, p) };
    gemm(simd, (r, c, n), a, b, StartValue::Zero, out, c);
}
