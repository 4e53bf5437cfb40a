//! Kernels as candle's operators. The result is computed first. Then candle learns of it and of its
//! gradient, which is computed on the same place.

use super::kernels::{Loss, Norm, WIDEST_HEAD, WIDEST_NORM};
use super::trunk::{Kept, Trunk};
use super::{Kind, Place, Values, View, plain, transposed, with_views};
use crate::gradients::Bundle;
use crate::order::Kronecker;
use crate::shape::{BlocksShape, Mode};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, CustomOp2, CustomOp3, Layout, Result, Shape, Storage,
    Tensor,
};
use std::sync::Mutex;

/// An operator whose result is there before candle asks for it. `backward` turns the arguments and the
/// gradient of the result into the arguments' gradients.
struct Computed<F> {
    name: &'static str,
    result: Mutex<Option<(Storage, Shape)>>,
    backward: F,
}

impl<F> Computed<F> {
    fn new(
        name: &'static str,
        result: Values,
        shape: impl Into<Shape>,
        backward: F,
    ) -> Result<Computed<F>> {
        let shape = shape.into();
        let result = Mutex::new(Some((result.into_storage(&shape)?, shape)));
        Ok(Computed {
            name,
            result,
            backward,
        })
    }

    fn take(&self) -> Result<(Storage, Shape)> {
        let taken = self
            .result
            .lock()
            .expect("nothing panics with the lock")
            .take();
        taken.ok_or_else(|| candle_core::Error::Msg(format!("{} is applied once", self.name)))
    }

    fn on_cpu(&self) -> Result<(CpuStorage, Shape)> {
        match self.take()? {
            (Storage::Cpu(storage), shape) => Ok((storage, shape)),
            _ => candle_core::bail!("{}: the result is on another device", self.name),
        }
    }

    fn on_cuda(&self) -> Result<(CudaStorage, Shape)> {
        match self.take()? {
            (Storage::Cuda(storage), shape) => Ok((storage, shape)),
            _ => candle_core::bail!("{}: the result is on another device", self.name),
        }
    }
}

/// The gradients of `N` arguments.
type GradientsOf<const N: usize> = Result<[Option<Tensor>; N]>;

impl<F: Fn([&Tensor; 1], &Tensor) -> GradientsOf<1>> CustomOp1 for Computed<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        self.on_cpu()
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        self.on_cuda()
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let [dx] = (self.backward)([x], dy)?;
        Ok(dx)
    }
}

impl<F: Fn([&Tensor; 2], &Tensor) -> GradientsOf<2>> CustomOp2 for Computed<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.on_cpu()
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.on_cuda()
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((self.backward)([a, b], dy)?.into())
    }
}

impl<F: Fn([&Tensor; 3], &Tensor) -> GradientsOf<3>> CustomOp3 for Computed<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.on_cpu()
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.on_cuda()
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        Ok((self.backward)([a, b, c], dy)?.into())
    }
}

/// See [`crate::layer_norm()`].
pub(crate) fn layer_norm(
    place: Place,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let (d, n, eps) = (weight.elem_count(), x.elem_count(), eps as f32);
    if d == 0 || n == 0 || !n.is_multiple_of(d) || bias.elem_count() != d {
        candle_core::bail!(
            "layer norm of {:?} with weight {:?} and bias {:?}",
            x.shape(),
            weight.shape(),
            bias.shape()
        );
    }
    let y = place.values(Kind::F32, n)?;
    with_views(&place, [x, weight, bias], |[x, weight, bias]| {
        place.norm(x, None, Some((Norm { weight, bias, eps }, y.view())))
    })?;
    let backward = move |[x, w, b]: [&Tensor; 3], dy: &Tensor| {
        let room = |t: &Tensor| place.values(Kind::F32, t.elem_count());
        let (dx, dw, db) = (room(x)?, room(w)?, room(b)?);
        with_views(&place, [x, w, b, dy], |[x, weight, bias, dy]| {
            let (norm, to) = (Norm { weight, bias, eps }, (dx.view(), false));
            place.norm_backward((x, norm), dy, to, None, [dw.view(), db.view()])
        })?;
        Ok([
            Some(dx.into_tensor(x.shape())?),
            Some(dw.into_tensor(w.shape())?),
            Some(db.into_tensor(b.shape())?),
        ])
    };
    let op = Computed::new("layer-norm", y, x.shape(), backward)?;
    x.apply_op3(weight, bias, op)
}

