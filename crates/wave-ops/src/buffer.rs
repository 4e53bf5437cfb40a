//! Reusable scratch memory.
//!
//! A training step needs the same large buffers every time. The operating system would zero fresh
//! pages in each step, which costs as much as the arithmetic, so buffers are kept.

use pulp::bytemuck::{self, Pod, Zeroable};
use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Maximum number of buffers kept; the smallest are dropped first.
const KEPT: usize = 1024;

static POOL: Mutex<Vec<Vec<Line>>> = Mutex::new(Vec::new()); // ascending length

/// A cache line: registers and tiles that lie across two are loaded and stored at half the rate.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; LINE]);

// SAFETY: an array of as many bytes as its alignment, without padding.
unsafe impl Zeroable for Line {}
unsafe impl Pod for Line {}

/// Number of values in a cache line.
const LINE: usize = 16;

/// A slice of `f32` that returns to the pool when dropped. Its initial contents are arbitrary.
pub(crate) struct Buffer {
    lines: Vec<Line>,
    len: usize, // at most as many values as the lines hold
}

impl Buffer {
    /// `n` values, not cleared.
    pub(crate) fn stale(n: usize) -> Buffer {
        let lines = n.div_ceil(LINE);
        let reused = {
            let mut pool = POOL.lock().expect("no panic while the pool is locked");
            let i = pool.partition_point(|v| v.len() < lines);
            // Skip much longer buffers: they are needed for other purposes in the same step.
            (pool.get(i).is_some_and(|v| v.len() <= 2 * lines.max(4))).then(|| pool.remove(i))
        };
        Buffer {
            lines: reused.unwrap_or_else(|| vec![Line::zeroed(); lines]),
            len: n,
        }
    }

    /// `n` zeros.
    pub(crate) fn zeroed(n: usize) -> Buffer {
        let mut buffer = Buffer::stale(n);
        buffer.fill(0.0);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        if lines.is_empty() {
            return;
        }
        let mut pool = POOL.lock().expect("no panic while the pool is locked");
        let i = pool.partition_point(|v| v.len() < lines.len());
        pool.insert(i, lines);
        if pool.len() > KEPT {
            pool.remove(0);
        }
    }
}
