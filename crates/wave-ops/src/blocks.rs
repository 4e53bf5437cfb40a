//! The trunk of a vision transformer: all pre-norm blocks as one operator.
//!
//! ```text
//! u = x + s1 * (attention(norm1(x) Wqkv^T + bqkv) Wproj^T + bproj)
//! y = u + s2 * (gelu(norm2(u) Wfc1^T + bfc1) Wfc2^T + bfc2)
//! ```
//!
//! `s1` and `s2` are the drop-path scales of a sample: 1, or 0 and `1 / keep` in training.
//!
//! Samples are split over the threads, and each thread carries a few samples at a time through
//! all layers, so that activations stay in its cache. The forward pass keeps, per token and
//! layer, x, qkv, attention scores, attention outputs, u and the MLP's pre-activation; the
//! backward pass computes norms and GELU again, which costs less than to store and load them.

use crate::attention::{self, AttentionShape};
use crate::buffer::Buffer;
use crate::gelu;
use crate::gemm::{Into, gemm, rows, transposed};
use crate::layer_norm;
use crate::linear::{sum_parts, thread_ranges};
use crate::simd::{add_column_sums, dispatch};
use crate::stock;
use crate::storage::{fused, slice, tensor, with_slice};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Sizes of a stack of transformer blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlocksShape {
    /// Number of blocks.
    pub depth: usize,
    /// Channels of a token.
    pub width: usize,
    /// Attention heads; divides `width`.
    pub heads: usize,
    /// Channels between the two layers of the MLP.
    pub hidden: usize,
    /// Epsilon of the layer norms.
    pub eps: f64,
}

impl BlocksShape {
    /// Sizes of the twelve tensors of one block, in the order in which [`blocks`] takes them:
    /// norm1 weight and bias, qkv, proj, norm2, fc1, fc2.
    pub fn sizes(&self) -> [usize; 12] {
        let (d, h) = (self.width, self.hidden);
        [d, d, 3 * d * d, 3 * d, d * d, d, d, d, h * d, h, d * h, d]
    }

    /// Where the slab of each tensor starts in the flat parameters, and their length.
    fn offsets(&self) -> [usize; 13] {
        let mut offsets = [0; 13];
        for (i, size) in self.sizes().iter().enumerate() {
            offsets[i + 1] = offsets[i] + self.depth * size;
        }
        offsets
    }
}

/// Runs `x` (b, n, width) through all blocks.
///
/// `parameters` are twelve slabs, each holding one tensor of all layers (depth, size) flattened,
/// in the order of [`BlocksShape::sizes`]. `drop_path` holds the scales (depth, 2, b) of the two
/// branches, if any.
///
/// # Errors
/// If the sizes contradict `shape`.
pub fn blocks(
    x: &Tensor,
    parameters: &[Tensor; 12],
    shape: BlocksShape,
    drop_path: Option<Vec<f32>>,
) -> Result<Tensor> {
    let (b, _, d) = x.dims3()?;
    let sizes = shape.sizes();
    let fits = parameters
        .iter()
        .zip(sizes)
        .all(|(p, s)| p.elem_count() == shape.depth * s)
        && d == shape.width
        && shape.heads > 0
        && d.is_multiple_of(shape.heads)
        && drop_path
            .as_ref()
            .is_none_or(|s| s.len() == shape.depth * 2 * b);
    if !fits {
        candle_core::bail!(
            "blocks {shape:?} do not fit an input of shape {:?}",
            x.shape()
        );
    }
    if shape.depth == 0 {
        return Ok(x.clone());
    }
    if !fused(&[x, &parameters[0]]) {
        return stock::blocks(x, parameters, shape, drop_path.as_deref());
    }
    let flat: Vec<Tensor> = parameters
        .iter()
        .map(Tensor::flatten_all)
        .collect::<Result<_>>()?;
    let flat = Tensor::cat(&flat, 0)?;
    let keep = x.track_op() || flat.track_op();
    let op = Blocks {
        shape,
        drop_path,
        keep,
        saved: Mutex::new(None),
    };
    x.contiguous()?.apply_op2(&flat, op)
}

