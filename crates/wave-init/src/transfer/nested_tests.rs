use crate::Choices;
use crate::indices::Layers;
use crate::testing::{
    assert_block, assert_same, changed, check_refused, donor, logits, shape, start, try_start,
    values,
};
use candle_core::Var;
use wave_models::vit;

#[test]
fn the_first_heads_and_channels_are_bit_equal() {
    let (d, target, donors) = (16, shape(2, 16), [donor(shape(3, 32), 1)]);
    let start = start("nested", &target, &donors).weights;
    let of = &donors[0].weights;
    let qkv = |part: usize| {
        let wide = &of["blocks.1.attn.qkv.weight"];
        let rows = wide.narrow(0, part * 32, d).unwrap();
        rows.narrow(1, 0, d).unwrap()
    };
    for part in 0..3 {
        let slice = start["blocks.1.attn.qkv.weight"].narrow(0, part * d, d);
        assert_same("qkv", &slice.unwrap(), &qkv(part));
    }
    for (name, rows, cols) in [
        ("blocks.0.attn.proj.weight", 16, 16),
        ("blocks.0.mlp.fc1.weight", 64, 16),
        ("blocks.1.mlp.fc2.weight", 16, 64),
        ("head.weight", 5, 16),
    ] {
        let slice = of[name].narrow(0, 0, rows).unwrap();
        assert_same(name, &start[name], &slice.narrow(1, 0, cols).unwrap());
    }
    let bias = "blocks.1.mlp.fc1.bias";
    assert_eq!(values(&start[bias]), values(&of[bias])[..64]);
}

#[test]
fn cutting_hidden_channels_that_nothing_reads_keeps_the_function() {
    let narrow = changed(shape(2, 16), |s| s.mlp_ratio = 2.0);
    let wide = donor(shape(2, 16), 1);
    let mut weights = wide.weights.clone();
    for l in 0..2 {
        let fc2 = format!("blocks.{l}.mlp.fc2.weight");
        let kept = weights[&fc2].narrow(1, 0, 32).unwrap();
        let kept = kept.pad_with_zeros(1, 0, 32).unwrap();
        weights.insert(fc2, kept.contiguous().unwrap());
    }
    let wide = crate::Donor::new(shape(2, 16), weights).unwrap();
    let expected = logits(&shape(2, 16), &wide.weights);
    let start = start("nested", &narrow, &[wide]).weights;
    crate::testing::assert_close(&logits(&narrow, &start), &expected, 1e-5);
}

#[test]
fn layers_are_the_first_or_evenly_spaced() {
    let donors = [donor(shape(5, 16), 1)];
    for (layers, expected) in [(Layers::First, [0, 1, 2]), (Layers::Uniform, [0, 2, 4])] {
        let choices = changed(Choices::default(), |c| c.layers = layers);
        let start = try_start("nested", &shape(3, 16), &donors, &choices).unwrap();
        for (to, from) in expected.into_iter().enumerate() {
            assert_block(&start.weights, to, &donors[0].weights, from);
        }
    }
}

#[test]
fn what_the_donor_lacks_is_refused() {
    let donors = [donor(shape(2, 16), 1)];
    let other_heads = changed(shape(2, 16), |s| s.heads = 1);
    for (target, needle) in [
        (shape(2, 24), "width is 16, less than"),
        (shape(3, 16), "depth is 2, less than"),
        (other_heads, "head width is 8, the target's 16"),
    ] {
        check_refused(
            try_start("nested", &target, &donors, &Choices::default()),
            needle,
        );
    }
}

#[test]
fn a_differentiable_slice_is_the_start_and_reaches_every_weight_of_the_slice() {
    let (whole, target) = (shape(5, 32), shape(3, 16));
    let donor = donor(whole.clone(), 1);
    let choices = changed(Choices::default(), |c| c.layers = Layers::Uniform);
    let donors = std::slice::from_ref(&donor);
    let start = try_start("nested", &target, donors, &choices).unwrap();
    let stacked = vit::stack(&donor.weights, 5).unwrap();
    let variables: Vec<(String, Var)> = stacked
        .iter()
        .map(|(name, t)| (name.clone(), Var::from_tensor(t).unwrap()))
        .collect();
    let live = variables
        .iter()
        .map(|(n, v)| (n.clone(), v.as_tensor().clone()));
    let slice = super::slice(&live.collect(), &whole, &target).unwrap();
    for (name, tensor) in vit::unstack(&slice).unwrap() {
        assert_same(&name, &tensor, &start.weights[&name]);
    }
    // The gradient of the sum of all entries: 1 for each entry in the slice.
    let sums = slice.values().map(|t| t.sum_all().unwrap());
    let sum = sums.reduce(|a, b| (a + b).unwrap()).unwrap();
    let gradients = sum.backward().unwrap();
    for (name, variable) in &variables {
        let gradient = gradients.get(variable).unwrap();
        let reached = gradient.sum_all().unwrap().to_scalar::<f32>().unwrap();
        assert_eq!(reached as usize, slice[name].elem_count(), "{name}");
    }
}
