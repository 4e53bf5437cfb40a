//! Sources of `--data`, and images that cannot be read.

use crate::support::{CONVMIXER, Place, assert_fails};
use serde_json::Value;
use std::process::Command;

/// Two classes of images in `two/`: 24 for training and 12 for testing.
fn place() -> Place {
    let place = Place::new();
    place.write_classes("two", ["a", "b"], 12, 6);
    place
}

/// The same, with a model `m` for them, and one broken image in each part.
fn with_broken() -> Place {
    let place = place();
    place.json("init timm --depth 1 --width 32 --heads 2 --data two --out m");
    place.write("two/train/a/3.png", "no image");
    place.write("two/val/b/2.png", "no image");
    place
}

#[test]
fn broken_images_are_named_and_counted() {
    let place = with_broken();
    let finetune = "finetune m --data two --batch 8 --epochs 2 --out f --json";
    let (stdout, stderr) = place.texts(finetune);
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(result["broken_images"], 2);
    for part in [
        "1 training image is broken and is replaced: two/train/a/3.png",
        "1 test image is broken and is excluded from the accuracy: two/val/b/2.png",
    ] {
        assert_eq!(stderr.matches(part).count(), 1, "no `{part}` in: {stderr}");
    }
    let eval = place.json("eval f --data two");
    assert_eq!(eval["images"], 11);
    assert_eq!(eval["broken_images"], 1);
    assert_eq!(eval["top1"], result["top1"]);
    // Without broken images, none are reported.
    let sound = place.json("eval f --data two/train --test-limit 3 --seed 2");
    assert_eq!(sound["images"], 3);
    assert!(sound.get("broken_images").is_none());
    // Too many are refused.
    for i in 3..6 {
        place.write(&format!("two/val/b/{i}.png"), "no image");
        place.write(&format!("two/train/b/{i}.png"), "no image");
    }
    place.refused("eval f --data two", &["of 12 images are broken"]);
    let again = "finetune m --data two --batch 8 --epochs 2 --out g";
    place.refused(again, &["of 24 images are broken"]);
    let output = place.fails("data check two --json", 1, &["two/train/a/3.png"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["test"], serde_json::json!({ "a": 6, "b": 6 }));
    assert_eq!(told["broken"].as_array().unwrap().len(), 8);
    // As with --data, the first that exists.
    let first = place.fails("data check nowhere|two --json", 1, &["two/train/a/3.png"]);
    assert_eq!(first.stdout, output.stdout);
    // The path is named once.
    let error = told["broken"][0]["error"].as_str().unwrap();
    assert!(error.starts_with("not an image"), "{error}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("two/train/a/3.png").count(), 1, "{stderr}");
}

#[test]
fn test_images_alone_are_evaluated_and_not_trained_on() {
    let place = place();
    place.json("init timm --depth 1 --width 32 --heads 2 --data two --out m");
    let whole = place.json("eval m --data two");
    assert_eq!(whole["images"], 12);
    place.json("data pack two shards");
    place.write("tar/val-00000.tar", place.bytes("shards/val-00000.tar"));
    for i in 0..6 {
        place.write_png(&format!("named/validation/a/{i}.png"));
        place.write_png(&format!("named/validation/b/{i}.png"));
    }
    for data in ["shards/val-00000.tar", "tar/*.tar", "two/val", "named"] {
        let found = place.json(&format!("eval m --data {data}"));
        assert_eq!(found, whole, "{data}");
        for command in [
            "finetune m --steps 1 --batch 2 --out o",
            "init timm --depth 1 --width 32 --out o",
        ] {
            place.refused(&format!("{command} --data {data}"), &["no training images"]);
        }
    }
    // Without images there is no accuracy.
    place.write("tar/x.tar", place.bytes("shards/train-00000.tar"));
    place.refused("eval m --data tar/x.tar", &["no test images"]);
    let held_out = place.json("eval m --data tar/x.tar --hold-out 5");
    assert_eq!(held_out["images"], 5);
}

#[test]
fn models_start_at_the_size_of_the_images() {
    let place = Place::new();
    let picture = image::RgbImage::from_fn(32, 32, |x, y| image::Rgb([8 * x as u8, y as u8, 7]));
    for dir in ["train/a", "train/b", "val/a", "val/b"] {
        place.save(&format!("small/{dir}/0.jpg"), picture.clone());
    }
    // Shards of others are kept.
    place.write("theirs/val-0.tar", "theirs");
    place.refused(
        "data pack small theirs",
        &["val-0.tar", "another directory"],
    );
    assert_eq!(place.text("theirs/val-0.tar"), "theirs");
    place.json("data pack small shards");
    for (args, size, patch) in [
        ("timm --data small", [3, 32, 32], 4),
        ("timm --data shards", [3, 32, 32], 4),
        ("timm --data small --image-size 64", [3, 64, 64], 16),
        ("default --arch convmixer --data small", [3, 32, 32], 4),
        ("timm --data shapes", [1, 28, 28], 7),
    ] {
        let init = format!("init {args} --depth 1 --width 64");
        place.json(&format!("{init} --out m --overwrite"));
        let config = place.config("m");
        let input = &config["pretrained_cfg"]["input_size"];
        assert_eq!(input, &serde_json::json!(size), "{args}");
        assert_eq!(config["model_args"]["patch_size"], patch, "{args}");
    }

    let large = "init timm --depth 1 --width 32 --heads 2 --data small --out large";
    let (_, stderr) = place.texts(&format!("{large} --image-size 96"));
    assert_eq!(
        stderr,
        "images of 32 x 32 are enlarged by a factor of 3 to 96 x 96\n"
    );
    let (_, stderr) = place.texts(&format!("{large} --image-size 64 --overwrite"));
    assert_eq!(stderr, "");
    assert!(place.run("eval large --data small").stderr.is_empty());
}

#[cfg(unix)]
#[test]
fn pipes_are_refused() {
    let place = place();
    place.json("init timm --depth 1 --width 32 --heads 2 --data two --out m");
    let make = |pipe| {
        let made = Command::new("mkfifo").arg(place.path(pipe)).status();
        assert!(made.unwrap().success());
    };
    let resumed = "finetune m --data two --batch 2 --steps 1 --resume --out f";
    place.json(resumed);
    std::fs::remove_file(place.path("f/run/recipe.toml")).unwrap();
    make("f/run/recipe.toml");
    place.refused(resumed, &["a pipe"]);
    for pipe in ["r.pipe", "two/train/a/p.png", "p.png", "p.tar"] {
        make(pipe);
    }
    for args in [
        "condense r.pipe --out o",
        "finetune m --recipe r.pipe --data shapes --out o",
        "data check two",
        "data check *.tar",
        "predict m p.png",
        "eval m --data two",
    ] {
        let told = place.refused(args, &["a pipe"]);
        assert_eq!(told.matches("a pipe").count(), 1, "{told}");
    }
}

/// A data set repository as Python's client leaves it, and no network.
#[test]
fn a_data_set_on_a_hub_is_read_from_the_cache() {
    let place = place();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let repo = "home/hub/datasets--someone--pets";
    place.write(&format!("{repo}/refs/main"), commit);
    let snapshot = place.path(&format!("{repo}/snapshots/{commit}"));
    std::fs::create_dir_all(&snapshot).unwrap();
    std::fs::rename(place.path("two"), snapshot.join("data")).unwrap();
    let offline = |args: &str| {
        let mut command = place.command(args);
        command
            .env("HF_HUB_OFFLINE", "1")
            .env("HF_HOME", place.path("home"))
            .env_remove("HF_HUB_CACHE");
        command.output().unwrap()
    };
    for name in ["hf:someone/pets", "rotated:hf-hub:someone/pets"] {
        let output = offline(&format!("data check {name} --json"));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["train"]["a"], 12, "{said}");
        assert_eq!(said["test"]["b"], 6, "{said}");
    }
    let args = "init timm --depth 1 --width 32 --heads 2 --data hf:no/such --out m";
    let parts = ["hf:no/such@main is not in the cache"];
    assert_fails(&offline(args), 2, args, &parts);
}

#[test]
fn one_broken_image_does_not_end_a_prediction() {
    let place = with_broken();
    let parts = [
        "2 of 7 images cannot be read",
        "two/val/b/2.png: not an image",
        "missing.png",
    ];
    let predict = "predict m two/val/b missing.png --csv t.csv --json";
    let output = place.fails(predict, 1, &parts);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["predictions"].as_array().unwrap().len(), 5);
    assert_eq!(result["broken"][0]["image"], "two/val/b/2.png");
    let table = place.text("t.csv");
    assert_eq!(table.lines().count(), 6, "{table}");
    place.refused("predict m two/val/b/2.png", &["not an image"]);
}

