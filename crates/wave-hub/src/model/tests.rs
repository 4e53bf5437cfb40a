//! timm's files in both directions, and directories that are incomplete.

use std::fs;

use serde_json::json;

use super::*;
use crate::read_tensors;
use crate::testing::{check_equal, check_refused, names, weights};

fn config() -> ModelConfig {
    let json = json!({
        "architecture": "deit_tiny_patch16_224", "num_classes": 10, "num_features": 576,
        "global_pool": "token",
        "model_args": {"embed_dim": 576, "depth": 6, "num_heads": 9},
        "pretrained_cfg": {
            "tag": "wave", "fixed_input_size": true, "crop_pct": 0.9, "num_classes": 10,
            "first_conv": "patch_embed.proj", "classifier": "head",
        },
    });
    serde_json::from_value(json).unwrap()
}

fn some_weights() -> Weights {
    weights(&[("head.weight", &[10, 4]), ("head.bias", &[10])])
}

/// Every file's name and content.
fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    names(dir)
        .into_iter()
        .map(|name| {
            let bytes = fs::read(dir.join(&name)).unwrap();
            (name, bytes)
        })
        .collect()
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
    let expected = json!({
        "architecture": "deit_tiny_patch16_224", "num_classes": 10, "num_features": 576,
        "global_pool": "token",
        "model_args": {"embed_dim": 576, "depth": 6, "num_heads": 9},
        "pretrained_cfg": {
            "tag": "wave", "custom_load": false, "input_size": [3, 224, 224],
            "fixed_input_size": true, "interpolation": "bicubic", "crop_pct": 0.9,
            "crop_mode": "center", "mean": [0.485, 0.456, 0.406],
            "std": [0.229, 0.224, 0.225], "num_classes": 10, "pool_size": null,
            "first_conv": "patch_embed.proj", "classifier": "head",
        },
    });
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
    let files = [
        "README.md",
        "config.json",
        "model.safetensors",
        "scalers.safetensors",
    ];
    assert_eq!(names(&dir), files);
    let (read, read_weights) = read_model(&dir).unwrap();
    assert_eq!(read, config);
    check_equal(&read_weights, &some_weights());
    let (scalers, metadata) = read_tensors(&dir.join("scalers.safetensors")).unwrap();
    assert_eq!(scalers["scalers.0.qkv"].dims(), [2, 3]);
    assert_eq!(metadata["format"], "pt");
    assert_eq!(
        fs::read_to_string(dir.join("README.md")).unwrap(),
        "# Card\n"
    );
    let first = contents(&dir);
    write(&dir, &config).unwrap();
    assert_eq!(first, contents(&dir));
}

#[test]
fn other_peoples_configs_are_read() {
    // A published two-headed network: no model_args, no global_pool, unknown keys, lists.
    let published = json!({
        "architecture": "two_heads", "num_classes": 1000, "num_features": 768, "unknown": 1,
        "pretrained_cfg": {
            "tag": "in1k", "custom_load": "npz", "input_size": [3, 224, 224], "crop_pct": 1,
            "first_conv": "stem.conv1.linear", "license": "apache-2.0",
            "classifier": ["head.linear", "head_dist.linear"],
        },
    });
    let config = parse(Path::new("config.json"), published).unwrap();
    assert_eq!(
        (config.num_features, config.global_pool.as_str()),
        (768, "")
    );
    let prepared = config.pretrained_cfg;
    assert_eq!(prepared.crop_pct, 1.0);
    assert_eq!(prepared.custom_load, "npz");
    assert_eq!(prepared.mean, [0.485, 0.456, 0.406]);
    let heads = json!(["head.linear", "head_dist.linear"]);
    assert_eq!(prepared.classifier, Some(heads));
}

#[test]
fn narrow_weights_are_written_beside_scalers_of_full_width() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path();
    let (weights, scalers) = (some_weights(), weights(&[("scalers.0.qkv", &[4, 4])]));
    let write = |scalers, float| {
        write_model(dir, &config(), &weights, scalers, "", float, false).unwrap();
    };
    write(Some(&scalers), FloatType::Bf16);
    let (_, read) = read_model(dir).unwrap();
    assert!(read.keys().eq(weights.keys()));
    let half = fs::metadata(dir.join(MODEL_FILE)).unwrap().len();
    check_equal(
        &read_tensors(&dir.join("scalers.safetensors")).unwrap().0,
        &scalers,
    );
    write(None, FloatType::F32);
    check_equal(&read_model(dir).unwrap().1, &weights);
    assert!(fs::metadata(dir.join(MODEL_FILE)).unwrap().len() > half);
}

