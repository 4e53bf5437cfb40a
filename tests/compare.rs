//! `wave run`: all stages of a recipe, and comparisons of starts.

use crate::support::{Place, RECIPE};
use serde_json::Value;

#[test]
fn a_recipe_runs_all_its_stages() {
    let place = Place::new();
    let stages = "[expand]\ndepth = 2\nwidth = 16\nsteps = 2\n[finetune]\nsteps = 3\n";
    place.write("all.toml", format!("{RECIPE}\n{stages}"));
    place.json("run all.toml --out o --set finetune.lr=1e-3");
    for stage in ["condense", "expand", "finetune"] {
        assert!(place.path(&format!("o/{stage}/config.json")).exists());
    }
}

#[test]
fn starts_are_compared_side_by_side() {
    let place = Place::new();
    let table = "
[finetune]
steps = 4
lr = 1e-3

[compare]
sizes = [[2, 16], [4, 32]]
seeds = [0]
jobs = 2

[compare.methods.wave]
start = \"templates\"

[compare.methods.mimetic]
start = \"mimetic\"
";
    place.write("c.toml", format!("{RECIPE}\n{table}"));
    let first = place.json("run c.toml --out o");
    assert_eq!(first["out"], "o");
    let rows = first["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let method = row["method"].as_str().unwrap();
        let transferred = row["transferred_parameters"].as_u64().unwrap();
        assert_eq!(transferred > 0, method == "wave");
        assert!((0.0..=1.0).contains(&row["top1"].as_f64().unwrap()));
        assert!(row["epochs"].as_f64().unwrap() > 0.0);
        for key in ["depth", "width", "seed"] {
            assert!(row[key].is_u64(), "{key}");
        }
    }
    let written: Value = serde_json::from_slice(&place.bytes("o/rows.json")).unwrap();
    assert_eq!(written, first["rows"]);
    let report = String::from_utf8(place.bytes("o/report.md")).unwrap();
    assert!(report.contains("wave") && report.contains("mimetic"));

    // Half of the cells are lost: the others are kept, those come out the same.
    let lost = place.path("o/cells/mimetic-2x16-s0.json");
    std::fs::remove_file(lost).unwrap();
    let second = place.json("run c.toml --out o --resume");
    let without_time = |result: &Value| -> Vec<Value> {
        let mut rows = result["rows"].as_array().unwrap().clone();
        for row in &mut rows {
            row["seconds"] = Value::Null;
        }
        rows
    };
    assert_eq!(without_time(&first), without_time(&second));
    assert_eq!(place.json("run c.toml --out o --resume"), second);
}
