//! Kernels on the CPU, for tests.

use super::{Argument, Factor, Kind, Products, View};
use crate::bf16;
use candle_core::Result;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

unsafe extern "C" {
    fn wave_host_launch(
        name: *const c_char,
        grid: *const c_uint,
        threads: c_uint,
        arguments: *mut *mut c_void,
    ) -> c_int;
    fn wave_host_order(order: c_uint);
}

thread_local! {
    static ORDER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// True if tensors on the CPU use the kernels, on this thread.
pub(super) fn wanted() -> bool {
    ORDER.get().is_some()
}

/// Runs `f` with `f32` tensors on the CPU treated as on a GPU, on this thread: the operators are kernels.
/// Between barriers, the threads of a block run in turn, ascending (`order` 0) or descending (1), or warp
/// by warp, ascending (2) or descending (3).
pub fn on_host_kernels<R>(order: u32, f: impl FnOnce() -> R) -> R {
    let before = ORDER.replace(Some(order));
    let result = f();
    ORDER.set(before);
    result
}

/// Guard bytes around memory, which no kernel may change.
const MARGIN: usize = 64;

/// Memory initialised to NaN in every kind.
pub(super) struct Memory(Box<[UnsafeCell<u64>]>, usize);

// SAFETY: a thread reads or writes it only while it runs a kernel or holds the only reference; tensors and
// operators move between threads as a whole.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(super) fn new(bytes: usize) -> Memory {
        let words = bytes.div_ceil(8) + 2 * MARGIN / 8;
        Memory(
            (0..words).map(|_| UnsafeCell::new(u64::MAX)).collect(),
            bytes,
        )
    }

    pub(super) fn of(bytes: &[u8]) -> Memory {
        let memory = Memory::new(bytes.len());
        // SAFETY: the memory is new, and as long.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.pointer() as *mut u8, bytes.len());
        }
        memory
    }

    pub(super) fn pointer(&self) -> u64 {
        self.0[MARGIN / 8].get() as u64
    }

    /// A copy of the first `len` values.
    pub(super) fn values<T: Copy>(&self, len: usize) -> Vec<T> {
        assert!(len * size_of::<T>() <= self.1);
        // SAFETY: this many values were allocated and initialised, and any bits are a number; the start
        // is a multiple of eight bytes.
        unsafe { std::slice::from_raw_parts(self.pointer() as *const T, len) }.to_vec()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (words, bytes) = (self.0.len(), self.1);
        // SAFETY: this is the only reference.
        let all: Vec<u8> = self
            .0
            .iter()
            .flat_map(|w| unsafe { *w.get() }.to_ne_bytes())
            .collect();
        let spoilt = all[..MARGIN]
            .iter()
            .chain(&all[MARGIN + bytes..])
            .any(|byte| *byte != u8::MAX);
        assert!(
            !spoilt || std::thread::panicking(),
            "a kernel wrote outside its {bytes} bytes (of {words} words)"
        );
    }
}

pub(super) fn launch(
    name: &str,
    grid: [u32; 3],
    threads: u32,
    arguments: &[Argument],
) -> Result<()> {
    let c_name = CString::new(name).map_err(candle_core::Error::wrap)?;
    // Each is placed at a multiple of eight bytes.
    let word = |argument: &Argument| {
        let mut slot = [0; 8];
        match argument {
            Argument::Pointer(x) => slot = x.to_ne_bytes(),
            Argument::I64(x) => slot = x.to_ne_bytes(),
            Argument::I32(x) => slot[..4].copy_from_slice(&x.to_ne_bytes()),
            Argument::F32(x) => slot[..4].copy_from_slice(&x.to_ne_bytes()),
        }
        u64::from_ne_bytes(slot)
    };
    let mut words: Vec<u64> = arguments.iter().map(word).collect();
    let mut pointers: Vec<*mut c_void> = words
        .iter_mut()
        .map(|w| std::ptr::from_mut(w).cast())
        .collect();
    // SAFETY: the callers, in `kernels.rs`, name a kernel with as many arguments of these types, and memory of
    // the sizes that it expects; blocks run one after the other on this thread.
    let found = unsafe {
        wave_host_order(ORDER.get().unwrap_or(0));
        wave_host_launch(
            c_name.as_ptr(),
            grid.as_ptr(),
            threads,
            pointers.as_mut_ptr(),
        )
    };
    if found == 0 {
        candle_core::bail!("no kernel {name}");
    }
    Ok(())
}

/// The values of a view, widened.
fn widened(view: View) -> Vec<f32> {
    // SAFETY: a view is of memory that lives, is so long, and that no kernel runs on now.
    unsafe {
        match view.kind {
            Kind::F32 => std::slice::from_raw_parts(view.pointer as *const f32, view.len).to_vec(),
            Kind::Bf16 => std::slice::from_raw_parts(view.pointer as *const u16, view.len)
                .iter()
                .map(|half| bf16::widened(*half))
                .collect(),
            Kind::Bytes => unreachable!("no numbers"),
        }
    }
}

/// See [`super::Place::product`].
pub(super) fn products(how: Products, a: Factor, b: Factor, c: View) {
    let (m, n, k) = how.size;
    let factor = |view: View| {
        let mut values = widened(view);
        if how.tf32 && view.kind == Kind::F32 {
            // Rounds to the nearest number with ten bits of mantissa.
            let round = |x: &mut f32| *x = f32::from_bits((x.to_bits() + 0x1000) & !0x1fff);
            values.iter_mut().for_each(round);
        }
        values
    };
    let (all_left, all_right) = (factor(a.view), factor(b.view));
    let mut sums = vec![0f32; how.count * m * n];
    for at in 0..how.count {
        let (left, right) = (&all_left[at * m * k..], &all_right[at * k * n..]);
        let sums = &mut sums[at * m * n..];
        for i in 0..m {
            for l in 0..k {
                let x = left[if a.transposed { l * m + i } else { i * k + l }];
                for j in 0..n {
                    sums[i * n + j] += x * right[if b.transposed { j * k + l } else { l * n + j }];
                }
            }
        }
    }
    // SAFETY: as in `widened`; both are fully written.
    unsafe {
        match c.kind {
            Kind::F32 => {
                std::slice::from_raw_parts_mut(c.pointer as *mut f32, c.len).copy_from_slice(&sums)
            }
            Kind::Bf16 => {
                let to = std::slice::from_raw_parts_mut(c.pointer as *mut u16, c.len);
                for (to, x) in to.iter_mut().zip(sums) {
                    *to = bf16::narrowed(x);
                }
            }
            Kind::Bytes => unreachable!("no numbers"),
        }
    }
}
