//! Splits work over the threads of the current rayon pool, always in the same way.

use crate::buffer::Buffer;
use rayon::prelude::*;
use std::ops::Range;

/// Ranges of `n` items, one per thread.
pub(crate) fn thread_ranges(n: usize) -> Vec<Range<usize>> {
    let threads = rayon::current_num_threads().clamp(1, n.max(1));
    (0..threads)
        .map(|t| n * t / threads..n * (t + 1) / threads)
        .collect()
}

/// The largest share of a thread in `n` items, at least one.
pub(crate) fn share(n: usize) -> usize {
    n.div_ceil(rayon::current_num_threads()).max(1)
}

/// Splits `values` of `b` samples into consecutive ranges of samples.
pub(crate) fn split<'a>(
    values: &'a mut [f32],
    b: usize,
    ranges: &[Range<usize>],
) -> impl Iterator<Item = &'a mut [f32]> {
    let per_sample = values.len() / b.max(1);
    let mut rest = values;
    ranges.iter().map(move |range| {
        let (head, tail) = std::mem::take(&mut rest).split_at_mut(per_sample * range.len());
        rest = tail;
        head
    })
}

/// The sum of `len` values to which every job adds its part: each in its own memory, then summed in
/// the order of the jobs.
pub(crate) fn sum_over<J: Send>(
    len: usize,
    jobs: Vec<J>,
    work: impl Fn(J, &mut [f32]) + Sync,
) -> Vec<f32> {
    let mut total = vec![0.0; len];
    let mut others: Vec<Buffer> = jobs.iter().skip(1).map(|_| Buffer::zeroed(len)).collect();
    let mut parts = vec![&mut total[..]];
    parts.extend(others.iter_mut().map(|buffer| &mut buffer[..]));
    jobs.into_par_iter()
        .zip(parts)
        .for_each(|(job, part)| work(job, part));
    for part in &others {
        add(&mut total, part);
    }
    total
}

/// `total += part`, on all threads.
pub(crate) fn add(total: &mut [f32], part: &[f32]) {
    const PIECE: usize = 1 << 14;
    let pieces = total.par_chunks_mut(PIECE).zip(part.par_chunks(PIECE));
    pieces.for_each(|(total, part)| {
        for (t, p) in total.iter_mut().zip(part) {
            *t += p;
        }
    });
}
