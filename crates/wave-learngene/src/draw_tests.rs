use super::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

fn sizes(growth: f64, growth_power: f64) -> Sizes {
    Sizes {
        growth,
        growth_power,
        ..Sizes::constant((2, 12), vec![64, 128, 192])
    }
}

#[test]
fn sizes_grow_and_then_stay() {
    let steps = 1000;
    let sizes = sizes(0.5, 1.0);
    let most = |step| sizes.at(step, steps).0.1;
    assert_eq!([0, 250, 500, 999].map(most), [2, 7, 12, 12]);
    // A higher power stays small for longer: 10 / 2^3 and 10 / 2^(1/2).
    for (power, expected) in [(3.0, [2, 3, 12]), (0.5, [2, 9, 12])] {
        let sizes = self::sizes(0.5, power);
        let found = [0, 250, 500].map(|step| sizes.at(step, steps).0.1);
        assert_eq!(found, expected);
    }
    let constant = Sizes::constant((2, 12), vec![64, 128, 192]);
    let all = ((2, 12), &[64, 128, 192][..]);
    assert_eq!([constant.at(0, 10), constant.at(0, 0)], [all, all]);
    let widths = |step| sizes.at(step, steps).1;
    assert_eq!([0, 124].map(widths), [[64], [64]]);
    assert_eq!([125, 374].map(widths), [[64, 128], [64, 128]]);
    assert_eq!([375, 999].map(widths), [[64, 128, 192], [64, 128, 192]]);
    let rng = &mut ChaCha8Rng::seed_from_u64(3);
    let mut drawn = Vec::new();
    for step in 0..steps {
        let (depth, width) = sizes.draw(step, steps, rng);
        assert!((2..=most(step)).contains(&depth), "{step}");
        assert!(widths(step).contains(&width), "{step}");
        drawn.push(depth);
    }
    assert!((2..=12).all(|depth| drawn[500..].contains(&depth)));
}

fn varied() -> Sizes {
    Sizes {
        variants: Variants {
            mlp_ratios: vec![1.0, 2.0],
            head_widths: vec![16, 48],
            image_sizes: vec![28, 56],
            patches: vec![4, 8],
            share: 0.75,
        },
        ..Sizes::constant((2, 3), vec![64, 96])
    }
}

fn whole() -> VitShape {
    VitShape {
        image_size: 28,
        patch: 7,
        ..VitShape::default().with_size(3, 96)
    }
}

#[test]
fn a_share_of_the_models_vary_in_what_fits_together() {
    let (whole, sizes) = (whole(), varied());
    let mut seen = BTreeSet::new();
    let mut plain = 0;
    for step in 0..4000 {
        let rng = &mut ChaCha8Rng::seed_from_u64(step);
        let shape = sizes.shape(&whole, step, 4000, rng);
        shape.validate().unwrap();
        if shape == whole.with_size(shape.depth, shape.width) {
            plain += 1;
            continue;
        }
        let (head, ratio) = (shape.head_width(), shape.hidden() / shape.width);
        seen.insert((shape.width, head, shape.image_size, shape.patch, ratio));
    }
    assert!((900..1100).contains(&plain), "{plain}");
    // Patches of 8 pixels in images of 56 only, heads of 48 channels in width 96 only.
    let mut expected = BTreeSet::new();
    for (image, patch) in [(28, 4), (56, 4), (56, 8)] {
        for (width, head) in [(64, 16), (96, 16), (96, 48)] {
            expected.extend([1, 2].map(|ratio| (width, head, image, patch, ratio)));
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn the_mean_work_is_that_of_many_drawn_ones() {
    let of_level = Sizes {
        smaller: vec![(4, 128)],
        ..sizes(0.5, 2.0)
    };
    let large = VitShape::default().with_size(12, 192);
    for (sizes, whole) in [(varied(), whole()), (of_level, large)] {
        let steps = 20_000;
        let drawn = (0..steps).map(|step| {
            let rng = &mut ChaCha8Rng::seed_from_u64(step);
            sizes.shape(&whole, step, steps, rng).multiply_adds() as f64
        });
        let mean = drawn.sum::<f64>() / steps as f64;
        let ratio = sizes.mean_multiply_adds(&whole) / mean;
        assert!((0.98..1.02).contains(&ratio), "{ratio}");
    }
}

#[test]
fn a_level_draws_no_size_of_a_smaller_one() {
    let beyond = |growth| Sizes {
        smaller: vec![(2, 64), (5, 128)],
        ..sizes(growth, 1.0)
    };
    let within = |(depth, width)| (depth <= 2 && width <= 64) || (depth <= 5 && width <= 128);
    let mut drawn = BTreeSet::new();
    for step in 0..2000 {
        let rng = &mut ChaCha8Rng::seed_from_u64(step);
        let size = beyond(0.0).draw(step, 2000, rng);
        assert!(!within(size), "{size:?}");
        drawn.insert(size);
        // This also holds while sizes grow, even where all sizes so far are of smaller levels.
        assert!(!within(beyond(0.9).draw(step, 2000, rng)));
    }
    assert_eq!(drawn.len(), 7 + 7 + 11);
    // The largest size, if a smaller level has all of them.
    let none = Sizes {
        smaller: vec![(12, 192)],
        ..sizes(0.0, 1.0)
    };
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    assert_eq!(none.draw(0, 10, rng), (12, 192));
}
