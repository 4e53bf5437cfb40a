//! Commands outside the pipeline: init, inspect, speed, dry runs.

use crate::support::{CONVMIXER, INIT, Place, SHAPES, assert_fails, assert_same, values};
use serde_json::Value;

#[test]
fn factors_of_layer_scale_are_part_of_the_weights_at_the_end() {
    let place = Place::with_model();
    let args = format!("{SHAPES} --steps 4");
    let scaled = place.json(&format!("finetune m {args} --layer-scale 0.1 --out ls"));
    let plain = place.json(&format!("finetune m {args} --out no-ls"));
    assert_eq!(scaled["parameters"], plain["parameters"]);
    let eval = place.json("eval ls --data shapes --test-limit 64");
    assert_eq!(eval["top1"], scaled["top1"]);
    let projection = |dir: &str| {
        let weights = place.tensors(&format!("{dir}/model.safetensors"));
        assert!(weights.keys().all(|name| !name.contains("factor")));
        let values = values(&weights["blocks.1.attn.proj.weight"]);
        values.iter().map(|v| v.abs()).sum::<f32>()
    };
    let ratio = projection("ls") / projection("no-ls");
    assert!((0.05..0.2).contains(&ratio), "{ratio}");
    place.json(&format!("{CONVMIXER} --data shapes --out conv"));
    place.refused(
        &format!("finetune conv {args} --layer-scale 0.1 --out o"),
        &["layer_scale and mlp_scalar apply to vision transformers"],
    );
}

#[test]
fn zero_fills_the_attention_unless_all_of_a_block_is_asked_for() {
    let place = Place::new();
    let size = "--data shapes --depth 1 --width 32 --heads 2 --patch 7";
    let fc2_is_zero = |more: &str, out: &str| {
        place.json(&format!("init zero {more} {size} --out {out}"));
        let weights = place.tensors(&format!("{out}/model.safetensors"));
        let is_zero = |name: &str| values(&weights[name]).iter().all(|v| *v == 0.0);
        assert!(is_zero("blocks.0.attn.proj.weight"));
        is_zero("blocks.0.mlp.fc2.weight")
    };
    assert!(!fc2_is_zero("", "attention"));
    assert!(fc2_is_zero("--zero blocks", "blocks"));
    place.refused(&format!("init zero --zero mlp {size} --out o"), &[]);
}

#[test]
fn steps_take_the_memory_that_is_foreseen() {
    let place = Place::new();
    let shape = "--image 96 --patch 8 --depth 4 --width 128 --heads 4 --class-token false";
    let measured = |batch: usize, recompute: bool| {
        let flags = format!("--steps 1 --batch {batch} --recompute {recompute}");
        let speed = place.json(&format!("speed --mode train {shape} {flags}"));
        speed["peak_rss_bytes"].as_u64().unwrap()
    };
    for recompute in [false, true] {
        // Many images, since what the allocator holds besides varies by megabytes.
        let image = (measured(112, recompute) - measured(16, recompute)) / 96;
        let shape = wave_models::vit::VitShape {
            image_size: 96,
            patch: 8,
            depth: 4,
            width: 128,
            heads: 4,
            ..Default::default()
        };
        let mode = wave_ops::Mode {
            recompute,
            ..Default::default()
        };
        let foreseen =
            wave::forecast::Memory::of_network(&wave_models::Network::Vit(shape), mode).image;
        let ratio = image as f64 / foreseen as f64;
        assert!(
            (0.5..1.1).contains(&ratio),
            "{recompute}: {image} for {foreseen}"
        );
    }
}

#[test]
fn expand_makes_models_for_other_images_patches_and_mlps() {
    let place = Place::with_templates();
    let expand = "expand t --depth 2 --width 32";
    let other = "--image-size 35 --patch 5 --mlp-ratio 2.67"; // 85 hidden channels, not 85.44
    place.json(&format!("{expand} {other} --steps 2 {SHAPES} --out m"));
    let config = place.config("m");
    let arguments = &config["model_args"];
    assert_eq!(arguments["img_size"], 35);
    assert_eq!(arguments["patch_size"], 5);
    assert_eq!(arguments["mlp_ratio"], 2.67);
    let sizes = config["pretrained_cfg"]["input_size"].as_array().unwrap();
    assert_eq!(sizes[1..], [35, 35]);
    let tested = place.json("eval m --data shapes --test-limit 64");
    assert_eq!(tested["images"], 64);

    // At the templates' own sizes nothing changes.
    let weights = |flags: &str, dir: &str| {
        place.json(&format!("{expand} {flags} --steps 0 --out {dir}"));
        place.bytes(&format!("{dir}/model.safetensors"))
    };
    let own = "--image-size 28 --patch 7 --mlp-ratio 4";
    assert!(weights("", "a") == weights(own, "b"));
    let wrong = format!("{expand} --patch 8 --steps 0 --out o");
    place.refused(&wrong, &["patch 8", "28"]);
    // Sines need widths that are multiples of 4, but no positions are filled in.
    place.json("expand t --depth 2 --width 18 --heads 3 --fill mimetic --steps 0 --out f");
}

