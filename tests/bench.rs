//! `wave run` with all stages of a recipe, and `wave bench`.

use crate::support::{CONVMIXER, Place, RECIPE, files};
use serde_json::Value;
use std::path::Path;

#[test]
fn templates_that_grow_are_compared_and_all_trainings_share_one_cache() {
    let place = Place::new();
    place.json(&format!("{CONVMIXER} --data shapes --out a"));
    let table = r#"
[finetune]
steps = 4
lr = 1e-3

[bench]
sizes = [[2, 16], [3, 32]]
seeds = [0]
cache = "outputs"

[bench.donors.small]
depth = 2
width = 16
distil = true
finetune = { views = 2, crop_padding = 2, flip = true }

[bench.methods.grown]
start = "templates"
condense = { levels = [{ depths = [2], widths = [16] }, { depths = [2, 3], widths = [16, 32], steps = 8 }] }

[bench.methods.selected]
start = "weight-selection"
donor = "small"
sizes = [[2, 16]]

[bench.methods.alone]
start = "mimetic"
pretrain = { views = 2, crop_padding = 2, flip = true, distil = true }
"#;
    let recipe = RECIPE.replace("kl_weight = 0", "ancestor = \"a\"");
    place.write("c.toml", format!("{recipe}\n{table}"));
    let rows = place.json("run c.toml --out o")["rows"].clone();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 5);
    // 12 steps and 8 of 8 an epoch.
    let grown = rows.iter().filter(|row| row["method"] == "grown");
    for row in grown {
        assert_eq!(row["shared_epochs"], 2.5, "{row}");
    }
    assert!(place.path("outputs/cache.json").exists());
    let result = |dir: &str| -> Value { place.read(&format!("o/{dir}/run/result.json")) };
    let computed = |dir: &str| result(dir)["cache"]["ancestor_images"].as_u64().unwrap();
    // Donors come first; what they left is there for the templates.
    assert_eq!(computed("donors/small-0"), 256);
    assert_eq!(computed("templates/grown-0/run/levels/0"), 256);
    assert_eq!(computed("templates/grown-0"), 0);
    // The smallest alone is that donor; its training is not repeated.
    assert_eq!(computed("pretrained/alone-3x32-s0"), 0);
    let made = |dir: &str| place.path(&format!("o/{dir}/run/result.json")).exists();
    assert!(!made("pretrained/alone-2x16-s0"));
    let mut rows = rows.iter();
    let alone = rows.find(|row| row["method"] == "alone" && row["depth"] == 2);
    assert_eq!(
        alone.unwrap()["start_top1"],
        result("donors/small-0")["top1"]
    );
}

#[test]
fn rows_are_the_same_in_any_number_of_jobs_and_are_kept() {
    let place = Place::new();
    // A dot in a name is no extension.
    let table = r#"
[finetune]
steps = 2
lr = 1e-3

[bench]
sizes = [[1, 16], [2, 32]]
seeds = [0, 1]
jobs = JOBS

[bench.methods.wave]
start = "templates"

[bench.methods."my.v1"]
start = "timm"
pretrain = { steps = 2 }

[bench.methods."my.v2"]
start = "mimetic"
sizes = [[1, 16]]
pretrain = { steps = 2 }
"#;
    let run = |jobs: &str, args: &str| -> Value {
        let table = table.replace("JOBS", jobs);
        place.write("c.toml", format!("{RECIPE}\n{table}"));
        place.json(&format!("run c.toml --out {args}"))
    };
    let same = |made: &Value| -> Vec<Value> {
        let mut rows = made["rows"].as_array().unwrap().clone();
        for row in &mut rows {
            row["seconds"] = Value::Null;
            row["fingerprint"] = Value::Null; // of threads too
        }
        rows
    };
    // A kill leaves files in a start, which are removed.
    let left = "o/pretrained/my.v1-1x16-s0.start/.wave-left.tmp";
    place.write(left, "half");
    let first = run("2", "o");
    assert!(!place.path(left).exists());
    assert_eq!(first["out"], "o");
    let rows = first["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        assert!((0.0..=1.0).contains(&row["top1"].as_f64().unwrap()));
        assert!(row["epochs"].as_f64().unwrap() > 0.0);
        for key in ["depth", "width", "seed", "transferred_parameters"] {
            assert!(row[key].is_u64(), "{key}");
        }
    }
    assert_eq!(place.read("o/rows.json"), first["rows"]);
    assert_eq!(same(&run("1", "a")), same(&first));
    for start in ["my.v1-1x16-s0", "my.v1-2x32-s1", "my.v2-1x16-s0"] {
        place.bytes(&format!("o/pretrained/{start}.start/model.safetensors"));
    }

    // A cell that was lost comes out the same; one that was edited is not believed.
    std::fs::remove_file(place.path("o/cells/my.v2-1x16-s0.json")).unwrap();
    let cell = "o/cells/my.v1-1x16-s0.json";
    let mut edited = place.read(cell);
    edited["top1"] = 0.99.into();
    place.write(cell, edited.to_string());
    let second = run("2", "o --resume");
    assert_eq!(same(&second), same(&first));
    assert_eq!(run("2", "o --resume"), second);

    // With other templates, cells of other methods are kept.
    let written = |cell: &str| {
        let file = place.path(&format!("o/cells/{cell}-1x16-s0.json"));
        std::fs::metadata(file).unwrap().modified().unwrap()
    };
    let before = ["wave", "my.v1"].map(written);
    std::fs::remove_dir_all(place.path("o/templates")).unwrap();
    run("2", "o --resume --set condense.lr=5e-3");
    let after = ["wave", "my.v1"].map(written);
    assert!(after[0] > before[0]);
    assert_eq!(after[1], before[1]);
}

