//! Condensation without labels.

use crate::support::{CONVMIXER, INIT, Place};

/// An ancestor `a` of eight classes, and images without labels in `flat/` and `split/train/`.
fn place() -> Place {
    let place = Place::new();
    place.json(&format!("{CONVMIXER} --data shapes --out a"));
    for i in 0..40_u32 {
        let pixel = |x: u32, y: u32| image::Luma([(x * (i % 7) + y * (i % 5) + 3 * i) as u8]);
        let picture = image::GrayImage::from_fn(28, 28, pixel);
        for dir in ["flat", "split/train"] {
            place.save(&format!("{dir}/{i:02}.png"), picture.clone());
        }
    }
    place
}

const CONDENSE: &str = "condense r.toml --ancestor a --kl-weight 1 --batch 8";

#[test]
fn images_without_labels_condense_with_the_ancestors_classes() {
    let place = place();
    for data in ["flat", "split"] {
        let command = format!("{CONDENSE} --data {data} --ce-weight 0 --out t{data}");
        let result = place.json(&command);
        assert!(result["top1"].is_null() && result.get("top1").is_some());
        let config = place.config(&format!("t{data}"));
        assert_eq!(config["classes"], 8);
        assert_eq!(config["label_names"], place.config("a")["label_names"]);
        assert_eq!(config["accuracies"].as_array().unwrap().len(), 0);
    }
    let written = |dir: &str| place.bytes(&format!("{dir}/templates.safetensors"));
    assert!(written("tflat") == written("tsplit"));
    // Its models are ordinary ones.
    place.json("expand tflat --depth 2 --width 16 --steps 0 --out m");
    let eval = place.json("eval m --data shapes --test-limit 64");
    assert_eq!(eval["images"], 64);
    // Data with the ancestor's classes can be tested on.
    let own = place.json(&format!("{CONDENSE} --ce-weight 0 --out own"));
    assert!(own["top1"].is_f64());
    // Without labels, with a cache, in parts.
    let more = "--data flat --ce-weight 0 --cache c --accumulate 4";
    place.json(&format!("{CONDENSE} {more} --out u"));
    let plan = place.stdout(&format!("{CONDENSE} {more} --dry-run"));
    assert!(plan.contains("20 bytes per image"), "{plan}");
}

#[test]
fn what_needs_labels_says_so() {
    let place = place();
    place.json(&format!("{INIT} --out m"));
    place.refuses(
        "FLAGS --batch 8 --out o",
        "
        condense r.toml --ancestor a --kl-weight 1 --data flat => ce_weight = 0
        condense r.toml --ancestor a --kl-weight 1 --data split => ce_weight = 0
        condense r.toml --ancestor a --data flat --ce-weight 0 => nothing to learn
        condense r.toml --data flat --ce-weight 0 --kl-weight 1 => --ancestor
        condense r.toml --ancestor a --kl-weight 1 --data flat --ce-weight 0 --hold-out 4 => hold_out
        finetune m --data flat --steps 1 => train/CLASS/
        ",
    );
    place.refuses(
        "FLAGS",
        "
        eval m --data flat => train/CLASS/
        data pack flat o => train/CLASS/
        ",
    );
    let checked = place.json("data check flat");
    assert_eq!(checked["train_unlabelled"], 40);
    assert_eq!(checked["train"].as_object().unwrap().len(), 0);
}
