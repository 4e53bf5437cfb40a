//! The log of a run, in three files with the same content: JSON lines, CSV, and scalars for TensorBoard.
//!
//! A resumed run drops the entries after its checkpoint, since it writes them again. Speeds and timestamps differ
//! between runs; all else is the same for the same settings, interrupted or not.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use wave_hub::{EventWriter, HubError};

/// The file that wave reads back.
pub const LOG_FILE: &str = "log.jsonl";
/// The same as CSV.
pub const CSV_FILE: &str = "log.csv";

/// Keys of entries, which are also the table's columns, with TensorBoard's tags.
const COLUMNS: [(&str, Option<&str>); 9] = [
    ("step", None),
    ("epoch", Some("epoch")),
    ("loss", Some("train/loss")),
    ("learning_rate", Some("train/learning_rate")),
    ("gradient_norm", Some("train/gradient_norm")),
    ("images_per_second", Some("train/images_per_second")),
    ("top1", Some("test/top1")),
    ("top5", Some("test/top5")),
    ("test_loss", Some("test/loss")),
];

/// An open log.
pub struct Log {
    jsonl: fs::File,
    csv: fs::File,
    events: EventWriter,
    /// Entries that were there when the log was opened.
    kept: BTreeSet<(u64, bool)>,
}

impl Log {
    /// Opens the log in `dir`: a new one, or, with `keep`, the existing one without its entries after
    /// that step.
    pub fn open(dir: &Path, keep: Option<u64>) -> Result<Log> {
        let mut entries = match keep {
            Some(_) => read(dir)?,
            None => Vec::new(),
        };
        entries.retain(|entry| step(entry).is_some_and(|step| Some(step) <= keep));
        let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
        let names: Vec<&str> = COLUMNS.iter().map(|(key, _)| *key).collect();
        let rows: String = entries.iter().map(row).collect();
        let table = names.join(",") + "\n" + &rows;
        let last = entries.iter().filter_map(step).max().unwrap_or(0);
        // The entries of the last step are written again: the process may have been killed between two
        // files.
        let mut events = EventWriter::open(dir, keep.map(|_| last.saturating_sub(1)))?;
        for entry in entries.iter().filter(|e| step(e) >= Some(last)) {
            scalars(&mut events, entry)?;
        }
        Ok(Log {
            jsonl: append_to(&dir.join(LOG_FILE), &lines)?,
            csv: append_to(&dir.join(CSV_FILE), &table)?,
            events,
            kept: entries.iter().filter_map(identity).collect(),
        })
    }

    /// Writes an entry, an object of numbers with a `step`, unless the resumed log already has it.
    pub fn write(&mut self, entry: &Value) -> Result<()> {
        if identity(entry).is_some_and(|id| self.kept.contains(&id)) {
            return Ok(());
        }
        // One write for each line, so that a kill rarely leaves half of it.
        let line = format!("{entry}\n");
        let written = self.jsonl.write_all(line.as_bytes());
        written.with_context(|| format!("cannot write {LOG_FILE}"))?;
        let written = self.csv.write_all(row(entry).as_bytes());
        written.with_context(|| format!("cannot write {CSV_FILE}"))?;
        scalars(&mut self.events, entry)
    }

    /// Flushes everything to disk, so that no checkpoint is ahead of its log.
    pub fn sync(&self) -> Result<()> {
        for (file, name) in [(&self.jsonl, LOG_FILE), (&self.csv, CSV_FILE)] {
            file.sync_data()
                .with_context(|| format!("cannot sync {name}"))?;
        }
        Ok(self.events.sync()?)
    }
}

/// The entries in the directory of a run, oldest first; none without a log. An incomplete line is
/// skipped.
pub fn read(dir: &Path) -> Result<Vec<Value>> {
    let path = dir.join(LOG_FILE);
    let bytes = match wave_hub::read_bytes(&path) {
        Err(HubError::Missing { .. }) => return Ok(Vec::new()),
        read => read?,
    };
    Ok(String::from_utf8_lossy(&bytes)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

/// The values of a key over the epochs.
pub fn over_epochs(entries: &[Value], key: &str) -> Vec<(f64, f64)> {
    let point = |e: &Value| Some((e["epoch"].as_f64()?, e[key].as_f64()?));
    entries.iter().filter_map(point).collect()
}

/// Replaces the content of a file and leaves it open for appending.
fn append_to(path: &Path, content: &str) -> Result<fs::File> {
    wave_hub::write_atomic(path, content.as_bytes())?;
    fs::OpenOptions::new()
        .append(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn step(entry: &Value) -> Option<u64> {
    entry["step"].as_u64()
}

/// Identity of an entry: its step, and whether it is a test.
fn identity(entry: &Value) -> Option<(u64, bool)> {
    Some((step(entry)?, !entry["top1"].is_null()))
}

/// An entry as a row of the table, whose columns are all numbers.
fn row(entry: &Value) -> String {
    let cells = COLUMNS.map(|(key, _)| match &entry[key] {
        Value::Number(n) => n.to_string(),
        _ => String::new(),
    });
    cells.join(",") + "\n"
}

fn scalars(events: &mut EventWriter, entry: &Value) -> Result<()> {
    let values: Vec<(&str, f32)> = COLUMNS
        .iter()
        .filter_map(|(key, tag)| Some(((*tag)?, entry[*key].as_f64()? as f32)))
        .collect();
    Ok(events.scalars(step(entry).unwrap_or(0), &values)?)
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
