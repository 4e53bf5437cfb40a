//! From templates and scalers to weights: the sum of Kronecker products (equation 3).

use crate::{Part, Plan};
use candle_core::{Result, Tensor, bail};
use std::collections::BTreeMap;
use wave_models::vit::VitShape;
use wave_ops::kronecker_sum;

#[cfg(test)]
mod tests;

/// The templates of every set: `(n_templates, t, t)` by the set's name.
pub type Templates = BTreeMap<String, Tensor>;

/// The scalers of every part: `(layers, n_templates, r, c)`.
pub type Scalers = BTreeMap<Part, Tensor>;

/// Composes the weights of all layers: `(layers, rows, columns)` for every part of the plan.
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
/// If a set or a part is missing or does not fit the plan and the shape, or if the
/// parts differ in depth.
pub fn compose(
    plan: &Plan,
    templates: &Templates,
    scalers: &Scalers,
    shape: &VitShape,
) -> Result<BTreeMap<Part, Tensor>> {
    if shape.width == 0 || shape.hidden() == 0 {
        bail!(
            "block of width {} and hidden width {}: both must be 1 or more",
            shape.width,
            shape.hidden()
        );
    }
    let mut depth = None;
    let mut weights = BTreeMap::new();
    for &part in plan.sets.keys() {
        let t = templates_of(plan, templates, part)?; // (N, t, t)
        let Some(s) = scalers.get(&part) else {
            bail!("{part}: its scalers are missing; every part of the plan needs scalers");
        };
        check_scalers(plan, part, s, shape)?; // (L, N, r, c)
        let layers = s.dim(0)?;
        let expected = *depth.get_or_insert(layers);
        if layers != expected {
            bail!(
                "{part}: scalers for {layers} layers, but other parts have {expected}; use one \
                 depth"
            );
        }
        let whole = kronecker_sum(t, s, plan.kronecker)?; // (L, r t, c t)
        weights.insert(part, crop(&whole, part, shape)?); // (L, rows, cols)
    }
    Ok(weights)
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

/// The templates that compose a part, checked to be those of the plan.
pub(crate) fn templates_of<'a>(
    plan: &Plan,
    templates: &'a Templates,
    part: Part,
) -> Result<&'a Tensor> {
    let set = plan.set(part);
    let Some(found) = templates.get(set) else {
        bail!(
            "{part}: the templates of set {set:?} are missing; load the file that belongs to the plan"
        );
    };
    let (n, t) = (plan.n_templates(part), plan.template_size);
    let expected = [n, t, t];
    if found.dims() != expected {
        bail!(
            "set {set:?}: templates of shape {:?}, but the plan has {expected:?}; load the file \
             that belongs to the plan",
            found.dims()
        );
    }
    Ok(found)
}

/// Checks that scalers are `(layers, n_templates, r, c)` for this part and shape.
pub(crate) fn check_scalers(
    plan: &Plan,
    part: Part,
    scalers: &Tensor,
    shape: &VitShape,
) -> Result<()> {
    let expected = plan.scaler_shape(part, shape);
    match scalers.dims() {
        [layers, rest @ ..] if *layers > 0 && rest == expected => Ok(()),
        found => {
            let [n, r, c] = expected;
            bail!(
                "{part}: scalers of shape {found:?}, but width {} and hidden width {} need [layers, {n}, {r}, {c}] with \
                 1 layer or more; resize the scalers to this shape first",
                shape.width,
                shape.hidden()
            )
        }
    }
}
