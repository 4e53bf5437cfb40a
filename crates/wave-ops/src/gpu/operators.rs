//! Kernels as candle operators. The result is computed first, then registered with candle together
//! with its gradient, which is computed on the same place.

use super::kernels::{Norm, WIDEST_HEAD, WIDEST_NORM};
use super::trunk::{Kept, Trunk};
use super::{Kind, Place, Values, View, plain, transposed, with_views};
use crate::fused::{Custom, Gradients, Stored, custom};
use crate::gradients::Bundle;
use crate::linear::embedding_sizes;
use crate::order::Kronecker;
use crate::shape::{BlocksShape, Mode};
use candle_core::{CpuStorage, CudaStorage, Error, Layout, Result, Shape, Storage, Tensor};
use std::sync::Mutex;

/// An operator whose result is computed before candle calls it. `backward` maps the arguments and the
/// gradient of the result to the gradients of the arguments.
struct Computed<F> {
    name: &'static str,
    result: Mutex<Option<(Storage, Shape)>>,
    backward: F,
}

impl<F> Computed<F> {
    fn take(&self) -> Stored<Storage> {
        let mut result = self.result.lock().expect("nothing panics with the lock");
        let taken = result.take();
        taken.ok_or_else(|| Error::Msg(format!("{} is applied once", self.name)))
    }

    fn elsewhere<T>(&self) -> Result<T> {
        candle_core::bail!("{}: the result is on another device", self.name)
    }
}

impl<const N: usize, F> Custom<N> for Computed<F>
where
    F: Fn([&Tensor; N], &Tensor) -> Gradients<N> + Send + Sync + 'static,
{
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_cpu(&self, _: [&CpuStorage; N], _: [&Layout; N]) -> Stored<CpuStorage> {
        match self.take()? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            _ => self.elsewhere(),
        }
    }

    fn on_cuda(&self, _: [&CudaStorage; N], _: [&Layout; N]) -> Stored<CudaStorage> {
        match self.take()? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            _ => self.elsewhere(),
        }
    }

    fn gradients(&self, arguments: [&Tensor; N], dy: &Tensor) -> Gradients<N> {
        (self.backward)(arguments, dy)
    }
}

/// A tensor of these values, recorded in candle's graph as computed from the arguments.
fn computed<const N: usize>(
    name: &'static str,
    result: Values,
    shape: impl Into<Shape>,
    arguments: [&Tensor; N],
    backward: impl Fn([&Tensor; N], &Tensor) -> Gradients<N> + Send + Sync + 'static,
) -> Result<Tensor> {
    let shape = shape.into();
    let op = Computed {
        name,
        result: Mutex::new(Some((result.into_storage(&shape)?, shape))),
        backward,
    };
    custom(op, arguments)
}

/// Allocates as many values as a tensor has.
fn room(place: &Place, t: &Tensor) -> Result<Values> {
    place.values(Kind::F32, t.elem_count())
}

/// The gradient of a tensor.
fn gradient(values: Values, of: &Tensor) -> Result<Option<Tensor>> {
    values.into_tensor(of.shape()).map(Some)
}

/// See [`crate::layer_norm()`].
pub(crate) fn layer_norm(
    place: Place,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let (y, eps) = (room(&place, x)?, eps as f32);
    with_views(&place, [x, weight, bias], |[x, weight, bias]| {
        place.norm(x, None, Some((Norm { weight, bias, eps }, y.view())))
    })?;
    let backward = move |[x, w, b]: [&Tensor; 3], dy: &Tensor| {
        let (dx, dw, db) = (room(&place, x)?, room(&place, w)?, room(&place, b)?);
        with_views(&place, [x, w, b, dy], |[x, weight, bias, dy]| {
            let (norm, to) = (Norm { weight, bias, eps }, (dx.view(), false));
            place.norm_backward((x, norm), dy, to, None, [dw.view(), db.view()])
        })?;
        Ok([gradient(dx, x)?, gradient(dw, w)?, gradient(db, b)?])
    };
    computed("layer-norm", y, x.shape(), [x, weight, bias], backward)
}

/// See [`crate::patchify`]: images (b, c, h, w) are cut into patches of side `p`.
pub(crate) fn patchify(place: &Place, images: &Tensor, p: usize) -> Result<Tensor> {
    let (b, c, h, w) = images.dims4()?;
    let shape = (b, (h / p) * (w / p), c * p * p);
    let patches = place.values(Kind::F32, shape.0 * shape.1 * shape.2)?;
    with_views(place, [images], |[images]| {
        place.patchify((b, c, h, w), p, images, patches.view())
    })?;
    patches.into_tensor(&shape.into())
}

