use super::*;
use crate::testing::check_refused;

#[test]
fn the_kind_of_a_directory_is_told_by_its_config() {
    use Kind::{Delta, Model, Templates, Transformers};
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join(CONFIG_FILE);
    for (text, kind) in [
        (r#"{"architecture": "x", "num_classes": 1}"#, Model),
        (r#"{"format_version": 7}"#, Templates),
        (r#"{"format_version": 7, "templates_sha256": 3}"#, Delta),
        (r#"{"model_type": "vit"}"#, Transformers),
        // timm's directories may have both keys, and count as timm's.
        (r#"{"model_type": "vit", "architecture": "x"}"#, Model),
    ] {
        fs::write(&config, text).unwrap();
        assert_eq!(directory_kind(root.path()).unwrap(), kind);
    }
    for text in ["{}", "[1]", "3", r#"{"model_type": 3}"#] {
        fs::write(&config, text).unwrap();
        check_refused(directory_kind(root.path()), &["neither"]);
    }
}

#[test]
fn the_weights_beside_a_config_stand_for_their_directory() {
    let root = tempfile::tempdir().unwrap();
    let (weights, other) = (
        root.path().join(MODEL_FILE),
        root.path().join("x.safetensors"),
    );
    for file in [&weights, &other] {
        fs::write(file, "").unwrap();
    }
    assert_eq!(model_directory(&weights), weights);
    fs::write(root.path().join(CONFIG_FILE), "{}").unwrap();
    assert_eq!(model_directory(&weights), root.path());
    assert_eq!(model_directory(&other), other);
    assert_eq!(model_directory(root.path()), root.path());
}

#[test]
fn a_digest_that_was_checked_is_returned() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join(MODEL_FILE);
    fs::write(&file, "weights").unwrap();
    let digest = sha256_file(&file).unwrap();
    for (config, expected) in [
        ("{}".to_owned(), None),
        (
            format!(r#"{{"digests": {{"{MODEL_FILE}": "{digest}"}}}}"#),
            Some(digest),
        ),
    ] {
        fs::write(root.path().join(CONFIG_FILE), config).unwrap();
        assert_eq!(check_digest(root.path(), MODEL_FILE).unwrap(), expected);
    }
}

#[test]
fn a_directory_that_is_none_says_what_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let nowhere = directory_kind(&dir.join("nowhere"));
    check_refused(nowhere, &["nowhere", "no such directory"]);
    let parts = ["config.json is missing", "has not finished"];
    check_refused(directory_kind(dir), &parts);
    let weights = dir.join(MODEL_FILE);
    fs::write(&weights, "").unwrap();
    let missing = "config.json is missing beside model.safetensors";
    check_refused(directory_kind(dir), &[missing, "run it again"]);
    let parts = ["is a file", "directory that holds it"];
    check_refused(directory_kind(&weights), &parts);
}
