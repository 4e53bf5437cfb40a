use super::factorised;
use crate::levels::Reach;
use crate::testing::*;
use crate::{Learngene, Part, compose};
use candle_core::Tensor;
use std::collections::BTreeMap;

/// The reach that covers all models of the learngene.
fn all(gene: &Learngene) -> Reach {
    gene.reach(5, 64)
}

type Composed = BTreeMap<Part, Tensor>;

fn distance(a: &Composed, b: &Composed) -> f64 {
    let of = |(part, t): (&Part, &Tensor)| {
        let rest = flat(&(t - &b[part]).unwrap());
        rest.iter().map(|x| x * x).sum::<f64>()
    };
    a.iter().map(of).sum::<f64>().sqrt()
}

/// Weights composed by a learngene whose templates and scalers lie nearby.
fn nearby(gene: &Learngene, sizes: &Reach, noise: f64) -> Composed {
    let rng = &mut rng(3);
    let moved = gene.tensors().into_iter().map(|(name, t)| {
        let noise = (normal(rng, t.shape().clone()) * noise).unwrap();
        (name, (t + noise).unwrap())
    });
    gene.with_tensors(&moved.collect()).composed(sizes).unwrap()
}

/// Sizes that read some of the anchors and blocks, and one whose widths are not multiples of the template size.
#[test]
fn models_read_composed_weights_as_they_compose_them() {
    for order in [Kronecker::Tile, Kronecker::Interleave] {
        let gene = learngene(order);
        let composed = gene.composed(&all(&gene)).unwrap();
        for (depth, width) in [(5, 64), (3, 64), (2, 32), (4, 48)] {
            if order == Kronecker::Interleave && width < 64 {
                continue; // interleaved blocks of a narrower model are no corner of a wider one's weights
            }
            let shape = gene.shape(depth, width, None).unwrap();
            let read = gene.weights_from(&composed, &all(&gene), &shape).unwrap();
            let want = gene.stacked_weights(&shape).unwrap();
            assert!(read.keys().eq(want.keys()));
            for (name, t) in &read {
                assert_close(&flat(t), &flat(&want[name]), 1e-4);
            }
        }
    }
}

#[test]
fn what_templates_compose_stays() {
    for order in [Kronecker::Tile, Kronecker::Interleave] {
        let gene = learngene(order);
        let composed = gene.composed(&all(&gene)).unwrap();
        let same = gene.nearer(&composed, &all(&gene), &all(&gene)).unwrap();
        for ((_, a), (_, b)) in gene.tensors().iter().zip(same.tensors()) {
            assert_close(&flat(a), &flat(&b), 1e-3);
        }
    }
}

#[test]
fn sweeps_lead_to_the_nearest_weights() {
    let mut gene = learngene(Kronecker::Tile);
    let target = nearby(&gene, &all(&gene), 0.2);
    let apart = |gene: &Learngene| distance(&gene.composed(&all(gene)).unwrap(), &target);
    let (start, mut last) = (apart(&gene), apart(&gene));
    for _ in 0..20 {
        gene = gene.nearer(&target, &all(&gene), &all(&gene)).unwrap();
        let next = apart(&gene);
        assert!(next < last.max(1e-2 * start), "{next} after {last}");
        last = next;
    }
    assert!(last < 1e-2 * start, "{last} of {start}");
}

/// Two layers of width 32 read the outer anchors of five, and half of the width.
#[test]
fn scalers_that_no_model_reads_stay() {
    let gene = learngene(Kronecker::Tile);
    let sizes = gene.reach(2, 32);
    let target = nearby(&gene, &sizes, 0.2);
    assert_eq!(target[&Part::Qkv].dims(), [2, 96, 32]);
    let mut near = gene.clone();
    let apart = |gene: &Learngene| distance(&gene.composed(&sizes).unwrap(), &target);
    for _ in 0..10 {
        near = near.nearer(&target, &sizes, &sizes).unwrap();
    }
    let share = apart(&near) / apart(&gene);
    assert!(share < 0.05, "{share}");
    for (part, bank) in &gene.bank {
        let (k, n, r, c) = bank.dims4().unwrap();
        let read = sizes.blocks(&gene.plan, *part, &gene.auxiliary);
        let (old, new) = (flat(bank), flat(&near.bank[part]));
        for (at, (old, new)) in old.iter().zip(new).enumerate() {
            let row = at / (n * r * c) * r * c + at % (r * c);
            let moved = *old != new;
            assert_eq!(moved, read.contains(&row), "{part} {at} of {k} anchors");
        }
    }
}

