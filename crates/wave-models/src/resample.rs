//! Resizing of images, and of a transformer's positions and patches for other image and patch sizes.

use crate::transformer::Relative;
use crate::{Network, Weights};
use candle_core::{Device, Error, Result, Tensor};
use faer::MatRef;

/// Resizes images (b, channels, side, side) to `to` x `to` pixels (bicubic, antialiased).
pub fn images(images: &Tensor, to: usize) -> Result<Tensor> {
    let (_, _, height, width) = images.dims4()?;
    if (height, width) == (to, to) {
        return Ok(images.clone());
    }
    let rows = matrix(&bicubic_matrix(height, to), (to, height), images)?;
    let columns = matrix(&bicubic_matrix(width, to), (to, width), images)?;
    both_sides(images, &rows, &columns)
}

/// `rows x columns^T` for each channel x of `images` (b, channels, height, width): (b, channels, to, to),
/// with matrices (to, height) and (to, width).
fn both_sides(images: &Tensor, rows: &Tensor, columns: &Tensor) -> Result<Tensor> {
    let (b, channels, height, width) = images.dims4()?;
    let to = rows.dim(0)?;
    let lines = images.reshape((b * channels * height, width))?;
    let lines = lines.matmul(&columns.t()?)?;
    let both = rows.broadcast_matmul(&lines.reshape((b * channels, height, to))?)?;
    both.reshape((b, channels, to, to))
}

/// Position embeddings (1, prefix + grid^2, width) on a grid of `to` x `to` patches: patch positions are
/// resized as in timm (bicubic, antialiased), prefix tokens' positions are kept.
pub fn positions(embedding: &Tensor, prefix: usize, to: usize) -> Result<Tensor> {
    let (_, tokens, width) = embedding.dims3()?;
    let from = (tokens - prefix).isqrt();
    let resize = matrix(&bicubic_matrix(from, to), (to, from), embedding)?;
    let columns = embedding.narrow(1, prefix, from * from)?;
    let columns = columns.reshape((from, from * width))?;
    let rows = resize.matmul(&columns)?.reshape((to, from, width))?;
    let both = resize.broadcast_matmul(&rows)?;
    let patches = both.reshape((1, to * to, width))?;
    Tensor::cat(&[&embedding.narrow(1, 0, prefix)?, &patches], 1)
}

/// A transformer and its weights, under timm's names, for square images of `side` pixels. Positions are
/// resized as timm does with `dynamic_img_size`. `None` if its positions are of another kind.
pub fn network(
    network: &Network,
    weights: &Weights,
    side: usize,
) -> Result<Option<(Network, Weights)>> {
    let mut network = network.clone();
    let (size, patch) = match &mut network {
        Network::Vit(shape) => (&mut shape.image_size, shape.patch.max(1)),
        // Rotary positions are computed for any grid.
        Network::Transformer(s) if s.relative == Relative::None => {
            (&mut s.image_size, s.patch.max(1))
        }
        _ => return Ok(None),
    };
    let from = std::mem::replace(size, side);
    let mut weights = weights.clone();
    if let Some(embedding) = weights.get("pos_embed") {
        let patches = (from / patch) * (from / patch);
        let prefix = embedding.dim(1)?.saturating_sub(patches);
        let resized = positions(embedding, prefix, side / patch)?;
        weights.insert("pos_embed".into(), resized);
    }
    Ok(Some((network, weights)))
}

/// Patch embeddings (width, channels, p, p) for patches of `to` x `to` pixels: the kernels whose products
/// with resized patches best approximate the original kernels' products with the original patches (FlexiViT,
/// section 3.4: the pseudo-inverse of the transposed resizing).
pub fn patches(kernels: &Tensor, to: usize) -> Result<Tensor> {
    let from = kernels.dim(2)?;
    let resize = bicubic_matrix(from, to);
    let svd = MatRef::from_row_major_slice(&resize, to, from)
        .transpose()
        .thin_svd();
    let failed = "the singular value decomposition of the resizing matrix failed";
    let svd = svd.map_err(|error| Error::Msg(format!("{failed}: {error:?}")))?;
    let inverse = svd.pseudoinverse();
    let values: Vec<f64> = inverse.row_iter().flat_map(|r| r.iter().copied()).collect();
    let inverse = matrix(&values, (to, from), kernels)?;
    // Resizing both sides is a Kronecker product, and so is its pseudo-inverse.
    both_sides(kernels, &inverse, &inverse)
}

/// Antialiased bicubic resizing of a line as a matrix (to, size), row by row, like PyTorch's `interpolate`
/// with `antialias=True`. Rows sum to 1.
fn bicubic_matrix(size: usize, to: usize) -> Vec<f64> {
    let scale = size as f64 / to as f64;
    let widened = scale.max(1.0);
    let mut matrix = Vec::with_capacity(to * size);
    for i in 0..to {
        let centre = (i as f64 + 0.5) * scale;
        let end = (centre + 2.0 * widened + 0.5) as usize;
        let start = (centre - 2.0 * widened + 0.5).max(0.0) as usize;
        let weight = |x: usize| match (start..end).contains(&x) {
            true => bicubic((x as f64 - centre + 0.5) / widened),
            false => 0.0,
        };
        let weights: Vec<f64> = (0..size).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        matrix.extend(weights.iter().map(|weight| weight / sum));
    }
    matrix
}

/// Keys' cubic convolution with a = -1/2.
fn bicubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    match x.abs() {
        x if x < 1.0 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * A,
        _ => 0.0,
    }
}

/// A tensor with the dtype and device of `like`.
fn matrix(values: &[f64], shape: (usize, usize), like: &Tensor) -> Result<Tensor> {
    let matrix = Tensor::from_slice(values, shape, &Device::Cpu)?;
    matrix.to_dtype(like.dtype())?.to_device(like.device())
}

#[cfg(test)]
#[path = "resample_tests.rs"]
mod tests;
