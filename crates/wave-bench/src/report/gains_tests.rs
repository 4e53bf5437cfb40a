use super::*;
use crate::report::Findings;

/// The rows of the table, each joined.
fn found(fixture: &Findings) -> Vec<String> {
    let rows = rows(&Found::new(fixture), &fixture.grid.datasets[0].0);
    rows.iter().map(|row| row.join(" | ")).collect()
}

#[test]
fn a_variant_or_a_pretrained_model_does_not_hide_the_best_baseline() {
    let mut fixture = Findings::of(&["long", "wave", "wave-plain", "Direct PT", "he"]);
    fixture.rows("long", 3, &[0.95])[0].epochs = 10.0;
    fixture.rows("wave", 3, &[0.8]);
    fixture.rows("wave-plain", 3, &[0.9]);
    fixture.rows("he", 3, &[0.7]);
    fixture.rows("wave", 6, &[0.8]);
    fixture.rows("Direct PT", 6, &[0.95])[0].own_epochs = 150.0;
    fixture.rows("he", 6, &[0.6]);
    fixture.ablation("Components", &["wave", "wave-plain"]);
    assert_eq!(
        found(&fixture),
        [
            "3 x 64 | wave-plain | all | -10.00 |  |  | 1",
            "3 x 64 | he | baselines | +10.00 |  |  | 1",
            "6 x 64 | Direct PT | all | -15.00 |  |  | 1",
            "6 x 64 | he | baselines | +20.00 |  |  | 1",
        ]
    );
}

#[test]
fn without_rows_of_the_subject_or_rivals_there_are_no_gains() {
    let mut fixture = Findings::of(&["wave", "he", "unnamed"]);
    fixture.rows("wave", 6, &[0.8]);
    assert!(found(&fixture).is_empty());
    fixture.rows("he", 6, &[0.8]);
    fixture.grid.bench.subject = Some("unnamed".to_owned());
    assert!(found(&fixture).is_empty());
}