/// Every way to start a model, on tiny models.
const METHODS: &str = r#"
[ancestor]
steps = 2

[ancestor.init]
arch = "convmixer"
depth = 1
width = 8
kernel = 3
patch = 4

[finetune]
steps = 3
lr = 1e-3

[bench]
sizes = [[2, 16], [3, 32]]
jobs = 2
subject = "wave"
ablations = { "Components" = ["wave", "mlp-alone"] }
break_even = [["wave", "mimetic"], ["wave", "direct-pt"]]

[bench.donors.deep]
depth = 4
width = 32
finetune = { steps = 2 }

[bench.donors.narrow]
depth = 2
width = 16
distil = true
finetune = { steps = 2 }

[bench.donors.elastic]
depth = 4
width = 32
finetune = { steps = 4, depths = [1, 4], widths = [16, 32], growth = 0.5 }

[bench.methods]
mimetic = { start = "mimetic" }
layerscale = { start = "layerscale", init = { gamma = 0.5 } }
weight-selection = { start = "weight-selection", donor = "deep" }
pretrained-attention = { start = "pretrained-attention", donor = "deep", sizes = [[3, 32]] }
heru-lg = { start = "heru-lg", donor = "deep", sizes = [[3, 32]] }
auto-lg = { start = "auto-lg", donor = "deep", resembles = "narrow", sizes = [[3, 32]], init = { blocks = 2 } }
ligo = { start = "ligo", donor = "narrow", operator = { steps = 2, lr = 1e-2 } }
prune = { start = "prune", donor = "deep", init = { train_limit = 50 } }
nested = { start = "nested", donor = "elastic", init = { layers = "uniform" } }
direct-pt = { start = "timm", pretrain = { steps = 2, distil = true }, pretrain_at = { 3x32 = { steps = 4 } } }

[bench.methods.share]
start = "templates"
sizes = [[3, 32]]
condense = { steps = 2, widths = [32], template_size = 32, templates = [3, 1, 4, 4], anchors = 1, scaler_start = "share", scaler_lr_ratio = 0.0 }

[bench.methods.tleg]
start = "templates"
sizes = [[3, 32]]
condense = { steps = 2, widths = [32], template_size = 32, templates = [6, 2, 8, 8], anchors = 2, scaler_start = "telg", scaler_lr_ratio = 0.0 }

[bench.methods.wave]
start = "templates"

[bench.methods.fitted]
start = "templates"
expand = { steps = 2, scalers = "random" }

[bench.methods.mlp-alone]
start = "templates"
inherit = ["mlp", "outer"]
"#;

