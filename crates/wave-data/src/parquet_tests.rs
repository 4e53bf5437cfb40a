use std::sync::Arc;

use ::parquet::basic::Compression;
use ::parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use proptest::prelude::*;

use crate::testing;

const SCHEMA: &str = "message schema {
    optional group image { optional binary bytes; optional binary path (UTF8); }
    optional int64 label;
}";

/// Row groups of 40 rows; row i is an image of class i mod 5, but `without` has none.
fn write(rows: usize, without: Option<usize>) -> Vec<u8> {
    let png = include_bytes!("../tests/fixtures/alpha.png");
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_data_page_row_count_limit(7)
        .set_write_batch_size(7)
        .build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties)).unwrap();
    for group in (0..rows).collect::<Vec<_>>().chunks(40) {
        let mut out = writer.next_row_group().unwrap();
        for kind in 0..3 {
            let mut column = out.next_column().unwrap().unwrap();
            if kind == 2 {
                let labels: Vec<i64> = group.iter().map(|&i| i as i64 % 5).collect();
                let levels = vec![1; labels.len()];
                let column = column.typed::<Int64Type>();
                column.write_batch(&labels, Some(&levels), None).unwrap();
            } else {
                let there = |i: &&usize| Some(**i) != without || kind == 1;
                // A suffix for each row after the image, so that no two are equal.
                let value = |&i: &usize| ByteArray::from([&png[..], &i.to_le_bytes()].concat());
                let values: Vec<ByteArray> = group.iter().filter(there).map(value).collect();
                let level = |i| 1 + i16::from(there(&i));
                let levels: Vec<i16> = group.iter().map(level).collect();
                let column = column.typed::<ByteArrayType>();
                column.write_batch(&values, Some(&levels), None).unwrap();
            }
            column.close().unwrap();
        }
        out.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

#[test]
fn any_row_is_read_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("train-0.parquet"), write(100, Some(63))).unwrap();
    std::fs::write(dir.path().join("train-1.parquet"), write(30, None)).unwrap();
    std::fs::write(dir.path().join("validation-0.parquet"), write(8, None)).unwrap();
    for pattern in ["*.parquet", "{train-0,train-1,validation-0}.parquet"] {
        let data = testing::open(&dir.path().join(pattern)).unwrap();
        assert_eq!((data.train.len(), data.test.len()), (130, 8));
        assert_eq!(data.class_names.len(), 5);
        for i in [0, 6, 7, 39, 40, 62, 64, 99, 100, 129] {
            let (row, label) = (i % 100, i as u32 % 5);
            assert_eq!(data.train.label(i), label);
            let bytes = data.train.encoded(i).unwrap().unwrap();
            assert_eq!(bytes[bytes.len() - 8..], row.to_le_bytes());
            assert_eq!(data.train.image(i).unwrap().width, 24);
        }
        let missing = "row group 1, row 23: has no bytes";
        testing::check_refused(data.train.image(63), &[missing]);
        testing::check_refused(data.train.image(130), &[]);
    }
}

#[test]
fn what_is_no_parquet_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    for bytes in [&b"text"[..], b"PAR1PAR1", &write(8, None)[..200]] {
        std::fs::write(&path, bytes).unwrap();
        testing::check_refused(testing::open(&path), &["not a valid parquet"]);
    }
    // Found by fuzzing: a page's header begins a list of 2^31 elements, and the file ends.
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/parquet");
    let opened = crate::open(&format!("{corpus}/endless.parquet"));
    testing::check_refused(opened, &["not a valid parquet"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn damage_does_no_harm(at: prop::sample::Index, with: u8, in_footer: bool, cut: prop::sample::Index, whole: bool) {
        let mut bytes = write(50, None);
        let footer = if in_footer { bytes.len() - 600 } else { 0 };
        let at = footer + at.index(bytes.len() - footer);
        bytes[at] = with;
        if !whole {
            let cut = cut.index(bytes.len());
            bytes.drain(cut..(cut + 10).min(bytes.len()));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.parquet");
        std::fs::write(&path, bytes).unwrap();
        if let Ok(data) = testing::open(&path) {
            for i in 0..data.train.len().min(50) {
                let _ = data.train.image(i);
            }
        }
    }
}
