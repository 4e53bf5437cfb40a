//! CLIP and SigLIP by names of classes: their logits are transformers', and they teach without labels.

use crate::support::Place;
use serde_json::{Value, json};
use std::path::Path;

/// The output of `fixtures/make_zero_shot.py`: names, prompts, and logits of each case.
fn expected() -> Value {
    serde_json::from_str(include_str!("fixtures/zero_shot/expected.json")).unwrap()
}

fn strings(array: &Value) -> Vec<String> {
    serde_json::from_value(array.clone()).unwrap()
}

const CASES: [&str; 3] = ["clip", "clip_gelu", "siglip"];

/// A directory with all cases, the names in `names.txt`, two pictures in `flat/` and a recipe.
fn place() -> Place {
    let place = Place::new();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/zero_shot");
    for case in CASES {
        for entry in std::fs::read_dir(fixtures.join(case)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            place.write(&format!("{case}/{name}"), std::fs::read(&path).unwrap());
        }
    }
    place.write("names.txt", strings(&expected()["names"]).join("\n") + "\n");
    place.write("two.txt", "cat\r\ndog");
    for k in 0..2_u32 {
        let pixel = |x: u32, y: u32| {
            image::Rgb([x * (3 + k) + y, x + y * (5 + 2 * k), x * y + 40 * k].map(|v| v as u8))
        };
        let picture = image::RgbImage::from_fn(32, 32, pixel);
        place.save(&format!("flat/{k}.png"), picture);
    }
    place.write("r.toml", RECIPE);
    place
}

const RECIPE: &str = "data = 'flat'\nbatch = 2\n[condense]\ndepths = [1, 2]\nwidths = [16]\n\
    template_size = 16\nsteps = 2\nlr = 1e-3\nce_weight = 0\nkl_weight = 1\n[condense.auxiliary]\ndepth = 2\n\
    width = 16\nhead_width = 16\npatch = 8\nimage_size = 32\n";

