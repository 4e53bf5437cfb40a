//! Similarity of a large network's layers to a small one's, for Auto-LG.
//!
//! Its authors learn gates between the layers of an ancestor and those of a pseudo-descendant trained
//! with it. We train the small network alone, and compare layers by linear centred kernel alignment
//! (Kornblith et al. 2019) of their pooled, normalised tokens. The similarity of a layer of the large
//! network is its highest to any layer of the small one.

use anyhow::Result;
use candle_core::{D, DType, Tensor};
use wave_init::Donor;
use wave_models::vit::{self, VitShape};
use wave_run::data::Data;

/// Maximum number of images in the comparison.
const IMAGES: usize = 1024;
/// Images per forward pass.
const BATCH: usize = 256;

/// The similarity of each layer of `large`, 0 to 1, on training images.
pub(super) fn of_layers(large: &Donor, small: &Donor, data: &Data) -> Result<Vec<f64>> {
    let (large, small) = (features(large, data)?, features(small, data)?);
    let highest = |x: &Tensor| -> Result<f64> {
        let all: Result<Vec<f64>> = small.iter().map(|y| alignment(x, y)).collect();
        Ok(all?.into_iter().fold(0.0, f64::max))
    };
    large.iter().map(highest).collect()
}

/// Input of the classifier after each layer, as if it were the last: (images, width), centred.
fn features(donor: &Donor, data: &Data) -> Result<Vec<Tensor>> {
    let shape = &donor.shape;
    let indices = &data.train_indices[..data.train_indices.len().min(IMAGES)];
    let batches = indices.chunks(BATCH).map(|some| data.view_images(some, 0));
    let batches: Vec<Tensor> = batches.collect::<candle_core::Result<_>>()?;
    let layer = |depth| -> Result<Tensor> {
        let shape = VitShape {
            depth,
            ..shape.clone()
        };
        let weights = vit::stack(&vit::first_blocks(&donor.weights, depth), depth)?;
        let rows = batches.iter();
        let rows = rows.map(|images| vit::features(&shape, &weights, images));
        let rows: Vec<Tensor> = rows.collect::<candle_core::Result<_>>()?;
        let x = Tensor::cat(&rows, 0)?.to_dtype(DType::F64)?; // (images, width)
        Ok(x.broadcast_sub(&x.mean_keepdim(0)?)?)
    };
    (1..=shape.depth).map(layer).collect()
}

/// `|X^T Y|^2 / (|X^T X| |Y^T Y|)` of centred X and Y, 0 to 1; 0 if one is constant.
fn alignment(x: &Tensor, y: &Tensor) -> Result<f64> {
    let norm = |a: &Tensor, b: &Tensor| -> Result<f64> {
        let squares = a.t()?.matmul(b)?.sqr()?;
        let sum = squares.sum(D::Minus1)?.sum(D::Minus1)?;
        Ok(sum.to_scalar::<f64>()?.sqrt())
    };
    let scale = norm(x, x)? * norm(y, y)?;
    Ok(match scale > 0.0 {
        true => norm(x, y)?.powi(2) / scale,
        false => 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;
    use wave_run::context::Context;
    use wave_run::data::{DataPlan, Input};
    use wave_run::settings::Images;

    fn matrix(f: impl Fn(usize, usize) -> f64) -> Tensor {
        let values: Vec<f64> = (0..60).map(|i| f(i / 3, i % 3)).collect();
        let x = Tensor::from_vec(values, (20, 3), &Device::Cpu).unwrap();
        x.broadcast_sub(&x.mean_keepdim(0).unwrap()).unwrap()
    }

    #[test]
    fn every_layer_of_a_donor_with_a_distillation_token_resembles_itself() {
        let images = Images {
            data: Some("shapes".to_owned()),
            train_limit: Some(16),
            ..Images::default()
        };
        let plan = DataPlan {
            batch: 8,
            ..DataPlan::of_images(&images, None).unwrap()
        };
        let input = Input::Size {
            image_size: 28,
            channels: None,
        };
        let data = Data::open(&plan, input, &Context::default()).unwrap();
        let shape = VitShape {
            image_size: 28,
            channels: data.transform.channels,
            patch: 14,
            depth: 2,
            width: 8,
            heads: 1,
            classes: 5,
            class_token: true,
            distilled: true,
            ..VitShape::default()
        };
        let wave = |(name, dims): (String, Vec<usize>)| {
            let n: usize = dims.iter().product();
            let values: Vec<f32> = (0..n).map(|i| (0.7 * i as f32).sin()).collect();
            (name, Tensor::from_vec(values, dims, &Device::Cpu).unwrap())
        };
        let weights = shape.parameters().into_iter().map(wave).collect();
        let donor = Donor::new(shape, weights).unwrap();
        let found = of_layers(&donor, &donor, &data).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|s| (s - 1.0).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn alignment_knows_scale_and_rotation_from_difference() {
        let x = matrix(|i, j| ((i * 7 + j * 5) % 11) as f64);
        let other = matrix(|i, j| ((i * i * 3 + j * j * i) % 13) as f64);
        let scaled = (&x * -2.5).unwrap();
        let turned =
            Tensor::cat(&[x.narrow(1, 2, 1).unwrap(), x.narrow(1, 0, 2).unwrap()], 1).unwrap();
        for same in [&x, &scaled, &turned] {
            assert!((alignment(&x, same).unwrap() - 1.0).abs() < 1e-12);
        }
        let different = alignment(&x, &other).unwrap();
        assert!((0.0..0.9).contains(&different), "{different}");
        assert_eq!(alignment(&x, &(&x * 0.0).unwrap()).unwrap(), 0.0);
    }
}
