//! Training that stops before its last step: `--patience`, `--time-limit`.

use crate::support::{Place, SHAPES};

/// The steps that a model's `config.json` says it was trained for.
fn steps(place: &Place, dir: &str) -> u64 {
    let config = place.config(dir);
    config["wave"]["steps"].as_u64().unwrap()
}

#[test]
fn impatient_training_stops_where_tests_get_no_better() {
    let place = Place::with_model();
    // 8 steps an epoch
    let flags = format!("finetune m {SHAPES} --epochs 6 --lr 0 --patience 2");
    let made = place.json(&format!("{flags} --out tuned"));
    // Nothing changes, so the first test stays the best, and two more end it.
    assert_eq!(steps(&place, "tuned"), 24);
    assert_eq!(
        made["stopped"],
        "none of the last 2 tests was better, at step 24 of 48"
    );
    let log = place.text("tuned/run/log.jsonl");
    assert_eq!(log.matches("\"top1\"").count(), 3, "{log}");
    // It is complete: repeated, it tells the same.
    assert_eq!(place.json(&format!("{flags} --out tuned")), made);
    let patient = format!("finetune m {SHAPES} --epochs 3 --lr 0 --patience 3 --out patient");
    assert!(place.json(&patient).get("stopped").is_none());
}

#[test]
fn tests_come_as_often_as_is_asked_for() {
    let place = Place::with_model();
    // 8 steps an epoch
    let tests = |flags: &str, out: &str| {
        place.json(&format!("finetune m {SHAPES} --lr 0 {flags} --out {out}"));
        let log = place.text(&format!("{out}/run/log.jsonl"));
        log.matches("\"top1\"").count()
    };
    assert_eq!(tests("--epochs 5 --test-epochs 2", "a"), 3); // after 2, 4 and 5
    assert_eq!(tests("--epochs 3 --test-epochs 0", "c"), 1);
    // A part of an epoch is a step at least.
    assert_eq!(tests("--epochs 0.01", "e"), 1);
    assert_eq!(steps(&place, "e"), 1);
    // Patience counts tests.
    assert_eq!(tests("--epochs 9 --test-epochs 2 --patience 2", "d"), 3);
    assert_eq!(steps(&place, "d"), 48);
}

#[test]
fn a_time_limit_leaves_what_is_there() {
    let place = Place::with_model();
    let long = format!("finetune m {SHAPES} --epochs 50");
    let made = place.json(&format!("{long} --time-limit 0.0001 --out tuned"));
    let taken = steps(&place, "tuned");
    assert!((1..400).contains(&taken), "{taken}");
    let stopped = format!("time limit, at step {taken} of 400");
    assert_eq!(made["stopped"], stopped.as_str());
    assert!(made["top1"].is_number());
    place.json("eval tuned --data shapes --test-limit 16");
    // With another limit it is another run.
    let other = format!("{long} --time-limit 60 --out tuned");
    place.refused(&other, &["time_limit"]);
}

#[test]
fn a_run_goes_on_under_another_time_limit() {
    let place = Place::with_model();
    let tuning = format!("finetune m {SHAPES} --epochs 2");
    let made = place.json(&format!("{tuning} --time-limit 60 --out tuned"));
    assert!(made.get("stopped").is_none());
    for limit in ["", "--time-limit 50"] {
        assert_eq!(place.json(&format!("{tuning} {limit} --out tuned")), made);
    }
}
