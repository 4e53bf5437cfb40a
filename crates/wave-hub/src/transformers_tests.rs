use std::fs;

use serde_json::json;

use super::*;
use crate::Kind;
use crate::directory::CARD_FILE;
use crate::testing::{check_equal, check_refused, check_text, counting, names, weights};

fn config() -> Value {
    json!({"model_type": "vit", "architectures": ["ViTForImageClassification"], "num_labels": 2})
}

#[test]
fn a_written_model_reads_back() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("model");
    let weights = weights(&[
        ("vit.layernorm.weight", &[3]),
        ("classifier.weight", &[2, 3]),
    ]);
    let steps = json!({"size": 28, "image_mean": [0.5], "image_std": [0.5]});
    let write = |steps, scalers| {
        let float = FloatType::F32;
        write_transformers(&dir, &config(), steps, &weights, scalers, "card", float).unwrap();
    };
    write(Some(&steps), Some(&weights));
    let plain = [CARD_FILE, CONFIG_FILE, MODEL_FILE];
    let more = [PREPROCESSOR_FILE, "scalers.safetensors"];
    assert_eq!(names(&dir), [&plain[..], &more].concat());
    assert_eq!(crate::directory_kind(&dir).unwrap(), Kind::Transformers);
    let (mut read, found) = read_transformers(&dir).unwrap();
    crate::check_digests(&dir).unwrap();
    read.as_object_mut().unwrap().remove("digests").unwrap();
    assert_eq!(read, config());
    check_equal(&found, &weights);
    let steps = crate::read_preprocessing(&dir).unwrap();
    assert_eq!((steps.channels, steps.size.value), (1, [28, 28]));
    // Files that this model does not have do not outlive it.
    write(None, None);
    assert_eq!(names(&dir), plain);
}

#[test]
fn values_beyond_f16_are_refused_by_name_and_bf16_holds_them() {
    let root = tempfile::tempdir().unwrap();
    let large = (counting(&[2]) * 1e6).unwrap();
    let weights = Weights::from([("large".to_owned(), large)]);
    let write =
        |float| write_transformers(root.path(), &config(), None, &weights, None, "card", float);
    let text = write(FloatType::F16).unwrap_err().to_string();
    check_text(&text, &["`large`", "outside the range of f16"]);
    assert!(names(root.path()).is_empty());
    write(FloatType::Bf16).unwrap();
}

#[test]
fn other_layouts_and_missing_files_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let check = |config: &str, parts: &[&str]| {
        fs::write(dir.join(CONFIG_FILE), config).unwrap();
        check_refused(read_transformers(dir), parts);
    };
    let timm = r#"{"architecture": "x", "model_type": "y"}"#;
    check(timm, &["is a model directory, expected"]);
    let missing = ["model.safetensors is missing", "copy it there"];
    check(r#"{"model_type": "vit"}"#, &missing);
    fs::write(dir.join(INDEX_FILE), "{}").unwrap();
    check_refused(read_transformers(dir), &["sharded"]);
}