#[test]
fn what_is_missing_is_said() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("model");
    write(&dir, &config()).unwrap();
    fs::remove_file(dir.join(MODEL_FILE)).unwrap();
    let parts = [
        "model.safetensors is missing beside config.json",
        "save_file",
    ];
    check_refused(read_model(&dir), &parts);
    fs::write(dir.join(CONFIG_FILE), r#"{"format_version": 1}"#).unwrap();
    let parts = ["is a template directory", "wave expand"];
    check_refused(read_model(&dir), &parts);
}

#[test]
fn broken_configs_are_refused_by_field() {
    let good: Value = serde_json::to_value(config()).unwrap();
    let refused = |broken: Value, expected| {
        check_refused(
            parse(Path::new("config.json"), broken),
            &["config.json", expected],
        );
    };
    for (pointer, value, expected) in [
        ("/num_classes", json!("ten"), "string \"ten\""),
        ("/num_classes", json!(-1), "-1"),
        ("/pretrained_cfg/input_size", json!([3, 224]), "length"),
        ("/pretrained_cfg/mean", json!([0.5, 0.5]), "`mean` has 2"),
        ("/pretrained_cfg/std", json!([0.5, 0.0, 0.5]), "`std`"),
        ("/pretrained_cfg/crop_pct", json!(0), "`crop_pct` is 0"),
    ] {
        let mut broken = good.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        refused(broken, expected);
    }
    let mut broken = good.clone();
    broken["label_names"] = json!(["a", "b"]);
    refused(broken, "2 names for 10 classes");
    refused(json!({"architecture": "x"}), "missing field `num_classes`");
}

#[test]
fn a_model_without_tensors_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let none = Weights::new();
    write_of(root.path(), &config(), &none, &none).unwrap();
    check_refused(read_model(root.path()), &["holds no tensor"]);
}

#[test]
fn a_write_that_cannot_succeed_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("model");
    write(&dir, &config()).unwrap();
    let before = contents(&dir);

    let mut wrong = config();
    wrong.label_names = Some(vec!["only one".to_owned()]);
    let error = write(&dir, &wrong).unwrap_err();
    assert!(!error.is_request());
    assert!(error.to_string().contains("1 names for 10"), "{error}");
    assert_eq!(contents(&dir), before);

    let mut wrong = config();
    wrong.pretrained_cfg.mean[0] = f64::NAN;
    assert!(write(&dir, &wrong).is_err());
    assert_eq!(contents(&dir), before);

    // A tensor of the last file to be staged is refused: the earlier ones leave no trace.
    let double = candle_core::Tensor::new(1f64, &candle_core::Device::Cpu).unwrap();
    let scalers = Weights::from([("d".to_owned(), double)]);
    let result = write_of(&dir, &config(), &some_weights(), &scalers);
    assert!(result.is_err());
    assert_eq!(contents(&dir), before);
}

#[test]
fn a_directory_in_the_place_of_a_file_is_refused_before_anything_changes() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("model");
    fs::create_dir_all(dir.join("README.md")).unwrap();
    fs::write(dir.join("config.json"), "old").unwrap();
    let error = write(&dir, &config()).unwrap_err();
    assert!(error.to_string().contains("README.md"), "{error}");
    assert_eq!(names(&dir), ["README.md", "config.json"]);
    assert_eq!(fs::read(dir.join("config.json")).unwrap(), b"old");
}

#[test]
fn what_timm_takes_for_absent_is_absent_and_names_may_have_numbers() {
    let usual = json!({"architecture": "x", "num_classes": 3, "pretrained_cfg": {}});
    let read = |change: &dyn Fn(&mut Value)| {
        let mut json = usual.clone();
        change(&mut json);
        parse(Path::new("config.json"), json)
    };
    let plain = read(&|_| {}).unwrap();
    let cfg = serde_json::to_value(PretrainedCfg::default()).unwrap();
    for key in cfg.as_object().unwrap().keys() {
        let found = read(&|json| json["pretrained_cfg"][key] = Value::Null).unwrap();
        assert_eq!(found, plain, "{key}");
    }
    for key in ["model_args", "label_names", "global_pool", "num_features"] {
        assert_eq!(
            read(&|json| json[key] = Value::Null).unwrap(),
            plain,
            "{key}"
        );
    }
    let named = read(&|json| json["label_names"] = json!({"0": "cat", "2": "dog"})).unwrap();
    assert_eq!(named.label_names.unwrap(), ["cat", "1", "dog"]);
    for (names, part) in [
        (json!({"3": "cat"}), "names a class \"3\", expected 0 to 2"),
        (json!({"x": "cat"}), "names a class \"x\""),
    ] {
        check_refused(read(&|json| json["label_names"] = names.clone()), &[part]);
    }
    check_refused(
        read(&|json| json["pretrained_cfg"] = json!([])),
        &["`pretrained_cfg` is []"],
    );
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
