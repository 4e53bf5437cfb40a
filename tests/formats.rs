//! Models in every layout and element type, written and read back, and the refusal of invalid ones.

use crate::support::{CONVMIXER, Place, RECIPE, SHAPES, assert_same, files};

/// Logits of one image.
fn logits(place: &Place, model: &str) -> Vec<f64> {
    let predicted = place.json(&format!("predict {model} a.png"));
    let logits = predicted["predictions"][0]["logits"].as_array().unwrap();
    logits.iter().map(|z| z.as_f64().unwrap()).collect()
}

fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(x, y)| (x - y).abs());
    differences.fold(0.0, f64::max)
}

fn names(place: &Place, dir: &str) -> Vec<String> {
    files(&place.path(dir)).into_keys().collect()
}

const INIT: &str = "init timm --data shapes --depth 2 --width 32 --heads 2 --patch 7 \
                    --class-token true --seed 3";

#[test]
fn every_format_is_the_same_model() {
    let place = Place::new();
    place.write_png("a.png");
    place.json(&format!("{INIT} --out timm"));
    let expected = logits(&place, "timm");
    let class = place.json("predict timm a.png")["predictions"][0]["label"].clone();
    for (format, more) in [
        ("timm", None),
        ("transformers", Some("preprocessor_config.json")),
        ("onnx", Some("model.onnx")),
    ] {
        for (dtype, bytes, tolerance) in [("f32", 4, 0.0), ("f16", 2, 1e-2), ("bf16", 2, 1e-1)] {
            let out = format!("{format}-{dtype}");
            place.json(&format!(
                "{INIT} --format {format} --dtype {dtype} --out {out}"
            ));
            let mut expected_names = vec!["README.md", "config.json"];
            expected_names.extend(more);
            expected_names.push("model.safetensors");
            expected_names.sort_unstable();
            assert_eq!(names(&place, &out), expected_names);
            let found = logits(&place, &out);
            let difference = largest_difference(&found, &expected);
            assert!(difference <= tolerance, "{out}: {difference}");
            let predicted = place.json(&format!("predict {out} a.png"));
            assert_eq!(predicted["predictions"][0]["label"], class, "{out}");
            // The largest file holds little but the weights.
            let inspected = place.json(&format!("inspect {out}"));
            let weights = bytes * inspected["parameters"].as_u64().unwrap() as usize;
            let written = files(&place.path(&out)).into_values();
            let size = written.map(|bytes| bytes.len()).max().unwrap();
            assert!((weights..weights + 20_000).contains(&size), "{out}");
            // All stages read it.
            let eval = place.json(&format!("eval {out} --data shapes --test-limit 32"));
            assert_eq!(eval["images"], 32);
        }
    }
    // ONNX and timm share the directory, byte by byte.
    let (mut onnx, timm) = (files(&place.path("onnx-f32")), files(&place.path("timm")));
    onnx.remove("model.onnx");
    onnx.remove("README.md");
    assert!(onnx.iter().all(|(name, bytes)| bytes == &timm[name]));
    // transformers is told how images are prepared.
    let config = place.config("transformers-f32");
    assert_eq!(config["layer_norm_eps"], 1e-6);
    assert_eq!(config["id2label"].as_object().unwrap().len(), 8);
    let steps = place.read("transformers-f32/preprocessor_config.json");
    assert_eq!(steps["image_mean"].as_array().unwrap().len(), 1);
    assert_eq!(steps["do_convert_rgb"], false);
}

#[test]
fn every_stage_writes_every_format_and_reads_what_the_others_wrote() {
    let place = Place::new();
    let table = "[condense.auxiliary]\n";
    let recipe = RECIPE.replace(table, &format!("{table}class_token = true\n"));
    place.write("c.toml", recipe);
    place.json("condense c.toml --steps 4 --out t");
    for (format, dtype) in [("transformers", "bf16"), ("onnx", "f16")] {
        let flags = format!("{SHAPES} --steps 2 --format {format} --dtype {dtype}");
        let (e, f) = (format!("e-{format}"), format!("f-{format}"));
        let expanded = place.json(&format!("expand t --depth 2 --width 32 {flags} --out {e}"));
        let tuned = place.json(&format!("finetune {e} {flags} --out {f}"));
        // The reported accuracy is that of the stored weights.
        for (dir, result) in [(&e, &expanded), (&f, &tuned)] {
            let eval = place.json(&format!("eval {dir} --data shapes --test-limit 64"));
            assert_eq!(eval["top1"], result["top1"], "{dir}");
        }
        place.json(&format!(
            "init timm --from {f} --depth 1 --width 32 --out i-{format}"
        ));
        let plan = place.json(&format!("publish {f} --repo a/b --dry-run"));
        let published = plan["files"].as_array().unwrap().len();
        assert_eq!(published, names(&place, &f).len());
    }
    // As ancestors too.
    place.json("condense r.toml --ancestor f-transformers --kl-weight 1 --steps 2 --out t2");
}

