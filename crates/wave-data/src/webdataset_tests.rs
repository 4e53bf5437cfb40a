use std::fs::File;
use std::io::Cursor;

use super::*;
use crate::tar::tests::archive;
use crate::testing::{self, check_refused};

fn indexed(files: &[(&str, &[u8])]) -> Result<Vec<u32>, String> {
    let rows = parse(&mut Cursor::new(archive(files)), Path::new("x.tar"));
    let rows = rows.map_err(|error| error.to_string())?;
    Ok(rows.iter().map(|(_, _, label)| *label).collect())
}

#[test]
fn labels_are_found_in_cls_and_json() {
    let files: [(&str, &[u8]); 8] = [
        ("b/1.jpg", b"J"),
        ("b/1.CLS", b" 12\n"),
        ("2.json", br#"{"label": 3, "x": [1]}"#),
        ("2.seg.PNG", b"P"),
        ("a/1.JPEG", b"J"),
        ("a/1.cls", b"4"),
        ("a/1.json", br#"{"label": 9}"#),
        ("a/readme.txt", b"hello"),
    ];
    assert_eq!(indexed(&files).unwrap(), [12, 3, 4]);
}

#[test]
fn a_key_has_one_sound_label() {
    let check = |labels: &[(&str, &[u8])], expected: &str| {
        let image: (&str, &[u8]) = ("1.jpg", b"J");
        let problem = indexed(&[&[image][..], labels].concat()).unwrap_err();
        assert!(problem.contains(expected), "{problem}");
    };
    check(&[], "1.jpg has no label");
    check(&[("1.cls", b"dog")], "`dog` is not a label");
    check(&[("1.cls", b"99999999999")], "is not a label");
    check(&[("1.cls", b"1000000000")], "a number from 0 to 999999");
    check(&[("1.cls", b"-1")], "is not a label");
    check(&[("1.json", b"{\"x\": 1}")], "1.json");
    check(&[("1.json", b"not JSON")], "is not a label");
    check(&[("1.cls", b"1"), ("1.cls", b"2")], "two labels for 1");
    check(&[("1.cls", b"1"), ("1.a.cls", b"2")], "two labels for 1");
    let json: (&str, &[u8]) = ("1.json", b"{\"label\": 1}");
    check(&[json, json], "two labels for 1");
}

/// Eight classes in shards with an `_info.json`: 40 images to train on, 10 to test on.
fn packed() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let part = |n: u8| crate::source::InMemory {
        size: (1, 28, 28),
        pixels: vec![7; usize::from(n) * 28 * 28],
        labels: (0..n).map(|i| i % 8).collect(),
    };
    let names = crate::source::numbered(7);
    let data = Dataset::new("eight".to_owned(), names, part(40), part(10));
    crate::pack(&data, dir.path(), 1 << 16).unwrap();
    dir
}

#[test]
fn shards_hold_what_their_description_says() {
    let dir = packed();
    let path = |name: &str| dir.path().join(name);
    // A complete archive with fewer images.
    let (shard, other) = (path("train-00000.tar"), path("val-00000.tar"));
    let sound = std::fs::read(&shard).unwrap();
    std::fs::copy(&other, &shard).unwrap();
    for spec in [dir.path(), &shard] {
        let parts = ["train-00000.tar: holds 10 images", "_info.json says "];
        check_refused(testing::open(spec), &parts);
    }
    std::fs::write(&shard, &sound[..sound.len() - 1024]).unwrap();
    let parts = ["train-00000.tar: is truncated"];
    check_refused(testing::open(dir.path()), &parts);
    std::fs::write(&shard, sound).unwrap();
    let info = std::fs::read_to_string(path(INFO)).unwrap();
    for (from, to, expected) in [
        ("samples\": 10", "samples\": 11", "num_samples = 11"),
        ("lengths\": [", "lengths\": [1, ", "shard_lengths for"),
    ] {
        std::fs::write(path(INFO), info.replace(from, to)).unwrap();
        check_refused(testing::open(dir.path()), &[expected]);
    }
}

#[test]
fn validation_shards_alone_are_to_test_on() {
    let dir = packed();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let parts = |spec: &str| {
        let data = crate::open(spec).unwrap();
        (data.train.len(), data.test.len(), data.class_names.len())
    };
    assert_eq!(parts(&path("val-00000.tar")), (0, 10, 8));
    assert_eq!(parts(&path("*.tar")), (40, 10, 8));
    assert_eq!(parts(&path("train-*.tar")), (40, 0, 8));
    std::fs::remove_file(path(INFO)).unwrap();
    assert_eq!(parts(&path("*.tar")), (40, 10, 8));
    assert_eq!(parts(&path("val-00000.tar")).1, 10);
    for k in 0..10 {
        let _ = std::fs::remove_file(path(&format!("train-{k:05}.tar")));
    }
    assert_eq!(parts(&path("")), (0, 10, 8));
}

fn write_shards(dir: &Path, prefix: &str, shards: usize) {
    for shard in 0..shards {
        let png = include_bytes!("../tests/fixtures/alpha.png");
        let label = shard.to_string();
        let files = [
            ("x.png", &png[..]),
            ("x.cls", label.as_bytes()),
            ("y.png", png),
            ("y.cls", b"1"),
        ];
        let path = dir.join(format!("{prefix}-{shard:05}.tar"));
        std::fs::write(path, archive(&files)).unwrap();
    }
}

#[test]
fn a_pattern_names_shards_in_order() {
    let dir = tempfile::tempdir().unwrap();
    write_shards(dir.path(), "train", 3);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let spec = path("train-{00000..00002}.tar");
    let data = crate::open(&spec).unwrap();
    let labels: Vec<u32> = (0..6).map(|i| data.train.label(i)).collect();
    assert_eq!(labels, [0, 1, 1, 1, 2, 1]);
    assert_eq!(data.class_names, ["0", "1", "2"]);
    assert_eq!(data.test.len(), 0);
    let image = data.train.image(4).unwrap();
    assert_eq!((image.width, image.height), (24, 16));
    assert!(data.train.name(4).contains("train-00002.tar, byte 512"));
    assert!(data.train.image(6).unwrap_err().is_request());

    write_shards(dir.path(), "val", 1);
    // A pattern names all of its files, and no others.
    assert_eq!(crate::open(&spec).unwrap().test.len(), 0);
    let both = format!("{},{}", path("train-00001.tar"), path("train-00002.tar"));
    let data = crate::open(&both).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (2, 2));
    let whole = testing::open(dir.path()).unwrap();
    assert_eq!((whole.train.len(), whole.test.len()), (6, 2));
    let more = crate::open(&path("train-{00000..00009}.tar"));
    check_refused(more, &["train-00003.tar"]);
}

