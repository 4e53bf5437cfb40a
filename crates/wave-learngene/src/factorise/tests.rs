use super::*;
use crate::compose;
use crate::testing::{block, flat, normal, plan, rng, scalers, templates};
use proptest::prelude::*;

fn distance(a: &BTreeMap<Part, Tensor>, b: &BTreeMap<Part, Tensor>) -> f64 {
    let square = |x: f64| x * x;
    let (mut apart, mut size) = (0.0, 0.0);
    for (part, a) in a {
        for (x, y) in flat(a).iter().zip(flat(&b[part])) {
            apart += square(x - y);
            size += square(*x);
        }
    }
    (apart / size).sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn weights_that_templates_composed_come_back(
        seed in any::<u64>(),
        t in prop::sample::select(vec![2usize, 4]),
        depth in 1usize..5,
        interleave in any::<bool>(),
    ) {
        let order = if interleave { Kronecker::Interleave } else { Kronecker::Tile };
        let (plan, shape) = (plan(t, order, [3, 2, 3, 2]), block(8, 16));
        let mut rng = rng(seed);
        let (templates, scalers) = (
            templates(&mut rng, &plan),
            scalers(&mut rng, &plan, &shape, depth),
        );
        let weights = compose(&plan, &templates, &scalers, &shape).unwrap();
        let found = factorise(&plan, &weights, &shape).unwrap();
        let again = compose(&plan, &found.templates, &found.scalers, &shape).unwrap();
        prop_assert!(distance(&weights, &again) < 1e-5);
        prop_assert!(found.energy.values().all(|e| *e > 1.0 - 1e-9));
    }
}

#[test]
fn what_is_lost_is_what_the_energy_says_and_more_templates_lose_less() {
    let shape = block(12, 24);
    let mut rng = rng(5);
    let weights: BTreeMap<Part, Tensor> = Part::ALL
        .map(|part| {
            let (rows, cols) = part.rows_cols(&shape);
            (part, normal(&mut rng, (3, rows, cols)))
        })
        .into();
    let mut last = f64::INFINITY;
    for n in [1, 2, 5, 9, 40] {
        let sets = Part::ALL.map(|part| (part, "all".to_owned())).into();
        let plan = Plan::new(3, Kronecker::Tile, sets, [("all".to_owned(), n)].into()).unwrap();
        let found = factorise(&plan, &weights, &shape).unwrap();
        let again = compose(&plan, &found.templates, &found.scalers, &shape).unwrap();
        let lost = distance(&weights, &again);
        let said = (1.0 - found.energy["all"]).max(0.0).sqrt();
        assert!((lost - said).abs() < 1e-5, "{n}: {lost} {said}");
        assert!(lost <= last);
        last = lost;
    }
    assert!(last < 1e-5, "9 dimensions need no more than 9 templates");
}

#[test]
fn sides_that_the_size_does_not_divide_are_filled_up() {
    let (plan, shape) = (plan(4, Kronecker::Tile, [40, 20, 40, 40]), block(6, 10));
    let mut rng = rng(1);
    let weights: BTreeMap<Part, Tensor> = Part::ALL
        .map(|part| {
            let (rows, cols) = part.rows_cols(&shape);
            (part, normal(&mut rng, (2, rows, cols)))
        })
        .into();
    let found = factorise(&plan, &weights, &shape).unwrap();
    let again = compose(&plan, &found.templates, &found.scalers, &shape).unwrap();
    assert!(distance(&weights, &again) < 1e-5);
}

#[test]
fn misshaped_weights_are_named() {
    let (plan, shape) = (plan(2, Kronecker::Tile, [1, 1, 1, 1]), block(4, 8));
    let weights = BTreeMap::from([(Part::Fc1, normal(&mut rng(0), (1, 3, 4)))]);
    let error = factorise(&plan, &weights, &shape).unwrap_err().to_string();
    assert!(
        error.contains("fc1") && error.contains("[1, 3, 4]"),
        "{error}"
    );
}
