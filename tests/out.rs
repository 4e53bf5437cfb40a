//! The content of `--out` is kept, unless it is the run to resume or is to be replaced.

use crate::resume::{kill, start};
use crate::support::{INIT, Place, RECIPE, SHAPES, assert_same, files};
use serde_json::Value;

/// A place with a model `m`, and the command that fine-tunes it, without a duration.
fn place() -> (Place, String) {
    (Place::with_model(), format!("finetune m {SHAPES}"))
}

#[test]
fn an_unfinished_run_is_not_started_over_by_a_slip() {
    let (place, finetune) = place();
    let finetune = format!("{finetune} --steps 40 --checkpoint-steps 1");
    let command = format!("{finetune} --out o");
    kill(&place, &command, "o");
    let state = place.bytes("o/run/checkpoint.safetensors");
    for args in [
        &command,
        &format!("{command} --lr 0.1"),
        &format!("{INIT} --out o"),
    ] {
        place.refused(args, &["unfinished", "--resume", "--overwrite"]);
        assert!(place.bytes("o/run/checkpoint.safetensors") == state);
    }
    place.refused(&format!("{command} --resume --overwrite"), &[]);
    place.json(&format!("{command} --overwrite"));
    place.json(&format!("{finetune} --out whole"));
    assert_same(&place.path("whole"), &place.path("o"));
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
    for name in ["model.safetensors", "config.json"] {
        place.write("o/model.safetensors", &model);
        std::fs::remove_file(place.path("o").join(name)).unwrap();
        place.refused(&format!("{command} --resume"), &[name, "is missing"]);
        place.json(&format!("{command} --overwrite"));
    }
    place.write("o/README.md", "a card of one's own");
    place.json(&command);
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
    std::fs::create_dir(place.path("else")).unwrap();
    #[cfg(unix)]
    for dir in ["m", "t"] {
        let link = place.path(&format!("link-{dir}"));
        std::os::unix::fs::symlink(place.path(dir), link).unwrap();
    }
    let tune = format!("{SHAPES} --steps 1");
    for (args, input) in [
        ("expand t --depth 2 --width 16 --steps 0".to_string(), "t"),
        (format!("finetune m {tune}"), "m"),
        (
            format!("finetune m/model.safetensors --recipe r.toml {tune}"),
            "m",
        ),
        (
            "init weight-selection --from m --depth 1 --width 32".into(),
            "m",
        ),
        ("condense r.toml --steps 1 --ancestor ./m".into(), "m"),
    ] {
        let absolute = place.path(input).display().to_string();
        for out in [
            input,
            &format!("./{input}/"),
            &format!("else/../{input}"),
            &format!("link-{input}"),
            &absolute,
        ] {
            // Under any spelling and with any option.
            let hows = ["", "--overwrite", "--resume"];
            for how in &hows[..if out == input { 3 } else { 1 }] {
                place.refused(
                    &format!("{args} --out {out} {how}"),
                    &["would overwrite", "--out"],
                );
            }
        }
    }
    assert_eq!([kept("m"), kept("t")], before);

    write_images(&place, "d");
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
    assert_eq!(
        (entries("d"), entries("d/train"), entries("d/train/a")),
        (2, 2, 4)
    );
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

    let swap = || {
        for (from, to) in [("a", "c"), ("b", "a"), ("c", "b")] {
            let dir = place.path("d/val");
            std::fs::rename(dir.join(from), dir.join(to)).unwrap();
        }
    };
    swap();
    changed("test images");
    swap();

    for name in ["config.json", "model.safetensors"] {
        let path = format!("m/{name}");
        let kept = place.bytes(&path);
        match name {
            "config.json" => {
                let mut config: Value = serde_json::from_slice(&kept).unwrap();
                config["pretrained_cfg"]["mean"] = serde_json::json!([0.9]);
                place.write(&path, config.to_string());
                changed("normalisation");
                changed("model");
            }
            _ => {
                let mut bytes = kept.clone();
                *bytes.last_mut().unwrap() ^= 1;
                place.write(&path, bytes);
                // Its digest would tell first.
                place.refused(&resume, &["model.safetensors", "SHA-256"]);
                let kept = place.bytes("m/config.json");
                let mut config: Value = serde_json::from_slice(&kept).unwrap();
                config["digests"] = Value::Null;
                place.write("m/config.json", config.to_string());
                changed("model");
                place.write("m/config.json", kept);
            }
        }
        place.write(&path, kept);
    }

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

#[test]
fn a_state_with_a_wrong_bit_gives_way_and_that_is_told() {
    let (place, finetune) = place();
    let finetune = format!("{finetune} --steps 40 --checkpoint-steps 1");
    place.json(&format!("{finetune} --out whole"));
    let command = format!("{finetune} --out o");
    let before = "o/run/checkpoint-before.safetensors";
    let mut child = start(&place, &command, before);
    child.kill().unwrap();
    child.wait().unwrap();
    let latest = place.path("o/run/checkpoint.safetensors");
    let mut bytes = std::fs::read(&latest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    // Replaced, not overwritten: both names may belong to one file.
    std::fs::remove_file(&latest).unwrap();
    std::fs::write(&latest, bytes).unwrap();
    let stderr = place.texts(&format!("{command} --threads 1 --resume")).1;
    assert!(stderr.contains("checkpoint.safetensors"), "{stderr}");
    assert!(stderr.contains("previous state"), "{stderr}");
    assert_same(&place.path("whole"), &place.path("o"));
    assert!(!latest.exists() && !place.path(before).exists());
}

#[test]
fn what_a_kill_left_half_written_is_cleaned_up() {
    let (place, finetune) = place();
    let finetune = format!("{finetune} --steps 40 --checkpoint-steps 1");
    let command = format!("{finetune} --out o");
    kill(&place, &command, "o");
    let left = ["o/.wave-a1B2c3.tmp", "o/run/.wave-d4E5f6.tmp"];
    for name in left {
        place.write(name, "half");
    }
    place.json(&format!("{command} --resume"));
    for name in left {
        assert!(!place.path(name).exists(), "{name}");
    }
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
        "man o",
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
    let place = Place::with_templates();
    let mut outs: Vec<String> = Vec::new();
    for _ in 0..6 {
        let made = place.json("expand t --depth 2 --width 16 --steps 0");
        outs.push(made["out"].as_str().unwrap().into());
    }
    outs.sort();
    outs.dedup();
    assert_eq!(outs.len(), 6, "{outs:?}");
    for out in &outs {
        assert!(place.path(out).join("config.json").exists(), "{out}");
        let date = out.strip_prefix("runs/expand-20").unwrap();
        assert!(
            date.chars().all(|c| c.is_ascii_digit() || c == '-'),
            "{out}"
        );
    }
    // A failure leaves no empty directory.
    place.refused("expand t --depth 2 --width 17 --steps 0", &["17"]);
    assert_eq!(std::fs::read_dir(place.path("runs")).unwrap().count(), 6);
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
    for (i, args) in [
        INIT.to_string(),
        format!("finetune m {SHAPES} --steps 1"),
        "condense r.toml --steps 1".into(),
    ]
    .iter()
    .enumerate()
    {
        let out = strange(&format!("a{i}"));
        let (code, stdout, stderr) = run(&format!("{args} --out"), &out);
        assert_eq!(code, Some(0), "{args}: {stderr}");
        let result: Value = serde_json::from_slice(&stdout).unwrap();
        assert_eq!(result["out"], format!("a{i}\u{fffd}"));
        assert!(place.path(".").join(&out).join("config.json").exists());
    }
    let templates = place.path(".").join(strange("a2"));
    std::fs::rename(templates, place.path("t")).unwrap();
    for (args, path) in [
        ("expand t --depth 1 --width 16 --steps 0 --out", "e"),
        ("inspect t --plots", "p"),
        ("inspect m --html", "h"),
        ("man", "n"),
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
