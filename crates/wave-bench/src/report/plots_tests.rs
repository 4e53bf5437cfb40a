use super::*;
use crate::report::Findings;

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

#[test]
fn what_is_kept_is_drawn_of_methods_that_keep_anything() {
    let mut fixture = Findings::of(&["wave", "share", "mimetic", "wave-10"]);
    for (method, kept, epochs) in [
        ("wave", 100_000, 1.0),
        ("share", 50_000, 1.0),
        ("mimetic", 0, 1.0),
        ("wave-10", 100_000, 10.0),
    ] {
        for row in fixture.rows(method, 6, &[0.8, 0.9]) {
            (row.stored_parameters, row.epochs) = (kept, epochs);
        }
    }
    let plots = |fixture: &Findings| {
        let dir = tempfile::tempdir().unwrap();
        let mut page = Page::new("t", dir.path());
        kept(&mut page, &Found::new(fixture)).unwrap();
        let svg = std::fs::read_to_string(dir.path().join("kept.svg"));
        (page.finish().unwrap(), svg.unwrap_or_default())
    };
    let (text, svg) = plots(&fixture);
    let plot = "![Top-1 by stored values, depth 6, width 64](kept.svg)\n";
    assert!(text.ends_with(plot), "{text}");
    let drawn = ["wave", "share", "mimetic", "wave-10"].map(|m| svg.contains(&format!("\n{m}\n")));
    assert_eq!(drawn, [true, true, false, false], "{svg}");
    fixture.rows.retain(|row| row.method != "share");
    assert_eq!(plots(&fixture).0, "# t\n"); // nothing to compare with
}
