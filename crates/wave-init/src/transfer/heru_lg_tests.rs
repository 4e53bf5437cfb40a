use crate::Choices;
use crate::testing::{
    assert_block, assert_outside, changed, check_refused, donor, fresh, shape, start, try_start,
};

#[test]
fn the_last_three_blocks_stand_on_fresh_ones() {
    let (target, donors) = (shape(5, 16), [donor(shape(4, 16), 1)]);
    let start = start("heru-lg", &target, &donors).weights;
    let fresh = fresh(&target);
    for l in 0..2 {
        assert_block(&start, l, &fresh, l);
    }
    for (to, from) in [(2, 1), (3, 2), (4, 3)] {
        assert_block(&start, to, &donors[0].weights, from);
    }
    assert_outside(&start, &donors[0].weights);
}

#[test]
fn a_shallow_target_gets_the_last_of_them() {
    let donors = [donor(shape(4, 16), 1)];
    let start = start("heru-lg", &shape(2, 16), &donors).weights;
    assert_block(&start, 0, &donors[0].weights, 2);
    assert_block(&start, 1, &donors[0].weights, 3);
}

#[test]
fn no_blocks_and_more_than_the_donor_has_are_refused() {
    let donors = [donor(shape(4, 16), 1)];
    for blocks in [0, 5] {
        let choices = changed(Choices::default(), |c| c.blocks = Some(blocks));
        check_refused(
            try_start("heru-lg", &shape(6, 16), &donors, &choices),
            "--blocks N, 1 to 4",
        );
    }
}
