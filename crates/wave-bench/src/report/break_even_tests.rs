use super::*;

#[test]
fn lines_cross_where_what_was_spent_is_saved() {
    let line = |[shared, each]: [f64; 2]| Line { shared, each };
    for (method, rival, words) in [
        // 12 + 2 n <= 7 n
        ([12.0, 2.0], [0.0, 7.0], "from 3 models (2.4)"),
        ([10.0, 2.0], [0.0, 7.0], "from 2 models (2.0)"),
        ([1.0, 2.0], [0.0, 7.0], "from the first model"),
        ([0.0, 2.0], [9.0, 7.0], "from the first model"),
        ([12.0, 7.0], [0.0, 7.0], "never"),
        ([12.0, 8.0], [0.0, 7.0], "never"),
        // 1 + 8 n <= 12 + 4 n
        ([1.0, 8.0], [12.0, 4.0], "only up to 2 models (2.8)"),
        ([1.0, 8.0], [2.0, 4.0], "never"),
        ([1.0, 8.0], [2.0, 8.0], "from the first model"),
    ] {
        let found = cheaper(line(method), line(rival), true);
        assert_eq!(found, words, "{method:?} {rival:?}");
    }
    for (method, words) in [
        ([12.0, 2.0], "from 2 models (1.5) at the latest"),
        ([0.0, 2.0], "from the first model"),
        ([12.0, 20.0], "not known"),
    ] {
        let found = cheaper(line(method), line([0.0, 10.0]), false);
        assert_eq!(found, words, "{method:?}");
    }
}

/// wave: 12 epochs once, 0.5 for each, curve from 0.5 to 0.9; he: 0 and 0, from 0.1.
fn fixture() -> Findings<'static> {
    let mut fixture = Findings::of(&["wave", "he", "Direct PT"]);
    let wave = fixture.curve("wave", &[(0.0, 0.5), (1.0, 0.7), (4.0, 0.9)]);
    (wave.shared_epochs, wave.own_epochs) = (24.0, 0.5);
    // Twice as many epochs, of half the multiply-adds.
    fixture.shared_work = &|method, _| match method {
        Some("wave") => 12.0,
        Some(_) => 0.0,
        None => 5.0,
    };
    fixture.curve("he", &[(0.0, 0.1), (4.0, 0.7), (8.0, 0.8)]);
    fixture.pair("wave", "he");
    fixture.ancestor_epochs = 5.0;
    fixture
}

/// The rows of the table, from the accuracy on.
fn rows_of(fixture: &Findings) -> Vec<String> {
    let rows = rows(&Found::new(fixture)).into_iter();
    rows.map(|row| row[3..].join(" | ")).collect()
}

#[test]
fn a_pair_is_compared_after_one_epoch_and_at_the_shorter_end() {
    // After an epoch: 12 + n (0.5 + 1) against n 4, and 5 more with the ancestor.
    // At epoch 4, 0.9, which the other does not reach in 8: 12 + n 4.5 against at least n 8.
    assert_eq!(
        rows_of(&fixture()),
        [
            "70.00 % (epoch 1) | 1.00 | 4.00 | from 5 models (4.8) | from 7 models (6.8)",
            "90.00 % (epoch 4) | 4.00 | not within 8 | from 4 models (3.4) at the latest | from 5 models \
             (4.9) at the latest",
        ]
    );
}

#[test]
fn missing_rows_and_curves_are_left_out() {
    let mut fixture = fixture();
    fixture.pair("wave", "unnamed");
    fixture.pair("unnamed", "wave");
    fixture.rows.iter_mut().for_each(|row| row.curve.clear());
    assert!(rows_of(&fixture).is_empty());
}

#[test]
fn a_rival_that_is_not_fine_tuned_does_not_set_the_length() {
    let mut fixture = fixture();
    fixture.pair("wave", "Direct PT");
    fixture.curve("Direct PT", &[(0.0, 0.95)]).own_epochs = 150.0;
    let found = &rows_of(&fixture)[3];
    assert!(
        found.starts_with("90.00 % (epoch 4) | 4.00 | 0, at the start |"),
        "{found}"
    );
}

#[test]
fn a_target_is_reached_on_the_line_between_two_tests() {
    let curve = [(0.0, 0.1), (1.0, 0.5), (2.0, 0.4), (3.0, 0.8)].map(|(x, y)| (x, y, 0.0));
    for (target, epoch) in [
        (0.05, Some(0.0)),
        (0.3, Some(0.5)),
        (0.5, Some(1.0)),
        (0.6, Some(2.5)),
        (0.8, Some(3.0)),
        (0.81, None),
        (f64::NAN, None),
    ] {
        let found = first_reach(&curve, target);
        let found = found.map(|epoch| (1e9 * epoch).round() / 1e9);
        assert_eq!(found, epoch, "{target}");
    }
    assert_eq!(first_reach(&[], 0.5), None);
    let unknown = [(0.0, f64::NAN, 0.0), (1.0, 0.5, 0.0)];
    assert_eq!(first_reach(&unknown, 0.4), Some(1.0));
}
