use crate::Choices;
use crate::testing::{assert_block, assert_outside, check_refused, donor, fresh, shape, try_start};

fn choices(similarity: &[f64], blocks: Option<usize>) -> Choices {
    Choices {
        similarity: similarity.to_vec(),
        blocks,
        ..Choices::default()
    }
}

#[test]
fn the_most_similar_layers_lie_in_order_below_fresh_ones() {
    let (target, donors) = (shape(4, 16), [donor(shape(4, 16), 1)]);
    let fresh = fresh(&target);
    // Ties go to the lower index.
    for (similarity, copied) in [
        ([0.7, 0.1, 0.8, 0.2], [0, 2]),
        ([0.1, 0.5, 0.2, 0.5], [1, 3]),
    ] {
        let choices = choices(&similarity, Some(2));
        let start = try_start("auto-lg", &target, &donors, &choices).unwrap();
        for (to, from) in copied.into_iter().enumerate() {
            assert_block(&start.weights, to, &donors[0].weights, from);
            assert_block(&start.weights, to + 2, &fresh, to + 2);
        }
        assert_outside(&start.weights, &donors[0].weights);
    }
}

#[test]
fn similarities_must_fit_the_donor() {
    let donors = [donor(shape(3, 16), 1)];
    for (similarity, blocks, needle) in [
        (&[][..], Some(2), "found 0 similarities for the 3 layers"),
        (&[0.1, f64::NAN, 0.2], Some(2), "finite"),
        (
            &[0.1, 0.3, 0.2],
            None,
            "4 blocks of a donor with 3: give --blocks N",
        ),
    ] {
        let choices = choices(similarity, blocks);
        let start = try_start("auto-lg", &shape(5, 16), &donors, &choices);
        check_refused(start, needle);
    }
}
