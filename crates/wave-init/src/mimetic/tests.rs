//! The algebra is asserted on products, since the factors' signs are only determined jointly.

use super::*;
use crate::random::generator;
use proptest::prelude::*;

const QK: (f64, f64) = (0.7, 0.7);
const VP: (f64, f64) = (0.4, 0.4);

fn mat(tensor: &Tensor) -> Mat<f64> {
    let rows: Vec<Vec<f32>> = tensor.to_vec2().unwrap();
    Mat::from_fn(rows.len(), rows[0].len(), |i, j| f64::from(rows[i][j]))
}

fn transposed(tensor: &Tensor) -> Mat<f64> {
    mat(tensor).transpose().to_owned()
}

/// W_Q and W_K of the paper, (d, k), and the matrix A that they factor.
fn head(width: usize, k: usize, mix: (f64, f64), seed: u64) -> (Mat<f64>, Mat<f64>, Mat<f64>) {
    let (q, w) = query_key(Attention::Products, width, k, mix, &mut generator(seed, 0)).unwrap();
    assert_eq!((q.dims(), w.dims()), (&[k, width][..], &[k, width][..]));
    let a = mixture(width, mix.0, mix.1, &mut generator(seed, 0));
    (transposed(&q), transposed(&w), a)
}

/// W_V and W_proj of the paper, (d, d), and the matrix A that they factor.
fn layer(width: usize, mix: (f64, f64), seed: u64) -> (Mat<f64>, Mat<f64>, Mat<f64>) {
    let rng = &mut generator(seed, 0);
    let (v, proj) = value_projection(Attention::Products, width, mix, rng).unwrap();
    let a = mixture(width, mix.0, -mix.1, &mut generator(seed, 0));
    (transposed(&v), transposed(&proj), a)
}

fn diagonal(a: &Mat<f64>) -> (f64, f64) {
    let d: Vec<f64> = (0..a.nrows()).map(|i| a[(i, i)]).collect();
    let mean = d.iter().sum::<f64>() / d.len() as f64;
    let variance = d.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / d.len() as f64;
    (mean, variance.sqrt())
}

fn off_diagonal_std(a: &Mat<f64>) -> f64 {
    let n = a.nrows();
    let on: f64 = (0..n).map(|i| a[(i, i)].powi(2)).sum();
    ((a.squared_norm_l2() - on) / (n * (n - 1)) as f64).sqrt()
}

fn check_head(width: usize, k: usize, mix: (f64, f64), seed: u64) {
    let (w_q, w_k, a) = head(width, k, mix, seed);
    let s = a.singular_values().unwrap();
    let product = &w_q * w_k.transpose();

    let svd = a.svd().unwrap();
    let (u, v) = (svd.U().subcols(0, k), svd.V().subcols(0, k)); // (d, k), (d, k)
    let best = Mat::from_fn(width, k, |i, j| u[(i, j)] * s[j]) * v.transpose();
    assert!((&product - best).norm_l2() < 1e-5);

    // Without relying on those vectors, Eckart and Young: only the best rank-k approximation leaves exactly
    // the discarded singular values (squared) in the residual, and nothing along the axes it keeps.
    let rest = &a - &product;
    let discarded: f64 = s[k..].iter().map(|s| s * s).sum();
    assert!((rest.squared_norm_l2() - discarded).abs() < 1e-5);
    assert!((rest.transpose() * &w_q).norm_l2() < 1e-5);
    assert!((&rest * &w_k).norm_l2() < 1e-5);

    let s_k = Mat::from_fn(k, k, |i, j| if i == j { s[i] } else { 0.0 });
    assert!(s.windows(2).all(|pair| pair[0] >= pair[1]));
    assert!((w_q.transpose() * &w_q - &s_k).norm_l2() < 1e-5);
    assert!((w_k.transpose() * &w_k - &s_k).norm_l2() < 1e-5);
    assert!((w_q.norm_l2() - w_k.norm_l2()).abs() < 1e-5);
}

#[test]
fn a_head_factors_the_best_low_rank_approximation() {
    check_head(192, 64, QK, 0);
    check_head(64, 16, QK, 1);
    check_head(96, 96, QK, 2); // exact
}

