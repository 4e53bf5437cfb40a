use crate::Choices;
use crate::testing::{
    assert_block, assert_outside, changed, check_refused, donor, fresh, shape, start, try_start,
};

#[test]
fn the_last_three_blocks_stand_on_fresh_ones() {
    let with_token = |depth| changed(shape(depth, 16), |s| s.class_token = true);
    let (target, donors) = (with_token(5), [donor(with_token(4), 1)]);
    let found = start("heru-lg", &target, &donors).weights;
    let fresh = fresh(&target);
    for l in 0..2 {
        assert_block(&found, l, &fresh, l);
    }
    for (to, from) in [(2, 1), (3, 2), (4, 3)] {
        assert_block(&found, to, &donors[0].weights, from);
    }
    assert_outside(&found, &donors[0].weights);
    // A shallow target gets the last of them.
    let found = start("heru-lg", &with_token(2), &donors).weights;
    assert_block(&found, 0, &donors[0].weights, 2);
    assert_block(&found, 1, &donors[0].weights, 3);
}

#[test]
fn no_blocks_and_more_than_the_donor_has_are_refused() {
    let donors = [donor(shape(4, 16), 1)];
    for blocks in [0, 5] {
        let choices = changed(Choices::default(), |c| c.blocks = Some(blocks));
        let start = try_start("heru-lg", &shape(6, 16), &donors, &choices);
        check_refused(start, "--blocks N, 1 to 4");
    }
}
