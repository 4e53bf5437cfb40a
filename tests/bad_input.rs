//! Wrong requests end with a clear message and exit code 2, without a panic or a partial artefact.

use crate::support::{INIT, Place, RECIPE, assert_fails};

#[test]
fn wrong_flags() {
    let place = Place::with_templates();
    place.json(&format!("{INIT} --out m"));
    let expand = "expand t --out o --depth 2";
    for (args, needle) in [
        ("frobnicate".to_string(), "frobnicate"),
        (String::new(), "Usage"),
        ("condense r.toml --depths many --out o".into(), "many"),
        ("condense r.toml --threads 0".into(), "--threads"),
        ("condense r.toml --device abacus --out o".into(), "abacus"),
        ("condense r.toml --lr -1 --out o".into(), "-1"),
        ("condense r.toml --batch 100000 --out o".into(), "batch"),
        ("condense r.toml --widths 24 --out o".into(), "head width"),
        (
            "condense r.toml --sizes 1x16..2x32 --out o".into(),
            "--minutes",
        ),
        ("condense r.toml --out r.toml/o".into(), "r.toml is a file"),
        (
            "condense r.toml --out r.toml --dry-run".into(),
            "r.toml is a file",
        ),
        ("run r.toml --set name='\"../r\"'".into(), "below runs"),
        ("run r.toml --set name=5".into(), "below runs"),
        ("condense r.toml --ema 1 --out o".into(), "ema"),
        ("finetune m --hold-out 0 --out o".into(), "hold"),
        (
            "finetune m --data shapes --freeze .,_ --out o".into(),
            "nothing to train",
        ),
        (
            "condense r.toml --set condense.stepz=1 --out o".into(),
            "stepz",
        ),
        ("condense r.toml --set nonsense --out o".into(), "nonsense"),
        ("condense missing.toml --out o".into(), "missing.toml"),
        ("speed --mode backwards".into(), "backwards"),
        ("speed --width 100 --heads 3".into(), "100"),
        ("speed --steps 0".into(), "--steps"),
        ("speed --classes 0".into(), "--classes"),
        ("speed --precision f8".into(), "f8"),
        ("condense r.toml --precision f8 --out o".into(), "f8"),
        (format!("{expand} --width 24 --steps 0"), "head width 16"),
        (format!("{expand} --width 32 --heads 5 --steps 0"), "heads"),
        (format!("{expand} --steps 0"), "--width"),
        (format!("{expand} --width 0 --steps 0"), "width 0"),
        (
            "expand t --out o --depth 0 --width 16 --steps 0".into(),
            "depth 0",
        ),
        (format!("{expand} --width 16 --steps 0 --fill sand"), "sand"),
        (
            "init magic --patch 7 --depth 2 --width 32 --data shapes --out o".into(),
            "magic",
        ),
        ("init he --width 32 --data shapes --out o".into(), "--depth"),
        (
            "init he --depth 2 --width 32 --heads 5 --patch 7 --data shapes --out o".into(),
            "heads",
        ),
        (
            "init he --arch resnet --depth 2 --width 32 --data shapes --out o".into(),
            "resnet",
        ),
        (
            "init weight-selection --depth 2 --width 32 --out o".into(),
            "--from",
        ),
        (
            "init heru-lg --from t --depth 2 --width 32 --out o".into(),
            "wave expand",
        ),
        (
            "init weight-selection --from m --depth 9 --width 32 --out o".into(),
            "depth is 2",
        ),
        (
            "init prune --from m --depth 1 --width 32 --out o".into(),
            "--data",
        ),
        (
            "init prune --from m --depth 9 --width 32 --data shapes --train-limit 9 --out o".into(),
            "depth is 2",
        ),
        (
            "init heru-lg --from m --depth 1 --width 32 --train-limit 9 --out o".into(),
            "--train-limit does not apply",
        ),
        (
            "init heru-lg --from m --depth 1 --width 32 --data shapes --out o".into(),
            "--data does not apply beside --from",
        ),
        (
            "init heru-lg --from m --depth 4 --width 32 --blocks 9 --out o".into(),
            "--blocks N, 1 to 2",
        ),
        (
            "init mlp-mean --mlp-mean eq2=1e300 --depth 2 --width 32 --data shapes --out o".into(),
            "values of blocks.0.mlp.fc1.weight that are not finite",
        ),
        (
            "finetune m --data shapes --steps 1 --kl-weight 2 --out o".into(),
            "kl_weight applies only with an ancestor",
        ),
        (
            "init timm --depth 2 --width 32 --data shapes --qk 0,0 --out o".into(),
            "--qk does not apply to method timm",
        ),
        (
            "init xavier --depth 2 --width 32 --data shapes --rest mimetic --vp 0,0 --out o".into(),
            "--rest does not apply to method xavier",
        ),
        (
            "init heru-lg --from m --depth 1 --width 32 --layers uniform --out o".into(),
            "--layers does not apply to method heru-lg",
        ),
        (
            "init default --arch convmixer --depth 2 --width 32 --data shapes --factored true --out o".into(),
            "--factored does not apply to method default",
        ),
        (
            "init heru-lg --from m --depth 2 --width 64 --out o".into(),
            "width",
        ),
        (
            "init auto-lg --from m --depth 2 --width 32 --blocks 1 --out o".into(),
            "--similarity",
        ),
        (
            "init nested --from m --depth 1 --width 32 --layers last --out o".into(),
            "last",
        ),
        (
            "init layerscale --gamma 2 --depth 2 --width 32 --patch 7 --data shapes --out o".into(),
            "gamma",
        ),
        (
            "init mimetic --qk 0.7 --depth 2 --width 32 --patch 7 --data shapes --out o".into(),
            "alpha and beta",
        ),
        (
            "init mimetic --mimetic equal --vp 0.4,0.4 --depth 2 --width 32 --patch 7 --data shapes --out o"
                .into(),
            "drop it, or give 0,0",
        ),
        ("inspect m --data shapes".into(), "--plots DIR or --html FILE"),
        ("inspect t --data shapes --plots p".into(), "data does not apply"),
        (
            "init mimetic --rest he --depth 2 --width 32 --patch 7 --data shapes --out o".into(),
            "timm, xavier",
        ),
        (
            "init covariance --arch convmixer --depth 2 --width 8 --kernel 4 --out o".into(),
            "odd",
        ),
        (
            "init filters --arch convmixer --from m --depth 2 --width 8 --out o".into(),
            "--from",
        ),
        (
            "init covariance --arch convmixer --depth 2 --width 8 --filter-variance 1 --out o"
                .into(),
            "three numbers",
        ),
        (
            "init default --arch convmixer --depth 4 --width 8 --dilation 12 --out o".into(),
            "12 for 4 layers",
        ),
        (
            "init default --arch convmixer --depth 2 --width 8 --kernel 4 --dilation 2 --out o"
                .into(),
            "odd size",
        ),
        (
            "init default --arch convmixer --depth 2 --width 8 --mlp-mean eq2=1 --out o".into(),
            "has no MLP",
        ),
        (
            "init default --arch convnext --depth 2 --width 8 --dilation 2 --out o".into(),
            "--arch convmixer",
        ),
        (
            "init default --arch convnext --depth 2 --width 8 --kernel 4 --out o".into(),
            "odd size",
        ),
        ("data check missing".into(), "missing"),
        ("run r2.toml --out o".into(), "r2.toml"),
    ] {
        place.refused(&args, &[needle]);
    }
}

