//! Operators on inputs with an empty dimension.

use super::{block_inputs, flat, normal, output_and_gradients, shape, slabs, three};
use candle_core::{DType, Result, Tensor, Var};
use wave_ops::{Kronecker, Precision, stock};

/// The output, and the gradients of its sum: without candle's own operators, some of which fail on empty tensors.
fn sum_and_gradients(
    inputs: &[Tensor],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> (Tensor, Vec<Vec<f64>>) {
    let vars: Vec<Var> = inputs
        .iter()
        .map(|t| Var::from_tensor(t).unwrap())
        .collect();
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let y = f(&tensors).unwrap();
    let gradients = wave_ops::backward(&y).unwrap();
    let of = |v| flat(gradients.get(v).expect("a gradient"));
    let gradients = tensors.iter().map(of).collect();
    (y, gradients)
}

/// No rows, no inputs, or no outputs: the products are empty sums, and biases remain.
#[test]
fn maps_with_an_empty_dimension_give_biases() {
    for (m, k, o) in [(0, 3, 4), (5, 0, 4), (5, 3, 0), (0, 0, 0)] {
        for n in [1, 2, 0] {
            let each = three(1, [&[m, n, k], &[n, o, k], &[n, o]]);
            let (y, gradients) =
                sum_and_gradients(&each, |t| wave_ops::linear_each(&t[0], &t[1], &t[2]));
            assert_eq!(y.dims(), [m, n, o]);
            assert_eq!(flat(&y), flat(&each[2]).repeat(m));
            let expected = [(m * n * k, 0), (n * o * k, 0), (n * o, m)];
            let expected = expected.map(|(count, value)| vec![value as f64; count]);
            assert_eq!(gradients, expected);
        }
        let one = three(1, [&[m, 1, k], &[o, k], &[o]]);
        let (y, gradients) = sum_and_gradients(&one, |t| wave_ops::linear(&t[0], &t[1], &t[2]));
        assert_eq!(y.dims(), [m, 1, o]);
        assert_eq!(flat(&y), flat(&one[2]).repeat(m));
        assert_eq!(gradients[0], vec![0.0; m * k]);
        assert_eq!(gradients[1], vec![0.0; o * k]);
        assert_eq!(gradients[2], vec![m as f64; o]);
        let [x, w, bias] = one.each_ref().map(|t| t.to_dtype(DType::F64).unwrap());
        assert_eq!(flat(&stock::linear(&x, &w, &bias).unwrap()), flat(&y));
    }
}

/// No templates, templates without values, scalers of no rows, and no layers.
#[test]
fn empty_kronecker_sums_are_zero() {
    for [l, n, r, c, t] in [
        [2, 0, 1, 3, 4],
        [2, 3, 1, 3, 0],
        [2, 3, 0, 3, 4],
        [0, 3, 1, 3, 4],
    ] {
        for order in [Kronecker::Tile, Kronecker::Interleave] {
            let inputs = [normal(1, &[n, t, t]), normal(2, &[l, n, r, c])];
            let (w, gradients) =
                sum_and_gradients(&inputs, |x| wave_ops::kronecker_sum(&x[0], &x[1], order));
            assert_eq!(w.dims(), [l, r * t, c * t]);
            assert_eq!(flat(&w), vec![0.0; l * r * t * c * t]);
            let expected = [n * t * t, l * n * r * c].map(|count| vec![0.0; count]);
            assert_eq!(gradients, expected);
        }
    }
}

/// An MLP without hidden channels adds its last bias, like one whose last weights are zero.
#[test]
fn blocks_without_hidden_channels_pass_gradients_on() {
    let run = |hidden| {
        let shape = shape(1, 8, 2, hidden);
        let mut inputs = block_inputs(2, 3, shape, 7);
        inputs[11] = inputs[11].zeros_like().unwrap(); // the second layer's weights
        output_and_gradients(DType::F32, &inputs, |t| {
            wave_ops::blocks(Precision::F32, &t[0], &slabs(t), shape, None)
        })
    };
    let (none, zeros) = (run(0), run(1));
    for i in (0..=9).chain([13]) {
        assert_eq!(none[i], zeros[i], "output or gradient {i}");
    }
    assert!(none[10..13].iter().all(Vec::is_empty));
}

#[test]
fn images_without_channels_have_patches_without_values() {
    let patches = wave_ops::patchify(&normal(1, &[2, 0, 8, 8]), 4).unwrap();
    assert_eq!(patches.dims(), [2, 4, 0]);
}

#[test]
fn inputs_without_tokens_or_channels_are_refused() {
    let t = |shape: &[usize]| normal(0, shape);
    for (patches, weight, table) in [
        ([2, 3, 0], [4, 0], [3, 4]),
        ([2, 0, 5], [4, 5], [3, 4]),
        ([2, 3, 5], [0, 5], [3, 0]),
    ] {
        let (patches, weight, table) = (t(&patches), t(&weight), t(&table));
        assert!(wave_ops::embed(Precision::F32, &patches, &weight, &table).is_err());
    }
    for (n, width) in [(0, 8), (3, 0)] {
        let shape = shape(1, width, 2, 16);
        let inputs = block_inputs(2, n, shape, 0);
        let found = wave_ops::blocks(Precision::F32, &inputs[0], &slabs(&inputs), shape, None);
        assert!(found.is_err());
    }
}
