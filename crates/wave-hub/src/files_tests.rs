use std::collections::BTreeMap;

use super::*;
use crate::testing::check_refused;

#[test]
fn json_is_indented_ends_in_a_newline_and_reads_back() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("deep/numbers.json");
    let numbers = BTreeMap::from([("one".to_owned(), 1), ("two".to_owned(), 2)]);
    write_json(&path, &numbers).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, "{\n  \"one\": 1,\n  \"two\": 2\n}\n");
    assert_eq!(read_json::<BTreeMap<String, i32>>(&path).unwrap(), numbers);
}

#[test]
fn json_that_cannot_be_read_is_a_wrong_request() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("numbers.json");
    let read = |path: &Path| read_json::<BTreeMap<String, i32>>(path);
    check_refused(read(&path), &["numbers.json", "no such file"]);
    check_refused(read(root.path()), &["is a directory"]);
    check_refused(read(&path.join("below")), &["no such file"]);
    for (content, expected) in [
        (&b""[..], "is empty"),
        (b"{\"one\": ", "not valid JSON"),
        (b"{\"one\": 1} trailing", "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"{\"one\": \"uno\"}", "line 1"),
        (b"[]", "unexpected JSON"),
    ] {
        fs::write(&path, content).unwrap();
        check_refused(read(&path), &["numbers.json", expected]);
    }
}

#[cfg(unix)]
#[test]
fn a_device_without_end_is_refused() {
    check_refused(read_bytes(Path::new("/dev/zero")), &["device"]);
}
