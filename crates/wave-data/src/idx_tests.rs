use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;
use crate::testing;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn file(magic: u32, sizes: &[u32], values: &[u8]) -> Vec<u8> {
    let header = [magic].into_iter().chain(sizes.iter().copied());
    let mut bytes: Vec<u8> = header.flat_map(u32::to_be_bytes).collect();
    bytes.extend(values);
    bytes
}

fn images(n: usize, (rows, columns): (usize, usize)) -> Vec<u8> {
    let values: Vec<u8> = (0..n * rows * columns).map(|i| (i % 251) as u8).collect();
    file(0x803, &[n as u32, rows as u32, columns as u32], &values)
}

fn labels(n: usize) -> Vec<u8> {
    let values: Vec<u8> = (0..n).map(|i| (i % 10) as u8).collect();
    file(0x801, &[n as u32], &values)
}

/// Writes a whole data set: 12 training images, 4 test images; labels cycle from 0 to 9.
pub(crate) fn write_idx(dir: &Path, size: (usize, usize), compressed: bool) {
    for (part, n) in [("train", 12), ("t10k", 4)] {
        for (kind, bytes) in [(IMAGES, images(n, size)), (LABELS, labels(n))] {
            let name = format!("{part}-{kind}");
            if compressed {
                fs::write(dir.join(name + ".gz"), gzip(&bytes)).unwrap();
            } else {
                fs::write(dir.join(name), bytes).unwrap();
            }
        }
    }
}

#[test]
fn plain_and_compressed_files_hold_the_same() {
    for (compressed, size) in [(false, (6, 5)), (true, (6, 5)), (true, (1, 1))] {
        let dir = tempfile::tempdir().unwrap();
        write_idx(dir.path(), size, compressed);
        let data = testing::open(dir.path()).unwrap();
        let own_name = dir.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(data.name, own_name);
        assert_eq!((data.train.len(), data.test.len()), (12, 4));
        assert_eq!(data.train.native_size(), Some((1, size.0, size.1)));
        assert_eq!(data.class_names[9], "9");
        assert_eq!(data.train.label(11), 1);
        let image = data.train.image(2).unwrap();
        assert_eq!(((image.height, image.width), image.channels), (size, 1));
        let first = 2 * (size.0 * size.1) as u8;
        let expected: Vec<u8> = (first..first / 2 * 3).collect();
        assert_eq!(image.pixels, expected);
        assert!(data.train.image(12).unwrap_err().is_request());
    }
}

/// Replaces one file of a valid data set; opening it must fail with this message.
#[track_caller]
fn check_refused(name: &str, bytes: Option<Vec<u8>>, expected: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    write_idx(dir.path(), (6, 5), false);
    let stem = dir.path().join(name.trim_end_matches(".gz"));
    fs::remove_file(stem).unwrap();
    if let Some(bytes) = bytes {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    testing::check_refused(testing::open(dir.path()), expected);
}

#[test]
fn malformed_files_are_refused() {
    let name = "train-images-idx3-ubyte";
    let sound = images(12, (6, 5));
    check_refused(name, None, &["neither train-images", "nor", ".gz"]);
    check_refused(name, Some(vec![]), &[name, "within its header"]);
    check_refused(name, Some(sound[..10].to_vec()), &["within its header"]);
    check_refused(name, Some(sound[..100].to_vec()), &["360 bytes", "only 84"]);
    let long = [&sound[..], b"x"].concat();
    check_refused(name, Some(long), &[name, "too long"]);
    check_refused(name, Some(labels(12)), &["0x00000801", "0x00000803"]);
    let text = b"not at all IDX".to_vec();
    check_refused(name, Some(text), &["expected 0x00000803"]);
    check_refused(name, Some(images(11, (6, 5))), &["11 images", "12 labels"]);
    check_refused(name, Some(images(12, (5, 6))), &["5 x 6", "6 x 5"]);
    let lying = |sizes: &[u32]| Some(file(0x803, sizes, &[1, 2, 3]));
    check_refused(name, lying(&[u32::MAX; 3]), &["impossible"]);
    check_refused(name, lying(&[60_000, 4096, 4096]), &["only 3 follow"]);
    check_refused(name, lying(&[12, 0, 5]), &["at least one"]);
}

#[test]
fn malformed_compression_is_refused() {
    let name = "t10k-images-idx3-ubyte.gz";
    let sound = gzip(&images(4, (6, 5)));
    let cut = sound[..sound.len() - 20].to_vec();
    check_refused(name, Some(cut), &[name, "is damaged"]);
    let mut checksum = sound.clone();
    let at = checksum.len() - 6;
    checksum[at] ^= 1;
    check_refused(name, Some(checksum), &[name, "is damaged"]);
    let garbage = [&[0x1F, 0x8B][..], &[0xEE; 40]].concat();
    check_refused(name, Some(garbage), &[name, "is damaged"]);
    check_refused(name, Some(vec![0xEE; 40]), &["0xeeeeeeee"]);
    // A bomb stops at the declared size: 64 MiB of zeros in 64 KiB; the header declares 120 bytes of them.
    let mut bomb = file(0x803, &[4, 6, 5], &[]);
    bomb.resize(64 << 20, 0);
    check_refused(name, Some(gzip(&bomb)), &["too long", "120 bytes"]);
}

#[test]
fn labels_without_a_name_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_idx(dir.path(), (6, 5), true);
    let two = vec!["a".to_owned(), "b".to_owned()];
    let opened = open(dir.path(), "pairs".to_owned(), two);
    testing::check_refused(opened, &["a label 9", "pairs has 2 classes"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fn read_all<const N: usize>(bytes: &[u8]) {
            let header = file(0x800 + N as u32, &[], bytes);
            let damaged = [&[0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3][..], bytes].concat();
            for content in [bytes, &header, &gzip(&header), &damaged] {
                let _ = parse::<N>(content, Path::new("x"));
            }
        }
        read_all::<1>(&bytes);
        read_all::<3>(&bytes);
    }
}
