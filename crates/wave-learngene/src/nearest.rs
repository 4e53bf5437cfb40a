//! Fits templates and scalers to weights during training.
//!
//! A condensation can train the composed weights `B` directly, and after each step replace them with nearby ones that
//! templates can compose. Cut into blocks of template size, these are the rows of one matrix, a product
//! `S (m, N) . T (N, t t)`. It is updated by one sweep of alternating least squares: the scalers
//! `S + (B - S T) T' (T T')⁻¹`, then the templates `T + (S' S)⁻¹ S' (B - S T)`.

use crate::bank::{depth_matrix, resize_scalers};
use crate::compose::crop;
use crate::levels::Reach;
use crate::{Learngene, Part, Plan, Scalers, Templates, compose};
use candle_core::{Device, Result, Tensor};
use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use std::collections::BTreeMap;
use wave_models::Weights;
use wave_models::vit::VitShape;
use wave_ops::Kronecker;

#[cfg(test)]
mod tests;

/// Ridge of the least squares, relative to the mean of the diagonal: undetermined directions stay unchanged.
const RIDGE: f64 = 1e-4;

impl Learngene {
    /// The weights that templates compose for models of these sizes: `(A, rows, columns)` at the anchors that they read
    /// and the width of the widest.
    pub fn composed(&self, sizes: &Reach) -> Result<BTreeMap<Part, Tensor>> {
        let parts = self.bank.keys();
        let scalers = parts.map(|part| Ok((*part, self.scalers_of(*part, sizes)?)));
        let scalers = scalers.collect::<Result<_>>()?;
        compose(&self.plan, &self.templates, &scalers, &sizes.widest)
    }

    /// The bank's scalers of a part that models of these sizes read: (A, N, r, c).
    fn scalers_of(&self, part: Part, sizes: &Reach) -> Result<Tensor> {
        let bank = &self.bank[&part];
        let anchors: Vec<u32> = sizes.anchors.iter().map(|k| *k as u32).collect();
        let bank = bank.index_select(&Tensor::new(anchors, bank.device())?, 0)?;
        resize_scalers(&self.plan, part, &bank, &self.auxiliary, &sizes.widest)
    }

    /// The weights of a model, layers stacked, from the weights of [`Learngene::composed`], to which gradients flow,
    /// and the inherited ones. Templates are laid side by side ([`Kronecker::Tile`]).
    pub fn weights_from(
        &self,
        composed: &BTreeMap<Part, Tensor>,
        sizes: &Reach,
        shape: &VitShape,
    ) -> Result<Weights> {
        let matrix = depth_matrix(shape.depth, self.auxiliary.depth, self.depth_rule);
        let read = |row: &Vec<f32>| sizes.anchors.iter().map(|k| row[*k]).collect::<Vec<_>>();
        let matrix: Vec<f32> = matrix.iter().flat_map(read).collect();
        let mut weights = self.inherited(shape)?;
        for (&part, w) in composed {
            let (anchors, rows, columns) = w.dims3()?;
            let matrix = Tensor::from_slice(&matrix, (shape.depth, anchors), w.device())?;
            let w = matrix.matmul(&w.reshape((anchors, ()))?)?; // (L, rows columns)
            let w = w.reshape((shape.depth, rows, columns))?;
            weights.insert(part.stacked_name().into(), crop(&w, part, shape)?);
        }
        Ok(weights)
    }

    /// Moves templates and scalers towards `composed`, the weights of [`Learngene::composed`] for `sizes`, by one sweep
    /// of alternating least squares. The last step changed the part of them that `moved` reads. Fails if the weights do
    /// not fit the plan, or are not finite.
    pub fn nearer(
        &self,
        composed: &BTreeMap<Part, Tensor>,
        sizes: &Reach,
        moved: &Reach,
    ) -> Result<Learngene> {
        let t = self.plan.template_size;
        let mut gene = self.clone();
        for (set, n) in &self.plan.counts {
            let (mut b, mut s) = (Vec::new(), Vec::new());
            let (mut rows, mut all) = (Vec::new(), Vec::new());
            let mut before = 0;
            for part in self.plan.parts(set) {
                let of_model = sizes.region(&composed[&part], moved, &self.plan, part)?;
                b.push(cut(&of_model, t, self.plan.kronecker)?);
                let by_row = self.bank[&part].permute((0, 2, 3, 1))?.contiguous()?;
                s.push(by_row.reshape(((), *n))?); // (K r c, N)
                for (reach, rows) in [(moved, &mut rows), (sizes, &mut all)] {
                    let read = reach.blocks(&self.plan, part, &self.auxiliary).into_iter();
                    rows.extend(read.map(|row| (before + row) as u32));
                }
                before += self.auxiliary.depth * self.plan.block_count(part, &self.auxiliary);
            }
            let s = Tensor::cat(&s, 0)?; // (m, N)
            let rows = Tensor::new(rows, s.device())?;
            let all = Tensor::new(all, s.device())?;
            let templates = self.templates[set].reshape((*n, t * t))?;
            let (s, templates) = sweep(&Tensor::cat(&b, 0)?, &s, &rows, &all, &templates)?;
            let templates = templates.reshape((*n, t, t))?;
            gene.templates.insert(set.clone(), templates);
            gene.bank
                .extend(self.plan.by_part(set, &s, &self.auxiliary)?);
        }
        Ok(gene)
    }

