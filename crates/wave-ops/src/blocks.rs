//! The trunk of a vision transformer: all pre-norm blocks as one operator.
//!
//! ```text
//! u = x + s1 * (attention(norm1(x) Wqkv^T + bqkv) Wproj^T + bproj)
//! y = u + s2 * (gelu(norm2(u) Wfc1^T + bfc1) Wfc2^T + bfc2)
//! ```
//!
//! `s1` and `s2` are the drop-path scales of a sample: 1, or 0 and `1 / keep` in training.
//!
//! Samples are split over the threads. Each thread carries a few samples at a time through a group of
//! layers, so that values between two matrix products stay in its cache. The matrices of a group are
//! packed once, and the threads' gradients of a group are summed before the next group.
//!
//! The forward pass keeps, per token and layer, x, qkv, attention outputs, u and the MLP's
//! pre-activation, the last rounded to bf16 if products are. The backward pass recomputes attention
//! scores, norms and GELU, which costs less than storing and loading them. With activation
//! checkpointing only the input of each group is kept, and the rest is recomputed chunk by chunk.

mod activations;
mod layer;
mod parameters;

use crate::arithmetic::Precision;
use crate::buffer::Buffer;
use crate::fused::{Gradients, Operator, Output, call};
use crate::gradients::{Bundle, OfMembers};
use crate::profile::{Work, doing};
use crate::shape::{BlocksShape, Mode};
use crate::stock;
use crate::storage::{fused, tensor, with_slice, with_slices};
use crate::threads::{add, split};
use activations::{Chunk, LayerActivations, by_chunk, by_thread, chunks};
use candle_core::{Layout, Result, Tensor};
use layer::{Layer, Pass};
use parameters::{Direction, Slabs, SlabsMut, layer, layer_weights, layers_mut};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Runs `x` (b, n, width) through all blocks, in the given precision or [`Mode`].
///
/// `parameters` are twelve slabs, each holding one tensor of all layers (depth, ..),
/// in the order of [`BlocksShape::sizes`]. `drop_path` holds the scales (depth, 2, b) of the two
/// branches, if any.
///
/// # Errors
/// If the sizes contradict `shape`.
pub fn blocks(
    mode: impl Into<Mode>,
    x: &Tensor,
    parameters: &[Tensor; 12],
    shape: BlocksShape,
    drop_path: Option<Vec<f32>>,
) -> Result<Tensor> {
    let mode = mode.into();
    let (b, n, d) = x.dims3()?;
    let mut slabs = parameters.iter().zip(shape.sizes());
    let scales = drop_path.as_ref().map(Vec::len);
    let fits = slabs.all(|(p, size)| p.elem_count() == shape.depth * size)
        && d == shape.width
        && n * d * shape.heads > 0
        && d.is_multiple_of(shape.heads)
        && scales.is_none_or(|scales| scales == shape.depth * 2 * b);
    if !fits {
        let input = x.shape();
        candle_core::bail!("blocks {shape:?} do not fit an input of shape {input:?}");
    }
    if shape.depth == 0 {
        return Ok(x.clone());
    }
    let mut parameters = parameters.clone();
    for parameter in &mut parameters {
        *parameter = parameter.contiguous()?;
    }
    let arguments: Vec<&Tensor> = std::iter::once(x).chain(&parameters).collect();
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&arguments)?
        && crate::gpu::fits(shape)
    {
        return crate::gpu::blocks(place, mode, x, &parameters, shape, drop_path.as_deref());
    }
    if !fused(&arguments)? {
        return stock::blocks(mode.precision, x, &parameters, shape, drop_path.as_deref());
    }
    let bundle = Bundle::new(&parameters)?;
    let keep = match x.track_op() || bundle.token.track_op() {
        false => Keep::Nothing,
        true if mode.recompute => Keep::Inputs,
        true => Keep::Activations,
    };
    let op = Blocks {
        shape,
        precision: mode.precision.usable(),
        drop_path,
        parameters,
        gradients: bundle.gradients,
        keep,
        saved: Mutex::new(None),
    };
    call(op, [x, &bundle.token])
}

struct Blocks {
    shape: BlocksShape,
    precision: Precision,
    drop_path: Option<Vec<f32>>,
    /// Contiguous.
    parameters: [Tensor; 12],
    /// Filled by the backward pass.
    gradients: OfMembers,
    keep: Keep,
    saved: Mutex<Option<Vec<Kept>>>,
}

