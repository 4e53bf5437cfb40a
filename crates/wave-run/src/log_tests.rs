use super::*;
use serde_json::json;

fn trained(step: u64) -> Value {
    json!({"step": step, "epoch": step as f64 / 10.0, "loss": 2.0 / step as f64})
}

fn tested(step: u64) -> Value {
    json!({"step": step, "epoch": step as f64 / 10.0, "top1": 0.25, "top5": 0.5, "test_loss": 1.5})
}

fn texts(dir: &Path) -> (String, String) {
    let text = |name| fs::read_to_string(dir.join(name)).unwrap();
    (text(LOG_FILE), text(CSV_FILE))
}

#[test]
fn an_entry_is_a_line_and_a_row() {
    let root = tempfile::tempdir().unwrap();
    let mut log = Log::open(root.path(), None).unwrap();
    log.write(&trained(1)).unwrap();
    log.write(&json!({"step": 2, "loss": f64::NAN})).unwrap();
    log.write(&tested(2)).unwrap();
    log.sync().unwrap();
    let (lines, table) = texts(root.path());
    assert_eq!(lines.lines().count(), 3);
    assert_eq!(
        table,
        "step,epoch,loss,learning_rate,gradient_norm,images_per_second,top1,top5,test_loss\n\
         1,0.1,2.0,,,,,,\n\
         2,,,,,,,,\n\
         2,0.2,,,,,0.25,0.5,1.5\n"
    );
    assert_eq!(read(root.path()).unwrap()[2], tested(2));
    assert!(root.path().join(wave_hub::EVENTS_FILE).exists());
    // A new run replaces the log.
    Log::open(root.path(), None).unwrap();
    assert!(read(root.path()).unwrap().is_empty());
}

#[test]
fn a_log_that_goes_on_neither_repeats_nor_loses_entries() {
    // `None`: the state of the step is saved.
    let acts = [
        Some(trained(1)),
        None,
        Some(trained(2)),
        Some(tested(2)),
        None,
        Some(trained(3)),
        None,
        // The last test comes after the last state.
        Some(tested(3)),
    ];
    let perform = |log: &mut Log, acts: &[Option<Value>]| {
        for entry in acts.iter().flatten() {
            log.write(entry).unwrap();
        }
    };
    let root = tempfile::tempdir().unwrap();
    let (whole, cut) = (root.path().join("whole"), root.path().join("cut"));
    perform(&mut Log::open(&whole, None).unwrap(), &acts);
    for killed in 0..=acts.len() {
        let mut log = Log::open(&cut, None).unwrap();
        perform(&mut log, &acts[..killed]);
        log.jsonl.write_all(b"{\"step\": 3, \"lo").unwrap();
        let states = (0..killed).filter(|i| acts[*i].is_none());
        let from = states.clone().next_back().map_or(0, |i| i + 1);
        Log::open(&cut, Some(u64::MAX)).unwrap();
        let mut log = Log::open(&cut, Some(states.count() as u64)).unwrap();
        perform(&mut log, &acts[from..]);
        assert_eq!(texts(&whole), texts(&cut), "killed before act {killed}");
    }
}