    /// The weights of [`Learngene::composed`] for `sizes`, with the part that `next` reads composed again.
    pub fn refreshed(
        &self,
        composed: &BTreeMap<Part, Tensor>,
        sizes: &Reach,
        next: &Reach,
    ) -> Result<BTreeMap<Part, Tensor>> {
        let t = self.plan.template_size;
        let of_part = |(&part, w): (&Part, &Tensor)| {
            let (anchors, rows, columns) = w.dims3()?;
            let s = self.scalers_of(part, next)?;
            let templates = &self.templates[self.plan.set(part)];
            let fresh = wave_ops::kronecker_sum(templates, &s, self.plan.kronecker)?;
            let (q, r, c) = self.plan.blocks(part, &next.widest);
            let fresh = fresh.reshape(((), q, r / q * t, c * t))?;
            let old = sizes.region(w, next, &self.plan, part)?; // (A', q, rows', columns')
            let (_, _, tall, wide) = old.dims4()?;
            let change = (fresh.narrow(2, 0, tall)?.narrow(3, 0, wide)? - old)?;
            let change = change.pad_with_zeros(2, 0, rows / q - tall)?;
            let change = change.pad_with_zeros(3, 0, columns - wide)?;
            let whole = w.reshape((anchors, q, rows / q, columns))?;
            let places = sizes.places(next, w.device())?;
            let whole = whole.index_add(&places, &change.contiguous()?, 0)?;
            Ok((part, whole.reshape((anchors, rows, columns))?))
        };
        composed.iter().map(of_part).collect()
    }
}

impl Plan {
    /// The scalers (L, N, r, c) of each part of a set, from all of them, `s (m, N)`: block after block, layer after layer,
    /// part after part.
    fn by_part(&self, set: &str, s: &Tensor, shape: &VitShape) -> Result<Scalers> {
        let mut row = 0;
        let of_part = |part: Part| {
            let [n, r, c] = self.scaler_shape(part, shape);
            let own = s.narrow(0, row, shape.depth * r * c)?;
            row += shape.depth * r * c;
            let own = own.reshape((shape.depth, r, c, n))?;
            Ok((part, own.permute((0, 3, 1, 2))?.contiguous()?))
        };
        self.parts(set).map(of_part).collect()
    }
}

impl Reach {
    /// The positions of the anchors of `few` among those of `self`.
    fn places(&self, few: &Reach, device: &Device) -> Result<Tensor> {
        let place = |k: &usize| self.anchors.iter().position(|own| own == k);
        let places: Option<Vec<u32>> = few.anchors.iter().map(|k| Some(place(k)? as u32)).collect();
        let places = places.ok_or_else(|| {
            candle_core::Error::Msg("a model reads anchors that are not trained".into())
        })?;
        Tensor::new(places, device)
    }

    /// The blocks of weights `w (A, rows, columns)` of these sizes that `few` reads: `(A', q, rows', columns')` for q
    /// segments, whole blocks as far as `w` has them.
    fn region(&self, w: &Tensor, few: &Reach, plan: &Plan, part: Part) -> Result<Tensor> {
        let (_, rows, columns) = w.dims3()?;
        let t = plan.template_size;
        let (q, r, c) = plan.blocks(part, &few.widest);
        let (tall, wide) = ((r / q * t).min(rows / q), (c * t).min(columns));
        let w = w.index_select(&self.places(few, w.device())?, 0)?;
        let w = w.reshape(((), q, rows / q, columns))?;
        w.narrow(2, 0, tall)?.narrow(3, 0, wide)
    }
}

/// Weights of all layers, `(L, rows, columns)`, cut into blocks of template size: `(L r c, t t)`.
pub(crate) fn blocks(plan: &Plan, part: Part, w: &Tensor, shape: &VitShape) -> Result<Tensor> {
    let (rows, cols) = part.rows_cols(shape);
    let layers = match w.dims() {
        [layers, r, c] if (*r, *c) == (rows, cols) && *layers > 0 => *layers,
        found => candle_core::bail!(
            "weights of {part} have shape {found:?}; expected [layers, {rows}, {cols}]"
        ),
    };
    let q = part.segments();
    let w = w.reshape((layers, q, rows / q, cols))?;
    cut(&w, plan.template_size, plan.kronecker)
}

