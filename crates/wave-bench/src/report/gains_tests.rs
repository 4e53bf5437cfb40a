use super::*;

fn found(fixture: &Findings) -> Vec<Gain> {
    gains(&Found::new(fixture), &fixture.datasets[0])
}

// from scipy import stats
// stats.ttest_rel([.8712, .8655, .8690], [.8501, .8533, .8490])
#[test]
fn the_subject_is_tested_against_the_best_other() {
    let mut fixture = Findings::of(&["he", "wave", "mimetic", "long"]);
    fixture.rows("wave", 6, &[0.8712, 0.8655, 0.8690]);
    fixture.rows("mimetic", 6, &[0.8501, 0.8533, 0.8490]);
    fixture.rows("he", 6, &[0.7, 0.7, 0.7]);
    fixture.rows("long", 6, &[0.95])[0].epochs = 10.0;
    let gains = found(&fixture);
    assert_eq!(gains.len(), 1);
    assert_eq!(
        (&*gains[0].rival, gains[0].of_baselines),
        ("mimetic", false)
    );
    assert!((gains[0].difference - 0.01776666666666671).abs() < 1e-12);
    let p = gains[0].paired.unwrap().1;
    assert!((p - 0.023971572799737863).abs() < 1e-12);
    assert_eq!(standing("wave", &gains), ["wave is first."]);
}

#[test]
fn where_the_subject_is_not_first_the_report_says_so() {
    let mut fixture = Findings::of(&["wave", "mimetic"]);
    fixture.rows("wave", 3, &[0.90, 0.90]);
    fixture.rows("mimetic", 3, &[0.91, 0.93]);
    fixture.rows("wave", 6, &[0.90, 0.90]);
    fixture.rows("mimetic", 6, &[0.89, 0.92]);
    let lines = standing("wave", &found(&fixture));
    assert_eq!(
        lines,
        [
            "wave is first at none of 2 sizes.",
            "At 3 x 64, wave is not first: 2.00 points behind mimetic, more than one standard \
             deviation of the first (1.41).",
            "At 6 x 64, wave is not first: 0.50 points behind mimetic, within one standard \
             deviation of the first (2.12).",
        ]
    );
}

#[test]
fn a_variant_or_a_pretrained_model_does_not_hide_the_best_baseline() {
    let mut fixture = Findings::of(&["wave", "wave-plain", "Direct PT", "he"]);
    fixture.rows("wave", 3, &[0.8]);
    fixture.rows("wave-plain", 3, &[0.9]);
    fixture.rows("he", 3, &[0.7]);
    fixture.rows("wave", 6, &[0.8]);
    fixture.rows("Direct PT", 6, &[0.95])[0].own_epochs = 150.0;
    fixture.rows("he", 6, &[0.6]);
    let variants = vec!["wave".to_owned(), "wave-plain".to_owned()];
    fixture.ablations.insert("Components".to_owned(), variants);
    let gains = found(&fixture);
    let rivals: Vec<_> = gains.iter().map(|g| (&*g.rival, g.of_baselines)).collect();
    assert_eq!(
        rivals,
        [
            ("wave-plain", false),
            ("he", true),
            ("Direct PT", false),
            ("he", true),
        ]
    );
}

#[test]
fn without_rows_of_the_subject_or_rivals_there_are_no_gains() {
    let mut fixture = Findings::of(&["wave", "he"]);
    fixture.rows("wave", 6, &[0.8]);
    assert_eq!(found(&fixture), []);
    fixture.rows("he", 6, &[0.8]);
    fixture.subject = "unnamed".to_owned();
    assert_eq!(found(&fixture), []);
}