/// The values that the forward pass keeps.
#[derive(Clone, Copy, PartialEq)]
enum Keep {
    /// The backward pass will not run.
    Nothing,
    /// The input of each group of layers.
    Inputs,
    /// All that the backward pass of a layer reads.
    Activations,
}

/// The values that a group of layers keeps for the backward pass.
enum Kept {
    /// (b, n, d), from which the rest is recomputed.
    Input(Buffer),
    Activations(Vec<LayerActivations>),
}

/// The same for the samples of one chunk.
enum KeptChunk<'a> {
    Input(&'a mut [f32]),
    Activations(Vec<Chunk<'a>>),
}

impl Kept {
    fn by_chunk(&mut self, b: usize, ranges: &[Range<usize>]) -> Vec<KeptChunk<'_>> {
        match self {
            Kept::Input(x) => split(x, b, ranges).map(KeptChunk::Input).collect(),
            Kept::Activations(layers) => by_chunk(layers, b, ranges)
                .into_iter()
                .map(KeptChunk::Activations)
                .collect(),
        }
    }
}

impl Blocks {
    fn pass(&self, batch: usize, n: usize) -> Pass<'_> {
        Pass {
            precision: self.precision,
            shape: self.shape,
            n,
            batch,
            drop_path: self.drop_path.as_deref(),
        }
    }

    /// The layers `indices`, ready for one direction.
    fn layers<'a>(
        &self,
        indices: Range<usize>,
        slabs: &Slabs<'a>,
        direction: Direction,
    ) -> Vec<Layer<'a>> {
        let layer = |index| {
            let parameters = layer(&self.shape, slabs, index);
            Layer {
                index,
                parameters,
                weights: layer_weights(self.precision, &self.shape, &parameters, direction),
            }
        };
        indices.into_par_iter().map(layer).collect()
    }

    /// `y` (b, n, d), and the values kept for the backward pass.
    fn pass_forward(
        &self,
        x: &[f32],
        slabs: &Slabs,
        (b, n): (usize, usize),
    ) -> (Vec<f32>, Vec<Kept>) {
        let pass = self.pass(b, n);
        let work = chunks(b, n);
        let ranges: Vec<Range<usize>> = work.iter().flatten().cloned().collect();
        let (mut y, mut kept) = (x.to_vec(), Vec::new());
        for group in groups(&self.shape) {
            let layers = self.layers(group, slabs, Direction::Forward);
            if self.keep == Keep::Inputs {
                let mut input = Buffer::stale(y.len());
                input.copy_from_slice(&y);
                kept.push(Kept::Input(input));
            }
            let mut activations: Vec<LayerActivations> = match self.keep {
                Keep::Activations => layers.iter().map(|_| pass.activations(b)).collect(),
                Keep::Nothing | Keep::Inputs => Vec::new(),
            };
            let chunks = by_chunk(&mut activations, b, &ranges).into_iter();
            let jobs = by_thread(&work, chunks.zip(split(&mut y, b, &ranges)));
            let jobs = jobs.into_par_iter().zip(&work);
            jobs.for_each(|(jobs, ranges)| {
                for ((mut chunks, y), samples) in jobs.into_iter().zip(ranges) {
                    // Layers whose activations are not kept share a buffer.
                    let mut shared = chunks.is_empty().then(|| pass.activations(samples.len()));
                    let mut shared = shared.as_mut().map(LayerActivations::whole);
                    for (l, layer) in layers.iter().enumerate() {
                        let c = match &mut shared {
                            Some(shared) => shared,
                            None => &mut chunks[l],
                        };
                        c.x.copy_from_slice(y);
                        pass.forward(layer, samples, c, y);
                    }
                }
            });
            if self.keep == Keep::Activations {
                kept.push(Kept::Activations(activations));
            }
        }
        (y, kept)
    }

    /// Turns `g`, the gradient of the output, into the gradient of the input; returns the parameters'
    /// gradients.
    fn pass_backward(
        &self,
        mut kept: Vec<Kept>,
        g: &mut [f32],
        slabs: &Slabs,
        (b, n): (usize, usize),
    ) -> [Vec<f32>; 12] {
        let pass = self.pass(b, n);
        let work = chunks(b, n);
        let ranges: Vec<Range<usize>> = work.iter().flatten().cloned().collect();
        let sizes = self.shape.sizes();
        let mut total = sizes.map(|size| vec![0.0; self.shape.depth * size]);
        for group in groups(&self.shape).into_iter().rev() {
            let Some(mut kept) = kept.pop() else { break };
            let again = match kept {
                Kept::Input(_) => self.layers(group.clone(), slabs, Direction::Forward),
                Kept::Activations(_) => Vec::new(),
            };
            let layers = self.layers(group.clone(), slabs, Direction::Backward);
            let chunks = kept.by_chunk(b, &ranges).into_iter();
            let jobs = by_thread(&work, chunks.zip(split(g, b, &ranges)));
            let sizes = sizes.map(|size| group.len() * size);
            let mut others: Vec<[Buffer; 12]> =
                (1..work.len()).map(|_| sizes.map(Buffer::zeroed)).collect();
            let all = 0..group.len();
            let mut sum = layers_mut(&self.shape, &mut total, group);
            let mut parts: Vec<SlabsMut> = vec![layers_mut(&self.shape, &mut sum, all.clone())];
            let others_of = |part| layers_mut(&self.shape, part, all.clone());
            parts.extend(others.iter_mut().map(others_of));
            let jobs = jobs.into_par_iter().zip(&work).zip(parts);
            jobs.for_each(|((jobs, ranges), mut part)| {
                for ((kept, g), samples) in jobs.into_iter().zip(ranges) {
                    let mut scratch = Vec::new();
                    let chunks = match kept {
                        KeptChunk::Activations(chunks) => chunks,
                        KeptChunk::Input(x) => {
                            scratch.extend(pass.again(&again, samples, x));
                            scratch.iter_mut().map(LayerActivations::whole).collect()
                        }
                    };
                    for (l, c) in chunks.iter().enumerate().rev() {
                        let mut part = layers_mut(&self.shape, &mut part, l..l + 1);
                        pass.backward(&layers[l], samples, c, g, &mut part);
                    }
                }
            });
            for part in &others {
                for (sum, part) in sum.iter_mut().zip(part) {
                    add(sum, part);
                }
            }
        }
        total
    }
}

