use super::*;

#[test]
fn curves_of_unequal_length_are_averaged_where_all_have_points() {
    let mut fixture = Findings::of(&["wave"]);
    let rows = fixture.rows("wave", 6, &[0.5, 0.7]);
    rows[0].curve.push((2.0, 0.9));
    let found = Found::new(&fixture).summaries;
    let curve = &found[0].curve;
    assert_eq!((curve.len(), curve[0]), (2, (0.0, 0.1, 0.0)));
    assert!((curve[1].1 - 0.6).abs() < 1e-12);
    assert!((curve[1].2 - 0.02f64.sqrt()).abs() < 1e-12);
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
