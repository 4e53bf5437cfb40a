use super::*;
use crate::dimaml::learned::baselines::gradient_quotient;
use crate::dimaml::second_order::tests::second_order as with_second_order;
use crate::testing::{check_slopes, noise, values};

const MOMENTUM: Optimiser = Optimiser::Sgd {
    nesterov: false,
    weight_decay: 5e-3,
};

const ALL: [Optimiser; 4] = [
    MOMENTUM,
    Optimiser::Sgd {
        nesterov: true,
        weight_decay: 0.0,
    },
    Optimiser::ADAM,
    Optimiser::Lars { trust: 0.2 },
];

/// An autoencoder with a layer norm, on different examples at every step; it contains GELU and ReLU.
fn loss(phase: Phase, w: &Weights) -> Result<Tensor> {
    let x = match phase {
        Phase::Training(t) => noise(&[6, 5], t),
        Phase::Validation(t) => noise(&[9, 5], 1000 + t),
    };
    let h = wave_ops::stock::linear(&x, &w["encoder.weight"], &w["encoder.bias"])?;
    let (one, zero) = (noise(&[4], 1).ones_like()?, w["encoder.bias"].zeros_like()?);
    let h = wave_ops::stock::layer_norm(&h, &one, &zero, 1e-5)?.tanh()?;
    let y = h.matmul(&w["decoder.weight"].t()?)?;
    let y = (y.relu()? + (y.tanh()? * 0.3)?)?;
    (y - x)?.sqr()?.mean_all()
}

fn start() -> Weights {
    let shapes: [(&str, &[usize]); 4] = [
        ("decoder.weight", &[5, 4]),
        ("encoder.bias", &[4]),
        ("encoder.weight", &[4, 5]),
        ("unused", &[3]),
    ];
    let tensors = shapes.iter().enumerate();
    tensors
        .map(|(i, (name, shape))| (name.to_string(), noise(shape, 77 + i as u64)))
        .collect()
}

fn run(optimiser: Optimiser, checkpoint: u64) -> Unrolled {
    Unrolled {
        optimiser,
        learning_rate: match optimiser {
            Optimiser::Adam { .. } => 0.02,
            _ => 0.1,
        },
        steps: 12,
        validate: vec![3, 8, 12],
        checkpoint,
        gradient: Gradient::Full,
    }
}

fn meta_gradient(run: &Unrolled) -> MetaGradient {
    with_second_order(|| run.meta_gradient(&start(), loss).unwrap()).unwrap()
}

/// DIMAML: "meta-gradient vs central differences in f64 (<1e-4)".
#[test]
fn the_gradient_is_the_slope_of_the_area_under_the_curve() {
    for optimiser in ALL {
        let run = run(optimiser, 5);
        let found = meta_gradient(&run);
        let curve = run.curve(&start(), None, loss).unwrap();
        assert_eq!(found.losses, curve.losses);
        let of = |w: &Weights| area(&run.curve(w, None, loss).unwrap().losses);
        let slopes = check_slopes(&start(), &found.of, |n| 0..n, [1e-5, 1e-6, 1e-2], of);
        assert!(slopes.iter().any(|slope| slope.abs() > 1e-3));
    }
}

/// DIMAML: "identical for m=1 and m=5".
#[test]
fn checkpoints_change_nothing() {
    for optimiser in ALL {
        let all = meta_gradient(&run(optimiser, 1));
        for checkpoint in [5, 6, 12, 100] {
            let some = meta_gradient(&run(optimiser, checkpoint));
            assert_eq!(all.losses, some.losses);
            for (name, t) in &all.of {
                assert_eq!(values(t), values(&some.of[name]), "{optimiser:?} {name}");
            }
        }
    }
}

#[test]
fn adam_from_a_dead_weight_has_a_finite_gradient() {
    let dead = |phase: Phase, w: &Weights| {
        let mut w = w.clone();
        let kept = (&w["encoder.bias"] * noise(&[4], 1).zeros_like()?)?; // a gradient of exactly 0
        w.insert("encoder.bias".into(), kept);
        loss(phase, &w)
    };
    let run = run(Optimiser::ADAM, 4);
    let found = with_second_order(|| run.meta_gradient(&start(), dead).unwrap()).unwrap();
    assert!(found.of.values().flat_map(values).all(f64::is_finite));
    assert_eq!(values(&found.of["encoder.bias"]), [0.0; 4]);
}

#[test]
fn lars_steps_by_a_share_of_the_weight() {
    let (w, g) = (noise(&[3, 4], 5), noise(&[3, 4], 6));
    let zero = w.zeros_like().unwrap();
    let lars = Optimiser::Lars { trust: 0.01 };
    let size = |t: &Tensor| scalar(&norm(t).unwrap()).unwrap();
    let update = |rate: f64, w: &Tensor, velocity: &Tensor| {
        let velocity = std::slice::from_ref(velocity);
        lars.update(rate, 1, w, &g, velocity).unwrap()
    };
    let (next, _) = update(2.0, &w, &zero);
    let ratio = size(&(&next - &w).unwrap()) / size(&w);
    assert!((ratio - 0.02).abs() < 1e-12, "{ratio}");
    // trust |w| / |g|, times the gradient.
    let (next, v) = update(0.5, &w, &g);
    let rate = 0.01 * size(&w) / size(&g);
    for i in 0..12 {
        let (w, g) = (values(&w)[i], values(&g)[i]);
        let expected = 0.9 * g + 0.5 * rate * g;
        assert!((values(&v[0])[i] - expected).abs() < 1e-12);
        assert!((values(&next)[i] - (w - expected)).abs() < 1e-12);
    }
    // From zero it moves as in plain gradient descent.
    let (next, _) = update(2.0, &zero, &zero);
    assert_eq!(values(&next), values(&(&g * -2.0).unwrap()));
}