/// Maximum number of parameter values in a group of layers: as many as stay in the last-level cache
/// together with the threads' gradients.
const GROUP: usize = 1 << 20;

/// The layers, split into groups that each chunk of samples passes through at once.
fn groups(shape: &BlocksShape) -> Vec<Range<usize>> {
    let size: usize = shape.sizes().iter().sum();
    let step = (GROUP / size.max(1)).max(1);
    let group = |start: usize| start..(start + step).min(shape.depth);
    (0..shape.depth).step_by(step).map(group).collect()
}

impl Operator<2> for Blocks {
    const NAME: &'static str = "transformer-blocks";

    fn forward(&self, [x, _]: [&[f32]; 2], [lx, _]: [&Layout; 2]) -> Result<Output> {
        let _measured = doing(Work::Blocks);
        let (b, n, _) = lx.shape().dims3()?;
        let (y, kept) = with_slices(self.parameters.each_ref(), |slabs| {
            // Called from within the pool, where distributing work costs less.
            rayon::scope(|_| self.pass_forward(x, &slabs, (b, n)))
        })?;
        if self.keep != Keep::Nothing {
            *self.saved.lock().expect("no pass panics") = Some(kept);
        }
        Ok((y, lx.shape().clone()))
    }

    fn backward(&self, [x, _]: [&Tensor; 2], dy: &Tensor) -> Gradients<2> {
        let _measured = doing(Work::Blocks);
        let (b, n, _) = x.dims3()?;
        let Some(kept) = self.saved.lock().expect("no pass panics").take() else {
            candle_core::bail!("transformer blocks: a second backward pass needs the stock path");
        };
        let mut g = with_slice(dy, <[f32]>::to_vec)?;
        let gradients = with_slices(self.parameters.each_ref(), |slabs| {
            rayon::scope(|_| self.pass_backward(kept, &mut g, &slabs, (b, n)))
        })?;
        *self.gradients.lock().expect("no pass panics") = gradients
            .into_iter()
            .zip(&self.parameters)
            .map(|(gradient, p)| tensor(gradient, p.shape()).map(Some))
            .collect::<Result<_>>()?;
        Ok([Some(tensor(g, x.shape())?), Some(Bundle::seed(x.device())?)])
    }
}