#[test]
fn keys_of_a_recipe_are_the_flags() {
    let place = Place::new();
    place.json(&format!("{INIT} --out m"));
    place.write(
        "f.toml",
        "data = \"shapes\"\ntrain_limit = 64\ntest_limit = 32\nbatch = 16\n\
         [finetune]\nsteps = 2\nformat = \"transformers\"\ndtype = \"f16\"\n",
    );
    place.json("finetune m --recipe f.toml --out a");
    place.json("finetune m --recipe f.toml --set finetune.format=transformers --out b");
    assert_same(&place.path("a"), &place.path("b"));
    assert!(names(&place, "a").contains(&"preprocessor_config.json".to_string()));
}

#[test]
fn another_format_leaves_nothing_of_the_last() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --steps 0 --format onnx --out m");
    assert!(names(&place, "m").contains(&"model.onnx".to_string()));
    let mut expected = vec!["README.md", "config.json", "model.safetensors"];
    for (format, more) in [
        ("transformers", Some("preprocessor_config.json")),
        ("timm", None),
    ] {
        place.json(&format!("{INIT} --format {format} --out m --overwrite"));
        expected.truncate(3);
        expected.extend(more);
        assert_eq!(names(&place, "m"), expected);
    }
}

#[test]
fn another_kind_of_artefact_leaves_nothing_of_the_last() {
    let place = Place::with_templates();
    let expand = "expand t --depth 2 --width 32 --steps 0 --out k --overwrite";
    let adapt = format!("adapt t {SHAPES} --steps 1 --out k --overwrite");
    let condense = "condense r.toml --steps 1 --out k --overwrite";
    for (command, own) in [
        (expand, &["model.safetensors", "scalers.safetensors"][..]),
        (&adapt, &["delta.safetensors"]),
        (condense, &["expand.py", "templates.safetensors"]),
        (expand, &["model.safetensors", "scalers.safetensors"]),
    ] {
        place.json(command);
        let expected = [&["README.md", "config.json"], own].concat();
        assert_eq!(names(&place, "k"), expected, "{command}");
        let plan = place.json("publish k --repo a/b --dry-run");
        assert_eq!(plan["files"].as_array().unwrap().len(), expected.len());
    }
}

#[test]
fn an_empty_list_of_class_names_is_none() {
    let place = Place::with_templates();
    place.write_png("a.png");
    let unnamed = |dir: &str| {
        place.configure(dir, |config| config["label_names"] = serde_json::json!([]));
    };
    unnamed("t");
    place.json("expand t --depth 2 --width 32 --steps 0 --out m");
    assert!(place.config("m")["label_names"].is_null());
    let label = || place.json("predict m a.png")["predictions"][0]["label"].clone();
    let absent = label();
    assert!(absent.as_str().unwrap().parse::<usize>().is_ok());
    unnamed("m");
    assert_eq!(label(), absent);
}