#[test]
fn a_dry_run_prints_and_writes_nothing() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    for args in [
        "condense r.toml",
        "run r.toml",
        "expand t --depth 2 --width 16 --steps 0",
        INIT,
        "finetune m --data shapes --steps 5",
    ] {
        for out in ["", "--out o"] {
            let text = place.stdout(&format!("{args} {out} --dry-run"));
            assert!(!text.trim().is_empty(), "{args}");
        }
        place.json(&format!("{args} --dry-run"));
        assert!(!place.path("o").exists() && !place.path("runs").exists());
    }
    place.json("finetune m --data shapes --steps 5 --out o");
    let plan = "finetune m --data shapes --steps 6 --out o --dry-run";
    let held = |plan: &str| place.stdout(plan).contains("o holds a complete run");
    assert!(held(plan) && !held(&format!("{plan} --overwrite")));
}

#[test]
fn every_recipe_can_be_planned() {
    let place = Place::new();
    let ancestor = "init default --arch convmixer --depth 1 --width 8";
    place.json(&format!("{ancestor} --patch 16 --out a"));
    place.json(&format!(
        "{ancestor} --patch 8 --image-size 32 --data shapes --out of-shapes"
    ));
    let recipes = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes");
    let mut planned = 0;
    let dirs = ["", "/bench", "/papers"].map(|dir| format!("{recipes}{dir}"));
    for entry in dirs.iter().flat_map(|dir| std::fs::read_dir(dir).unwrap()) {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            // They run on a processor without bf16.
            assert!(!text.contains("precision = \"bf16\""), "{}", path.display());
            let tables: toml::Table = text.parse().unwrap();
            if !(tables.contains_key("condense") || tables.contains_key("bench")) {
                continue; // of another command
            }
            // Files outside the repository are replaced, with an ancestor that fits the data.
            let shapes = text.contains("fashion-mnist\"") || text.contains("data = \"data/");
            let mut more = String::from(if shapes { " --set data=shapes" } else { "" });
            let begins = |path: &str| text.contains(&format!("ancestor = \"{path}"));
            if begins("ancestors/") || begins("recipes/") {
                let ancestor = if shapes { "of-shapes" } else { "a" };
                more += &format!(" --set condense.ancestor={ancestor}");
            }
            let plan = place.stdout(&format!("run {} --dry-run{more}", path.display()));
            // The plan describes templates, unless they are given.
            let wanted = !tables.contains_key("bench") || text.contains("start = \"templates\"");
            let condenses = wanted && !text.contains("templates = \"");
            assert_eq!(plan.contains("plain ViT"), condenses, "{plan}");
            assert!(
                !text.contains("hf:timm/levit") || plan.contains("hf:timm/levit"),
                "{plan}"
            );
            planned += 1;
        }
    }
    assert!(planned >= 12, "{planned} recipes");
}

#[test]
fn what_would_be_published_is_listed() {
    let place = Place::with_templates();
    let publish = "publish t --repo hf:someone/templates --license mit --dry-run";
    let plan = place.json(publish);
    assert_eq!(plan["repo"], "someone/templates");
    let files = plan["files"].as_array().unwrap().iter();
    let files: Vec<&Value> = files.map(|file| &file["path"]).collect();
    let expected = [
        "README.md",
        "config.json",
        "expand.py",
        "templates.safetensors",
    ];
    assert_eq!(files, expected);
    assert_eq!(plan["left_out"], serde_json::json!(["run"]));
    assert!(plan["commit"].is_null());
    let card = plan["card"].as_str().unwrap();
    assert!(card.starts_with("---\nlicense: mit\n"), "{card}");
    assert!(card.contains("wave expand hf:someone/templates --depth 6"));
    let shown = place.stdout(publish);
    assert!(shown.ends_with(card), "{shown}");
}

#[test]
fn speed_is_measured_in_every_mode() {
    let place = Place::new();
    let shape = "--image 20 --channels 1 --patch 5 --depth 2 --width 24 --heads 3 --batch 3";
    for mode in ["train", "forward", "condense"] {
        let found = place.json(&format!("speed --mode {mode} {shape} --steps 2"));
        for key in [
            "images_per_second",
            "step_ms_median",
            "step_ms_min",
            "gflops",
        ] {
            assert!(found[key].as_f64().unwrap() > 0.0, "{key}");
        }
        assert!(found["threads"].is_u64());
        assert!(found["simd"].is_string() && found["precision"] == "f32");
        assert!(found.get("peak_gflops").is_none());
    }
    let found = place.json(&format!("speed {shape} --steps 2 --peak"));
    let number = |key: &str| found[key].as_f64().unwrap();
    let share = number("gflops") / number("peak_gflops");
    assert!((number("share_of_peak") - share).abs() < 1e-9 * share);
}

