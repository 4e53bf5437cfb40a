//! Rotary position embedding of patches: queries and keys are rotated, two channels at a time, by angles
//! that grow linearly with a patch's row and column.
//!
//! ```text
//! angle = coordinate times frequency       row times each frequency, then column times each
//! (a, b) becomes (a cos - b sin, b cos + a sin)
//! ```

use candle_core::{D, Device, Result, Tensor};
use std::f64::consts::TAU;

/// Angles of the coordinates, and the pairs of channels that are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotary {
    /// EVA-02's: coordinates rescaled to the grid of the training images, frequencies from 1 to 1 / 10,000,
    /// neighbouring channels.
    Neighbours {
        /// Patches along the side of the grid that the network was trained on.
        reference: usize,
    },
    /// DINOv3's: coordinates from -1 to 1, periods from 1 to 100, channels half a head apart.
    Halves,
}

/// Rotation angles of a grid of patches.
pub(crate) struct Angles {
    rotary: Rotary,
    /// Cosines and sines, (1, tokens, 1, half a head); tokens before the patches have angle 0.
    cosines: Tensor,
    sines: Tensor,
}

impl Angles {
    pub(super) fn new(
        rotary: Rotary,
        prefix: usize,
        grid: usize,
        head: usize,
        device: &Device,
    ) -> Result<Angles> {
        let bands = head / 4;
        let g = grid as f64;
        let (coordinate, frequency): (&dyn Fn(usize) -> f64, &dyn Fn(usize) -> f64) = match rotary {
            Rotary::Neighbours { reference } => (&move |i| i as f64 / g * reference as f64, &|k| {
                1e4_f64.powf(-(k as f64) / bands as f64)
            }),
            Rotary::Halves => (&move |i| (i as f64 + 0.5) / g * 2.0 - 1.0, &|k| {
                TAU / 100_f64.powf(2.0 * k as f64 / (head / 2) as f64)
            }),
        };
        let mut angles = vec![0.0; prefix * 2 * bands];
        for patch in 0..grid * grid {
            for place in [patch / grid, patch % grid] {
                angles.extend((0..bands).map(|k| coordinate(place) * frequency(k)));
            }
        }
        let shape = (1, prefix + grid * grid, 1, 2 * bands);
        let tensor = |f: fn(f64) -> f64| {
            let values: Vec<f32> = angles.iter().map(|a| f(*a) as f32).collect();
            Tensor::from_vec(values, shape, device)
        };
        Ok(Angles {
            rotary,
            cosines: tensor(f64::cos)?,
            sines: tensor(f64::sin)?,
        })
    }

    /// Rotates queries or keys (b, tokens, heads, head).
    pub(super) fn rotate(&self, x: &Tensor) -> Result<Tensor> {
        let (b, n, h, d) = x.dims4()?;
        let pairs = match self.rotary {
            Rotary::Neighbours { .. } => x.reshape((b, n, h, d / 2, 2))?.transpose(3, 4)?,
            Rotary::Halves => x.reshape((b, n, h, 2, d / 2))?,
        }
        .contiguous()?; // (b, n, h, 2, d / 2)
        let first = pairs.narrow(3, 0, 1)?.squeeze(3)?;
        let second = pairs.narrow(3, 1, 1)?.squeeze(3)?;
        let cosines = |x: &Tensor| x.broadcast_mul(&self.cosines);
        let sines = |x: &Tensor| x.broadcast_mul(&self.sines);
        let turned = [
            (cosines(&first)? - sines(&second)?)?,
            (cosines(&second)? + sines(&first)?)?,
        ];
        match self.rotary {
            Rotary::Neighbours { .. } => Tensor::stack(&turned, 4)?.reshape((b, n, h, d)),
            Rotary::Halves => Tensor::cat(&turned, D::Minus1),
        }
    }
}
