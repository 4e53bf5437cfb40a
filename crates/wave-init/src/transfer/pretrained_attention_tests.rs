use crate::Choices;
use crate::indices::Layers;
use crate::testing::{assert_same, changed, donor, fresh, shape, try_start};
use wave_models::vit::BLOCK_TENSORS;

#[test]
fn only_attention_and_positions_are_the_donors() {
    let (target, donors) = (shape(2, 16), [donor(shape(4, 16), 1)]);
    let fresh = fresh(&target);
    for (layers, picked) in [(Layers::First, [0, 1]), (Layers::Uniform, [0, 2])] {
        let choices = changed(Choices::default(), |c| c.layers = layers);
        let start = try_start("pretrained-attention", &target, &donors, &choices).unwrap();
        for (name, tensor) in &start.weights {
            let layer = picked.iter().enumerate().find_map(|(to, from)| {
                let part = name.strip_prefix(&format!("blocks.{to}."))?;
                let attention = &BLOCK_TENSORS[2..6];
                attention
                    .contains(&part)
                    .then(|| format!("blocks.{from}.{part}"))
            });
            let expected = match &layer {
                Some(from) => &donors[0].weights[from],
                None if name == "pos_embed" => &donors[0].weights[name],
                None => &fresh[name],
            };
            assert_same(name, tensor, expected);
        }
    }
}
