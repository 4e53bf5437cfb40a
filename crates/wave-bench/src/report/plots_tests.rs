use super::*;

#[test]
fn the_start_of_an_untrained_model_does_not_press_the_rest_together() {
    let curve = |start: f64| vec![(0.0, start, 0.0), (1.0, 0.7, 0.0), (2.0, 0.8, 0.0)];
    let series = [0.1, 0.5, 0.75].map(|start| (start.to_string(), curve(start)));
    let starts: Vec<f64> = without_low_starts(series.to_vec())
        .iter()
        .map(|(_, curve)| curve[0].1)
        .collect();
    assert_eq!(starts, [0.7, 0.5, 0.75]);
    assert!(without_low_starts(Vec::new()).is_empty());
}
