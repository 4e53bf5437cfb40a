//! Condensation without labels.

use crate::support::{CONVMIXER, INIT, Place};
use serde_json::Value;

/// An ancestor `a` of eight classes, and images without labels in `flat/` and `split/train/`.
fn place() -> Place {
    let place = Place::new();
    place.json(&format!("{CONVMIXER} --data shapes --out a"));
    for i in 0..40_u32 {
        let picture = image::GrayImage::from_fn(28, 28, |x, y| {
            image::Luma([(x * (i % 7) + y * (i % 5) + 3 * i) as u8])
        });
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
    let mut written = Vec::new();
    for data in ["flat", "split"] {
        let command = format!("{CONDENSE} --data {data} --ce-weight 0 --out t{data}");
        let result = place.json(&command);
        assert!(result["top1"].is_null() && result.get("top1").is_some());
        let read = |name: &str| -> Value { place.read(name) };
        let (config, ancestor) = (read(&format!("t{data}/config.json")), read("a/config.json"));
        assert_eq!(config["classes"], 8);
        assert_eq!(config["label_names"], ancestor["label_names"]);
        assert_eq!(config["accuracies"].as_array().unwrap().len(), 0);
        written.push(place.bytes(&format!("t{data}/templates.safetensors")));
    }
    assert!(written[0] == written[1]);
    // Its models are ordinary ones.
    place.json("expand tflat --depth 2 --width 16 --steps 0 --out m");
    let eval = place.json("eval m --data shapes --test-limit 64");
    assert_eq!(eval["images"], 64);
    place.json("predict m flat/00.png");
    // Without labels, with a cache, in parts.
    let more = "--ce-weight 0 --cache c --accumulate 4";
    place.json(&format!("{CONDENSE} --data flat {more} --out u"));
    let plan = place.stdout(&format!(
        "{CONDENSE} --data flat --ce-weight 0 --cache c --dry-run"
    ));
    assert!(
        plan.contains("8 classes") && plan.contains("20 bytes per image"),
        "{plan}"
    );
}

#[test]
fn labels_of_other_classes_are_left_alone() {
    let place = place();
    place.write_classes("two", ["x", "y"], 8, 8);
    let two = format!("{CONDENSE} --data two --out t");
    place.refused(&two, &[]);
    assert!(place.json(&format!("{two} --ce-weight 0"))["top1"].is_null());
    // Data with the ancestor's classes can be tested on.
    let own = place.json(&format!("{CONDENSE} --ce-weight 0 --out u"));
    assert!(own["top1"].is_f64());
}

#[test]
fn what_needs_labels_says_so() {
    let place = place();
    place.json(&format!("{INIT} --out m"));
    for (args, needle) in [
        (format!("{CONDENSE} --data flat --out o"), "ce_weight = 0"),
        (format!("{CONDENSE} --data split --out o"), "ce_weight = 0"),
        (
            "condense r.toml --ancestor a --batch 8 --data flat --ce-weight 0 --out o".into(),
            "nothing to learn",
        ),
        (
            "condense r.toml --data flat --ce-weight 0 --kl-weight 1 --out o".into(),
            "--ancestor",
        ),
        (
            format!("{CONDENSE} --data flat --ce-weight 0 --hold-out 4 --out o"),
            "hold_out",
        ),
        (
            "finetune m --data flat --batch 4 --steps 1 --out o".into(),
            "train/CLASS/",
        ),
        ("eval m --data flat".into(), "train/CLASS/"),
        ("data pack flat o".into(), "train/CLASS/"),
    ] {
        place.refused(&args, &[needle]);
    }
    let checked = place.json("data check flat");
    assert_eq!(checked["train_unlabelled"], 40);
    assert_eq!(checked["train"].as_object().unwrap().len(), 0);
}
