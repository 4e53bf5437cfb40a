use super::*;
use crate::testing::check_refused;

#[test]
fn the_kind_of_a_directory_is_told_by_its_config() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join(CONFIG_FILE);
    for (text, kind) in [
        (r#"{"architecture": "x", "num_classes": 1}"#, Kind::Model),
        (r#"{"format_version": 7}"#, Kind::Templates),
        (
            r#"{"format_version": 7, "templates_sha256": 3}"#,
            Kind::Delta,
        ),
        (r#"{"model_type": "vit"}"#, Kind::Transformers),
        // timm's directories may have both keys, and count as timm's.
        (r#"{"model_type": "vit", "architecture": "x"}"#, Kind::Model),
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
fn a_directory_that_is_none_says_what_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    check_refused(
        directory_kind(&dir.join("nowhere")),
        &["nowhere", "no such directory"],
    );
    check_refused(
        directory_kind(dir),
        &["config.json is missing", "has not finished"],
    );
    let weights = dir.join(MODEL_FILE);
    fs::write(&weights, "").unwrap();
    check_refused(
        directory_kind(dir),
        &[
            "config.json is missing beside model.safetensors",
            "run it again",
        ],
    );
    check_refused(
        directory_kind(&weights),
        &["is a file", "directory that holds it"],
    );
}
