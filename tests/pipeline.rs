//! The pipeline from condensation to prediction.

use crate::support::{CONVMIXER, Place, SHAPES, values};
use serde_json::Value;

#[test]
fn stages_follow_one_another() {
    let place = Place::new();
    let condensed = place.json("condense r.toml --out t");
    check_result(&condensed, "t", true);
    // A shallow one, one deeper than the anchors, an odd one, and one wider than the auxiliary.
    for (depth, width, more) in [(1, 16, ""), (7, 32, ""), (2, 40, "--heads 5"), (5, 48, "")] {
        let out = format!("e{depth}x{width}");
        let expanded = place.json(&format!(
            "expand t --depth {depth} --width {width} {more} --steps 0 --out {out}"
        ));
        check_result(&expanded, &out, false);
        let config = place.config(&out);
        assert_eq!(config["model_args"]["depth"], depth);
        assert_eq!(config["model_args"]["embed_dim"], width);
        assert_eq!(config["num_classes"], 8);
        assert_eq!(config["label_names"].as_array().unwrap().len(), 8);
        let (weights, metadata) =
            wave_hub::read_tensors(&place.path(&out).join("model.safetensors")).unwrap();
        assert_eq!(metadata["format"], "pt");
        let qkv = &weights[&format!("blocks.{}.attn.qkv.weight", depth - 1)];
        assert_eq!(qkv.dims(), [3 * width, width]);
        let parameters: usize = weights.values().map(|t| t.elem_count()).sum();
        assert_eq!(expanded["parameters"], parameters);

        let eval = place.json(&format!("eval {out} --data shapes --test-limit 64"));
        assert_eq!(eval["images"], 64);
        let (top1, top5) = (fraction(&eval["top1"]), fraction(&eval["top5"]));
        assert!(top1 <= top5 && eval["loss"].as_f64().unwrap().is_finite());
    }

    let tuned = place.json(&format!(
        "finetune e5x48 {SHAPES} --steps 10 --lr 2e-3 --out f"
    ));
    check_result(&tuned, "f", true);
    let eval = place.json("eval f --data shapes --test-limit 64");
    assert_eq!(eval["top1"], tuned["top1"]);

    place.write_png("a.png");
    place.write_png("b.png");
    let predicted = place.json("predict f a.png b.png");
    let predictions = predicted["predictions"].as_array().unwrap();
    assert_eq!(predictions.len(), 2);
    for (prediction, name) in predictions.iter().zip(["a.png", "b.png"]) {
        assert_eq!(prediction["image"], name);
        let logits = prediction["logits"].as_array().unwrap().iter();
        let logits: Vec<f64> = logits.map(|z| z.as_f64().unwrap()).collect();
        assert!(logits.len() == 8 && logits.iter().all(|z| z.is_finite()));
        let index = prediction["index"].as_u64().unwrap() as usize;
        assert!(logits.iter().all(|z| *z <= logits[index]));
        assert!(prediction["label"].is_string());
        let total: f64 = logits.iter().map(|z| (z - logits[index]).exp()).sum();
        assert!((fraction(&prediction["probability"]) - 1.0 / total).abs() < 1e-5);
    }
}

#[test]
fn tleg_is_the_same_line_at_every_depth() {
    let place = Place::new();
    let telg = "--depths 3 --widths 32 --template-size 32 --templates 6,2,8,8 --anchors 2 \
                --scaler-start telg --scaler-lr-ratio 0";
    place.json(&format!("condense r.toml {telg} --out t"));
    let anchors = place.tensors("t/templates.safetensors");
    for depth in [1, 4, 7] {
        let out = format!("e{depth}");
        let expand = format!("expand t --depth {depth} --width 32 --steps 0");
        place.json(&format!("{expand} --out {out}"));
        let scalers = place.tensors(&format!("{out}/scalers.safetensors"));
        let model = place.tensors(&format!("{out}/model.safetensors"));
        let bias = "norm1.bias";
        let [b, sum] = [0, 1].map(|k| values(&anchors[&format!("auxiliary.blocks.{k}.{bias}")]));
        for l in 0..depth {
            let slope = l as f32 / depth as f32;
            assert_eq!(values(&scalers[&format!("scalers.{l}.proj")]), [1.0, slope]);
            // The other weights are linear in depth.
            for ((found, b), sum) in values(&model[&format!("blocks.{l}.{bias}")])
                .iter()
                .zip(&b)
                .zip(&sum)
            {
                assert!((found - b - slope * (sum - b)).abs() < 1e-6);
            }
        }
    }
    let one = "condense r.toml --anchors 1 --scaler-start telg --scaler-lr-ratio 0";
    place.refused(one, &["set anchors = 2"]);
}

