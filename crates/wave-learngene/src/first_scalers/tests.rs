use super::*;
use crate::DepthRule;
use crate::bank::interpolate_depth;
use crate::compose;
use crate::testing::*;

fn no_noise() -> f32 {
    0.0
}

/// The templates from `first` on, one per block of an `(r, c)` grid, laid out by `order`.
fn grid(t: &Tensor, first: usize, r: usize, c: usize, order: Kronecker) -> Vec<f64> {
    let n = t.dim(0).unwrap();
    let mut s = vec![0f32; n * r * c];
    for j in 0..r * c {
        s[(first + j) * r * c + j] = 1.0;
    }
    let s = Tensor::from_vec(s, (1, n, r, c), &Device::Cpu).unwrap();
    plain_kronecker_sum(t, &s, 0, order)
}

/// Layers are `b + f a`, with `b` from the first templates, and `a` from the next ones or zero.
#[test]
fn telg_and_share_init_are_special_cases() {
    for (order, shared) in [
        (Kronecker::Tile, false),
        (Kronecker::Interleave, false),
        (Kronecker::Tile, true),
    ] {
        let counts = if shared { [3, 1, 4, 4] } else { [6, 2, 8, 8] };
        let plan = plan(4, order, counts);
        let (shape, depth) = (block(4, 16), 5);
        let templates = templates(&mut rng(1), &plan);
        let scalers = match shared {
            true => share_scalers(&plan, &shape, depth).unwrap(),
            false => telg_scalers(&plan, &shape, depth, DepthRule::LastIsOne).unwrap(),
        };
        let weights = compose(&plan, &templates, &scalers, &shape).unwrap();
        for part in Part::ALL {
            let (_, r, c) = plan.blocks(part, &shape);
            let t = &templates[part.name()];
            let b = grid(t, 0, r, c, order);
            let a = match shared {
                true => vec![0.0; b.len()],
                false => grid(t, r * c, r, c, order),
            };
            for l in 0..depth {
                let f = l as f64 / depth as f64;
                let expected: Vec<f64> = b.iter().zip(&a).map(|(b, a)| b + f * a).collect();
                assert_close(&flat(&weights[&part].get(l).unwrap()), &expected, 1e-6);
            }
        }
    }
}

#[test]
fn telg_from_two_anchors_is_exact_at_every_depth() {
    let plan = plan(4, Kronecker::Tile, [6, 2, 8, 8]);
    let shape = block(4, 16);
    for anchors in [2, 3] {
        let bank = telg_scalers(&plan, &shape, anchors, DepthRule::Tleg).unwrap();
        for depth in [1, 2, 4, 6, 12] {
            for (part, bank) in &bank {
                let read = interpolate_depth(bank, depth, DepthRule::Tleg).unwrap();
                let exact = telg_scalers(&plan, &shape, depth, DepthRule::LastIsOne).unwrap();
                assert_close(&flat(&read), &flat(&exact[part]), 1e-6);
            }
        }
    }
}