#[test]
fn an_index_is_remembered_until_its_shard_changes() {
    let dir = tempfile::tempdir().unwrap();
    write_shards(dir.path(), "train", 1);
    let shard = dir.path().join("train-00000.tar");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let age = |time| {
        let file = File::options().write(true).open(&shard);
        file.unwrap().set_modified(time).unwrap();
    };
    age(old);
    let cache = dir.path().join("cache");
    let labels = || -> Vec<u32> {
        let rows = index(&shard, Some(&cache)).unwrap();
        rows.iter().map(|(_, _, label)| *label).collect()
    };
    assert_eq!(labels(), [0, 1]);
    let mut kept = std::fs::read_dir(&cache).unwrap();
    let kept = kept.next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&kept).unwrap();
    std::fs::write(&kept, text.replace(",1]", ",7]")).unwrap();
    assert_eq!(labels(), [0, 7]); // so it is read from there
    age(old + std::time::Duration::from_secs(1));
    assert_eq!(labels(), [0, 1]);
    std::fs::write(&kept, "nonsense").unwrap();
    assert_eq!(labels(), [0, 1]);
}

#[test]
fn a_directory_with_braces_in_its_name_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("a{1,2}");
    std::fs::create_dir(&own).unwrap();
    write_shards(&own, "train", 2);
    assert_eq!(testing::open(&own).unwrap().train.len(), 4);
}
