//! Round trips, exact bytes, and every kind of broken file.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::testing::{check_equal, check_refused, check_text, counting, names, weights};

fn pt() -> Metadata {
    Metadata::from([("format".to_owned(), "pt".to_owned())])
}

/// A file of the given header text and data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

/// The header's entry of a tensor.
fn entry(name: &str, dtype: &str, shape: &str, offsets: &str) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}"#)
}

/// A file of these entries and data.
fn file_of(entries: &[String], data: &[u8]) -> Vec<u8> {
    file(&format!("{{{}}}", entries.join(",")), data)
}

/// The bytes of a file that is written here.
fn written(weights: &Weights, metadata: &Metadata) -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.safetensors");
    write_tensors(&path, weights, metadata).unwrap();
    fs::read(&path).unwrap()
}

fn read_written(bytes: &[u8]) -> Result<(Weights, Metadata), HubError> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("broken.safetensors");
    fs::write(&path, bytes).unwrap();
    read_tensors(&path)
}

/// Asserts that `bytes` are refused with the file's name and each of `parts`.
#[track_caller]
fn check_broken(bytes: &[u8], parts: &[&str]) {
    let parts = [&["broken.safetensors"], parts].concat();
    check_refused(read_written(bytes), &parts);
}

fn sample() -> Weights {
    let mut sample = weights(&[
        ("head.bias", &[3]),
        ("blocks.0.weight", &[2, 3]),
        ("scale", &[]),
        ("none", &[0, 4]),
    ]);
    let steps = Tensor::new(7i64, &Device::Cpu).unwrap();
    sample.insert("bn.num_batches_tracked".to_owned(), steps);
    sample
}

fn sample_bytes() -> Vec<u8> {
    written(&sample(), &pt())
}

#[test]
fn the_bytes_are_exactly_the_format() {
    let mut three = weights(&[("b", &[2]), ("a", &[1, 1])]);
    let steps = Tensor::new(5i64, &Device::Cpu).unwrap();
    three.insert("n.num_batches_tracked".to_owned(), steps);
    let metadata = [("z", "1"), ("format", "pt"), ("a", "2")];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let json = concat!(
        r#"{"__metadata__":{"a":"2","format":"pt","z":"1"},"#,
        r#""n.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"#,
        r#""a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},"#,
        r#""b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}}"#,
    );
    let padded = format!("{json:<width$}", width = json.len().next_multiple_of(8));
    let mut data = 5i64.to_le_bytes().to_vec();
    for value in [0.5f32, 0.5, 1.5] {
        data.extend(value.to_le_bytes());
    }
    let bytes = written(&three, &Metadata::from(metadata));
    assert_eq!(bytes, file(&padded, &data));
}

#[test]
fn the_same_content_gives_the_same_bytes_whatever_the_strides() {
    let turned = counting(&[3, 2]).t().unwrap(); // (2, 3), not contiguous
    assert!(!turned.is_contiguous());
    let narrowed = counting(&[4, 2]).narrow(0, 1, 2).unwrap(); // (2, 2), an offset into (4, 2)
    let strided = Weights::from([("t".to_owned(), turned), ("v".to_owned(), narrowed)]);
    let contiguous = strided.iter().map(|(name, tensor)| {
        let plain = tensor.force_contiguous().unwrap();
        (name.clone(), plain)
    });
    let bytes = written(&strided, &pt());
    check_equal(&read_written(&bytes).unwrap().0, &strided);
    assert_eq!(written(&contiguous.collect(), &pt()), bytes);
}

#[test]
fn f32_is_kept_bit_for_bit_and_narrow_floats_are_widened() {
    let bits = [0x7fc0_0001u32, 0xff80_0000, 0x8000_0000, 1, 0x7f7f_ffff];
    let mut data: Vec<u8> = bits.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    // python3 -c "import struct; print(struct.pack('<3e', 1, -0.1, 65504).hex())" -> 003c66aeff7b
    data.extend([0x00, 0x3c, 0x66, 0xae, 0xff, 0x7b]);
    // bf16 is the upper half of f32: 1.0 = 3f80, -2.5 = c020
    data.extend([0x80, 0x3f, 0x20, 0xc0]);
    let entries = [
        entry("whole", "F32", "[5]", "[0,20]"),
        entry("half", "F16", "[3]", "[20,26]"),
        entry("brain", "BF16", "[1,2]", "[26,30]"),
    ];
    let (read, _) = read_written(&file_of(&entries, &data)).unwrap();
    let whole = read["whole"].to_vec1::<f32>().unwrap();
    assert!(whole.iter().map(|value| value.to_bits()).eq(bits));
    let half = read["half"].to_vec1::<f32>().unwrap();
    assert_eq!(half, [1.0, -0.099975586, 65504.0]);
    assert_eq!(read["brain"].to_vec2::<f32>().unwrap(), [[1.0, -2.5]]);
}

