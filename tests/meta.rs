//! `wave meta`, and `wave init learned`.

use crate::support::{Place, assert_same, files, values};
use serde_json::Value;

/// Distributions of a tiny autoencoder, learned and tested in seconds.
pub(crate) const RECIPE: &str = r#"
[meta]
method = "normal"
data = "shapes"
train_limit = 256
test_limit = 16
batch = 8
steps = 3
lr = 2e-2
conv_widths = [2, 3]
latent = 4
inner_steps = 4
inner_lr = 0.1
keep_every = 3
validate_every = 2
test_data = "inverted:shapes"
test_seeds = [0, 1]
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("meta.toml", RECIPE);
    place
}

#[test]
fn learned_starts_are_drawn_and_tested() {
    let place = place();
    for method in ["normal", "plif"] {
        let told = place.json(&format!(
            "meta meta.toml --method {method} --out {method} \
             --against usual,kaiming,usual@lars=0.01,kaiming@learned-rates"
        ));
        let tests = told["tests"].as_array().unwrap();
        assert_eq!(tests.len(), 5, "{method}");
        for test in tests {
            assert!(test["area"].as_f64().unwrap() > 0.0, "{test}");
            assert_eq!(test["areas"].as_array().unwrap().len(), 2);
        }
        for file in [
            "README.md",
            "tests.json",
            "curves.svg",
            "update-rates.svg",
            "run/log.jsonl",
        ] {
            assert!(
                !place.bytes(&format!("{method}/{file}")).is_empty(),
                "{file}"
            );
        }
        let quantiles = place.path(&format!("{method}/quantiles.svg"));
        assert_eq!(quantiles.exists(), method == "plif");
        for seed in [0, 0, 1] {
            let out = format!("{method}-{seed}");
            let told = place.json(&format!(
                "init learned --from {method} --seed {seed} --out {out}"
            ));
            assert!(told["parameters"].as_u64().unwrap() > 100);
        }
        let weights = |seed: u64| {
            let file = place.path(&format!("{method}-{seed}/model.safetensors"));
            wave_hub::read_tensors(&file).unwrap().0
        };
        let (zero, one) = (weights(0), weights(1));
        assert_ne!(
            values(&zero["encoder.0.weight"]),
            values(&one["encoder.0.weight"])
        );
        assert_eq!(values(&zero["encoder.0.norm.weight"]), [1.0; 2]);
    }
}

#[test]
fn learning_moves_every_distribution_and_is_the_same_every_time() {
    let place = place();
    for (out, steps) in [("none", 0), ("a", 3), ("b", 3)] {
        place.json(&format!("meta meta.toml --steps {steps} --out {out}"));
    }
    assert_same(&place.path("a"), &place.path("b"));
    // Keeping every m-th state or all gives the same bytes, apart from the record of the run.
    place.json("meta meta.toml --keep-every 1 --out c");
    let weights = |dir: &str| files(&place.path(dir)).remove("model.safetensors").unwrap();
    assert!(weights("a") == weights("c"));
    let [before, after] = ["none", "a"].map(|dir| {
        let file = place.path(&format!("{dir}/model.safetensors"));
        wave_hub::read_tensors(&file).unwrap().0
    });
    for (name, t) in &before {
        let constant = name.starts_with("constant.");
        assert_eq!(values(t) == values(&after[name]), constant, "{name}");
    }
}

