use super::copies;
use crate::bank::depth_matrix;
use crate::testing::*;
use crate::{DepthRule, Learngene, Level};
use candle_core::Tensor;
use std::collections::BTreeMap;
use wave_models::Weights;

/// All weights of a model, flat.
fn weights(gene: &Learngene, depth: usize, width: usize) -> Vec<f64> {
    let shape = gene.shape(depth, width, None).unwrap();
    let weights = gene.weights(&shape).unwrap();
    weights.values().flat_map(flat).collect()
}

/// The level up to a size, with `times` as many templates as a learngene.
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

/// The learngene as if after some training.
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
        let grown = trained(&gene.grown(wider.clone(), &drawn(&gene, &wider)).unwrap());
        assert_eq!(grown.plan.levels.len(), 2);

        // A third level does not change the first two.
        let widest = Level {
            width: 64,
            ..level(&gene, 6, 64, 3)
        };
        let whole = trained(&grown.grown(widest.clone(), &drawn(&gene, &widest)).unwrap());
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
        // Each level's values are counted, without channels that its models do not have.
        let of = |gene: &Learngene| gene.ledger().map(|(_, n)| n);
        let [templates, scalers, inherited] = of(&whole);
        let of_template = whole.plan.template_size.pow(2);
        assert_eq!(templates, of_template * (1 + 2 + 3) * 14);
        assert!(scalers > of(&grown)[1] && inherited > of(&grown)[2]);
        assert_eq!(whole.smaller[0].auxiliary.width, 32);
    }
}

#[test]
fn a_delta_changes_all_levels() {
    let gene = small(Kronecker::Tile, 2, 32);
    let wider = level(&gene, 4, 64, 2);
    let grown = trained(&gene.grown(wider.clone(), &drawn(&gene, &wider)).unwrap());
    let mut normal_ = || 0.5;
    let delta = grown.no_delta(2, 5, 2, &mut normal_, |_| true).unwrap();
    let rng = &mut rng(4);
    let delta: Weights = delta
        .into_iter()
        .map(|(name, t)| (name, normal(rng, t.shape().clone())))
        .collect();
    let adapted = grown.with_delta(&delta).unwrap();
    // A model of the smaller level takes its part of the same differences, as if the level stood alone.
    let cut = delta.iter().map(|(name, t)| {
        let set = name.strip_prefix("templates.");
        let set = set.map(|set| set.split('.').next().unwrap());
        let t = match set {
            Some(set) => t.narrow(0, 0, gene.plan.counts[set]).unwrap(),
            None => match name.strip_prefix("bank.") {
                Some(_) => t.narrow(1, 0, t.dim(1).unwrap() / 2).unwrap(),
                None => t.clone(),
            },
        };
        (name.clone(), t)
    });
    let alone = gene.with_delta(&cut.collect()).unwrap();
    for (depth, width) in [(1, 16), (2, 32)] {
        let found = weights(&adapted, depth, width);
        assert_eq!(found, weights(&alone, depth, width));
    }
    let shape = adapted.shape(2, 32, None).unwrap();
    assert_eq!(shape.classes, 5);
    assert_ne!(weights(&adapted, 4, 64), weights(&grown, 4, 64));
}

#[test]
fn a_larger_model_begins_as_the_largest_smaller_one() {
    let gene = small(Kronecker::Tile, 2, 32);
    let wider = level(&gene, 2, 64, 2);
    let grown = gene.grown(wider.clone(), &drawn(&gene, &wider)).unwrap();
    // Twice as wide, with each channel duplicated: the same function.
    let first = flat(&logits(&gene, 2, 32));
    assert_close(&flat(&logits(&grown, 2, 64)), &first, 1e-4);

    // Deeper as well: the layers in between do nothing, since the first and the last have their own anchors.
    let deeper = level(&gene, 5, 64, 2);
    let grown = gene.grown(deeper.clone(), &drawn(&gene, &deeper)).unwrap();
    for (depth, width) in [(3, 32), (4, 64), (5, 32), (5, 64)] {
        assert_close(&flat(&logits(&grown, depth, width)), &first, 1e-4);
    }
}

// >>> the 4-layer model reads anchors 3 and 4, 7 and 8 of 12: both inner layers are the middle one of three, each with
// half of its branches
#[test]
fn copies_share_the_branches_of_a_layer() {
    let rule = DepthRule::LastIsOne;
    let found = copies(&depth_matrix(3, 12, rule), 4..=4, rule);
    assert_eq!(found.0, [0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2]);
    let read = |depth: usize, layer: usize, (nearest, shares): &(Vec<usize>, Vec<f32>)| -> f32 {
        let rows = depth_matrix(depth, 12, rule).into_iter();
        let all = rows.flat_map(|row| row.into_iter().enumerate());
        let of_layer = all.filter(|(k, _)| nearest[*k] == layer);
        of_layer.map(|(k, w)| w * shares[k]).sum()
    };
    for layer in 0..3 {
        assert!((read(4, layer, &found) - 1.0).abs() < 1e-6);
    }
    // On average over depths 5 to 12; every layer is always read.
    let found = copies(&depth_matrix(4, 12, rule), 5..=12, rule);
    for layer in 0..4 {
        let all: Vec<f32> = (5..=12).map(|depth| read(depth, layer, &found)).collect();
        let mean = all.iter().sum::<f32>() / 8.0;
        assert!((mean - 1.0).abs() < 1e-6, "{all:?}");
        assert!(all.iter().all(|sum| (0.3..1.5).contains(sum)), "{all:?}");
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
        let refused = plan(wrong).unwrap_err().to_string();
        assert!(refused.starts_with("levels: "), "{refused}");
    }
    let right = plan(vec![of(2, 32, 1), of(4, 64, 1)]).unwrap();
    let found = |depth, width| right.level(depth, width).map(|at| right.levels[at].depth);
    assert_eq!([found(1, 16), found(2, 32)], [Some(2), Some(2)]);
    assert_eq!([found(3, 16), found(9, 99)], [Some(4), Some(4)]);
    let level = of(4, 64, 1);
    assert!(gene.grown(level.clone(), &drawn(&gene, &level)).is_err());
}