/// The quotient from its formula, with the Hessian from central differences of the gradient; its
/// derivatives against its own central differences.
#[test]
fn the_gradient_quotient_and_its_slopes() {
    let smooth = |w: &Weights| {
        let x = noise(&[6, 5], 9);
        let h = wave_ops::stock::linear(&x, &w["encoder.weight"], &w["encoder.bias"])?.tanh()?;
        let y = h.matmul(&w["decoder.weight"].t()?)?;
        (y - x)?.sqr()?.mean_all()
    };
    let mut start = start();
    start.remove("unused");
    let gradient = |w: &Weights| {
        let found = differentiate(Phase::Training(1), w, &mut |_, w| smooth(w));
        found.unwrap().1
    };
    let flat = |all: &Weights| -> Vec<f64> { all.values().flat_map(values).collect() };
    let of = |w: &Weights| gradient_quotient(w, smooth).unwrap();
    with_second_order(|| {
        let (found, slopes) = of(&start);
        let g = gradient(&start);
        // H g is the change of the gradient along g.
        let h = 1e-5;
        let along = |by: f64| {
            let step = |(name, w): (&String, &Tensor)| {
                let moved = w + (&g[name] * by).unwrap();
                (name.clone(), moved.unwrap())
            };
            flat(&gradient(&start.iter().map(step).collect()))
        };
        let (up, down) = (along(h), along(-h));
        let g = flat(&g);
        let terms = g.iter().zip(up.iter().zip(&down)).map(|(g, (up, down))| {
            let hg = (up - down) / (2.0 * h);
            let sign = if *g >= 0.0 { 1.0 } else { -1.0 };
            ((g - hg) / (g + 1e-5 * sign) - 1.0).abs()
        });
        let expected = terms.sum::<f64>() / g.len() as f64;
        let error = (found / expected - 1.0).abs();
        assert!(error < 1e-5, "{found} {expected}");
        check_slopes(&start, &slopes, |n| 0..n, [1e-7, 1e-4, 1.0], |w| of(w).0);
    })
    .unwrap();
}

#[test]
fn where_nothing_moves_the_first_order_is_the_gradient() {
    let gradient = |gradient, learning_rate| {
        let run = Unrolled {
            learning_rate,
            gradient,
            ..run(MOMENTUM, 5)
        };
        with_second_order(|| run.meta_gradient(&start(), loss).unwrap()).unwrap()
    };
    let apart = |a: &MetaGradient, b: &MetaGradient| {
        assert_eq!(a.losses, b.losses);
        let differences = a.of.iter().map(|(name, g)| (g - &b.of[name]).unwrap());
        let all = differences.flat_map(|t| values(&t));
        all.fold(0.0, |most, x| x.abs().max(most))
    };
    let [still, moving] = [0.0, 0.1].map(|rate| {
        let of = |which| gradient(which, rate);
        apart(&of(Gradient::Full), &of(Gradient::FirstOrder))
    });
    assert!(still < 1e-12, "{still}");
    assert!(moving > 1e-3, "{moving}");
}

#[test]
fn reptile_points_from_the_end_to_the_start() {
    let run = Unrolled {
        gradient: Gradient::Reptile,
        ..run(Optimiser::ADAM, 5)
    };
    let found = run.meta_gradient(&start(), loss).unwrap();
    let mut end = start();
    for (name, w) in &mut end {
        *w = (&*w - &found.of[name]).unwrap();
    }
    let last = scalar(&loss(Phase::Validation(12), &end).unwrap()).unwrap();
    assert!((found.losses[2].1 - last).abs() < 1e-12);
    let curve = run.curve(&start(), None, loss).unwrap();
    assert_eq!(curve.losses, found.losses);
}

#[test]
fn gradients_are_scaled_to_the_rates_of_another_training() {
    let run = run(MOMENTUM, 1);
    let plain = run.curve(&start(), None, loss).unwrap();
    let wanted = &plain.update_rates;
    // Rescaling to its own rates changes only rounding.
    let own = run.curve(&start(), Some(wanted), loss).unwrap();
    assert!((area(&own.losses) - area(&plain.losses)).abs() < 1e-9);
    let mut other = start();
    for t in other.values_mut() {
        *t = (&*t * 3.0).unwrap();
    }
    other.insert("encoder.bias".into(), noise(&[4], 3).zeros_like().unwrap());
    let found = run.curve(&other, Some(wanted), loss).unwrap().update_rates;
    for (t, (wanted, found)) in wanted.iter().zip(&found).enumerate() {
        for (i, (wanted, found)) in wanted.iter().zip(found).enumerate() {
            // A bias of zero has no rate in the first step.
            let same = (wanted - found).abs() < 1e-9 || (t, i) == (0, 1);
            assert!(same, "{t} {i}: {wanted} {found}");
        }
    }
    assert!(found[0][1].is_infinite());
}
