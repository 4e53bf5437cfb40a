//! The content of `--out` is kept, unless it is the run to resume or is to be replaced.

use crate::resume::{kill, start};
use crate::support::{INIT, Place, RECIPE, SHAPES, assert_same, files};
use serde_json::Value;

/// A place with a model `m`, and the command that fine-tunes it, without a duration.
fn place() -> (Place, String) {
    (Place::with_model(), format!("finetune m {SHAPES}"))
}

#[test]
fn an_unfinished_run_goes_on_from_the_last_sound_state_alone() {
    let (place, finetune) = place();
    let finetune = format!("{finetune} --steps 40 --checkpoint-steps 1");
    place.json(&format!("{finetune} --out whole"));
    let command = format!("{finetune} --out o");
    let before = "o/run/checkpoint-before.safetensors";
    let mut child = start(&place, &command, before);
    child.kill().unwrap();
    child.wait().unwrap();
    let latest = place.path("o/run/checkpoint.safetensors");
    let mut state = std::fs::read(&latest).unwrap();
    for args in [
        &command,
        &format!("{command} --lr 0.1"),
        &format!("{INIT} --out o"),
    ] {
        place.refused(args, &["unfinished", "--resume", "--overwrite"]);
        assert!(std::fs::read(&latest).unwrap() == state);
    }
    place.refused(&format!("{command} --resume --overwrite"), &[]);

    // A wrong bit, and files that the kill left half written.
    let middle = state.len() / 2;
    state[middle] ^= 4;
    // Replaced, not overwritten: both names may belong to one file.
    std::fs::remove_file(&latest).unwrap();
    std::fs::write(&latest, state).unwrap();
    let left = ["o/.wave-a1B2c3.tmp", "o/run/.wave-d4E5f6.tmp"];
    for name in left {
        place.write(name, "half");
    }
    let stderr = place.texts(&format!("{command} --threads 1 --resume")).1;
    assert!(stderr.contains("checkpoint.safetensors"), "{stderr}");
    assert!(stderr.contains("previous state"), "{stderr}");
    assert_same(&place.path("whole"), &place.path("o"));
    for gone in [left[0], left[1], before, "o/run/checkpoint.safetensors"] {
        assert!(!place.path(gone).exists(), "{gone}");
    }
}

#[test]
fn a_complete_run_tells_its_result_and_gives_way_to_no_other() {
    let (place, finetune) = place();
    let command = format!("{finetune} --steps 4 --out o");
    let result = place.json(&command);
    let written = files(&place.path("o"));
    for again in ["", "--resume", "--checkpoint-steps 3"] {
        assert_eq!(place.json(&format!("{command} {again}")), result);
    }
    for again in ["", "--resume"] {
        let settings = ["lr: was not set, now 0.123", "seed: was not set, now 3"];
        let parts = ["other settings", settings[0], settings[1]];
        place.refused(&format!("{command} {again} --lr 0.123 --seed 3"), &parts);
    }
    place.refused(&format!("{INIT} --out o"), &["--overwrite"]);
    assert_eq!(files(&place.path("o")), written);

    // A copy is recognised under its new name.
    std::fs::rename(place.path("o"), place.path("p")).unwrap();
    let moved = place.json(&command.replace("--out o", "--out p"));
    assert_eq!(
        (&moved["out"], &moved["top1"]),
        (&"p".into(), &result["top1"])
    );

    place.json(&format!("{command} --lr 0.123 --overwrite"));
    assert_ne!(files(&place.path("o")), written);
}

#[test]
fn a_complete_run_without_its_artefact_is_not_done() {
    let (place, finetune) = place();
    let command = format!("{finetune} --steps 2 --out o");
    place.json(&command);
    let model = place.bytes("o/model.safetensors");
    let mut changed = model.clone();
    *changed.last_mut().unwrap() ^= 1;
    for (content, expected) in [(&model[..100], "100 bytes"), (&changed, "has changed")] {
        place.write("o/model.safetensors", content);
        for again in ["", "--resume"] {
            let parts = ["o", "model.safetensors", expected, "--overwrite"];
            place.refused(&format!("{command} {again}"), &parts);
        }
    }
    place.write("o/model.safetensors", &model);
    place.write("o/README.md", "a card of one's own");
    place.json(&command);
    std::fs::remove_file(place.path("o/config.json")).unwrap();
    let parts = ["config.json", "is missing"];
    place.refused(&format!("{command} --resume"), &parts);
    place.json(&format!("{command} --overwrite"));
}

