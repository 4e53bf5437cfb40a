use super::*;
use crate::optimiser::Moments;
use candle_core::{DType, Var};

const MOMENTUM: f64 = 0.95;

/// One matrix with all rows.
const WHOLE: Matrices = matrices(0, 0);
/// A matrix for each entry of the leading dimension.
const LAYERS: Matrices = matrices(1, 1);

const fn matrices(stacked: usize, rows: usize) -> Matrices {
    Matrices { stacked, rows }
}

/// Newton-Schulz in `f64`, without transposing the matrix.
fn expected(x: &Tensor) -> Result<Tensor> {
    let x = x.to_dtype(DType::F64)?;
    let mut x = x.broadcast_div(&x.sqr()?.sum_all()?.sqrt()?)?;
    for _ in 0..5 {
        let s = x.matmul(&x.t()?)?;
        let s = ((&s * -4.775)? + (s.matmul(&s)? * 2.0315)?)?;
        x = ((&x * 3.4445)? + s.matmul(&x)?)?;
    }
    Ok(x)
}

fn tensor(dims: &[usize]) -> Tensor {
    let number = |i: usize| (1.7 * i as f32 + 0.3 * (i * i) as f32).sin();
    let numbers = (0..dims.iter().product()).map(number).collect();
    Tensor::from_vec::<_, f32>(numbers, dims, &Device::Cpu).unwrap()
}

fn values(t: &Tensor) -> Vec<f64> {
    let flat = t.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

fn assert_close(found: &Tensor, want: &Tensor) {
    for (found, want) in values(found).into_iter().zip(values(want)) {
        assert!((found - want).abs() < 2e-4, "{found} {want}");
    }
}

fn moved<'a>(var: &'a Var, gradient: &'a Tensor, moments: &'a mut Moments) -> Move<'a> {
    Move {
        var,
        gradient,
        moments,
        learning_rate: 0.1,
        weight_decay: 0.5,
    }
}

fn step(var: &Var, gradient: &Tensor, moments: &mut Moments, matrices: Matrices) -> Result<()> {
    muon_step(&mut moved(var, gradient, moments), matrices, 2.0)
}

#[test]
fn matrices_become_orthogonal_whether_high_or_wide() {
    for (r, c) in [(3, 7), (7, 3), (4, 4)] {
        let x = tensor(&[2, r, c]);
        let found = orthogonal(&x).unwrap();
        for i in 0..2 {
            let (x, found) = (x.get(i).unwrap(), found.get(i).unwrap());
            assert_close(&found, &expected(&x).unwrap());
        }
    }
    // Singular values that differ by a factor of ten end between 0.7 and 1.2.
    let x = [[[3f32, 0., 0.], [0., 1., 0.], [0., 0., 0.3]]];
    let x = Tensor::new(&x, &Device::Cpu).unwrap();
    for (at, value) in values(&orthogonal(&x).unwrap()).into_iter().enumerate() {
        let range = if at % 4 == 0 { 0.65..1.25 } else { -1e-6..1e-6 };
        assert!(range.contains(&value), "{value}");
    }
    let zeros = Tensor::zeros((1, 2, 3), DType::F32, &Device::Cpu).unwrap();
    let found = values(&orthogonal(&zeros).unwrap());
    assert_eq!(found, [0.0; 6], "no gradient, no step");
}