/// Tokens that a thread carries through the layers at once, at least: enough for the matrix
/// products to run near their peak, few enough for the second-level cache.
const CHUNK_TOKENS: usize = 256;

struct Blocks {
    shape: BlocksShape,
    drop_path: Option<Vec<f32>>,
    /// Whether the backward pass will run.
    keep: bool,
    saved: Mutex<Option<Vec<LayerActivations>>>,
}

/// What one layer keeps of the whole batch.
struct LayerActivations {
    x: Buffer,   // (b, n, d)
    qkv: Buffer, // (b, n, 3 d)
    p: Buffer,   // (b, heads, n, n)
    o: Buffer,   // (b, n, d)
    u: Buffer,   // (b, n, d)
    h: Buffer,   // (b, n, hidden)
}

/// The same for the samples of one chunk.
struct Chunk<'a> {
    x: &'a mut [f32],
    qkv: &'a mut [f32],
    p: &'a mut [f32],
    o: &'a mut [f32],
    u: &'a mut [f32],
    h: &'a mut [f32],
}

impl LayerActivations {
    fn new(shape: &BlocksShape, b: usize, n: usize) -> LayerActivations {
        let (d, tokens) = (shape.width, b * n);
        LayerActivations {
            x: Buffer::stale(tokens * d),
            qkv: Buffer::stale(tokens * 3 * d),
            p: Buffer::stale(tokens * shape.heads * n),
            o: Buffer::stale(tokens * d),
            u: Buffer::stale(tokens * d),
            h: Buffer::stale(tokens * shape.hidden),
        }
    }

    /// Splits off what belongs to each range of samples.
    fn split(&mut self, b: usize, ranges: &[Range<usize>]) -> Vec<Chunk<'_>> {
        let mut rest = [
            &mut self.x,
            &mut self.qkv,
            &mut self.p,
            &mut self.o,
            &mut self.u,
            &mut self.h,
        ]
        .map(|buffer| (buffer.len() / b, &mut buffer[..]));
        ranges
            .iter()
            .map(|range| {
                let mut take = |i: usize| {
                    let (per_sample, slice) = &mut rest[i];
                    let (head, tail) =
                        std::mem::take(slice).split_at_mut(*per_sample * range.len());
                    *slice = tail;
                    head
                };
                Chunk {
                    x: take(0),
                    qkv: take(1),
                    p: take(2),
                    o: take(3),
                    u: take(4),
                    h: take(5),
                }
            })
            .collect()
    }
}

/// One layer's parameters inside the flat ones, or their gradients.
#[derive(Clone)]
struct LayerRanges([Range<usize>; 12]);

const NORM1_W: usize = 0;
const NORM1_B: usize = 1;
const QKV_W: usize = 2;
const QKV_B: usize = 3;
const PROJ_W: usize = 4;
const PROJ_B: usize = 5;
const NORM2_W: usize = 6;
const NORM2_B: usize = 7;
const FC1_W: usize = 8;
const FC1_B: usize = 9;
const FC2_W: usize = 10;
const FC2_B: usize = 11;

impl LayerRanges {
    fn new(shape: &BlocksShape, layer: usize) -> LayerRanges {
        let (offsets, sizes) = (shape.offsets(), shape.sizes());
        LayerRanges(std::array::from_fn(|i| {
            let start = offsets[i] + layer * sizes[i];
            start..start + sizes[i]
        }))
    }

    fn of<'a>(&self, i: usize, flat: &'a [f32]) -> &'a [f32] {
        &flat[self.0[i].clone()]
    }

    fn of_mut<'a>(&self, i: usize, flat: &'a mut [f32]) -> &'a mut [f32] {
        &mut flat[self.0[i].clone()]
    }

    /// A norm's weight and bias gradients.
    fn norm_mut<'a>(&self, weight: usize, flat: &'a mut [f32]) -> (&'a mut [f32], &'a mut [f32]) {
        let (w, b) = (self.0[weight].clone(), self.0[weight + 1].clone());
        let (head, tail) = flat.split_at_mut(b.start);
        (&mut head[w], &mut tail[..b.len()])
    }
}

