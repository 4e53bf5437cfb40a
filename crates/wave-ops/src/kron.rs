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
use crate::gemm::{Packed, StartValue, gemm, gemm_packed, rows, transposed};
use crate::order::Kronecker;
use crate::profile::{Work, doing};
use crate::stock;
use crate::storage::{fused, slice, tensor, with_slice, with_slices};
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, TensorId};
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
        candle_core::bail!(
            "templates {:?} and scalers {:?} do not compose; expected (N, t, t) and (layers, N, r, c)",
            templates.shape(),
            scalers.shape()
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
        let w = templates.apply_op2(&scalers, op)?;
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
/// can hand their gradient on itself, where candle would first add it to zeros (see
/// [`crate::gradients`]).
static ORIGINS: LazyLock<Mutex<HashMap<TensorId, Origin>>> = LazyLock::new(Mutex::default);

fn origins() -> MutexGuard<'static, HashMap<TensorId, Origin>> {
    ORIGINS.lock().expect("nothing panics with the lock")
}

/// The factors of `w`, if it is a [`kronecker_sum`] with a graph.
pub(crate) fn origin(w: &Tensor) -> Option<Origin> {
    origins().get(&w.id()).cloned()
}

/// Strikes an origin off when the operator that it belongs to is dropped.
#[derive(Default)]
struct Entry(OnceLock<TensorId>);

