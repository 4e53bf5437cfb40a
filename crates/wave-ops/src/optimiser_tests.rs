use super::*;
use candle_core::DType;

/// The formulas, computed value by value in `f64`.
fn expected(steps: usize, gradient: &[f64], lr: f64, decay: f64, scale: f64) -> Vec<f64> {
    let n = gradient.len();
    let (mut p, mut m, mut v) = (vec![1.0; n], vec![0.0; n], vec![0.0; n]);
    for t in 1..=steps as i32 {
        for i in 0..n {
            let g = gradient[i] * scale / f64::from(t);
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.999 * v[i] + 0.001 * g * g;
            let first = m[i] / (1.0 - 0.9_f64.powi(t));
            let second = v[i] / (1.0 - 0.999_f64.powi(t));
            p[i] = p[i] * (1.0 - lr * decay) - lr * first / (second.sqrt() + 1e-8);
        }
    }
    p
}

#[test]
fn steps_are_those_of_the_paper() {
    let gradient: Vec<f64> = (0..12).map(|i| f64::from(i - 5) / 3.0).collect();
    let (rate, decay, scale) = (0.1, 0.3, 0.5);
    let want = expected(4, &gradient, rate, decay, scale);
    let gradient: Vec<f32> = gradient.iter().map(|g| *g as f32).collect();
    let gradient = Tensor::from_vec(gradient, (2, 6), &Device::Cpu).unwrap();
    let step = |var: &Var, moments: &mut Moments, t: u64| {
        let moved = Move {
            var,
            gradient: &(&gradient / t as f64).unwrap(),
            moments,
            learning_rate: rate as f32,
            weight_decay: decay as f32,
        };
        adamw_steps(&mut [moved], scale as f32, t)
    };
    let var = Var::ones((2, 6), DType::F32, &Device::Cpu).unwrap();
    let mut moments = Moments::new(&var).unwrap();
    for t in 1..=4 {
        // Saved and restored in between.
        let [first, second] = moments.to_tensors().unwrap();
        moments = Moments::restore(&var, [&first, &second]).unwrap();
        step(&var, &mut moments, t).unwrap();
    }
    let found: Vec<f32> = var.flatten_all().unwrap().to_vec1().unwrap();
    for (found, want) in found.iter().zip(&want) {
        assert!((f64::from(*found) - want).abs() < 1e-5, "{found} {want}");
    }
    let other = Var::ones((2, 3), DType::F32, &Device::Cpu).unwrap();
    assert!(step(&other, &mut moments, 1).is_err());
}

/// In `f64` it is candle's operators, as on a GPU.
#[test]
fn averages_move_towards_the_variable_in_place() {
    for dtype in [DType::F32, DType::F64] {
        let var = Var::ones((2, 3), dtype, &Device::Cpu).unwrap();
        let average = Var::zeros((2, 3), dtype, &Device::Cpu).unwrap();
        for _ in 0..2 {
            ema_update(&average, &var, 0.75).unwrap();
        }
        let found = average.flatten_all().unwrap().to_dtype(DType::F32).unwrap();
        // 1 - 0.75^2
        assert_eq!(found.to_vec1::<f32>().unwrap(), [0.4375; 6], "{dtype:?}");
    }
}
