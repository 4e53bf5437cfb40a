use super::*;
use crate::optimiser::Moments;
use candle_core::{DType, Var};

const MOMENTUM: f64 = 0.95;

/// A matrix in rows.
type Matrix = Vec<Vec<f64>>;

fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let entry = |row: &Vec<f64>, j: usize| row.iter().zip(b).map(|(x, line)| x * line[j]).sum();
    let row = |row: &Vec<f64>| (0..b[0].len()).map(|j| entry(row, j)).collect();
    a.iter().map(row).collect()
}

fn transposed(a: &Matrix) -> Matrix {
    let column = |j: usize| a.iter().map(|row| row[j]).collect();
    (0..a[0].len()).map(column).collect()
}

fn mixed(a: &Matrix, x: f64, b: &Matrix, y: f64) -> Matrix {
    let row =
        |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| x * a + y * b).collect();
    a.iter().zip(b).map(row).collect()
}

/// Newton-Schulz in `f64`, of the matrix as it is.
fn expected(x: &Matrix) -> Matrix {
    let norm = x.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
    let mut x = mixed(x, 1.0 / norm, x, 0.0);
    for _ in 0..5 {
        let s = product(&x, &transposed(&x));
        let s = mixed(&s, -4.775, &product(&s, &s), 2.0315);
        x = mixed(&x, 3.4445, &product(&s, &x), 1.0);
    }
    x
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n)
        .map(|i| (1.7 * i as f32 + 0.3 * (i * i) as f32).sin())
        .collect()
}

fn tensor(dims: &[usize]) -> Tensor {
    let n = dims.iter().product();
    Tensor::from_vec(numbers(n), dims, &Device::Cpu).unwrap()
}

fn matrix(t: &Tensor) -> Matrix {
    let rows: Vec<Vec<f32>> = t.to_vec2().unwrap();
    let row = |row: &Vec<f32>| row.iter().map(|x| f64::from(*x)).collect();
    rows.iter().map(row).collect()
}

fn assert_close(found: &Tensor, want: &Matrix) {
    for (found, want) in matrix(found).iter().flatten().zip(want.iter().flatten()) {
        assert!((found - want).abs() < 2e-4, "{found} {want}");
    }
}

fn step(var: &Var, gradient: &Tensor, moments: &mut Moments, matrices: Matrices) -> Result<()> {
    let mut moved = Move {
        var,
        gradient,
        moments,
        learning_rates: &[0.1],
        weight_decay: 0.5,
        average: None,
    };
    muon_step(&mut moved, matrices, Muon::default(), 2.0)
}

#[test]
fn matrices_become_orthogonal_whether_high_or_wide() {
    for (r, c) in [(3, 7), (7, 3), (4, 4)] {
        let x = tensor(&[2, r, c]);
        let found = orthogonal(&x).unwrap();
        for i in 0..2 {
            let (x, found) = (x.get(i).unwrap(), found.get(i).unwrap());
            assert_close(&found, &expected(&matrix(&x)));
        }
    }
    // Singular values that differ ten times end between 0.7 and 1.2.
    let x = Tensor::new(
        &[[[3f32, 0., 0.], [0., 1., 0.], [0., 0., 0.3]]],
        &Device::Cpu,
    )
    .unwrap();
    for (i, row) in matrix(&orthogonal(&x).unwrap().squeeze(0).unwrap())
        .iter()
        .enumerate()
    {
        for (j, value) in row.iter().enumerate() {
            match i == j {
                true => assert!((0.65..1.25).contains(value), "{value}"),
                false => assert!(value.abs() < 1e-6),
            }
        }
    }
    let zeros = Tensor::zeros((1, 2, 3), DType::F32, &Device::Cpu).unwrap();
    let sum = orthogonal(&zeros)
        .unwrap()
        .sqr()
        .unwrap()
        .sum_all()
        .unwrap();
    assert_eq!(sum.to_scalar::<f32>().unwrap(), 0.0, "no gradient, no step");
}