/// Everything a thread needs to know about its work.
struct Pass<'a> {
    shape: BlocksShape,
    eps: f32,
    n: usize,
    batch: usize,
    flat: &'a [f32],
    drop_path: Option<&'a [f32]>,
}

impl Pass<'_> {
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

    /// `y <- x + scale * (y + bias)` for the samples of a chunk.
    fn add_residual(&self, x: &[f32], bias: &[f32], scales: Option<&[f32]>, y: &mut [f32]) {
        let d = bias.len();
        let sample = self.n * d;
        for (i, (y, x)) in y
            .chunks_exact_mut(sample)
            .zip(x.chunks_exact(sample))
            .enumerate()
        {
            let scale = scales.map_or(1.0, |s| s[i]);
            dispatch(
                #[inline(always)]
                || {
                    for (y, x) in y.chunks_exact_mut(d).zip(x.chunks_exact(d)) {
                        for j in 0..d {
                            y[j] = (y[j] + bias[j]).mul_add(scale, x[j]);
                        }
                    }
                },
            );
        }
    }

    /// One layer forward: reads `c.x`, fills the rest of `c`, writes `y` (tokens, d).
    fn forward(&self, layer: usize, samples: &Range<usize>, c: &mut Chunk, y: &mut [f32]) {
        let BlocksShape {
            width: d, hidden, ..
        } = self.shape;
        let ranges = LayerRanges::new(&self.shape, layer);
        let w = |i| ranges.of(i, self.flat);
        let t = samples.len() * self.n;
        let mut normed = Buffer::stale(t * d);

        dispatch(
            #[inline(always)]
            || layer_norm::forward(c.x, w(NORM1_W), w(NORM1_B), self.eps, &mut normed),
        );
        affine((t, 3 * d, d), &normed, w(QKV_W), Some(w(QKV_B)), c.qkv);
        let shape = self.attention();
        let (qkv_size, p_size, o_size) = (self.n * 3 * d, c.p.len() / samples.len(), self.n * d);
        for ((qkv, o), p) in c
            .qkv
            .chunks_exact(qkv_size)
            .zip(c.o.chunks_exact_mut(o_size))
            .zip(c.p.chunks_exact_mut(p_size))
        {
            dispatch(
                #[inline(always)]
                || attention::forward(shape, qkv, o, p),
            );
        }
        affine((t, d, d), c.o, w(PROJ_W), None, c.u);
        self.add_residual(c.x, w(PROJ_B), self.scales(layer, 0, samples), c.u);

        dispatch(
            #[inline(always)]
            || layer_norm::forward(c.u, w(NORM2_W), w(NORM2_B), self.eps, &mut normed),
        );
        affine((t, hidden, d), &normed, w(FC1_W), Some(w(FC1_B)), c.h);
        let mut active = Buffer::stale(t * hidden);
        dispatch(
            #[inline(always)]
            || {
                for (a, h) in active.iter_mut().zip(c.h.iter()) {
                    *a = gelu::value(*h);
                }
            },
        );
        affine((t, d, hidden), &active, w(FC2_W), None, y);
        self.add_residual(c.u, w(FC2_B), self.scales(layer, 1, samples), y);
    }

    /// One layer backward: turns `g`, the gradient of the layer's output, into that of its input,
    /// and adds to the parameters' gradients.
    fn backward(
        &self,
        layer: usize,
        samples: &Range<usize>,
        c: &Chunk,
        g: &mut [f32],
        grads: &mut [f32],
    ) {
        let BlocksShape {
            width: d, hidden, ..
        } = self.shape;
        let ranges = LayerRanges::new(&self.shape, layer);
        let w = |i| ranges.of(i, self.flat);
        let t = samples.len() * self.n;
        let mut normed = Buffer::stale(t * d);
        let mut d_normed = Buffer::stale(t * d);
        let mut row = Buffer::stale(d);

        // y = u + s2 (a Wfc2^T + bfc2), a = gelu(h)
        let branch = self.scaled(g, self.scales(layer, 1, samples));
        let branch = branch.as_deref().unwrap_or(g);
        let (mut active, mut d_h) = (Buffer::stale(t * hidden), Buffer::stale(t * hidden));
        gemm(
            (t, hidden, d),
            1.0,
            rows(branch, d),
            rows(w(FC2_W), hidden),
            Into::Overwrite,
            &mut d_h,
            hidden,
        );
        dispatch(
            #[inline(always)]
            || {
                for ((a, dh), h) in active.iter_mut().zip(d_h.iter_mut()).zip(c.h.iter()) {
                    let (value, slope) = gelu::value_and_slope(*h);
                    *a = value;
                    *dh *= slope;
                }
            },
        );
        weight_gradient((t, d, hidden), branch, &active, ranges.of_mut(FC2_W, grads));
        dispatch(
            #[inline(always)]
            || add_column_sums(branch, ranges.of_mut(FC2_B, grads)),
        );
        // h = norm2(u) Wfc1^T + bfc1
        dispatch(
            #[inline(always)]
            || layer_norm::forward(c.u, w(NORM2_W), w(NORM2_B), self.eps, &mut normed),
        );
        weight_gradient((t, hidden, d), &d_h, &normed, ranges.of_mut(FC1_W, grads));
        dispatch(
            #[inline(always)]
            || add_column_sums(&d_h, ranges.of_mut(FC1_B, grads)),
        );
        gemm(
            (t, d, hidden),
            1.0,
            rows(&d_h, hidden),
            rows(w(FC1_W), d),
            Into::Overwrite,
            &mut d_normed,
            d,
        );
        let (dw, db) = ranges.norm_mut(NORM2_W, grads);
        dispatch(
            #[inline(always)]
            || {
                layer_norm::backward(
                    c.u,
                    w(NORM2_W),
                    self.eps,
                    &mut d_normed,
                    g,
                    dw,
                    db,
                    &mut row,
                )
            },
        );

        // u = x + s1 (o Wproj^T + bproj)
        let branch = self.scaled(g, self.scales(layer, 0, samples));
        let branch = branch.as_deref().unwrap_or(g);
        let mut d_o = Buffer::stale(t * d);
        gemm(
            (t, d, d),
            1.0,
            rows(branch, d),
            rows(w(PROJ_W), d),
            Into::Overwrite,
            &mut d_o,
            d,
        );
        weight_gradient((t, d, d), branch, c.o, ranges.of_mut(PROJ_W, grads));
        dispatch(
            #[inline(always)]
            || add_column_sums(branch, ranges.of_mut(PROJ_B, grads)),
        );
        // o = attention(qkv)
        let mut d_qkv = Buffer::stale(t * 3 * d);
        let mut scores = Buffer::stale(self.n * self.n);
        let (qkv_size, p_size, o_size) = (self.n * 3 * d, c.p.len() / samples.len(), self.n * d);
        let shape = self.attention();
        for (((qkv, d_o), p), d_qkv) in c
            .qkv
            .chunks_exact(qkv_size)
            .zip(d_o.chunks_exact(o_size))
            .zip(c.p.chunks_exact(p_size))
            .zip(d_qkv.chunks_exact_mut(qkv_size))
        {
            dispatch(
                #[inline(always)]
                || attention::backward(shape, qkv, p, d_o, d_qkv, &mut scores),
            );
        }
        // qkv = norm1(x) Wqkv^T + bqkv
        dispatch(
            #[inline(always)]
            || layer_norm::forward(c.x, w(NORM1_W), w(NORM1_B), self.eps, &mut normed),
        );
        weight_gradient((t, 3 * d, d), &d_qkv, &normed, ranges.of_mut(QKV_W, grads));
        dispatch(
            #[inline(always)]
            || add_column_sums(&d_qkv, ranges.of_mut(QKV_B, grads)),
        );
        gemm(
            (t, d, 3 * d),
            1.0,
            rows(&d_qkv, 3 * d),
            rows(w(QKV_W), d),
            Into::Overwrite,
            &mut d_normed,
            d,
        );
        let (dw, db) = ranges.norm_mut(NORM1_W, grads);
        dispatch(
            #[inline(always)]
            || {
                layer_norm::backward(
                    c.x,
                    w(NORM1_W),
                    self.eps,
                    &mut d_normed,
                    g,
                    dw,
                    db,
                    &mut row,
                )
            },
        );
    }

    /// `scale * g` per sample, or nothing where no branch is dropped.
    fn scaled(&self, g: &[f32], scales: Option<&[f32]>) -> Option<Buffer> {
        let scales = scales?;
        let mut out = Buffer::stale(g.len());
        let sample = g.len() / scales.len();
        for ((out, g), s) in out
            .chunks_exact_mut(sample)
            .zip(g.chunks_exact(sample))
            .zip(scales)
        {
            for (out, g) in out.iter_mut().zip(g) {
                *out = g * s;
            }
        }
        Some(out)
    }
}

