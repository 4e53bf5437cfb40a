use crate::Learngene;
use crate::testing::*;
use candle_core::Tensor;
use wave_models::vit;

fn images() -> Tensor {
    normal(&mut rng(2), (3, 3, 16, 16))
}

fn logits(gene: &Learngene, depth: usize, width: usize) -> Vec<f64> {
    let shape = gene.shape(depth, width, None).unwrap();
    let weights = gene.stacked_weights(&shape).unwrap();
    flat(&vit::logits(&shape, &weights, &images(), None).unwrap())
}

#[test]
fn deviations_and_values_are_each_others_inverse() {
    for kronecker in [Kronecker::Tile, Kronecker::Interleave] {
        let gene = learngene(kronecker);
        for width in [16, 32, 48, 64] {
            let smallest = gene.shape(2, width, None).unwrap();
            let back = gene.to_deviations(&smallest).unwrap();
            let back = back.from_deviations(&smallest).unwrap();
            for ((name, a), (_, b)) in gene.tensors().iter().zip(back.tensors()) {
                assert_eq!(a.dims(), b.dims(), "{name}");
                assert_close(&flat(&b), &flat(a), 1e-5);
            }
        }
    }
}

#[test]
fn the_smallest_model_is_the_same_in_both() {
    let gene = learngene(Kronecker::Tile);
    let smallest = gene.shape(2, 32, None).unwrap();
    let values = gene.from_deviations(&smallest).unwrap();
    assert_eq!(logits(&values, 2, 32), logits(&gene, 2, 32));
    assert_ne!(logits(&values, 2, 64), logits(&gene, 2, 64));
    assert_ne!(logits(&values, 3, 32), logits(&gene, 3, 32));
}

#[test]
fn without_deviations_a_wider_model_computes_the_same() {
    let mut gene = learngene(Kronecker::Tile);
    let smallest = gene.shape(2, 32, None).unwrap();
    gene = gene.repeated(&smallest).unwrap();
    // What the bank alone holds of larger sizes.
    let mut deviations = gene.to_deviations(&smallest).unwrap();
    for (part, t) in &mut deviations.bank {
        let (_, r, c) = gene.plan.blocks(*part, &smallest);
        let segments = part.segments();
        let zero = t.zeros_like().unwrap();
        let height = t.dim(2).unwrap() / segments;
        let first: Vec<Tensor> = (0..segments)
            .map(|s| t.narrow(2, s * height, r / segments).unwrap())
            .map(|t| t.pad_with_zeros(2, 0, height - r / segments).unwrap())
            .collect();
        let rows = Tensor::cat(&first, 2).unwrap();
        let rest = zero.dim(3).unwrap() - c;
        *t = rows
            .narrow(3, 0, c)
            .unwrap()
            .pad_with_zeros(3, 0, rest)
            .unwrap();
    }
    let values = deviations.from_deviations(&smallest).unwrap();
    assert_close(&logits(&values, 2, 64), &logits(&gene, 2, 32), 1e-4);
    assert_eq!(logits(&values, 2, 32), logits(&gene, 2, 32));
}

#[test]
fn every_deviation_has_a_gradient() {
    let gene = learngene(Kronecker::Tile);
    let variables: Vec<(String, candle_core::Var)> = gene
        .tensors()
        .into_iter()
        .map(|(name, t)| (name, candle_core::Var::from_tensor(&t).unwrap()))
        .collect();
    let live = variables
        .iter()
        .map(|(n, v)| (n.clone(), v.as_tensor().clone()));
    let smallest = gene.shape(2, 32, None).unwrap();
    let values = gene.with_tensors(&live.collect());
    let values = values.from_deviations(&smallest).unwrap();
    let weights = values.stacked_weights(&gene.auxiliary).unwrap();
    let logits = vit::logits(&gene.auxiliary, &weights, &images(), None).unwrap();
    let gradients = logits.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    for (name, v) in &variables {
        let gradient = gradients.get(v.as_tensor());
        let gradient = gradient.unwrap_or_else(|| panic!("{name} has no gradient"));
        assert!(flat(gradient).iter().any(|g| *g != 0.0), "{name}");
    }
}
