use super::*;
use crate::testing::check_refused;

/// The classes of `0.png`, `1.png` and `big one.png`, of `big`, `big cat`, `cat, black`, `Hund` and `say "hi"`.
fn labels(text: &str) -> Result<Vec<u32>, DataError> {
    let names = ["0.png", "1.png", "big one.png"].map(str::to_owned);
    let classes = ["big", "big cat", "cat, black", "Hund", "say \"hi\""].map(str::to_owned);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("val.csv");
    std::fs::write(&file, text).unwrap();
    let part = dir.path().join("val");
    let mut table = Table::read(&file, &part)?.unwrap();
    let (_, labels) = read(&mut table, &part, &names, Some(classes.to_vec()))?;
    Ok(labels)
}

#[test]
fn what_is_wrong_is_named() {
    let check = |text: &str, part: &str| check_refused(labels(text), &["val.csv: ", part]);
    let unknown = "0.png 1\n1.png dog\n\"big one.png\" 1";
    check("0.png 1\n1.png 1", "does not name big one.png");
    check(unknown, "line 2: `dog`");
    check(unknown, "0 to 4");
    check(&unknown.replace("dog", "5"), "`5` is not a class");
    check(
        "0.png,big\n0.png,Hund\n1.png,big\nbig one.png,big",
        "two classes",
    );
    check("0.png,\"big\n1.png,Hund", "is not closed");
    check(
        "0.png,big\n1.png, \nbig one.png,big",
        "line 2: 1.png has no class",
    );
    check("0.png 1\n1.png 1", "`\"big one.png\" CLASS`");
    check(
        "0.png,big\n1.png\nbig one.png,big",
        "expected a file and its class",
    );
    // The first word of something unknown is not its class.
    check(&unknown.replace("dog", "big b"), "`big b` is not a class");
}

#[track_caller]
fn check(text: &str, expected: [u32; 3]) {
    assert_eq!(labels(text).unwrap(), expected, "{text:?}");
}

#[test]
fn classes_keep_their_spaces_and_quotes_hold_separators() {
    let semicolons = "0.png;big cat\r\n1.png;cat, black\r\nbig one.png;Hund";
    let tabs = "0.png\tcat, black\n1.png\tbig cat\nbig one.png\tbig";
    let spaces = "0.png big cat\n1.png cat, black\n\"big one.png\" Hund\n";
    let spaced = "\u{FEFF}0.png, big cat\n1.png, big\nbig one.png , Hund \n";
    let stems = "id,split,Label\n0,val,big cat\n1,val,big\nbig one,val,Hund";
    let paths = "val\\0.png,1\nval/1.png,0\nbig one.png,3";
    let numbers = "val/0.png 1\nval/1.png\t2\n\n\"big one.png\" 0\n\n";
    let any_order = "\"big one.png\" big cat\n0.png \"big cat\"\n1.png Hund\n";
    let quotes = "\u{FEFF}file_name,label\n\"0.png\",\"cat, black\"\n1.png,\"say \"\"hi\"\"\"\n\n\"big one.png\",big cat";
    check("0.png,big cat\n1.png,big\nbig one.png,Hund\n", [1, 0, 3]);
    check(semicolons, [1, 2, 3]);
    check(tabs, [2, 1, 0]);
    check(spaces, [1, 2, 3]);
    check(spaced, [1, 0, 3]);
    check(stems, [1, 0, 3]);
    check(paths, [1, 0, 3]);
    check(numbers, [1, 2, 0]);
    check(any_order, [1, 3, 1]);
    check(quotes, [2, 4, 1]);
}

#[test]
fn a_table_is_read_once() {
    for name in ["val.txt", "metadata.csv"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, "file_name,label\n0.png,Hund\n1.png,big\n").unwrap();
        let part = dir.path().join("val");
        let mut table = find(&part).unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        let names = ["0.png", "1.png"].map(str::to_owned);
        let (classes, labels) = read(&mut table, &part, &names, None).unwrap();
        assert_eq!(classes, ["Hund", "big"]);
        assert_eq!((table.file, labels), (file, vec![0, 1]));
    }
}

/// The labels that `val.txt` gives to images of `val`, of training folders with the names `classes`.
fn in_val(images: &[&str], classes: &[&str], text: &[u8]) -> Result<Vec<u32>, DataError> {
    let dir = tempfile::tempdir().unwrap();
    let (file, part) = (dir.path().join("val.txt"), dir.path().join("val"));
    std::fs::write(&file, text).unwrap();
    let owned = |names: &[&str]| -> Vec<String> { names.iter().map(|n| (*n).to_owned()).collect() };
    let mut table = Table::read(&file, &part)?.unwrap();
    let (_, labels) = read(&mut table, &part, &owned(images), Some(owned(classes)))?;
    Ok(labels)
}

