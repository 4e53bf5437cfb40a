//! Activations kept for the backward pass, and the chunks that the batch is split into.

use crate::buffer::Buffer;
use crate::threads::{split, thread_ranges};
use std::ops::Range;

/// Activations that the backward pass of a layer reads.
pub(super) struct Activations<T> {
    pub(super) x: T,   // (b, n, d)
    pub(super) qkv: T, // (b, n, 3 d)
    pub(super) o: T,   // (b, n, d)
    pub(super) u: T,   // (b, n, d)
    pub(super) h: T,   // (b, n, hidden), or in bf16: (b, n, hidden / 2 rounded up)
}

/// Activations of the whole batch.
pub(super) type LayerActivations = Activations<Buffer>;

/// Activations of the samples of one chunk.
pub(super) type Chunk<'a> = Activations<&'a mut [f32]>;

impl<T> From<[T; 5]> for Activations<T> {
    fn from([x, qkv, o, u, h]: [T; 5]) -> Activations<T> {
        Activations { x, qkv, o, u, h }
    }
}

impl LayerActivations {
    fn buffers(&mut self) -> [&mut Buffer; 5] {
        let Activations { x, qkv, o, u, h } = self;
        [x, qkv, o, u, h]
    }

    /// All samples as one chunk.
    pub(super) fn whole(&mut self) -> Chunk<'_> {
        self.buffers().map(|buffer| &mut buffer[..]).into()
    }

    /// Splits by ranges of the `b` samples.
    fn split(&mut self, b: usize, ranges: &[Range<usize>]) -> Vec<Chunk<'_>> {
        let mut parts = self.buffers().map(|buffer| split(buffer, b, ranges));
        let mut next = || parts.each_mut().map(|part| part.next().unwrap_or_default());
        ranges.iter().map(|_| next().into()).collect()
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

/// Minimum number of tokens that a thread carries through the layers at once: enough for matrix
/// products to run near peak speed, few enough for the L2 cache.
const CHUNK_TOKENS: usize = 256;

/// The samples of each thread, split into chunks.
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
    mut items: impl Iterator<Item = T>,
) -> Vec<Vec<T>> {
    work.iter()
        .map(|ranges| items.by_ref().take(ranges.len()).collect())
        .collect()
}