#[test]
fn a_good_file_may_begin_like_a_pickle() {
    // The header's length is the first byte: 0x80 for a header of 128 bytes.
    let header = format!("{{{}}}", entry("x", "F32", "[1]", "[0,4]"));
    let bytes = file(&format!("{header:<128}"), &[0; 4]);
    assert_eq!(bytes[0], 0x80);
    assert_eq!(read_written(&bytes).unwrap().0.len(), 1);
    check_broken(&bytes[..130], &["128 bytes", "122 bytes follow", "again"]);
}

#[test]
fn files_of_another_format_are_recognised() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n";
    let numbers = file(r#"{"__metadata__":{"step":3}}"#, &[]);
    let no_object = &["not a JSON object"][..];
    for (bytes, parts) in [
        (&b""[..], &["is empty (0 bytes)"][..]),
        (b"short", &["5 bytes", "fewer than the 8"]),
        (b"PK\x03\x04 and so on", &["zip archive", "save_file"]),
        (b"\x80\x02}q\x00X\x01\x00\x00\x00", &["pickle", "save_file"]),
        (b"\x80", &["pickle"]),
        (pointer, &["Git LFS pointer", "git lfs pull"]),
        (
            b"\x89PNG\r\n\x1a\n01234567",
            &["is a PNG image", ".safetensors"],
        ),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", &["is a JPEG image", ".pth"]),
        (
            b"{\n  \"architecture\": 1}",
            &["is text", "model directory"],
        ),
        (&file("not json", &[]), no_object),
        (&file("[]", &[]), no_object),
        (&file("\u{7f}\u{ff}", &[]), no_object),
        (&numbers, &["expected strings"]),
    ] {
        check_broken(bytes, parts);
    }
}

#[test]
fn a_lying_header_length_is_refused() {
    let mut bytes = sample_bytes();
    for length in [u64::MAX, 1 << 40, bytes.len() as u64 - 7] {
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        check_broken(&bytes, &[&length.to_string(), "bytes follow", "again"]);
    }
    bytes[..8].copy_from_slice(&3u64.to_le_bytes());
    check_broken(&bytes, &["not a JSON object"]);
}

#[test]
fn every_truncation_is_refused() {
    let bytes = sample_bytes();
    for n in 0..bytes.len() {
        check_broken(&bytes[..n], &["again"]);
    }
    check_broken(&bytes[..bytes.len() - 1], &["`scale`", "the file holds"]);
    check_broken(&[&bytes[..], b"x"].concat(), &["belong to no tensor"]);
}

#[test]
fn impossible_entries_are_refused_by_name() {
    let check = |name: &str, dtype: &str, shape: &str, offsets: &str, expected: &str| {
        let bytes = file_of(&[entry(name, dtype, shape, offsets)], &[0; 8]);
        check_broken(&bytes, &[&format!("`{name}`"), expected]);
    };
    for (dtype, shape, offsets, expected) in [
        ("F32", "[3]", "[0,8]", "needs 12 bytes, but has 8"),
        ("F32", "[1]", "[8,4]", "before its start"),
        ("F32", "[2]", "[4,12]", "the file holds 8"),
        ("F32", "[1]", "[4,8]", "leave a gap"),
        ("F32", "[4294967296,4294967296]", "[0,8]", "impossible"),
        ("F32", "[0,4294967296,4294967296,4]", "[0,0]", "impossible"),
        ("F32", "[-1]", "[0,8]", "broken header entry"),
        ("F32", "[2]", "[0]", "broken header entry"),
        ("F64", "[1]", "[0,8]", "type F64; weights are F32"),
        ("I64", "[1]", "[0,8]", "type I64"),
        ("I32", "[2]", "[0,8]", "type I32"),
        ("U8", "[8]", "[0,8]", "type U8"),
        ("BOOL", "[8]", "[0,8]", "type BOOL"),
        ("F33", "[2]", "[0,8]", "F33"), // does not exist
    ] {
        check("w", dtype, shape, offsets, expected);
    }
    // Not a scalar, so not a step count.
    check("num_batches_tracked", "I64", "[1]", "[0,8]", "type I64");
    let overlapping = [
        entry("a", "F32", "[2]", "[0,8]"),
        entry("b", "F32", "[2]", "[4,12]"),
    ];
    check_broken(&file_of(&overlapping, &[0; 12]), &["`b`", "overlap"]);
}

