//! Properties that methods share: the layers picked, the tensors outside the blocks, the donor's size.

use crate::indices::Layers;
use crate::testing::{
    assert_block, assert_same, changed, check_refused, donor, fresh, shape, start, try_start,
    values,
};
use crate::{Choices, Positions, sinusoidal_positions};
use wave_models::vit::VitShape;

#[test]
fn a_class_token_may_come_or_go() {
    let (with, without) = (
        changed(shape(3, 16), |s| s.class_token = true),
        shape(3, 16),
    );
    for (from, to) in [(&with, &without), (&without, &with)] {
        let donors = [donor(from.clone(), 1)];
        let start = start("heru-lg", to, &donors).weights;
        let of = &donors[0].weights;
        let patches = |weights: &wave_models::Weights, shape: &VitShape| {
            weights["pos_embed"].narrow(1, shape.prefix(), 9).unwrap()
        };
        assert_same("positions", &patches(&start, to), &patches(of, from));
        let norm = |shape: &VitShape| format!("{}.weight", shape.final_norm());
        assert_same("norm", &start[&norm(to)], &of[&norm(from)]);
        if to.class_token {
            let (fresh, row) = (fresh(to), |w: &wave_models::Weights| {
                w["pos_embed"].narrow(1, 0, 1).unwrap()
            });
            assert_same("token", &start["cls_token"], &fresh["cls_token"]);
            assert_same("its position", &row(&start), &row(&fresh));
        }
    }
}

#[test]
fn what_does_not_fit_stays_fresh_and_is_not_counted() {
    let target = shape(3, 16);
    let agreed = start("heru-lg", &target, &[donor(target.clone(), 1)]).cost;
    let fresh = fresh(&target);
    let lose = |from: VitShape, kept: &[&str], lost: usize| {
        let start = start("heru-lg", &target, &[donor(from, 1)]);
        for name in kept {
            assert_same(name, &start.weights[*name], &fresh[*name]);
        }
        assert_eq!(start.cost.transferred, agreed.transferred - lost);
    };
    let other = |change: fn(&mut VitShape)| changed(target.clone(), change);
    let patches = ["patch_embed.proj.weight", "patch_embed.proj.bias"];
    lose(
        other(|s| s.classes = 7),
        &["head.weight", "head.bias"],
        5 * 17,
    );
    lose(other(|s| s.image_size = 16), &["pos_embed"], 9 * 16);
    lose(other(|s| s.channels = 3), &patches, 16 * 17);
}

#[test]
fn positions_are_chosen_where_the_donor_leaves_some_and_refused_elsewhere() {
    let target = shape(3, 16);
    let sinusoidal = changed(Choices::default(), |c| {
        c.positions = Some(Positions::Sinusoidal)
    });
    let scaled = changed(Choices::default(), |c| c.position_scale = Some(3.0));
    let other_grid = changed(target.clone(), |s| s.image_size = 16);
    let token = changed(target.clone(), |s| s.class_token = true);
    for method in [
        "heru-lg",
        "weight-selection",
        "nested",
        "pretrained-attention",
    ] {
        let from = |shape: &VitShape| [donor(shape.clone(), 1)];
        for choices in [&sinusoidal, &scaled] {
            let start = try_start(method, &target, &from(&target), choices);
            check_refused(start, "remove --positions and --position-scale");
        }
        let found = try_start(method, &target, &from(&other_grid), &sinusoidal);
        let expected = sinusoidal_positions(3, 16, 2.0).unwrap();
        assert_same(method, &found.unwrap().weights["pos_embed"], &expected);
        // Sinusoidal positions have zeros for a class token that the donor lacks.
        let found = try_start(method, &token, &from(&target), &sinusoidal);
        let row = found.unwrap().weights["pos_embed"].narrow(1, 0, 1).unwrap();
        assert!(values(&row).iter().all(|v| *v == 0.0), "{method}");
    }
}

#[test]
fn layers_are_the_first_or_evenly_spaced() {
    let donors = [donor(shape(5, 16), 1)];
    for method in ["nested", "weight-selection"] {
        for (layers, expected) in [(Layers::First, [0, 1, 2]), (Layers::Uniform, [0, 2, 4])] {
            let choices = changed(Choices::default(), |c| c.layers = layers);
            let start = try_start(method, &shape(3, 16), &donors, &choices).unwrap();
            for (to, from) in expected.into_iter().enumerate() {
                assert_block(&start.weights, to, &donors[0].weights, from);
            }
        }
    }
}

#[test]
fn smaller_donors_are_refused_with_what_they_lack() {
    let donors = [donor(shape(2, 16), 1)];
    let (depth, width) = (
        "depth is 2, less than the target's 3",
        "width is 16, less than the target's 24",
    );
    for (method, target, needle) in [
        ("nested", shape(3, 16), depth),
        ("nested", shape(2, 24), width),
        ("weight-selection", shape(3, 16), depth),
        ("weight-selection", shape(2, 24), width),
        ("prune", shape(3, 16), depth),
        ("prune", shape(2, 24), width),
        ("pretrained-attention", shape(3, 16), depth),
    ] {
        let start = try_start(method, &target, &donors, &Choices::default());
        check_refused(start, needle);
    }
}
