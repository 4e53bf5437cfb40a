//! Several ranks, started by `mpirun`, give the result of one.

use crate::support::{Place, RECIPE, SHAPES, assert_fails, assert_same, files, values};
use crate::terminal::{ended, signal};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Largest difference of weights after 50 steps, for any number of ranks.
const TOLERANCE: f32 = 1e-5;

/// A run with every kind of random number, and every kind of state between steps.
const FINETUNE: &str = "finetune m --steps 50 --mixup 0.8 --cutmix 1 --drop-path 0.1 --ema 0.9 \
                        --crop-padding 2 --flip true --checkpoint-steps 1";

/// `wave args` on `n` ranks, ready to start.
fn command(place: &Place, n: usize, args: &str) -> Command {
    let wave = place.command(args);
    let mut command = Command::new("mpirun");
    command
        .args(["-n", &n.to_string()])
        .arg(wave.get_program())
        .args(wave.get_args())
        .current_dir(place.path(""))
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        // Tests run in parallel on few cores.
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_mpi_yield_when_idle", "1")
        .env("OMPI_MCA_hwloc_base_binding_policy", "none");
    command
}

fn run(place: &Place, n: usize, args: &str) -> Output {
    command(place, n, args).output().unwrap()
}

/// Runs on `n` ranks, which must succeed; stdout is one JSON object for any `n`.
fn json(place: &Place, n: usize, args: &str) -> serde_json::Value {
    let output = run(place, n, &format!("{args} --json"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{n} ranks, wave {args}: {stderr}");
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("wave {args} printed {text:?}: {e}"))
}

/// Weights without the biases of keys. These add the same to every score of a query, so their gradients
/// are rounding errors, which AdamW makes as large as any other gradient.
fn weights(path: &Path) -> BTreeMap<String, Vec<f32>> {
    let all = candle_core::safetensors::load(path, &candle_core::Device::Cpu).unwrap();
    let some = |(name, t): (&String, &candle_core::Tensor)| {
        let mut values = values(t);
        if name.ends_with("attn.qkv.bias") {
            let width = values.len() / 3;
            values.drain(width..2 * width);
        }
        (name.clone(), values)
    };
    all.iter().map(some).collect()
}

/// Asserts that two weight files agree, and that training changed the weights of the first from those
/// of `start`.
#[track_caller]
fn check_close(start: Option<&Path>, a: &Path, b: &Path) {
    let distance = |a: &Path, b: &Path| {
        let (a, b) = (weights(a), weights(b));
        assert!(a.keys().eq(b.keys()));
        let pairs = a.iter().flat_map(|(k, v)| v.iter().zip(&b[k]));
        pairs.fold(0.0, |most: f32, (x, y)| most.max((x - y).abs()))
    };
    let apart = distance(a, b);
    assert!(apart < TOLERANCE, "{apart}");
    if let Some(start) = start {
        assert!(distance(start, a) > 100.0 * TOLERANCE);
    }
}

#[test]
fn finetuning_ends_in_the_same_weights_on_any_number_of_ranks() {
    let place = Place::with_model();
    let model = |out: &str| place.path(out).join("model.safetensors");
    let one = place.json(&format!("{FINETUNE} {SHAPES} --out one"));
    for n in [2, 4] {
        let args = format!("{FINETUNE} {SHAPES} --out {n}");
        assert_eq!(json(&place, n, &args)["parameters"], one["parameters"]);
        let many = model(&n.to_string());
        check_close(Some(&model("m")), &model("one"), &many);
    }
    // The same number of ranks gives the same bytes, and the same logs apart from speeds and times.
    json(&place, 2, &format!("{FINETUNE} {SHAPES} --out again"));
    assert_same(&place.path("2"), &place.path("again"));
    // In parts as well.
    let args = format!("{FINETUNE} {SHAPES} --accumulate 2 --out parts");
    json(&place, 2, &args);
    check_close(None, &model("one"), &model("parts"));
    // Scores are over all test images.
    let eval = "eval 2 --data shapes --test-limit 64";
    let (whole, shared) = (place.json(eval), json(&place, 3, eval));
    assert_eq!(whole["top1"], shared["top1"]);
    assert_eq!(whole["images"], shared["images"]);
}

#[test]
fn condensing_with_an_ancestor_does_too() {
    let place = Place::with_model();
    let file = "templates.safetensors";
    for (name, flags) in [
        // Outputs of the ancestor on mixed images; looked up by view; and from a cache on disk.
        ("mixed", "--mixup 0.8 --views 2".to_owned()),
        ("views", "--views 2".to_owned()),
        ("cached", "--views 2 --cache CACHE".to_owned()),
    ] {
        let args = format!("condense r.toml --ancestor m --kl-weight 1 --steps 50 {flags}");
        let out = |n: usize| (format!("{name}-{n}"), format!("cache-{n}"));
        let args = |n: usize| {
            let (out, cache) = out(n);
            format!("{} --out {out}", args.replace("CACHE", &cache))
        };
        let one = place.json(&args(1));
        let two = json(&place, 2, &args(2));
        let path = |n: usize| place.path(&out(n).0).join(file);
        check_close(None, &path(1), &path(2));
        if name == "cached" {
            assert_eq!(one["cache"], two["cache"]);
            assert!(one["cache"]["ancestor_images"].as_u64() > Some(0));
            for view in ["view-00000", "view-00001"] {
                let shards = |n| files(&place.path(&out(n).1).join(view));
                assert_eq!(shards(1), shards(2));
                assert!(!shards(1).is_empty());
            }
            let again = json(&place, 2, &args(2).replace("--out cached-2", "--out again"));
            assert_eq!(again["cache"]["ancestor_images"], 0);
            assert_same(&place.path("cached-2"), &place.path("again"));
        }
    }
}

#[test]
fn a_whole_recipe_runs_on_two_ranks() {
    let place = Place::new();
    let stages = "[ancestor]\nmethod = \"default\"\nsteps = 8\n[ancestor.init]\narch = \
                  \"convmixer\"\ndepth = 2\nwidth = 16\nkernel = 3\npatch = 7\n[expand]\ndepth = \
                  2\nwidth = 32\nsteps = 8\n[finetune]\nsteps = 8\n";
    place.write("all.toml", RECIPE.replace("kl_weight = 0\n", "") + stages);
    json(&place, 2, "run all.toml --out o");
    json(&place, 2, "run all.toml --out again");
    for stage in ["ancestor", "condense", "expand", "finetune"] {
        let dir = |run: &str| place.path(run).join(stage);
        assert_same(&dir("o"), &dir("again"));
        assert!(dir("o").join("run/result.json").exists());
        assert!(!dir("o").join("run/checkpoint.safetensors").exists());
    }
}

/// Starts a fine-tuning on two ranks, and waits for its first checkpoint; returns the job and the
/// process ids of both ranks.
fn start(place: &Place, out: &str) -> (Child, u32, u32) {
    let args = format!("{FINETUNE} {SHAPES} --out {out}");
    let job = command(place, 2, &args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while !place.path(out).join("run/checkpoint.safetensors").exists() {
        assert!(began.elapsed() < Duration::from_secs(600), "no checkpoint");
        std::thread::sleep(Duration::from_millis(1));
    }
    let first = std::fs::read_to_string(place.path(out).join("run/lock")).unwrap();
    let first: u32 = first.trim().parse().unwrap();
    let path = format!("/proc/{0}/task/{0}/children", job.id());
    let children = std::fs::read_to_string(path).unwrap();
    let mut ranks = children.split_whitespace().map(|pid| pid.parse().unwrap());
    let second = ranks.find(|pid| *pid != first).unwrap();
    (job, first, second)
}

#[test]
fn a_killed_rank_ends_the_job_which_goes_on_with_other_ranks() {
    let place = Place::with_model();
    let model = |out: &str| place.path(out).join("model.safetensors");
    place.json(&format!("{FINETUNE} {SHAPES} --out one"));
    for (out, n) in [("alone", 1), ("four", 4)] {
        let (job, first, second) = start(&place, out);
        signal(if n == 1 { second } else { first }, "-9");
        let output = ended(job);
        assert!(!output.status.success());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let killed = if n == 1 { "rank 1" } else { "rank 0" };
        assert!(stderr.contains(killed), "{stderr}");
        assert!(!model(out).exists());
        let resume = format!("{FINETUNE} {SHAPES} --out {out} --resume");
        json(&place, n, &resume);
        check_close(None, &model("one"), &model(out));
    }
}

#[test]
fn an_interrupted_rank_stops_all_at_one_step() {
    let place = Place::with_model();
    json(&place, 2, &format!("{FINETUNE} {SHAPES} --out whole"));
    let (job, _, second) = start(&place, "stopped");
    signal(second, "-TERM");
    let parts = ["rank 0 of 2: interrupted at step", "--resume"];
    assert_fails(&ended(job), 130, FINETUNE, &parts);
    let resume = format!("{FINETUNE} {SHAPES} --out stopped --resume");
    json(&place, 2, &resume);
    assert_same(&place.path("whole"), &place.path("stopped"));
}

#[test]
fn what_fails_on_one_rank_ends_all() {
    let place = Place::new();
    place.write_classes("d", ["a", "b"], 16, 1);
    place.json("init timm --data d --depth 2 --width 32 --heads 2 --patch 7 --out m");
    for i in 0..8 {
        place.write(&format!("d/train/b/{i}.png"), "no picture");
    }
    let args = "finetune m --data d --batch 8 --steps 20 --out o";
    assert_fails(&run(&place, 2, args), 2, args, &["of 2: ", "are broken"]);
    assert!(!place.path("o/config.json").exists());
}

#[test]
fn requests_that_need_one_process_are_refused() {
    let place = Place::with_model();
    place.write("b.toml", "[bench]\nmethods = [\"timm\"]\n");
    let tune = |flags: &str| format!("finetune m --data shapes --steps 2 --out o {flags}");
    for (args, needles) in [
        (
            "init timm --data shapes --out o".to_owned(),
            &["2 ranks were started"][..],
        ),
        (
            "run b.toml --out o".to_owned(),
            &["[bench]", "without mpirun"],
        ),
        (
            tune("--batch 33"),
            &["33 images", "2 ranks", "multiple of 2"],
        ),
        (
            tune("--batch 34 --mixup 1"),
            &["17 images", "multiple of 4"],
        ),
        (
            tune("--batch 32 --accumulate 3"),
            &["the 16 images", "2 ranks"],
        ),
    ] {
        let output = run(&place, 2, &args);
        assert_fails(&output, 2, &args, needles);
        // Printed once, though both ranks fail.
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(stderr.matches("wave: rank").count(), 1, "{stderr}");
        assert!(!place.path("o/config.json").exists());
    }
}