#[test]
fn every_method_runs_once_and_says_what_it_cost() {
    let place = Place::new();
    let recipe = RECIPE.replace("kl_weight = 0\n", "");
    place.write("b.toml", format!("{recipe}\n{METHODS}"));
    let first = place.json("bench b.toml --out o");
    let rows = first["rows"].as_array().unwrap();
    let of = |method: &str, depth: u64| -> &Value {
        let found = rows
            .iter()
            .find(|r| r["method"] == method && r["depth"] == depth);
        found.unwrap_or_else(|| panic!("no row of {method} with {depth} layers"))
    };
    assert_eq!(rows.len(), 10 + 14 - 1 + 2); // 10 methods at both sizes, 5 at the larger one
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();

    let own = |depth| number(of("direct-pt", depth), "own_epochs");
    assert_eq!(own(3), 2.0 * own(2)); // what pretrain_at says

    // Closed-form methods inherit nothing, all others something.
    for row in rows {
        let direct = ["mimetic", "layerscale"].contains(&row["method"].as_str().unwrap());
        let transferred = number(row, "transferred_parameters");
        assert_eq!(transferred == 0.0, direct, "{row}");
    }
    // Whole layers: 12 d² + 13 d each, beside patches, positions, final norm and head.
    let transferred = |method: &str| number(of(method, 3), "transferred_parameters");
    let (matrices, vectors) = (12.0 * 32.0 * 32.0, 13.0 * 32.0);
    let scalers = 3.0 * (3.0 * 3.0 + 1.0 + 4.0 * 4.0 + 4.0 * 4.0);
    let outer = transferred("share") - matrices - scalers - 3.0 * vectors;
    assert_eq!(transferred("heru-lg"), 3.0 * (matrices + vectors) + outer);
    assert_eq!(transferred("auto-lg"), 2.0 * (matrices + vectors) + outer);

    // Epochs: shared by all models, or of each model alone.
    let costs =
        |method: &str| ["shared_epochs", "own_epochs"].map(|key| number(of(method, 3), key) > 0.0);
    for (method, expected) in [
        ("mimetic", [false, false]),
        ("wave", [true, false]),
        ("fitted", [true, true]),
        ("ligo", [true, true]),
        ("direct-pt", [false, true]),
        ("nested", [true, false]),
    ] {
        assert_eq!(costs(method), expected, "{method}");
    }
    let both = number(of("auto-lg", 3), "shared_epochs");
    assert_eq!(both, 2.0 * number(of("heru-lg", 3), "shared_epochs"));

    place.bytes("o/sizes.svg");
    let report = place.text("o/report.md");
    for needle in ["wave", "weight-selection", "Components"] {
        assert!(report.contains(needle), "{needle}");
    }

    // Nothing is repeated, even where the report is lost.
    let cell = place.bytes("o/cells/ligo-3x32-s0.json");
    std::fs::remove_file(place.path("o/report.md")).unwrap();
    assert_eq!(place.json("bench b.toml --out o"), first);
    assert_eq!(place.bytes("o/cells/ligo-3x32-s0.json"), cell);
    assert!(place.path("o/report.md").exists());
}

#[test]
fn what_fails_is_reported_and_the_rest_goes_on() {
    let place = Place::new();
    let table = r#"
[finetune]
steps = 2

[bench]
sizes = [[2, 16]]
donors.small = { depth = 1, width = 16, finetune.steps = 1 }
methods.mimetic.start = "mimetic"
methods.too-deep = { start = "weight-selection", donor = "small" }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    place.fails("bench b.toml --out failed", 1, &["too-deep-2x16-s0"]);
    let report = place.text("failed/report.md");
    for needle in ["too-deep-2x16-s0", "depth"] {
        assert!(report.contains(needle), "{report}");
    }
    place.bytes("failed/cells/mimetic-2x16-s0.json");
}