#[test]
fn what_a_format_has_no_place_for_is_refused_before_any_work() {
    let place = Place::with_templates();
    place.json(&format!("{CONVMIXER} --data shapes --out conv"));
    // These templates are for a transformer without a class token.
    for command in ["FLAGS --out o", "FLAGS --out o --dry-run"] {
        place.refuses(
            command,
            "
            expand t --depth 2 --width 32 --format transformers => class token
            expand t --depth 2 --width 32 --format pickle => pickle
            expand t --depth 2 --width 32 --dtype f64 => f64
            init default --arch convmixer --data shapes --depth 1 --width 16 --kernel 3 --patch 7 --format transformers => ConvMixer
            init default --arch convmixer --data shapes --depth 1 --width 16 --kernel 3 --patch 7 --format onnx => ConvMixer
            ",
        );
    }
    place.refuses(
        "FLAGS --data shapes --out o",
        "
        finetune conv --format transformers => ConvMixer
        finetune conv --format onnx => ConvMixer
        ",
    );
    // The last stage of a recipe is refused before the first one runs.
    for (table, needle) in [
        (
            "[finetune]\nsteps = 1\nformat = \"transformers\"\n",
            "class token",
        ),
        ("[expand]\nformat = \"onyx\"\n", "onyx"),
        (
            "[ancestor]\nsteps = 1\nformat = \"onnx\"\n[ancestor.init]\narch = \"convmixer\"\n\
             depth = 1\nwidth = 16\n",
            "ConvMixer",
        ),
    ] {
        place.write("bad.toml", format!("{RECIPE}\n{table}"));
        for more in ["", "--dry-run"] {
            place.refused(&format!("run bad.toml {more} --out o"), &[needle]);
        }
    }
}

#[test]
fn narrow_templates_take_half_the_room_and_are_what_was_measured() {
    let place = Place::new();
    let sizes = [("f32", 4), ("f16", 2), ("bf16", 2)].map(|(dtype, bytes)| {
        let t = format!("t-{dtype}");
        place.json(&format!("condense r.toml --dtype {dtype} --out {t}"));
        let config = place.config(&t);
        let last = config["accuracies"].as_array().unwrap().last().unwrap();
        let (depth, width) = (&last["depth"], &last["width"]);
        let e = format!("e-{dtype}");
        place.json(&format!(
            "expand {t} --depth {depth} --width {width} --steps 0 --out {e}"
        ));
        let eval = place.json(&format!("eval {e} --data shapes --test-limit 64"));
        assert_eq!(eval["top1"], last["top1"], "{dtype}");
        let size = place.bytes(&format!("{t}/templates.safetensors")).len();
        size / bytes
    });
    assert!(sizes[1].abs_diff(sizes[0]) < 4_000 && sizes[2].abs_diff(sizes[0]) < 4_000);
    place.refused("condense r.toml --dtype f8 --out x", &["f8", "bf16"]);
}

#[test]
fn a_converted_model_is_the_same_model() {
    let place = Place::with_templates();
    place.write_png("a.png");
    place.json(&format!("{INIT} --out timm"));
    for (format, dtype) in [
        ("timm", "f16"),
        ("transformers", "f32"),
        ("transformers", "bf16"),
        ("onnx", "f32"),
    ] {
        let flags = format!("--format {format} --dtype {dtype}");
        // Init and convert write the same.
        place.json(&format!("{INIT} {flags} --out made"));
        let done = place.json(&format!("convert timm {flags} --out there"));
        assert_eq!(done["out"], "there");
        let (mut made, mut there) = (files(&place.path("made")), files(&place.path("there")));
        made.remove("README.md");
        assert!(there.remove("README.md").is_some());
        assert!(made == there, "{flags}");
        // And back.
        place.json("convert there --out back");
        assert_eq!(logits(&place, "back"), logits(&place, "there"), "{flags}");
        for dir in ["made", "there", "back"] {
            std::fs::remove_dir_all(place.path(dir)).unwrap();
        }
    }
    // Scalers are copied.
    place.json("expand t --depth 2 --width 32 --steps 0 --out e");
    let scalers = |dir: &str| place.bytes(&format!("{dir}/scalers.safetensors"));
    for (from, out) in [("e", "e16"), ("e/model.safetensors", "e16-of-file")] {
        place.json(&format!("convert {from} --dtype bf16 --out {out}"));
        assert_eq!(scalers("e"), scalers(out));
    }
    // Invalid layouts, and files that are not models, are refused.
    place.json(&format!("{CONVMIXER} --data shapes --out c"));
    place.refuses(
        "FLAGS",
        "
        convert c --format onnx --out o => ConvMixer
        convert e --format transformers --out o => class token
        convert t --dtype f16 --out o => t
        convert e --dtype f8 --out o => f8
        convert e --dtype f16 --out e => --out
        convert e --set a.b=1 --out o => --set
        ",
    );
    place.json("convert e --dtype f16 --out o --dry-run");
    assert!(!place.path("o").exists());
}
