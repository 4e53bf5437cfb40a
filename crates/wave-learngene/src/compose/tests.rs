use super::*;
use crate::testing::*;
use candle_core::{DType, Device, Var};
use proptest::prelude::*;

const ORDERS: [Kronecker; 2] = [Kronecker::Tile, Kronecker::Interleave];

// >>> s, t = [[1, 2], [3, 4]], [[0, 5], [6, 7]]
// >>> np.kron(s, t).tolist()
// [[0, 5, 0, 10], [6, 7, 12, 14], [0, 15, 0, 20], [18, 21, 24, 28]]
// >>> np.kron(t, s).tolist()
// [[0, 0, 5, 10], [0, 0, 15, 20], [6, 12, 7, 14], [18, 24, 21, 28]]
#[test]
fn two_by_two_is_numpys_kron() {
    let s = Tensor::new(&[[[[1f32, 2.], [3., 4.]]]], &Device::Cpu).unwrap();
    let t = Tensor::new(&[[[0f32, 5.], [6., 7.]]], &Device::Cpu).unwrap();
    let tiled = kronecker_sum(&t, &s, Kronecker::Tile).unwrap();
    assert_eq!(
        tiled.to_vec3::<f32>().unwrap(),
        [[
            [0., 5., 0., 10.],
            [6., 7., 12., 14.],
            [0., 15., 0., 20.],
            [18., 21., 24., 28.]
        ]]
    );
    let interleaved = kronecker_sum(&t, &s, Kronecker::Interleave).unwrap();
    assert_eq!(
        interleaved.to_vec3::<f32>().unwrap(),
        [[
            [0., 0., 5., 10.],
            [0., 0., 15., 20.],
            [6., 12., 7., 14.],
            [18., 24., 21., 28.]
        ]]
    );
}

