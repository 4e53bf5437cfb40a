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
    assert!(root.path().join(EVENTS_FILE).exists());
    // A new run starts anew.
    Log::open(root.path(), None).unwrap();
    assert!(read(root.path()).unwrap().is_empty());
}

#[test]
fn a_log_that_goes_on_neither_repeats_nor_loses_entries() {
    let root = tempfile::tempdir().unwrap();
    let (whole, cut) = (root.path().join("whole"), root.path().join("cut"));
    let all = [trained(1), trained(2), tested(2), trained(3), tested(3)];
    let mut log = Log::open(&whole, None).unwrap();
    for entry in &all {
        log.write(entry).unwrap();
    }
    // Killed after any entry, in the middle of a line; the checkpoint is of any step before.
    for killed in 0..=all.len() {
        for saved in 0..=3 {
            let mut log = Log::open(&cut, None).unwrap();
            for entry in &all[..killed] {
                log.write(entry).unwrap();
            }
            let known = all[..killed].iter().filter_map(step).max().unwrap_or(0);
            if saved > known {
                continue;
            }
            log.jsonl.write_all(b"{\"step\": 3, \"lo").unwrap();
            Log::open(&cut, Some(u64::MAX)).unwrap();
            let mut log = Log::open(&cut, Some(saved)).unwrap();
            let again = all.iter().filter(|entry| {
                let step = step(entry).unwrap();
                // The last test comes after the last checkpoint, and may be there already.
                step > saved || (step == 3 && entry["top1"].is_f64())
            });
            for entry in again {
                log.write(entry).unwrap();
            }
            let lost = all.iter().position(|e| step(e) == Some(saved));
            if lost.is_none_or(|first| killed > first) || killed == all.len() {
                let found = read(&cut).unwrap();
                let expected: Vec<&Value> = all
                    .iter()
                    .filter(|e| {
                        // An entry of the checkpoint's own step is written before it.
                        step(e) != Some(saved) || found.contains(e)
                    })
                    .collect();
                assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{killed} {saved}");
            }
        }
    }
    let mut log = Log::open(&cut, None).unwrap();
    for entry in &all {
        log.write(entry).unwrap();
    }
    assert_eq!(texts(&whole), texts(&cut));
}