#[test]
fn folders_of_rows_tell_images_of_one_name_apart() {
    let images = ["0.png", "a/0.png", "x/a/0.png"];
    let labels = |text: &str| in_val(&images, &["cat", "dog", "eel"], text.as_bytes());
    let own = "0.png dog\na\\0.png eel\n./x/a/0 cat\n";
    // The last row has no extension: the name of a whole file goes before it.
    assert_eq!(labels(own).unwrap(), [1, 2, 2]);
    assert_eq!(labels(&own.replace("a/0", "a/0.png")).unwrap(), [1, 2, 0]);
    assert_eq!(labels("0.png dog\nval/x/a/0.png cat\n").unwrap(), [1, 1, 0]);
    check_refused(labels("a/0.png cat\nx/a/0.png dog\n"), &["not name 0.png"]);
    let missing = labels("val/0.png cat\nx/a/0.png dog\n");
    check_refused(missing, &["does not name a/0.png", "`a/0.png CLASS`"]);
    let twice = labels("0.png dog\na/0.png cat\nval/a/0.png cat\nval/a/0.png dog\n");
    check_refused(twice, &["a/0.png two classes"]);
    // Paths of another machine.
    assert_eq!(labels("/data/y/0.png dog\n").unwrap(), [1, 1, 1]);
    // Images of another split.
    check_refused(labels("train/b/0.png dog\n"), &["does not name 0.png"]);
}

#[test]
fn classes_are_all_names_or_all_numbers() {
    let images = ["0.png", "1.png"];
    let labels = |classes: &[&str], text: &str| in_val(&images, classes, text.as_bytes());
    let animals = ["cat", "dog"];
    assert_eq!(labels(&animals, "0.png 1\n1.png 0").unwrap(), [1, 0]);
    assert_eq!(labels(&animals, "0.png dog\n1.png cat").unwrap(), [1, 0]);
    let mixed = labels(&animals, "0.png dog\n1.png 0");
    check_refused(
        mixed,
        &["line 2: `0` is a number", "other lines have names"],
    );
    assert_eq!(labels(&["1", "2"], "0.png 2\n1.png 1").unwrap(), [1, 0]);
    for (classes, class) in [(["1", "2"], "0"), (["01", "02"], "1")] {
        let found = labels(&classes, &format!("0.png {class}\n1.png {class}"));
        let named = format!("line 1: `{class}` is not a training folder's name");
        check_refused(found, &[&named, "write the folder's name"]);
    }
    // Folders that are their own numbers leave no doubt.
    assert_eq!(labels(&["0", "1"], "0.png 01\n1.png 00").unwrap(), [1, 0]);
}

#[test]
fn files_in_other_encodings_are_refused() {
    let labels = |text: &[u8]| in_val(&["0.png"], &["cat"], text);
    let latin = labels(b"0.png cat\n1.png caf\xE9\n");
    check_refused(latin, &["val.txt: line 2 is not UTF-8; save it as UTF-8"]);
    check_refused(
        labels(b"0.png cat\r1.png cat\r"),
        &["line ends of old Macs"],
    );
    assert_eq!(labels(b"0.png cat\r\n").unwrap(), [0]);
}

#[test]
fn values_beyond_the_header_are_refused() {
    for (separator, name) in [(",", "comma"), (";", "semicolon"), ("\t", "tab")] {
        let text = "file_name,label\n0.png,big, cat\n1.png,big\nbig one.png,big\n";
        let problem =
            format!("line 2 has 3 fields, the header 2; quote values that contain a {name}");
        check_refused(labels(&text.replace(',', separator)), &[&problem]);
    }
    let empty = "file_name,label\n0.png,big,,\n1.png,Hund, \nbig one.png,big\n";
    check(empty, [0, 3, 0]);
}

#[test]
fn quotes_within_fields_hold_no_lines_together() {
    let text =
        "file_name,label,text\n0.png,big,5\" wide\n1.png,Hund,x\nbig one.png,big,a 6\" or \"7\n";
    check(text, [0, 3, 0]);
    let lines = "file_name,text,label\n0.png,\"two\n\"\"lines\"\"\",big\n1.png,\"\",Hund\nbig one.png,x,big\n";
    check(lines, [0, 3, 0]);
}

#[test]
fn accents_match_composed_or_apart() {
    let (composed, apart) = ("caf\u{e9}", "cafe\u{301}");
    for (stored, listed) in [(composed, apart), (apart, composed)] {
        let image = format!("{stored}/0.png");
        let text = format!("{listed}/0.png {listed}\n1.png dog\n");
        let labels = in_val(&[&image, "1.png"], &[stored, "dog"], text.as_bytes());
        assert_eq!(labels.unwrap(), [0, 1], "{text:?}");
    }
}

#[test]
fn an_id_may_number_the_rows_or_name_the_files() {
    let rows = "id,name,label\n1,0.png,big\n2,1.png,Hund\n3,big one.png,big cat\n";
    let files = "id,name,label\n0,Rex,big\n1,Bello,Hund\nbig one,Tom,big cat\n";
    check(rows, [0, 3, 1]);
    check(files, [0, 3, 1]);
}
