//! One transformer layer forward and backward, for a few samples at a time.

use super::activations::{Chunk, LayerActivations};
use super::parameters::{LayerWeights, Pairs, SlabsMut, pairs};
use crate::arithmetic::Precision;
use crate::attention::{self, AttentionShape};
use crate::bf16::{narrowed, widened};
use crate::buffer::Buffer;
use crate::gelu;
use crate::gemm::{StartValue, rows, transposed};
use crate::layer_norm;
use crate::profile::{Part, part};
use crate::shape::BlocksShape;
use crate::simd::{add_column_sums, vectorised};
use pulp::bytemuck;
use std::ops::Range;

/// The context of a thread's work.
pub(super) struct Pass<'a> {
    pub(super) precision: Precision,
    pub(super) shape: BlocksShape,
    pub(super) n: usize,
    pub(super) batch: usize,
    pub(super) drop_path: Option<&'a [f32]>,
}

/// A layer's parameters, with its matrices packed for one direction.
pub(super) struct Layer<'a> {
    pub(super) index: usize,
    pub(super) parameters: Pairs<&'a [f32]>,
    pub(super) weights: LayerWeights,
}

impl Pass<'_> {
    /// One layer forward: reads `c.x`, fills the rest of `c`, writes `y` (tokens, d).
    pub(super) fn forward(
        &self,
        layer: &Layer,
        samples: &Range<usize>,
        c: &mut Chunk,
        y: &mut [f32],
    ) {
        let (d, hidden) = (self.shape.width, self.shape.hidden);
        let [qkv, proj, fc1, fc2] = &layer.weights;
        let [norm1, [_, qkv_b], [_, proj_b], ..] = layer.parameters;
        let [.., norm2, [_, fc1_b], [_, fc2_b]] = layer.parameters;
        let t = samples.len() * self.n;
        let mut normed = Buffer::stale(t * d);

        // u = x + s1 (attention(norm1(x) Wqkv^T + bqkv) Wproj^T + bproj)
        self.norm(c.x, norm1, &mut normed);
        qkv.multiply((t, 3 * d, d), &normed, StartValue::Row(qkv_b), c.qkv);
        let shape = self.attention();
        let mut p = Buffer::stale(shape.scores());
        let inputs = c.qkv.chunks_exact(self.n * 3 * d);
        let measured = part(Part::Attention);
        for (qkv, o) in inputs.zip(c.o.chunks_exact_mut(self.n * d)) {
            attention::forward(self.precision, shape, qkv, o, &mut p);
        }
        drop(measured);
        proj.multiply((t, d, d), c.o, StartValue::Zero, c.u);
        self.add_residual(c.x, proj_b, self.scales(layer.index, 0, samples), c.u);

        // y = u + s2 (gelu(norm2(u) Wfc1^T + bfc1) Wfc2^T + bfc2)
        self.norm(c.u, norm2, &mut normed);
        let mut active = Buffer::stale(t * hidden);
        let h = match self.precision {
            Precision::F32 => &mut *c.h,
            Precision::Bf16 => &mut active[..],
        };
        fc1.multiply((t, hidden, d), &normed, StartValue::Row(fc1_b), h);
        self.activate(c.h, &mut active);
        fc2.multiply((t, d, hidden), &active, StartValue::Zero, y);
        self.add_residual(c.u, fc2_b, self.scales(layer.index, 1, samples), y);
    }

    /// Buffers for a layer's activations for this number of samples.
    pub(super) fn activations(&self, samples: usize) -> LayerActivations {
        let (d, hidden) = (self.shape.width, self.shape.hidden);
        let hidden = match self.precision {
            Precision::F32 => hidden,
            Precision::Bf16 => hidden.div_ceil(2),
        };
        let room = |width| Buffer::stale(samples * self.n * width);
        [d, 3 * d, d, d, hidden].map(room).into()
    }

    /// Recomputes the layers' activations from `x` (tokens, d), which becomes their output.
    pub(super) fn again(
        &self,
        layers: &[Layer],
        samples: &Range<usize>,
        x: &mut [f32],
    ) -> Vec<LayerActivations> {
        let one = |layer: &Layer| {
            let mut kept = self.activations(samples.len());
            let mut c = kept.whole();
            c.x.copy_from_slice(x);
            self.forward(layer, samples, &mut c, x);
            kept
        };
        layers.iter().map(one).collect()
    }

    /// One layer backward: turns `g`, the gradient of the layer's output, into that of its input,
    /// and adds to the parameters' gradients.
    pub(super) fn backward(
        &self,
        layer: &Layer,
        samples: &Range<usize>,
        c: &Chunk,
        g: &mut [f32],
        grads: &mut SlabsMut,
    ) {
        let (d, hidden) = (self.shape.width, self.shape.hidden);
        let [qkv, proj, fc1, fc2] = &layer.weights;
        let [norm1, _, _, norm2, ..] = layer.parameters;
        let [dw_norm1, dw_qkv, dw_proj, dw_norm2, dw_fc1, dw_fc2] = pairs(grads);
        let t = samples.len() * self.n;
        let mut normed = Buffer::stale(t * d);
        let mut d_normed = Buffer::stale(t * d);

        // y = u + s2 (a Wfc2^T + bfc2), a = gelu(h):
        // da = s2 g Wfc2    dWfc2 = (s2 g)^T a    dbfc2 = sum(s2 g)    dh = da gelu'(h)
        let branch = self.scaled(g, self.scales(layer.index, 1, samples));
        let branch = branch.as_deref().unwrap_or(g);
        let (mut active, mut d_h) = (Buffer::stale(t * hidden), Buffer::stale(t * hidden));
        fc2.multiply((t, hidden, d), branch, StartValue::Zero, &mut d_h);
        self.activate_backward(c.h, &mut active, &mut d_h);
        self.affine_gradients((t, d, hidden), branch, &active, dw_fc2);

        // h = norm2(u) Wfc1^T + bfc1:
        // dnorm2 = dh Wfc1    dWfc1 = dh^T norm2(u)    dbfc1 = sum(dh)    du = g + norm2'(dnorm2)
        self.norm(c.u, norm2, &mut normed);
        self.affine_gradients((t, hidden, d), &d_h, &normed, dw_fc1);
        fc1.multiply((t, d, hidden), &d_h, StartValue::Zero, &mut d_normed);
        self.norm_backward(c.u, norm2, &mut d_normed, g, dw_norm2);

        // u = x + s1 (o Wproj^T + bproj):
        // do = s1 du Wproj    dWproj = (s1 du)^T o    dbproj = sum(s1 du)
        let branch = self.scaled(g, self.scales(layer.index, 0, samples));
        let branch = branch.as_deref().unwrap_or(g);
        let mut d_o = Buffer::stale(t * d);
        proj.multiply((t, d, d), branch, StartValue::Zero, &mut d_o);
        self.affine_gradients((t, d, d), branch, c.o, dw_proj);

        // o = attention(qkv)
        let mut d_qkv = Buffer::stale(t * 3 * d);
        let shape = self.attention();
        let (mut p, mut ds) = (Buffer::stale(shape.scores()), Buffer::stale(shape.scores()));
        let inputs = c.qkv.chunks_exact(self.n * 3 * d);
        let gradients = d_qkv.chunks_exact_mut(self.n * 3 * d);
        let measured = part(Part::Attention);
        for ((qkv, d_o), d_qkv) in inputs.zip(d_o.chunks_exact(self.n * d)).zip(gradients) {
            attention::backward(self.precision, shape, qkv, d_o, d_qkv, &mut p, &mut ds);
        }
        drop(measured);

        // qkv = norm1(x) Wqkv^T + bqkv:
        // dnorm1 = dqkv Wqkv    dWqkv = dqkv^T norm1(x)    dbqkv = sum(dqkv)
        // dx = du + norm1'(dnorm1)
        self.norm(c.x, norm1, &mut normed);
        self.affine_gradients((t, 3 * d, d), &d_qkv, &normed, dw_qkv);
        qkv.multiply((t, d, 3 * d), &d_qkv, StartValue::Zero, &mut d_normed);
        self.norm_backward(c.x, norm1, &mut d_normed, g, dw_norm1);
    }

    fn attention(&self) -> AttentionShape {
        AttentionShape {
            tokens: self.n,
            heads: self.shape.heads,
            head_width: self.shape.width / self.shape.heads,
        }
    }

    /// The drop-path scales of a branch (0 attention, 1 MLP) for a range of samples.
    fn scales(&self, layer: usize, branch: usize, samples: &Range<usize>) -> Option<&[f32]> {
        let start = (layer * 2 + branch) * self.batch;
        self.drop_path
            .map(|s| &s[start + samples.start..start + samples.end])
    }

    /// `y = norm(x)`.
    fn norm(&self, x: &[f32], [w, b]: [&[f32]; 2], y: &mut [f32]) {
        let _measured = part(Part::Elementwise);
        let eps = self.shape.eps as f32;
        vectorised!(layer_norm::forward(x, w, b, eps, y));
    }

    /// Adds the gradients of [`Pass::norm`] to `dx`, `dw` and `db`; `dy` is overwritten.
    fn norm_backward(
        &self,
        x: &[f32],
        [w, _]: [&[f32]; 2],
        dy: &mut [f32],
        dx: &mut [f32],
        [dw, db]: &mut [&mut [f32]; 2],
    ) {
        let _measured = part(Part::Elementwise);
        let eps = self.shape.eps as f32;
        let mut row = Buffer::stale(w.len());
        vectorised!(layer_norm::backward(x, w, eps, dy, dx, dw, db, &mut row));
    }

    /// `a = gelu(h)`; in bf16, `a` holds `h` on entry, and `h` its stored form on return.
    fn activate(&self, h: &mut [f32], a: &mut [f32]) {
        let _measured = part(Part::Elementwise);
        let hidden = self.shape.hidden.max(1);
        vectorised!(match self.precision {
            Precision::F32 => {
                for (a, h) in a.iter_mut().zip(h) {
                    *a = gelu::value(*h);
                }
            }
            Precision::Bf16 => {
                let halves: &mut [u16] = bytemuck::cast_slice_mut(h);
                let kept = halves.chunks_exact_mut(hidden.next_multiple_of(2));
                for (a, h) in a.chunks_exact_mut(hidden).zip(kept) {
                    for (a, h) in a.iter_mut().zip(h) {
                        *h = narrowed(*a);
                        *a = gelu::value(*a);
                    }
                }
            }
        });
    }

    /// `a = gelu(h)` and `dh = da gelu'(h)`, where `dh` holds `da` on entry.
    fn activate_backward(&self, h: &[f32], a: &mut [f32], dh: &mut [f32]) {
        let _measured = part(Part::Elementwise);
        let hidden = self.shape.hidden.max(1);
        vectorised!(match self.precision {
            Precision::F32 => {
                for ((a, dh), h) in a.iter_mut().zip(dh).zip(h) {
                    gelu_backward(*h, a, dh);
                }
            }
            Precision::Bf16 => {
                let halves: &[u16] = bytemuck::cast_slice(h);
                let kept = halves.chunks_exact(hidden.next_multiple_of(2));
                let rows = a.chunks_exact_mut(hidden).zip(dh.chunks_exact_mut(hidden));
                for ((a, dh), h) in rows.zip(kept) {
                    for ((a, dh), h) in a.iter_mut().zip(dh).zip(h) {
                        gelu_backward(widened(*h), a, dh);
                    }
                }
            }
        });
    }

    /// Adds the parameters' gradients of `y = x W^T + b`: `dW += dy^T x`, `db += sum(dy)`.
    fn affine_gradients(
        &self,
        (m, n, k): (usize, usize, usize),
        dy: &[f32],
        x: &[f32],
        [dw, db]: &mut [&mut [f32]; 2],
    ) {
        let (dy_t, x) = (transposed(dy, n), rows(x, k));
        let measured = part(Part::Products);
        self.precision
            .product((n, k, m), dy_t, x, StartValue::Kept, dw, k);
        drop(measured);
        let _measured = part(Part::Elementwise);
        vectorised!(add_column_sums(dy, db));
    }

    /// `y <- x + scale * (y + bias)` for the samples of a chunk.
    fn add_residual(&self, x: &[f32], bias: &[f32], scales: Option<&[f32]>, y: &mut [f32]) {
        let _measured = part(Part::Elementwise);
        let d = bias.len();
        let sample = self.n * d;
        let samples = y.chunks_exact_mut(sample).zip(x.chunks_exact(sample));
        for (i, (y, x)) in samples.enumerate() {
            let scale = scales.map_or(1.0, |s| s[i]);
            vectorised!({
                for (y, x) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
                    for j in 0..d {
                        y[j] = (y[j] + bias[j]).mul_add(scale, x[j]);
                    }
                }
            });
        }
    }

    /// `scale * g` per sample, or `None` if no branch is dropped.
    fn scaled(&self, g: &[f32], scales: Option<&[f32]>) -> Option<Buffer> {
        let scales = scales?;
        let _measured = part(Part::Elementwise);
        let mut out = Buffer::stale(g.len());
        let sample = g.len() / scales.len();
        let samples = out.chunks_exact_mut(sample).zip(g.chunks_exact(sample));
        for ((out, g), s) in samples.zip(scales) {
            for (out, g) in out.iter_mut().zip(g) {
                *out = g * s;
            }
        }
        Some(out)
    }
}

/// `a = gelu(h)`, `dh <- dh gelu'(h)`.
#[inline(always)]
fn gelu_backward(h: f32, a: &mut f32, dh: &mut f32) {
    let (value, slope) = gelu::value_and_slope(h);
    *a = value;
    *dh *= slope;
}
