//! Checks and forecasts before any work: dry runs, memory, ranges.

use crate::support::{CONVMIXER, INIT, Place, RECIPE, SHAPES};

#[test]
fn without_an_ancestor_the_labels_have_to_be_meant() {
    let place = Place::new();
    let recipe = RECIPE.replace("kl_weight = 0\n", "");
    place.write("a.toml", &recipe);
    // A bench, before any of its training.
    let table = "[bench]\nsizes = [[2, 16]]\n[bench.methods]\nwave = { start = \"templates\" }\n";
    place.write("b.toml", recipe + table);
    for command in ["FLAGS --out o", "FLAGS --out o --dry-run"] {
        place.refuses(
            command,
            "
            condense a.toml => ancestor | --kl-weight 0
            condense a.toml --kl-weight 0 --ce-weight 0 => nothing to learn
            condense a.toml --kl-weight 0 --temperature 2 => temperature = 2 | --ancestor A
            bench b.toml => bench.methods.wave | --kl-weight 0
            ",
        );
    }
    place.stdout("condense a.toml --kl-weight 0 --steps 1 --out t");
}

#[test]
fn a_dry_run_refuses_what_the_stage_would() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    for command in ["FLAGS --out o", "FLAGS --out o --dry-run"] {
        place.refuses(
            command,
            "
            finetune t --data shapes => t
            finetune m => --data
            finetune m --data missing => missing
            finetune m --data shapes --epochs 1 --steps 5 => both
            finetune m --data shapes --freeze stem => no weight name contains stem
            finetune m --data shapes --ancestor nowhere => nowhere
            finetune m --data shapes --depths 1,9 => depths
            finetune m --data shapes --growth 0.5 => growth | --depths
            finetune m --data shapes --keep best --test-epochs 0 => keep = best | test_epochs = 0
            finetune m --data shapes --accumulate 5 => accumulate
            finetune nowhere --data shapes => nowhere
            condense r.toml --ancestor nowhere --kl-weight 1 => nowhere
            condense r.toml --ancestor m --temperature 2 => temperature = 2 | kl_weight = 0
            condense r.toml --ancestor m --kl-weight 1 --ce-weight 0 --label-smoothing 0.1 => label_smoothing = 0.1 | ce_weight = 0
            condense r.toml --keep best --test-epochs 0 => keep = best | test_epochs = 0
            condense r.toml --data missing => missing
            condense r.toml --epochs 1 --steps 5 => both
            condense r.toml --accumulate 5 => accumulate
            expand t --depth 2 --width 32 --data missing => missing
            expand t --depth 2 --width 32 --epochs 1 --steps 5 => both
            expand t --depth 2 --width 32 --steps 5 => 5 steps | --data
            expand m --depth 2 --width 32 => m
            init timm --depth 2 --width 32 --data missing => missing
            ",
        );
    }
}

#[test]
fn a_plan_tells_memory_and_time_and_counts_the_ancestor() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    place.json(&format!("{CONVMIXER} --data shapes --out c"));
    let steps = format!("{SHAPES} --steps 5");
    let images = "256 training images, 64 test images, 8 classes";
    for (args, part) in [
        (format!("finetune m {steps}"), images),
        (format!("finetune c {steps}"), "5 steps with batch = 32"),
        (format!("finetune c {steps} --ancestor c"), "the ancestor"),
        // 12 steps of 32 images; in 80 steps, 256 images in two views, each once.
        (
            "condense r.toml --kl-weight 1 --ancestor c".into(),
            "the ancestor processes 384 images",
        ),
        (
            "condense r.toml --kl-weight 1 --ancestor c --steps 80".into(),
            "the ancestor processes 512 images",
        ),
    ] {
        let plan = place.stdout(&format!("{args} --dry-run"));
        for part in [part, "memory per step", "per checkpoint", "here"] {
            assert!(plan.contains(part), "no {part} for {args}: {plan}");
        }
    }
    let fitted = place.stdout(&format!("expand t --depth 2 --width 32 {steps} --dry-run"));
    assert!(fitted.contains("memory per step"), "{fitted}");
    // None, or one with no weight on its scores.
    for ancestor in ["", "--ancestor c"] {
        let alone = place.stdout(&format!("condense r.toml {ancestor} --dry-run"));
        assert!(!alone.contains("the ancestor processes"), "{alone}");
    }
}

#[test]
fn what_takes_more_memory_than_there_is_does_not_begin() {
    let place = Place::with_templates();
    for (name, args) in [
        ("conv", "default --arch convmixer --width 64 --patch 2"),
        ("next", "default --arch convnext --width 64 --patch 2"),
        ("vit", "timm --width 512 --heads 2 --patch 4"),
        ("wide", "timm --width 256 --heads 8 --patch 1"),
    ] {
        let side = if name == "wide" { 112 } else { 224 };
        let images = format!("--image-size {side} --channels 1 --classes 8");
        place.json(&format!("init {args} --depth 1 {images} --out {name}"));
    }
    place.refuses(
        "FLAGS --data shapes --out o",
        "
        finetune conv --batch 5120 => batch = 5120 | is free | --accumulate
        finetune next --batch 5120 => batch = 5120 | is free | --accumulate
        finetune vit --batch 5120 => batch = 5120 | is free | --accumulate
        expand t --depth 8 --width 160 --steps 1 --batch 4096 --image-size 448 --patch 4 => batch = 4096 | is free
        init prune --from wide --depth 1 --width 64 --train-limit 4096 => 4096 images at once | is free | --train-limit
        ",
    );
    let large = "--batch 4096 --train-limit 5000 --widths 1024 --set condense.auxiliary.width=1024";
    let condense = format!("condense r.toml {large} --set condense.auxiliary.patch=1 --out o");
    place.refused(&condense, &["batch = 4096", "is free"]);
    // A plan may be for another machine.
    let plan = place.stdout("finetune conv --batch 5120 --data shapes --dry-run");
    assert!(plan.contains("DOES NOT FIT HERE"), "{plan}");
}

