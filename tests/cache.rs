//! Caches of an ancestor's outputs: reused, checked against their inputs, and safe from kills.

use crate::support::{CONVMIXER, INIT, Place, RECIPE, SHAPES, assert_fails, assert_same, values};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use wave_hub::Weights;

/// A place with two small ancestors `a` and `b`, with the classes of `shapes`.
fn place() -> Place {
    let place = Place::new();
    for (seed, name) in ["a", "b"].iter().enumerate() {
        place.json(&format!(
            "{CONVMIXER} --data shapes --seed {seed} --out {name}"
        ));
    }
    place
}

const CONDENSE: &str = "condense r.toml --ancestor a --kl-weight 1";

/// Number of images that the ancestor ran on.
fn computed(result: &Value) -> u64 {
    result["cache"]["ancestor_images"].as_u64().unwrap()
}

fn shards(place: &Place, cache: &str) -> Vec<PathBuf> {
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut shards: Vec<PathBuf> = entries(place.path(cache))
        .flat_map(|view| entries(view.path()))
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors")) // none half written
        .collect();
    shards.sort();
    shards
}

fn contents(place: &Place, cache: &str) -> Vec<Vec<u8>> {
    let read = |path: &PathBuf| std::fs::read(path).unwrap();
    shards(place, cache).iter().map(read).collect()
}

#[test]
fn outputs_are_computed_once_for_all_templates_sizes_and_seeds() {
    let place = place();
    // 256 images in 8 steps an epoch; 12 steps take 2 views.
    let first = place.json(&format!("{CONDENSE} --cache c --out t"));
    assert_eq!(computed(&first), 512);
    // With 8 classes, all take less room than the default of 16.
    assert_eq!(first["cache"]["bytes_per_image"], 20);
    assert_eq!(first["cache"]["rest"], 0.0);
    // The 6000 training images fill two shards for each view.
    assert_eq!(shards(&place, "c").len(), 4);

    let more = |args: &str| computed(&place.json(&format!("{CONDENSE} --cache c {args}")));
    let other = "--template-size 8 --depths 2 --widths 32 --kronecker interleave --steps 3";
    assert_eq!(more(&format!("{other} --out u")), 0);
    // Another seed trains on another 256 of the 6000 images, which are added.
    let added = more("--seed 1 --out v");
    assert!(0 < added && added < 512, "{added}");
    // The earlier outputs are kept.
    assert_eq!(more("--out w"), 0);
    assert_same(&place.path("t"), &place.path("w"));
    // Without a number of views, each epoch is one; the first two are these.
    place.write("n.toml", RECIPE.replace("views = 2\n", ""));
    let third = "condense n.toml --ancestor a --kl-weight 1 --steps 20 --cache c --out z";
    assert_eq!(computed(&place.json(third)), 256);
    // With no weight on its scores, the ancestor does not run.
    let unread = "condense r.toml --ancestor a --steps 1 --cache e --out q";
    assert_eq!(computed(&place.json(unread)), 0);
    let provenance = |dir: &str| place.config(dir)["provenance"].clone();
    assert!(provenance("q")["ancestor"].is_string());
    assert!(provenance("q")["ancestor_output"].is_null());
    assert_eq!(provenance("t")["ancestor_output"], "scores");
    // A single view is of whole images, however the next epochs crop them.
    let single = |flags| computed(&place.json(&format!("{CONDENSE} --views 1 --cache d {flags}")));
    assert_eq!(single("--resized-crop 0.5 --out x"), 256);
    assert_eq!(single("--resized-crop 0.3 --erasing 0.2 --out y"), 0);
}

#[test]
fn with_all_classes_the_templates_are_those_of_running_the_ancestor() {
    let place = place();
    place.json(&format!("{CONDENSE} --cache c --cache-top all --out t"));
    place.json(&format!("{CONDENSE} --out u"));
    place.json(&format!("{CONDENSE} --cache d --cache-top 1 --out v"));
    let read = |dir: &str| place.tensors(&format!("{dir}/templates.safetensors"));
    // On average, since AdamW turns rounding errors of vanishing gradients into full steps.
    let difference = |a: &str, b: &str| {
        let (a, b) = (read(a), read(b));
        let all = |weights: &Weights| weights.values().flat_map(values).collect::<Vec<f32>>();
        let pairs = all(&a).into_iter().zip(all(&b));
        let distances: Vec<f32> = pairs.map(|(x, y)| (x - y).abs()).collect();
        distances.iter().sum::<f32>() / distances.len() as f32
    };
    let exact = difference("t", "u");
    let cut = difference("v", "u");
    assert!(0.0 < exact && exact < 1e-4, "{exact}");
    assert!(cut > 10.0 * exact, "{cut} {exact}");
}

