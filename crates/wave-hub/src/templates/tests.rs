//! Round trips, and a file and a configuration that contradict each other.

use std::fs;

use serde_json::json;

use super::*;
use crate::testing::{check_equal, check_refused, check_text, counting, names};

/// Two sets: the attention parts share one. Template size 4, two anchors.
fn config() -> TemplateConfig {
    let json = json!({
        "format_version": 1, "kronecker": "tile", "template_size": 4,
        "counts": {"attention": 3, "mlp": 5},
        "sets": {"qkv": "attention", "proj": "attention", "fc1": "mlp", "fc2": "mlp"},
        "anchors": 2,
        "auxiliary": {"width": 8, "depth": 2, "heads": 2, "mlp_ratio": 4.0},
        "head_width": 4, "patch": 4, "image_size": 28, "channels": 1, "classes": 2,
        "label_names": ["cat", "dog"], "mean": [0.286], "std": [0.353], "crop_pct": 1.0,
        "provenance": {"seed": 7, "ancestor": "levit"},
        "accuracies": [{"depth": 2, "width": 8, "top1": 0.875, "condition": "scalers only"}],
    });
    serde_json::from_value(json).unwrap()
}

/// The tensors of a level of width 4 `n` with three templates of attention and `mlp` of the other kind.
fn level_weights(prefix: &str, n: usize, mlp: usize) -> Weights {
    let mut shapes = vec![
        ("templates.attention".to_owned(), vec![3, 4, 4]),
        ("templates.mlp".to_owned(), vec![mlp, 4, 4]),
        ("auxiliary.head.weight".to_owned(), vec![2, 4 * n]),
    ];
    for k in 0..2 {
        shapes.extend([
            (format!("bank.{k}.qkv"), vec![3, 3 * n, n]),
            (format!("bank.{k}.proj"), vec![3, n, n]),
            (format!("bank.{k}.fc1"), vec![mlp, 4 * n, n]),
            (format!("bank.{k}.fc2"), vec![mlp, n, 4 * n]),
        ]);
    }
    let all = shapes.into_iter();
    all.map(|(name, shape)| (format!("{prefix}{name}"), counting(&shape)))
        .collect()
}

fn some_weights() -> Weights {
    level_weights("", 2, 5)
}

/// Asserts that `weights` with another tensor, or none, of that name are not written.
#[track_caller]
fn check_not_written(
    (config, weights): (&TemplateConfig, &Weights),
    (name, shape, expected): (&str, Option<&[usize]>, &str),
) {
    let mut weights = weights.clone();
    weights.remove(name);
    weights.extend(shape.map(|shape| (name.to_owned(), counting(shape))));
    let root = tempfile::tempdir().unwrap();
    let error = write_of(root.path(), config, &weights).unwrap_err();
    assert!(!error.is_request());
    check_text(&error.to_string(), &[expected]);
    assert!(names(root.path()).is_empty());
}

fn write_of(dir: &Path, config: &TemplateConfig, weights: &Weights) -> Result<(), HubError> {
    write_templates(dir, config, weights, FloatType::F32, "# Card\n")
}

fn write(dir: &Path) {
    write_of(dir, &config(), &some_weights()).unwrap();
}

#[test]
fn written_templates_read_back_and_give_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (root.path().join("deep/one"), root.path().join("two"));
    write(&one);
    write(&two);
    let files = [
        "README.md",
        "config.json",
        "expand.py",
        "templates.safetensors",
    ];
    assert_eq!(names(&one), files);
    for name in files {
        let [first, second] = [&one, &two].map(|dir| fs::read(dir.join(name)).unwrap());
        assert_eq!(first, second);
    }
    let (read, read_weights) = read_templates(&one).unwrap();
    assert_eq!(read, config());
    check_equal(&read_weights, &some_weights());
    assert_eq!(crate::directory_kind(&one).unwrap(), Kind::Templates);
}

#[test]
fn what_is_missing_is_said() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("templates");
    check_refused(read_templates(&dir), &["no such directory"]);
    write(&dir);
    fs::remove_file(dir.join(TEMPLATES_FILE)).unwrap();
    let missing = "templates.safetensors is missing beside config.json";
    check_refused(read_templates(&dir), &[missing, "condense again"]);
    fs::write(dir.join(CONFIG_FILE), r#"{"architecture": "vit"}"#).unwrap();
    let parts = ["is a model directory", "wave condense"];
    check_refused(read_templates(&dir), &parts);
}

/// Asserts that the good directory with another value in its configuration is refused, by `pointer value =>
/// part of the message`.
#[track_caller]
fn check_config_refused(case: &str, parts: &[&str]) {
    let (change, expected) = case.split_once(" => ").unwrap();
    let (pointer, value) = change.split_once(' ').unwrap();
    let root = tempfile::tempdir().unwrap();
    write(root.path());
    let mut json = serde_json::to_value(config()).unwrap();
    *json.pointer_mut(pointer).unwrap() = serde_json::from_str(value).unwrap();
    fs::write(root.path().join(CONFIG_FILE), json.to_string()).unwrap();
    let parts = [parts, &[expected]].concat();
    check_refused(read_templates(root.path()), &parts);
}