#[test]
fn other_networks_are_learned_too() {
    let place = Place::with_templates();
    place.write("meta.toml", RECIPE);
    for name in ["train/a", "train/b", "val/a", "val/b"] {
        let dir = place.path(&format!("two/{name}"));
        std::fs::create_dir_all(&dir).unwrap();
        for i in 0..12u8 {
            let image = image::RgbImage::from_fn(20, 24, |x, y| {
                image::Rgb([10 * x as u8, 10 * y as u8, 20 * i])
            });
            image.save(dir.join(format!("{i}.png"))).unwrap();
        }
    }
    let own = "--inner-lr 0.01 --test-seeds 0";
    for (arch, args) in [
        // The tests are on images of another size, in colour, of two classes in the place of eight.
        (
            "fixup",
            "--optimiser nesterov --width 3 --depth 1 --test-data two".to_string(),
        ),
        // Other tokens.
        (
            "lstm",
            "--width 6 --depth 1 --data copy:length=3,symbols=3 --test-data sort:length=3,symbols=5 \
             --against orthogonal-hidden"
                .to_string(),
        ),
        (
            "scalers",
            "--templates t --depth 1 --width 16 --test-data shapes --test-limit 8".to_string(),
        ),
    ] {
        place.json(&format!("meta meta.toml --arch {arch} {own} {args} --out {arch}"));
        place.json(&format!("init learned --from {arch} --out {arch}-m"));
    }
    // The same by other gradients.
    place.json(&format!("meta meta.toml {own} --out full"));
    let learned = |dir: &str| place.bytes(&format!("{dir}/model.safetensors"));
    for gradient in ["first-order", "reptile"] {
        let args = format!("--gradient {gradient} {own}");
        let told = place.json(&format!("meta meta.toml {args} --out {gradient}"));
        assert!(told["tests"][0]["area"].as_f64().unwrap() > 0.0, "{told}");
        assert!(learned(gradient) != learned("full"), "{gradient}");
    }
    // A transformer with drawn scalers is an ordinary model.
    let eval = place.json("eval scalers-m --data shapes --test-limit 16");
    assert!((0.0..=1.0).contains(&eval["top1"].as_f64().unwrap()));
    let config: Value = serde_json::from_slice(&place.bytes("scalers/config.json")).unwrap();
    assert_eq!(config["model_type"], "wave_initialiser");
}

#[test]
fn wrong_requests_are_told_what_to_do() {
    let place = place();
    place.json("meta meta.toml --steps 0 --test-seeds 0 --out i");
    place.json("init timm --data shapes --depth 1 --width 32 --heads 2 --patch 14 --out v");
    for (args, needle) in [
        ("meta meta.toml --method levy --out o", "normal, plif, ghn3"),
        ("meta meta.toml --arch perceptron --out o", "autoencoder"),
        ("meta meta.toml --arch lstm --out o", "tasks are copy"),
        ("meta meta.toml --arch scalers --out o", "--templates"),
        ("meta meta.toml --optimiser newton --out o", "nesterov"),
        ("meta meta.toml --inner-steps 0 --out o", "inner_steps = 0"),
        ("meta meta.toml --keep-every 0 --out o", "keep_every"),
        ("meta meta.toml --method plif --pieces 0 --out o", "pieces"),
        (
            "meta meta.toml --conv-widths 2,2,2,2,2,2 --out o",
            "fewer widths",
        ),
        ("meta meta.toml --against luck --out o", "metainit"),
        (
            "meta meta.toml --against usual@lars=0 --out o",
            "lars=TRUST",
        ),
        (
            "meta meta.toml --drop-path 0.1 --out o",
            "drop-path means nothing",
        ),
        ("meta meta.toml --momentum 2 --out o", "momentum"),
        ("meta meta.toml --set meta.data=copy --out o", "images"),
        ("init learned --out o", "--from DIR"),
        ("init learned --from v --out o", "wave meta"),
        (
            "init learned --from i --depth 3 --out o",
            "depth means nothing",
        ),
    ] {
        let output = place.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "wave {args}: {stderr}");
        assert!(stderr.contains(needle), "wave {args}: {stderr}");
        assert!(!stderr.contains("panicked"), "wave {args}: {stderr}");
    }
    let plan = place.stdout("meta meta.toml --dry-run --out none");
    assert!(plan.contains("Autoencoder") && !place.path("none").exists());
    assert!(
        place
            .stdout("init learned --from i --dry-run")
            .contains("Autoencoder")
    );
}
