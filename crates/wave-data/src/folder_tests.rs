use std::fs;

use image::{DynamicImage, GrayImage, Luma, Rgb, RgbImage};
use tempfile::TempDir;

use super::*;
use crate::testing;

fn colour() -> DynamicImage {
    RgbImage::from_fn(20, 10, |x, y| Rgb([10 * x as u8, 20 * y as u8, 7])).into()
}

fn grey() -> DynamicImage {
    GrayImage::from_pixel(9, 9, Luma([77])).into()
}

/// The path of a file in `dir`, whose folder is made.
fn at(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

/// Grey images, and a table of their labels.
fn tabled(images: &[&str], file: &str, text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in images {
        grey().save(at(dir.path(), name)).unwrap();
    }
    fs::write(dir.path().join(file), text).unwrap();
    dir
}

/// Two classes, three formats. Names are out of order, and some are not images' names.
fn sound(test: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("train/dog/b.webp", colour()),
        ("train/dog/a.PNG", grey()),
        ("train/cat/z.jpeg", colour()),
        ("train/cat/y.jpg", grey()),
        ("TEST/cat/1.png", colour()),
        ("TEST/dog/2.webp", colour()),
    ];
    for (name, image) in files {
        let path = at(dir.path(), &name.replace("TEST", test));
        image.save(path).unwrap();
    }
    fs::write(dir.path().join("train/README.txt"), "not a class").unwrap();
    fs::write(dir.path().join("train/dog/notes.txt"), "not an image").unwrap();
    fs::write(dir.path().join("train/dog/.hidden.png"), "not an image").unwrap();
    dir
}

fn open_at(dir: &TempDir) -> Result<Dataset, DataError> {
    testing::open(dir.path())
}

#[test]
fn three_formats_in_the_order_of_their_names() {
    let dir = sound("val");
    let data = open_at(&dir).unwrap();
    assert_eq!(data.class_names, ["cat", "dog"]);
    assert_eq!([0, 1, 2, 3].map(|i| data.train.label(i)), [0, 0, 1, 1]);
    assert_eq!(data.train.native_size(), None);
    let size = |i| {
        let image = data.train.image(i).unwrap();
        (image.channels, image.height, image.width)
    };
    let sizes = [(1, 9, 9), (3, 10, 20), (1, 9, 9), (3, 10, 20)]; // y, z, a, b
    assert_eq!([0, 1, 2, 3].map(size), sizes);
    assert_eq!(data.train.image(2).unwrap().pixels, vec![77; 81]);
    let pixels = data.train.image(3).unwrap().pixels;
    assert_eq!(pixels, colour().into_rgb8().into_raw());
    assert!(data.train.image(4).unwrap_err().is_request());
}

#[track_caller]
fn check_refused(spoil: impl FnOnce(&Path), expected: &[&str]) {
    let dir = sound("val");
    spoil(dir.path());
    testing::check_refused(open_at(&dir), expected);
}

#[test]
fn what_is_missing_is_named() {
    let remove = |name: &'static str| move |dir: &Path| fs::remove_dir_all(dir.join(name)).unwrap();
    let renamed = |dir: &Path| fs::rename(dir.join("val"), dir.join("valid")).unwrap();
    let parts = ["`train` and `valid`", "neither `val` nor `test`"];
    check_refused(renamed, &parts);
    let both = |dir: &Path| {
        renamed(dir);
        fs::rename(dir.join("train"), dir.join("Training")).unwrap();
    };
    check_refused(both, &["`Training`", "no `train`"]);
    check_refused(remove("val/cat"), &["val: ", "no folder `cat`"]);
    check_refused(remove("train/dog"), &["train: ", "no folder `dog`"]);
    let empty = |dir: &Path| {
        fs::remove_dir_all(dir.join("train")).unwrap();
        fs::create_dir(dir.join("train")).unwrap();
    };
    check_refused(empty, &["train: ", "one for each class"]);
    let no_images = |dir: &Path| fs::remove_file(dir.join("val/dog/2.webp")).unwrap();
    check_refused(no_images, &["val/dog: ", "no image", ".webp"]);
    let a_file = |dir: &Path| {
        fs::remove_dir_all(dir.join("val")).unwrap();
        fs::write(dir.join("val"), "a file").unwrap();
    };
    check_refused(a_file, &["cannot read", "val"]);
}

