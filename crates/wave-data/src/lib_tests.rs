use super::*;
use crate::testing::check_refused;

#[test]
fn an_unknown_spec_is_answered_with_what_is_accepted() {
    for spec in ["", "mnist", "hf:owner/name", "/no/such/dir"] {
        let given = format!("`{spec}`");
        let accepted = ["fashion-mnist", "shapes", "IDX", "ImageFolder", "val/"];
        check_refused(open(spec), &accepted);
        check_refused(open(spec), &[&given]);
    }
}

#[test]
fn a_file_and_an_empty_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    check_refused(testing::open(dir.path()), &["neither", "`train`"]);
    let file = dir.path().join("data.bin");
    std::fs::write(&file, b"x").unwrap();
    check_refused(testing::open(&file), &["is a file", "data.bin"]);
}

#[test]
fn absent_fashion_mnist_names_the_package_and_the_alternatives() {
    let opened = open_fashion_mnist(Some(Path::new("/no/such")));
    let named = "/no/such, which the environment variable WAVE_FASHION_MNIST names";
    check_refused(opened, &[named, "dataset-fashion-mnist", "`shapes`"]);
}

#[test]
fn fashion_mnist_has_its_ten_names() {
    let dir = tempfile::tempdir().unwrap();
    idx::tests::write_idx(dir.path(), (28, 28), true);
    let data = open_fashion_mnist(Some(dir.path())).unwrap();
    assert_eq!(data.name, "fashion-mnist");
    assert_eq!(data.class_names.len(), 10);
    assert_eq!(data.class_names[9], "Ankle boot");
}
