//! Reusable scratch memory.
//!
//! A training step needs the same large buffers every time. The operating system would zero fresh
//! pages in each step, which costs as much as the arithmetic, so buffers are kept.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Maximum number of buffers kept; the smallest are dropped first.
const KEPT: usize = 1024;

static POOL: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new()); // ascending length

/// A slice of `f32` that returns to the pool when dropped. Its initial contents are arbitrary.
pub(crate) struct Buffer {
    values: Vec<f32>,
    len: usize, // at most as many as there are values
}

impl Buffer {
    /// `n` values, not cleared.
    pub(crate) fn stale(n: usize) -> Buffer {
        let reused = {
            let mut pool = POOL.lock().expect("no panic while the pool is locked");
            let i = pool.partition_point(|v| v.len() < n);
            // Skip much longer buffers: they are needed for other purposes in the same step.
            (pool.get(i).is_some_and(|v| v.len() <= 2 * n.max(64))).then(|| pool.remove(i))
        };
        Buffer {
            values: reused.unwrap_or_else(|| vec![0.0; n]),
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
        &self.values[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let values = std::mem::take(&mut self.values);
        if values.is_empty() {
            return;
        }
        let mut pool = POOL.lock().expect("no panic while the pool is locked");
        let i = pool.partition_point(|v| v.len() < values.len());
        pool.insert(i, values);
        if pool.len() > KEPT {
            pool.remove(0);
        }
    }
}
