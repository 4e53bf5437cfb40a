//! timm's files in both directions, and directories that are incomplete.

use std::fs;

use serde_json::json;

use super::*;
use crate::read_tensors;
use crate::testing::{check_equal, check_refused, check_text, names, weights};

fn config_json() -> Value {
    json!({
        "architecture": "deit_tiny_patch16_224", "num_classes": 10, "num_features": 576,
        "global_pool": "token",
        "model_args": {"embed_dim": 576, "depth": 6, "num_heads": 9},
        "pretrained_cfg": {
            "tag": "wave", "fixed_input_size": true, "crop_pct": 0.9, "num_classes": 10,
            "first_conv": "patch_embed.proj", "classifier": "head",
        },
    })
}

fn config() -> ModelConfig {
    serde_json::from_value(config_json()).unwrap()
}

fn some_weights() -> Weights {
    weights(&[("head.weight", &[10, 4]), ("head.bias", &[10])])
}

/// Every file's name and content.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let with_content = |name: String| {
        let bytes = fs::read(dir.join(&name)).unwrap();
        (name, bytes)
    };
    names(dir).into_iter().map(with_content).collect()
}

fn write(dir: &Path, config: &ModelConfig) -> Result<(), HubError> {
    let scalers = weights(&[("scalers.0.qkv", &[2, 3])]);
    write_of(dir, config, &some_weights(), &scalers)
}

fn write_of(
    dir: &Path,
    config: &ModelConfig,
    weights: &Weights,
    scalers: &Weights,
) -> Result<(), HubError> {
    let (card, float) = ("# Card\n", FloatType::F32);
    write_model(dir, config, weights, Some(scalers), card, float, false)
}

#[test]
fn the_config_is_what_timm_reads() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), &config()).unwrap();
    let text = fs::read_to_string(root.path().join("config.json")).unwrap();
    // As timm 1.0.31 writes and loads it.
    let mut expected = config_json();
    let defaults = json!({
        "custom_load": false, "input_size": [3, 224, 224], "interpolation": "bicubic",
        "crop_mode": "center", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
        "pool_size": null,
    });
    let prepared = expected["pretrained_cfg"].as_object_mut().unwrap();
    prepared.extend(defaults.as_object().unwrap().clone());
    let mut found: Value = serde_json::from_str(&text).unwrap();
    let digests = found.as_object_mut().unwrap().remove("digests").unwrap();
    for file in ["model.safetensors", "scalers.safetensors"] {
        let digest = crate::sha256_file(&root.path().join(file)).unwrap();
        assert_eq!(digests[file], digest);
    }
    assert_eq!(found, expected);
    assert!(text.ends_with("}\n"));
}

#[test]
fn a_written_model_reads_back_and_replaces_itself_with_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("runs/model");
    let mut config = config();
    config.label_names = Some((0..10).map(|i| format!("class {i}")).collect());
    config.wave = Some(json!({"seed": 1, "recipe": {"steps": 2}}));
    write(&dir, &config).unwrap();
    let first = contents(&dir);
    let files: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(files, ["README.md", CONFIG_FILE, MODEL_FILE, SCALERS_FILE]);
    assert_eq!(first[0].1, b"# Card\n");
    let (read, read_weights) = read_model(&dir).unwrap();
    assert_eq!(read, config);
    check_equal(&read_weights, &some_weights());
    let (scalers, metadata) = read_tensors(&dir.join(SCALERS_FILE)).unwrap();
    assert_eq!(scalers["scalers.0.qkv"].dims(), [2, 3]);
    assert_eq!(metadata["format"], "pt");
    write(&dir, &config).unwrap();
    assert_eq!(first, contents(&dir));
}

#[test]
fn other_peoples_configs_are_read() {
    // A published two-headed network: no model_args, no global_pool, unknown keys, lists.
    let heads = json!(["head.linear", "head_dist.linear"]);
    let published = json!({
        "architecture": "two_heads", "num_classes": 1000, "num_features": 768, "unknown": 1,
        "pretrained_cfg": {
            "tag": "in1k", "custom_load": "npz", "input_size": [3, 224, 224], "crop_pct": 1,
            "first_conv": "stem.conv1.linear", "license": "apache-2.0", "classifier": heads,
        },
    });
    let config = parse(Path::new("config.json"), published).unwrap();
    assert_eq!((config.num_features, &*config.global_pool), (768, ""));
    let prepared = config.pretrained_cfg;
    assert_eq!(prepared.crop_pct, 1.0);
    assert_eq!(prepared.custom_load, "npz");
    assert_eq!(prepared.mean, [0.485, 0.456, 0.406]);
    assert_eq!(prepared.classifier, Some(heads));
}

#[test]
fn narrow_weights_are_written_beside_scalers_of_full_width() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (weights, scalers) = (some_weights(), weights(&[("scalers.0.qkv", &[4, 4])]));
    for (float, narrow) in [(FloatType::F16, "F16"), (FloatType::Bf16, "BF16")] {
        write_model(dir, &config(), &weights, Some(&scalers), "", float, false).unwrap();
        for (file, dtype) in [(MODEL_FILE, narrow), (SCALERS_FILE, "F32")] {
            let bytes = fs::read(dir.join(file)).unwrap();
            let expected = format!("\"dtype\":\"{dtype}\"");
            check_text(&String::from_utf8_lossy(&bytes), &[&expected]);
        }
    }
}