#[test]
fn wrong_recipes() {
    let place = Place::new();
    let line = |text: &str| RECIPE.replace("steps = 12\n", text);
    for (recipe, needle) in [
        (line("stepz = 12\n"), "stepz"),
        (line("steps = 12\nepochs = 1\n"), "both"),
        (line("steps = \"twelve\"\n"), "steps"),
        (format!("{RECIPE}widht = 3\n"), "widht"),
        (format!("{RECIPE}[condens]\nsteps = 1\n"), "condens"),
        (format!("{RECIPE}["), "recipe"),
        (RECIPE.replace("data = \"shapes\"\n", ""), "data"),
        (RECIPE.replace("patch = 7", "patch = 5"), "patch"),
        (
            RECIPE.replace("template_size = 16", "template_size = 0"),
            "template_size",
        ),
        (RECIPE.replace("[1, 3]", "[3, 1]"), "depths"),
        (line("sizes_per_step = 2\n"), "unknown key sizes_per_step"),
        (line("template_start = \"he\"\n"), "template_start"),
    ] {
        place.write("wrong.toml", &recipe);
        place.refused("condense wrong.toml --out o", &[needle]);
    }
    place.write("wrong.toml", "data = \"shapes\"\n");
    place.refused("run wrong.toml --out o", &["stage"]);
    place.write("wrong.toml", "[bench]\nsizes = []\nmethods = {}\n");
    place.refused("run wrong.toml --out o", &["[bench]"]);
}

