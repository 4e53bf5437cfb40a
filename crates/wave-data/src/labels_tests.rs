use super::*;

fn parsed(text: &str) -> Result<Vec<u32>, String> {
    let names = ["v_1.JPEG", "v_2.JPEG"].map(str::to_owned);
    let classes = ["n01", "n02", "n10"].map(str::to_owned);
    let mut table = Table {
        part: "val".to_owned(),
        ..Table::default()
    };
    table.fill_from_text(text)?;
    table.labels(&names, &classes)
}

#[test]
fn several_notations_are_read() {
    for text in [
        "v_2.JPEG n10\nv_1.JPEG n02\n",
        "ImageId,Label\nv_1,n02\nv_2,n10",
        "val/v_1.JPEG 1\nval/v_2.JPEG\t2\n\n",
    ] {
        assert_eq!(parsed(text).unwrap(), [1, 2]);
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (text, part) in [
        ("v_1.JPEG 1", "does not name v_2.JPEG"),
        ("v_1 1\nv_2 dog", "line 2: `dog`"),
        ("v_1 1\nv_2 dog", "0 to 2"),
        ("v_1 1\nv_2 3", "`3` is not a class"),
        ("v_1,n01\nv_1,n02\nv_2,n10", "two classes"),
        ("v_1,\"n01\nv_2,n10", "is not closed"),
        // The first word of something unknown is not its class.
        ("v_1,n01 b\nv_2,n10", "`n01 b` is not a class"),
    ] {
        let problem = parsed(text).unwrap_err();
        assert!(problem.contains(part), "{problem}");
    }
}

/// The classes of `0.png`, `1.png` and `big one.png`, of `big`, `big cat`, `cat, black`, `Hund` and `say "hi"`.
#[track_caller]
fn check(text: &str, expected: [u32; 3]) {
    let names = ["0.png", "1.png", "big one.png"].map(str::to_owned);
    let classes = ["big", "big cat", "cat, black", "Hund", "say \"hi\""].map(str::to_owned);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("val.csv");
    std::fs::write(&file, text).unwrap();
    let read = read(
        &file,
        &dir.path().join("val"),
        &names,
        Some(classes.to_vec()),
    );
    assert_eq!(read.unwrap().1, expected, "{text:?}");
}

#[test]
fn classes_keep_their_spaces_and_quotes_hold_separators() {
    for (expected, text) in [
        ([1, 0, 3], "0.png,big cat\n1.png,big\nbig one.png,Hund\n"),
        (
            [1, 2, 3],
            "0.png;big cat\r\n1.png;cat, black\r\nbig one.png;Hund",
        ),
        (
            [2, 1, 0],
            "0.png\tcat, black\n1.png\tbig cat\nbig one.png\tbig",
        ),
        (
            [1, 2, 3],
            "0.png big cat\n1.png cat, black\n\"big one.png\" Hund\n",
        ),
        (
            [1, 0, 3],
            "\u{FEFF}0.png, big cat\n1.png, big\nbig one.png , Hund \n",
        ),
        (
            [1, 0, 3],
            "id,split,Label\n0,val,big cat\n1,val,big\nbig one,val,3",
        ),
        ([1, 0, 3], "val\\0.png,1\nval/1.png,0\nbig one.png,3"),
        (
            [1, 4, 1],
            "\"big one.png\" big cat\n0.png \"big cat\"\n1.png 4\n",
        ),
    ] {
        check(text, expected);
    }
    let quoted = "\u{FEFF}file_name,label\n\"0.png\",\"cat, black\"\n1.png,\"say \"\"hi\"\"\"\n\n\"big one.png\",big cat";
    check(quoted, [2, 4, 1]);
}
