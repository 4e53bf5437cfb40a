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

mod activations;
mod layer;
mod parameters;

use crate::cpu::current;
use crate::stock;
use crate::storage::{fused, slice, tensor, with_slice};
use crate::threads::sum_over;
use activations::{LayerActivations, by_chunk, by_thread, chunks, split};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use layer::Pass;
use parameters::{Arithmetic, Direction, LayerWeights};
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
}

/// What the affine maps of the blocks are multiplied in. Sums, activations, parameters and
/// gradients are `f32` in either case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Factors rounded to bf16 where the processor multiplies them faster
    /// ([`Simd::has_bf16`](crate::Simd::has_bf16)), elsewhere as [`Precision::F32`].
    Bf16,
}

/// Runs `x` (b, n, width) through all blocks, in `f32`.
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
    blocks_in(Precision::F32, x, parameters, shape, drop_path)
}

/// [`blocks`] in a given precision.
///
/// # Errors
/// If the sizes contradict `shape`.
pub fn blocks_in(
    precision: Precision,
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
    if !fused(&[x, &parameters[0]])? {
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
        with: Arithmetic::new(current(), precision),
        drop_path,
        keep,
        saved: Mutex::new(None),
    };
    x.contiguous()?.apply_op2(&flat, op)
}

struct Blocks {
    shape: BlocksShape,
    with: Arithmetic,
    drop_path: Option<Vec<f32>>,
    /// Whether the backward pass will run.
    keep: bool,
    saved: Mutex<Option<Vec<LayerActivations>>>,
}

impl Blocks {
    fn pass<'a>(
        &'a self,
        direction: Direction,
        flat: &'a [f32],
        (batch, n): (usize, usize),
    ) -> Pass<'a> {
        Pass {
            with: self.with,
            shape: self.shape,
            n,
            batch,
            flat,
            weights: LayerWeights::all(self.with, &self.shape, flat, direction),
            drop_path: self.drop_path.as_deref(),
        }
    }
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
        let pass = self.pass(Direction::Forward, flat, (b, n));
        let input = |samples: &Range<usize>| &x[samples.start * n * d..samples.end * n * d];
        let work = chunks(b, n);
        let ranges: Vec<Range<usize>> = work.iter().flatten().cloned().collect();
        let mut y = vec![0.0; x.len()];
        let outputs = split(&mut y, b, &ranges);

        if self.keep {
            let mut layers: Vec<LayerActivations> = (0..self.shape.depth)
                .map(|_| LayerActivations::new(&self.shape, b, n))
                .collect();
            let chunks = by_chunk(&mut layers, b, &ranges);
            let jobs = by_thread(&work, chunks.into_iter().zip(outputs));
            jobs.into_par_iter().zip(&work).for_each(|(jobs, ranges)| {
                for ((mut layers, y), samples) in jobs.into_iter().zip(ranges) {
                    layers[0].x.copy_from_slice(input(samples));
                    for l in 0..layers.len() {
                        let (done, later) = layers.split_at_mut(l + 1);
                        let y = later.first_mut().map_or(&mut *y, |next| next.x);
                        pass.forward(l, samples, &mut done[l], y);
                    }
                }
            });
            *self.saved.lock().expect("the forward pass does not panic") = Some(layers);
        } else {
            let jobs = by_thread(&work, outputs);
            jobs.into_par_iter().zip(&work).for_each(|(jobs, ranges)| {
                for (y, samples) in jobs.into_iter().zip(ranges) {
                    let mut scratch = LayerActivations::new(&self.shape, samples.len(), n);
                    let mut c = scratch.whole();
                    c.x.copy_from_slice(input(samples));
                    for l in 0..self.shape.depth {
                        pass.forward(l, samples, &mut c, y);
                        c.x.copy_from_slice(y);
                    }
                }
            });
        }
        Ok((CpuStorage::F32(y), lx.shape().clone()))
    }

    /// Layer by layer in reverse, [`Pass::backward`]; the parameters' gradients are summed per
    /// thread over its samples, then over the threads in order.
    fn bwd(
        &self,
        x: &Tensor,
        flat: &Tensor,
        _y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (b, n, _) = x.dims3()?;
        let saved = self.saved.lock().expect("no pass panics").take();
        let Some(mut layers) = saved else {
            candle_core::bail!("transformer blocks: a second backward pass needs the stock path");
        };
        let work = chunks(b, n);
        let ranges: Vec<Range<usize>> = work.iter().flatten().cloned().collect();
        let mut dx = with_slice(dy, <[f32]>::to_vec)?;
        let chunks = by_chunk(&mut layers, b, &ranges);
        let jobs = by_thread(&work, chunks.into_iter().zip(split(&mut dx, b, &ranges)));
        let grads = with_slice(flat, |flat| {
            let pass = self.pass(Direction::Backward, flat, (b, n));
            let jobs = jobs.into_iter().zip(&work).collect();
            sum_over(flat.len(), jobs, |(jobs, ranges): (Vec<_>, _), grads| {
                for ((layers, g), samples) in jobs.into_iter().zip(ranges) {
                    for (l, c) in layers.iter().enumerate().rev() {
                        pass.backward(l, samples, c, g, grads);
                    }
                }
            })
        })?;
        Ok((
            Some(tensor(dx, x.shape())?),
            Some(tensor(grads, flat.shape())?),
        ))
    }
}
