//! Scalars for TensorBoard: event files that its own reader reads.
//!
//! A file is a run of records: length (u64), masked CRC of the length, an `Event` message, masked CRC of the message.
//! Each record is written in one piece, so a killed run loses at worst its last record.
//!
//! Every session of a run has its own file, and readers take the files in the order of their names. The file of a
//! resumed run starts with an event that tells readers to discard later steps of the files before it. Earlier files
//! stay unchanged: TensorBoard may have read them already, and continues where it was.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::HubError;
use crate::proto::Message;

/// The file of a run's first session: TensorBoard reads files whose name holds `tfevents`.
pub const EVENTS_FILE: &str = "events.out.tfevents.0.wave";
/// The prefix and suffix of the number of a session.
const NAME: (&str, &str) = ("events.out.tfevents.", ".wave");

// Field numbers of event.proto and summary.proto.
const WALL_TIME: u32 = 1;
const STEP: u32 = 2;
const FILE_VERSION: u32 = 3;
const SUMMARY: u32 = 5;
const SESSION_LOG: u32 = 7;
const SUMMARY_VALUE: u32 = 1;
const VALUE_TAG: u32 = 1;
const VALUE_SIMPLE: u32 = 2;
const SESSION_STATUS: u32 = 1;
/// Tells readers to forget what was logged from this event's step on.
const SESSION_START: i64 = 1;

/// The format's name for itself; from version 2 on, readers honour session starts.
const VERSION: &str = "brain.Event:2";
/// An event file open for appending.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
}

impl EventWriter {
    /// Continues the events in `dir` after the last step that counts: readers discard later ones. Without such a step,
    /// or without events, starts them, creating the directory with its parents; the events of an earlier run are lost.
    pub fn open(dir: &Path, after: Option<u64>) -> Result<Self, HubError> {
        let earlier = sessions(dir)?;
        let last = earlier.iter().map(|(number, _)| number).max();
        let (Some(step), Some(last)) = (after, last) else {
            for (_, path) in earlier {
                fs::remove_file(&path).map_err(HubError::io("remove", &path))?;
            }
            return Self::begin(&dir.join(EVENTS_FILE), &[version()]);
        };
        let start = Message::new().int(SESSION_STATUS, SESSION_START);
        let start = now()
            .int(STEP, as_step(step.saturating_add(1)))
            .message(SESSION_LOG, start);
        let (before, after) = NAME;
        // After `0.` in the order of names, and so on to five digits.
        let path = dir.join(format!("{before}{:05}{after}", last + 1));
        Self::begin(&path, &[version(), start])
    }

    fn begin(path: &Path, events: &[Message]) -> Result<Self, HubError> {
        let records: Vec<u8> = events.iter().flat_map(|e| record(e.as_bytes())).collect();
        crate::write_atomic(path, &records)?;
        let file = OpenOptions::new().append(true).open(path);
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(HubError::io("write", path))?,
        })
    }

    /// Logs the value of each tag at `step`, such as `("train/loss", 2.3)`, with the time of day.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f32)]) -> Result<(), HubError> {
        let mut summary = Message::new();
        for (tag, value) in values {
            let value = Message::new()
                .text(VALUE_TAG, tag)
                .float(VALUE_SIMPLE, *value);
            summary = summary.message(SUMMARY_VALUE, value);
        }
        let event = now().int(STEP, as_step(step)).message(SUMMARY, summary);
        let written = self.file.write_all(&record(event.as_bytes()));
        written.map_err(HubError::io("write", &self.path))
    }

    /// Syncs everything logged to disk. Readers see it even without this.
    pub fn sync(&self) -> Result<(), HubError> {
        let synced = self.file.sync_data();
        synced.map_err(HubError::io("sync", &self.path))
    }
}

/// The files of the sessions in `dir`, each with its number.
fn sessions(dir: &Path) -> Result<Vec<(u32, PathBuf)>, HubError> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let failed = || HubError::io("read the directory", dir);
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let rest = name.strip_prefix(NAME.0);
        let number = rest.and_then(|rest| rest.strip_suffix(NAME.1)?.parse().ok());
        all.extend(number.map(|number| (number, path.clone())));
    }
    Ok(all)
}

/// The first event of every file.
fn version() -> Message {
    now().text(FILE_VERSION, VERSION)
}

/// An event with only its time.
fn now() -> Message {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0.0, |time| time.as_secs_f64());
    Message::new().double(WALL_TIME, seconds)
}

fn as_step(step: u64) -> i64 {
    i64::try_from(step).unwrap_or(i64::MAX)
}

fn record(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    let mut bytes = Vec::with_capacity(16 + message.len());
    bytes.extend(length);
    bytes.extend(masked_crc(&length).to_le_bytes());
    bytes.extend(message);
    bytes.extend(masked_crc(message).to_le_bytes());
    bytes
}

/// CRCs are stored rotated and shifted, so that the CRC of a record with a CRC in it is not degenerate.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bit by bit: records are short.
fn crc32c(bytes: &[u8]) -> u32 {
    // The polynomial, its bits reversed.
    let shift = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| shift(crc))
    })
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
