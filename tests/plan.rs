//! Checks and forecasts before any work: dry runs, memory, ranges.

use crate::support::{CONVMIXER, INIT, Place, RECIPE, SHAPES};

#[test]
fn without_an_ancestor_the_labels_have_to_be_meant() {
    let place = Place::new();
    let recipe = RECIPE.replace("kl_weight = 0\n", "");
    place.write("a.toml", &recipe);
    for more in ["--out o", "--out o --dry-run"] {
        place.refused(
            &format!("condense a.toml {more}"),
            &["ancestor", "--kl-weight 0"],
        );
    }
    place.refused(
        "condense a.toml --kl-weight 0 --ce-weight 0 --out o",
        &["nothing to learn"],
    );
    place.stdout("condense a.toml --kl-weight 0 --steps 1 --out t");
    // A bench, before any of its training.
    let table = "[bench]\nsizes = [[2, 16]]\n[bench.methods]\nwave = { start = \"templates\" }\n";
    place.write("b.toml", recipe + table);
    for more in ["", "--dry-run"] {
        place.refused(
            &format!("bench b.toml --out o {more}"),
            &["bench.methods.wave", "--kl-weight 0"],
        );
    }
}

#[test]
fn a_dry_run_refuses_what_the_stage_would() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    for (args, needles) in [
        ("finetune t --data shapes", &["t"][..]),
        ("finetune m", &["--data"]),
        ("finetune m --data missing", &["missing"]),
        ("finetune m --data shapes --epochs 1 --steps 5", &["both"]),
        (
            "finetune m --data shapes --freeze stem",
            &["no weight name contains stem"],
        ),
        ("finetune m --data shapes --ancestor nowhere", &["nowhere"]),
        ("finetune m --data shapes --depths 1,9", &["depths"]),
        (
            "finetune m --data shapes --growth 0.5",
            &["growth", "--depths"],
        ),
        ("finetune m --data shapes --accumulate 5", &["accumulate"]),
        ("finetune nowhere --data shapes", &["nowhere"]),
        (
            "condense r.toml --ancestor nowhere --kl-weight 1",
            &["nowhere"],
        ),
        ("condense r.toml --data missing", &["missing"]),
        ("condense r.toml --epochs 1 --steps 5", &["both"]),
        ("condense r.toml --accumulate 5", &["accumulate"]),
        ("expand t --depth 2 --width 32 --data missing", &["missing"]),
        (
            "expand t --depth 2 --width 32 --epochs 1 --steps 5",
            &["both"],
        ),
        (
            "expand t --depth 2 --width 32 --steps 5",
            &["5 steps", "--data"],
        ),
        ("expand m --depth 2 --width 32", &["m"]),
        (
            "init timm --depth 2 --width 32 --data missing",
            &["missing"],
        ),
    ] {
        place.refused(&format!("{args} --out o"), needles);
        place.refused(&format!("{args} --out o --dry-run"), needles);
    }
}

#[test]
fn a_plan_tells_memory_and_time_and_counts_the_ancestor() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    place.json(&format!("{CONVMIXER} --data shapes --out c"));
    let plan = |args: &str| {
        let plan = place.stdout(&format!("{args} --dry-run"));
        for part in ["memory per step", "per checkpoint", "here"] {
            assert!(plan.contains(part), "no {part} for {args}: {plan}");
        }
        plan
    };
    let steps = format!("{SHAPES} --steps 5");
    for model in ["m", "c"] {
        let alone = plan(&format!("finetune {model} {steps}"));
        assert!(alone.contains("5 steps with batch = 32"), "{alone}");
        assert!(
            alone.contains("256 training images, 64 test images, 8 classes"),
            "{alone}"
        );
        let taught = plan(&format!("finetune {model} {steps} --ancestor c"));
        assert!(taught.contains("the ancestor"), "{taught}");
    }
    let alone = plan("condense r.toml");
    assert!(!alone.contains("the ancestor processes"), "{alone}");
    // 12 steps of 32 images; in 80 steps, 256 images in two views, each once.
    let taught = plan("condense r.toml --kl-weight 1 --ancestor c");
    assert!(
        taught.contains("the ancestor processes 384 images"),
        "{taught}"
    );
    let taught = plan("condense r.toml --kl-weight 1 --ancestor c --steps 80");
    assert!(
        taught.contains("the ancestor processes 512 images"),
        "{taught}"
    );
    let fitted = place.stdout(&format!("expand t --depth 2 --width 32 {steps} --dry-run"));
    assert!(fitted.contains("memory per step"), "{fitted}");
}

#[test]
fn what_takes_more_memory_than_there_is_does_not_begin() {
    let place = Place::with_templates();
    for (name, args) in [
        ("conv", "default --arch convmixer --width 64 --patch 2"),
        ("next", "default --arch convnext --width 64 --patch 2"),
        ("vit", "timm --width 512 --heads 2 --patch 4"),
    ] {
        let size = "--depth 1 --image-size 224 --channels 1 --classes 8";
        place.json(&format!("init {args} {size} --out {name}"));
        let command = format!("finetune {name} --data shapes --batch 5120 --out o");
        let needles = ["batch = 5120", "is free", "--accumulate"];
        place.refused(&command, &needles);
        if name == "conv" {
            // A plan may be for another machine.
            let plan = place.stdout(&format!("{command} --dry-run"));
            assert!(plan.contains("DOES NOT FIT HERE"), "{plan}");
        }
    }
    let large = "--batch 4096 --image-size 448 --patch 4 --out o";
    let expand = format!("expand t --depth 8 --width 160 --data shapes --steps 1 {large}");
    place.refused(&expand, &["batch = 4096", "is free"]);
    let large = "--batch 4096 --train-limit 5000 --widths 1024 --set condense.auxiliary.width=1024";
    let condense = format!("condense r.toml {large} --set condense.auxiliary.patch=1 --out o");
    place.refused(&condense, &["batch = 4096", "is free"]);
    let large = "timm --depth 1 --width 256 --heads 8 --patch 1 --image-size 112";
    place.json(&format!("init {large} --channels 1 --classes 8 --out wide"));
    let prune =
        "init prune --from wide --depth 1 --width 64 --data shapes --train-limit 4096 --out o";
    place.refused(prune, &["4096 images at once", "is free", "--train-limit"]);
}

