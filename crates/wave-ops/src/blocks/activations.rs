//! Activations kept for the backward pass, and the chunks that work is cut into.

use crate::arithmetic::Precision;
use crate::buffer::Buffer;
use crate::shape::BlocksShape;
use crate::threads::{split, thread_ranges};
use std::ops::Range;

/// One layer's activations of the whole batch.
pub(super) struct LayerActivations {
    x: Buffer,   // (b, n, d)
    qkv: Buffer, // (b, n, 3 d)
    o: Buffer,   // (b, n, d)
    u: Buffer,   // (b, n, d)
    h: Buffer,   // (b, n, hidden), or in bf16: (b, n, hidden / 2 rounded up)
}

/// The same for the samples of one chunk.
pub(super) struct Chunk<'a> {
    pub(super) x: &'a mut [f32],
    pub(super) qkv: &'a mut [f32],
    pub(super) o: &'a mut [f32],
    pub(super) u: &'a mut [f32],
    pub(super) h: &'a mut [f32],
}

impl LayerActivations {
    pub(super) fn new(
        shape: &BlocksShape,
        precision: Precision,
        b: usize,
        n: usize,
    ) -> LayerActivations {
        let (d, tokens) = (shape.width, b * n);
        let hidden = match precision {
            Precision::F32 => shape.hidden,
            Precision::Bf16 => shape.hidden.div_ceil(2),
        };
        LayerActivations {
            x: Buffer::stale(tokens * d),
            qkv: Buffer::stale(tokens * 3 * d),
            o: Buffer::stale(tokens * d),
            u: Buffer::stale(tokens * d),
            h: Buffer::stale(tokens * hidden),
        }
    }

    /// All samples as one chunk.
    pub(super) fn whole(&mut self) -> Chunk<'_> {
        Chunk {
            x: &mut self.x,
            qkv: &mut self.qkv,
            o: &mut self.o,
            u: &mut self.u,
            h: &mut self.h,
        }
    }

    /// Splits by ranges of the `b` samples.
    fn split(&mut self, b: usize, ranges: &[Range<usize>]) -> Vec<Chunk<'_>> {
        let mut x = split(&mut self.x, b, ranges);
        let mut qkv = split(&mut self.qkv, b, ranges);
        let mut o = split(&mut self.o, b, ranges);
        let mut u = split(&mut self.u, b, ranges);
        let mut h = split(&mut self.h, b, ranges);
        ranges
            .iter()
            .filter_map(|_| {
                Some(Chunk {
                    x: x.next()?,
                    qkv: qkv.next()?,
                    o: o.next()?,
                    u: u.next()?,
                    h: h.next()?,
                })
            })
            .collect()
    }
}

/// The activations of several layers by chunk: (chunks, layers).
pub(super) fn by_chunk<'a>(
    layers: &'a mut [LayerActivations],
    b: usize,
    ranges: &[Range<usize>],
) -> Vec<Vec<Chunk<'a>>> {
    let mut chunks: Vec<Vec<Chunk>> = ranges.iter().map(|_| Vec::new()).collect();
    for layer in layers {
        for (chunk, part) in chunks.iter_mut().zip(layer.split(b, ranges)) {
            chunk.push(part);
        }
    }
    chunks
}

/// Tokens that a thread carries through the layers at once, at least: enough for the matrix
/// products to run near their peak, few enough for the second-level cache.
const CHUNK_TOKENS: usize = 256;

/// The samples of each thread, cut into chunks.
pub(super) fn chunks(b: usize, n: usize) -> Vec<Vec<Range<usize>>> {
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

/// Hands the items, one per chunk, to the threads that own the chunks.
pub(super) fn by_thread<T>(
    work: &[Vec<Range<usize>>],
    items: impl Iterator<Item = T>,
) -> Vec<Vec<T>> {
    let mut items = items;
    work.iter()
        .map(|ranges| items.by_ref().take(ranges.len()).collect())
        .collect()
}
