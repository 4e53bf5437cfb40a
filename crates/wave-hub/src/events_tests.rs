use std::fs;

use super::*;
use crate::proto::tests::{Field, all, one};
use crate::testing::names;

/// The messages of an event file up to a torn record.
fn messages(path: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(path).unwrap();
    let (mut rest, mut all) = (&bytes[..], Vec::new());
    while let Some((length, body)) = rest.split_first_chunk::<8>() {
        let n = u64::from_le_bytes(*length) as usize;
        if body.len() < 4 + n + 4 {
            break;
        }
        let message = &body[4..4 + n];
        let whole = record(message);
        assert_eq!(rest[..whole.len()], whole);
        all.push(message.to_vec());
        rest = &rest[whole.len()..];
    }
    all
}

/// Steps and values of the scalar `tag` in a run's directory, as a reader that takes file after file
/// sees them.
fn series(dir: &Path, tag: &str) -> Vec<(i64, f32)> {
    let mut seen: Vec<(i64, f32)> = Vec::new();
    for name in names(dir) {
        let messages = messages(&dir.join(name));
        let Some((first, events)) = messages.split_first() else {
            continue;
        };
        assert_eq!(one(first, 3).text(), VERSION);
        for event in events {
            // Step 0 is written out too.
            let step = one(event, 2).int();
            if !all(event, 7).is_empty() {
                seen.retain(|(s, _)| *s < step);
                continue;
            }
            for value in all(one(event, 5).bytes(), 1) {
                if one(value.bytes(), 1).text() == tag
                    && let Field::Float(v) = one(value.bytes(), 2)
                {
                    seen.push((step, v));
                }
            }
        }
    }
    assert!(seen.is_sorted_by_key(|(step, _)| *step), "{seen:?}");
    seen
}

#[test]
fn the_checksum_is_castagnolis() {
    // RFC 3720, B.4: 32 zero bytes, 32 bytes of 0xff, 0..32, and the check value of the catalogue.
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn scalars_read_back() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("run");
    let mut writer = EventWriter::open(&dir, None).unwrap();
    writer.scalars(0, &[("loss", 2.5)]).unwrap();
    writer.scalars(1, &[("loss", 2.25), ("top1", 0.5)]).unwrap();
    writer.scalars(2, &[("loss", f32::NAN)]).unwrap();
    writer.sync().unwrap();
    let loss = series(&dir, "loss");
    assert_eq!(loss[..2], [(0, 2.5), (1, 2.25)]);
    assert!(loss[2].1.is_nan());
    assert_eq!(series(&dir, "top1"), [(1, 0.5)]);
    EventWriter::open(&dir, None).unwrap();
    assert!(series(&dir, "loss").is_empty());
}

#[test]
fn a_resumed_run_forgets_what_came_after_its_checkpoint() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let mut writer = EventWriter::open(dir, None).unwrap();
    for step in 0..5 {
        writer.scalars(step, &[("loss", step as f32)]).unwrap();
    }
    let mut writer = EventWriter::open(dir, Some(2)).unwrap();
    for step in 3..300 {
        writer.scalars(step, &[("loss", 30.0)]).unwrap();
    }
    // A session that logs nothing before it is resumed.
    EventWriter::open(dir, Some(200)).unwrap();
    let mut writer = EventWriter::open(dir, Some(3)).unwrap();
    writer.scalars(4, &[("loss", 40.0)]).unwrap();
    let expected = [(0, 0.0), (1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0)];
    assert_eq!(series(dir, "loss"), expected);
    // Resume from before the end of the first session.
    let mut writer = EventWriter::open(dir, Some(1)).unwrap();
    writer.scalars(2, &[("loss", 20.0)]).unwrap();
    assert_eq!(series(dir, "loss"), [(0, 0.0), (1, 1.0), (2, 20.0)]);
}

#[test]
fn a_file_torn_at_any_byte_is_continued() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let path = dir.join(EVENTS_FILE);
    let mut writer = EventWriter::open(dir, None).unwrap();
    writer.scalars(1, &[("loss", 1.0)]).unwrap();
    let first = fs::read(&path).unwrap().len();
    writer.scalars(2, &[("loss", 2.0)]).unwrap();
    let bytes = fs::read(&path).unwrap();
    for n in 0..bytes.len() {
        EventWriter::open(dir, None).unwrap();
        fs::write(&path, &bytes[..n]).unwrap();
        let mut writer = EventWriter::open(dir, Some(1)).unwrap();
        writer.scalars(2, &[("loss", 3.0)]).unwrap();
        let expected: &[(i64, f32)] = match n >= first {
            true => &[(1, 1.0), (2, 3.0)],
            false => &[(2, 3.0)],
        };
        assert_eq!(series(dir, "loss"), expected, "cut at {n}");
    }
}
