use super::*;

/// A step of a slice takes the time of the slice, so that `--dry-run` does not tell that of the whole network.
#[test]
fn slices_take_their_share_of_the_work() {
    let whole = VitShape {
        depth: 8,
        width: 128,
        heads: 2,
        ..VitShape::default()
    };
    let share = |depths: Option<Vec<usize>>, widths: Option<Vec<usize>>| {
        let settings = Finetune {
            depths,
            widths,
            ..Finetune::default()
        };
        let plan = FinetunePlan::new(&settings).unwrap();
        plan.share(&Network::Vit(whole.clone())).unwrap()
    };
    let of = |depth, width| {
        let slice = whole.with_size(depth, width);
        slice.multiply_adds() as f64 / whole.multiply_adds() as f64
    };
    assert_eq!(share(None, None), 1.0);
    for (depths, widths, expected) in [
        (Some(vec![2, 2]), None, of(2, 128)),
        (Some(vec![2, 8]), None, (of(2, 128) + of(8, 128)) / 2.0),
        (None, Some(vec![64, 128]), (of(8, 64) + 1.0) / 2.0),
    ] {
        let found = share(depths, widths);
        assert!((found - expected).abs() < 1e-9, "{found}: {expected}");
    }
}
