use crate::Choices;
use crate::testing::{assert_block, assert_outside, donor, shape, start, try_start};

#[test]
fn every_layer_is_the_donors_block() {
    let donors = [donor(shape(2, 16), 1)];
    for layer in 0..2 {
        let mut choices = Choices::default();
        choices.share.layer = layer;
        let start = try_start("share", &shape(5, 16), &donors, &choices).unwrap();
        for l in 0..5 {
            assert_block(&start.weights, l, donors[0].weights(), layer);
        }
        assert_outside(&start.weights, donors[0].weights());
    }
}

#[test]
fn one_block_is_counted_once() {
    let donors = [donor(shape(2, 16), 1)];
    let cost = |depth| start("share", &shape(depth, 16), &donors).cost;
    assert_eq!(cost(3).transferred, cost(9).transferred);
    assert_eq!(cost(3).transferred, shape(1, 16).parameter_count());
}

#[test]
fn other_widths_are_refused() {
    let target = shape(3, 24);
    for (from, needle) in [
        (shape(2, 16), "width is 16, the target's 24"),
        (
            wave_models::vit::VitShape {
                heads: 1,
                ..shape(2, 24)
            },
            "head width is 24, the target's 8",
        ),
        (
            wave_models::vit::VitShape {
                mlp_ratio: 2.0,
                ..shape(2, 24)
            },
            "MLP is 48, the target's 96",
        ),
    ] {
        let donors = [donor(from, 1)];
        let error = try_start("share", &target, &donors, &Choices::default()).unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
    }
    let mut choices = Choices::default();
    choices.share.layer = 2;
    let error = try_start("share", &target, &[donor(shape(2, 24), 1)], &choices).unwrap_err();
    assert!(error.to_string().contains("depth is 2"), "{error}");
}
