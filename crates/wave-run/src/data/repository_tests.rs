use super::*;

fn chosen(files: &str) -> Result<Chosen, Fault> {
    let files: Vec<String> = files.split(' ').map(str::to_owned).collect();
    choose(&files, true)
}

#[track_caller]
fn check(files: &str, wanted: &str, spec: &str) {
    let found = chosen(files).unwrap();
    assert_eq!((&*found.files.join(" "), &*found.spec), (wanted, spec));
}

#[test]
fn parquet_files_are_those_of_training_and_validation() {
    let train = "data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet";
    let (valid, test) = ("data/validation-0.parquet", "data/test-0.parquet");
    check(
        &format!("README.md {test} {train} {valid}"),
        &format!("{train} {valid}"),
        "data/{train-00000-of-00002,train-00001-of-00002}.parquet\ndata/{validation-0}.parquet",
    );
    check(
        "data/test-0.parquet data/train-0.parquet",
        "data/train-0.parquet data/test-0.parquet",
        "data/{train-0}.parquet\ndata/{test-0}.parquet",
    );
    check("all.parquet", "all.parquet", "{all}.parquet");
    check(test, test, "data/{test-0}.parquet");
    // The hub's own conversion.
    check(
        "default/test/0000.parquet default/train/0000.parquet",
        "default/train/0000.parquet default/test/0000.parquet",
        "default/train/{0000}.parquet\ndefault/test/{0000}.parquet",
    );
}

#[test]
fn shards_come_with_what_describes_them() {
    check(
        "_info.json loader.py x-train-0.tar x-train-1.tar x-val-0.tar",
        "x-train-0.tar x-train-1.tar x-val-0.tar _info.json",
        "{x-train-0,x-train-1}.tar\n{x-val-0}.tar",
    );
}

#[test]
fn folders_of_images_come_with_their_labels() {
    let read = "data/train/a/0.png data/train/b/1.JPG data/val/2.png data/val.txt";
    let others = "data/train.zip figure.png notes.txt";
    check(&format!("data/test/a/0.png {read} {others}"), read, "data");
    check("a/0.png b/0.png x.md", "a/0.png b/0.png", "");
}

#[test]
fn what_is_not_read_is_refused() {
    let one = "a/train.parquet b/train.parquet";
    for (files, found, remedy) in [
        ("README.md data.zip", "no parquet", "refs/convert/parquet"),
        (one, "folders a, b", "download the one"),
    ] {
        let refusal = chosen(files).unwrap_err();
        let told = refusal.found.contains(found) && refusal.remedy.contains(remedy);
        assert!(told, "{refusal:?}");
    }
    let refusal = choose(&["a.parquet".to_owned()], false).unwrap_err();
    assert!(refusal.remedy.contains("--features parquet"), "{refusal:?}");
}