/// See [`crate::patchify`]: images (b, c, h, w) hold a patch of `p`.
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
    let ((b, n, k), (d, _), (tokens, _)) = (patches.dims3()?, weight.dims2()?, table.dims2()?);
    let rows = b * n;
    let out = place.values(Kind::F32, b * tokens * d)?;
    let x = with_views(&place, [patches, weight, table], |[x, w, table]| {
        // In the kind of the products, where that is not f32.
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
    let backward = {
        let place = place.clone();
        move |[patches, weight, table]: [&Tensor; 3], dy: &Tensor| {
            let room = |t: &Tensor| place.values(Kind::F32, t.elem_count());
            let (dw, d_table) = (room(weight)?, room(table)?);
            with_views(&place, [patches, dy], |[patches, d_tokens]| {
                let dy = place.values(kind, rows * d)?;
                place.embed_backward(d_tokens, dy.view(), (tokens, n, d))?;
                let x = x.as_ref().map_or(patches, Values::view);
                place.product((d, k, rows), transposed(dy.view()), plain(x), dw.view())?;
                place.column_sums(d_tokens, d_table.view())
            })?;
            Ok([
                None,
                Some(dw.into_tensor(weight.shape())?),
                Some(d_table.into_tensor(table.shape())?),
            ])
        }
    };
    let op = Computed::new("embed", out, (b, tokens, d), backward)?;
    patches.apply_op3(weight, table, op)
}

/// See [`crate::gelu()`].
pub(crate) fn gelu(place: Place, x: &Tensor) -> Result<Tensor> {
    let y = place.values(Kind::F32, x.elem_count())?;
    with_views(&place, [x], |[x]| place.gelu(x, None, y.view()))?;
    let backward = move |[x]: [&Tensor; 1], dy: &Tensor| {
        let dx = place.values(Kind::F32, x.elem_count())?;
        with_views(&place, [x, dy], |[x, dy]| {
            place.gelu_backward(x, dy, dx.view())
        })?;
        Ok([Some(dx.into_tensor(x.shape())?)])
    };
    x.apply_op1(Computed::new("gelu", y, x.shape(), backward)?)
}

/// See [`crate::soft_cross_entropy`]; logits are divided by the temperature first, and targets are logits
/// too if `of_logits`.
pub(crate) fn soft_cross_entropy(
    place: Place,
    logits: &Tensor,
    targets: &Tensor,
    temperature: f32,
    of_logits: bool,
) -> Result<Tensor> {
    let (rows, classes) = logits.dims2()?;
    let loss = Loss {
        rows,
        classes,
        temperature,
        of_logits,
    };
    let mean = with_views(&place, [logits, targets], |[z, q]| {
        place.soft_cross_entropy(loss, z, q)
    })?;
    let targets = targets.detach();
    let backward = move |[z]: [&Tensor; 1], d_loss: &Tensor| {
        let dz = place.values(Kind::F32, z.elem_count())?;
        with_views(&place, [z, &targets, d_loss], |[z, q, d_loss]| {
            place.soft_cross_entropy_backward(loss, (z, q), d_loss, dz.view())
        })?;
        Ok([Some(dz.into_tensor(z.shape())?)])
    };
    logits.apply_op1(Computed::new("soft-cross-entropy", mean, (), backward)?)
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
        place.product(
            (m, tt, n),
            plain(by_block.view()),
            plain(templates),
            blocks.view(),
        )?;
        place.kronecker(true, (r, c, t), interleave, blocks.view(), w.view())
    })?;
    let backward = {
        let place = place.clone();
        move |[templates, scalers]: [&Tensor; 2], dw: &Tensor| {
            let room = |len| place.values(Kind::F32, len);
            let (d_templates, d_scalers) = (room(n * tt)?, room(m * n)?);
            with_views(
                &place,
                [templates, scalers, dw],
                |[templates, scalers, dw]| {
                    let (g, by_block) = (room(m * tt)?, room(m * n)?);
                    place.kronecker(false, (r, c, t), interleave, dw, g.view())?;
                    place.transpose_each((n, r * c), scalers, by_block.view())?;
                    let (s, g) = (by_block.view(), g.view());
                    place.product((n, tt, m), transposed(s), plain(g), d_templates.view())?;
                    // The scalers by block are read no more: their gradient takes their place.
                    place.product((m, n, tt), plain(g), transposed(templates), s)?;
                    place.transpose_each((r * c, n), s, d_scalers.view())
                },
            )?;
            Ok([
                Some(d_templates.into_tensor(templates.shape())?),
                Some(d_scalers.into_tensor(scalers.shape())?),
            ])
        }
    };
    let op = Computed::new("kronecker-sum", w, (l, r * t, c * t), backward)?;
    templates.apply_op2(scalers, op)
}

/// The kernels take rows as wide as these.
pub(crate) fn fits_norm(width: usize) -> bool {
    width <= WIDEST_NORM
}

/// The kernels take heads and rows as wide as these.
pub(crate) fn fits(shape: BlocksShape) -> bool {
    shape.width / shape.heads <= WIDEST_HEAD && fits_norm(shape.width)
}

/// See [`crate::blocks_in()`].
pub(crate) fn blocks(
    place: Place,
    mode: Mode,
    x: &Tensor,
    parameters: &[Tensor; 12],
    shape: BlocksShape,
    drop_path: Option<&[f32]>,
) -> Result<Tensor> {
    let (samples, tokens, _) = x.dims3()?;
    let trunk = Trunk {
        place,
        shape,
        kind: mode.precision.into(),
        samples,
        tokens,
    };
    let mut contiguous = parameters.clone();
    for parameter in &mut contiguous {
        *parameter = parameter.contiguous()?;
    }
    let Bundle { token, gradients } = Bundle::new(&contiguous)?;
    let keep = x.track_op() || token.track_op();
    let scales = drop_path
        .map(|scales| trunk.place.upload_f32(scales))
        .transpose()?;
    let parameters = contiguous.map(|t| t.detach());
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
        let dx = trunk.place.values(Kind::F32, x.elem_count())?;
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
            .map(|(gradient, p)| gradient.into_tensor(p.shape()).map(Some))
            .collect::<Result<_>>()?;
        let dx = dx.into_tensor(x.shape())?;
        Ok([Some(dx), Some(Bundle::seed(token.device())?)])
    };
    let op = Computed::new("transformer-blocks", y, x.shape(), backward)?;
    x.apply_op2(&token, op)
}