#[test]
fn folders_of_classes_alone_are_split() {
    let place = place();
    std::fs::rename(place.path("two/train"), place.path("photos")).unwrap();
    place.write("photos/a/scan.heic", "not read");
    place.json("init timm --depth 1 --width 32 --heads 2 --data photos --out m");
    let tune = "finetune m --data photos --batch 4 --epochs 1 --json";
    let (stdout, stderr) = place.texts(&format!("{tune} --out f"));
    for part in [
        "4 of its 24 images are held out (15 %, the same for every seed)",
        "ignored files and folders: 1: photos/a/scan.heic",
    ] {
        assert_eq!(stderr.matches(part).count(), 1, "no `{part}` in: {stderr}");
    }
    let split: Value = serde_json::from_str(&stdout).unwrap();
    let (stdout, _) = place.texts(&format!("{tune} --hold-out 4 --out g"));
    let asked: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(split["top1"], asked["top1"]);
    // Whoever only tests has them all tested.
    let (stdout, stderr) = place.texts("eval f --data photos --json");
    assert!(
        stdout.contains("\"images\":24") && stderr.contains("all 24 images are used"),
        "{stdout} {stderr}"
    );
    let check = place.json("data check photos");
    assert_eq!(check["train"]["a"], 12);
    assert!(
        check["not_read"].as_str().unwrap().starts_with("1: "),
        "{check}"
    );
}

