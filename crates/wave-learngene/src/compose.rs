//! From templates and scalers to weights: the sum of Kronecker products (equation 3).

use crate::{Part, Plan};
use candle_core::{Result, Tensor};
use std::collections::BTreeMap;
use wave_models::vit::VitShape;
use wave_ops::kronecker_sum;

#[cfg(test)]
mod tests;

/// The templates of every set: `(n_templates, t, t)` by the set's name.
pub type Templates = BTreeMap<String, Tensor>;

/// The scalers of every part: `(layers, n_templates, r, c)`.
pub type Scalers = BTreeMap<Part, Tensor>;

/// Composes the weights of all layers: `(layers, rows, columns)` for every part.
///
/// Gradients flow to templates and scalers. The result is stale as soon as either changes, so
/// compose in every forward pass. Where the template size does not divide a side, the product
/// covers the next multiple and is cropped; q, k and v are cropped one by one.
///
/// # Shapes
/// `templates`: `(n_templates, t, t)` for every set; `scalers`: `(layers, n_templates, r, c)` for
/// every part, with `r` and `c` of [`Plan::blocks`].
///
/// # Errors
/// If templates and scalers of a part differ in number, or scalers cover less than the shape.
pub fn compose(
    plan: &Plan,
    templates: &Templates,
    scalers: &Scalers,
    shape: &VitShape,
) -> Result<BTreeMap<Part, Tensor>> {
    let of_part = |(&part, s): (&Part, &Tensor)| {
        let t = &templates[plan.set(part)]; // (N, t, t)
        let whole = kronecker_sum(t, s, plan.kronecker)?; // (L, r t, c t)
        Ok((part, crop(&whole, part, shape)?)) // (L, rows, cols)
    };
    scalers.iter().map(of_part).collect()
}

/// Cuts the composed multiple of the template size down to the weight, segment by segment.
pub(crate) fn crop(whole: &Tensor, part: Part, shape: &VitShape) -> Result<Tensor> {
    let (rows, cols) = part.rows_cols(shape);
    let (l, tall, wide) = whole.dims3()?;
    if (tall, wide) == (rows, cols) {
        return Ok(whole.clone());
    }
    let q = part.segments();
    let split = whole.reshape((l, q, tall / q, wide))?; // (L, q, tall / q, wide)
    let cut = split.narrow(2, 0, rows / q)?.narrow(3, 0, cols)?; // (L, q, rows / q, cols)
    cut.reshape((l, rows, cols))
}
