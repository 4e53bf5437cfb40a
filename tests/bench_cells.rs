//! Cells of `wave bench`: their donors, learning rates and costs, and when they are made again.

use crate::out::{write_image, write_images};
use crate::support::{CONVMIXER, Place, RECIPE, files};

#[test]
fn rates_are_tuned_of_methods_that_look_at_images() {
    let place = Place::new();
    let table = r#"
[finetune]
steps = 2

[bench]
sizes = [[2, 16]]
learning_rates = [1e-3, 2e-3]
tune_hold_out = 32
donors.deep = { depth = 3, width = 32, finetune.steps = 2 }
methods.prune = { start = "prune", donor = "deep", init.train_limit = 50 }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let found = place.json("bench b.toml --out o");
    assert_eq!(found["rows"].as_array().unwrap().len(), 1);
    for lr in ["1e-3", "2e-3"] {
        place.bytes(&format!("o/cells/tune-prune-2x16-s0-lr{lr}.json"));
    }
}

#[test]
fn epochs_are_those_that_a_time_limit_left() {
    let place = Place::new();
    let table = r#"
[finetune]
steps = 4
time_limit = 0.0

[bench]
sizes = [[2, 16]]
donors.small = { depth = 1, width = 16 }
methods.grown = { start = "ligo", donor = "small", operator.steps = 2 }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let rows = place.json("bench b.toml --out o")["rows"].clone();
    for key in ["epochs", "own_epochs"] {
        assert_eq!(rows[0][key], 0.0, "{key}");
    }
}

#[test]
fn the_donor_of_templates_may_be_any_network() {
    let place = Place::new();
    place.json(&format!("{CONVMIXER} --data shapes --out a"));
    let table = r#"
[finetune]
steps = 1

[bench]
sizes = [[2, 16]]
donors.net.model = "a"
methods.wave = { start = "templates", donor = "net", condense.kl_weight = 1.0 }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let rows = place.json("bench b.toml --out o")["rows"].clone();
    assert_eq!(rows[0]["shared_epochs"], 1.5); // 12 steps, and none for the donor
}

#[test]
fn a_cell_is_made_again_where_that_is_asked_for_or_its_data_changed() {
    let place = Place::new();
    write_images(&place, "d");
    let recipe = RECIPE
        .replace("\"shapes\"", "\"d\"")
        .replace("batch = 32", "batch = 2");
    let bench =
        "[finetune]\nsteps = 1\n[bench]\nsizes = [[1, 16]]\n[bench.methods.he]\nstart = \"he\"\n";
    place.write("b.toml", format!("{recipe}\n{bench}"));
    let made = |how: &str| {
        place.json(&format!("bench b.toml --out o {how}"));
        let cell = place.path("o/cells/he-1x16-s0.json");
        std::fs::metadata(cell).unwrap().modified().unwrap()
    };
    let first = made("");
    assert_eq!(made("--resume"), first);
    let second = made("--overwrite");
    assert!(second > first);
    write_image(&place, "d/val/a/0.png", 77);
    assert!(made("") > second);
}

#[test]
fn trials_have_a_size_that_the_method_takes_and_serve_borrowers_on_their_data() {
    let place = Place::new();
    let table = r#"
[finetune]
steps = 2

[bench]
sizes = [[1, 16], [2, 32]]
learning_rates = [1e-3, 2e-3]
tune_at = [1, 16]
tune_hold_out = 32
datasets = { plain = {}, turned = { data = "rotated:shapes" } }
methods.large = { start = "he", sizes = [[2, 32]], datasets = ["plain"] }
methods.borrower = { start = "timm", sizes = [[2, 32]], lr_of = "large" }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let found = place.json("bench b.toml --out o");
    assert_eq!(found["rows"].as_array().unwrap().len(), 3);
    for data in ["plain", "turned"] {
        let tried = ["1e-3", "2e-3"].map(|lr| {
            let row = place.read(&format!("o/cells/tune-large-2x32-s0-{data}-lr{lr}.json"));
            (row["top1"].as_f64().unwrap(), row["lr"].as_f64().unwrap())
        });
        let best = if tried[0].0 > tried[1].0 {
            tried[0]
        } else {
            tried[1]
        };
        let row = place.read(&format!("o/cells/borrower-2x32-s0-{data}.json"));
        assert_eq!(row["lr"], best.1, "{data}");
    }
    assert_eq!(files(&place.path("o/cells")).len(), 4 + 3);
}

#[test]
fn a_method_whose_trials_all_fail_has_no_rate_and_no_rows() {
    let place = Place::new();
    let table = r#"
[finetune]
steps = 2

[bench]
sizes = [[1, 16]]
learning_rates = [1e-3]
tune_hold_out = 1000000000
methods.tuned.start = "he"
methods.given = { start = "timm", finetune.lr = 1e-3 }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let error = ["tune-tuned-1x16-s0-lr1e-3"];
    place.fails("bench b.toml --out failed", 1, &error);
    place.bytes("failed/cells/given-1x16-s0.json");
    assert!(!place.path("failed/cells/tuned-1x16-s0.json").exists());
    let report = place.text("failed/report.md");
    assert!(report.contains("hold_out = 1000000000"), "{report}");
    assert!(!report.contains("tuned: "), "{report}");
}

#[test]
fn a_cell_is_made_again_where_its_pretraining_changed_alone() {
    let place = Place::new();
    let table = r#"
[finetune]
steps = 8

[bench]
sizes = [[1, 16]]
methods.alone = { start = "timm", pretrain = {}, finetune.steps = 1 }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let own_epochs = |args: &str| {
        let rows = place.json(&format!("bench b.toml --out o {args}"))["rows"].take();
        rows[0]["own_epochs"].as_f64().unwrap()
    };
    assert_eq!(own_epochs(""), 1.0);
    std::fs::remove_dir_all(place.path("o/pretrained")).unwrap();
    assert_eq!(own_epochs("--set finetune.steps=16"), 2.0);
}

#[test]
fn a_donor_is_not_taken_for_an_ancestor_with_its_name() {
    let place = Place::new();
    place.json(&format!("{CONVMIXER} --data shapes --out a"));
    let table = r#"
[finetune]
steps = 1

[bench]
sizes = [[2, 16]]
donors.a = { depth = 1, width = 16 }
methods.of-ancestor = { start = "templates" }
methods.of-donor = { start = "templates", donor = "a" }
"#;
    let recipe = RECIPE.replace("kl_weight = 0", "ancestor = \"a\"");
    place.write("b.toml", format!("{recipe}\n{table}"));
    place.json("bench b.toml --out o");
    for method in ["of-ancestor", "of-donor"] {
        place.config(&format!("o/templates/{method}-0"));
    }
}

#[test]
fn positions_of_all_methods_leave_those_of_donors_alone() {
    let place = Place::new();
    let table = r#"
[init]
positions = "sinusoidal"

[finetune]
steps = 1
lr = 1e-3

[bench]
sizes = [[2, 16]]
donors.small = { depth = 2, width = 16, finetune.steps = 1 }
methods.fresh.start = "timm"
methods.shared = { start = "heru-lg", donor = "small", init.blocks = 2 }
"#;
    place.write("b.toml", format!("{RECIPE}\n{table}"));
    let found = place.json("bench b.toml --out o");
    assert_eq!(found["rows"].as_array().unwrap().len(), 2);
    let own = "--set bench.methods.shared.init.positions=sinusoidal";
    let error = ["shared-2x16-s0", "remove --positions"];
    place.fails(&format!("bench b.toml --out failed {own}"), 1, &error[..1]);
    assert!(place.text("failed/report.md").contains(error[1]));
}