/// A step of one model costs only its own rows: the result is that of a sweep over all rows with the others as
/// composed, and the next model reads weights composed from the new templates.
#[test]
fn a_step_of_one_model_moves_its_own_scalers_and_all_templates() {
    let gene = learngene(Kronecker::Tile);
    let sizes = all(&gene);
    for (depth, width) in [(2, 32), (3, 48), (5, 64)] {
        let moved = gene.reads(&gene.shape(depth, width, None).unwrap());
        let near = nearby(&gene, &moved, 0.05); // the weights of the model after a step
        let before = gene.composed(&sizes).unwrap();
        let places = sizes.places(&moved, &candle_core::Device::Cpu).unwrap();
        let with_step = |(part, w): (&Part, &Tensor)| {
            let old =
                crate::compose::crop(&w.index_select(&places, 0).unwrap(), *part, &moved.widest);
            let change = (&near[part] - old.unwrap()).unwrap();
            let (_, rows, columns) = w.dims3().unwrap();
            let (a, few, narrow) = change.dims3().unwrap();
            let q = part.segments();
            let change = change.reshape((a, q, few / q, narrow)).unwrap();
            let change = change.pad_with_zeros(2, 0, (rows - few) / q).unwrap();
            let change = change.pad_with_zeros(3, 0, columns - narrow).unwrap();
            let change = change.reshape((a, rows, columns)).unwrap();
            (*part, w.index_add(&places, &change, 0).unwrap())
        };
        let after: Composed = before.iter().map(with_step).collect();
        let found = gene.nearer(&after, &sizes, &moved).unwrap();
        let want = gene.nearer(&after, &sizes, &sizes).unwrap();
        for ((_, a), (_, b)) in found.tensors().iter().zip(want.tensors()) {
            assert_close(&flat(a), &flat(&b), 2e-3);
        }
        for next in [(4, 64), (2, 32)] {
            let next = gene.reads(&gene.shape(next.0, next.1, None).unwrap());
            let fresh = found.refreshed(&after, &sizes, &next).unwrap();
            let shape = &next.widest;
            let read = found.weights_from(&fresh, &sizes, shape).unwrap();
            for (name, t) in found.stacked_weights(shape).unwrap() {
                assert_close(&flat(&read[&name]), &flat(&t), 1e-4);
            }
        }
    }
}

/// Weights that templates compose are found again, from other templates.
#[test]
fn factors_of_composed_weights_compose_them() {
    for order in [Kronecker::Tile, Kronecker::Interleave] {
        let gene = learngene(order);
        let shape = &gene.auxiliary;
        let weights = gene.stacked_weights(shape).unwrap();
        let others = gene.templates.iter();
        let others = others.map(|(set, t)| (set.clone(), t.ones_like().unwrap()));
        let (templates, bank) = factorised(&gene.plan, &others.collect(), &weights, shape).unwrap();
        for (part, w) in compose(&gene.plan, &templates, &bank, shape).unwrap() {
            assert_close(&flat(&w), &flat(&weights[part.stacked_name()]), 1e-4);
        }
    }
}

/// One template is the best one: nothing that it leaves out lies along it.
#[test]
fn factors_of_any_weights_are_nearest() {
    let mut gene = learngene(Kronecker::Tile);
    let shape = gene.auxiliary.clone();
    let rng = &mut rng(5);
    let random = gene.stacked_weights(&shape).unwrap().into_iter();
    let random: BTreeMap<String, Tensor> = random
        .map(|(name, t)| (name, normal(rng, t.shape().clone())))
        .collect();
    let before = gene.templates.clone();
    let (templates, bank) = factorised(&gene.plan, &before, &random, &shape).unwrap();
    (gene.templates, gene.bank) = (templates, bank);
    let wanted = |part: &Part| (*part, random[part.stacked_name()].clone());
    let wanted: Composed = gene.bank.keys().map(wanted).collect();
    let sizes = all(&gene);
    let found = gene.composed(&sizes).unwrap();
    let again = gene.nearer(&wanted, &sizes, &sizes).unwrap();
    let again = again.composed(&sizes).unwrap();
    // Least squares cannot improve it.
    let [first, second] = [&found, &again].map(|c| distance(c, &wanted));
    assert!(first > 1.0 && first < second * 1.001, "{first} {second}");
}
