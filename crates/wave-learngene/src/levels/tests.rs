use crate::testing::*;
use crate::{Growth, Learngene, Level, PlanError};
use candle_core::Tensor;
use std::collections::BTreeMap;
use wave_models::Weights;
use wave_models::vit;

/// All weights of a model, flat.
fn weights(gene: &Learngene, depth: usize, width: usize) -> Vec<f64> {
    let shape = gene.shape(depth, width, None).unwrap();
    let weights = gene.weights(&shape).unwrap();
    weights.values().flat_map(flat).collect()
}

fn logits(gene: &Learngene, depth: usize, width: usize) -> Vec<f64> {
    let shape = gene.shape(depth, width, None).unwrap();
    let weights = gene.stacked_weights(&shape).unwrap();
    let images = normal(&mut rng(2), (3, 3, 16, 16));
    flat(&vit::logits(&shape, &weights, &images, None).unwrap())
}

/// The level up to a size, with so many times the templates of a learngene.
fn level(gene: &Learngene, depth: usize, width: usize, times: usize) -> Level {
    let counts = gene.plan.counts.iter();
    Level {
        depth,
        width,
        counts: counts.map(|(set, n)| (set.clone(), n * times)).collect(),
    }
}

/// A learngene whose models up to a size are its first level.
fn small(kronecker: Kronecker, depth: usize, width: usize) -> Learngene {
    let mut gene = learngene(kronecker);
    let first = level(&gene, depth, width, 1);
    gene.plan = gene.plan.with_levels(vec![first]).unwrap();
    gene
}

/// New templates of each set, as many as the level has.
fn drawn(gene: &Learngene, level: &Level) -> BTreeMap<String, Tensor> {
    let t = gene.plan.template_size;
    let rng = &mut rng(7);
    let sets = level.counts.iter();
    sets.map(|(set, n)| (set.clone(), normal(rng, (*n, t, t))))
        .collect()
}

/// Additions as some training may leave them.
fn trained(start: &Learngene) -> Learngene {
    let rng = &mut rng(9);
    let moved = start.tensors().into_iter().map(|(name, t)| {
        let noise = normal(rng, t.shape().clone());
        (name, (t + noise).unwrap())
    });
    start.with_tensors(&moved.collect::<Weights>())
}

#[test]
fn no_smaller_model_changes_whatever_a_level_trains() {
    for kronecker in [Kronecker::Tile, Kronecker::Interleave] {
        let gene = small(kronecker, 2, 32);
        let wider = level(&gene, 4, 48, 2);
        let growth = Growth::new(&gene, wider.clone()).unwrap();
        let additions = trained(&growth.additions(&drawn(&gene, &wider)).unwrap());
        let grown = growth.values(&additions).unwrap();
        assert_eq!(grown.plan.levels.len(), 2);

        // A third level leaves both as they are.
        let widest = Level {
            width: 64,
            ..level(&gene, 6, 64, 3)
        };
        let growth = Growth::new(&grown, widest.clone()).unwrap();
        let additions = trained(&growth.additions(&drawn(&gene, &widest)).unwrap());
        let whole = growth.values(&additions).unwrap();
        for (depth, width) in [(1, 16), (1, 32), (2, 16), (2, 32)] {
            assert_eq!(weights(&whole, depth, width), weights(&gene, depth, width));
        }
        for (depth, width) in [(3, 32), (4, 16), (1, 48), (4, 48)] {
            assert_eq!(weights(&whole, depth, width), weights(&grown, depth, width));
            assert_ne!(weights(&whole, depth, width), weights(&gene, depth, width));
        }
        for (depth, width) in [(5, 16), (6, 64), (1, 64)] {
            assert_ne!(weights(&whole, depth, width), weights(&grown, depth, width));
        }
    }
}

