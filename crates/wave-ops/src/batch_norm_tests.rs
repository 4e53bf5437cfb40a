use super::*;
use crate::testing::{check_slopes, difference, random, values};
use candle_core::{DType, Device, Var};
use proptest::prelude::*;

const EPS: f64 = 1e-5;

type Train = fn(&Tensor, &Tensor, &Tensor, f64) -> Result<(Tensor, Tensor, Tensor)>;

/// Input, weight, bias, and the output's gradient.
fn case(shape: &[usize]) -> [Var; 4] {
    let c = *shape.last().unwrap();
    [
        random(1, shape),
        random(2, c),
        random(3, c),
        random(4, shape),
    ]
}

/// Output, the three gradients of `sum(y * dy)`, and the statistics.
fn run(f: Train, [x, w, b, dy]: &[Var; 4]) -> Vec<Tensor> {
    let (y, mean, var) = f(x, w, b, EPS).unwrap();
    let grads = (&y * dy.as_tensor())
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let of = |v: &Var| grads.get(v).unwrap().clone();
    vec![y, of(x), of(w), of(b), mean, var]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_stock_operators(
        b in 2usize..5, h in 2usize..9, w in 2usize..9, c in 1usize..40,
    ) {
        let case = case(&[b, h, w, c]);
        let pairs: [(Train, Train); 2] = [
            (batch_norm_train, stock_train::<false>),
            (gelu_batch_norm_train, stock_train::<true>),
        ];
        for (ours, stock) in pairs {
            for (i, (a, b)) in run(ours, &case).iter().zip(&run(stock, &case)).enumerate() {
                let d = difference(a, b);
                prop_assert!(d < 2e-4, "result {i} differs by {d}");
            }
        }
    }
}

#[test]
fn gradients_match_finite_differences() {
    let case = case(&[3, 4, 5]);
    for f in [batch_norm_train as Train, gelu_batch_norm_train] {
        let grads = run(f, &case);
        let y = |x: &Tensor, w: &Tensor, b: &Tensor| Ok(f(x, w, b, EPS)?.0); // f64: the stock path
        check_slopes(y, &case, &grads[1..], 1e-4);
    }
}

#[test]
fn statistics_survive_a_large_mean() {
    // The naive mean of squares minus square of the mean has no correct digit here in f32.
    let x: Vec<f32> = (0..30000).map(|i| 1000.0 + (i % 7) as f32 / 7.0).collect();
    let exact: Vec<f64> = x.iter().map(|v| *v as f64).collect();
    let mean = exact.iter().sum::<f64>() / 30000.0;
    let var = exact.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 30000.0;
    let (got_mean, got_var) = statistics::<false>(&x, 1);
    assert!((got_mean[0] as f64 - mean).abs() < 1e-4);
    assert!(
        (got_var[0] as f64 - var).abs() < 1e-4 * var,
        "{} is not {var}",
        got_var[0]
    );
}

#[test]
fn batch_statistics_give_eval_the_same_output_and_other_gradients() {
    let [x, w, b, _] = case(&[6, 3, 10]);
    let (y, mean, var) = batch_norm_train(&x, &w, &b, EPS).unwrap();
    let frozen = batch_norm_eval(&x, &w, &b, &mean, &var, EPS).unwrap();
    assert!(difference(&y, &frozen) < 1e-5);
    // The sum of a normalised batch cannot change, that of an affine map can.
    let through = y.sum_all().unwrap().backward().unwrap();
    let frozen = frozen.sum_all().unwrap().backward().unwrap();
    assert!(
        values(through.get(&x).unwrap())
            .iter()
            .all(|g| g.abs() < 1e-5)
    );
    assert!(values(frozen.get(&x).unwrap()).iter().all(|g| *g != 0.0));
}

#[test]
fn eval_agrees_with_stock_operators() {
    let [x, w, b, dy] = case(&[5, 7, 19]);
    let (mean, var) = (random(5, 19), random(6, 19).sqr().unwrap());
    let run = |x: &Tensor, w: &Tensor, b: &Tensor| {
        batch_norm_eval(
            x,
            w,
            b,
            &mean.to_dtype(x.dtype())?,
            &var.to_dtype(x.dtype())?,
            EPS,
        )
    };
    let wide = |v: &Var| v.to_dtype(DType::F64).unwrap(); // f64: the stock path
    let ours = run(&x, &w, &b).unwrap();
    let stock = run(&wide(&x), &wide(&w), &wide(&b)).unwrap();
    assert!(difference(&ours, &stock) < 1e-4);
    let ours = (ours * dy.as_tensor())
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let stock = (stock * wide(&dy))
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    for v in [&x, &w, &b] {
        assert!(difference(ours.get(v).unwrap(), stock.get(v).unwrap()) < 2e-4);
    }
}

#[test]
fn repeats_bit_for_bit_on_any_number_of_threads() {
    let case = case(&[9, 13, 11, 20]);
    let once = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| run(gelu_batch_norm_train, &case))
    };
    for (a, b) in once(1).iter().zip(&once(3)) {
        assert_eq!(values(a), values(b));
    }
}

#[test]
fn rejects_wrong_shapes_and_empty_batches() {
    let [x, w, b, _] = case(&[4, 6]);
    assert!(batch_norm_train(&x, &w, &random(0, 5), EPS).is_err());
    assert!(batch_norm_eval(&x, &w, &b, &w, &random(0, 5), EPS).is_err());
    let none = Tensor::zeros((0, 6), DType::F32, &Device::Cpu).unwrap();
    assert!(batch_norm_train(&none, &w, &b, EPS).is_err());
    assert_eq!(
        batch_norm_eval(&none, &w, &b, &w, &b, EPS).unwrap().dims(),
        [0, 6]
    );
}