#[test]
fn broken_files() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --steps 0 --out m");
    let good = place.bytes("m/model.safetensors");
    let header = usize::try_from(u64::from_le_bytes(good[..8].try_into().unwrap())).unwrap();
    let mut long = good.clone();
    long[..8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    let mut moved = good.clone();
    let text = String::from_utf8(good[8..8 + header].to_vec()).unwrap();
    // The header no longer matches the size of the tensor.
    let lie = text.replacen("\"F32\"", "\"F64\"", 1);
    moved[8..8 + header].copy_from_slice(lie.as_bytes());
    for broken in [
        good[..good.len() / 2].to_vec(),
        good[..4].to_vec(),
        Vec::new(),
        long,
        moved,
        b"not a tensor".to_vec(),
    ] {
        place.write("m/model.safetensors", &broken);
        for args in [
            "inspect m",
            "inspect m/model.safetensors",
            "eval m --data shapes --test-limit 8",
            "finetune m --data shapes --steps 1 --out o",
        ] {
            place.refused(args, &["model.safetensors"]);
        }
    }
    place.write("m/model.safetensors", &good);
    for config in ["", "{", "[]", "{\"architecture\": 3}"] {
        place.write("m/config.json", config);
        place.refused("eval m --data shapes --test-limit 8", &["config.json"]);
    }

    let templates = place.bytes("t/templates.safetensors");
    place.write("t/templates.safetensors", &templates[..templates.len() - 1]);
    let expand = "expand t --depth 2 --width 32 --steps 0 --out o";
    place.refused(expand, &["templates.safetensors"]);
    place.write("t/templates.safetensors", &templates);
    let config = place.text("t/config.json");
    place.write(
        "t/config.json",
        config.replace("\"anchors\": 3", "\"anchors\": 4"),
    );
    place.refused(expand, &["bank.3"]);
}

#[test]
fn wrong_images() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --steps 0 --out m");
    place.write("a.png", "no image");
    place.refused("predict m a.png", &["a.png"]);
    place.write_png("b.png");
    let png = place.bytes("b.png");
    place.write("cut.png", &png[..png.len() / 2]);
    place.fails("predict m b.png cut.png", 1, &["cut.png"]);
    place.refused("predict m missing.png", &["missing.png"]);
    place.refused("predict m t", &["t"]);

    for dir in ["two", "broken", "hollow"] {
        place.write_classes(dir, ["a", "b"], 4, 4);
    }
    for split in ["train", "val"] {
        let dir = place.path(&format!("hollow/{split}/b"));
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::create_dir(dir).unwrap();
    }
    place.json("data check two");
    place.refused("data check hollow", &["b"]);
    let finetune = "--steps 1 --batch 2 --out o";
    place.refused(&format!("finetune m --data hollow {finetune}"), &["b"]);
    // The data has two classes, the model eight.
    place.refused(&format!("finetune m --data two {finetune}"), &["class"]);
    place.refused("eval m --data two", &["class"]);
    place.write("broken/val/b/2.png", "no image");
    let output = place.fails("data check broken --json", 1, &["2.png"]);
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["test"], serde_json::json!({ "a": 4, "b": 4 }));
    assert_eq!(told["broken"].as_array().unwrap().len(), 1);
    std::fs::create_dir(place.path("empty")).unwrap();
    place.refused("data check empty", &["empty"]);
}

#[test]
fn out_below_a_file() {
    let place = Place::with_templates();
    place.write("file", "");
    for args in [
        "condense r.toml",
        "expand t --depth 2 --width 16 --steps 0",
        INIT,
        "run r.toml",
    ] {
        let output = place.run(&format!("{args} --out file/o"));
        let code = output.status.code().unwrap();
        assert_fails(&output, code.clamp(1, 2), args, &["file"]);
    }
}
