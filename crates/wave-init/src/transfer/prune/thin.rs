//! Fewer and narrower heads, and fewer hidden channels in the MLP.

use super::super::largest;
use super::fit::{Moments, matrix};
use super::network::{Layer, Network, Passage};
use crate::mimetic::tensor;
use candle_core::{D, Error, Result, Tensor};
use faer::{Mat, MatRef, Side};
use wave_models::fold::Affine;
use wave_models::vit::VitShape;

/// Ridge on the second moments of a head, relative to their mean.
const RIDGE: f64 = 1e-6;

impl Layer {
    /// The layer with the heads and hidden channels of `to`, reading and writing the same stream.
    pub(super) fn thinned(
        &self,
        network: &Network,
        passages: &[Passage],
        to: &VitShape,
    ) -> Result<Layer> {
        let (qkv, proj) = self.heads(network, passages, to)?;
        let mut moments = Moments::weighted(&network.share);
        for passage in passages {
            let hidden = self.hidden(&network.norm(&passage.middle)?)?;
            let none = hidden.narrow(D::Minus1, 0, 0)?;
            moments.add(&hidden, &none)?;
        }
        let kept = moments.kept(&self.fc2.weight, to.hidden())?;
        let kept = Tensor::new(kept, self.fc2.bias.device())?;
        Ok(Layer {
            qkv,
            proj,
            fc1: Affine {
                weight: self.fc1.weight.index_select(&kept, 0)?,
                bias: self.fc1.bias.index_select(&kept, 0)?,
            },
            fc2: Affine {
                weight: self.fc2.weight.index_select(&kept, 1)?,
                bias: self.fc2.bias.clone(),
            },
            heads: to.heads,
        })
    }

    /// Queries, keys and values, and the projection, of the heads of `to`.
    fn heads(
        &self,
        network: &Network,
        passages: &[Passage],
        to: &VitShape,
    ) -> Result<(Affine, Affine)> {
        let (old, new) = (network.donor.shape.head_width(), to.head_width());
        let heads = self.heads;
        if (heads, old) == (to.heads, new) {
            return Ok((self.qkv.clone(), self.proj.clone()));
        }
        // Second moments of queries, keys and outputs, one matrix per head.
        let mut sums = [(); 3].map(|()| vec![Mat::<f64>::zeros(old, old); heads]);
        for passage in passages {
            let qkv = self.qkv.apply(&network.norm(&passage.before)?)?;
            let width = heads * old;
            let parts = [
                qkv.narrow(2, 0, width)?,
                qkv.narrow(2, width, width)?,
                self.attend(&qkv)?,
            ];
            for (sums, part) in sums.iter_mut().zip(parts) {
                let part = part.broadcast_mul(&network.share)?;
                let part = part.reshape(((), heads, old))?.transpose(0, 1)?;
                let part = part.contiguous()?;
                let products = part.t()?.matmul(&part)?; // (heads, old, old)
                for (head, sum) in sums.iter_mut().enumerate() {
                    *sum += matrix(&products.get(head)?)?;
                }
            }
        }
        let [queries, keys, outputs] = sums;
        let proj = matrix(&self.proj.weight)?;
        let of_head = |head: usize| proj.subcols(head * old, old);
        let written = (0..heads).map(|head| {
            let own = of_head(head);
            let moments = own * &outputs[head] * own.transpose();
            (0..moments.nrows()).map(|i| moments[(i, i)]).sum::<f64>()
        });
        let written: Vec<f64> = written.collect();
        let kept = largest(&written, to.heads);
        let (all, width) = (heads * old, to.heads * new);
        let mut reads = Mat::<f64>::zeros(3 * width, 3 * all);
        let mut writes = Mat::<f64>::zeros(all, width);
        for (to, from) in kept.into_iter().enumerate() {
            let (q, k) = leading_scores(&queries[from], &keys[from], new)?;
            let (v, back) = leading_outputs(of_head(from), &outputs[from], new)?;
            // A head's scores are divided by the square root of its width.
            let q = q * faer::Scale((new as f64 / old as f64).sqrt());
            for (part, own) in [q, k, v].iter().enumerate() {
                let (row, column) = (part * width + to * new, part * all + from * old);
                reads.submatrix_mut(row, column, new, old).copy_from(own);
            }
            writes
                .submatrix_mut(from * old, to * new, old, new)
                .copy_from(&back);
        }
        let reads = tensor(reads.as_ref())?;
        let bias = self.qkv.bias.unsqueeze(1)?;
        let qkv = Affine {
            weight: reads.matmul(&self.qkv.weight)?,
            bias: reads.matmul(&bias)?.squeeze(1)?,
        };
        let proj = Affine {
            weight: self.proj.weight.matmul(&tensor(writes.as_ref())?)?,
            bias: self.proj.bias.clone(),
        };
        Ok((qkv, proj))
    }
}

/// Maps (new, old) of queries and keys whose products best approximate those of all `old` channels.
///
/// With second moments `A² = E[q q']` and `B² = E[k k']` of independent queries and keys, the best products
/// of rank n come from the leading singular vectors of `A B = U s V'`: `s^½ U' A^-1 q` and `s^½ V' B^-1 k`.
fn leading_scores(queries: &Mat<f64>, keys: &Mat<f64>, new: usize) -> Result<(Mat<f64>, Mat<f64>)> {
    let old = queries.nrows();
    if new >= old {
        return Ok((Mat::identity(new, old), Mat::identity(new, old)));
    }
    let ((a, of_a), (b, of_b)) = (roots(queries)?, roots(keys)?);
    let svd = (a * b).svd().map_err(undecomposed)?;
    let sizes = svd.S().column_vector();
    let root = |i: usize| sizes[i].max(0.0).sqrt();
    let scaled = |vectors: MatRef<f64>| Mat::from_fn(new, old, |i, j| root(i) * vectors[(j, i)]);
    Ok((scaled(svd.U()) * of_a, scaled(svd.V()) * of_b))
}

/// A map (new, old) of a head's outputs, and (old, new) back, after which `proj` (stream, old) writes nearly
/// the same as before: from the leading singular vectors of `proj E[o o']^½`.
fn leading_outputs(
    proj: MatRef<f64>,
    outputs: &Mat<f64>,
    new: usize,
) -> Result<(Mat<f64>, Mat<f64>)> {
    let old = outputs.nrows();
    if new >= old {
        return Ok((Mat::identity(new, old), Mat::identity(old, new)));
    }
    let (half, inverse) = roots(outputs)?;
    let svd = (proj * &half).thin_svd().map_err(undecomposed)?;
    let vectors = svd.V().subcols(0, new);
    Ok((vectors.transpose() * inverse, half * vectors))
}

/// The square root of second moments, and its inverse.
fn roots(moments: &Mat<f64>) -> Result<(Mat<f64>, Mat<f64>)> {
    let eigen = moments.self_adjoint_eigen(Side::Lower);
    let eigen = eigen.map_err(undecomposed)?;
    let (vectors, squares) = (eigen.U(), eigen.S().column_vector());
    let n = moments.nrows();
    let mean = (0..n).map(|i| squares[i]).sum::<f64>() / n as f64;
    let power = |exponent: f64| {
        let scaled = Mat::from_fn(n, n, |i, j| {
            vectors[(i, j)] * (squares[j].max(0.0) + RIDGE * mean + 1e-12).powf(exponent)
        });
        scaled * vectors.transpose()
    };
    Ok((power(0.5), power(-0.5)))
}

fn undecomposed(error: impl std::fmt::Debug) -> Error {
    Error::Msg(format!(
        "a head's activations cannot be decomposed: {error:?}"
    ))
}