fn check_result(result: &Value, out: &str, scored: bool) {
    assert_eq!(result["out"], out);
    assert!(result["parameters"].as_u64().unwrap() > 0);
    if scored {
        fraction(&result["top1"]);
    } else {
        assert!(result["top1"].is_null() && result.get("top1").is_some());
    }
}

fn fraction(value: &Value) -> f64 {
    let x = value.as_f64().unwrap();
    assert!((0.0..=1.0).contains(&x), "{x}");
    x
}

#[test]
fn expanded_weights_are_kronecker_sums_of_scalers_and_templates() {
    let place = Place::with_templates();
    let templates = place.bytes("t/templates.safetensors");
    let train = format!("--steps 5 {SHAPES}");
    for (out, args) in [
        ("deep", "--depth 5 --width 32 --steps 0".to_string()),
        ("wide", "--depth 2 --width 48 --steps 0".to_string()),
        // 40 is not a multiple of the template size: composed at 48, then cropped.
        ("odd", "--depth 2 --width 40 --heads 5 --steps 0".into()),
        ("fitted", format!("--depth 4 --width 32 {train}")),
    ] {
        place.json(&format!("expand t {args} --out {out}"));
        check_composition(&place, out);
        assert!(templates == place.bytes("t/templates.safetensors"), "{out}");
    }
    let expand = "expand t --depth 4 --width 32";
    place.json(&format!("{expand} --steps 0 --out unfitted"));
    let unfitted = place.tensors("unfitted/scalers.safetensors");
    for (name, s) in &place.tensors("fitted/scalers.safetensors") {
        assert!(values(s) != values(&unfitted[name]), "{name}");
    }
    // The head trains with the scalers, unless its rate is 0.
    let fixed = format!("{expand} --head-lr-ratio 0");
    place.json(&format!("{fixed} {train} --out headless"));
    let head = |out: &str| {
        let weights = place.tensors(&format!("{out}/model.safetensors"));
        values(&weights["head.weight"])
    };
    assert!(head("headless") == head("unfitted"));
    assert!(head("fitted") != head("unfitted"));
    place.write_classes("two", ["a", "b"], 1, 1);
    let other = format!("{fixed} --data two --batch 1 --steps 1 --out o");
    place.refused(&other, &["--head-lr-ratio 0"]);
}

/// `W = sum_i S_i (x) T_i`, tiled, value by value.
fn check_composition(place: &Place, model: &str) {
    let templates = place.tensors("t/templates.safetensors");
    let scalers = place.tensors(&format!("{model}/scalers.safetensors"));
    let weights = place.tensors(&format!("{model}/model.safetensors"));
    let mut checked = 0;
    for (name, w) in &weights {
        let Some((layer, part)) = name
            .strip_prefix("blocks.")
            .and_then(|rest| rest.strip_suffix(".weight"))
            .and_then(|rest| rest.split_once('.'))
        else {
            continue;
        };
        let Some(part) = ["qkv", "proj", "fc1", "fc2"]
            .into_iter()
            .find(|p| part.rsplit('.').next() == Some(*p))
        else {
            continue;
        };
        let (rows, cols) = w.dims2().unwrap();
        let (n, t, _) = templates[&format!("templates.{part}")].dims3().unwrap();
        let (n_scalers, _, c) = scalers[&format!("scalers.{layer}.{part}")].dims3().unwrap();
        assert_eq!(n, n_scalers);
        let template = values(&templates[&format!("templates.{part}")]);
        let scaler = values(&scalers[&format!("scalers.{layer}.{part}")]);
        let blocks = scaler.len() / n / c;
        // q, k and v are cropped separately.
        let segments = if part == "qkv" { 3 } else { 1 };
        let segment = rows / segments;
        let w = values(w);
        for row in 0..rows {
            let whole_row = row / segment * (blocks / segments * t) + row % segment;
            for col in 0..cols {
                let mut sum = 0.0_f64;
                for i in 0..n {
                    let s = scaler[(i * blocks + whole_row / t) * c + col / t];
                    let value = template[(i * t + whole_row % t) * t + col % t];
                    sum += f64::from(s) * f64::from(value);
                }
                let found = f64::from(w[row * cols + col]);
                assert!(
                    (sum - found).abs() < 1e-6,
                    "{name} [{row}, {col}]: {found}, expected {sum}"
                );
            }
        }
        checked += 1;
    }
    assert!(checked > 0 && checked == scalers.len());
}

