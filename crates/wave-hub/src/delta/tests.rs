use std::fs;

use serde_json::json;

use super::*;
use crate::testing::{check_equal, check_refused, check_text, names, weights};

fn config() -> DeltaConfig {
    let json = json!({
        "format_version": 1, "templates_sha256": "0f".repeat(32), "anchors": 2, "classes": 3,
        "label_names": ["cat", "dog", "cow"], "provenance": {"seed": 7},
        "accuracies": [{"depth": 2, "width": 8, "top1": 0.875, "condition": "adapted"}],
    });
    serde_json::from_value(json).unwrap()
}

fn some_weights() -> Weights {
    weights(&[
        ("bank.0.qkv", &[3, 6, 2]),
        ("bank.1.qkv", &[3, 6, 2]),
        ("auxiliary.blocks.0.norm1.weight", &[8]),
        ("auxiliary.blocks.1.norm1.weight", &[8]),
        ("auxiliary.head.weight", &[3, 8]),
        ("auxiliary.head.bias", &[3]),
    ])
}

fn write(dir: &Path) {
    write_delta(dir, &config(), &some_weights(), FloatType::F32, "# Card\n").unwrap();
}

#[test]
fn a_delta_reads_back_and_replaces_templates() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("delta");
    write(&dir);
    assert_eq!(names(&dir), ["README.md", CONFIG_FILE, DELTA_FILE]);
    let (read, read_weights) = read_delta(&dir).unwrap();
    assert_eq!(read, config());
    check_equal(&read_weights, &some_weights());
    assert_eq!(crate::directory_kind(&dir).unwrap(), Kind::Delta);
    let parts = ["is a delta directory", "wave condense"];
    check_refused(crate::read_templates(&dir), &parts);
    check_refused(crate::read_model(&dir), &["is a delta directory"]);
}

#[test]
fn other_directories_are_no_deltas() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(CONFIG_FILE), r#"{"architecture": "vit"}"#).unwrap();
    let found = "is a model directory, expected a delta directory";
    check_refused(read_delta(root.path()), &[found, "wave adapt"]);
    write(root.path());
    fs::remove_file(root.path().join(DELTA_FILE)).unwrap();
    let parts = ["delta.safetensors is missing", "adapt again"];
    check_refused(read_delta(root.path()), &parts);
}

#[test]
fn a_configuration_that_cannot_be_is_refused() {
    for (pointer, value, part) in [
        ("/templates_sha256", json!("abc"), "64 lower-case"),
        ("/templates_sha256", json!("F".repeat(64)), "64 lower-case"),
        ("/anchors", json!(0), "`anchors` is 0"),
        ("/anchors", json!(1), "config.json does not provide for"),
        ("/classes", json!(0), "`classes` is 0"),
        ("/label_names", json!(["cat"]), "1 names for 3 classes"),
        ("/accuracies/0/top1", json!(2), "accuracy is 2"),
        ("/classes", json!("three"), "the configuration of a delta"),
    ] {
        let root = tempfile::tempdir().unwrap();
        write(root.path());
        let mut json = serde_json::to_value(config()).unwrap();
        *json.pointer_mut(pointer).unwrap() = value;
        fs::write(root.path().join(CONFIG_FILE), json.to_string()).unwrap();
        check_refused(read_delta(root.path()), &[part]);
    }
}

#[test]
fn tensors_that_do_not_belong_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let refused = |weights: &Weights, config: &DeltaConfig, part: &str| {
        let error = write_delta(root.path(), config, weights, FloatType::F32, "# Card\n");
        check_text(&error.unwrap_err().to_string(), &[part]);
    };
    for (name, shape, part) in [
        ("bank.2.qkv", &[3, 6, 2][..], "bank.2.qkv"),
        ("templates.qkv", &[3, 4, 4], "templates.qkv"),
        ("auxiliary.blocks.x.norm1.weight", &[8], "blocks.x"),
        ("auxiliary.head.weight", &[4, 8], "has 4 classes"),
        ("bank.1.qkv", &[3, 6, 1], "unlike `bank.0.qkv`"),
        (
            "auxiliary.blocks.1.norm1.weight",
            &[8, 1],
            "has shape [8, 1], unlike",
        ),
    ] {
        let mut wrong = some_weights();
        wrong.extend(weights(&[(name, shape)]));
        refused(&wrong, &config(), part);
    }
    // A missing tensor is named if the configuration lists it, or if another anchor has it.
    let mut listed = config();
    let kinds = "bank.qkv blocks.norm1.weight head.weight head.bias";
    listed.tensors = kinds.split(' ').map(String::from).collect();
    for name in ["bank.1.qkv", "auxiliary.blocks.0.norm1.weight"] {
        let mut less = some_weights();
        let tensor = less.remove(name).unwrap();
        refused(&less, &config(), &format!("`{name}` is missing"));
        less.insert(format!("{name}x"), tensor);
        refused(&less, &listed, &format!("`{name}x`"));
    }
    let mut heads = some_weights();
    heads.retain(|name, _| name.contains("head"));
    refused(&heads, &listed, "is missing");
    let mut far = config();
    far.anchors = usize::MAX;
    refused(&some_weights(), &far, "is missing");
    let mut headless = some_weights();
    headless.remove("auxiliary.head.bias");
    refused(&headless, &config(), "`auxiliary.head.bias` is missing");
    assert!(names(root.path()).is_empty());
}
