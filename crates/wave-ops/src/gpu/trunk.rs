//! The blocks of a vision transformer, see [`crate::blocks()`], as kernels and products.
//!
//! Between blocks values are `f32`. Inside a branch they are of the [`Kind`] of the products; sums,
//! parameters and gradients of parameters are `f32` in either case. A layer keeps its input, qkv, the
//! attention's output and the logarithms of its sums, u, and the MLP's pre-activation. The backward pass
//! computes norms, GELU and attention scores again. Attention and GELU add the biases of the products
//! before them.

use super::kernels::Attention;
use super::{Kind, Place, Values, View, plain, transposed};
use crate::shape::BlocksShape;
use candle_core::Result;

/// Everything that stays the same from layer to layer.
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
    /// Nothing, if it is to be computed again.
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

/// The four matrices' places among a layer's tensors.
const MATRICES: [usize; 4] = [2, 4, 8, 10];

/// The matrices in the kind of the products, where that is not theirs.
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

    /// Room for a row of `width` values for each token, of the products' kind.
    fn wide(&self, width: usize) -> Result<Values> {
        self.place.values(self.kind, self.rows() * width)
    }

    /// The matrices as the products take them.
    pub(super) fn narrowed(&self, slabs: &[View; 12]) -> Result<Narrowed> {
        if self.kind == Kind::F32 {
            return Ok(None);
        }
        let narrow = |i: usize| -> Result<Values> {
            let to = self.place.values(self.kind, slabs[i].len)?;
            self.place.branch(slabs[i], None, to.view())?;
            Ok(to)
        };
        let [a, b, c, d] = MATRICES.map(narrow);
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

    /// The scales of branch `i` of layer `l`, of all (depth, 2, samples).
    fn scales<'a>(&self, scales: Option<View<'a>>, l: usize, i: usize) -> Option<View<'a>> {
        scales.map(|all| all.part((2 * l + i) * self.samples, self.samples))
    }

    /// The output of all layers, and their values for the backward pass: none unless `keep`, inputs alone if
    /// `recompute`.
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
        for l in 0..self.shape.depth {
            let layer = self.layer(slabs, narrowed, l);
            let (next, inside) = self.layer_forward(l, y.view(), &layer, scales)?;
            let x = std::mem::replace(&mut y, next);
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
        let total: Vec<Values> = self
            .shape
            .sizes()
            .into_iter()
            .map(room)
            .collect::<Result<_>>()?;
        for l in (0..depth).rev() {
            let Some(Kept { x, inside }) = kept.pop() else {
                candle_core::bail!("{} of {depth} layers were kept", l);
            };
            let layer = self.layer(slabs, narrowed, l);
            let inside = match inside {
                Some(inside) => inside,
                None => self.layer_forward(l, x.view(), &layer, scales)?.1,
            };
            let part = |i: usize| total[i].view().layer(l, depth);
            let gradients = std::array::from_fn(part);
            self.layer_backward(l, x.view(), &inside, &layer, scales, g, &gradients)?;
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

    /// The gradient of [`Trunk::linear`]: `dy W`, and `dy^T x` to `dw`.
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

    fn norm(&self, x: View, w: View, b: View) -> Result<Values> {
        let y = self.wide(self.shape.width)?;
        self.place
            .layer_norm(x, w, b, self.shape.eps as f32, y.view())?;
        Ok(y)
    }

    fn layer_forward(
        &self,
        l: usize,
        x: View,
        &[
            w1,
            b1,
            w_qkv,
            b_qkv,
            w_proj,
            b_proj,
            w2,
            b2,
            w_fc1,
            b_fc1,
            w_fc2,
            b_fc2,
        ]: &[View; 12],
        scales: Option<View>,
    ) -> Result<(Values, Inside)> {
        let (d, hidden, place) = (self.shape.width, self.shape.hidden, &self.place);

        // u = x + s1 (attention(norm1(x) Wqkv^T + bqkv) Wproj^T + bproj)
        let normed = self.norm(x, w1, b1)?;
        let qkv = self.linear(normed.view(), w_qkv, (3 * d, d))?;
        let attention = self.attention();
        let o = self.wide(d)?;
        let lse = place.values(Kind::F32, attention.rows())?;
        place.attention(attention, qkv.view(), Some(b_qkv), o.view(), lse.view())?;
        let branch = self.linear(o.view(), w_proj, (d, d))?;
        let u = place.values(Kind::F32, x.len)?;
        place.residual(
            x,
            branch.view(),
            b_proj,
            self.scales(scales, l, 0),
            u.view(),
        )?;

        // y = u + s2 (gelu(norm2(u) Wfc1^T + bfc1) Wfc2^T + bfc2)
        let normed = self.norm(u.view(), w2, b2)?;
        let h = self.linear(normed.view(), w_fc1, (hidden, d))?;
        let active = self.wide(hidden)?;
        place.gelu(h.view(), Some(b_fc1), active.view())?;
        let branch = self.linear(active.view(), w_fc2, (d, hidden))?;
        let y = place.values(Kind::F32, x.len)?;
        place.residual(
            u.view(),
            branch.view(),
            b_fc2,
            self.scales(scales, l, 1),
            y.view(),
        )?;
        Ok((y, Inside { qkv, lse, o, u, h }))
    }

    /// Turns `g`, the gradient of a layer's output, into the gradient of its input `x`, and writes its
    /// tensors' gradients.
    fn layer_backward(
        &self,
        l: usize,
        x: View,
        inside: &Inside,
        &[
            w1,
            b1,
            w_qkv,
            b_qkv,
            w_proj,
            _,
            w2,
            b2,
            w_fc1,
            b_fc1,
            w_fc2,
            _,
        ]: &[View; 12],
        scales: Option<View>,
        g: View,
        &[
            dw1,
            db1,
            dw_qkv,
            db_qkv,
            dw_proj,
            db_proj,
            dw2,
            db2,
            dw_fc1,
            db_fc1,
            dw_fc2,
            db_fc2,
        ]: &[View; 12],
    ) -> Result<()> {
        let (d, hidden, place) = (self.shape.width, self.shape.hidden, &self.place);
        let eps = self.shape.eps as f32;

        let branch = self.wide(d)?;
        place.branch(g, self.scales(scales, l, 1), branch.view())?;
        place.column_sums(branch.view(), db_fc2)?;
        // GELU runs again with its gradient: the product that gives that comes first.
        let (active, d_h) = (self.wide(hidden)?, self.wide(hidden)?);
        let size = (self.rows(), hidden, d);
        place.product(size, plain(branch.view()), plain(w_fc2), d_h.view())?;
        let (h, d_active) = (inside.h.view(), d_h.view());
        place.gelu_backward(h, Some(b_fc1), d_active, d_h.view(), Some(active.view()))?;
        let size = (d, hidden, self.rows());
        place.product(
            size,
            transposed(branch.view()),
            plain(active.view()),
            dw_fc2,
        )?;
        place.column_sums(d_h.view(), db_fc1)?;
        let normed = self.norm(inside.u.view(), w2, b2)?;
        let d_normed =
            self.linear_backward(normed.view(), w_fc1, (hidden, d), d_h.view(), dw_fc1)?;
        place.layer_norm_backward(
            (inside.u.view(), w2, eps),
            d_normed.view(),
            (g, true),
            dw2,
            db2,
        )?;

        place.branch(g, self.scales(scales, l, 0), branch.view())?;
        place.column_sums(branch.view(), db_proj)?;
        let (o, lse) = (inside.o.view(), inside.lse.view());
        let d_o = self.linear_backward(o, w_proj, (d, d), branch.view(), dw_proj)?;
        let (qkv, d_qkv) = (inside.qkv.view(), self.wide(3 * d)?);
        let from = (qkv, Some(b_qkv));
        place.attention_backward(self.attention(), from, (o, lse), d_o.view(), d_qkv.view())?;
        place.column_sums(d_qkv.view(), db_qkv)?;
        let normed = self.norm(x, w1, b1)?;
        let d_normed =
            self.linear_backward(normed.view(), w_qkv, (3 * d, d), d_qkv.view(), dw_qkv)?;
        place.layer_norm_backward((x, w1, eps), d_normed.view(), (g, true), dw1, db1)
    }
}