#[test]
fn wrong_methods_are_refused() {
    let place = Place::new();
    for (wrong, needle) in [
        ("a = { start = 'mimetic', donor = 'x' }", "donor x"),
        ("a = { start = 'ligo' }", "takes one donor"),
        ("a = { start = 'he', lr_of = 'b' }", "a method b"),
        ("a = { start = 'he', lr_of = 'a' }", "without lr_of"),
        (
            "a = { start = 'he', pretrain.seed = 1 }",
            "set seeds in [bench]",
        ),
        ("a = { start = 'magic' }", "magic"),
        ("a = { start = 'he', colour = 1 }", "colour"),
        ("a = { start = 'he', inherit = ['mlp'] }", "inherit"),
        ("a = { start = 'he', distil = true }", "ancestor"),
        // Rows made with another ancestor would be taken for these.
        (
            "a = { start = 'he', finetune.ancestor = 'm' }",
            "distil = true",
        ),
        (
            "a = { start = 'he', pretrain.ancestor = 'm' }",
            "distil = true",
        ),
        (
            "a = { start = 'he' }\n[bench.datasets]\nd = { ancestor = 'm' }",
            "distil = true",
        ),
        ("a = { start = 'he' }\n[bench.donors.d]\ndepth = 2", "model"),
        (
            "a = { start = 'he' }\n[bench.donors.d]\nmodel = 'm'\ndistil = true",
            "not trained here",
        ),
        (
            "a = { start = 'he' }\n[bench.donors.d]\ndepth = 1\nwidth = 16\nstart = 'magic'",
            "magic",
        ),
        (
            "a = { start = 'he' }\n[bench.donors.d]\ndepth = 1\nwidth = 16\nstart = 'ligo'",
            "takes a donor itself",
        ),
        (
            "a = { start = 'he', lr_of = 'b', finetune.lr = 1e-3 }\nb = { start = 'timm' }",
            "lr_of replaces lr",
        ),
        (
            "a = { start = 'templates', donor = 'd', condense.ancestor = 'm' }\n[bench.donors.d]\nmodel = 'd'",
            "donor replaces ancestor",
        ),
        (
            "a = { start = 'ligo', donor = 'd', operator.seed = 3 }\n[bench.donors.d]\nmodel = 'd'",
            "set seeds in [bench]",
        ),
        (
            "a = { start = 'ligo', donor = 'd', operator.ancestor = 'm' }\n[bench.donors.d]\nmodel = 'd'",
            "distil = true",
        ),
        (
            "a = { start = 'ligo', donor = 'd', operator.freeze = ['head'] }\n[bench.donors.d]\nmodel = 'd'",
            "freeze does not apply to LiGO's operator",
        ),
        // The names are in those of files.
        ("'a/b' = { start = 'he' }", "\"a/b\""),
        (
            "a = { start = 'he' }\n[bench.datasets]\n'..\\d' = {}",
            "without / and",
        ),
        (
            "a = { start = 'he' }\n[bench.donors.'../d']\ndepth = 1\nwidth = 16",
            "\"../d\"",
        ),
        (
            "a = { start = 'he' }\n[bench.donors.d]\ndepth = 0\nwidth = 16",
            "depth is 0",
        ),
        // The rest would run nothing, or change nothing.
        ("a = { start = 'he', sizes = [] }", "sizes or datasets"),
        ("a = { start = 'he', datasets = [] }", "sizes or datasets"),
        ("a = { start = 'he', sizes = [[3, 32]] }", "size [3, 32]"),
        ("a = { start = 'he', rest = 'timm' }", "rest"),
        ("a = { start = 'templates', rest = 'he' }", "rest"),
        ("a = { start = 'he', condense.steps = 1 }", "condense"),
        ("a = { start = 'he', expand.steps = 1 }", "expand"),
        ("a = { start = 'he', init.depth = 3 }", "init has depth"),
        ("a = { start = 'he', init.gamma = 0.1 }", "gamma"),
        ("a = { start = 'templates', expand.width = 8 }", "width"),
        (
            "a = { start = 'templates', expand.max_params = 'five' }",
            "max_params",
        ),
        ("a = { start = 'templates', init.gamma = 0.1 }", "init"),
        ("a = { start = 'templates', expand.stps = 1 }", "stps"),
        ("a = { start = 'he', finetune.lr = -1 }", "lr = -1"),
        ("a = { start = 'he', init.rest = 1 }", "rest"),
        (
            "a = { start = 'he', pretrain.steps = 1, pretrain_at.2x16 = { stps = 1 } }",
            "stps",
        ),
        (
            "a = { start = 'he' }\n[bench.donors.d]\ndepth = 1\nwidth = 16\nfinetune.stps = 1",
            "donors.d",
        ),
        ("a = { start = 'templates', operator.steps = 3 }", "ligo"),
    ] {
        let table = format!("{RECIPE}\n[bench]\nsizes = [[2, 16]]\n[bench.methods]\n{wrong}");
        place.write("w.toml", table);
        place.refused("bench w.toml --out w", &[needle]);
    }
    place.refused("bench r.toml --out w", &[]); // no [bench]
    let bench = "[bench]\nsizes = [[1, 32]]\n[bench.methods]\na = { start = 'he' }";
    place.write("b.toml", format!("{RECIPE}\n{bench}"));
    let ancestor = "ancestor = \"m\"";
    let args = "bench b.toml --out o --set finetune.ancestor=m";
    place.refused(args, &[ancestor, "distil = true"]);
    for (entries, needle) in [
        ("sizes=[[1,32],[2,32],[1,32]]", "sizes has [1, 32] twice"),
        ("sizes=[[1,32],[0,32]]", "depth is 0"),
        ("seeds=[0,1,0]", "seeds has 0 twice"),
        ("learning_rates=[1e-3,0.001]", "rates has 0.001 twice"),
        ("learning_rates=[1e-3,-1.0]", "lr = -1"),
    ] {
        let args = format!("bench b.toml --out o --set bench.{entries}");
        place.refused(&args, &[needle]);
    }
    // Found before any training, not in the trials after it.
    for (entry, needle) in [
        ("tune_hold_out=0", "hold_out = 0"),
        ("tune_epochs=-1.0", "epochs = -1"),
    ] {
        let args = "bench b.toml --out o --set bench.learning_rates=[1e-3]";
        place.refused(&format!("{args} --set bench.{entry}"), &[needle]);
    }
}

