//! Scalars for TensorBoard: an event file that its own reader reads.
//!
//! The file is a run of records: length (u64), masked CRC of the length, an `Event` message,
//! masked CRC of the message. Each record is written in one piece when it is logged, so a killed
//! run loses nothing but, at worst, a torn last record, which [`EventWriter::resume`] cuts off.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::HubError;
use crate::directory::read_bytes;
use crate::proto::Message;

/// The name that [`EventWriter`]'s callers give the file: TensorBoard reads files whose name
/// holds `tfevents`.
pub const EVENTS_FILE: &str = "events.out.tfevents.0.wave";

/// Field numbers of event.proto and summary.proto.
mod schema {
    pub(super) mod event {
        pub(crate) const WALL_TIME: u32 = 1;
        pub(crate) const STEP: u32 = 2;
        pub(crate) const FILE_VERSION: u32 = 3;
        pub(crate) const SUMMARY: u32 = 5;
        pub(crate) const SESSION_LOG: u32 = 7;
    }
    pub(super) mod summary {
        pub(crate) const VALUE: u32 = 1;
    }
    pub(super) mod value {
        pub(crate) const TAG: u32 = 1;
        pub(crate) const SIMPLE_VALUE: u32 = 2;
    }
    pub(super) mod session {
        pub(crate) const STATUS: u32 = 1;
        /// Tells readers to forget what was logged from this event's step on.
        pub(crate) const START: i64 = 1;
    }
}

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
    /// Starts the file anew, creating the parent directories; what it held is lost.
    ///
    /// # Errors
    /// [`HubError::Io`] when it cannot be written.
    pub fn create(path: &Path) -> Result<Self, HubError> {
        let version = now().text(schema::event::FILE_VERSION, VERSION);
        crate::write_atomic(path, &record(version.as_bytes()))?;
        Self::append(path)
    }

    /// Continues the file after `step`, the last step that counts; starts one if there is none.
    ///
    /// A torn last record is cut off. What is otherwise there stays, since TensorBoard may have
    /// the file open; a mark tells readers that everything after `step` was not meant.
    ///
    /// # Errors
    /// [`HubError::Malformed`] when the file is none that this writer made, [`HubError::Io`]
    /// when it cannot be read or written.
    pub fn resume(path: &Path, step: u64) -> Result<Self, HubError> {
        if !path.exists() {
            return Self::create(path);
        }
        let bytes = read_bytes(path)?;
        let whole = whole_records(&bytes);
        if whole == 0 {
            // Nothing but the start of a first record: the run died at once.
            let torn = bytes.len() < record(now().text(3, VERSION).as_bytes()).len();
            if torn {
                return Self::create(path);
            }
            return Err(HubError::malformed(
                path,
                "is not an event file, or is damaged from the start",
                "move it away; a new one is started",
            ));
        }
        let mut writer = Self::append(path)?;
        if whole < bytes.len() {
            writer
                .file
                .set_len(whole as u64)
                .map_err(HubError::io("cut", path))?;
        }
        let start = Message::new().int(schema::session::STATUS, schema::session::START);
        let event = now()
            .int(schema::event::STEP, as_step(step.saturating_add(1)))
            .message(schema::event::SESSION_LOG, start);
        writer.write(&event)?;
        Ok(writer)
    }

    /// Logs the value of each tag at `step`, such as `("train/loss", 2.3)`, with the time of day.
    ///
    /// # Errors
    /// [`HubError::Io`] when it cannot be written.
    pub fn scalars(&mut self, step: u64, values: &[(&str, f32)]) -> Result<(), HubError> {
        let mut summary = Message::new();
        for (tag, value) in values {
            let value = Message::new()
                .text(schema::value::TAG, tag)
                .float(schema::value::SIMPLE_VALUE, *value);
            summary = summary.message(schema::summary::VALUE, value);
        }
        let event = now()
            .int(schema::event::STEP, as_step(step))
            .message(schema::event::SUMMARY, summary);
        self.write(&event)
    }

    /// [`EventWriter::scalars`] of one tag.
    ///
    /// # Errors
    /// [`HubError::Io`] when it cannot be written.
    pub fn scalar(&mut self, tag: &str, step: u64, value: f32) -> Result<(), HubError> {
        self.scalars(step, &[(tag, value)])
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

    fn append(path: &Path) -> Result<Self, HubError> {
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(HubError::io("write", path))?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, event: &Message) -> Result<(), HubError> {
        self.file
            .write_all(&record(event.as_bytes()))
            .map_err(HubError::io("write", &self.path))
    }
}

/// An event that so far has but its time.
fn now() -> Message {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0.0, |time| time.as_secs_f64());
    Message::new().double(schema::event::WALL_TIME, seconds)
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

/// How many bytes the unbroken records at the start take.
fn whole_records(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(n) = first_record(&bytes[at..]) {
        at += n;
    }
    at
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
