//! Depthwise convolution over channels-last images, stride 1, "same" padding, also with dilation:
//! `y[r, s, c] = bias[c] + sum_ij weight[c, i, j] x[r + i - p, s + j - p, c]`, `p = (k - 1) / 2`.

mod kernel;

use crate::cpu::current;
use crate::fused::{Gradients, Operator, Output, apply, gradients};
use crate::shape::misfit;
use crate::storage::with_slices;
use crate::threads::{share, sum_over};
use candle_core::{Layout, Result, Tensor};
use kernel::{Backward, Convolve, Geometry, Lanes, from_blocks, to_blocks};
use rayon::prelude::*;

/// Convolves every channel of `x` with its own kernel; stride 1, and the image keeps its size.
///
/// A kernel of even size reaches one pixel further down and right than up and left, as PyTorch's
/// `padding="same"` does.
///
/// # Shapes
/// `x` (b, h, w, c), `weight` (c, k, k), `bias` (c); the result is (b, h, w, c).
///
/// # Errors
/// If the shapes disagree, the kernel is empty or not square, or the types differ.
pub fn depthwise_conv(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let (_, _, _, c) = x.dims4()?;
    let (channels, k, k2) = weight.dims3()?;
    if channels != c || k != k2 || k == 0 || bias.dims() != [c] {
        let expected = "; expected (b, h, w, c), (c, k, k) and (c)";
        let found = [x, weight, bias].map(Tensor::dims);
        return misfit("depthwise convolution", found, expected);
    }
    apply(DepthwiseConv, [x, weight, bias], || {
        let before = (k - 1) / 2;
        x.permute((0, 3, 1, 2))? // (b, c, h, w)
            .pad_with_zeros(2, before, k - 1 - before)?
            .pad_with_zeros(3, before, k - 1 - before)?
            .contiguous()?
            .conv2d(&weight.unsqueeze(1)?, 0, 1, 1, c)? // in as many groups as channels
            .permute((0, 2, 3, 1))? // (b, h, w, c)
            .contiguous()?
            .broadcast_add(bias)
    })
}

/// [`depthwise_conv`] with neighbouring taps `dilation` pixels apart:
/// `y[r, s, c] = bias[c] + sum_ij weight[c, i, j] x[r + d (i - m), s + d (j - m), c]`, where `d` is the
/// dilation and `m = (k - 1) / 2`. Its receptive field is that of a kernel of size `k + (k - 1) (d - 1)`.
///
/// Pixels interact only if their rows and columns are equal modulo `d`, so this is a plain
/// convolution of each of `d^2` smaller images.
///
/// # Shapes
/// As [`depthwise_conv`].
///
/// # Errors
/// As [`depthwise_conv`]; also if the dilation is 0, or more than 1 with a kernel of even size, which
/// has no centre.
pub fn dilated_depthwise_conv(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    dilation: usize,
) -> Result<Tensor> {
    if dilation == 1 {
        return depthwise_conv(x, weight, bias);
    }
    let (b, h, w, c) = x.dims4()?;
    let (_, k, _) = weight.dims3()?;
    if dilation == 0 || k.is_multiple_of(2) {
        candle_core::bail!(
            "depthwise convolution with dilation {dilation} and kernel {k}; expected a dilation of \
             at least 1 and an odd kernel"
        );
    }
    let d = dilation;
    let (rows, cols) = (h.div_ceil(d), w.div_ceil(d)); // of each small image
    let small = x
        .pad_with_zeros(1, 0, rows * d - h)?
        .pad_with_zeros(2, 0, cols * d - w)?
        .reshape(vec![b, rows, d, cols, d, c])?
        .permute(vec![0, 2, 4, 1, 3, 5])? // (b, d, d, rows, cols, c)
        .reshape((b * d * d, rows, cols, c))?;
    depthwise_conv(&small, weight, bias)?
        .reshape(vec![b, d, d, rows, cols, c])?
        .permute(vec![0, 3, 1, 4, 2, 5])? // (b, rows, d, cols, d, c)
        .reshape((b, rows * d, cols * d, c))?
        .narrow(1, 0, h)?
        .narrow(2, 0, w)?
        .contiguous()
}

struct DepthwiseConv;

impl Operator<3> for DepthwiseConv {
    const NAME: &'static str = "depthwise-conv";

    fn forward(&self, [x, w, b]: [&[f32]; 3], [lx, lw, _]: [&Layout; 3]) -> Result<Output> {
        let (_, height, width, c) = lx.shape().dims4()?;
        let g = Geometry::new(height, width, c, lw.shape().dims3()?.1);
        let arch = current().arch();
        let (lanes, image) = (arch.dispatch(Lanes), g.image().max(1));
        let taps = to_blocks(w, g.k * g.k, lanes);
        let start = to_blocks(b, 1, lanes);
        let mut y = vec![0.0; x.len()];
        let images = y.par_chunks_mut(image).zip(x.par_chunks(image));
        images.for_each_init(
            || vec![0.0; g.rows * g.cols * lanes],
            |packed, (y, x)| {
                arch.dispatch(Convolve {
                    g,
                    x,
                    taps: &taps,
                    start: &start,
                    packed,
                    y,
                });
            },
        );
        Ok((y, lx.shape().clone()))
    }

    fn backward(&self, [x, w, b]: [&Tensor; 3], dy: &Tensor) -> Gradients<3> {
        let (_, height, width, c) = x.dims4()?;
        let g = Geometry::new(height, width, c, w.dim(1)?);
        let learn = w.track_op(); // frozen filters spare themselves a third of the work
        let arch = current().arch();
        let (kk, lanes, image) = (g.k * g.k, arch.dispatch(Lanes), g.image().max(1));
        let size = c.next_multiple_of(lanes); // channels in whole registers
        let mut dx = vec![0.0; x.elem_count()];
        let sums = with_slices([x, w, dy], |[x, w, dy]| {
            let mut turned = w.to_vec();
            turned.chunks_exact_mut(kk).for_each(<[f32]>::reverse);
            let turned = to_blocks(&turned, kk, lanes);
            let share = share(x.len() / image) * image;
            let jobs = dx.chunks_mut(share).zip(x.chunks(share));
            let jobs = jobs.zip(dy.chunks(share)).collect();
            sum_over(size * (kk + 1), jobs, |((dx, x), dy), sums| {
                let (d_taps, d_start) = sums.split_at_mut(size * kk);
                let mut packed_x = vec![0.0; g.rows * g.cols * lanes];
                let mut packed_dy = packed_x.clone();
                let images = dx.chunks_exact_mut(image).zip(x.chunks_exact(image));
                for ((dx, x), dy) in images.zip(dy.chunks_exact(image)) {
                    arch.dispatch(Backward {
                        g,
                        x,
                        dy,
                        turned: &turned,
                        learn,
                        packed_x: &mut packed_x,
                        packed_dy: &mut packed_dy,
                        dx,
                        d_taps,
                        d_start,
                    });
                }
            })
        })?;
        let (d_taps, d_start) = sums.split_at(size * kk);
        let dw = learn.then(|| from_blocks(d_taps, kk, c, lanes));
        let db = from_blocks(d_start, 1, c, lanes);
        gradients([x, w, b], [Some(dx), dw, Some(db)])
    }
}
