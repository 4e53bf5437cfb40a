//! Templates and scalers that follow weights which train.
//!
//! A condensation can train the composed weights `B`, as those of any network, and after each step
//! replace them by nearby ones that templates can compose. Cut into blocks of template size these are the rows
//! of one matrix, a product `S (m, N) . T (N, t t)`. One sweep of alternating least squares from the last product leads there: the scalers
//! `S + (B - S T) T' (T T')⁻¹`, then the templates `T + (S' S)⁻¹ S' (B - S T)`.

use crate::bank::depth_matrix;
use crate::compose::crop;
use crate::levels::Reach;
use crate::{Learngene, Part, Plan, compose, resize_scalers};
use candle_core::{Device, Result, Tensor};
use faer::Mat;
use faer::linalg::solvers::DenseSolveCore;
use std::collections::BTreeMap;
use wave_models::Weights;
use wave_models::vit::VitShape;
use wave_ops::Kronecker;

#[cfg(test)]
mod tests;

/// Ridge of the least squares, relative to the mean of the diagonal: what no block tells apart stays.
const RIDGE: f64 = 1e-4;

impl Learngene {
    /// The weights that templates compose for models of these sizes: `(A, rows, columns)` at the anchors that they read,
    /// at the width of the widest.
    ///
    /// # Errors
    /// If the tensors here do not fit the plan.
    pub fn composed(&self, sizes: &Reach) -> Result<BTreeMap<Part, Tensor>> {
        let scalers = self.bank.iter().map(|(part, bank)| {
            let bank = bank.index_select(&sizes.anchors(bank.device())?, 0)?;
            let own = resize_scalers(&self.plan, *part, &bank, &self.auxiliary, &sizes.widest)?;
            Ok((*part, own))
        });
        let scalers = scalers.collect::<Result<_>>()?;
        compose(&self.plan, &self.templates, &scalers, &sizes.widest)
    }

    /// The weights of a model, layers stacked, from those of [`Learngene::composed`], to which gradients flow, and the
    /// inherited ones here. Templates are laid side by side ([`Kronecker::Tile`](crate::Kronecker::Tile)).
    ///
    /// # Errors
    /// If they do not fit.
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
            weights.insert(part.stacked_name(), crop(&w, part, shape)?);
        }
        Ok(weights)
    }

    /// With templates and scalers nearer to `composed`, by one sweep of alternating least squares. No other scalers move
    /// than those that models of these sizes read.
    ///
    /// # Errors
    /// If the weights do not fit the plan, or are not finite.
    pub fn nearer(&self, composed: &BTreeMap<Part, Tensor>, sizes: &Reach) -> Result<Learngene> {
        let t = self.plan.template_size;
        let mut gene = self.clone();
        for (set, n) in &self.plan.counts {
            let of_set = self
                .bank
                .iter()
                .filter(|(part, _)| self.plan.set(**part) == set);
            let (mut b, mut s, mut read) = (Vec::new(), Vec::new(), Vec::new());
            let mut before = 0;
            for (part, bank) in of_set.clone() {
                let (k, n, r, c) = bank.dims4()?;
                b.push(blocks(&self.plan, *part, &composed[part], &sizes.widest)?);
                s.push(
                    bank.permute((0, 2, 3, 1))?
                        .contiguous()?
                        .reshape((k * r * c, n))?,
                );
                let rows = sizes.blocks(&self.plan, *part, &self.auxiliary);
                read.extend(rows.into_iter().map(|row| (before + row) as u32));
                before += k * r * c;
            }
            let s = Tensor::cat(&s, 0)?; // (m, N)
            let read = Tensor::new(read, s.device())?;
            let own = s.index_select(&read, 0)?; // (m', N), as many as blocks
            let templates = self.templates[set].reshape((*n, t * t))?;
            let (moved, templates) = sweep(&Tensor::cat(&b, 0)?, &own, &templates)?;
            gene.templates
                .insert(set.clone(), templates.reshape((*n, t, t))?);
            let s = s.index_add(&read, &(moved - own)?, 0)?;
            let mut row = 0;
            for (part, bank) in of_set {
                let (k, n, r, c) = bank.dims4()?;
                let own = s.narrow(0, row, k * r * c)?.reshape((k, r, c, n))?;
                gene.bank
                    .insert(*part, own.permute((0, 3, 1, 2))?.contiguous()?);
                row += k * r * c;
            }
        }
        Ok(gene)
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
    let t = plan.template_size;
    let (q, r, c) = plan.blocks(part, shape);
    let w = w.reshape((layers, q, rows / q, cols))?;
    let w = w.pad_with_zeros(2, 0, r / q * t - rows / q)?;
    let w = w.pad_with_zeros(3, 0, c * t - cols)?;
    let w = match plan.kronecker {
        Kronecker::Tile => w.reshape((layers, r, t, c, t))?.permute((0, 1, 3, 2, 4))?,
        Kronecker::Interleave => w.reshape((layers, t, r, t, c))?.permute((0, 2, 4, 1, 3))?,
    }; // (L, r, c, t, t)
    w.contiguous()?.reshape((layers * r * c, t * t))
}

/// One sweep of alternating least squares for `b (m, d) ≈ s (m, N) . t (N, d)`.
fn sweep(b: &Tensor, s: &Tensor, t: &Tensor) -> Result<(Tensor, Tensor)> {
    let rest = (b - s.matmul(t)?)?;
    let tt = t.t()?.contiguous()?;
    let s = (s + rest.matmul(&tt)?.matmul(&inverse(&t.matmul(&tt)?)?)?)?;
    let rest = (b - s.matmul(t)?)?;
    let st = s.t()?.contiguous()?;
    let t = (t + inverse(&st.matmul(&s)?)?.matmul(&st.matmul(&rest)?)?)?;
    Ok((s, t))
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
    let cholesky = matrix
        .llt(faer::Side::Lower)
        .map_err(|e| candle_core::Error::Msg(format!("no Cholesky decomposition: {e:?}")))?;
    let inverse = cholesky.inverse();
    let entries = (0..n * n).map(|x| inverse[(x / n, x % n)] as f32).collect();
    Tensor::from_vec(entries, (n, n), gram.device())
}
