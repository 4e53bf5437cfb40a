use super::*;

#[test]
fn the_start_of_an_untrained_model_does_not_press_the_rest_together() {
    let curve = |start: f64| vec![(0.0, start, 0.0), (1.0, 0.7, 0.0), (2.0, 0.8, 0.0)];
    let mut all = [0.1, 0.5, 0.75].map(|start| series("a", curve(start)));
    drop_low_starts(&mut all);
    let starts = all.map(|s| s.points[0].1);
    assert_eq!(starts, [0.7, 0.5, 0.75]);
    drop_low_starts(&mut []);
}