#[test]
fn fine_tunings_share_the_outputs_that_condensations_left() {
    let place = place();
    place.json(&format!("{CONDENSE} --cache c --out t"));
    place.json("expand t --depth 2 --width 16 --out m");
    let images = "--views 2 --crop-padding 2 --flip true";
    let tune = format!("finetune m {SHAPES} {images} --ancestor a --cache c --steps 12");
    let first = place.json(&format!("{tune} --out x"));
    assert_eq!(computed(&first), 0);
    place.json(&format!("{tune} --out y"));
    assert_same(&place.path("x"), &place.path("y"));
    place.refuses(
        "FLAGS --data shapes --out o",
        "
        finetune m --cache c => --ancestor
        finetune m --ancestor a --cache-top 3 => --cache
        finetune m --ancestor a --view-seed 1 => view_seed = 1 | --views
        ",
    );
}

#[test]
fn a_cache_of_other_outputs_is_refused() {
    let place = place();
    place.json(&format!("{CONDENSE} --cache c --out t"));
    let before = contents(&place, "c");
    for i in 0..40 {
        place.write_png(&format!("flat/{i}.png"));
    }
    place.write("n.toml", RECIPE.replace("views = 2\n", "repeats = 2\n"));
    place.refuses(
        "FLAGS --out o",
        "
        condense r.toml --ancestor b --kl-weight 1 --cache c => ancestor_sha256 | now | another --cache
        condense n.toml --ancestor a --kl-weight 1 --cache c => repeats
        condense r.toml --cache c => --ancestor
        ",
    );
    place.refuses(
        "FLAGS --ancestor a --kl-weight 1 --out o",
        "
        condense r.toml --cache c --data flat --ce-weight 0 => data_sha256 | shapes | flat | images = 6000, now 40
        condense r.toml --cache c --crop-padding 3 => crop_padding 2, flip | crop_padding 3
        condense r.toml --cache c --flip false => augmentation
        condense r.toml --cache c --erasing 0.1 => augmentation
        condense r.toml --cache c --view-seed 1 => view_seed = 0, now 1
        condense r.toml --cache c --cache-top 2 => cache_top = all, now 2
        condense r.toml --cache c --mixup 0.8 => mixes | drop mixup
        condense r.toml --cache c --cache-top 0 => at least 1
        condense r.toml --cache c --set condense.cache_top=some => cache_top | some
        condense r.toml --cache-top 3 => --cache
        condense r.toml --cache flat => flat holds | not a cache
        condense r.toml --cache flat --dry-run => not a cache
        condense r.toml --cache r.toml => r.toml is a file
        ",
    );
    assert!(!place.path("flat/lock").exists());

    let manifest = place.text("c/cache.json");
    let version = "\"format_version\": ";
    let of_version = |n: &str| manifest.replace(&format!("{version}2"), &format!("{version}{n}"));
    for (changed, said) in [
        (
            of_version("3"),
            ["format_version = 3, now 2", "a newer one"],
        ),
        (of_version("1"), ["format_version = 1, now 2", "remove it"]),
        ("{".into(), ["cache.json", "c"]),
    ] {
        place.write("c/cache.json", changed);
        place.refused(&format!("{CONDENSE} --cache c --out o"), &said);
    }
    place.write("c/cache.json", manifest);
    assert!(before == contents(&place, "c"));
}

