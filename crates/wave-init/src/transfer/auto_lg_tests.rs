use super::*;
use crate::Choices;
use crate::testing::{assert_block, assert_outside, donor, fresh, shape, try_start};

fn choices(similarity: &[f64], rule: AutoLgRule, place: AutoLgPlace) -> Choices {
    let similarity = similarity.to_vec();
    Choices {
        auto_lg: AutoLg {
            similarity,
            rule,
            place,
        },
        ..Choices::default()
    }
}

#[test]
fn the_most_similar_are_chosen_in_order() {
    let s = [0.1, 0.9, 0.5, 0.9, 0.5];
    assert_eq!(chosen(&s, AutoLgRule::Most(2), 9), [1, 3]);
    assert_eq!(chosen(&s, AutoLgRule::Most(3), 9), [1, 2, 3]); // the lower of equals
    assert_eq!(chosen(&s, AutoLgRule::Most(3), 1), [1]);
    assert_eq!(chosen(&s, AutoLgRule::AtLeast(0.5), 9), [1, 2, 3, 4]);
    assert_eq!(chosen(&s, AutoLgRule::AtLeast(0.5), 2), [1, 3]);
    assert_eq!(chosen(&s, AutoLgRule::AtLeast(1.0), 2), [0usize; 0]);
}

#[test]
fn chosen_layers_lie_below_or_above_fresh_ones() {
    let (target, donors) = (shape(4, 16), [donor(shape(3, 16), 1)]);
    let fresh = fresh(&target);
    for (place, copied) in [
        (AutoLgPlace::Bottom, [Some(0), Some(2), None, None]),
        (AutoLgPlace::Top, [None, None, Some(0), Some(2)]),
    ] {
        let choices = choices(&[0.7, 0.1, 0.8], AutoLgRule::Most(2), place);
        let start = try_start("auto-lg", &target, &donors, &choices).unwrap();
        for (to, from) in copied.into_iter().enumerate() {
            match from {
                Some(from) => assert_block(&start.weights, to, donors[0].weights(), from),
                None => assert_block(&start.weights, to, &fresh, to),
            }
        }
        assert_outside(&start.weights, donors[0].weights());
        assert_eq!(start.cost.transferred, shape(2, 16).parameter_count());
    }
}

#[test]
fn similarities_must_fit_the_donor() {
    let donors = [donor(shape(3, 16), 1)];
    for (similarity, needle) in [
        (&[][..], "found 0 similarities for the 3 layers"),
        (&[0.1, f64::NAN, 0.2], "finite"),
        (&[0.1, 0.3, 0.2], "depth is 3, less than the target's 4"),
    ] {
        let choices = choices(similarity, AutoLgRule::Most(4), AutoLgPlace::Bottom);
        let error = try_start("auto-lg", &shape(5, 16), &donors, &choices).unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
    }
}