#[test]
fn test_images_alone_are_a_data_set() {
    for part in TEST {
        let dir = sound(part);
        let whole = open_at(&dir).unwrap();
        assert_eq!((whole.train.len(), whole.test.len()), (4, 2));
        fs::remove_dir_all(dir.path().join("train")).unwrap();
        // The parent directory, and the directory of the classes itself, under any name.
        let flat = dir.path().join(part);
        let other = at(dir.path(), "other/photos");
        for path in [dir.path(), &flat] {
            let data = testing::open(path).unwrap();
            assert_eq!((data.train.len(), data.test.len()), (0, 2));
            assert_eq!(data.class_names, ["cat", "dog"]);
        }
        fs::rename(&flat, &other).unwrap();
        // Nothing marks these as test images.
        let photos = testing::open(&other).unwrap();
        assert!(photos.unsplit);
        assert_eq!((photos.train.len(), photos.test.len()), (2, 0));
        fs::create_dir(other.join("empty")).unwrap();
        assert!(testing::open(&other).is_err());
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_names_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let pipe = |dir: &Path| {
        let mut make = std::process::Command::new("mkfifo");
        let made = make.arg(dir.join("train/cat/p.png")).status();
        assert!(made.unwrap().success());
    };
    check_refused(pipe, &["train/cat: ", "`p.png`", "a pipe"]);
    // Two classes with the same name in lossy UTF-8.
    let twins = |dir: &Path| {
        for byte in [0xFE, 0xFF] {
            let name = std::ffi::OsStr::from_bytes(&[byte]).to_owned();
            for part in ["train", "val"] {
                let class = dir.join(part).join(&name);
                fs::create_dir(&class).unwrap();
                fs::copy(dir.join("val/cat/1.png"), class.join("1.png")).unwrap();
            }
        }
    };
    check_refused(twins, &["train: ", "not UTF-8"]);
}

#[test]
fn images_of_one_size_are_known_by_their_headers() {
    let dir = sound("val");
    let size = || crate::common_size(&*open_at(&dir).unwrap().train);
    assert_eq!(size(), None);
    for file in ["cat/y.jpg", "dog/a.PNG"] {
        colour().save(dir.path().join("train").join(file)).unwrap();
    }
    assert_eq!(size(), Some((10, 20)));
    // Sizes after the EXIF orientation; broken images do not count.
    let turned = include_bytes!("../tests/fixtures/turned.jpg");
    for file in ["cat/y.jpg", "cat/z.jpeg", "dog/a.PNG"] {
        fs::write(dir.path().join("train").join(file), turned).unwrap();
    }
    fs::write(dir.path().join("train/dog/b.webp"), "no image").unwrap();
    let shown = crate::decode(turned, "x").unwrap();
    assert_ne!(shown.height, shown.width);
    assert_eq!(size(), Some((shown.height, shown.width)));
}

#[test]
fn a_file_is_named_that_is_no_image_or_vanishes() {
    let dir = sound("val");
    let file = dir.path().join("train/cat/y.jpg");
    fs::write(&file, "plain text").unwrap();
    let data = open_at(&dir).unwrap();
    testing::check_refused(data.train.image(0), &["train/cat/y.jpg: not an image"]);
    // The latter is not the user's fault.
    fs::remove_file(&file).unwrap();
    let error = data.train.image(0).unwrap_err();
    assert!(!error.is_request());
    assert!(error.to_string().contains("train/cat/y.jpg"));
}

#[test]
fn a_flat_val_takes_its_labels_from_a_file() {
    let dir = sound("val");
    let val = dir.path().join("val");
    for (class, file) in [("cat", "1.png"), ("dog", "2.webp")] {
        fs::rename(val.join(class).join(file), val.join(file)).unwrap();
        fs::remove_dir(val.join(class)).unwrap();
    }
    testing::check_refused(open_at(&dir), &["val.txt"]);
    fs::write(dir.path().join("val.txt"), "1.png 1\n2.webp 0\n").unwrap();
    let data = open_at(&dir).unwrap();
    assert_eq!([data.test.label(0), data.test.label(1)], [1, 0]);
    assert!(data.test.name(1).ends_with("val/2.webp"));
    fs::write(dir.path().join("val.txt"), "1.png dog\n").unwrap();
    testing::check_refused(open_at(&dir), &["2.webp"]);
}

#[test]
fn images_without_folders_have_no_labels() {
    let dir = sound("val");
    let train = dir.path().join("train");
    let val = dir.path().join("val");
    for from in ["dog/b.webp", "dog/a.PNG", "cat/y.jpg"] {
        fs::rename(train.join(from), train.join(&from[4..])).unwrap();
    }
    // Next to class folders they are stray files.
    assert!(open_at(&dir).is_err());
    fs::remove_dir_all(train.join("cat")).unwrap();
    fs::remove_dir_all(train.join("dog")).unwrap();
    for there_is_a_val in [true, false] {
        let data = open_at(&dir).unwrap();
        assert_eq!((data.train.len(), data.test.len()), (3, 0));
        assert!(data.class_names.is_empty());
        assert!(data.train.name(0).ends_with("train/a.PNG"));
        assert_eq!(data.train.label(2), u32::MAX);
        assert_eq!(data.train.image(0).unwrap().pixels, vec![77; 81]);
        assert_eq!(crate::check(&*data.train, &data.class_names).unlabelled, 3);
        if there_is_a_val {
            fs::remove_dir_all(&val).unwrap();
        }
    }
    let flat = testing::open(&train).unwrap();
    assert_eq!((flat.name.as_str(), flat.train.len()), ("train", 3));
    fs::create_dir(train.join("more")).unwrap();
    colour().save(train.join("more/c.bmp")).unwrap();
    let walked = testing::open(&train).unwrap();
    assert_eq!(walked.train.len(), 4);
    assert!(walked.class_names.is_empty());
}

#[test]
fn images_below_class_folders_and_of_further_kinds_are_read() {
    let dir = sound("val");
    let at = |name: &str| at(dir.path(), name);
    for name in ["x.bmp", "x.tif", "x.ppm", "deep/er/0.png", "deep/1.TIFF"] {
        colour().save(at(&format!("train/cat/{name}"))).unwrap();
    }
    fs::copy(at("train/cat/z.jpeg"), at("train/cat/z2.jfif")).unwrap();
    // Left behind by operating systems: neither classes nor reported.
    for name in [
        "train/__MACOSX/._0.png",
        "train/.ipynb_checkpoints/0.png",
        "train/cat/Thumbs.db",
        "train/cat/.DS_Store",
        "README.md",
    ] {
        fs::write(at(name), "junk").unwrap();
    }
    fs::remove_file(at("train/__MACOSX/._0.png")).unwrap();
    fs::write(at("train/cat/scan.heic"), "not read").unwrap();
    fs::write(at("test/cat/0.png"), "not read").unwrap();
    fs::write(at("train/metadata.csv"), "file_name,label\n").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(at("train/cat"), at("train/cat/deep/round")).unwrap();

    let data = open_at(&dir).unwrap();
    assert_eq!(data.class_names, ["cat", "dog"]);
    assert_eq!(data.train.len(), 10);
    for i in 0..10 {
        assert_eq!(data.train.label(i), u32::from(i >= 8));
        assert!(data.train.image(i).is_ok(), "{}", data.train.name(i));
    }
    assert!(data.train.name(7).ends_with("train/cat/deep/er/0.png"));
    let named = data.passed_over.to_string();
    for name in ["scan.heic", "notes.txt", "test", "metadata.csv"] {
        assert!(named.contains(name), "{named}");
    }
    let links = usize::from(cfg!(unix));
    assert_eq!(data.passed_over.count, 4 + links, "{named}");
}

#[test]
fn a_table_of_metadata_labels_images_without_folders() {
    let own = "file_name,label\nb.png,dog\na.png,cat\n";
    let lines = r#"{"file_name": "a.png", "label": "cat"}
        {"file_name": "b.png", "label": "dog"}"#;
    let both = "file_name,label\ntrain/a.png,cat\ntrain/b.png,dog\ntest/a.png,dog\n";
    for (file, text) in [
        ("train/metadata.csv", own),
        ("train/metadata.jsonl", lines),
        ("metadata.csv", both),
    ] {
        let dir = tabled(&["train/a.png", "train/b.png", "test/a.png"], file, text);
        let data = open_at(&dir).unwrap();
        assert_eq!(data.class_names, ["cat", "dog"], "{file}");
        assert_eq!([data.train.label(0), data.train.label(1)], [0, 1]);
        if file == "metadata.csv" {
            assert_eq!((data.test.len(), data.test.label(0)), (1, 1));
            assert_eq!(data.passed_over.count, 0, "{}", data.passed_over);
        } else {
            // A test split without labels is ignored.
            assert!(data.unsplit);
            assert_eq!(data.passed_over.count, 1, "{}", data.passed_over);
        }
    }
}

#[test]
fn a_table_of_metadata_labels_the_images_of_one_folder_beside_it() {
    for part in ["", "train/"] {
        let [first, second, file] = ["images/a.png", "images/more/b.png", "metadata.csv"]
            .map(|name| format!("{part}{name}"));
        let table = "file_name,label\nimages/a.png,dog\nimages/more/b.png,cat\n";
        let dir = tabled(&[&first, &second], &file, table);
        let data = open_at(&dir).unwrap();
        assert_eq!(data.class_names, ["cat", "dog"], "{part}");
        assert_eq!([data.train.label(0), data.train.label(1)], [1, 0]);
        assert!(data.train.image(1).is_ok());
        assert_eq!(data.passed_over.count, 0, "{}", data.passed_over);
    }
}

#[test]
fn a_table_of_metadata_labels_images_beside_folders_without_any() {
    let table = "file_name,label\na.png,dog\nmore/b.png,cat\n";
    let dir = tabled(&["a.png", "more/b.png"], "metadata.csv", table);
    fs::create_dir(dir.path().join("empty")).unwrap();
    let data = open_at(&dir).unwrap();
    assert_eq!(data.class_names, ["cat", "dog"]);
    assert_eq!([data.train.label(0), data.train.label(1)], [1, 0]);
}

#[test]
fn tables_beside_class_folders_are_passed_over() {
    let dir = sound("val");
    let before = open_at(&dir).unwrap().passed_over.count;
    let table = "file_name,label\n1.png,cat\n2.webp,dog\n";
    for name in ["metadata.csv", "val.csv"] {
        fs::write(dir.path().join(name), table).unwrap();
    }
    let passed_over = open_at(&dir).unwrap().passed_over;
    assert_eq!(passed_over.count, before + 2);
    let named = passed_over.to_string();
    for name in ["metadata.csv", "val.csv"] {
        assert!(named.contains(name), "{named}");
    }
}

/// `train/a.png`, `train/b.png` and `val/c.png`, with a file of metadata.
fn with_metadata(file: &str, text: &str) -> TempDir {
    tabled(&["train/a.png", "train/b.png", "val/c.png"], file, text)
}

#[test]
fn metadata_with_a_bad_line_are_refused_by_file_and_line() {
    let csv = [
        ("", "line 1: the columns are none"),
        (
            "a.png,cat\nb.png,dog\n",
            "`a.png`, `cat`; expected `file_name` and `label`",
        ),
        (
            "file_name,kind\na.png,cat\n",
            "line 1: the columns are `file_name`, `kind`",
        ),
        (
            "file_name,label\na.png,cat\nb.png\n",
            "line 3: `b.png` has 1 of at least 2",
        ),
        (
            "file_name,label\na.png,\"cat\nb.png,dog\n",
            "line 2: a quote is not closed",
        ),
        (
            "file_name,label\na.png,\nb.png,dog\n",
            "line 2: a.png has no class",
        ),
        ("file_name,label\na.png,cat\n", "does not name b.png"),
        (
            "file_name,label\na.png,cat\nx.png,cat\nb.png,dog\nw.png,dog\n",
            "line 3: names `x.png`, an image that is not there (2 such",
        ),
    ];
    let json = [
        ("[1]\n", "line 1: is not a JSON object"),
        (r#"{"label": "cat"}"#, "line 1: the columns are `label`"),
        (
            r#"{"file_name": 3, "label": "cat"}"#,
            "line 1: has no text for `file_name`",
        ),
        (
            "{\"file_name\": \"a.png\", \"label\": 1}\n{\"file_name\": \"b.png\", \"label\": null}",
            "line 2: has no class, unlike line 1",
        ),
    ];
    let csv = csv.map(|case| ("train/metadata.csv", case));
    let json = json.map(|case| ("train/metadata.jsonl", case));
    for (file, (text, part)) in csv.into_iter().chain(json) {
        let dir = with_metadata(file, text);
        testing::check_refused(open_at(&dir), &[file, part]);
    }
    // A table above the splits may leave out the folders, or the extensions.
    let all = "file_name,label\na.png,cat\nb,dog\nc.png,dog\n";
    let data = open_at(&with_metadata("metadata.csv", all)).unwrap();
    assert_eq!((data.train.len(), data.test.label(0)), (2, 1));
    let more = format!("{all}val/d.png,dog\n");
    let dir = with_metadata("metadata.csv", &more);
    testing::check_refused(open_at(&dir), &["line 5: names `d.png`"]);
}

#[test]
fn metadata_without_labels_on_purpose_leave_images_unlabelled() {
    for (file, text) in [
        (
            "metadata.csv",
            "file_name,text\na.png,a cat, 5\" tall\nb.png,\n",
        ),
        ("metadata.csv", "file_name\na.png\nb.png\n"),
        (
            "metadata.jsonl",
            r#"{"file_name": "a.png", "objects": {"bbox": []}}"#,
        ),
    ] {
        let dir = with_metadata(&format!("train/{file}"), text);
        let data = open_at(&dir).unwrap();
        assert!(data.class_names.is_empty());
        assert_eq!((data.train.len(), data.test.len()), (2, 0));
        let named = data.passed_over.to_string();
        assert!(named.contains(file) && named.contains("val"), "{named}");
    }
    // Class folders have the last word.
    let dir = sound("val");
    fs::write(dir.path().join("train/metadata.csv"), "no header\n").unwrap();
    assert_eq!(open_at(&dir).unwrap().train.len(), 4);
}

#[test]
fn a_table_above_the_splits_tells_images_in_containers_apart() {
    let table = |rows: &[&str]| {
        let images = [
            "train/images/a/0.png",
            "train/images/b/0.png",
            "val/images/a/0.png",
        ];
        let text = format!("file_name,label\n{}\n", rows.join("\n"));
        tabled(&images, "metadata.csv", &text)
    };
    let train = ["train/images/a/0.png,cat", "train/images/b/0.png,dog"];
    let all = table(&[&train[..], &["val/images/a/0.png,dog"]].concat());
    let data = open_at(&all).unwrap();
    assert_eq!([data.train.label(0), data.train.label(1)], [0, 1]);
    assert_eq!((data.test.len(), data.test.label(0)), (1, 1));
    // Test images take no labels of training images, nor do training images take each other's.
    testing::check_refused(open_at(&table(&train)), &["does not name 0.png"]);
    testing::check_refused(
        open_at(&table(&["a/0.png,cat"])),
        &["does not name images/b/0.png"],
    );
    let absent = table(&["a/0.png,cat", "b/0.png,dog", "c/0.png,dog"]);
    testing::check_refused(open_at(&absent), &["line 4: names `c/0.png`"]);
}

#[test]
fn a_table_without_splits_names_images_below_all_of_them() {
    let images = [
        "train/images/a.png",
        "train/images/b.png",
        "val/images/c.png",
    ];
    let table = "file_name,label\na.png,cat\nb.png,dog\nc.png,dog\n";
    let dir = tabled(&images, "metadata.csv", table);
    let data = open_at(&dir).unwrap();
    assert_eq!((data.train.len(), data.test.label(0)), (2, 1));
}

#[test]
fn a_val_with_one_container_takes_its_labels_from_a_file() {
    let dir = sound("val");
    let val = dir.path().join("val");
    fs::create_dir(val.join("images")).unwrap();
    for (class, file) in [("cat", "1.png"), ("dog", "2.webp")] {
        fs::rename(val.join(class).join(file), val.join("images").join(file)).unwrap();
        fs::remove_dir(val.join(class)).unwrap();
    }
    fs::write(dir.path().join("val.txt"), "1.png dog\n2.webp cat\n").unwrap();
    let data = open_at(&dir).unwrap();
    assert_eq!([data.test.label(0), data.test.label(1)], [1, 0]);
    assert!(data.test.name(1).ends_with("val/images/2.webp"));
    // A class is no container.
    fs::rename(val.join("images"), val.join("cat")).unwrap();
    testing::check_refused(open_at(&dir), &["val: ", "no folder `dog`"]);
}

#[test]
fn metadata_may_number_their_rows() {
    let csv = "id,name,label\n1,a.png,dog\n2,b.png,cat\n";
    let lines = r#"{"id": 1, "name": "a.png", "label": "dog"}
        {"id": "2", "name": "b.png", "label": "cat"}"#;
    for (file, text) in [("metadata.csv", csv), ("metadata.jsonl", lines)] {
        let data = open_at(&tabled(&["a.png", "b.png"], file, text)).unwrap();
        assert_eq!(data.class_names, ["cat", "dog"], "{file}");
        assert_eq!([data.train.label(0), data.train.label(1)], [1, 0]);
    }
}

#[test]
fn numbers_in_a_table_and_class_folders_have_one_order() {
    let all = || (0..11).map(|k| k.to_string());
    let train = all().map(|k| format!("train/{k}.png"));
    let images: Vec<String> = train
        .chain(all().map(|k| format!("val/{k}/x.png")))
        .collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    let rows: Vec<String> = all().map(|k| format!("{k}.png,{k}")).collect();
    let table = format!("file_name,label\n{}\n", rows.join("\n"));
    let data = open_at(&tabled(&images, "train/metadata.csv", &table)).unwrap();
    assert_eq!((data.class_names.len(), data.test.len()), (11, 11));
    for i in 0..11 {
        let name = data.test.name(i);
        assert!(name.ends_with(&format!("val/{i}/x.png")), "{name}");
        assert_eq!(data.test.label(i), i as u32);
    }
}

#[test]
fn archives_beside_their_folders_are_passed_over() {
    let dir = sound("val");
    let before = open_at(&dir).unwrap().passed_over.count;
    for archive in ["train.tar", "val.tar"] {
        fs::write(dir.path().join(archive), "unpacked").unwrap();
    }
    let data = open_at(&dir).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (4, 2));
    assert_eq!(data.passed_over.count, before + 2);
}
