//! Sums of Kronecker products, the composition of weights from templates:
//!
//! ```text
//! W_l = sum_i S_{l,i} (x) T_i        T_i (t, t),  S_{l,i} (r, c),  W_l (r t, c t)
//! ```
//!
//! With `S (x) T` ("tile") block (a, b) of `W_l` is `sum_i S_{l,i}[a, b] T_i`: templates are
//! weighted and concatenated. With `T (x) S` ("interleave", the order printed in Eq. 3 of the
//! WAVE paper) the same numbers are shuffled: `W[i r + a, j c + b]` takes the place of
//! `W[a t + i, b t + j]`. In both orders all layers are one matrix product,
//! `(L r c, N) x (N, t t)`.

use crate::buffer::Buffer;
use crate::cpu::current;
use crate::fused::{Gradients, Operator, Output, call};
use crate::gemm::{Packed, StartValue, gemm, gemm_packed, rows, transposed};
use crate::order::Kronecker;
use crate::profile::{Work, doing};
use crate::stock;
use crate::storage::{fused, tensor, with_slices};
use crate::threads::share;
use candle_core::{Layout, Result, Shape, Tensor, TensorId};
use rayon::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock};

/// `W_l = sum_i S_{l,i} (x) T_i` for all layers at once (WAVE, Eq. 3).
///
/// # Shapes
/// `templates` (N, t, t), `scalers` (L, N, r, c); the result is (L, r t, c t).
pub fn kronecker_sum(templates: &Tensor, scalers: &Tensor, order: Kronecker) -> Result<Tensor> {
    let ((n, t, t2), (_, n_s, _, _)) = (templates.dims3()?, scalers.dims4()?);
    if n != n_s || t != t2 {
        let (templates, scalers) = (templates.dims(), scalers.dims());
        candle_core::bail!(
            "templates {templates:?} and scalers {scalers:?} do not compose; expected (N, t, t) and \
             (layers, N, r, c)"
        );
    }
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&[templates, scalers])? {
        return crate::gpu::kronecker_sum(place, templates, scalers, order);
    }
    if fused(&[templates, scalers])? {
        let (templates, scalers) = (templates.contiguous()?, scalers.contiguous()?);
        let entry = Arc::new(Entry::default());
        let op = KroneckerSum {
            order,
            _entry: entry.clone(),
        };
        let w = call(op, [&templates, &scalers])?;
        if w.track_op() {
            let origin = Origin {
                templates,
                scalers,
                order,
            };
            let id = *entry.0.get_or_init(|| w.id());
            origins().insert(id, origin);
        }
        Ok(w)
    } else {
        stock::kronecker_sum(templates, scalers, order)
    }
}

/// The factors of composed weights.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) templates: Tensor,
    pub(crate) scalers: Tensor,
    pub(crate) order: Kronecker,
}

/// The origins of all composed weights whose graph is alive. An operator that takes such weights
/// can pass their gradient on directly, where candle would first add it to zeros (see
/// [`crate::gradients`]).
static ORIGINS: LazyLock<Mutex<HashMap<TensorId, Origin>>> = LazyLock::new(Mutex::default);

fn origins() -> MutexGuard<'static, HashMap<TensorId, Origin>> {
    ORIGINS.lock().expect("nothing panics with the lock")
}

/// The factors of `w`, if it is a [`kronecker_sum`] with a graph.
pub(crate) fn origin(w: &Tensor) -> Option<Origin> {
    origins().get(&w.id()).cloned()
}

/// Removes an origin when the operator that it belongs to is dropped.
#[derive(Default)]
struct Entry(OnceLock<TensorId>);

impl Drop for Entry {
    fn drop(&mut self) {
        // Dropped after the lock is released, since its tensors may be composed themselves.
        let origin = self.0.get().and_then(|id| origins().remove(id));
        drop(origin);
    }
}

struct KroneckerSum {
    order: Kronecker,
    _entry: Arc<Entry>,
}

#[derive(Clone, Copy)]
struct Sizes {
    l: usize,
    n: usize,
    r: usize,
    c: usize,
    t: usize,
}

impl Sizes {
    fn new(templates: &Shape, scalers: &Shape) -> Result<Sizes> {
        let ((_, t, _), (l, n, r, c)) = (templates.dims3()?, scalers.dims4()?);
        Ok(Sizes { l, n, r, c, t })
    }

    fn blocks(&self) -> usize {
        self.l * self.r * self.c
    }
}

/// The transpose of every matrix (rows, columns) of `x`.
fn transpose_each(x: &[f32], (rows, columns): (usize, usize)) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    let size = (rows * columns).max(1);
    for (out, x) in out.chunks_exact_mut(size).zip(x.chunks_exact(size)) {
        for i in 0..rows {
            for j in 0..columns {
                out[j * rows + i] = x[i * columns + j];
            }
        }
    }
    out
}

impl Kronecker {
    /// True if the blocks are already laid out as `W`: tiles in a single column.
    fn in_place(self, z: Sizes) -> bool {
        self == Kronecker::Tile && z.c == 1
    }