#[test]
fn a_damaged_shard_is_computed_again() {
    let place = place();
    let command = format!("{CONDENSE} --cache c");
    place.json(&format!("{command} --out t"));
    let shards = shards(&place, "c");
    let good = contents(&place, "c");
    let mut bad = good[0].clone();
    *bad.last_mut().unwrap() ^= 1;
    // A flipped bit in one shard of the first view, and a shard in the place of another.
    std::fs::write(&shards[0], &bad).unwrap();
    std::fs::write(&shards[1], &good[0]).unwrap();
    let left = [
        place.path("c/.wave-left.tmp"),
        shards[0].with_file_name(".wave-left.tmp"),
    ];
    for left in &left {
        std::fs::write(left, "half").unwrap();
    }
    let (result, told) = place.texts(&format!("{command} --out u --json"));
    assert_eq!(computed(&serde_json::from_str(&result).unwrap()), 256);
    // Each is told once, with its name and what happens.
    let told: Vec<&str> = told
        .lines()
        .filter(|l| l.contains("computed again"))
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    for line in told {
        assert_eq!(line.matches(".safetensors").count(), 1, "{line}");
        assert!(!line.contains("copy it again"), "{line}");
    }
    assert_same(&place.path("t"), &place.path("u"));
    assert!(contents(&place, "c") == good);
    assert!(left.iter().all(|left| !left.exists()));
}

#[test]
fn an_error_of_the_cache_has_no_backtrace() {
    let place = place();
    let command = format!("{CONDENSE} --steps 1 --cache c");
    place.json(&format!("{command} --out t"));
    let view = place.path("c/view-00000");
    std::fs::remove_dir_all(&view).unwrap();
    std::fs::write(&view, "in the way").unwrap();
    let args = format!("{command} --out u");
    let mut run = place.command(&args);
    let output = run.env("RUST_BACKTRACE", "1").output().unwrap();
    assert_fails(&output, 1, &args, &["view-00000"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!stderr.contains("   0: "), "{stderr}");
}

fn start(place: &Place, args: &str) -> Child {
    let mut command = place.command(args);
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn killed_at_any_moment_the_cache_is_sound() {
    let place = place();
    let command = format!("{CONDENSE} --steps 64 --views 8 --checkpoint-steps 1");
    place.json(&format!("{command} --cache whole --out t"));
    for pause in [0, 15] {
        let _ = std::fs::remove_dir_all(place.path("c"));
        let killed = format!("{command} --cache c --out k{pause}");
        let mut child = start(&place, &killed);
        let began = Instant::now();
        while shards(&place, "c").is_empty() {
            assert!(began.elapsed() < Duration::from_secs(600), "no shard");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(pause));
        child.kill().unwrap();
        child.wait().unwrap();
        let resumed = place.json(&format!("{killed} --resume"));
        assert_same(&place.path("t"), &place.path(&format!("k{pause}")));
        assert!(computed(&resumed) < 8 * 256, "{resumed}");
        assert!(contents(&place, "c") == contents(&place, "whole"));
    }
}

#[test]
fn two_runs_fill_one_cache() {
    let place = place();
    let command = format!("{CONDENSE} --steps 40 --views 5 --cache c");
    let mut runs = ["t", "u"].map(|out| start(&place, &format!("{command} --out {out}")));
    for run in &mut runs {
        assert!(run.wait().unwrap().success());
    }
    assert_same(&place.path("t"), &place.path("u"));
    assert_eq!(computed(&place.json(&format!("{command} --out v"))), 0);
    assert_same(&place.path("t"), &place.path("v"));
}

/// A dry run refuses what the run would, and makes no cache.
#[test]
fn a_dry_run_reads_a_cache_and_makes_none() {
    let place = place();
    place.json(&format!("{INIT} --out m"));
    let tune = format!("finetune m {SHAPES} --steps 1 --ancestor a");
    for command in [&tune, CONDENSE] {
        place.stdout(&format!("{command} --cache new --dry-run"));
        assert!(!place.path("new").exists(), "{command}");
    }
    place.json(&format!("{CONDENSE} --steps 1 --cache c --out t"));
    place.stdout(&format!("{CONDENSE} --cache c --dry-run"));
    place.refuses(
        "FLAGS --cache c --dry-run",
        "
        condense r.toml --ancestor b --kl-weight 1 => ancestor_sha256 | another --cache
        condense r.toml --ancestor a --kl-weight 1 --flip false => augmentation | another --cache
        condense r.toml --ancestor a --kl-weight 1 --mixup 0.8 => mixes | drop mixup
        condense r.toml => --ancestor
        finetune m --data shapes => --ancestor
        finetune m --data shapes --ancestor a => augmentation | another --cache
        ",
    );
}