#[test]
fn every_free_value_is_read_by_a_model_of_the_level() {
    let gene = small(Kronecker::Tile, 2, 32);
    let wider = level(&gene, 6, 64, 2);
    let growth = Growth::new(&gene, wider.clone()).unwrap();
    let start = trained(&growth.additions(&drawn(&gene, &wider)).unwrap());
    for (name, t) in start.tensors() {
        let var = candle_core::Var::from_tensor(&t).unwrap();
        let with = [(name.clone(), var.as_tensor().clone())].into();
        let grown = growth.values(&start.with_tensors(&with)).unwrap();
        // Every anchor is read at one of these depths.
        let mut sum: Option<Tensor> = None;
        for depth in 2..=6 {
            let shape = grown.shape(depth, 64, None).unwrap();
            for (_, w) in grown.stacked_weights(&shape).unwrap() {
                let some = w.sqr().unwrap().sum_all().unwrap();
                sum = Some(match sum {
                    None => some,
                    Some(sum) => (sum + some).unwrap(),
                });
            }
        }
        let gradients = sum.unwrap().backward().unwrap();
        let gradient = gradients.get(&var).map(flat).unwrap_or_default();
        let free = flat(&growth.free[&name]);
        for (at, free) in free.iter().enumerate() {
            let moves = gradient.get(at).is_some_and(|g| *g != 0.0);
            assert_eq!(moves, *free == 1.0, "{name} at {at}");
        }
    }
}

#[test]
fn a_larger_model_begins_as_the_largest_smaller_one() {
    let gene = small(Kronecker::Tile, 2, 32);
    let wider = level(&gene, 2, 64, 2);
    let growth = Growth::new(&gene, wider.clone()).unwrap();
    let grown = growth.values(&growth.additions(&drawn(&gene, &wider)).unwrap());
    // Twice as wide, each channel is there twice: the same network.
    assert_close(&logits(&grown.unwrap(), 2, 64), &logits(&gene, 2, 32), 1e-4);

    // Deeper too: the layers between do nothing.
    let deeper = level(&gene, 5, 64, 2);
    let growth = Growth::new(&gene, deeper.clone()).unwrap();
    let grown = growth
        .values(&growth.additions(&drawn(&gene, &deeper)).unwrap())
        .unwrap();
    for (depth, width) in [(3, 32), (4, 64), (5, 32), (5, 64)] {
        assert_close(&logits(&grown, depth, width), &logits(&gene, 2, 32), 1e-4);
    }
    // But for that, they lie between their neighbours.
    let shape = |depth| grown.shape(depth, 32, None).unwrap();
    let (two, five) = (
        gene.weights(&shape(2)).unwrap(),
        grown.weights(&shape(5)).unwrap(),
    );
    for part in [crate::Part::Qkv, crate::Part::Fc1] {
        let of = |weights: &Weights, layer| flat(&weights[&part.weight_name(layer)]);
        let (first, last) = (of(&two, 0), of(&two, 1));
        let middle: Vec<f64> = first
            .iter()
            .zip(&last)
            .map(|(a, b)| 0.5 * (a + b))
            .collect();
        assert_close(&of(&five, 2), &middle, 1e-4);
    }
}

#[test]
fn levels_that_do_not_contain_each_other_are_refused() {
    let gene = learngene(Kronecker::Tile);
    let of = |depth, width, times| level(&gene, depth, width, times);
    let plan = |levels| gene.plan.clone().with_levels(levels);
    for wrong in [
        vec![of(2, 32, 1), of(1, 64, 1)],
        vec![of(2, 32, 1), of(4, 16, 1)],
        vec![of(2, 32, 2), of(4, 64, 1)],
        vec![of(2, 32, 1), of(4, 64, 2)], // more than there are
        vec![of(0, 32, 1)],
    ] {
        assert!(matches!(plan(wrong), Err(PlanError::Levels)));
    }
    let right = plan(vec![of(2, 32, 1), of(4, 64, 1)]).unwrap();
    let found = |depth, width| right.level(depth, width).map(|l| l.depth);
    assert_eq!([found(1, 16), found(2, 32)], [Some(2), Some(2)]);
    assert_eq!([found(3, 16), found(9, 99)], [Some(4), Some(4)]);
    assert!(Growth::new(&gene, of(4, 64, 1)).is_err());
}
