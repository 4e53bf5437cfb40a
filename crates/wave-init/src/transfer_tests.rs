//! Tensors taken outside the blocks, by every method.

use crate::testing::{assert_outside, assert_same, changed, donor, fresh, shape, start};
use wave_models::vit::VitShape;

fn with_token(class_token: bool) -> VitShape {
    changed(shape(3, 16), |s| s.class_token = class_token)
}

#[test]
fn all_of_it_from_a_donor_that_agrees() {
    for class_token in [false, true] {
        let target = with_token(class_token);
        let donors = [donor(target.clone(), 1)];
        let start = start("heru-lg", &target, &donors);
        assert_outside(&start.weights, &donors[0].weights);
    }
}

#[test]
fn a_class_token_may_come_or_go() {
    let (with, without) = (with_token(true), with_token(false));
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