#[test]
fn what_wave_did_not_write_is_not_replaced() {
    let place = Place::with_templates();
    let expand = "expand t --depth 2 --width 16 --steps 0";
    place.write("precious/config.json", "{\"mine\": 1}");
    place.refused(
        &format!("{expand} --out precious"),
        &["precious", "config.json", "--overwrite"],
    );
    assert_eq!(place.bytes("precious/config.json"), b"{\"mine\": 1}");
    assert!(!place.path("precious/run").exists());
    place.json(&format!("{expand} --out precious --overwrite"));
    place.json("eval precious --data shapes --test-limit 8");
    // A recipe without a result does not prove that the artefact is a run's: templates come with theirs.
    std::fs::remove_file(place.path("precious/run/result.json")).unwrap();
    let model = place.bytes("precious/model.safetensors");
    let other = "expand t --depth 3 --width 16 --steps 0 --out precious";
    place.refused(other, &["precious", "no run there wrote", "--overwrite"]);
    assert_eq!(place.bytes("precious/model.safetensors"), model);
    // Unless the run is the same, which may have been killed as it ended.
    place.json(&format!("{expand} --out precious"));
    place.write("logged/run/log.csv", "mine");
    place.refused(
        &format!("{expand} --out logged"),
        &["log.csv", "--overwrite"],
    );

    // The recipe itself, and another file with its name.
    place.write("recipe.toml", RECIPE);
    place.refused("run recipe.toml --out .", &["recipe.toml"]);
    place.refused("run r.toml --out .", &["recipe.toml", "--overwrite"]);
    assert_eq!(place.bytes("recipe.toml"), RECIPE.as_bytes());
}

