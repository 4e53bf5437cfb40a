use super::*;
use crate::testing::*;
use candle_core::Var;
use proptest::prelude::*;

const ORDERS: [Kronecker; 2] = [Kronecker::Tile, Kronecker::Interleave];

#[test]
fn parts_may_share_a_set() {
    let rng = &mut rng(2);
    let plan = shared_plan(4, &MLP, [("qkv", 6), ("proj", 2), ("mlp", 16)]);
    let shape = block(4, 16);
    let (t, s) = (templates(rng, &plan), scalers(rng, &plan, &shape, 2));
    let weights = compose(&plan, &t, &s, &shape).unwrap();
    for part in [Part::Fc1, Part::Fc2] {
        let expected = plain_kronecker_sum(&t["mlp"], &s[&part], 1, Kronecker::Tile);
        assert_close(&flat(&weights[&part].get(1).unwrap()), &expected, 1e-5);
    }
}

#[test]
fn every_part_is_the_plain_sum_cropped_from_the_next_multiple() {
    let sizes = [(3, block(6, 12)), (4, block(6, 10))];
    let cases = ORDERS.map(|order| sizes.clone().map(|size| (order, size)));
    for (order, (t, shape)) in cases.concat() {
        let rng = &mut rng(3);
        let plan = plan(t, order, [3, 2, 4, 5]);
        let (t, s) = (templates(rng, &plan), scalers(rng, &plan, &shape, 2));
        let weights = compose(&plan, &t, &s, &shape).unwrap();
        for part in Part::ALL {
            let (q, r, c) = plan.blocks(part, &shape);
            let (rows, cols) = part.rows_cols(&shape);
            let (tall, wide) = (r * plan.template_size / q, c * plan.template_size);
            let whole = plain_kronecker_sum(&t[part.name()], &s[&part], 1, order);
            // q, k and v each keep their own first rows.
            let mut expected = Vec::new();
            for segment in 0..q {
                for row in 0..rows / q {
                    let start = (segment * tall + row) * wide;
                    expected.extend_from_slice(&whole[start..start + cols]);
                }
            }
            assert!(weights[&part].is_contiguous());
            assert_close(&flat(&weights[&part].get(1).unwrap()), &expected, 1e-5);
        }
    }
}

#[test]
fn cropped_composition_passes_gradients_to_every_template_and_scaler() {
    let rng = &mut rng(6);
    let plan = plan(4, Kronecker::Tile, [2, 2, 2, 2]);
    let shape = block(6, 10);
    let (mut t, mut s) = (templates(rng, &plan), scalers(rng, &plan, &shape, 2));
    for x in t.values_mut().chain(s.values_mut()) {
        *x = Var::from_tensor(x).unwrap().into_inner();
    }
    let weights = compose(&plan, &t, &s, &shape).unwrap();
    let losses = weights.values().map(|w| w.sqr().unwrap().sum_all());
    let loss = losses.reduce(|a, b| a.unwrap() + b.unwrap()).unwrap();
    let grads = loss.unwrap().backward().unwrap();
    for x in t.values().chain(s.values()) {
        let gradient = flat(grads.get(x).unwrap());
        assert!(gradient.iter().all(|&g| g.is_finite() && g != 0.0));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let rng = &mut rng(8);
    let plan = plan(4, Kronecker::Tile, [2, 2, 2, 2]);
    let shape = block(8, 16);
    let (t, s) = (templates(rng, &plan), scalers(rng, &plan, &shape, 2));
    let mut more = t.clone();
    more.insert("proj".to_owned(), normal(rng, (3, 4, 4)));
    assert!(compose(&plan, &more, &s, &shape).is_err());
    assert!(compose(&plan, &t, &s, &block(12, 16)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn composed_weights_have_the_shapes_of_the_block(
        t in 1usize..6, width in 1usize..14, hidden in 1usize..20, depth in 1usize..4,
        interleave: bool,
    ) {
        let rng = &mut rng(9);
        let plan = plan(t, ORDERS[usize::from(interleave)], [2, 1, 3, 2]);
        let shape = block(width, hidden);
        let (templates, scalers) = (templates(rng, &plan), scalers(rng, &plan, &shape, depth));
        let n: usize = scalers.values().map(Tensor::elem_count).sum();
        prop_assert_eq!(n, plan.scaler_count(&VitShape { depth, ..shape.clone() }));
        let weights = compose(&plan, &templates, &scalers, &shape).unwrap();
        for part in Part::ALL {
            let (rows, cols) = part.rows_cols(&shape);
            prop_assert_eq!(weights[&part].dims(), [depth, rows, cols]);
        }
    }
}