/// Momentum, update size, weight decay and clipping, over several steps and a restart, on both kinds of storage.
#[test]
fn steps_are_those_of_the_formula() {
    let gradient = tensor(&[3, 5]);
    let zeros = gradient.zeros_like().unwrap();
    let none = Tensor::zeros(0, DType::F32, &Device::Cpu).unwrap();
    let var = || Var::ones((3, 5), DType::F32, &Device::Cpu).unwrap();
    let places = [
        Moments::momentum(&var()).unwrap(),
        Moments(MomentStorage::Device(zeros, none)),
    ];
    for mut moments in places {
        let var = var();
        let exact = gradient.to_dtype(DType::F64).unwrap();
        let mut want = exact.ones_like().unwrap();
        let mut momentum = exact.zeros_like().unwrap();
        for t in 1..=3 {
            if matches!(moments.0, MomentStorage::Host(..)) {
                let [first, second] = moments.to_tensors().unwrap();
                assert_eq!(second.elem_count(), 0);
                moments = Moments::restore_momentum(&var, &first).unwrap();
            }
            let g = (&gradient * f64::from(t)).unwrap();
            step(&var, &g, &mut moments, WHOLE).unwrap();
            let mixed = |a: &Tensor, x: f64, b: &Tensor, y: f64| {
                ((a * x).unwrap() + (b * y).unwrap()).unwrap()
            };
            let g = (&exact * (2.0 * f64::from(t))).unwrap();
            momentum = mixed(&momentum, MOMENTUM, &g, 1.0 - MOMENTUM);
            let u = expected(&mixed(&momentum, MOMENTUM, &g, 1.0 - MOMENTUM)).unwrap();
            want = mixed(&want, 1.0 - 0.1 * 0.5, &u, -0.1 * 0.2 * 5f64.sqrt());
        }
        assert_close(&var, &want);
    }
}

/// Two layers; the first has a gradient in the first step only.
#[test]
fn a_layer_without_a_gradient_waits() {
    let var = Var::ones((2, 3, 5), DType::F32, &Device::Cpu).unwrap();
    let mut moments = Moments::momentum(&var).unwrap();
    let g = tensor(&[2, 3, 5]);
    let one = Var::ones((3, 5), DType::F32, &Device::Cpu).unwrap();
    let mut of_one = Moments::momentum(&one).unwrap();
    let zeros = g.get(0).unwrap().zeros_like().unwrap();
    let second_alone = Tensor::stack(&[&zeros, &g.get(1).unwrap()], 0).unwrap();
    for gradient in [&g, &second_alone, &second_alone, &g] {
        step(&var, gradient, &mut moments, LAYERS).unwrap();
    }
    // The first layer took two steps, with weight decay in all four.
    step(&one, &g.get(0).unwrap(), &mut of_one, WHOLE).unwrap();
    let decayed = one.as_detached_tensor() * 0.95f64.powi(2);
    one.set(&decayed.unwrap()).unwrap();
    step(&one, &g.get(0).unwrap(), &mut of_one, WHOLE).unwrap();
    assert_close(&var.get(0).unwrap(), &one);

    let before = values(&var);
    let none = (&g * 0.0).unwrap();
    step(&var, &none, &mut moments, LAYERS).unwrap();
    for (before, after) in before.into_iter().zip(values(&var)) {
        assert!((before * 0.95 - after).abs() < 1e-6);
    }
}

/// Scalers (K, N, r, c) form one matrix with N rows; stacked weights form one matrix per layer.
#[test]
fn tensors_are_seen_as_matrices() {
    let x = tensor(&[2, 3, 2, 5]);
    let scalers = matrices(0, 1);
    let seen = scalers.of(&x).unwrap();
    assert_eq!(seen.dims(), [1, 3, 20]);
    let row = seen.get(0).unwrap().get(1).unwrap();
    assert_eq!(values(&row), values(&x.narrow(1, 1, 1).unwrap()));
    assert_eq!(LAYERS.of(&x).unwrap().dims(), [2, 3, 10]);
    for matrices in [scalers, LAYERS] {
        let back = matrices.back(&matrices.of(&x).unwrap(), x.dims()).unwrap();
        assert_eq!(values(&back), values(&x));
    }
}

#[test]
fn what_does_not_fit_moves_nothing() {
    let var = Var::ones((2, 3), DType::F32, &Device::Cpu).unwrap();
    let mut moments = Moments::momentum(&var).unwrap();
    assert!(step(&var, &tensor(&[2, 3]), &mut moments, matrices(0, 2)).is_err());
    assert!(step(&var, &tensor(&[2, 2]), &mut moments, WHOLE).is_err());
    let gradient = tensor(&[2, 3]);
    let adamw = crate::adamw_steps(&mut [moved(&var, &gradient, &mut moments)], 1.0, 1);
    assert!(adamw.is_err(), "AdamW needs a second moment");
    assert_eq!(values(&var), [1.0; 6]);
}