/// The templates and scalers whose compositions are nearest to the weights of a model of `shape`, layers stacked: for
/// each set the truncated singular value decomposition of all blocks. If there are more templates than the rank of the
/// blocks, the surplus ones keep their values in `templates` and get scalers of 0. Fails if a part's weights are
/// missing or have another shape, or if the decomposition does not converge.
pub fn factorised(
    plan: &Plan,
    templates: &Templates,
    weights: &Weights,
    shape: &VitShape,
) -> Result<(Templates, Scalers)> {
    let t = plan.template_size;
    let mut nearest = templates.clone();
    let mut bank = Scalers::new();
    for (set, &n) in &plan.counts {
        let of_part = |part: Part| {
            let missing = || candle_core::Error::Msg(format!("the weights of {part} are missing"));
            let w = weights.get(part.stacked_name()).ok_or_else(missing)?;
            blocks(plan, part, w, shape)
        };
        let blocks: Vec<Tensor> = plan.parts(set).map(of_part).collect::<Result<_>>()?;
        let (left, right) = truncated(&Tensor::cat(&blocks, 0)?, n)?; // (m, k), (k, t t)
        let rank = right.dim(0)?;
        let right = right.reshape((rank, t, t))?;
        let rest = templates[set].narrow(0, rank, n - rank)?;
        nearest.insert(set.clone(), Tensor::cat(&[right, rest], 0)?);
        let left = left.pad_with_zeros(1, 0, n - rank)?; // (m, N)
        bank.extend(plan.by_part(set, &left, shape)?);
    }
    Ok((nearest, bank))
}

/// The two factors of a truncated singular value decomposition of `b (m, d)`, up to `n` values, whose square roots are
/// shared between the factors: `(m, k)` and `(k, d)`.
fn truncated(b: &Tensor, n: usize) -> Result<(Tensor, Tensor)> {
    let (m, d) = b.dims2()?;
    let values = b.to_vec2::<f32>()?;
    let matrix = Mat::from_fn(m, d, |i, j| f64::from(values[i][j]));
    let svd = matrix.thin_svd().map_err(|e| {
        candle_core::Error::Msg(format!("the singular value decomposition failed: {e:?}"))
    })?;
    let (u, s, v) = (svd.U(), svd.S().column_vector(), svd.V());
    let k = n.min(m).min(d);
    let left = (0..m * k).map(|x| (u[(x / k, x % k)] * s[x % k].sqrt()) as f32);
    let right = (0..k * d).map(|x| (v[(x % d, x / d)] * s[x / d].sqrt()) as f32);
    let tensor = |values: Vec<f32>, dims| Tensor::from_vec(values, dims, &Device::Cpu);
    Ok((
        tensor(left.collect(), (m, k))?,
        tensor(right.collect(), (k, d))?,
    ))
}

/// Weights `(L, q, rows, columns)` of q segments, zero-padded and cut into blocks of template size: `(L r c, t t)`.
fn cut(w: &Tensor, t: usize, kronecker: Kronecker) -> Result<Tensor> {
    let (layers, q, rows, columns) = w.dims4()?;
    let (r, c) = (q * rows.div_ceil(t), columns.div_ceil(t));
    let w = w.pad_with_zeros(2, 0, r / q * t - rows)?;
    let w = w.pad_with_zeros(3, 0, c * t - columns)?;
    let w = match kronecker {
        Kronecker::Tile => w.reshape((layers, r, t, c, t))?.permute((0, 1, 3, 2, 4))?,
        Kronecker::Interleave => w.reshape((layers, t, r, t, c))?.permute((0, 2, 4, 1, 3))?,
    }; // (L, r, c, t, t)
    w.contiguous()?.reshape((layers * r * c, t * t))
}

/// One sweep of alternating least squares for the `rows` of `S (m, N)`, so that their products approach `b (m', d)`.
/// The rows `all` constrain the templates `t (N, d)`: products of rows that did not move should not change.
fn sweep(
    b: &Tensor,
    s: &Tensor,
    rows: &Tensor,
    all: &Tensor,
    t: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let own = s.index_select(rows, 0)?; // (m', N)
    let rest = (b - own.matmul(t)?)?;
    let tt = t.t()?.contiguous()?;
    let change = rest.matmul(&tt)?.matmul(&inverse(&t.matmul(&tt)?)?)?;
    let s = s.index_add(rows, &change, 0)?;
    let own = (own + change)?;
    let rest = (b - own.matmul(t)?)?;
    let all = s.index_select(all, 0)?;
    let gram = all.t()?.contiguous()?.matmul(&all)?;
    let pull = own.t()?.contiguous()?.matmul(&rest)?;
    Ok((s, (t + inverse(&gram)?.matmul(&pull)?)?))
}

/// The inverse of a Gram matrix (N, N) with a ridge, in double precision.
fn inverse(gram: &Tensor) -> Result<Tensor> {
    let n = gram.dim(0)?;
    let values: Vec<f32> = gram.to_device(&Device::Cpu)?.flatten_all()?.to_vec1()?;
    let trace: f64 = (0..n).map(|i| f64::from(values[i * n + i])).sum();
    let ridge = RIDGE * trace / n as f64 + f64::MIN_POSITIVE;
    let matrix = Mat::from_fn(n, n, |i, j| {
        f64::from(values[i * n + j]) + if i == j { ridge } else { 0.0 }
    });
    let cholesky = matrix.llt(faer::Side::Lower).map_err(|e| {
        candle_core::Error::Msg(format!("the Cholesky decomposition failed: {e:?}"))
    })?;
    let inverse = cholesky.inverse();
    let entries = (0..n * n).map(|x| inverse[(x / n, x % n)] as f32).collect();
    Tensor::from_vec(entries, (n, n), gram.device())
}
