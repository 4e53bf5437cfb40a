use super::*;
use crate::random::{generator, uniform};

/// PyTorch's default for a linear layer, in f64: uniform in ±1/sqrt(n).
fn default_weight(p: usize, n: usize, seed: u64) -> Tensor {
    let w = uniform((p, n), 1.0 / (n as f64).sqrt(), &mut generator(seed, 0)).unwrap();
    w.to_dtype(DType::F64).unwrap()
}

/// The shifted weight, for a shift that changes only the weight.
fn shifted(weight: &Tensor, shift: MlpMean, seed: u64) -> Result<Tensor> {
    let layer = first_layer(weight, weight, weight, shift, &mut generator(seed, 0));
    layer.map(|(weight, _)| weight)
}

fn eq1(weight: &Tensor, sigma: f64, seed: u64) -> Result<Tensor> {
    shifted(weight, MlpMean::Eq1 { sigma }, seed)
}

fn eq2(weight: &Tensor, b: f64) -> Result<Tensor> {
    shifted(weight, MlpMean::Eq2 { b }, 0)
}

fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
    tensor.to_dtype(DType::F64).unwrap().to_vec2().unwrap()
}

fn mean(tensor: &Tensor) -> f64 {
    tensor.mean_all().unwrap().to_scalar().unwrap()
}

fn largest(tensor: &Tensor) -> f64 {
    let largest = tensor.abs().unwrap().max_all().unwrap();
    largest.to_scalar().unwrap()
}

#[test]
fn equation_2_adds_one_number_and_keeps_the_variance() {
    for b in [-1.0, -0.25, 0.5, 1.0] {
        let w = default_weight(160, 64, 0);
        let sd = standard_deviation(&w).unwrap();
        assert!((sd * (3.0f64 * 64.0).sqrt() - 1.0).abs() < 0.02); // 1/sqrt(3n)
        let shifted = eq2(&w, b).unwrap();
        // The rounding error of a plain sum over 10,240 entries, hence 1e-12 and not 1e-15.
        assert!((mean(&shifted) - mean(&w) - b * sd).abs() < 1e-12);
        assert!((standard_deviation(&shifted).unwrap() - sd).abs() < 1e-12);
        let change = (shifted - &w).unwrap();
        assert!(largest(&(change - b * sd).unwrap()) < 1e-15);
    }
}

#[test]
fn equation_1_adds_the_same_row_everywhere() {
    let w = default_weight(160, 400, 1);
    let shifted = eq1(&w, 0.5, 9).unwrap();
    let change = rows(&(shifted - &w).unwrap());
    for row in &change {
        let mut pairs = row.iter().zip(&change[0]);
        assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-15));
    }
    let tau = (change[0].iter().map(|b| b * b).sum::<f64>() / 400.0).sqrt();
    let ratio = tau / standard_deviation(&w).unwrap();
    assert!((ratio - 0.5).abs() < 0.06, "{ratio}"); // 0.5 ± 3 * 0.5 / sqrt(800)
}

#[test]
fn baselines_change_the_bias_or_take_half_of_the_difference() {
    let (w, second) = (default_weight(6, 4, 0), default_weight(4, 6, 1));
    let bias = default_weight(6, 1, 2).squeeze(1).unwrap();
    let of = |shift| first_layer(&w, &bias, &second, shift, &mut generator(0, 0)).unwrap();
    let sd = standard_deviation(&w).unwrap();
    let (weight, constant) = of(MlpMean::Bias { b: -2.0 });
    assert_eq!(rows(&weight), rows(&w));
    for b in constant.to_vec1::<f64>().unwrap() {
        assert!((b + 2.0 * sd).abs() < 1e-15);
    }
    let (weight, same) = of(MlpMean::Half);
    let same: Vec<f64> = same.to_vec1().unwrap();
    assert_eq!(same, bias.to_vec1::<f64>().unwrap());
    let (found, w, second) = (rows(&weight), rows(&w), rows(&second));
    for (p, n) in (0..6).flat_map(|p| (0..4).map(move |n| (p, n))) {
        assert_eq!(found[p][n], (w[p][n] - second[n][p]) * 0.5);
    }
}

#[test]
fn shifts_that_make_no_sense_are_refused() {
    let w = default_weight(3, 3, 0);
    for (refused, part) in [
        (eq2(&w, f64::NAN), "b is NaN"),
        (eq1(&w, -1.0, 0), "is -1: use a number that is 0"),
    ] {
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}