#[test]
fn inspect_counts_and_draws() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --steps 0 --out e");
    let templates = place.json("inspect t --plots pt");
    assert_eq!(templates["kind"], "templates");
    let parts = templates["ledger"].as_object().unwrap().values();
    let sum: u64 = parts.map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(templates["parameters"], sum);
    let surface = place.text("pt/accuracy.svg");
    assert!(surface.contains("width 16") && surface.contains("width 32"));
    let model = place.json("inspect e --data shapes --plots pe --html e.html");
    assert_eq!(model["kind"], "model");
    let ledger = &model["ledger"];
    assert_eq!(ledger["templates"], templates["ledger"]["templates"]);
    let part = |name: &str| ledger[name].as_u64().unwrap();
    assert_eq!(model["parameters"], part("composed") + part("inherited"));
    assert_eq!((&model["depth"], &model["width"]), (&2.into(), &32.into()));
    let file = place.json("inspect e/scalers.safetensors");
    assert_eq!(file["parameters"], ledger["scalers"]);
    assert!(place.text("e.html").contains("Attention maps"));
    for picture in [
        "pt/templates-qkv.png",
        "pt/query-key.png",
        "pe/query-key.png",
        "pe/value-projection.png",
        "pe/attention-maps.png",
    ] {
        let pixels = image::load_from_memory(&place.bytes(picture)).unwrap();
        assert!(pixels.width() > 1 && pixels.height() > 1, "{picture}");
    }
}

#[test]
fn init_starts_from_a_trained_model() {
    let place = Place::new();
    place.json("init timm --data shapes --depth 4 --width 32 --heads 2 --patch 7 --out donor");
    let similarity = "--similarity -0.1,0.9,0.2,0.8";
    for (method, size) in [
        (
            "weight-selection",
            "--depth 2 --width 16 --layers uniform".to_owned(),
        ),
        ("heru-lg", "--depth 5 --width 32".into()),
        (
            "auto-lg",
            format!("--depth 5 --width 32 --blocks 2 {similarity}"),
        ),
        ("pretrained-attention", "--depth 3 --width 32".into()),
        ("ligo", "--depth 6 --width 48".into()),
        ("nested", "--depth 3 --width 16".into()),
        (
            "prune",
            "--depth 3 --width 24 --data shapes --train-limit 60".into(),
        ),
    ] {
        let made = place.json(&format!("init {method} --from donor {size} --out {method}"));
        let transferred = made["transferred_parameters"].as_u64().unwrap();
        assert!(transferred > 0, "{method}");
    }
    // Other methods take input and classes.
    place.json("init mimetic --from donor --depth 4 --width 32 --qk -0.7,-0.5 --out framed");
    let (donor, framed) = (place.config("donor"), place.config("framed"));
    for key in ["num_classes", "model_args", "pretrained_cfg", "label_names"] {
        assert_eq!(donor[key], framed[key], "{key}");
    }
}

/// Refuses processes that others started, by what these set in the environment.
#[track_caller]
fn refused_among_others(environment: &[(&str, &str)], parts: &[&str]) {
    let place = Place::new();
    let args = "condense r.toml";
    let mut command = place.command(args);
    let output = command.envs(environment.iter().copied()).output().unwrap();
    assert_fails(&output, 2, args, parts);
    assert!(!place.path("runs").exists());
}

#[test]
fn processes_that_nothing_joins_are_refused() {
    let torchrun = [("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")];
    refused_among_others(&torchrun, &["torchrun started 2 processes", "mpirun"]);
    let slurm = [("SLURM_NTASKS", "8"), ("SLURM_PROCID", "3")];
    refused_among_others(&slurm, &["8 tasks", "mpirun"]);
}

#[test]
#[cfg(not(feature = "mpi"))]
fn ranks_are_refused_by_a_build_without_mpi() {
    let parts = ["2 processes were started", "--features mpi"];
    refused_among_others(&[("OMPI_COMM_WORLD_SIZE", "2")], &parts);
}

#[test]
fn a_profile_tells_where_the_time_of_a_training_went() {
    let place = Place::with_templates();
    let expand = format!("expand t --depth 3 --width 32 {SHAPES} --steps 8");
    for (args, part) in [("condense r.toml", "composition"), (&expand, "tests")] {
        let plain = place.json(&format!("{args} --out o --overwrite"));
        assert!(plain.get("profile").is_none(), "{args}");
        let made = place.json(&format!("{args} --out p --overwrite --profile"));
        assert_same(&place.path("o"), &place.path("p"));
        let profile = &made["profile"];
        let total = profile["seconds"].as_f64().unwrap();
        let parts = profile["parts"].as_array().unwrap();
        let seconds = |part: &Value| part["seconds"].as_f64().unwrap();
        let sum: f64 = parts.iter().map(seconds).sum();
        assert!((sum / total - 1.0).abs() < 0.02, "{args}: {profile}");
        assert!(profile["images_per_second"].as_f64().unwrap() > 0.0);
        let mut found = parts.iter().filter(|row| row["part"] == part);
        assert!(seconds(found.next().unwrap()) > 0.0, "{args}: {profile}");
    }
    let text = place.stdout("condense r.toml --out o --overwrite --profile");
    assert!(text.contains("norms and activations"), "{text}");
}
