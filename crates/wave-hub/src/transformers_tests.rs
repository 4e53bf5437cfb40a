use std::fs;

use candle_core::DType;
use serde_json::json;

use super::*;
use crate::Kind;
use crate::directory::CARD_FILE;
use crate::testing::{check_equal, check_refused, counting, names, weights};

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
    write_transformers(
        &dir,
        &config(),
        Some(&steps),
        &weights,
        Some(&weights),
        "card",
        FloatType::F32,
    )
    .unwrap();
    let expected = [
        CARD_FILE,
        CONFIG_FILE,
        MODEL_FILE,
        PREPROCESSOR_FILE,
        crate::directory::SCALERS_FILE,
    ];
    assert_eq!(names(&dir), expected);
    assert_eq!(crate::directory_kind(&dir).unwrap(), Kind::Transformers);
    let (mut read, found) = read_transformers(&dir).unwrap();
    crate::check_digests(&dir).unwrap();
    read.as_object_mut().unwrap().remove("digests").unwrap();
    assert_eq!(read, config());
    check_equal(&found, &weights);
    let steps = crate::read_preprocessing(&dir).unwrap();
    assert_eq!((steps.channels, steps.size.value), (1, [28, 28]));
    // Files that this model does not have do not outlive it.
    write_transformers(&dir, &config(), None, &weights, None, "", FloatType::F32).unwrap();
    assert_eq!(names(&dir), [CARD_FILE, CONFIG_FILE, MODEL_FILE]);
}

#[test]
fn narrow_types_take_half_the_space_and_read_back_as_f32() {
    let root = tempfile::tempdir().unwrap();
    let weights = weights(&[("a", &[100, 10])]);
    for float in [FloatType::F16, FloatType::Bf16] {
        write_transformers(root.path(), &config(), None, &weights, None, "", float).unwrap();
        let bytes = fs::metadata(root.path().join(MODEL_FILE)).unwrap().len();
        assert!((2000..2200).contains(&bytes), "{bytes}");
        let (_, found) = read_transformers(root.path()).unwrap();
        assert_eq!(found["a"].dtype(), DType::F32);
        let narrow = weights["a"].to_dtype(float.dtype()).unwrap();
        let expected = Weights::from([("a".to_owned(), narrow.to_dtype(DType::F32).unwrap())]);
        check_equal(&found, &expected);
    }
}

#[test]
fn values_beyond_f16_are_refused_by_name_and_bf16_holds_them() {
    let root = tempfile::tempdir().unwrap();
    let large = (counting(&[2]) * 1e6).unwrap();
    let weights = Weights::from([("large".to_owned(), large)]);
    let write =
        |float| write_transformers(root.path(), &config(), None, &weights, None, "card", float);
    let text = write(FloatType::F16).unwrap_err().to_string();
    assert!(
        text.contains("`large`") && text.contains("outside the range of f16"),
        "{text}"
    );
    assert!(names(root.path()).is_empty());
    write(FloatType::Bf16).unwrap();
}

#[test]
fn other_layouts_and_missing_files_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    check_refused(read_transformers(dir), &["config.json is missing"]);
    fs::write(
        dir.join(CONFIG_FILE),
        r#"{"architecture": "x", "model_type": "y"}"#,
    )
    .unwrap();
    check_refused(read_transformers(dir), &["is a model directory, expected"]);
    fs::write(dir.join(CONFIG_FILE), r#"{"model_type": 3}"#).unwrap();
    check_refused(read_transformers(dir), &["neither a model"]);
    fs::write(dir.join(CONFIG_FILE), r#"{"model_type": "vit"}"#).unwrap();
    check_refused(
        read_transformers(dir),
        &["model.safetensors is missing", "copy it there"],
    );
    fs::write(dir.join(INDEX_FILE), "{}").unwrap();
    check_refused(read_transformers(dir), &["sharded"]);
}

#[test]
fn a_config_of_another_layout_is_not_written() {
    let root = tempfile::tempdir().unwrap();
    let weights = weights(&[("a", &[1])]);
    for config in [json!({}), json!({"architecture": "x"}), json!(3)] {
        let float = FloatType::F32;
        let error = write_transformers(root.path(), &config, None, &weights, None, "", float);
        assert!(!error.unwrap_err().is_request());
    }
    assert!(names(root.path()).is_empty());
}
