//! Images to rows of patches.

use crate::storage::{fused, tensor, with_slice};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Cuts images (b, c, h, w) into patches (b, (h/p) (w/p), c p p), row by row, each flattened in
/// the order channel, row, column: the inputs of a convolution with kernel and stride `p`.
/// Rows and columns that do not fill a patch are left out. No gradient flows to the images.
pub fn patchify(images: &Tensor, p: usize) -> Result<Tensor> {
    let (b, c, h, w) = images.dims4()?;
    if p == 0 || h < p || w < p {
        candle_core::bail!("images of {h} x {w} are too small for a patch of {p} x {p}");
    }
    let (gh, gw) = (h / p, w / p);
    let (n, k) = (gh * gw, c * p * p);
    #[cfg(gpu)]
    if let Some(place) = crate::gpu::place(&[images])? {
        return crate::gpu::patchify(&place, images, p);
    }
    if !fused(&[images])? {
        let images = images
            .narrow(2, 0, gh * p)?
            .narrow(3, 0, gw * p)?
            .contiguous()?;
        let cut = images.reshape(&[b, c, gh, p, gw, p][..])?;
        return cut
            .permute(vec![0, 2, 4, 1, 3, 5])?
            .reshape((b, n, k))?
            .contiguous();
    }
    let mut out = vec![0.0; b * n * k];
    with_slice(images, |images| {
        out.par_chunks_mut((n * k).max(1))
            .zip(images.par_chunks((c * h * w).max(1)))
            .for_each(|(out, image)| {
                for (g, patch) in out.chunks_exact_mut(k).enumerate() {
                    let (top, left) = (g / gw * p, g % gw * p);
                    for (i, run) in patch.chunks_exact_mut(p).enumerate() {
                        let (channel, row) = (i / p, i % p);
                        let start = (channel * h + top + row) * w + left;
                        run.copy_from_slice(&image[start..start + p]);
                    }
                }
            });
    })?;
    tensor(out, (b, n, k))
}