#[test]
fn a_recipe_goes_on_wherever_its_directory_is() {
    let place = Place::new();
    let table = r#"
[ancestor]
steps = 2

[ancestor.init]
arch = "convmixer"
depth = 1
width = 8
kernel = 3
patch = 4

[finetune]
steps = 2

[bench]
sizes = [[2, 16]]

[bench.donors.small]
depth = 1
width = 16
distil = true
finetune = { steps = 1 }

[bench.methods.wave]
start = "templates"

[bench.methods.distilled]
start = "mimetic"
distil = true

[bench.methods.pretrained]
start = "timm"
pretrain = { steps = 1, distil = true }

[bench.methods.grown]
start = "ligo"
donor = "small"
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let first = place.json("bench b.toml --out deep/o");
    let written = |dir: &Path| files(&dir.join("cells"));
    let cells = written(&place.path("deep/o"));
    assert_eq!(cells.len(), 4);
    let absolute = place.path("deep/o").display().to_string();
    std::fs::create_dir(place.path("other")).unwrap();
    for out in ["other/../deep/o", &absolute, "other/moved"] {
        if out == "other/moved" {
            std::fs::rename(place.path("deep/o"), place.path(out)).unwrap();
        }
        let again = place.json(&format!("bench b.toml --out {out}"));
        assert_eq!(again["rows"], first["rows"], "{out}");
        assert_eq!(written(&place.path(out)), cells, "{out}");
    }

    // The same for the stages of a recipe.
    let stages = table.split("[bench]").next().unwrap();
    let expand = "[expand]\ndepth = 2\nwidth = 16\nsteps = 1\n";
    place.write("s.toml", format!("{RECIPE}\n{expand}\n{stages}"));
    place.json("run s.toml --out s");
    for stage in ["ancestor", "condense", "expand", "finetune"] {
        place.config(&format!("s/{stage}"));
    }
    let templates = place.bytes("s/condense/templates.safetensors");
    std::fs::rename(place.path("s"), place.path("other/s")).unwrap();
    std::fs::remove_dir_all(place.path("other/s/finetune")).unwrap();
    for how in ["--resume", ""] {
        let result = place.json(&format!("run s.toml --out other/s {how}"));
        assert_eq!(result["rows"][0]["out"], "other/s/condense");
    }
    assert!(place.bytes("other/s/condense/templates.safetensors") == templates);
    place.json("run s.toml --out other/s --overwrite");
    assert!(place.bytes("other/s/condense/templates.safetensors") == templates);
}
