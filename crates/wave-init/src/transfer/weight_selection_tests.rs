use super::*;
use crate::testing::{assert_same, donor, fresh, shape, start, values};

/// Element by element: `target[i, j] = source[rows[i], cols[j]]`.
fn picked(source: &Tensor, rows: &[usize], cols: &[usize]) -> Vec<f32> {
    let source: Vec<Vec<f32>> = source.to_vec2().unwrap();
    let row = |i: &usize| cols.iter().map(|j| source[*i][*j]).collect::<Vec<_>>();
    rows.iter().flat_map(row).collect()
}

#[test]
fn every_second_element_of_a_donor_twice_as_wide() {
    let (target, donors) = (shape(2, 16), [donor(shape(4, 32), 1)]);
    let start = start("weight-selection", &target, &donors).weights;
    let of = &donors[0].weights;
    let even = |n: usize| (0..n).map(|i| 2 * i).collect::<Vec<_>>();
    for (part, rows, cols) in [
        ("attn.qkv", 48, 16),
        ("attn.proj", 16, 16),
        ("mlp.fc1", 64, 16),
        ("mlp.fc2", 16, 64),
    ] {
        let name = format!("blocks.1.{part}.weight");
        let expected = picked(&of[&name], &even(rows), &even(cols));
        assert_eq!(values(&start[&name]), expected, "{name}");
    }
    let bias = values(&of["blocks.0.norm1.bias"]);
    let expected: Vec<f32> = bias.into_iter().step_by(2).collect();
    assert_eq!(values(&start["blocks.0.norm1.bias"]), expected);
    // The classifier is freshly initialised.
    let fresh = fresh(&target);
    assert_same("head", &start["head.weight"], &fresh["head.weight"]);
    let positions = values(&of["pos_embed"]).into_iter().step_by(2);
    assert_eq!(values(&start["pos_embed"]), positions.collect::<Vec<_>>());
}

#[test]
fn widths_that_do_not_divide_are_spread_from_end_to_end() {
    let (target, donors) = (shape(1, 16), [donor(shape(1, 24), 1)]);
    let of = &donors[0].weights["blocks.0.attn.qkv.weight"];
    // >>> np.linspace(0, 71, 48).round(), np.linspace(0, 23, 16).round()
    let (rows, cols) = (uniform(72, 48), uniform(24, 16));
    assert_eq!(rows[..4], [0, 2, 3, 5]);
    assert_eq!((rows[47], cols[1], cols[15]), (71, 2, 23));
    let start = start("weight-selection", &target, &donors);
    let found = values(&start.weights["blocks.0.attn.qkv.weight"]);
    assert_eq!(found, picked(of, &rows, &cols));
}