/// `y = x W^T (+ b)`; `x` (m, k), `W` (n, k), `y` (m, n).
fn affine(
    (m, n, k): (usize, usize, usize),
    x: &[f32],
    w: &[f32],
    b: Option<&[f32]>,
    y: &mut [f32],
) {
    let into = match b {
        None => Into::Overwrite,
        Some(b) => {
            for row in y.chunks_exact_mut(n) {
                row.copy_from_slice(b);
            }
            Into::Accumulate
        }
    };
    gemm((m, n, k), 1.0, rows(x, k), transposed(w, k), into, y, n);
}

/// `dW += dy^T x`; `dy` (m, n), `x` (m, k), `dW` (n, k).
fn weight_gradient((m, n, k): (usize, usize, usize), dy: &[f32], x: &[f32], dw: &mut [f32]) {
    gemm(
        (n, k, m),
        1.0,
        transposed(dy, n),
        rows(x, k),
        Into::Accumulate,
        dw,
        k,
    );
}

/// The samples of each thread, cut into chunks.
fn chunks(b: usize, n: usize) -> Vec<Vec<Range<usize>>> {
    let per_chunk = CHUNK_TOKENS.div_ceil(n.max(1)).max(1);
    thread_ranges(b)
        .into_iter()
        .map(|range| {
            let end = range.end;
            range
                .step_by(per_chunk)
                .map(|start| start..(start + per_chunk).min(end))
                .collect()
        })
        .collect()
}

