use super::*;
use crate::report::fixture::Fixture;
use crate::report::summary::costs;

const fn line(shared: f64, each: f64) -> Line {
    Line { shared, each }
}

#[test]
fn lines_cross_where_what_was_spent_is_saved() {
    for (method, rival, reached, crossing, words) in [
        // 12 + 2 n <= 7 n
        (
            line(12.0, 2.0),
            line(0.0, 7.0),
            true,
            Crossing::From(2.4),
            "from 3 models (2.4)",
        ),
        (
            line(10.0, 2.0),
            line(0.0, 7.0),
            true,
            Crossing::From(2.0),
            "from 2 models (2.0)",
        ),
        (
            line(1.0, 2.0),
            line(0.0, 7.0),
            true,
            Crossing::From(0.2),
            "from the first model",
        ),
        (
            line(0.0, 2.0),
            line(9.0, 7.0),
            true,
            Crossing::From(0.0),
            "from the first model",
        ),
        (
            line(12.0, 7.0),
            line(0.0, 7.0),
            true,
            Crossing::Never,
            "never",
        ),
        (
            line(12.0, 8.0),
            line(0.0, 7.0),
            true,
            Crossing::Never,
            "never",
        ),
        // 1 + 8 n <= 12 + 4 n
        (
            line(1.0, 8.0),
            line(12.0, 4.0),
            true,
            Crossing::UpTo(2.75),
            "only up to 2 models (2.8)",
        ),
        (
            line(1.0, 8.0),
            line(2.0, 4.0),
            true,
            Crossing::UpTo(0.25),
            "never",
        ),
        (
            line(1.0, 8.0),
            line(2.0, 8.0),
            true,
            Crossing::From(0.0),
            "from the first model",
        ),
        (
            line(12.0, 2.0),
            line(0.0, 10.0),
            false,
            Crossing::FromAtMost(1.5),
            "from 2 models (1.5) at the latest",
        ),
        (
            line(0.0, 2.0),
            line(0.0, 10.0),
            false,
            Crossing::From(0.0),
            "from the first model",
        ),
        (
            line(12.0, 20.0),
            line(0.0, 10.0),
            false,
            Crossing::Unknown,
            "not known",
        ),
    ] {
        let found = Crossing::new(method, rival, reached);
        assert_eq!(found, crossing, "{method:?} {rival:?}");
        assert_eq!(found.describe(), words);
    }
}

/// wave: 12 epochs once, 0.5 for each, curve from 0.5 to 0.9; he: 0 and 0, from 0.1.
fn fixture() -> Fixture {
    let mut fixture = Fixture::new(&["wave", "he", "Direct PT"]);
    let wave = fixture.curve("wave", &[(0.0, 0.5), (1.0, 0.7), (4.0, 0.9)]);
    (wave.shared_epochs, wave.own_epochs) = (24.0, 0.5);
    // Twice as many epochs, of half the multiply-adds.
    fixture.work = Box::new(|method, _| match method {
        Some("wave") => 12.0,
        Some(_) => 0.0,
        None => 5.0,
    });
    fixture.curve("he", &[(0.0, 0.1), (4.0, 0.7), (8.0, 0.8)]);
    fixture.pair("wave", "he");
    fixture.ancestor_epochs = 5.0;
    fixture
}

#[test]
fn a_pair_is_compared_after_one_epoch_and_at_the_shorter_end() {
    let fixture = fixture();
    let findings = fixture.findings();
    let found = break_even(&findings, &Summaries::new(&findings));
    assert_eq!(found.len(), 2);
    // After an epoch: 12 + n (0.5 + 1) against n 4, and 5 more with the ancestor.
    assert_eq!((found[0].target, found[0].target_epoch), (0.7, 1.0));
    assert_eq!(
        found[0].rival_reach,
        Reach {
            epochs: 4.0,
            reached: true
        }
    );
    assert_eq!(found[0].crossing, Crossing::From(4.8));
    assert_eq!(found[0].crossing_with_ancestor, Crossing::From(6.8));
    // At epoch 4, 0.9, which the other does not reach in 8: 12 + n 4.5 against at least n 8.
    assert_eq!((found[1].target, found[1].target_epoch), (0.9, 4.0));
    assert_eq!(
        found[1].rival_reach,
        Reach {
            epochs: 8.0,
            reached: false
        }
    );
    assert_eq!(found[1].crossing, Crossing::FromAtMost(12.0 / 3.5));
}

#[test]
fn totals_have_a_line_for_each_and_one_with_the_ancestor() {
    let mut fixture = fixture();
    let direct = fixture.curve("Direct PT", &[(0.0, 0.95)]);
    direct.own_epochs = 150.0;
    let findings = fixture.findings();
    let summaries = Summaries::new(&findings);
    let found = totals(&findings, &summaries, &costs(&findings, &summaries));
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].target, found[0].target_epoch), (0.7, 1.0));
    let at_two: Vec<f64> = found[0].lines.iter().map(|line| line.1.at(2)).collect();
    assert_eq!(at_two, [15.0, 20.0, 8.0, 300.0]);
    assert_eq!((found[1].target, found[1].target_epoch), (0.9, 4.0));
    let names: Vec<&str> = found[1].lines.iter().map(|line| &*line.0).collect();
    assert_eq!(
        names,
        [
            "wave",
            "wave with the ancestor",
            "he (at least)",
            "Direct PT"
        ]
    );
    let at_two: Vec<f64> = found[1].lines.iter().map(|line| line.1.at(2)).collect();
    assert_eq!(at_two, [21.0, 26.0, 16.0, 300.0]);
}

#[test]
fn missing_rows_and_curves_are_left_out() {
    let mut fixture = fixture();
    fixture.pair("wave", "unnamed");
    fixture.pair("unnamed", "wave");
    fixture.rows.iter_mut().for_each(|row| row.curve.clear());
    let findings = fixture.findings();
    let summaries = Summaries::new(&findings);
    assert_eq!(break_even(&findings, &summaries), []);
    assert_eq!(
        totals(&findings, &summaries, &costs(&findings, &summaries)),
        []
    );
}

#[test]
fn a_rival_that_is_not_fine_tuned_does_not_set_the_length() {
    let mut fixture = fixture();
    fixture.pair("wave", "Direct PT");
    fixture.curve("Direct PT", &[(0.0, 0.95)]).own_epochs = 150.0;
    let findings = fixture.findings();
    let found = break_even(&findings, &Summaries::new(&findings));
    assert_eq!(found[3].target_epoch, 4.0);
    assert_eq!(
        found[3].rival_reach,
        Reach {
            epochs: 0.0,
            reached: true
        }
    );
}