impl Drop for Entry {
    fn drop(&mut self) {
        // Dropped after the lock: its tensors may have been composed themselves.
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

/// `S` (L, N, r c) with the template index last: (L r c, N).
fn by_block(s: &[f32], z: Sizes) -> Vec<f32> {
    let rc = z.r * z.c;
    let mut out = vec![0.0; s.len()];
    for l in 0..z.l {
        for i in 0..z.n {
            for b in 0..rc {
                out[(l * rc + b) * z.n + i] = s[(l * z.n + i) * rc + b];
            }
        }
    }
    out
}

/// The inverse of [`by_block`].
fn by_template(s: &[f32], z: Sizes) -> Vec<f32> {
    let rc = z.r * z.c;
    let mut out = vec![0.0; s.len()];
    for l in 0..z.l {
        for i in 0..z.n {
            for b in 0..rc {
                out[(l * z.n + i) * rc + b] = s[(l * rc + b) * z.n + i];
            }
        }
    }
    out
}

/// Calls `copy(start in the blocks, start in W, length, step in W)` for every run of a block that
/// is evenly spaced in `W`: block rows when tiled, the same with step `c` when interleaved.
fn for_each_run(z: Sizes, order: Kronecker, mut copy: impl FnMut(usize, usize, usize)) {
    let Sizes { l, r, c, t, .. } = z;
    for layer in 0..l {
        let w = layer * r * c * t * t;
        for a in 0..r {
            for b in 0..c {
                let block = ((layer * r + a) * c + b) * t * t;
                for i in 0..t {
                    let start = match order {
                        Kronecker::Tile => w + (a * t + i) * c * t + b * t,
                        Kronecker::Interleave => w + (i * r + a) * c * t + b,
                    };
                    copy(block + i * t, start, t);
                }
            }
        }
    }
}

impl Kronecker {
    fn step(self, z: Sizes) -> usize {
        match self {
            Kronecker::Tile => 1,
            Kronecker::Interleave => z.c,
        }
    }

    /// The blocks in a row are `W` as it stands: tiles in a single column.
    fn in_place(self, z: Sizes) -> bool {
        self == Kronecker::Tile && z.c == 1
    }

    /// Blocks (L r c, t t) to `W` (L, r t, c t).
    fn join(self, blocks: &[f32], z: Sizes, w: &mut [f32]) {
        let step = self.step(z);
        let layer = z.r * z.c * z.t * z.t;
        w.par_chunks_mut(layer)
            .zip(blocks.par_chunks(layer))
            .for_each(|(w, blocks)| {
                for_each_run(Sizes { l: 1, ..z }, self, |from, to, len| {
                    let run = &blocks[from..from + len];
                    if step == 1 {
                        w[to..to + len].copy_from_slice(run);
                    } else {
                        for (j, v) in run.iter().enumerate() {
                            w[to + j * step] = *v;
                        }
                    }
                });
            });
    }

    /// The inverse of [`Kronecker::join`].
    fn cut(self, w: &[f32], z: Sizes, blocks: &mut [f32]) {
        let step = self.step(z);
        let layer = z.r * z.c * z.t * z.t;
        w.par_chunks(layer)
            .zip(blocks.par_chunks_mut(layer))
            .for_each(|(w, blocks)| {
                for_each_run(Sizes { l: 1, ..z }, self, |to, from, len| {
                    let run = &mut blocks[to..to + len];
                    if step == 1 {
                        run.copy_from_slice(&w[from..from + len]);
                    } else {
                        for (j, v) in run.iter_mut().enumerate() {
                            *v = w[from + j * step];
                        }
                    }
                });
            });
    }
}

/// `dT = S^T G` and `dS = G T^T`, the latter by block: `G` (L r c, t t) is the gradient cut into
/// blocks, `S` (L r c, N). Columns of the first and rows of the second are split over the
/// threads.
fn block_gradients(
    g: &[f32],
    templates: &[f32],
    scalers: &[f32],
    z: Sizes,
    wants_templates: bool,
) -> (Option<Vec<f32>>, Vec<f32>) {
    let (tt, m, threads) = (z.t * z.t, z.blocks(), rayon::current_num_threads());
    let d_templates = wants_templates.then(|| {
        let width = tt.div_ceil(threads).next_multiple_of(WHOLE);
        let columns = (0..tt).into_par_iter().step_by(width).map(|first| {
            let n = width.min(tt - first);
            let mut part = Buffer::stale(z.n * n);
            let (a, b) = (transposed(scalers, z.n), rows(&g[first..], tt));
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
    let mut d_scalers = vec![0.0; m * z.n];
    let chunk = m.div_ceil(threads).max(1);
    d_scalers
        .par_chunks_mut(chunk * z.n)
        .zip(g.par_chunks(chunk * tt))
        .for_each(|(d, g)| gemm_packed(g.len() / tt, rows(g, tt), &t, StartValue::Zero, d, z.n));
    (d_templates, d_scalers)
}

/// Columns are split at multiples of this: a cache line.
const WHOLE: usize = 16;

impl CustomOp2 for KroneckerSum {
    fn name(&self) -> &'static str {
        "kronecker-sum"
    }

    fn cpu_fwd(
        &self,
        templates: &CpuStorage,
        lt: &Layout,
        scalers: &CpuStorage,
        ls: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let _measured = doing(Work::Composition);
        let z = Sizes::new(lt.shape(), ls.shape())?;
        let (templates, scalers) = (slice(templates, lt)?, slice(scalers, ls)?);
        let tt = z.t * z.t;
        let scalers = by_block(scalers, z);
        let chunk = z.blocks().div_ceil(rayon::current_num_threads()).max(1);
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
        let mut w = vec![0.0; z.blocks() * tt];
        if self.order.in_place(z) {
            compose(&mut w);
        } else {
            let mut blocks = Buffer::stale(w.len());
            compose(&mut blocks);
            self.order.join(&blocks, z, &mut w);
        }
        Ok((CpuStorage::F32(w), (z.l, z.r * z.t, z.c * z.t).into()))
    }

    fn bwd(
        &self,
        templates: &Tensor,
        scalers: &Tensor,
        _w: &Tensor,
        dw: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let _measured = doing(Work::Composition);
        let (d_templates, d_scalers) = gradients(templates, scalers, dw, self.order)?;
        Ok((d_templates, Some(d_scalers)))
    }
}

/// The gradients of templates, if they are wanted, and scalers from that of the weights.
pub(crate) fn gradients(
    templates: &Tensor,
    scalers: &Tensor,
    dw: &Tensor,
    order: Kronecker,
) -> Result<(Option<Tensor>, Tensor)> {
    let z = Sizes::new(templates.shape(), scalers.shape())?;
    let by_block = with_slice(scalers, |s| by_block(s, z))?;
    let wants_templates = templates.track_op();
    let (d_templates, d_scalers) = with_slices([dw, templates], |[dw, templates]| {
        if order.in_place(z) {
            block_gradients(dw, templates, &by_block, z, wants_templates)
        } else {
            let mut g = Buffer::stale(dw.len());
            order.cut(dw, z, &mut g);
            block_gradients(&g, templates, &by_block, z, wants_templates)
        }
    })?;
    let d_templates = d_templates.map(|d| tensor(d, templates.shape()));
    let d_scalers = tensor(by_template(&d_scalers, z), scalers.shape())?;
    Ok((d_templates.transpose()?, d_scalers))
}