#[test]
fn parts_may_share_a_set() {
    let rng = &mut rng(2);
    let mut sets = Plan::own_sets();
    sets.insert(Part::Fc1, "mlp".to_owned());
    sets.insert(Part::Fc2, "mlp".to_owned());
    let counts = [("qkv", 6), ("proj", 2), ("mlp", 16)].map(|(s, n)| (s.to_owned(), n));
    let plan = Plan::new(4, Kronecker::Tile, sets, counts.into()).unwrap();
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
    for (order, (t, shape)) in ORDERS
        .into_iter()
        .flat_map(|o| sizes.clone().map(|s| (o, s)))
    {
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
fn gradients_of_both_inputs_match_finite_differences() {
    for order in ORDERS {
        let rng = &mut rng(5);
        let double = |x: Tensor| x.to_dtype(DType::F64).unwrap();
        let t = Var::from_tensor(&double(normal(rng, (3, 2, 2)))).unwrap();
        let s = Var::from_tensor(&double(normal(rng, (2, 3, 3, 2)))).unwrap();
        let g = double(normal(rng, (2, 6, 4)));
        // Squared, so that the gradient depends on the values of both.
        let loss = |t: &Tensor, s: &Tensor| {
            let w = kronecker_sum(t, s, order).unwrap();
            (w.sqr().unwrap() * &g).unwrap().sum_all().unwrap()
        };
        let grads = loss(&t, &s).backward().unwrap();
        check_gradient(&t, &flat(grads.get(&t).unwrap()), |t| loss(t, &s));
        check_gradient(&s, &flat(grads.get(&s).unwrap()), |s| loss(&t, s));
    }
}

fn check_gradient(x: &Tensor, gradient: &[f64], loss: impl Fn(&Tensor) -> Tensor) {
    let (values, h) = (flat(x), 1e-5);
    let at = |i: usize, step: f64| {
        let mut moved = values.clone();
        moved[i] += step;
        let moved = Tensor::from_vec(moved, x.shape(), &Device::Cpu).unwrap();
        loss(&moved).to_scalar::<f64>().unwrap()
    };
    let numeric: Vec<f64> = (0..values.len())
        .map(|i| (at(i, h) - at(i, -h)) / (2.0 * h))
        .collect();
    assert_close(gradient, &numeric, 1e-6);
}

#[test]
fn cropped_composition_passes_gradients_to_every_template_and_scaler() {
    let rng = &mut rng(6);
    let plan = plan(4, Kronecker::Tile, [2, 2, 2, 2]);
    let shape = block(6, 10);
    let variable = |x: &Tensor| Var::from_tensor(x).unwrap();
    let t: BTreeMap<_, _> = templates(rng, &plan);
    let t: BTreeMap<_, _> = t.iter().map(|(k, x)| (k.clone(), variable(x))).collect();
    let s = scalers(rng, &plan, &shape, 2);
    let s: BTreeMap<_, _> = s.iter().map(|(&k, x)| (k, variable(x))).collect();
    let weights = compose(
        &plan,
        &t.iter()
            .map(|(k, x)| (k.clone(), x.as_tensor().clone()))
            .collect(),
        &s.iter().map(|(&k, x)| (k, x.as_tensor().clone())).collect(),
        &shape,
    )
    .unwrap();
    let losses: Vec<Tensor> = weights
        .values()
        .map(|w| w.sqr().unwrap().sum_all().unwrap())
        .collect();
    let loss = Tensor::stack(&losses, 0).unwrap().sum_all().unwrap();
    let grads = loss.backward().unwrap();
    for x in t.values().chain(s.values()) {
        let gradient = flat(grads.get(x).unwrap());
        assert!(gradient.iter().all(|&g| g.is_finite() && g != 0.0));
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let rng = &mut rng(8);
    let plan = plan(4, Kronecker::Tile, [2, 2, 2, 2]);
    let shape = block(8, 16);
    let (t, s) = (templates(rng, &plan), scalers(rng, &plan, &shape, 2));
    let check = |t: &Templates, s: &Scalers, shape: &VitShape, words: &[&str]| {
        let text = compose(&plan, t, s, shape).unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "{text:?} lacks {word:?}");
        }
    };

    let mut lacking = t.clone();
    lacking.remove("fc1");
    check(&lacking, &s, &shape, &["fc1", "missing"]);
    let mut wrong = t.clone();
    wrong.insert("proj".to_owned(), normal(rng, (3, 4, 4)));
    check(&wrong, &s, &shape, &["proj", "[3, 4, 4]", "[2, 4, 4]"]);

    let mut lacking = s.clone();
    lacking.remove(&Part::Fc2);
    check(&t, &lacking, &shape, &["fc2", "scalers are missing"]);
    check(
        &t,
        &s,
        &block(12, 16),
        &["qkv", "[2, 2, 6, 2]", "width 12", "9, 3]"],
    );
    check(&t, &s, &block(0, 16), &["width 0"]);
    let mut shallow = s.clone();
    shallow.insert(Part::Fc1, s[&Part::Fc1].narrow(0, 0, 1).unwrap());
    check(&t, &shallow, &shape, &["fc1", "1 layers", "have 2"]);

    let (three, four) = (normal(rng, (3, 2, 2)), normal(rng, (1, 4, 1, 1)));
    let error = kronecker_sum(&three, &four, Kronecker::Tile).unwrap_err();
    assert!(error.to_string().contains("(layers, N, r, c)"), "{error}");
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
        prop_assert_eq!(n, plan.scaler_count(&shape, depth));
        let weights = compose(&plan, &templates, &scalers, &shape).unwrap();
        for part in Part::ALL {
            let (rows, cols) = part.rows_cols(&shape);
            prop_assert_eq!(weights[&part].dims(), [depth, rows, cols]);
        }
    }

    #[test]
    fn kronecker_sum_is_the_plain_sum_at_any_size(
        l in 1usize..4, n in 1usize..5, t in 1usize..5, r in 1usize..4, c in 1usize..4,
        interleave: bool,
    ) {
        let rng = &mut rng(10);
        let order = ORDERS[usize::from(interleave)];
        let (templates, scalers) = (normal(rng, (n, t, t)), normal(rng, (l, n, r, c)));
        let w = kronecker_sum(&templates, &scalers, order).unwrap();
        prop_assert_eq!(w.dims(), [l, r * t, c * t]);
        for layer in 0..l {
            let expected = plain_kronecker_sum(&templates, &scalers, layer, order);
            assert_close(&flat(&w.get(layer).unwrap()), &expected, 1e-5);
        }
    }
}
