//! A run killed at any moment and resumed ends with the bytes of the uninterrupted one.

use crate::support::{Place, RECIPE, SHAPES, assert_same};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs `wave args --out whole`; then again with `--out killed`, killed once its first checkpoint is on
/// disk, and resumed.
fn check(place: &Place, args: &str) {
    place.json(&format!("{args} --out whole"));
    let command = format!("{args} --out killed");
    let checkpoint = place.path("killed/run/checkpoint.safetensors");
    let mut child = start(place, &command, "killed/run/checkpoint.safetensors");
    std::thread::sleep(Duration::from_millis(10));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(checkpoint.exists(), "the run ended before it was killed");
    assert!(!place.path("killed/config.json").exists());

    let resumed = place.json(&format!("{command} --resume"));
    assert_same(&place.path("whole"), &place.path("killed"));
    assert!(!checkpoint.exists());
    // A complete run returns its result again, and removes the states that a kill after the result left.
    place.write("killed/run/checkpoint.safetensors", "left");
    assert_eq!(place.json(&format!("{command} --resume")), resumed);
    assert!(!checkpoint.exists());
    // Other settings make another run.
    place.refused(
        &format!("{command} --resume --lr 0.123"),
        &["other settings"],
    );
    assert_same(&place.path("whole"), &place.path("killed"));
}

#[test]
fn condense_survives_a_kill() {
    let args = "condense r.toml --steps 40 --checkpoint-steps 1";
    check(&Place::new(), args);
    check(&Place::new(), &format!("{args} --muon true --ema 0.9"));
    let shapes = "--mlp-ratios 1,4 --head-widths 8,16 --image-sizes 28,56 --patches 4,7";
    check(&Place::new(), &format!("{args} {shapes}"));
}

#[test]
fn what_begins_with_templates_survives_a_kill() {
    for stage in ["adapt t", "expand t --depth 4 --width 32"] {
        let args = format!("{stage} --steps 40 --checkpoint-steps 1 {SHAPES}");
        check(&Place::with_templates(), &args);
    }
}

#[test]
fn finetune_survives_a_kill() {
    for muon in [false, true] {
        let place = Place::with_model();
        let flags = "--steps 40 --checkpoint-steps 1 --ema 0.9 --drop-path 0.1 --crop-padding 2";
        check(
            &place,
            &format!("finetune m {flags} --muon {muon} {SHAPES}"),
        );
    }
}

#[test]
fn without_a_state_that_can_be_read_nothing_is_overwritten() {
    let place = Place::new();
    let command = "condense r.toml --steps 40 --checkpoint-steps 1 --out o";
    kill(&place, command, "o");
    let recipe = place.bytes("o/run/recipe.toml");
    std::fs::remove_file(place.path("o/run/recipe.toml")).unwrap();
    let parts = ["run/recipe.toml is missing", "--overwrite"];
    place.refused(&format!("{command} --resume"), &parts);
    place.write("o/run/recipe.toml", recipe);
    for name in ["checkpoint", "checkpoint-before"] {
        place.write(&format!("o/run/{name}.safetensors"), "nothing");
    }
    let parts = ["checkpoint.safetensors", "start over"];
    place.refused(&format!("{command} --resume"), &parts);
    place.refused("condense r.toml --resume", &["--out"]);
}

#[test]
fn without_the_best_values_so_far_nothing_goes_on() {
    let place = Place::with_model();
    let command = format!("finetune m {SHAPES} --epochs 500 --lr 0 --keep best --out o");
    // A state is saved once the best values of the test before it are.
    kill(&place, &command, "o");
    std::fs::remove_file(place.path("o/run/best.safetensors")).unwrap();
    let parts = ["best.safetensors", "missing", "start over"];
    place.refused(&format!("{command} --resume"), &parts);
}

/// Kills `wave args`, which writes to `out`, once its first state is saved.
pub(crate) fn kill(place: &Place, args: &str, out: &str) {
    let mut child = start(place, args, &format!("{out}/run/checkpoint.safetensors"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Starts `wave args` and waits for `file`.
pub(crate) fn start(place: &Place, args: &str, file: &str) -> std::process::Child {
    let mut child = place
        .command(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !place.path(file).exists() {
        assert!(began.elapsed() < Duration::from_secs(600), "no {file}");
        assert!(child.try_wait().unwrap().is_none(), "ended without {file}");
        std::thread::sleep(Duration::from_millis(1));
    }
    child
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let place = Place::new();
    place.write("long.toml", RECIPE.replace("steps = 12", "steps = 100000"));
    for (long, made, others) in [
        (
            "condense long.toml --out o",
            "o",
            &[
                "condense r.toml --out o",
                "condense long.toml --out o --resume",
                "init timm --data shapes --depth 2 --width 32 --heads 2 --patch 7 --out o",
                "run r.toml --out o",
                "condense --data shapes --minutes 1 --out o --overwrite",
            ][..],
        ),
        (
            "run long.toml --out w",
            "w/condense",
            &["run r.toml --out w"],
        ),
    ] {
        let state = format!("{made}/run/checkpoint.safetensors");
        let mut first = start(&place, long, &state);
        let holder = format!("process {}", first.id());
        let recipe = format!("{made}/run/recipe.toml");
        let before = place.bytes(&recipe);
        for other in others {
            place.refused(other, &[&holder, "--out"]);
        }
        assert_eq!(place.bytes(&recipe), before);
        assert!(first.try_wait().unwrap().is_none(), "it went on");
        first.kill().unwrap();
        first.wait().unwrap();
        // The lock file of a killed process locks nothing.
        place.json(&format!("{} --overwrite", others[0]));
    }
}

#[test]
fn an_unfinished_run_may_be_written_in_another_precision() {
    let place = Place::with_model();
    place.rewrite("m/model.safetensors", |weights| {
        let bias = (weights["head.bias"].ones_like().unwrap() * 1e5).unwrap();
        weights.insert("head.bias".into(), bias);
    });
    place.configure("m", |config| {
        config.as_object_mut().unwrap().remove("digests");
    });
    let command = format!("finetune m --steps 1 {SHAPES} --out half");
    place.fails(&format!("{command} --dtype f16"), 1, &["f16", "bf16"]);
    place.json(&format!("{command} --dtype bf16 --resume"));
}
