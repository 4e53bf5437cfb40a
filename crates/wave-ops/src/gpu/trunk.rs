//! The blocks of a vision transformer, see [`crate::blocks()`], with kernels and matrix products.
//!
//! Values between blocks are `f32`. Inside a branch they have the [`Kind`] of the products; sums,
//! parameters and gradients of parameters are `f32` in either case. A layer keeps its input, qkv, the
//! attention's output and log-sum-exps, u, and the MLP's pre-activation. The backward pass recomputes
//! norms, GELU and attention scores. Attention and GELU add the biases of the preceding products.

use super::kernels::{Attention, Branch, Norm};
use super::{Kind, Place, Values, View, plain, transposed};
use crate::shape::BlocksShape;
use candle_core::Result;

/// The data shared by all layers.
pub(super) struct Trunk {
    pub(super) place: Place,
    pub(super) shape: BlocksShape,
    /// Kind of the products' factors.
    pub(super) kind: Kind,
    pub(super) samples: usize,
    pub(super) tokens: usize,
}

/// The values of a layer that the backward pass reads.
pub(super) struct Kept {
    x: Values,
    /// `None` if it is to be recomputed.
    inside: Option<Inside>,
}

/// The values between a layer's input and output.
struct Inside {
    qkv: Values,
    lse: Values,
    o: Values,
    u: Values,
    h: Values,
}

/// The indices of the four matrices among a layer's tensors.
const MATRICES: [usize; 4] = [2, 4, 8, 10];

/// The matrices in the kind of the products, if they are stored in another kind.
pub(super) type Narrowed = Option<[Values; 4]>;

impl Trunk {
    fn rows(&self) -> usize {
        self.samples * self.tokens
    }

    fn attention(&self) -> Attention {
        Attention {
            samples: self.samples,
            tokens: self.tokens,
            heads: self.shape.heads,
            head_width: self.shape.width / self.shape.heads,
        }
    }

    /// Allocates a row of `width` values for each token, in the kind of the products.
    fn wide(&self, width: usize) -> Result<Values> {
        self.place.values(self.kind, self.rows() * width)
    }

    /// The matrices, converted for the products.
    pub(super) fn narrowed(&self, slabs: &[View; 12]) -> Result<Narrowed> {
        if self.kind == Kind::F32 {
            return Ok(None);
        }
        let [a, b, c, d] = MATRICES.map(|i| self.place.narrowed(self.kind, slabs[i]));
        Ok(Some([a?, b?, c?, d?]))
    }

    /// The tensors of layer `l`.
    fn layer<'a>(
        &self,
        slabs: &[View<'a>; 12],
        narrowed: &'a Narrowed,
        l: usize,
    ) -> [View<'a>; 12] {
        let mut slabs = *slabs;
        if let Some(narrowed) = narrowed {
            for (i, values) in MATRICES.into_iter().zip(narrowed) {
                slabs[i] = values.view();
            }
        }
        slabs.map(|slab| slab.layer(l, self.shape.depth))
    }

