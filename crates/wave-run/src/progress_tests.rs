use super::*;

/// Events that a watcher of `work` hears.
fn heard(work: impl FnOnce()) -> Vec<Event> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = heard.clone();
    let watcher: Watcher = Arc::new(move |event| to.lock().unwrap().push(event));
    watched(Some(watcher), work);
    say(Verbosity::Quiet, "not watched");
    std::mem::take(&mut *heard.lock().unwrap())
}

#[test]
fn a_watcher_hears_what_a_terminal_would_show() {
    let heard = heard(|| {
        let mut report = Report::new("train", 0, 2, Verbosity::Normal);
        report.step(1, 8, ""); // too soon after the start
        report.step(2, 8, "loss 1, ");
        report.line("epoch 1");
        drop(report);
        drop(Report::new("quiet", 0, 2, Verbosity::Quiet));
        note("a warning");
    });
    let Event::Step {
        task,
        label,
        done: 2,
        total: 2,
        text,
    } = &heard[0]
    else {
        panic!("{heard:?}");
    };
    assert!(label == "train" && text.contains("loss 1"), "{text}");
    let line = |text: &str| Event::Line(text.into());
    let end = Event::End { task: *task };
    assert_eq!(heard[1..], [line("train epoch 1"), end, line("a warning")]);
}

/// Texts of the steps that a watcher hears.
fn told(work: impl FnOnce()) -> Vec<String> {
    let text = |event: Event| match event {
        Event::Step { text, .. } => Some(text),
        _ => None,
    };
    heard(work).into_iter().filter_map(text).collect()
}

/// The second of two parts, three times as large as the first, has all of the time left.
#[test]
fn parts_tell_the_time_left_in_all() {
    let second = || std::thread::sleep(Duration::from_millis(500));
    let told = told(|| {
        let part = |_| {
            let mut report = Report::new("part", 0, 2, Verbosity::Normal);
            report.step(0, 1, "");
            second();
            report.step(1, 1, "");
            second();
            report.step(2, 1, "");
            Ok::<(), ()>(())
        };
        parts(&[1.0, 3.0], part).unwrap();
    });
    let left = |text: &String| text.split(' ').next().unwrap().parse::<f64>().unwrap();
    let left: Vec<f64> = told.iter().map(left).collect();
    // After 0.5, 1, 1.5 and 2 seconds, of which shares 1/8, 1/4, 5/8 and 1 are done.
    let wanted = [3.5, 3.0, 0.9, 0.0];
    assert_eq!(left.len(), wanted.len(), "{told:?}");
    for (left, wanted) in left.iter().zip(wanted) {
        assert!((left - wanted).abs() <= 0.5 + 0.3 * wanted, "{told:?}");
    }
}

/// A pass does not count towards the pace, and remaining passes are added.
#[test]
fn passes_are_told_apart() {
    let told = told(|| {
        let mut report = Report::new("part", 0, 4, Verbosity::Normal);
        let passes = |spent, ahead| Passes { spent, ahead };
        report.step_of(0, 0.0, passes(0.0, 100.0), 1, "");
        std::thread::sleep(Duration::from_millis(300));
        report.step_of(1, 0.25, passes(0.3, 50.0), 1, "");
    });
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("50 s left"), "{told:?}");
}

#[test]
fn the_time_left_is_in_the_units_of_a_plan() {
    let told = told(|| {
        let mut report = Report::new("part", 0, 2, Verbosity::Normal);
        let ahead = Passes {
            spent: 0.0,
            ahead: 9000.0,
        };
        report.step_of(0, 0.0, ahead, 1, "");
        report.step_of(2, 0.5, ahead, 1, "");
    });
    assert!(told[0].starts_with("2.5 hours left"), "{told:?}");
    let times = [0.4, 119.0, 600.0, 432_000.0].map(duration);
    assert_eq!(times, ["0 s", "119 s", "10 minutes", "5.0 days"]);
}

#[test]
fn files_that_begin_again_are_counted_once() {
    let transfers = Transfers::default();
    for (file, done) in [("b", 10), ("b", 10), ("b", 3), ("a", 10), ("b", 10)] {
        transfers.step(file, done, 10);
    }
    let all = transfers.0.lock().unwrap();
    assert_eq!((all.files.len(), all.done, all.total), (2, 20, 20));
}