#[test]
fn other_format_versions_are_refused() {
    check_config_refused("/format_version 0 => is 0, expected 1", &["make it again"]);
    check_config_refused(r#"/format_version "1" => is "1", expected 1"#, &[]);
    let root = tempfile::tempdir().unwrap();
    let check = |config: &str, parts: &[&str]| {
        fs::write(root.path().join(CONFIG_FILE), config).unwrap();
        check_refused(read_templates(root.path()), parts);
    };
    check(r#"{"kronecker": "tile"}"#, &["`format_version` is missing"]);
    // A later version may have another format: the error only says that it is later.
    check(r#"{"format_version": 9}"#, &["is 9, expected 1", "newer"]);
}

#[test]
fn impossible_configs_are_refused_by_field() {
    for case in [
        r#"/kronecker "stack" => `tile` or `interleave`"#,
        "/template_size 0 => `template_size` is 0",
        "/anchors 0 => `anchors` is 0",
        r#"/sets {"qkv": "attention"} => expected ["qkv""#,
        r#"/sets/fc2 "other" => `counts` counts"#,
        r#"/counts {"attention": 3, "mlp": 5, "idle": 1} => idle"#,
        "/counts/mlp 0 => `mlp` no template",
        r#"/label_names ["cat"] => 1 names for 2 classes"#,
        "/mean [0.1, 0.2] => `mean` has 2 values and `std` has 1",
        "/channels 3 => 1 values for 3 channels",
        "/std [0] => `std`",
        "/accuracies/0/top1 87.5 => an accuracy is 87.5",
        r#"/patch "four" => string "four""#,
    ] {
        check_config_refused(case, &["config.json"]);
    }
}

#[test]
fn a_config_that_contradicts_the_file_is_refused_by_tensor() {
    for case in [
        "/template_size 8 => `templates.attention` has shape [3, 4, 4]",
        "/counts/mlp 4 => `templates.mlp`",
        "/anchors 3 => `bank.2.fc1` is missing",
        "/anchors 1 => `bank.1.fc1`, which config.json does not provide for",
        r#"/sets/proj "mlp" => `bank.0.proj` has shape [3, 2, 2]"#,
    ] {
        check_config_refused(case, &["templates.safetensors", "both"]);
    }
}

#[test]
fn weights_that_contradict_the_config_are_not_written() {
    for case in [
        ("templates.mlp", None, "`templates.mlp` is missing"),
        ("bank.1.qkv", Some(&[3, 6, 4][..]), "unlike `bank.0.qkv`"),
        ("bank.0.qkv", Some(&[3, 12]), "has shape [3, 12]"),
        ("bank.0.qkv", Some(&[3, 0, 2]), "`bank.0.qkv` has shape"),
        ("bank.0.fc3", Some(&[1]), "`bank.0.fc3`, which"),
        ("templates.more", Some(&[1]), "`templates.more`, which"),
    ] {
        check_not_written((&config(), &some_weights()), case);
    }
}

#[test]
fn smaller_levels_have_tensors_of_their_own() {
    let mut config = config();
    let level = |depth, width, mlp| {
        let level =
            json!({ "depth": depth, "width": width, "counts": { "attention": 3, "mlp": mlp } });
        serde_json::from_value(level).unwrap()
    };
    config.levels = vec![level(1, 4, 2), level(2, 8, 5)];
    let mut weights = some_weights();
    weights.extend(level_weights("levels.0.", 1, 2));
    let root = tempfile::tempdir().unwrap();
    write_of(root.path(), &config, &weights).unwrap();
    let (read, read_weights) = read_templates(root.path()).unwrap();
    assert_eq!(read, config);
    check_equal(&read_weights, &weights);

    let (mlp, stranger) = ("levels.0.templates.mlp", "levels.1.auxiliary.head.weight");
    for case in [
        (mlp, None, "`levels.0.templates.mlp` is missing"),
        (mlp, Some(&[5, 4, 4][..]), "says [2, 4, 4]"),
        ("levels.0.bank.1.fc1", Some(&[2, 3, 1]), "unlike `levels.0"),
        ("levels.0.bank.2.fc1", Some(&[2, 4, 1]), "2.fc1`, which"),
        (stranger, Some(&[2, 4, 1]), "head.weight`, which"),
    ] {
        check_not_written((&config, &weights), case);
    }
}

#[test]
fn templates_of_zeros_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut weights = some_weights();
    let zeros = weights["templates.mlp"].zeros_like().unwrap();
    weights.insert("templates.mlp".into(), zeros);
    write_of(root.path(), &config(), &weights).unwrap();
    let parts = ["templates.safetensors", "`templates.mlp` is 0 everywhere"];
    check_refused(read_templates(root.path()), &parts);
}

#[test]
fn what_is_usual_is_left_out_and_what_is_not_reads_back() {
    let root = tempfile::tempdir().unwrap();
    let mut config = config();
    let written = |config: &TemplateConfig| {
        write_of(root.path(), config, &some_weights()).unwrap();
        fs::read_to_string(root.path().join(CONFIG_FILE)).unwrap()
    };
    let text = written(&config);
    for key in ["depth_rule", "interpolation", "crop_mode"] {
        assert!(!text.contains(key), "{text}");
    }
    config.depth_rule = Some("l/L".into());
    config.interpolation = Some("bilinear".into());
    config.crop_mode = Some("squash".into());
    written(&config);
    assert_eq!(read_templates(root.path()).unwrap().0, config);
    config.depth_rule = Some("l".into());
    let json = serde_json::to_string(&config).unwrap();
    fs::write(root.path().join(CONFIG_FILE), json).unwrap();
    check_refused(read_templates(root.path()), &["`depth_rule` is `l`"]);
}