/// `wave args --json` with prompts, which hold blanks.
#[track_caller]
fn run(place: &Place, args: &str, prompts: &[String]) -> Value {
    let mut command = place.command(&format!("{args} --json"));
    for prompt in prompts {
        command.args(["--prompt", prompt]);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "wave {args}: {stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn logits_are_those_of_transformers() {
    let (place, all) = (place(), expected());
    let prompts = strings(&all["prompts"]);
    for case in CASES {
        for (given, key) in [(&prompts[..0], "one"), (&prompts[..], "both")] {
            let args = format!("predict {case} flat --labels names.txt");
            let found = run(&place, &args, given);
            let wanted: Vec<Vec<f64>> =
                serde_json::from_value(all["cases"][case][key].clone()).unwrap();
            let found = found["predictions"].as_array().unwrap();
            for (found, wanted) in found.iter().zip(wanted) {
                let found = found["logits"].as_array().unwrap();
                assert_eq!(found.len(), wanted.len());
                for (z, of) in found.iter().zip(&wanted) {
                    let off = (z.as_f64().unwrap() - of).abs();
                    assert!(off < 1e-4, "{case}, {key}: {found:?} for {wanted:?}");
                }
            }
        }
    }
    let one = run(&place, "predict clip flat/0.png --labels names.txt", &[]);
    assert_eq!(one["predictions"][0]["label"], all["names"][4]);
    // The weights beside a config.json stand for their directory.
    let file = "predict clip/model.safetensors flat/0.png --labels names.txt";
    assert_eq!(run(&place, file, &[]), one);
}

#[test]
fn names_of_classes_teach_images_without_labels() {
    let place = place();
    for (case, family) in [("clip", "CLIP"), ("siglip", "SigLIP")] {
        let found = place.json(&format!("inspect {case}"));
        assert_eq!(found["architecture"], family);
        assert_eq!(found["trains"], false);
        assert_eq!(found["text_tower"]["width"], 16);
        let args = format!("condense r.toml --ancestor {case} --labels names.txt --out t-{case}");
        place.json(&args);
        let config = place.read(&format!("t-{case}/config.json"));
        assert_eq!(config["classes"], 5);
        assert_eq!(config["label_names"], expected()["names"]);
        let told = &config["provenance"];
        assert_eq!(told["prompts"], json!(["a photo of a {}."]));
        assert!(told["ancestor"].as_str().unwrap().contains(family));
    }
    // Its models are ordinary ones, which know the names.
    place.json("expand t-clip --depth 1 --width 16 --steps 0 --out m");
    let predicted = place.json("predict m flat/0.png");
    let label = &predicted["predictions"][0]["label"];
    assert!(expected()["names"].as_array().unwrap().contains(label));
}

#[test]
fn data_with_labels_measure_it_and_learn_from_it_too() {
    let place = place();
    for dir in ["train/cat", "train/dog", "val/cat", "val/dog"] {
        for k in 0..2 {
            let picture = place.bytes(&format!("flat/{k}.png"));
            place.write(&format!("pets/{dir}/{k}.png"), picture);
        }
    }
    let eval = "eval siglip --data pets --labels two.txt";
    let eval = run(&place, eval, &["{}".into()]);
    assert_eq!(eval["images"], 4);
    let rest = "--ancestor clip --labels two.txt --data pets";
    let args = format!("condense r.toml {rest} --ce-weight 1 --out t");
    assert!(place.json(&args)["top1"].is_f64());
    place.json("expand t --depth 1 --width 16 --steps 0 --out m");
    place.json(&format!("finetune m {rest} --steps 2 --batch 2 --out f"));
    // Five names for two classes.
    place.refuses(
        "FLAGS --labels names.txt --data pets",
        "
        condense r.toml --ancestor clip --ce-weight 1 --out o => 2 classes | the model 5
        finetune m --ancestor clip --steps 2 --batch 2 --out o => 2 classes | the model 5
        eval clip => 2 classes | the model 5
        ",
    );
}

#[test]
fn other_names_or_prompts_are_other_caches_and_other_runs() {
    let place = place();
    let args = "condense r.toml --ancestor clip --labels names.txt --cache c";
    place.json(&format!("{args} --out t"));
    let again = place.json(&format!("{args} --out u"));
    assert_eq!(again["cache"]["ancestor_images"], 0);
    place.write("other.txt", "Dog\ncat\nfire engine\na bird's nest\nhouse\n");
    place.refused(
        "condense r.toml --ancestor clip --labels other.txt --cache c --out v",
        &["holds other outputs", "labels_sha256", "Dog, cat"],
    );
    place.refused(
        &format!("{args} --prompt {{}} --out v"),
        &["holds other outputs", "prompts", "a photo of a {}."],
    );
    // A run that goes on reads the same names, wherever their file is.
    place.write("moved.txt", place.bytes("names.txt"));
    place.json("condense r.toml --ancestor clip --labels moved.txt --cache c --out t --resume");
    place.refused(
        "condense r.toml --ancestor clip --labels other.txt --cache d --out t --resume",
        &["other inputs", "labels"],
    );
}

#[test]
fn wrong_names_and_directories_are_refused() {
    let place = place();
    place.write("empty.txt", "");
    place.write("one.txt", "cat\n");
    place.write("gap.txt", "cat\n\ndog\n");
    place.write("twice.txt", "cat\ndog\n cat \n");
    place.write("latin.txt", b"caf\xe9\ncat\n");
    place.json("init timm --data shapes --depth 1 --width 16 --heads 2 --patch 7 --out vit");
    place.refuses(
        "FLAGS",
        "
        predict clip flat --labels none.txt => none.txt
        predict clip flat --labels empty.txt => 0 names
        predict clip flat --labels one.txt => 1 names
        predict clip flat --labels gap.txt => line 2 is empty
        predict clip flat --labels twice.txt => lines 1 and 3
        predict clip flat --labels latin.txt => latin.txt
        condense r.toml --ancestor clip --out o => needs class names | --labels FILE
        eval siglip --data shapes => needs class names | --labels FILE
        predict clip flat => needs class names | --labels FILE
        finetune clip --data shapes --out o => needs class names | --labels FILE
        convert clip --out o => needs class names | --labels FILE
        predict clip flat --labels two.txt --prompt photo => \"photo\" | no place for a name
        predict clip flat --prompt {} => give --labels
        predict clip flat --labels two.txt --heads 3 => --heads 3
        condense r.toml --labels two.txt --kl-weight 0 --ce-weight 1 --out o => give --ancestor
        predict vit flat --labels two.txt => vit has no text tower | drop --labels
        ",
    );
}

#[test]
fn incomplete_and_foreign_directories_are_refused() {
    let place = place();
    let predict = "predict clip flat --labels two.txt";
    let tokenizer = place.bytes("clip/tokenizer.json");
    std::fs::remove_file(place.path("clip/tokenizer.json")).unwrap();
    place.refused(predict, &["clip has no tokenizer.json", "save_pretrained"]);
    // SigLIP's has no token of the number that ends a text in this CLIP.
    place.write("clip/tokenizer.json", place.bytes("siglip/tokenizer.json"));
    place.refused(predict, &["has no end", "eos_token_id", "of this model"]);
    place.write("siglip/tokenizer.json", tokenizer);
    std::fs::remove_file(place.path("siglip/tokenizer_config.json")).unwrap();
    let other = "predict siglip flat --labels two.txt";
    place.refused(other, &["vocabulary of 41"]);
    place.write("siglip/tokenizer_config.json", r#"{"pad_token": "<pad>"}"#);
    place.refused(other, &["pad_token", "<pad>"]);

    place.configure("clip_gelu", |config| {
        config["model_type"] = json!("siglip2")
    });
    place.refused("inspect clip_gelu", &["siglip2", "not supported"]);
    std::fs::remove_file(place.path("clip_gelu/config.json")).unwrap();
    place.write("clip_gelu/open_clip_config.json", "{}");
    for args in [
        "inspect clip_gelu",
        "predict clip_gelu flat --labels two.txt",
    ] {
        place.refused(args, &["open_clip's layout", "transformers' layout"]);
    }
}