    /// Moves blocks (L r c, t t) to `W` (L, r t, c t) if `join`, else `W` to blocks. Rows of blocks are evenly spaced
    /// in `W`.
    fn arrange(self, join: bool, from: &[f32], z: Sizes, to: &mut [f32]) {
        let Sizes { r, c, t, .. } = z;
        let layer = r * c * t * t;
        let layers = to.par_chunks_mut(layer).zip(from.par_chunks(layer));
        layers.for_each(|(to, from)| {
            for a in 0..r {
                for b in 0..c {
                    for i in 0..t {
                        let block = ((a * c + b) * t + i) * t;
                        let (w, step) = match self {
                            Kronecker::Tile => ((a * t + i) * c * t + b * t, 1),
                            Kronecker::Interleave => ((i * r + a) * c * t + b, c),
                        };
                        let (at, to_step, of, from_step) = match join {
                            true => (w, step, block, 1),
                            false => (block, 1, w, step),
                        };
                        if step == 1 {
                            to[at..at + t].copy_from_slice(&from[of..of + t]);
                        } else {
                            for j in 0..t {
                                to[at + j * to_step] = from[of + j * from_step];
                            }
                        }
                    }
                }
            }
        });
    }
}

/// Columns are split at multiples of this, one cache line.
const WHOLE: usize = 16;

impl Operator<2> for KroneckerSum {
    const NAME: &'static str = "kronecker-sum";

    fn forward(&self, [templates, scalers]: [&[f32]; 2], [lt, ls]: [&Layout; 2]) -> Result<Output> {
        let _measured = doing(Work::Composition);
        let z = Sizes::new(lt.shape(), ls.shape())?;
        let tt = z.t * z.t;
        let mut w = vec![0.0; z.blocks() * tt];
        let shape = (z.l, z.r * z.t, z.c * z.t).into();
        if w.is_empty() || z.n == 0 {
            return Ok((w, shape));
        }
        let scalers = transpose_each(scalers, (z.n, z.r * z.c)); // (L r c, N)
        let chunk = share(z.blocks());
        let compose = |blocks: &mut [f32]| {
            blocks
                .par_chunks_mut(chunk * tt)
                .zip(scalers.par_chunks(chunk * z.n))
                .for_each(|(blocks, scalers)| {
                    let m = scalers.len() / z.n;
                    let (a, b) = (rows(scalers, z.n), rows(templates, tt));
                    gemm(current(), (m, tt, z.n), a, b, StartValue::Zero, blocks, tt);
                });
        };
        if self.order.in_place(z) {
            compose(&mut w);
        } else {
            let mut blocks = Buffer::stale(w.len());
            compose(&mut blocks);
            self.order.arrange(true, &blocks, z, &mut w);
        }
        Ok((w, shape))
    }

    fn backward(&self, arguments: [&Tensor; 2], dw: &Tensor) -> Gradients<2> {
        let _measured = doing(Work::Composition);
        let (d_templates, d_scalers) = gradients(arguments, dw, self.order)?;
        Ok([d_templates, Some(d_scalers)])
    }
}

/// The gradients of templates, if needed, and scalers, given the gradient of the weights: `dT = S^T G` and
/// `dS = G T^T`, the latter by block. `G` (L r c, t t) is the gradient split into blocks, `S` is (L r c, N). Columns
/// of the first and rows of the second are split over the threads.
pub(crate) fn gradients(
    [templates, scalers]: [&Tensor; 2],
    dw: &Tensor,
    order: Kronecker,
) -> Result<(Option<Tensor>, Tensor)> {
    let z = Sizes::new(templates.shape(), scalers.shape())?;
    let (tt, m) = (z.t * z.t, z.blocks());
    let wants_templates = templates.track_op();
    if tt * m * z.n == 0 {
        let none = wants_templates.then(|| templates.zeros_like());
        return Ok((none.transpose()?, scalers.zeros_like()?));
    }
    let all = [templates, scalers, dw];
    let (d_templates, d_scalers) = with_slices(all, |[templates, scalers, dw]| {
        let scalers = transpose_each(scalers, (z.n, z.r * z.c)); // (L r c, N)
        let mut blocks = Buffer::stale(if order.in_place(z) { 0 } else { dw.len() });
        let g = if order.in_place(z) {
            dw
        } else {
            order.arrange(false, dw, z, &mut blocks);
            &blocks[..]
        };
        let d_templates = wants_templates.then(|| {
            let width = share(tt).next_multiple_of(WHOLE);
            let columns = (0..tt).into_par_iter().step_by(width).map(|first| {
                let n = width.min(tt - first);
                let mut part = Buffer::stale(z.n * n);
                let (a, b) = (transposed(&scalers, z.n), rows(&g[first..], tt));
                gemm(current(), (z.n, n, m), a, b, StartValue::Zero, &mut part, n);
                part
            });
            let columns: Vec<Buffer> = columns.collect();
            let mut d = Vec::with_capacity(z.n * tt);
            for i in 0..z.n {
                for part in &columns {
                    let n = part.len() / z.n;
                    d.extend_from_slice(&part[i * n..(i + 1) * n]);
                }
            }
            d
        });
        let t = Packed::new(current(), (tt, z.n), transposed(templates, tt));
        let mut by_block = vec![0.0; m * z.n];
        let chunk = share(m);
        by_block
            .par_chunks_mut(chunk * z.n)
            .zip(g.par_chunks(chunk * tt))
            .for_each(|(d, g)| {
                gemm_packed(g.len() / tt, rows(g, tt), &t, StartValue::Zero, d, z.n);
            });
        (d_templates, transpose_each(&by_block, (z.r * z.c, z.n)))
    })?;
    let d_templates = d_templates.map(|d| tensor(d, templates.shape()));
    Ok((
        d_templates.transpose()?,
        tensor(d_scalers, scalers.shape())?,
    ))
}
