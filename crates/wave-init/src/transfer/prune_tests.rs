use super::*;
use crate::random::{generator, uniform};
use crate::testing::{self, changed, check_refused, shape, try_start};
use crate::{Choices, find};
use candle_core::Device;
use wave_models::vit::{self, stack};

/// 64 random images.
fn images(shape: &VitShape) -> Tensor {
    let dims = (64, shape.channels, shape.image_size, shape.image_size);
    uniform(dims, 1.0, &mut generator(5, 0)).unwrap()
}

fn donor(shape: VitShape) -> Donor {
    testing::donor(shape, 1)
}

fn start(method: &str, target: &VitShape, donor: &Donor) -> Weights {
    let images = images(target);
    let request = Request {
        shape: target,
        donor: Some(donor),
        images: Some(&images),
        choices: &Choices::default(),
        seed: 0,
    };
    find(method).unwrap().start(&request).unwrap().weights
}

/// Relative root mean square difference between the images' logits and the donor's, after subtracting means
/// over images.
fn difference(donor: &Donor, target: &VitShape, weights: &Weights) -> f64 {
    let logits = |shape: &VitShape, weights: &Weights| {
        let stacked = stack(weights, shape.depth).unwrap();
        vit::logits(shape, &stacked, &images(shape), None).unwrap()
    };
    let size = |x: &Tensor| {
        let centred = x.broadcast_sub(&x.mean_keepdim(0).unwrap()).unwrap();
        let mean = centred.sqr().unwrap().mean_all().unwrap();
        f64::from(mean.to_scalar::<f32>().unwrap()).sqrt()
    };
    let whole = logits(&donor.shape, &donor.weights);
    let other = logits(target, weights);
    size(&(other - &whole).unwrap()) / size(&whole)
}

#[test]
fn the_same_size_computes_the_same() {
    for class_token in [false, true] {
        let shape = changed(shape(3, 16), |s| s.class_token = class_token);
        let donor = donor(shape.clone());
        let found = difference(&donor, &shape, &start("prune", &shape, &donor));
        assert!(found < 1e-3, "{found}");
    }
}

#[test]
fn channels_that_repeat_others_leave_without_loss() {
    let small = changed(shape(2, 16), |s| s.mlp_ratio = 2.0);
    let large = changed(small.clone(), |s| s.mlp_ratio = 4.0);
    let mut weights = donor(small.clone()).weights.clone();
    for l in 0..2 {
        for (name, axis, scale) in [
            ("fc1.weight", 0, 1.0),
            ("fc1.bias", 0, 1.0),
            ("fc2.weight", 1, 0.5),
        ] {
            let name = format!("blocks.{l}.mlp.{name}");
            let half = (&weights[&name] * scale).unwrap();
            weights.insert(name, Tensor::cat(&[&half, &half], axis).unwrap());
        }
    }
    let large = Donor::new(large, weights).unwrap();
    let found = difference(&large, &small, &start("prune", &small, &large));
    assert!(found < 1e-2, "{found}");
}

#[test]
fn heads_of_low_rank_become_narrower_without_loss() {
    // Queries, keys and values of the last 4 of a head's 8 channels are 0.
    let full = shape(2, 16);
    let mut weights = donor(full.clone()).weights.clone();
    let rows: Vec<f32> = (0..48).map(|i| f32::from(u8::from(i % 8 < 4))).collect();
    let rows = Tensor::from_vec(rows, 48, &Device::Cpu).unwrap();
    for l in 0..2 {
        let column = rows.unsqueeze(1).unwrap();
        for (part, rows) in [("weight", &column), ("bias", &rows)] {
            let name = format!("blocks.{l}.attn.qkv.{part}");
            let kept = weights[&name].broadcast_mul(rows).unwrap();
            weights.insert(name, kept);
        }
    }
    let donor = Donor::new(full.clone(), weights).unwrap();
    // The donor's two heads, of four channels each.
    let network = Network::of(&donor).unwrap();
    let streams = network.embed(&images(&full)).unwrap();
    let passages = network.pass(streams, 0, 1).unwrap();
    let to = VitShape {
        width: 8,
        mlp_ratio: 8.0,
        ..full
    };
    let thin = network.layers[0].thinned(&network, &passages, &to).unwrap();
    let attended = |l: &Layer| {
        let x = network.norm(&passages[0].before).unwrap();
        let qkv = l.qkv.apply(&x).unwrap();
        l.proj.apply(&l.attend(&qkv).unwrap()).unwrap()
    };
    let (whole, thin) = (attended(&network.layers[0]), attended(&thin));
    testing::assert_close(&testing::values(&thin), &testing::values(&whole), 1e-3);
}

#[test]
fn fitted_sizes_are_nearer_to_the_donor_than_selected_ones() {
    let donor = donor(changed(shape(4, 32), |s| s.class_token = true));
    for (depth, width) in [(2, 32), (4, 24), (3, 16)] {
        let target = VitShape {
            depth,
            width,
            heads: width / 8,
            ..donor.shape.clone()
        };
        let of = |method| difference(&donor, &target, &start(method, &target, &donor));
        let (pruned, selected) = (of("prune"), of("weight-selection"));
        let share = pruned / selected;
        assert!(share < 0.7, "{depth} x {width}: {share}");
    }
}

#[test]
fn the_smallest_networks_are_finite() {
    let donor = donor(shape(3, 16));
    for width in [1, 2, 3] {
        let target = VitShape {
            depth: 1,
            width,
            heads: 1,
            mlp_ratio: 1.0,
            ..donor.shape.clone()
        };
        for (name, tensor) in start("prune", &target, &donor) {
            let found = testing::values(&tensor);
            assert!(found.iter().all(|v| v.is_finite()), "{width} {name}");
        }
    }
}

#[test]
fn other_patches_and_missing_images_are_refused() {
    let donors = [donor(shape(2, 16))];
    let other = changed(shape(2, 16), |s| s.patch = 6);
    let start = try_start("prune", &other, &donors, &Choices::default());
    check_refused(start, "patch is 4");
    let request = Request {
        shape: &shape(1, 16),
        donor: donors.first(),
        images: None,
        choices: &Choices::default(),
        seed: 0,
    };
    check_refused(find("prune").unwrap().start(&request), "--data");
}