    /// The scales of branch `i` of layer `l`, from `scales` (depth, 2, samples).
    fn scales<'a>(&self, scales: Option<View<'a>>, l: usize, i: usize) -> Option<View<'a>> {
        scales.map(|all| all.part((2 * l + i) * self.samples, self.samples))
    }

    /// The output of all layers, and the values for the backward pass: none unless `keep`, only the inputs
    /// if `recompute`.
    pub(super) fn forward(
        &self,
        x: View,
        slabs: &[View; 12],
        narrowed: &Narrowed,
        scales: Option<View>,
        (keep, recompute): (bool, bool),
    ) -> Result<(Values, Vec<Kept>)> {
        let mut y = self.place.values(Kind::F32, x.len)?;
        self.place.branch(x, None, y.view())?;
        let mut kept = Vec::new();
        let mut normed = None;
        for l in 0..self.shape.depth {
            let layer = self.layer(slabs, narrowed, l);
            let next = (l + 1 < self.shape.depth).then(|| self.layer(slabs, narrowed, l + 1));
            let next = next.as_ref().map(|layer| self.norms(layer)[0]);
            let (out, inside) =
                self.layer_forward(l, y.view(), normed.take(), &layer, scales, next)?;
            let x = std::mem::replace(&mut y, out.0);
            normed = out.1;
            if keep {
                let inside = (!recompute).then_some(inside);
                kept.push(Kept { x, inside });
            }
        }
        Ok((y, kept))
    }

    /// Turns `g`, the gradient of the output, into the gradient of the input; returns the slabs' gradients.
    pub(super) fn backward(
        &self,
        mut kept: Vec<Kept>,
        g: View,
        slabs: &[View; 12],
        narrowed: &Narrowed,
        scales: Option<View>,
    ) -> Result<Vec<Values>> {
        let depth = self.shape.depth;
        let room = |size| self.place.values(Kind::F32, depth * size);
        let sizes = self.shape.sizes().into_iter();
        let total: Vec<Values> = sizes.map(room).collect::<Result<_>>()?;
        let part = |l: usize, i: usize| total[i].view().layer(l, depth);
        // The gradient of a layer's second branch is computed before the layer's turn.
        let branch = self.wide(self.shape.width)?;
        if let Some(last) = depth.checked_sub(1) {
            let scales = self.scales(scales, last, 1);
            self.place.branch(g, scales, branch.view())?;
            self.place.column_sums(branch.view(), part(last, 11))?;
        }
        for l in (0..depth).rev() {
            let Some(Kept { x, inside }) = kept.pop() else {
                candle_core::bail!("{} of {depth} layers were kept", l);
            };
            let layer = self.layer(slabs, narrowed, l);
            let inside = match inside {
                Some(inside) => inside,
                None => {
                    self.layer_forward(l, x.view(), None, &layer, scales, None)?
                        .1
                }
            };
            let gradients = std::array::from_fn(|i| part(l, i));
            let first = Branch {
                values: branch.view(),
                bias: gradients[5],
                scales: self.scales(scales, l, 0),
            };
            let before = l.checked_sub(1).map(|l| Branch {
                values: branch.view(),
                bias: part(l, 11),
                scales: self.scales(scales, l, 1),
            });
            let branches = (first, before);
            self.layer_backward(x.view(), &inside, &layer, g, branches, &gradients)?;
        }
        Ok(total)
    }

    /// `x W^T`: `w` (out, inner).
    fn linear(&self, x: View, w: View, (out, inner): (usize, usize)) -> Result<Values> {
        let y = self.wide(out)?;
        let size = (self.rows(), out, inner);
        self.place
            .product(size, plain(x), transposed(w), y.view())?;
        Ok(y)
    }

    /// The gradient of [`Trunk::linear`]: returns `dy W`, and writes `dy^T x` to `dw`.
    fn linear_backward(
        &self,
        x: View,
        w: View,
        (out, inner): (usize, usize),
        dy: View,
        dw: View,
    ) -> Result<Values> {
        let dx = self.wide(inner)?;
        let size = (self.rows(), inner, out);
        self.place.product(size, plain(dy), plain(w), dx.view())?;
        let size = (out, inner, self.rows());
        self.place.product(size, transposed(dy), plain(x), dw)?;
        Ok(dx)
    }

    /// The parameters of a layer's two norms.
    fn norms<'a>(&self, layer: &[View<'a>; 12]) -> [Norm<'a>; 2] {
        [0, 6].map(|i| Norm {
            weight: layer[i],
            bias: layer[i + 1],
            eps: self.shape.eps as f32,
        })
    }

    fn norm(&self, x: View, norm: Norm) -> Result<Values> {
        let z = self.wide(self.shape.width)?;
        self.place.norm(x, None, Some((norm, z.view())))?;
        Ok(z)
    }

    /// `x + s (branch + bias)`, and its norm, if any.
    fn residual(
        &self,
        x: View,
        branch: Branch,
        norm: Option<Norm>,
    ) -> Result<(Values, Option<Values>)> {
        let y = self.place.values(Kind::F32, x.len)?;
        let z = norm.map(|_| self.wide(self.shape.width)).transpose()?;
        let to = norm.zip(z.as_ref().map(Values::view));
        self.place.norm(x, Some((branch, y.view())), to)?;
        Ok((y, z))
    }

    /// The output of layer `l` for `x`, with the norm `next` of it, and the values for the backward pass. `normed`
    /// is the first norm of `x`, if already computed.
    fn layer_forward(
        &self,
        l: usize,
        x: View,
        normed: Option<Values>,
        layer: &[View; 12],
        scales: Option<View>,
        next: Option<Norm>,
    ) -> Result<((Values, Option<Values>), Inside)> {
        let &[_, _, w_qkv, b_qkv, w_proj, b_proj, ..] = layer;
        let &[.., w_fc1, b_fc1, w_fc2, b_fc2] = layer;
        let [norm1, norm2] = self.norms(layer);
        let (d, hidden, place) = (self.shape.width, self.shape.hidden, &self.place);
        let branch = |values, bias, i| Branch {
            values,
            bias,
            scales: self.scales(scales, l, i),
        };

        // u = x + s1 (attention(norm1(x) Wqkv^T + bqkv) Wproj^T + bproj)
        let normed = match normed {
            Some(normed) => normed,
            None => self.norm(x, norm1)?,
        };
        let qkv = self.linear(normed.view(), w_qkv, (3 * d, d))?;
        let attention = self.attention();
        let o = self.wide(d)?;
        let lse = place.values(Kind::F32, attention.rows())?;
        place.attention(attention, qkv.view(), Some(b_qkv), o.view(), lse.view())?;
        let projected = self.linear(o.view(), w_proj, (d, d))?;
        let first = branch(projected.view(), b_proj, 0);
        let (u, normed) = self.residual(x, first, Some(norm2))?;

        // y = u + s2 (gelu(norm2(u) Wfc1^T + bfc1) Wfc2^T + bfc2)
        let normed = normed.expect("a norm was asked for");
        let h = self.linear(normed.view(), w_fc1, (hidden, d))?;
        let active = self.wide(hidden)?;
        place.gelu(h.view(), Some(b_fc1), active.view())?;
        let projected = self.linear(active.view(), w_fc2, (d, hidden))?;
        let second = branch(projected.view(), b_fc2, 1);
        let out = self.residual(u.view(), second, next)?;
        Ok((out, Inside { qkv, lse, o, u, h }))
    }

    /// Turns `g`, the gradient of a layer's output, into the gradient of its input `x`, and writes its tensors'
    /// gradients. The first of `branches` is the attention's, used as scratch. The other is the previous layer's; on
    /// entry it holds the gradient of this layer's MLP branch.
    fn layer_backward(
        &self,
        x: View,
        inside: &Inside,
        layer: &[View; 12],
        g: View,
        (first, before): (Branch, Option<Branch>),
        gradients: &[View; 12],
    ) -> Result<()> {
        let &[dw1, db1, dw_qkv, db_qkv, dw_proj, _, dw2, db2, ..] = gradients;
        let &[.., dw_fc1, db_fc1, dw_fc2, _] = gradients;
        let &[_, _, w_qkv, b_qkv, w_proj, _, _, _, w_fc1, b_fc1, w_fc2, _] = layer;
        let [norm1, norm2] = self.norms(layer);
        let (d, hidden, place) = (self.shape.width, self.shape.hidden, &self.place);
        let branch = first.values;

        // GELU is recomputed with its gradient, so the product that gives its incoming gradient comes first.
        let (active, d_h) = (self.wide(hidden)?, self.wide(hidden)?);
        let size = (self.rows(), hidden, d);
        place.product(size, plain(branch), plain(w_fc2), d_h.view())?;
        let h = inside.h.view();
        place.gelu_columns((h, b_fc1), d_h.view(), active.view(), db_fc1)?;
        let size = (d, hidden, self.rows());
        place.product(size, transposed(branch), plain(active.view()), dw_fc2)?;
        let normed = self.norm(inside.u.view(), norm2)?;
        let d_normed =
            self.linear_backward(normed.view(), w_fc1, (hidden, d), d_h.view(), dw_fc1)?;
        let u = (inside.u.view(), norm2);
        place.norm_backward(u, d_normed.view(), (g, true), Some(first), [dw2, db2])?;

        let (o, lse) = (inside.o.view(), inside.lse.view());
        let d_o = self.linear_backward(o, w_proj, (d, d), branch, dw_proj)?;
        let (qkv, d_qkv) = (inside.qkv.view(), self.wide(3 * d)?);
        let from = (qkv, Some(b_qkv));
        place.attention_backward(self.attention(), from, (o, lse), d_o.view(), d_qkv.view())?;
        place.column_sums(d_qkv.view(), db_qkv)?;
        let normed = self.norm(x, norm1)?;
        let d_normed =
            self.linear_backward(normed.view(), w_qkv, (3 * d, d), d_qkv.view(), dw_qkv)?;
        place.norm_backward((x, norm1), d_normed.view(), (g, true), before, [dw1, db1])
    }
}