#[test]
fn sizes_beyond_this_machine_are_refused() {
    let place = Place::with_templates();
    place.refuses(
        "FLAGS --out o",
        "
        expand t --depth 12 --width 102400 => is free
        expand t --depth 12 --width 102400 --dry-run => is free
        init timm --depth 12 --width 102400 --patch 7 --data shapes => is free
        condense r.toml --template-size 40000 => is free
        expand t --depth 12 --width 100000
        expand t --depth 2 --width 16 --threads 100000
        init default --arch convmixer --depth 60 --width 30000 --data shapes
        condense r.toml --template-size 400000
        ",
    );
    let many = "inverted:".repeat(3000);
    let expand = "expand t --depth 2 --width 16 --steps 1 --out o";
    place.refused(&format!("{expand} --data {many}shapes"), &["at most 8"]);
}

#[test]
fn numbers_out_of_range_are_refused() {
    Place::new().refuses(
        "FLAGS",
        "
        condense r.toml --seed 9223372036854775808 --out o => seed = 9223372036854775808; expected 0 to 9223372036854775807
        condense r.toml --kl-weight nan --out o => kl_weight = NaN
        condense r.toml --temperature=-4 --out o => temperature = -4
        condense r.toml --set condense.auxiliary.mlp_ratio=nan --out o => mlp_ratio = NaN
        condense r.toml --mean 0.5 --std 0 --out o => std = 0
        init mimetic --qk nan,1 --depth 2 --width 32 --patch 7 --data shapes --out o => qk = NaN
        speed --mlp-ratio nan => mlp_ratio = NaN
        ",
    );
}

#[test]
fn the_normalisation_of_a_model_stays() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    let config = place.config("m");
    let own = |key: &str| config["pretrained_cfg"][key][0].as_f64().unwrap();
    place.refuses(
        "FLAGS --data shapes --test-limit 8 --mean 0.9 --std 0.01",
        "
        finetune m => mean = [0.9] | remove
        expand t --depth 2 --width 16 => mean = [0.9] | remove
        ",
    );
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
        "12 steps",
        "3 steps",
        "5 steps",
        "free on the disk that holds runs",
    ] {
        assert!(plan.contains(part), "no `{part}` in {plan}");
    }
    assert!(!place.path("runs").exists());
    // Errors of a later stage, and of the data, are told before the first begins.
    for (found, wrong, part) in [
        ("width = 16\nsteps", "width = 24\nsteps", "width"),
        (
            "[finetune]\n",
            "[finetune]\nfreeze = [\"nothing\"]\n",
            "freeze",
        ),
        ("data = \"shapes\"", "data = \"nowhere\"", "nowhere"),
    ] {
        let wrong = recipe.replace(found, wrong);
        assert_ne!(wrong, recipe);
        place.write("v.toml", wrong);
        place.refused("run v.toml --dry-run", &[part]);
    }
    // Other images in the place of the recipe's.
    let plan = place.stdout("run v.toml --data shapes --dry-run");
    assert!(plan.contains("data: shapes"), "{plan}");
    let made = place.json("run v.toml --data shapes --out o");
    assert_eq!(made["rows"].as_array().unwrap().len(), 3);
    place.write("v.toml", "data = \"shapes\"\n[condense]\n[finetune]\n");
    place.refused("run v.toml --out p", &["[finetune] needs [expand]"]);
}

/// The data of a condensation is opened once for its plan, and not again for those of later stages.
#[test]
fn a_plan_opens_data_once() {
    let place = Place::new();
    let condense = RECIPE
        .replace("[condense]", "")
        .replacen("\n", "\n[condense]\n", 1);
    place.write(
        "r.toml",
        format!("{condense}\n[expand]\ndepth = 2\nwidth = 32\nsteps = 0\n"),
    );
    let (told, details) = place.texts("run r.toml --dry-run -v");
    assert!(told.contains("[expand]"), "{told}");
    let opened = details.matches("shapes: 256 training images").count();
    assert_eq!(opened, 1, "{details}");
}

/// The plan of an ancestor that a recipe trains does not run the ancestor that it learns from itself.
#[test]
fn an_ancestor_of_a_recipe_may_have_an_ancestor() {
    let place = Place::with_model();
    let ancestor = "\n[ancestor]\nancestor = \"m\"\nkl_weight = 0.5\nsteps = 2\n\n[ancestor.init]\n\
                    arch = \"convmixer\"\ndepth = 2\nwidth = 16\nkernel = 5\npatch = 7\n";
    place.write("w.toml", format!("{RECIPE}{ancestor}"));
    let plan = place.stdout("run w.toml --dry-run");
    assert!(plan.contains("[ancestor]"), "{plan}");
    place.write(
        "w.toml",
        format!("{RECIPE}{}", ancestor.replace("ancestor = \"m\"\n", "")),
    );
    let refused = ["kl_weight applies only with an ancestor", "--ancestor A"];
    place.refused("run w.toml --dry-run", &refused);
}
