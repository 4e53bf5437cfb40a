use crate::Choices;
use crate::indices::Layers;
use crate::testing::{assert_same, changed, check_refused, donor, shape, start, try_start, values};
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
fn another_head_width_is_refused() {
    let donors = [donor(shape(2, 16), 1)];
    let target = changed(shape(2, 16), |s| s.heads = 1);
    let start = try_start("nested", &target, &donors, &Choices::default());
    check_refused(start, "head width is 8, the target's 16");
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
