use super::*;

/// The formulas, computed value by value in `f64`, with one rate per row.
fn expected(steps: usize, gradient: &[f64], rates: &[f64; 2], decay: f64, scale: f64) -> Vec<f64> {
    let n = gradient.len();
    let (mut p, mut m, mut v) = (vec![1.0; n], vec![0.0; n], vec![0.0; n]);
    for t in 1..=steps as i32 {
        for i in 0..n {
            let (g, lr) = (gradient[i] * scale / f64::from(t), rates[i / (n / 2)]);
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let (m, v) = (
                m[i] / (1.0 - 0.9_f64.powi(t)),
                v[i] / (1.0 - 0.999_f64.powi(t)),
            );
            p[i] = p[i] * (1.0 - lr * decay) - lr * m / (v.sqrt() + 1e-8);
        }
    }
    p
}

fn step(
    var: &Var,
    gradient: &Tensor,
    moments: &mut Moments,
    learning_rates: &[f32],
    weight_decay: f32,
    scale: f32,
    t: u64,
) -> Result<()> {
    let moved = Move {
        var,
        gradient,
        moments,
        learning_rates,
        weight_decay,
    };
    adamw_steps(&mut [moved], scale, t)
}

#[test]
fn steps_are_those_of_the_paper() {
    let gradient: Vec<f64> = (0..12).map(|i| f64::from(i - 5) / 3.0).collect();
    let (rates, decay, scale) = ([0.1, 0.02], 0.3, 0.5);
    let want = expected(4, &gradient, &rates, decay, scale);
    let gradient: Vec<f32> = gradient.iter().map(|g| *g as f32).collect();
    let gradient = Tensor::from_vec(gradient, (2, 6), &Device::Cpu).unwrap();
    let var = Var::ones((2, 6), candle_core::DType::F32, &Device::Cpu).unwrap();
    let mut moments = Moments::new(&var).unwrap();
    for t in 1..=4_u64 {
        // Saved and restored in between.
        let [first, second] = moments.to_tensors().unwrap();
        moments = Moments::restore(&var, [&first, &second]).unwrap();
        let g = (&gradient / t as f64).unwrap();
        let rates = rates.map(|r| r as f32);
        let (decay, scale) = (decay as f32, scale as f32);
        step(&var, &g, &mut moments, &rates, decay, scale, t).unwrap();
    }
    let found: Vec<f32> = var.flatten_all().unwrap().to_vec1().unwrap();
    for (found, want) in found.iter().zip(&want) {
        assert!((f64::from(*found) - want).abs() < 1e-5, "{found} {want}");
    }
    let three = Var::ones(3, candle_core::DType::F32, &Device::Cpu).unwrap();
    assert!(step(&three, &gradient, &mut moments, &[0.1], 0.0, 1.0, 1).is_err());
}
