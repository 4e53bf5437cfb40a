use super::*;

#[test]
fn seeds_are_gathered_in_the_recipes_order() {
    let mut fixture = Findings::of(&["wave", "mimetic"]);
    fixture.rows("mimetic", 6, &[0.7]);
    fixture.rows("wave", 6, &[0.8712, 0.8655, 0.8690]);
    fixture.rows("unnamed", 6, &[0.99]);
    fixture.rows("wave", 12, &[0.99]);
    let found = Found::new(&fixture).summaries;
    let names: Vec<_> = found
        .iter()
        .map(|s| (&*s.method, s.size.0, s.top1_by_seed.len()))
        .collect();
    assert_eq!(names, [("wave", 6, 3), ("mimetic", 6, 1)]);
    assert!((found[0].top1 - 0.8685666666666666).abs() < 1e-12);
    assert!((found[0].deviation.unwrap() - 0.0028746014216466807).abs() < 1e-12);
    assert_eq!(found[1].deviation, None);
    assert_eq!(found[0].curve.len(), 2);
    assert!((found[0].curve[1].2 - 0.0028746014216466807).abs() < 1e-12);
}

#[test]
fn curves_of_unequal_length_are_averaged_where_all_have_points() {
    let mut fixture = Findings::of(&["wave"]);
    let rows = fixture.rows("wave", 6, &[0.5, 0.7]);
    rows[0].curve.pop();
    let found = Found::new(&fixture).summaries;
    assert_eq!(found[0].curve, [(0.0, 0.1, 0.0)]);
}

#[test]
fn no_accuracy_that_is_not_a_number_is_best() {
    let mut fixture = Findings::of(&["wave", "mimetic"]);
    fixture.rows("wave", 6, &[f64::NAN]);
    fixture.rows("mimetic", 6, &[0.2]);
    let found = Found::new(&fixture).summaries;
    assert_eq!(best(found.iter()).unwrap().method, "mimetic");
    assert!(best(found[..1].iter()).is_none());
}

#[test]
fn costs_are_means_over_sizes_and_shared_epochs_are_spent_once() {
    let mut fixture = Findings::of(&["wave", "cut", "he"]);
    for depth in [3, 6] {
        let wave = &mut fixture.rows("wave", depth, &[0.9])[0];
        (wave.stored_parameters, wave.shared_epochs, wave.own_epochs) = (500, 12.0, 0.25);
        fixture.rows("cut", depth, &[0.9])[0].stored_parameters = 10 * depth;
        fixture.rows("he", depth, &[0.5]);
    }
    let found = Found::new(&fixture);
    let costs = &found.lengths[0];
    let stored: Vec<f64> = costs.iter().map(|cost| cost.stored_parameters).collect();
    assert_eq!(stored, [500.0, 45.0, 0.0]);
    assert_eq!((costs[0].shared_epochs, costs[0].own_epochs), (12.0, 0.25));
}

#[test]
fn methods_are_judged_beside_those_fine_tuned_as_long() {
    let mut fixture = Findings::of(&["he-10", "he", "wave", "Direct PT"]);
    fixture.rows("he", 6, &[0.5])[0].epochs = 1.0004;
    fixture.rows("he-10", 6, &[0.6])[0].epochs = 10.0;
    fixture.rows("wave", 6, &[0.9]);
    fixture.rows("Direct PT", 6, &[0.9])[0].own_epochs = 150.0;
    let lengths = Found::new(&fixture).lengths.into_iter();
    let names = |methods: Vec<Cost>| methods.into_iter().map(|cost| cost.method).collect();
    let found: Vec<Vec<String>> = lengths.map(names).collect();
    assert_eq!(found, [vec!["he", "wave", "Direct PT"], vec!["he-10"]]);
}