#[test]
fn telg_holds_where_two_parts_share_a_set() {
    let plan = shared_plan(2, &MLP, [("qkv", 6), ("proj", 2), ("mlp", 16)]);
    let shape = block(2, 8);
    let scalers = telg_scalers(&plan, &shape, 4, DepthRule::LastIsOne).unwrap();
    let used = |part: Part| -> Vec<usize> {
        let rows = scalers[&part].sum((0, 2, 3)).unwrap();
        let rows = flat(&rows).into_iter().enumerate();
        rows.filter(|&(_, s)| s != 0.0).map(|(k, _)| k).collect()
    };
    assert_eq!(used(Part::Fc1), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(used(Part::Fc2), [8, 9, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn a_ramp_runs_from_one_block_to_the_next() {
    let plan = plan(4, Kronecker::Tile, [6, 2, 8, 8]);
    let shape = block(4, 16);
    let scalers = ramp_scalers(&plan, &shape, &shape, 3, 0.0, &mut no_noise).unwrap();
    let proj = flat(&scalers[&Part::Proj]); // (K, N)
    assert_eq!(proj, [1., 0., 0.5, 0.5, 0., 1.]);
    let one = ramp_scalers(&plan, &shape, &shape, 1, 0.0, &mut no_noise).unwrap();
    assert_eq!(flat(&one[&Part::Proj]), [1., 0.]);
}

#[test]
fn seeded_templates_make_the_layers_that_they_were_cut_from() {
    let weights_of = |part: Part, shape: &VitShape| {
        let (rows, columns) = part.rows_cols(shape);
        let values = (0..2 * rows * columns).map(|i| (i as f32 * 0.7).sin());
        Tensor::from_iter(values, &Device::Cpu)
            .and_then(|t| t.reshape((2, rows, columns)))
            .unwrap()
    };
    for order in [Kronecker::Tile, Kronecker::Interleave] {
        let shared = [(Part::Proj, "shared"), (Part::Qkv, "shared")];
        let mut plan = shared_plan(2, &shared, [("shared", 40), ("fc1", 32), ("fc2", 32)]);
        plan.kronecker = order;
        let shape = block(4, 16);
        let mut all = templates(&mut rng(5), &plan);
        let before = all["shared"].clone();
        for part in [Part::Qkv, Part::Proj] {
            let weights = weights_of(part, &shape);
            let seeded = seed_templates(&plan, part, &all["shared"], &weights, &shape).unwrap();
            all.insert("shared".into(), seeded);
        }
        let scalers = ramp_scalers(&plan, &shape, &shape, 3, 0.0, &mut no_noise).unwrap();
        let made = compose(&plan, &all, &scalers, &shape).unwrap();
        for part in [Part::Qkv, Part::Proj] {
            let expected = weights_of(part, &shape);
            for (anchor, layer) in [(0, 0), (2, 1)] {
                let (made, expected) = (made[&part].get(anchor), expected.get(layer));
                assert_eq!(flat(&made.unwrap()), flat(&expected.unwrap()), "{part}");
            }
        }
        // Two layers of qkv are 24 blocks, of proj 8; the rest stay.
        let rest = |t: &Tensor| flat(&t.narrow(0, 32, 8).unwrap());
        assert_eq!(rest(&all["shared"]), rest(&before));
        let narrow = weights_of(Part::Qkv, &block(2, 8));
        assert!(seed_templates(&plan, Part::Qkv, &before, &narrow, &shape).is_err());
    }
}

#[test]
fn a_ramp_repeats_its_unit_along_the_diagonal() {
    let plan = plan(2, Kronecker::Tile, [24, 8, 32, 32]);
    let (unit, wide) = (block(4, 16), block(8, 32));
    let templates = templates(&mut rng(6), &plan);
    let weights = |shape| {
        let scalers = ramp_scalers(&plan, shape, &unit, 3, 0.0, &mut no_noise).unwrap();
        compose(&plan, &templates, &scalers, shape).unwrap()
    };
    let (narrow, wide_weights) = (weights(&unit), weights(&wide));
    for part in Part::ALL {
        let (rows, columns) = part.rows_cols(&unit);
        let (q, tall) = (part.segments(), rows / part.segments());
        let split = |t: &Tensor, rows: usize| t.reshape((3, q, rows / q, ())).unwrap();
        let narrow = split(&narrow[&part], rows);
        let wide = split(&wide_weights[&part], part.rows_cols(&wide).0);
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let group = wide.narrow(2, a * tall, tall).unwrap();
            let group = flat(&group.narrow(3, b * columns, columns).unwrap());
            let zeros = vec![0.0; group.len()];
            assert_eq!(group, if a == b { flat(&narrow) } else { zeros }, "{part}");
        }
    }
}

#[test]
fn too_few_templates_wrap_and_keep_their_sum() {
    let plan = plan(4, Kronecker::Tile, [2, 1, 3, 1]);
    let shape = block(4, 16);
    let scalers = ramp_scalers(&plan, &shape, &shape, 4, 0.0, &mut no_noise).unwrap();
    for s in scalers.values() {
        let sums = flat(&s.sum(1).unwrap());
        assert_close(&sums, &vec![1.0; sums.len()], 1e-6);
    }
    assert_eq!(flat(&scalers[&Part::Proj]), [1.; 4]);
}

#[test]
fn noise_is_added_to_every_scaler() {
    let plan = plan(4, Kronecker::Tile, [6, 2, 8, 8]);
    let shape = block(4, 16);
    let mut draws = (1..).map(|i| i as f32);
    let mut count = || draws.next().unwrap();
    let noisy = ramp_scalers(&plan, &shape, &shape, 2, 0.5, &mut count).unwrap();
    let plain = ramp_scalers(&plan, &shape, &shape, 2, 0.0, &mut no_noise).unwrap();
    let noise = Part::ALL.map(|part| flat(&(&noisy[&part] - &plain[&part]).unwrap()));
    let noise = noise.concat();
    let count = plan.scaler_count(&shape.with_size(2, shape.width));
    let expected: Vec<f64> = (1..=count).map(|i| 0.5 * i as f64).collect();
    assert_close(&noise, &expected, 1e-6);
}

#[test]
fn weights_of_random_scalers_have_the_deviation_asked_for() {
    use rand_distr::{Distribution, StandardNormal};
    let plan = plan(4, Kronecker::Tile, [6, 2, 8, 16]);
    let shape = block(32, 128);
    let rng = &mut rng(3);
    let templates = templates(rng, &plan);
    let mut draw = || StandardNormal.sample(rng);
    let scalers = random_scalers(&plan, &templates, &shape, 12, 0.02, &mut draw).unwrap();
    for (part, weights) in compose(&plan, &templates, &scalers, &shape).unwrap() {
        let values = flat(&weights);
        let power = values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64;
        assert!((power.sqrt() / 0.02 - 1.0).abs() < 0.15, "{part}: {power}");
    }
}

#[test]
fn starts_have_the_shape_to_compose() {
    let plan = plan(4, Kronecker::Tile, [6, 2, 8, 8]);
    let shape = block(10, 24);
    let templates = templates(&mut rng(4), &plan);
    let starts = [
        ramp_scalers(&plan, &shape, &shape, 3, 0.1, &mut no_noise),
        random_scalers(&plan, &templates, &shape, 3, 0.02, &mut no_noise),
        telg_scalers(&plan, &shape, 3, DepthRule::Tleg),
        share_scalers(&plan, &shape, 3),
    ];
    for scalers in starts {
        assert!(compose(&plan, &templates, &scalers.unwrap(), &shape).is_ok());
    }
}
