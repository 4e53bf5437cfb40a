//! Data whose classes are not the model's.

use crate::support::Place;
use serde_json::{Value, json};

fn place() -> Place {
    let place = Place::new();
    place.write_classes("pets", ["cat", "dog"], 4, 4);
    place.write_classes("others", ["church", "tench"], 4, 4);
    place.write_classes("numbers", ["0", "1"], 4, 4);
    place.write_classes("spelt", ["Cat", "DOG"], 4, 4);
    place
}

fn names(place: &Place, dir: &str) -> Value {
    let config = place.config(dir);
    config["label_names"].clone()
}

const FEW: &str = "--steps 2 --batch 2";

#[test]
fn a_model_keeps_no_names_of_other_classes() {
    let place = place();
    place.json("init timm --data pets --depth 1 --width 32 --heads 2 --patch 14 --out m");
    let differs = "class 0 is church in others, cat in the model";
    for more in ["--out f", "--dry-run"] {
        let tuning = format!("finetune m --data others {FEW} {more}");
        place.refused(&tuning, &[differs, "--new-head true", "rename"]);
    }
    assert!(!place.path("f").exists());
    place.json(&format!(
        "finetune m --data others {FEW} --new-head true --out f"
    ));
    assert_eq!(names(&place, "f"), json!(["church", "tench"]));
    // Numbers are no names that could differ, and spelling is no difference.
    for data in ["numbers", "spelt", "pets"] {
        place.json(&format!("finetune m --data {data} {FEW} --out {data}-f"));
        assert_eq!(names(&place, &format!("{data}-f")), json!(["cat", "dog"]));
    }
    // A test changes no model: a warning does.
    let said = |data: &str| place.texts(&format!("eval m --data {data}")).1;
    assert!(said("others").contains(differs));
    assert!(!said("pets").contains("warning"));
}

#[test]
fn templates_keep_no_names_of_other_classes() {
    let place = place();
    let condense = format!("condense r.toml {FEW} --depths 2 --widths 16");
    place.json(&format!("{condense} --data pets --out t"));
    let expand = "expand t --depth 2 --width 16";
    for more in ["--out f", "--dry-run"] {
        let fitting = format!("{expand} --data others {FEW} {more}");
        place.refused(&fitting, &["class 0 is church in others, cat"]);
    }
    place.json(&format!("{expand} --data pets {FEW} --out f"));
    place.refused(
        &format!("{condense} --widths 16,32 --data others --grow t --out g"),
        &["class 0 is church in others, cat"],
    );
    // A delta is of other data: its models have the names of that.
    let adapt = format!("adapt t --data others {FEW} --depths 2 --widths 16 --out d");
    place.json(&adapt);
    place.json(&format!("{expand} --delta d --out e"));
    assert_eq!(names(&place, "e"), json!(["church", "tench"]));
}
