//! AdamW, Muon and norms over all tensors.

use super::*;
use crate::{Moments, Move};

#[test]
fn adamw_of_all_tensors_takes_the_steps_of_each() {
    let sizes = [1, 2, 17, 31, 4095, 4096, 4097, 10_000];
    let gradient = |i: usize, t: u64| {
        let g = random(100 * t + i as u64, sizes[i]);
        g.as_tensor().clone()
    };
    let run = |together: bool| {
        let start = |i: usize| random(i as u64, sizes[i]);
        let vars: Vec<Var> = (0..sizes.len()).map(start).collect();
        let mut moments: Vec<Moments> = vars.iter().map(|v| Moments::new(v).unwrap()).collect();
        for t in 1..=3 {
            let gradients: Vec<Tensor> = (0..sizes.len()).map(|i| gradient(i, t)).collect();
            let mut moves: Vec<Move> = Vec::new();
            for (i, moments) in moments.iter_mut().enumerate() {
                moves.push(Move {
                    var: &vars[i],
                    gradient: &gradients[i],
                    moments,
                    // One rate per row, if there are two rows.
                    learning_rates: if sizes[i] % 2 == 0 {
                        &[0.1, 0.02]
                    } else {
                        &[0.03]
                    },
                    weight_decay: 0.1 * i as f32,
                });
            }
            if together {
                crate::adamw_steps(&mut moves, 0.5, t).unwrap();
            } else {
                for moved in moves {
                    crate::adamw_steps(&mut [moved], 0.5, t).unwrap();
                }
            }
        }
        let mut all: Vec<Vec<f32>> = vars.iter().map(|v| values(v)).collect();
        for m in &moments {
            all.extend(m.to_tensors().unwrap().iter().map(values));
        }
        all
    };
    let expected = run(false);
    let found = in_all_orders(|| run(true));
    assert_close("AdamW", &found, &expected, 1e-6);
}

#[test]
fn muon_on_stacked_matrices() {
    // Wide, tall and square; also a single matrix. In the second step the first matrix has no gradient.
    for dims in [vec![3, 5, 9], vec![2, 9, 5], vec![2, 16, 16], vec![70, 80]] {
        let run = || {
            let var = random(1, dims.clone());
            let mut moments = Moments::momentum(&var).unwrap();
            for t in 0..2u64 {
                let mut gradient = values(random(10 + t, dims.clone()).as_tensor());
                if t == 1 && dims.len() == 3 {
                    gradient[..dims[1] * dims[2]].fill(0.0);
                }
                let gradient = Tensor::from_vec(gradient, &*dims, &Device::Cpu).unwrap();
                let stacked = dims.len() - 2;
                let rates: Vec<f32> = (0..dims[0]).map(|i| 0.1 + 0.01 * i as f32).collect();
                let mut moved = Move {
                    var: &var,
                    gradient: &gradient,
                    moments: &mut moments,
                    learning_rates: &rates,
                    weight_decay: 0.5,
                };
                let matrices = crate::Matrices {
                    stacked,
                    rows: stacked,
                };
                crate::muon_step(&mut moved, matrices, 0.7).unwrap();
            }
            let first = moments.to_tensors().unwrap()[0].clone();
            vec![values(&var), values(&first)]
        };
        let found = in_all_orders(run);
        // Factors of products have ten bits of mantissa.
        assert_close(&format!("Muon of {dims:?}"), &found, &run(), NEAR);
    }
}

#[test]
fn norms_of_all_tensors() {
    let tensors: Vec<Var> = [1, 17, 4096, 10_000]
        .into_iter()
        .map(|n| random(n as u64, n))
        .collect();
    let tensors: Vec<&Tensor> = tensors.iter().map(Var::as_tensor).collect();
    let expected = crate::squared_norms(&tensors).unwrap();
    let found = on_host_kernels(0, || crate::squared_norms(&tensors).unwrap());
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
}
