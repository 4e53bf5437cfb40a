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
    let table = Table::read(&file, &part)?;
    let (_, labels) = read(&table, &part, &names, Some(classes.to_vec()))?;
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
    let stems = "id,split,Label\n0,val,big cat\n1,val,big\nbig one,val,3";
    let paths = "val\\0.png,1\nval/1.png,0\nbig one.png,3";
    let numbers = "val/0.png 1\nval/1.png\t2\n\n\"big one.png\" 0\n\n";
    let any_order = "\"big one.png\" big cat\n0.png \"big cat\"\n1.png 4\n";
    let quotes = "\u{FEFF}file_name,label\n\"0.png\",\"cat, black\"\n1.png,\"say \"\"hi\"\"\"\n\n\"big one.png\",big cat";
    check("0.png,big cat\n1.png,big\nbig one.png,Hund\n", [1, 0, 3]);
    check(semicolons, [1, 2, 3]);
    check(tabs, [2, 1, 0]);
    check(spaces, [1, 2, 3]);
    check(spaced, [1, 0, 3]);
    check(stems, [1, 0, 3]);
    check(paths, [1, 0, 3]);
    check(numbers, [1, 2, 0]);
    check(any_order, [1, 4, 1]);
    check(quotes, [2, 4, 1]);
}

#[test]
fn a_table_is_read_once() {
    for name in ["val.txt", "metadata.csv"] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(name);
        std::fs::write(&file, "file_name,label\n0.png,Hund\n1.png,big\n").unwrap();
        let part = dir.path().join("val");
        let table = find(&part).unwrap().unwrap();
        std::fs::remove_file(&file).unwrap();
        let names = ["0.png", "1.png"].map(str::to_owned);
        let (classes, labels) = read(&table, &part, &names, None).unwrap();
        assert_eq!(classes, ["Hund", "big"]);
        assert_eq!((table.file, labels), (file, vec![0, 1]));
    }
}