/// The same seed gives the same bytes: `resume.rs`.
#[test]
fn another_seed_gives_other_bytes() {
    let place = Place::new();
    for seed in [5, 6] {
        let flags = format!("--seed {seed} {SHAPES}");
        place.json(&format!("condense r.toml --seed {seed} --out t{seed}"));
        let expand = format!("expand t5 --depth 2 --width 16 --steps 3 {flags}");
        place.json(&format!("{expand} --out e{seed}"));
        place.json(&format!("finetune e5 {flags} --steps 3 --out f{seed}"));
    }
    for file in [
        "t/templates.safetensors",
        "e/scalers.safetensors",
        "e/model.safetensors",
        "f/model.safetensors",
    ] {
        let read = |seed: &str| place.bytes(&file.replace('/', &format!("{seed}/")));
        assert!(read("5") != read("6"), "{file}");
    }
}

#[test]
fn a_step_in_parts_is_the_same_step() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --steps 0 --out m");
    let augmented = "--steps 6 --drop-path 0.2 --mixup 0.8 --cutmix 1";
    let expand = format!("expand t --depth 2 --width 32 --steps 6 {SHAPES}");
    let finetune = format!("finetune m {augmented} {SHAPES}");
    for (stage, args, file) in [
        ("c", "condense r.toml --drop-path 0.2", "templates"),
        ("e", &expand, "scalers"),
        ("f", &finetune, "model"),
    ] {
        let read = |n: usize| {
            let out = format!("{stage}{n}");
            place.json(&format!("{args} --accumulate {n} --out {out}"));
            place.tensors(&format!("{out}/{file}.safetensors"))
        };
        let (whole, parts) = (read(1), read(4));
        for (name, t) in &whole {
            for (x, y) in values(t).iter().zip(values(&parts[name])) {
                assert!((x - y).abs() < 1e-3, "{stage}, {name}: {x} {y}");
            }
        }
    }
    // Norms of a ConvMixer see one part at a time: the training differs, but succeeds.
    place.json(&format!("{CONVMIXER} --data shapes --out conv"));
    let conv = format!("finetune conv --steps 4 --accumulate 4 {SHAPES}");
    assert!(place.json(&format!("{conv} --out cf"))["top1"].is_f64());
    for (args, needle) in [
        ("--accumulate 5", "accumulate = 5"),
        ("--accumulate 0", "accumulate = 0"),
        ("--accumulate 4 --batch 12 --mixup 0.8", "even number"),
    ] {
        place.refused(&format!("condense r.toml {args} --out o"), &[needle]);
    }
}

/// The values of `key` in the log of a run.
fn logged(place: &Place, run: &str, key: &str) -> Vec<f64> {
    let log = place.text(&format!("{run}/run/log.jsonl"));
    let entry = |line| serde_json::from_str::<Value>(line).unwrap();
    log.lines()
        .filter_map(|line| entry(line)[key].as_f64())
        .collect()
}

#[test]
fn mixed_images_have_mixed_targets_in_every_stage() {
    let place = Place::with_templates();
    place.json("expand t --depth 2 --width 32 --out m");
    // With learning rate 0, both stages see the same model, images and mixtures.
    let flags = format!("{SHAPES} --steps 20 --lr 0 --mixup 1 --cutmix 1");
    let loss = |stage: &str, out: &str| -> f64 {
        place.json(&format!("{stage} {flags} --out {out}"));
        let losses = logged(&place, out, "loss");
        losses.iter().sum::<f64>() / losses.len() as f64
    };
    let expanded = loss("expand t --depth 2 --width 32", "e");
    let tuned = loss("finetune m", "f");
    assert!((expanded - tuned).abs() < 1e-4, "{expanded}, {tuned}");
}

#[test]
fn the_best_epoch_is_kept_where_that_is_asked_for() {
    let place = Place::with_model();
    // The learning rate rises until training diverges.
    let flags = "--epochs 6 --warmup-epochs 6 --lr 3 --clip 1e9";
    let command = format!("finetune m {SHAPES} {flags}");
    let last = place.json(&format!("{command} --out last"));
    let best = place.json(&format!("{command} --keep best --out best"));
    let tested = logged(&place, "last", "top1");
    let most = tested.iter().copied().fold(0.0, f64::max);
    assert_eq!(fraction(&last["top1"]), *tested.last().unwrap());
    assert_eq!(fraction(&best["top1"]), most);
    assert!(most > *tested.last().unwrap(), "{tested:?}");
    let evaluated = place.json("eval best --data shapes --test-limit 64");
    assert_eq!(fraction(&evaluated["top1"]), most);
    place.refused(&format!("{command} --keep first --out o"), &[]);
}