#[test]
fn value_times_projection_is_exact_and_balanced() {
    // Stored weights are (outputs, inputs): the layer computes x vᵀ projᵀ, which is x A.
    let (w_v, w_proj, a) = layer(192, VP, 3);
    assert!((&w_v * &w_proj - a).norm_l2() < 1e-5);
    assert!((w_v.transpose() * &w_v - &w_proj * w_proj.transpose()).norm_l2() < 1e-5);
}

#[test]
fn equal_factors_have_a_diagonal_of_1_and_a_negative_one() {
    let (q, k) = query_key(Attention::Equal, 192, 64, QK, &mut generator(0, 0)).unwrap();
    assert_eq!(q.dims(), [64, 192]);
    let product = mat(&q).transpose() * mat(&k);
    assert!((mat(&q) - mat(&k)).norm_l2() == 0.0);
    assert!((diagonal(&product).0 - 1.0).abs() < 0.03);
    // Sums of 64 products with standard deviation 1/64 each.
    assert!((off_diagonal_std(&product) * 8.0 - 1.0).abs() < 0.03);

    let (v, proj) = value_projection(Attention::Equal, 192, VP, &mut generator(1, 0)).unwrap();
    // The network computes x vᵀ projᵀ.
    let product = mat(&v).transpose() * mat(&proj).transpose();
    assert!((diagonal(&product).0 + 1.0).abs() < 0.03);
    assert!((off_diagonal_std(&product) * 192f64.sqrt() - 1.0).abs() < 0.03);
}

#[test]
fn low_rank_dims_the_diagonal() {
    // Mean of the diagonal of W_Q W_Kᵀ, averaged over heads.
    for (width, k, expected) in [
        (192, 64, 0.398),
        (64, 16, 0.32),
        (384, 32, 0.119),
        (192, 192, 0.69),
    ] {
        let heads = if width < 384 { 6 } else { 2 };
        let mean = (0..heads)
            .map(|seed| {
                let (w_q, w_k, _) = head(width, k, QK, seed);
                diagonal(&(&w_q * w_k.transpose())).0
            })
            .sum::<f64>()
            / heads as f64;
        assert!((mean - expected).abs() < 0.02, "({width}, {k}): {mean}");
    }
}

#[test]
fn value_times_projection_is_a_noisy_negative_identity() {
    let (w_v, w_proj, _) = layer(192, VP, 5);
    let product = &w_v * &w_proj;
    let noise = 0.4 / 192f64.sqrt();
    assert!((diagonal(&product).0 + 0.40).abs() < 0.01);
    assert!((diagonal(&product).1 / noise - 1.0).abs() < 0.2);
    assert!((off_diagonal_std(&product) / noise - 1.0).abs() < 0.03);
}

#[test]
fn without_noise_every_head_gets_axes_of_its_own() {
    for beta in [0.5, -0.5] {
        let head = |seed| {
            let rng = &mut generator(seed, 0);
            let (q, k) = query_key(Attention::Products, 64, 16, (0.0, beta), rng).unwrap();
            mat(&q).transpose() * mat(&k) // (d, d), rank 16
        };
        let (a, b) = (head(0), head(1));
        // beta times a projection onto 16 of 64 dimensions.
        assert!((&a * &a - &a * faer::Scale(beta)).norm_l2() < 1e-5);
        assert!((diagonal(&a).0 - beta / 4.0).abs() < 1e-6);
        // Two random subspaces share 16²/64 of their squared norm; equal ones would share 16.
        let shared = (&a * &b).squared_norm_l2() / beta.powi(4);
        assert!((shared - 4.0).abs() < 1.5, "{shared}");
    }
    let (v, proj) =
        value_projection(Attention::Products, 32, (0.0, 0.5), &mut generator(0, 0)).unwrap();
    let product = mat(&v).transpose() * mat(&proj).transpose();
    let expected = Mat::<f64>::identity(32, 32) * faer::Scale(-0.5);
    assert!((product - expected).norm_l2() < 1e-5);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_algebra_holds_at_any_size(
        k in 1usize..12, heads in 1usize..5, alpha in 0.1f64..1.0, beta in -1.0f64..1.0, seed: u64,
    ) {
        check_head(k * heads, k, (alpha, beta), seed);
        let (w_v, w_proj, a) = layer(k * heads, (alpha, beta), seed);
        prop_assert!((w_v * w_proj - a).norm_l2() < 1e-5);
    }
}
