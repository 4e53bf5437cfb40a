//! Reusable scratch memory.
//!
//! A training step needs the same large buffers every time. Handing them back to the allocator
//! makes the kernel zero their pages again on each step, which costs as much as the arithmetic;
//! so they are kept.

use std::ops::{Deref, DerefMut};
use std::sync::Mutex;

/// Buffers kept at most; the smallest are dropped first.
const KEPT: usize = 1024;

static POOL: Mutex<Vec<Vec<f32>>> = Mutex::new(Vec::new()); // ascending capacity

/// A slice of `f32` that returns to the pool when dropped. Its contents start out arbitrary.
pub(crate) struct Buffer(Vec<f32>);

impl Buffer {
    /// `n` values, whatever was in them before.
    pub(crate) fn stale(n: usize) -> Buffer {
        let reused = {
            let mut pool = POOL.lock().expect("no panic while the pool is locked");
            let i = pool.partition_point(|v| v.capacity() < n);
            (pool.get(i).is_some_and(|v| v.capacity() <= 2 * n.max(64))).then(|| pool.remove(i))
        };
        let mut v = reused.unwrap_or_default();
        v.resize(n, 0.0);
        Buffer(v)
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
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let v = std::mem::take(&mut self.0);
        if v.capacity() == 0 {
            return;
        }
        let mut pool = POOL.lock().expect("no panic while the pool is locked");
        let i = pool.partition_point(|u| u.capacity() < v.capacity());
        pool.insert(i, v);
        if pool.len() > KEPT {
            pool.remove(0);
        }
    }
}