impl CustomOp2 for Blocks {
    fn name(&self) -> &'static str {
        "transformer-blocks"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        flat: &CpuStorage,
        l_flat: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (b, n, d) = lx.shape().dims3()?;
        let (x, flat) = (slice(x, lx)?, slice(flat, l_flat)?);
        let shape = self.shape;
        let pass = Pass {
            shape,
            eps: shape.eps as f32,
            n,
            batch: b,
            flat,
            drop_path: self.drop_path.as_deref(),
        };
        let work = chunks(b, n);
        let ranges: Vec<Range<usize>> = work.iter().flatten().cloned().collect();
        let mut y = vec![0.0; x.len()];
        let mut outputs: Vec<&mut [f32]> = Vec::with_capacity(ranges.len());
        let mut rest = &mut y[..];
        for range in &ranges {
            let (head, tail) = rest.split_at_mut(range.len() * n * d);
            outputs.push(head);
            rest = tail;
        }

        if self.keep {
            let mut layers: Vec<LayerActivations> = (0..shape.depth)
                .map(|_| LayerActivations::new(&shape, b, n))
                .collect();
            let mut by_chunk: Vec<Vec<Chunk>> = ranges.iter().map(|_| Vec::new()).collect();
            for layer in &mut layers {
                for (chunk, part) in by_chunk.iter_mut().zip(layer.split(b, &ranges)) {
                    chunk.push(part);
                }
            }
            let jobs = group(&work, by_chunk.into_iter().zip(outputs));
            jobs.into_par_iter().zip(&work).for_each(|(jobs, ranges)| {
                for ((mut layers, y), samples) in jobs.into_iter().zip(ranges) {
                    layers[0]
                        .x
                        .copy_from_slice(&x[samples.start * n * d..samples.end * n * d]);
                    for l in 0..layers.len() {
                        pass.forward(l, samples, &mut layers[l], y);
                        if let Some(next) = layers.get_mut(l + 1) {
                            next.x.copy_from_slice(y);
                        }
                    }
                }
            });
            *self.saved.lock().expect("the forward pass does not panic") = Some(layers);
        } else {
            let jobs = group(&work, outputs.into_iter());
            jobs.into_par_iter().zip(&work).for_each(|(jobs, ranges)| {
                for (y, samples) in jobs.into_iter().zip(ranges) {
                    let mut scratch = LayerActivations::new(&shape, samples.len(), n);
                    let whole = 0..samples.len();
                    for mut c in scratch.split(samples.len(), std::slice::from_ref(&whole)) {
                        c.x.copy_from_slice(&x[samples.start * n * d..samples.end * n * d]);
                        for l in 0..shape.depth {
                            pass.forward(l, samples, &mut c, y);
                            c.x.copy_from_slice(y);
                        }
                    }
                }
            });
        }
        Ok((CpuStorage::F32(y), lx.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        flat: &Tensor,
        _y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (b, n, d) = x.dims3()?;
        let Some(mut layers) = self
            .saved
            .lock()
            .expect("the backward pass does not panic")
            .take()
        else {
            candle_core::bail!("transformer blocks: a second backward pass needs the stock path");
        };
        let work = chunks(b, n);
        let ranges: Vec<Range<usize>> = work.iter().flatten().cloned().collect();
        let mut by_chunk: Vec<Vec<Chunk>> = ranges.iter().map(|_| Vec::new()).collect();
        for layer in &mut layers {
            for (chunk, part) in by_chunk.iter_mut().zip(layer.split(b, &ranges)) {
                chunk.push(part);
            }
        }
        let mut dx = with_slice(dy, <[f32]>::to_vec)?;
        let mut gradients: Vec<&mut [f32]> = Vec::with_capacity(ranges.len());
        let mut rest = &mut dx[..];
        for range in &ranges {
            let (head, tail) = rest.split_at_mut(range.len() * n * d);
            gradients.push(head);
            rest = tail;
        }
        let jobs = group(&work, by_chunk.into_iter().zip(gradients));
        let grads = with_slice(flat, |flat| {
            let pass = Pass {
                shape: self.shape,
                eps: self.shape.eps as f32,
                n,
                batch: b,
                flat,
                drop_path: self.drop_path.as_deref(),
            };
            let parts: Vec<Buffer> = jobs
                .into_par_iter()
                .zip(&work)
                .map(|(jobs, ranges)| {
                    let mut grads = Buffer::zeroed(flat.len());
                    for ((layers, g), samples) in jobs.into_iter().zip(ranges) {
                        for (l, c) in layers.iter().enumerate().rev() {
                            pass.backward(l, samples, c, g, &mut grads);
                        }
                    }
                    grads
                })
                .collect();
            sum_parts(parts)
        })?;
        Ok((
            Some(tensor(dx, x.shape())?),
            Some(tensor(grads, flat.shape())?),
        ))
    }
}

/// Hands the items, one per chunk, to the threads that own the chunks.
fn group<T>(work: &[Vec<Range<usize>>], items: impl Iterator<Item = T>) -> Vec<Vec<T>> {
    let mut items = items;
    work.iter()
        .map(|ranges| items.by_ref().take(ranges.len()).collect())
        .collect()
}