#[test]
fn offsets_whose_sum_overflows_are_refused() {
    // Eight tensors end to end: eight bytes more for the header's length pass the last address.
    let step = (1u64 << 61) - 1;
    let entries = (0..8).map(|i| {
        let offsets = format!("[{},{}]", i * step, (i + 1) * step);
        entry(&format!("t{i}"), "U8", &format!("[{step}]"), &offsets)
    });
    check_broken(&file_of(&entries.collect::<Vec<_>>(), &[0; 8]), &["`t0`"]);
}

#[test]
fn what_could_not_be_read_back_is_not_written() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.safetensors");
    let reserved = weights(&[("__metadata__", &[1])]);
    let error = write_tensors(&path, &reserved, &pt()).unwrap_err();
    assert!(!error.is_request());
    check_text(&error.to_string(), &["reserves"]);
    assert!(names(root.path()).is_empty());
}

/// Cuts, inserts, removes or changes a byte, often into one that keeps a header JSON.
fn mutate(bytes: &mut Vec<u8>, (kind, at, byte): (usize, usize, u8)) {
    let at = at % bytes.len().max(1);
    match kind {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, byte),
        _ if bytes.is_empty() => {}
        2 => drop(bytes.remove(at)),
        3..6 => bytes[at] = byte,
        _ => bytes[at] = b"0123456789[]{},:\""[usize::from(byte) % 17],
    }
}

/// A name, a shape and a seed for the values.
fn tensor_map() -> impl Strategy<Value = Weights> {
    let shape = prop::collection::vec(0usize..4, 0..4);
    prop::collection::btree_map("[a-z.\"\\\\é]{1,8}", shape, 0..6).prop_map(|shapes| {
        let all = shapes.into_iter();
        all.map(|(name, shape)| (name, counting(&shape))).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_weight_map_reads_back(weights in tensor_map(), metadata in prop::collection::btree_map(".{0,6}", ".{0,6}", 0..4)) {
        let (read, read_metadata) = read_written(&written(&weights, &metadata)).unwrap();
        check_equal(&read, &weights);
        prop_assert_eq!(read_metadata, metadata);
    }

    #[test]
    fn mutations_of_a_valid_file_never_panic(mutations in prop::collection::vec((0usize..10, any::<usize>(), any::<u8>()), 1..6)) {
        let mut bytes = sample_bytes();
        for mutation in mutations {
            mutate(&mut bytes, mutation);
        }
        if let Err(error) = read_written(&bytes) {
            prop_assert!(error.is_request());
        }
    }
}

#[test]
fn weights_that_are_not_finite_are_refused_by_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("m.safetensors");
    let mut weights = weights(&[("a", &[3]), ("empty", &[3, 0])]);
    weights.insert(
        "least".to_owned(),
        Tensor::new(f32::MIN, &Device::Cpu).unwrap(),
    );
    write_tensors(&path, &weights, &pt()).unwrap();
    assert_eq!(read_weights(&path).unwrap().len(), 3);
    for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN] {
        let mut values = vec![1e38; 70];
        values[69] = odd;
        values[3] = odd;
        let tensor = Tensor::from_vec(values, (7, 10), &Device::Cpu).unwrap();
        for float in [DType::F32, DType::BF16] {
            weights.insert("b.weight".to_owned(), tensor.to_dtype(float).unwrap());
            write_tensors(&path, &weights, &pt()).unwrap();
            let found = "NaN or infinite values (2 of 70)";
            let parts = ["m.safetensors", "`b.weight`", found];
            check_refused(read_weights(&path), &parts);
            assert!(read_tensors(&path).is_ok());
        }
    }
}