#[test]
fn an_image_of_other_content_is_noticed_by_runs_and_caches() {
    let place = Place::new();
    let image = |name: &str, grey: u8| {
        let pixels = [b"P5 28 28 255\n".as_slice(), &[grey; 28 * 28]].concat();
        place.write(&format!("grey/{name}.pgm"), pixels);
    };
    // More than a sample of them, all files of one size.
    for i in 0..100 {
        image(&format!("train/a/{i:03}"), i);
        image(&format!("train/b/{i:03}"), 100 + i);
    }
    image("val/a/0", 0);
    image("val/b/0", 200);
    place.json("init timm --depth 1 --width 32 --heads 2 --data grey --out m");
    place.json(&format!("{CONVMIXER} --data grey --out a"));
    let tune = "finetune m --data grey --batch 8 --steps 1 --out f";
    let condense =
        "condense r.toml --ancestor a --kl-weight 1 --data grey --batch 8 --steps 1 --cache c";
    let first = place.json(tune);
    place.json(&format!("{condense} --out t"));
    // Touched, it is the same data.
    image("train/a/001", 1);
    assert_eq!(place.json(tune), first);
    let again = place.json(&format!("{condense} --out u"));
    assert_eq!(again["cache"]["ancestor_images"], 0);
    image("train/a/001", 250);
    place.refused(tune, &["training images"]);
    place.refused(
        &format!("{condense} --out v"),
        &["the cache c holds other outputs: data"],
    );
}

#[test]
fn numbers_that_skip_classes_are_noted() {
    let place = Place::new();
    let init = |prefix: &str| {
        let row = |year: u32| format!("{year}.png,{prefix}{year}\n");
        let rows: Vec<String> = (2021..2024).map(row).collect();
        let table = format!("file_name,label\n{}", rows.concat());
        place.write("years/metadata.csv", table);
        let args = "init timm --depth 1 --width 32 --heads 2 --data years --out m --overwrite";
        let (_, stderr) = place.texts(args);
        (place.config("m")["num_classes"].clone(), stderr)
    };
    for year in 2021..2024 {
        place.write_png(&format!("years/{year}.png"));
    }
    let (classes, stderr) = init("");
    let part = "2021 of 2024 classes have no image (the first: 0)";
    assert!(stderr.contains(part), "no `{part}` in: {stderr}");
    assert_eq!(classes, 2024);
    let (classes, stderr) = init("y");
    assert!(!stderr.contains("no image"), "{stderr}");
    assert_eq!(classes, 3);
}
