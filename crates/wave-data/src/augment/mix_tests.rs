use rand::SeedableRng;

use super::*;

fn mixing(mixup: f64, cutmix: f64) -> Mixing {
    Mixing { mixup, cutmix }
}

/// Every pixel of image i is i; labels cycle.
fn batch(size: usize) -> Batch {
    Batch {
        images: (0..size).flat_map(|i| [i as f32; 3 * 32 * 32]).collect(),
        labels: (0..size as u32).map(|i| i % 4).collect(),
        indices: (0..size as u32).collect(),
        view: 0,
        size,
        channels: 3,
        image_size: 32,
        mix: None,
    }
}

#[test]
fn weights_are_distributed_as_timms() {
    let fixture = crate::testing::pillow();
    let expected = fixture["distributions"]["mixing: mean, deviation, part below 0.1"].clone();
    let expected: [f64; 3] = serde_json::from_value(expected).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut small = batch(2);
    let draw = |_| {
        mixing(0.8, 1.0).apply(&mut small, &mut rng);
        f64::from(small.mix.take().unwrap().weight)
    };
    let weights: Vec<f64> = (0..6000).map(draw).collect();
    let n = weights.len() as f64;
    let mean = weights.iter().sum::<f64>() / n;
    let deviation = (weights.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / n).sqrt();
    let low = weights.iter().filter(|&&w| w < 0.1).count() as f64 / n;
    for (found, expected) in [mean, deviation, low].into_iter().zip(expected) {
        assert!((found - expected).abs() < 0.02, "{found} for {expected}");
    }
}

#[test]
fn inputs_are_mixed_with_their_partners() {
    for (mixup, cutmix) in [(0.8, 0.0), (0.0, 1.0)] {
        for size in [1, 2, 5, 8] {
            let mut mixed = batch(size);
            let mut rng = ChaCha8Rng::seed_from_u64(11);
            mixing(mixup, cutmix).apply(&mut mixed, &mut rng);
            let mix = mixed.mix.clone().unwrap();
            for (i, image) in mixed.images.chunks(3 * 32 * 32).enumerate() {
                let partner = size - 1 - i;
                assert_eq!(mix.partners[i] as usize, partner);
                let mean = image.iter().sum::<f32>() / image.len() as f32;
                let expected = mix.weight * i as f32 + (1.0 - mix.weight) * partner as f32;
                assert!((mean - expected).abs() < 1e-3, "{mean} for {expected}");
            }
        }
    }
}

#[test]
fn a_batch_may_stay_as_it_is() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut same = batch(4);
    mixing(0.0, 0.0).apply(&mut same, &mut rng);
    assert_eq!(same, batch(4));
}
