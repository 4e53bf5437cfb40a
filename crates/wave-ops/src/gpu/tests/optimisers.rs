//! AdamW, Muon and norms over all tensors.

use super::*;
use crate::{Moments, Move};

#[test]
fn adamw_of_all_tensors_at_once() {
    let sizes = [1_usize, 2, 17, 31, 4095, 4096, 4097, 10_000];
    let drawn = |first: u64| -> Vec<Var> {
        let numbered = sizes.into_iter().zip(first..);
        numbered.map(|(size, seed)| random(seed, size)).collect()
    };
    let run = || {
        let vars = drawn(0);
        let mut moments: Vec<Moments> = vars.iter().map(|v| Moments::new(v).unwrap()).collect();
        for t in 1..=3 {
            let gradients = drawn(100 * t);
            let mut moves: Vec<Move> = Vec::new();
            for (i, moments) in moments.iter_mut().enumerate() {
                moves.push(Move {
                    var: &vars[i],
                    gradient: &gradients[i],
                    moments,
                    learning_rate: 0.03 + 0.02 * i as f32,
                    weight_decay: 0.1 * i as f32,
                });
            }
            crate::adamw_steps(&mut moves, 0.5, t).unwrap();
        }
        let mut all: Vec<Vec<f32>> = vars.iter().map(|v| values(v)).collect();
        for m in &moments {
            all.extend(m.to_tensors().unwrap().iter().map(values));
        }
        all
    };
    assert_close(&in_all_orders(run), &run(), 1e-6, "AdamW");
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
                let mut moved = Move {
                    var: &var,
                    gradient: &gradient,
                    moments: &mut moments,
                    learning_rate: 0.1,
                    weight_decay: 0.5,
                };
                let rows = stacked;
                let matrices = crate::Matrices { stacked, rows };
                crate::muon_step(&mut moved, matrices, 0.7).unwrap();
            }
            let first = moments.to_tensors().unwrap()[0].clone();
            vec![values(&var), values(&first)]
        };
        let found = in_all_orders(run);
        // Factors of products have ten bits of mantissa.
        assert_close(&found, &run(), NEAR, dims);
    }
}

#[test]
fn norms_of_all_tensors() {
    let tensors = [1_usize, 17, 4096, 10_000].map(|n| random(n as u64, n));
    let tensors: Vec<&Tensor> = tensors.iter().map(Var::as_tensor).collect();
    let expected = crate::squared_norms(&tensors).unwrap();
    let found = on_host_kernels(0, || crate::squared_norms(&tensors).unwrap());
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
}
