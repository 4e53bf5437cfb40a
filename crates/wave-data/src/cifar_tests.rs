use std::fs;

use super::*;
use crate::testing::{self, check_refused};

fn record(labels: &[u8], red: u8) -> Vec<u8> {
    let mut bytes = labels.to_vec();
    for value in [red, 2, 3] {
        bytes.extend([value; SIDE * SIDE]);
    }
    bytes
}

#[test]
fn both_data_sets_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let ten = dir.path();
    let two = [record(&[3], 7), record(&[9], 8)].concat();
    fs::write(ten.join("data_batch_1.bin"), two).unwrap();
    fs::write(ten.join("data_batch_2.bin"), record(&[4], 9)).unwrap();
    fs::write(ten.join("test_batch.bin"), record(&[0], 1)).unwrap();
    let names: Vec<String> = (0..10).map(|k| format!("class {k}")).collect();
    fs::write(ten.join("batches.meta.txt"), names.join("\n") + "\n\n").unwrap();
    let data = testing::open(ten).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (3, 1));
    assert_eq!([0, 1, 2].map(|i| data.train.label(i)), [3, 9, 4]);
    assert_eq!(data.class_names[9], "class 9");
    assert_eq!(data.train.native_size(), Some((3, 32, 32)));
    let image = data.train.image(2).unwrap();
    assert_eq!(image.channels, 3);
    assert_eq!(image.pixels[..6], [9, 2, 3, 9, 2, 3]);

    let dir = tempfile::tempdir().unwrap();
    for file in ["train.bin", "test.bin"] {
        fs::write(dir.path().join(file), record(&[19, 99], 5)).unwrap();
    }
    let data = testing::open(dir.path()).unwrap();
    assert_eq!((data.train.label(0), data.class_names.len()), (99, 100));
}

#[test]
fn files_of_another_length_or_label_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("test_batch.bin"), record(&[0], 1)).unwrap();
    for (bytes, expected) in [
        (record(&[10], 1), "label 10"),
        (vec![0; 100], "100 bytes"),
        (vec![0; 2 * VALUES], "6144 bytes"),
        (vec![], "0 bytes"),
    ] {
        fs::write(dir.path().join("data_batch_1.bin"), bytes).unwrap();
        check_refused(testing::open(dir.path()), &[expected]);
    }
    fs::remove_file(dir.path().join("data_batch_1.bin")).unwrap();
    check_refused(testing::open(dir.path()), &["data_batch_1.bin"]);
}