/// Momentum, size of the step, weight decay and clipping, over steps and a restart, on both kinds of storage.
#[test]
fn steps_are_those_of_the_formula() {
    let gradient = tensor(&[3, 5]);
    let matrices = Matrices {
        stacked: 0,
        rows: 0,
    };
    let zeros = gradient.zeros_like().unwrap();
    let none = Tensor::zeros(0, DType::F32, &Device::Cpu).unwrap();
    let var = || Var::ones((3, 5), DType::F32, &Device::Cpu).unwrap();
    let places = [
        Moments::momentum(&var()).unwrap(),
        Moments(MomentStorage::Device(zeros, none)),
    ];
    for mut moments in places {
        let var = var();
        let mut want = vec![vec![1.0; 5]; 3];
        let mut momentum = vec![vec![0.0; 5]; 3];
        for t in 1..=3 {
            if matches!(moments.0, MomentStorage::Host(..)) {
                let [first, second] = moments.to_tensors().unwrap();
                assert_eq!(second.elem_count(), 0);
                moments = Moments::restore_momentum(&var, &first).unwrap();
            }
            let g = (&gradient * f64::from(t)).unwrap();
            step(&var, &g, &mut moments, matrices).unwrap();
            let g = mixed(&matrix(&gradient), 2.0 * f64::from(t), &momentum, 0.0);
            momentum = mixed(&momentum, MOMENTUM, &g, 1.0 - MOMENTUM);
            let u = expected(&mixed(&momentum, MOMENTUM, &g, 1.0 - MOMENTUM));
            want = mixed(&want, 1.0 - 0.1 * 0.5, &u, -0.1 * 0.2 * 5f64.sqrt());
        }
        assert_close(&var, &want);
    }
}

/// Two layers, the first with a gradient in the first step alone.
#[test]
fn a_layer_without_a_gradient_waits() {
    let var = Var::ones((2, 3, 5), DType::F32, &Device::Cpu).unwrap();
    let mut moments = Moments::momentum(&var).unwrap();
    let layers = Matrices {
        stacked: 1,
        rows: 1,
    };
    let g = tensor(&[2, 3, 5]);
    let one = Var::ones((3, 5), DType::F32, &Device::Cpu).unwrap();
    let mut of_one = Moments::momentum(&one).unwrap();
    let whole = Matrices {
        stacked: 0,
        rows: 0,
    };
    let zeros = g.get(0).unwrap().zeros_like().unwrap();
    let second_alone = Tensor::stack(&[&zeros, &g.get(1).unwrap()], 0).unwrap();
    for gradient in [&g, &second_alone, &second_alone, &g] {
        step(&var, gradient, &mut moments, layers).unwrap();
    }
    // The first took two steps, and weight decay in all four.
    step(&one, &g.get(0).unwrap(), &mut of_one, whole).unwrap();
    one.set(&(one.as_detached_tensor() * 0.95f64.powi(2)).unwrap())
        .unwrap();
    step(&one, &g.get(0).unwrap(), &mut of_one, whole).unwrap();
    assert_close(&var.get(0).unwrap(), &matrix(&one));

    let before = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let none = (&g * 0.0).unwrap();
    step(&var, &none, &mut moments, layers).unwrap();
    let after = var.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert!(
        before
            .iter()
            .zip(after)
            .all(|(b, a)| (b * 0.95 - a).abs() < 1e-6)
    );
}

/// Scalers (K, N, r, c) are one matrix with N rows; stacked weights are a matrix for each layer.
#[test]
fn tensors_are_seen_as_matrices() {
    let x = tensor(&[2, 3, 2, 5]);
    let scalers = Matrices {
        stacked: 0,
        rows: 1,
    };
    let seen = scalers.of(&x).unwrap();
    assert_eq!(seen.dims(), [1, 3, 20]);
    let row: Vec<f32> = seen.get(0).unwrap().get(1).unwrap().to_vec1().unwrap();
    let of_template = x.narrow(1, 1, 1).unwrap().flatten_all().unwrap();
    assert_eq!(row, of_template.to_vec1::<f32>().unwrap());

    let layers = Matrices {
        stacked: 1,
        rows: 1,
    };
    let kernels = layers.of(&x).unwrap();
    assert_eq!(kernels.dims(), [2, 3, 10]);
    for matrices in [scalers, layers] {
        let back = matrices.back(&matrices.of(&x).unwrap(), x.dims()).unwrap();
        assert_eq!(
            back.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
            numbers(60)
        );
    }
}

#[test]
fn what_does_not_fit_moves_nothing() {
    let var = Var::ones((2, 3), DType::F32, &Device::Cpu).unwrap();
    let mut moments = Moments::momentum(&var).unwrap();
    let rows = |rows| Matrices { stacked: 0, rows };
    assert!(step(&var, &tensor(&[2, 3]), &mut moments, rows(2)).is_err());
    assert!(step(&var, &tensor(&[2, 2]), &mut moments, rows(0)).is_err());
    let mut moved = [Move {
        var: &var,
        gradient: &tensor(&[2, 3]),
        moments: &mut moments,
        learning_rates: &[0.1],
        weight_decay: 0.0,
        average: None,
    }];
    let adamw = crate::adamw_steps(&mut moved, crate::AdamW::default(), 1.0, 0.0, 1);
    assert!(adamw.is_err(), "AdamW needs a second moment");
    assert_eq!(
        var.flatten_all().unwrap().to_vec1::<f32>().unwrap(),
        [1.0; 6]
    );
}