/// See [`crate::embed`].
pub(crate) fn embed(
    place: Place,
    kind: Kind,
    patches: &Tensor,
    weight: &Tensor,
    table: &Tensor,
) -> Result<Tensor> {
    let [b, n, k, tokens, d] = embedding_sizes([patches, weight, table].map(Tensor::shape))?;
    let rows = b * n;
    let out = place.values(Kind::F32, b * tokens * d)?;
    let x = with_views(&place, [patches, weight, table], |[x, w, table]| {
        // Converted to the kind of the products, if that is not f32.
        let narrowed = |t: View| {
            (kind != Kind::F32)
                .then(|| place.narrowed(kind, t))
                .transpose()
        };
        let (kept, narrow) = (narrowed(x)?, narrowed(w)?);
        let y = place.values(kind, rows * d)?;
        let x = kept.as_ref().map_or(x, Values::view);
        let w = narrow.as_ref().map_or(w, Values::view);
        place.product((rows, d, k), plain(x), transposed(w), y.view())?;
        place.embed(y.view(), table, out.view(), n, d)?;
        Ok(kept)
    })?;
    let backward = move |[patches, weight, table]: [&Tensor; 3], dy: &Tensor| {
        let (dw, d_table) = (room(&place, weight)?, room(&place, table)?);
        with_views(&place, [patches, dy], |[patches, d_tokens]| {
            let dy = place.values(kind, rows * d)?;
            place.embed_backward(d_tokens, dy.view(), (tokens, n, d))?;
            let x = x.as_ref().map_or(patches, Values::view);
            place.product((d, k, rows), transposed(dy.view()), plain(x), dw.view())?;
            place.column_sums(d_tokens, d_table.view())
        })?;
        Ok([None, gradient(dw, weight)?, gradient(d_table, table)?])
    };
    let arguments = [patches, weight, table];
    computed("embed", out, (b, tokens, d), arguments, backward)
}

/// See [`crate::gelu()`].
pub(crate) fn gelu(place: Place, x: &Tensor) -> Result<Tensor> {
    let y = place.values(Kind::F32, x.elem_count())?;
    with_views(&place, [x], |[x]| place.gelu(x, None, y.view()))?;
    let backward = move |[x]: [&Tensor; 1], dy: &Tensor| {
        let dx = room(&place, x)?;
        with_views(&place, [x, dy], |[x, dy]| {
            place.gelu_backward(x, dy, dx.view())
        })?;
        Ok([gradient(dx, x)?])
    };
    computed("gelu", y, x.shape(), [x], backward)
}

/// See [`crate::soft_cross_entropy`].
pub(crate) fn soft_cross_entropy(
    place: Place,
    logits: &Tensor,
    targets: &Tensor,
) -> Result<Tensor> {
    let size = logits.dims2()?;
    let mean = with_views(&place, [logits, targets], |[z, q]| {
        place.soft_cross_entropy(size, z, q)
    })?;
    let targets = targets.detach();
    let backward = move |[z]: [&Tensor; 1], d_loss: &Tensor| {
        let dz = room(&place, z)?;
        with_views(&place, [z, &targets, d_loss], |[z, q, d_loss]| {
            place.soft_cross_entropy_backward(size, (z, q), d_loss, dz.view())
        })?;
        Ok([gradient(dz, z)?])
    };
    computed("soft-cross-entropy", mean, (), [logits], backward)
}

