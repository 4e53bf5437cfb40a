//! Scalars for TensorBoard: event files that its own reader reads.
//!
//! A file is a run of records: length (u64), masked CRC of the length, an `Event` message, masked
//! CRC of the message. Each record is written in one piece when it is logged, so a killed run loses
//! nothing but, at worst, a torn last record.
//!
//! Every session of a run has a file of its own, which readers take in the order of their names. A
//! resumed run cuts the files before it at its checkpoint, so that no step comes twice or backwards.
//! It does not append to them: TensorBoard may have read beyond the cut, and goes on where it was.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::HubError;
use crate::files::read_bytes;
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
/// Length and its checksum.
const HEAD: usize = 12;
/// The message's checksum.
const TAIL: usize = 4;

/// An event file open for appending.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
}

impl EventWriter {
    /// Starts the events of a run in `dir`, creating it with its parents; those of an earlier run
    /// are lost.
    ///
    /// # Errors
    /// [`HubError::Io`] when they cannot be written.
    pub fn create(dir: &Path) -> Result<Self, HubError> {
        for (_, path) in sessions(dir)? {
            remove(&path)?;
        }
        Self::begin(&dir.join(EVENTS_FILE), &[version()])
    }

    /// Continues the events in `dir` after `step`, the last step that counts; starts them if there
    /// are none. What was logged later is removed.
    ///
    /// # Errors
    /// [`HubError::Malformed`] when a file is none that this writer made, [`HubError::Io`]
    /// when one cannot be read or written.
    pub fn resume(dir: &Path, step: u64) -> Result<Self, HubError> {
        let mut last = None;
        for (number, path) in sessions(dir)? {
            if cut(&path, step)? {
                last = Some(number);
            } else {
                remove(&path)?;
            }
        }
        let Some(last) = last else {
            return Self::create(dir);
        };
        // A reader that saw what was cut forgets it.
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
    ///
    /// # Errors
    /// [`HubError::Io`] when it cannot be written.
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

    /// Puts everything logged safely on disk. Readers see it without this.
    ///
    /// # Errors
    /// [`HubError::Io`] when the disk refuses.
    pub fn sync(&self) -> Result<(), HubError> {
        self.file
            .sync_data()
            .map_err(HubError::io("sync", &self.path))
    }
}

/// The files of the sessions in `dir`, by number.
fn sessions(dir: &Path) -> Result<Vec<(u32, PathBuf)>, HubError> {
    let entries = match fs::read_dir(dir) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(HubError::io("read the directory", dir))?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(HubError::io("read the directory", dir))?
            .path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name
            .strip_prefix(NAME.0)
            .and_then(|rest| rest.strip_suffix(NAME.1))
            .and_then(|number| number.parse().ok());
        if let Some(number) = number {
            all.push((number, path));
        }
    }
    all.sort();
    Ok(all)
}

/// Removes from an event file what is after `step`, and a torn last record. Says whether anything
/// worth keeping is left.
fn cut(path: &Path, step: u64) -> Result<bool, HubError> {
    let bytes = read_bytes(path)?;
    let (mut kept, mut scalars, mut at) = (Vec::new(), false, 0);
    while let Some(n) = first_record(&bytes[at..]) {
        let whole = &bytes[at..at + n];
        let of = step_of(&whole[HEAD..n - TAIL]);
        if of.is_none_or(|of| of <= as_step(step)) {
            kept.extend(whole);
            scalars |= of.is_some();
        }
        at += n;
    }
    // Nothing but the start of a first record: the run died at once.
    let torn = bytes.len() < record(version().as_bytes()).len();
    if at == 0 && !torn {
        return Err(HubError::malformed(
            path,
            "is not an event file, or is damaged from the start",
            "move it away; a new one is started",
        ));
    }
    if scalars && kept.len() < bytes.len() {
        crate::write_atomic(path, &kept)?;
    }
    Ok(scalars)
}

fn remove(path: &Path) -> Result<(), HubError> {
    fs::remove_file(path).map_err(HubError::io("remove", path))
}

/// The first event of every file.
fn version() -> Message {
    now().text(FILE_VERSION, VERSION)
}

/// The step of an event that this writer wrote, if it has one: the varint after the time.
fn step_of(event: &[u8]) -> Option<i64> {
    let (tag, varint) = event.get(9..)?.split_first()?;
    if u32::from(*tag) != STEP << 3 {
        return None;
    }
    let mut step = 0;
    for (i, byte) in varint.iter().take(10).enumerate() {
        step |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Some(step as i64);
        }
    }
    None
}

/// An event that so far has but its time.
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
    let mut bytes = Vec::with_capacity(HEAD + message.len() + TAIL);
    bytes.extend(length);
    bytes.extend(masked_crc(&length).to_le_bytes());
    bytes.extend(message);
    bytes.extend(masked_crc(message).to_le_bytes());
    bytes
}

/// The length of the record that `bytes` starts with, if it is whole and unbroken.
fn first_record(bytes: &[u8]) -> Option<usize> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*crc) != masked_crc(length) {
        return None;
    }
    let n = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (message, rest) = rest.split_at_checked(n)?;
    let (crc, _) = rest.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*crc) == masked_crc(message)).then_some(HEAD + n + TAIL)
}

/// The format stores CRCs rotated and shifted, so that the CRC of a record with a CRC in it is
/// not degenerate.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli).
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ crc >> 8
    })
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            // The polynomial, its bits reversed.
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