#[test]
fn incomplete_and_other_directories_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let none = Weights::new();
    write_of(dir, &config(), &none, &none).unwrap();
    check_refused(read_model(dir), &["holds no tensor"]);
    fs::remove_file(dir.join(MODEL_FILE)).unwrap();
    let missing = "model.safetensors is missing beside config.json";
    check_refused(read_model(dir), &[missing, "save_file"]);
    fs::write(dir.join(CONFIG_FILE), r#"{"format_version": 1}"#).unwrap();
    let parts = [
        "is a template directory, expected a model directory in timm's layout",
        "wave expand",
    ];
    check_refused(read_model(dir), &parts);
}

#[test]
fn broken_configs_are_refused_by_field() {
    let mut good = serde_json::to_value(config()).unwrap();
    good["label_names"] = Value::Null;
    for (pointer, value, expected) in [
        ("/num_classes", json!("ten"), "string \"ten\""),
        ("/num_classes", json!(-1), "-1"),
        ("/pretrained_cfg/input_size", json!([3, 224]), "length"),
        ("/pretrained_cfg/mean", json!([0.5, 0.5]), "`mean` has 2"),
        ("/pretrained_cfg/std", json!([0.5, 0.0, 0.5]), "`std`"),
        ("/pretrained_cfg/crop_pct", json!(0), "`crop_pct` is 0"),
        ("/label_names", json!(["a", "b"]), "2 names for 10 classes"),
        ("/label_names", json!({"10": "a"}), "10\", expected 0 to 9"),
        ("/label_names", json!({"x": "a"}), "names a class \"x\""),
        ("", json!({"architecture": "x"}), "field `num_classes`"),
    ] {
        let mut broken = good.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        let result = parse(Path::new("config.json"), broken);
        check_refused(result, &["config.json", expected]);
    }
}

#[test]
fn a_write_that_cannot_succeed_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write(dir, &config()).unwrap();
    let before = contents(dir);
    let check = |result: Result<(), HubError>, expected: &str| {
        let error = result.unwrap_err();
        assert!(!error.is_request());
        check_text(&error.to_string(), &[expected]);
        assert_eq!(contents(dir), before);
    };
    let mut wrong = config();
    wrong.label_names = Some(vec!["only one".to_owned()]);
    check(write(dir, &wrong), "1 names for 10");

    // A tensor of the last file to be staged is refused: the earlier ones leave no trace.
    let double = candle_core::Tensor::new(1f64, &candle_core::Device::Cpu).unwrap();
    let scalers = Weights::from([("d".to_owned(), double)]);
    let result = write_of(dir, &config(), &some_weights(), &scalers);
    check(result, "`d` has type F64");

    // A directory is in the place of a file.
    fs::remove_file(dir.join("README.md")).unwrap();
    fs::create_dir(dir.join("README.md")).unwrap();
    let error = write(dir, &config()).unwrap_err();
    check_text(&error.to_string(), &["README.md"]);
    assert_eq!(names(dir).len(), before.len());
    assert_eq!(fs::read(dir.join("config.json")).unwrap(), before[1].1);
}

#[test]
fn what_timm_takes_for_absent_is_absent_and_names_may_have_numbers() {
    let usual = json!({"architecture": "x", "num_classes": 3, "pretrained_cfg": {}});
    let read = |change: &dyn Fn(&mut Value)| {
        let mut json = usual.clone();
        change(&mut json);
        parse(Path::new("config.json"), json).unwrap()
    };
    let plain = read(&|_| {});
    let cfg = serde_json::to_value(PretrainedCfg::default()).unwrap();
    for key in cfg.as_object().unwrap().keys() {
        let found = read(&|json| json["pretrained_cfg"][key] = Value::Null);
        assert_eq!(found, plain, "{key}");
    }
    for key in ["model_args", "label_names", "global_pool", "num_features"] {
        let found = read(&|json| json[key] = Value::Null);
        assert_eq!(found, plain, "{key}");
    }
    assert_eq!(read(&|json| json["label_names"] = json!([])), plain);
    let named = read(&|json| json["label_names"] = json!({"0": "cat", "2": "dog"}));
    assert_eq!(named.label_names.unwrap(), ["cat", "1", "dog"]);
}

#[test]
fn a_flipped_bit_is_told_by_the_digest_and_files_without_one_are_not_compared() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    write(dir, &config()).unwrap();
    crate::check_digests(dir).unwrap();
    let path = dir.join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let parts = ["model.safetensors", "SHA-256", "copy both again"];
    check_refused(crate::check_digests(dir), &parts);
    let config = dir.join("config.json");
    let mut json: Value = crate::read_json(&config).unwrap();
    json["digests"] = json!(["x"]);
    crate::write_json(&config, &json).unwrap();
    check_refused(crate::check_digests(dir), &["`digests` is [\"x\"]"]);
    // Other tools write no digests, and other names are not an artefact's.
    for digests in [Value::Null, json!({"../x.safetensors": "0"})] {
        json["digests"] = digests;
        crate::write_json(&config, &json).unwrap();
        crate::check_digests(dir).unwrap();
    }
}
