use super::*;
use crate::Choices;
use crate::testing::{
    assert_close, assert_same, changed, check_refused, donor, fresh, logits, matrix, shape,
    try_start, values,
};

#[test]
fn algorithm_1_is_an_identity_or_a_hadamard_matrix() {
    let wide = matrix(&[&[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]]);
    assert_same("2 x 3", &algorithm_1(2, 3).unwrap(), &wide);
    assert_same("1 x 1", &algorithm_1(1, 1).unwrap(), &matrix(&[&[1.0]]));
    // >>> scipy.linalg.hadamard(4)[:3, :2] / 2
    let tall = matrix(&[&[0.5, 0.5], &[0.5, -0.5], &[0.5, 0.5]]);
    assert_same("3 x 2", &algorithm_1(3, 2).unwrap(), &tall);
    // >>> (scipy.linalg.hadamard(32)[:24, :6] / 2 ** 2.5)[21]
    let c = 0.5f32.powf(2.5);
    let row = algorithm_1(24, 6).unwrap().get(21).unwrap();
    assert_eq!(values(&row), [c, -c, c, -c, -c, c]);
}

#[test]
fn columns_are_orthonormal_where_rows_are_a_power_of_two() {
    let w = algorithm_1(64, 16).unwrap();
    let gram = w.t().unwrap().matmul(&w).unwrap();
    let eye = algorithm_1(16, 16).unwrap();
    assert_close(&values(&gram), &values(&eye), 1e-6);
}

#[test]
fn queries_are_zero_keys_the_identity_and_no_product_is_left() {
    check_refused("mlp".parse::<ZeroScope>(), "query-key, attention, blocks");
    let (target, d) = (shape(2, 16), 16);
    for scope in [ZeroScope::QueryKey, ZeroScope::Attention, ZeroScope::Blocks] {
        let choices = changed(Choices::default(), |c| c.zero = scope);
        let start = try_start("zero", &target, &[], &choices).unwrap().weights;
        let qkv = &start["blocks.1.attn.qkv.weight"];
        let part = |i: usize| qkv.narrow(0, i * d, d).unwrap();
        assert!(values(&part(0)).iter().all(|v| *v == 0.0));
        assert_same("K", &part(1), &algorithm_1(d, d).unwrap());
        let product = part(0).t().unwrap().matmul(&part(1)).unwrap();
        assert!(values(&product).iter().all(|v| *v == 0.0));
        let others = fresh(&target);
        let (fc1, proj) = ("blocks.1.mlp.fc1.weight", "blocks.1.attn.proj.weight");
        match scope {
            ZeroScope::Blocks => assert_same("fc1", &start[fc1], &algorithm_1(64, d).unwrap()),
            _ => assert_same("fc1", &start[fc1], &others[fc1]),
        }
        match scope {
            ZeroScope::QueryKey => assert_same("proj", &start[proj], &others[proj]),
            _ => assert!(values(&start[proj]).iter().all(|v| *v == 0.0)),
        }
    }
}

#[test]
fn every_block_starts_as_the_identity() {
    let choices = changed(Choices::default(), |c| c.zero = ZeroScope::Blocks);
    let made = |depth| {
        let start = try_start("zero", &shape(depth, 16), &[], &choices);
        logits(&shape(depth, 16), &start.unwrap().weights)
    };
    let (deep, shallow) = (made(6), made(1));
    assert_eq!(deep, shallow);
    assert!(deep.iter().any(|z| *z != 0.0));
    // This does not hold for other weights.
    let (a, b) = (shape(6, 16), shape(1, 16));
    let other = donor(a.clone(), 0);
    let first = wave_models::vit::first_blocks(&other.weights, 1);
    assert_ne!(logits(&a, &other.weights), logits(&b, &first));
}