/// See [`crate::kronecker_sum`].
pub(crate) fn kronecker_sum(
    place: Place,
    templates: &Tensor,
    scalers: &Tensor,
    order: Kronecker,
) -> Result<Tensor> {
    let ((n, t, _), (l, _, r, c)) = (templates.dims3()?, scalers.dims4()?);
    let (tt, m, interleave) = (t * t, l * r * c, order == Kronecker::Interleave);
    let room = |len| place.values(Kind::F32, len);
    let w = room(m * tt)?;
    with_views(&place, [templates, scalers], |[templates, scalers]| {
        let (by_block, blocks) = (room(m * n)?, room(m * tt)?);
        place.transpose_each((n, r * c), scalers, by_block.view())?;
        let (s, blocks) = (by_block.view(), blocks.view());
        place.product((m, tt, n), plain(s), plain(templates), blocks)?;
        place.kronecker(true, (r, c, t), interleave, blocks, w.view())
    })?;
    let backward = move |[templates, scalers]: [&Tensor; 2], dw: &Tensor| {
        let room = |len| place.values(Kind::F32, len);
        let (d_templates, d_scalers) = (room(n * tt)?, room(m * n)?);
        let all = [templates, scalers, dw];
        with_views(&place, all, |[templates, scalers, dw]| {
            let (g, by_block) = (room(m * tt)?, room(m * n)?);
            place.kronecker(false, (r, c, t), interleave, dw, g.view())?;
            place.transpose_each((n, r * c), scalers, by_block.view())?;
            let (s, g) = (by_block.view(), g.view());
            place.product((n, tt, m), transposed(s), plain(g), d_templates.view())?;
            // The scalers by block are no longer needed, so their gradient overwrites them.
            place.product((m, n, tt), plain(g), transposed(templates), s)?;
            place.transpose_each((r * c, n), s, d_scalers.view())
        })?;
        Ok([
            gradient(d_templates, templates)?,
            gradient(d_scalers, scalers)?,
        ])
    };
    let shape = (l, r * t, c * t);
    computed("kronecker-sum", w, shape, [templates, scalers], backward)
}

/// True if the kernels support rows of this width.
pub(crate) fn fits_norm(width: usize) -> bool {
    width <= WIDEST_NORM
}

/// True if the kernels support heads and rows of these widths.
pub(crate) fn fits(shape: BlocksShape) -> bool {
    shape.width / shape.heads <= WIDEST_HEAD && fits_norm(shape.width)
}

/// See [`crate::blocks()`]; the parameters are contiguous.
pub(crate) fn blocks(
    place: Place,
    mode: Mode,
    x: &Tensor,
    parameters: &[Tensor; 12],
    shape: BlocksShape,
    drop_path: Option<&[f32]>,
) -> Result<Tensor> {
    let (samples, tokens, _) = x.dims3()?;
    // Attention launches a grid whose last side counts samples.
    if samples >= 1 << 16 {
        candle_core::bail!(
            "a batch of {samples} images at once, expected at most 65535 on a GPU; give a larger --accumulate, or a \
             smaller --batch"
        );
    }
    let trunk = Trunk {
        place,
        shape,
        kind: mode.precision.into(),
        samples,
        tokens,
    };
    let Bundle { token, gradients } = Bundle::new(parameters)?;
    let keep = x.track_op() || token.track_op();
    let scales = drop_path
        .map(|scales| trunk.place.upload_f32(scales))
        .transpose()?;
    let parameters = parameters.each_ref().map(Tensor::detach);
    let slabs = parameters.each_ref();
    let (y, kept, narrowed) = with_views(&trunk.place, slabs, |slabs| {
        let narrowed = trunk.narrowed(&slabs)?;
        let scales = scales.as_ref().map(Values::view);
        let (y, kept) = with_views(&trunk.place, [x], |[x]| {
            trunk.forward(x, &slabs, &narrowed, scales, (keep, mode.recompute))
        })?;
        Ok((y, kept, narrowed))
    })?;
    let saved = Mutex::new(Some((kept, narrowed)));
    let backward = move |[x, token]: [&Tensor; 2], dy: &Tensor| {
        let taken: Option<(Vec<Kept>, _)> = saved.lock().expect("no pass panics").take();
        let Some((kept, narrowed)) = taken else {
            candle_core::bail!("transformer blocks: a second backward pass needs the stock path");
        };
        let dx = room(&trunk.place, x)?;
        let total = with_views(&trunk.place, parameters.each_ref(), |slabs| {
            let scales = scales.as_ref().map(Values::view);
            with_views(&trunk.place, [dy], |[dy]| {
                trunk.place.branch(dy, None, dx.view())?;
                trunk.backward(kept, dx.view(), &slabs, &narrowed, scales)
            })
        })?;
        *gradients.lock().expect("no pass panics") = total
            .into_iter()
            .zip(&parameters)
            .map(|(values, p)| gradient(values, p))
            .collect::<Result<_>>()?;
        Ok([gradient(dx, x)?, Some(Bundle::seed(token.device())?)])
    };
    computed("transformer-blocks", y, x.shape(), [x, &token], backward)
}
