//! Fewer channels of the residual stream.

use super::network::Layer;
use crate::mimetic::tensor;
use crate::start::Donor;
use candle_core::{Error, Result, Tensor};
use faer::{Mat, Side};
use wave_models::Weights;
use wave_models::fold::Affine;

/// A map `R` from the donor's stream to a narrower one that keeps its leading directions. Streams with mean 0
/// over channels keep it, as the norms of both networks subtract the mean.
pub(super) struct Narrow {
    /// (new, old); `None` for streams of the same width.
    map: Option<Tensor>,
}

impl Narrow {
    /// `R = H[:, 1..] P'`, where P are the leading directions of the stream, and H is the reflection that
    /// maps the first axis to the direction of the mean over channels.
    pub(super) fn new(covariance: &Mat<f64>, width: usize) -> Result<Narrow> {
        let old = covariance.nrows();
        if width == old {
            return Ok(Narrow { map: None });
        }
        let eigen = covariance.self_adjoint_eigen(Side::Lower);
        let eigen = eigen.map_err(|error| {
            Error::Msg(format!("no eigenvectors of the residual stream: {error:?}"))
        })?;
        let leading = eigen.U().subcols(old - (width - 1), width - 1);
        let mean = (width as f64).powf(-0.5);
        let axis = |i: usize| f64::from(u8::from(i == 0)) - mean;
        let square: f64 = (0..width).map(|i| axis(i) * axis(i)).sum();
        let reflection = Mat::from_fn(width, width - 1, |i, j| {
            f64::from(u8::from(i == j + 1)) - 2.0 * axis(i) * axis(j + 1) / square.max(1e-12)
        });
        let map = tensor((reflection * leading.transpose()).as_ref())?;
        Ok(Narrow { map: Some(map) })
    }

    /// Projects a stream (.., old) to (.., new).
    pub(super) fn of(&self, x: &Tensor) -> Result<Tensor> {
        match &self.map {
            None => Ok(x.clone()),
            Some(map) => x.broadcast_matmul(&map.t()?),
        }
    }

    /// A map that reads the normalised stream, rescaled because the norm shortens a stream with fewer channels.
    pub(super) fn read(&self, linear: &Affine) -> Result<Affine> {
        let mut read = linear.clone();
        if let Some(map) = &self.map {
            let longer = (map.dim(1)? as f64 / map.dim(0)? as f64).sqrt();
            read.weight = (read.weight.matmul(&map.t()?)? * longer)?;
        }
        Ok(read)
    }

    /// A map whose output is added to the stream.
    fn written(&self, linear: &Affine) -> Result<Affine> {
        Ok(match &self.map {
            None => linear.clone(),
            Some(map) => Affine {
                weight: map.matmul(&linear.weight)?,
                bias: map.matmul(&linear.bias.unsqueeze(1)?)?.squeeze(1)?,
            },
        })
    }

    /// A layer that reads and writes the new stream.
    pub(super) fn layer(&self, layer: &Layer) -> Result<Layer> {
        Ok(Layer {
            qkv: self.read(&layer.qkv)?,
            proj: self.written(&layer.proj)?,
            fc1: self.read(&layer.fc1)?,
            fc2: self.written(&layer.fc2)?,
            heads: layer.heads,
        })
    }

    /// Patches, positions and the class token.
    pub(super) fn outside(&self, donor: &Donor) -> Result<Weights> {
        let weights = &donor.weights;
        let patches = Affine::stored(weights, "patch_embed.proj")?;
        let (_, channels, patch, _) = patches.weight.dims4()?;
        let mut patches = self.written(&Affine {
            weight: patches.weight.flatten_from(1)?,
            bias: patches.bias,
        })?;
        patches.weight = patches.weight.reshape(((), channels, patch, patch))?;
        let mut new = Weights::new();
        patches.store(&mut new, "patch_embed.proj");
        for name in ["pos_embed", "cls_token"] {
            if let Some(tokens) = weights.get(name) {
                new.insert(name.into(), self.of(tokens)?);
            }
        }
        Ok(new)
    }
}