#[test]
fn no_run_writes_over_what_it_reads() {
    let (place, _) = place();
    place.json("condense r.toml --steps 2 --out t");
    let kept = |dir: &str| files(&place.path(dir));
    let before = [kept("m"), kept("t")];
    let tune = format!("{SHAPES} --steps 1");
    let finetune = format!("finetune m {tune}");
    let init = "init weight-selection --from m --depth 1 --width 32";
    for (args, input) in [
        ("expand t --depth 2 --width 16 --steps 0", "t"),
        (&finetune, "m"),
        (
            &format!("finetune m/model.safetensors --recipe r.toml {tune}"),
            "m",
        ),
        (init, "m"),
        ("condense r.toml --steps 1 --ancestor ./m", "m"),
    ] {
        for how in ["", "--overwrite", "--resume"] {
            let args = format!("{args} --out {input} {how}");
            place.refused(&args, &["would overwrite", "--out"]);
        }
    }
    // Under any spelling.
    std::fs::create_dir(place.path("else")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(place.path("m"), place.path("link-m")).unwrap();
    let absolute = place.path("m").display().to_string();
    for out in ["./m/", "else/../m", "link-m", &absolute] {
        let args = format!("{finetune} --out {out}");
        place.refused(&args, &["would overwrite", "--out"]);
    }
    let planned = "condense --data shapes --minutes 1 --ancestor m --overwrite --out m";
    let recipe = place.bytes("m/run/recipe.toml");
    place.refused(planned, &["would overwrite", "--out"]);
    assert_eq!(place.bytes("m/run/recipe.toml"), recipe);
    assert_eq!([kept("m"), kept("t")], before);

    write_images(&place, "d");
    let planned = "condense --data d --minutes 1 --ancestor m --out d/train";
    place.refused(planned, &["inside the data d"]);
    for out in ["d", "d/train", "d/train/a/o", "./else/../d/o"] {
        let args = format!("finetune m --data d --batch 2 --steps 1 --new-head true --out {out}");
        place.refused(&args, &["inside the data d"]);
        let inverted = args.replace("--data d", "--data inverted:d");
        place.refused(&inverted, &["inside the data d"]);
    }
    let recipe = RECIPE.replace("\"shapes\"", "\"inverted:d\"");
    place.write("d.toml", recipe);
    place.refused("run d.toml --out d/train", &["inside the data d"]);
    place.refused("data pack d d/packed", &["inside the data d"]);
    let entries = |dir: &str| std::fs::read_dir(place.path(dir)).unwrap().count();
    let counts = ["d", "d/train", "d/train/a"].map(entries);
    assert_eq!(counts, [2, 2, 4]);
}

/// Two classes of images, as a directory.
pub(crate) fn write_images(place: &Place, dir: &str) {
    for part in ["train", "val"] {
        for (class, shade) in [("a", 10), ("b", 200)] {
            for i in 0..4 {
                write_image(place, &format!("{dir}/{part}/{class}/{i}.png"), shade + i);
            }
        }
    }
}

pub(crate) fn write_image(place: &Place, name: &str, shade: u8) {
    let pixel = |x: u32, _| image::Luma([shade + x as u8]);
    place.save(name, image::GrayImage::from_fn(28, 28, pixel));
}

#[test]
fn a_run_goes_on_with_what_it_began_with() {
    let (place, _) = place();
    write_images(&place, "d");
    let args = "finetune m --data d --batch 2 --new-head true --steps 60";
    let resume = format!("{args} --checkpoint-steps 1 --out o --resume");
    kill(&place, &resume, "o");
    let state = place.bytes("o/run/checkpoint.safetensors");
    let changed = |what: &str| {
        place.refused(&resume, &["other inputs", what, "was", "now"]);
        assert!(place.bytes("o/run/checkpoint.safetensors") == state);
    };

    write_image(&place, "d/train/a/9.png", 90);
    changed("training images: was 8");
    std::fs::remove_file(place.path("d/train/a/9.png")).unwrap();
    write_image(&place, "d/val/a/0.png", 90);
    changed("test images");
    write_image(&place, "d/val/a/0.png", 10);

    let (config, weights) = ("m/config.json", "m/model.safetensors");
    let kept = [config, weights].map(|file| place.bytes(file));
    place.configure("m", |config| {
        config["pretrained_cfg"]["mean"] = serde_json::json!([0.9])
    });
    changed("normalisation");
    changed("model");
    place.write(config, &kept[0]);
    let mut bytes = kept[1].clone();
    *bytes.last_mut().unwrap() ^= 1;
    place.write(weights, bytes);
    // Its digest would tell first.
    place.refused(&resume, &["model.safetensors", "SHA-256"]);
    place.configure("m", |config| config["digests"] = Value::Null);
    changed("model");
    place.write(config, &kept[0]);
    place.write(weights, &kept[1]);

    // Settings that do not change the result may differ; a different number of threads is reported.
    let parts = ["unfinished", "lr: was not set, now 0.1"];
    place.refused(&format!("{resume} --lr 0.1"), &parts);
    let other = format!("{args} --checkpoint-minutes 5 --out o --resume");
    let stderr = place.texts(&format!("{other} --threads 2")).1;
    assert!(
        stderr.contains("1 threads") && stderr.contains("with 2"),
        "{stderr}"
    );
}

#[cfg(unix)]
#[test]
fn a_run_whose_directory_is_taken_away_stops() {
    let (place, finetune) = place();
    let command = format!("{finetune} --steps 100000 --checkpoint-steps 1 --out o");
    let first = start(&place, &command, "o/run/checkpoint.safetensors");
    // Not `remove_dir_all`, during which the run may write.
    std::fs::rename(place.path("o"), place.path("gone")).unwrap();
    let result = place.json(&format!("{finetune} --steps 2 --out o"));
    let output = first.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let again = place.json(&format!("{finetune} --steps 2 --out o"));
    assert_eq!(result, again);
}

#[test]
fn nothing_else_is_written_where_a_run_works() {
    let (place, finetune) = place();
    let command = format!("{finetune} --steps 100000 --checkpoint-steps 1 --out o");
    let mut first = start(&place, &command, "o/run/checkpoint.safetensors");
    for args in [
        "data pack shapes o",
        "data pack shapes o/packed",
        "inspect m --plots o",
        "inspect m --html o/page.html",
        "inspect m --html o/run/page.html",
    ] {
        let holder = format!("process {}", first.id());
        place.refused(args, &[&holder]);
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let names: Vec<_> = files(&place.path("o")).into_keys().collect();
    assert!(names.is_empty(), "{names:?}");
    place.json("inspect m --html o/page.html");
}

#[test]
fn every_run_without_a_name_has_a_directory_of_its_own() {
    let place = Place::new();
    let mut outs = std::collections::BTreeSet::new();
    for _ in 0..4 {
        let made = place.json(INIT);
        let out = made["out"].as_str().unwrap();
        place.config(out);
        let date = out.strip_prefix("runs/init-20").unwrap();
        let digits = |c: char| c.is_ascii_digit() || c == '-';
        assert!(date.chars().all(digits), "{out}");
        outs.insert(out.to_owned());
    }
    assert_eq!(outs.len(), 4, "{outs:?}");
    // A failure leaves no empty directory.
    place.refused(&INIT.replace("--heads 2", "--heads 5"), &["heads"]);
    assert_eq!(std::fs::read_dir(place.path("runs")).unwrap().count(), 4);
}

/// A name that is not UTF-8.
#[cfg(unix)]
fn strange(prefix: &str) -> std::ffi::OsString {
    use std::os::unix::ffi::OsStringExt;
    let mut bytes = prefix.as_bytes().to_vec();
    bytes.push(0xff);
    std::ffi::OsString::from_vec(bytes)
}

#[cfg(unix)]
#[test]
fn paths_that_are_not_utf_8_are_written_and_told() {
    let (place, _) = place();
    let run = |args: &str, path: &std::ffi::OsStr| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_wave"))
            .current_dir(place.path("."))
            .args(["--threads", "1", "-q", "--json"])
            .args(args.split_whitespace())
            .arg(path)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), output.stdout, stderr)
    };
    for (args, name) in [(INIT, "a"), ("condense r.toml --steps 1", "b")] {
        let out = strange(name);
        let (code, stdout, stderr) = run(&format!("{args} --out"), &out);
        assert_eq!(code, Some(0), "{args}: {stderr}");
        let result: Value = serde_json::from_slice(&stdout).unwrap();
        assert_eq!(result["out"], format!("{name}\u{fffd}"));
        assert!(place.path(".").join(&out).join("config.json").exists());
    }
    for (args, path) in [
        ("inspect m --plots", "p"),
        ("inspect m --html", "h"),
        ("data pack shapes", "d"),
    ] {
        let (code, _, stderr) = run(args, &strange(path));
        assert_eq!(code, Some(0), "{args}: {stderr}");
    }
    let (code, _, stderr) = run("run r.toml --out", &strange("r"));
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("UTF-8"), "{stderr}");
    assert!(!place.path(".").join(strange("r")).exists());
}