#[test]
fn sizes_beyond_this_machine_are_refused() {
    let place = Place::with_templates();
    for args in [
        "expand t --depth 12 --width 102400",
        "expand t --depth 12 --width 102400 --dry-run",
        "init timm --depth 12 --width 102400 --patch 7 --data shapes",
        "condense r.toml --template-size 40000",
    ] {
        place.refused(&format!("{args} --out o"), &["is free"]);
    }
    for args in [
        "expand t --depth 12 --width 100000",
        "expand t --depth 2 --width 16 --threads 100000",
        "init default --arch convmixer --depth 60 --width 30000 --data shapes",
        "condense r.toml --template-size 400000",
    ] {
        place.refused(&format!("{args} --out o"), &[]);
    }
    let many = "inverted:".repeat(3000);
    place.refused(
        &format!("expand t --depth 2 --width 16 --data {many}shapes --steps 1 --out o"),
        &["at most 8"],
    );
}

#[test]
fn numbers_out_of_range_are_refused() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    for (args, needle) in [
        ("condense r.toml --kl-weight nan", "kl_weight = NaN"),
        ("condense r.toml --temperature=-4", "temperature = -4"),
        (
            "condense r.toml --set condense.auxiliary.mlp_ratio=nan",
            "mlp_ratio = NaN",
        ),
        ("condense r.toml --mean 0.5 --std 0", "std = 0"),
        ("finetune m --data shapes --erasing 2", "erasing = 2"),
        ("finetune m --data shapes --patience 0", "patience = 0"),
        (
            "finetune m --data shapes --seed 9223372036854775808",
            "seed = 9223372036854775808; expected 0 to 9223372036854775807",
        ),
        (
            "expand t --depth 2 --width 32 --mlp-ratio nan",
            "mlp_ratio = NaN",
        ),
        (
            "init mimetic --qk nan,1 --depth 2 --width 32 --patch 7 --data shapes",
            "qk = NaN",
        ),
        (
            "init timm --position-scale inf --depth 2 --width 32 --patch 7 --data shapes",
            "position_scale",
        ),
    ] {
        place.refused(&format!("{args} --out o"), &[needle]);
    }
    place.refused("speed --mlp-ratio nan", &["mlp_ratio = NaN"]);
}

#[test]
fn the_normalisation_of_a_model_stays() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    let config = place.config("m");
    let own = |key: &str| config["pretrained_cfg"][key][0].as_f64().unwrap();
    for stage in ["finetune m", "expand t --depth 2 --width 16"] {
        let command = format!("{stage} --data shapes --test-limit 8");
        place.refused(
            &format!("{command} --mean 0.9 --std 0.01"),
            &["mean = [0.9]", "remove"],
        );
    }
    let same = format!("--mean {} --std {}", own("mean"), own("std"));
    place.json(&format!("finetune m {SHAPES} --steps 1 {same} --out f"));
}

#[test]
fn every_stage_of_a_recipe_is_planned() {
    let place = Place::new();
    let stages = "\n[expand]\ndepth = 2\nwidth = 16\nsteps = 3\n\n[finetune]\nsteps = 5\n";
    let recipe = format!("{RECIPE}{stages}");
    place.write("w.toml", &recipe);
    let plan = place.stdout("run w.toml --dry-run");
    for part in [
        "[condense]",
        "12 steps",
        "[expand]",
        "3 steps",
        "[finetune]",
        "5 steps",
        "free on the disk that holds runs",
    ] {
        assert!(plan.contains(part), "no `{part}` in {plan}");
    }
    assert!(!place.path("runs").exists());
    // Errors of a later stage are told before the first begins, by both.
    for (wrong, part) in [
        (
            recipe.replace("width = 16\nsteps", "width = 24\nsteps"),
            "width",
        ),
        (
            recipe.replace("[finetune]\n", "[finetune]\nfreeze = [\"nothing\"]\n"),
            "freeze",
        ),
    ] {
        assert_ne!(wrong, recipe);
        place.write("v.toml", wrong);
        place.refused("run v.toml --dry-run", &[part]);
    }
    place.write("v.toml", "data = \"shapes\"\n[condense]\n[finetune]\n");
    place.refused("run v.toml --out o", &["[finetune] needs [expand]"]);

    // Other images in the place of the recipe's.
    place.write(
        "d.toml",
        recipe.replace("data = \"shapes\"", "data = \"nowhere\""),
    );
    place.refused("run d.toml --dry-run", &["nowhere"]);
    assert!(
        place
            .stdout("run d.toml --data shapes --dry-run")
            .contains("data: shapes")
    );
    let made = place.json("run d.toml --data shapes --out o");
    assert_eq!(made["rows"].as_array().unwrap().len(), 3);
}
