//! Templates that come with the command, and the list of available ones.

use crate::support::{Place, assert_fails, files};
use serde_json::Value;
use std::path::Path;

const SIZE: &str = "--depth 3 --width 96";

#[test]
fn a_model_needs_no_more_than_its_size() {
    let place = Place::new();
    let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates");
    let made = place.json(&format!("expand {SIZE} --out bare"));
    let makes = "10 classes (airplane, automobile, ...), 32 x 32, from cifar-10";
    assert_eq!(made["makes"], makes);
    let card = |out: &str| place.text(&format!("{out}/README.md"));
    assert!(card("bare").starts_with("---\nlicense: apache-2.0\n"));
    assert!(card("bare").contains("wave expand cifar-10 --depth 3 --width 96\n"));
    let weights = |out: &str| place.bytes(&format!("{out}/model.safetensors"));
    for name in ["cifar-10", "fashion-mnist"] {
        place.json(&format!("expand {name} {SIZE} --out named --overwrite"));
        place.json(&format!("expand {templates}/{name} {SIZE} --out {name}-d"));
        assert_eq!(weights("named"), weights(&format!("{name}-d")));
        assert!(card(&format!("{name}-d")).contains("wave expand DIR "));
    }
    assert_eq!(weights("bare"), weights("cifar-10-d"));
    for layout in ["transformers", "onnx"] {
        place.json(&format!("expand {SIZE} --format {layout} --out {layout}"));
    }

    // Files in the cache are compared with the command's own.
    let unpacked = "cache/wave/templates/cifar-10";
    place.write(&format!("{unpacked}/templates.safetensors"), "torn");
    place.write(&format!("{unpacked}/config.json"), "{}");
    place.json(&format!("expand {SIZE} --out again"));
    assert_eq!(weights("again"), weights("bare"));
    let shipped = files(&Path::new(templates).join("cifar-10"));
    let program = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../wave-hub/src/templates/expand.py"
    );
    assert_eq!(shipped["expand.py"], std::fs::read(program).unwrap());
    for (name, bytes) in files(&place.path(unpacked)) {
        assert_eq!(Some(&bytes), shipped.get(&name), "{name}");
    }
}

#[test]
fn the_command_on_a_card_can_be_pasted_into_a_shell() {
    let place = Place::new();
    for class in 0..10 {
        for split in ["train", "val"] {
            place.write_png(&format!("my photos/{split}/{class}/0.png"));
        }
    }
    let config = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../templates/cifar-10/config.json"
    );
    let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    let flag = |key: &str| {
        let values = config[key].as_array().unwrap().iter();
        let values: Vec<String> = values.map(Value::to_string).collect();
        format!(" --{key} {} ", values.join(","))
    };
    let (mean, std) = (flag("mean"), flag("std"));
    let args = format!("expand {SIZE}{mean}{std}--steps 0 --batch 2 --out m");
    let mut command = place.command(&args);
    let output = command.args(["--data", "my photos"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let card = place.text("m/README.md");
    for part in [" --data 'my photos' ", &mean, &std] {
        assert!(card.contains(part), "no `{part}` in {card}");
    }
}

#[test]
fn templates_at_hand_are_listed() {
    let place = Place::with_templates();
    let names = |args: &str| -> Vec<String> {
        let found = place.json(args);
        let rows = found["templates"].as_array().unwrap().iter();
        rows.map(|row| row["name"].as_str().unwrap().to_string())
            .collect()
    };
    assert_eq!(names("templates"), ["cifar-10", "fashion-mnist"]);
    assert_eq!(names("templates t"), ["cifar-10", "fashion-mnist", "t"]);
    assert_eq!(names("templates ."), ["cifar-10", "fashion-mnist", "./t"]);
    std::fs::create_dir(place.path("templates")).unwrap();
    std::fs::rename(place.path("t"), place.path("templates/mine")).unwrap();
    assert_eq!(
        names("templates"),
        ["cifar-10", "fashion-mnist", "templates/mine"]
    );
    for again in ["templates", "./templates/mine"] {
        let listed = names(&format!("templates {again}"));
        assert_eq!(listed, ["cifar-10", "fashion-mnist", "templates/mine"]);
    }
    // One that cannot be read does not hide the others.
    place.write(
        "templates/torn/config.json",
        place.bytes("templates/mine/config.json"),
    );
    place.write("templates/torn/templates.safetensors", "torn");
    assert_eq!(
        names("templates"),
        ["cifar-10", "fashion-mnist", "templates/mine"]
    );
    let (_, stderr) = place.texts("templates");
    assert!(stderr.contains("templates/torn is left out"), "{stderr}");
    place.refused("templates templates/torn", &["torn"]);
    place.refused("templates ./templates/torn", &["torn"]);
    std::fs::remove_dir_all(place.path("templates/torn")).unwrap();
    let table = place.stdout("templates");
    assert!(table.contains(" %"), "{table}");
    // A directory goes before a set of its name.
    std::fs::rename(place.path("templates/mine"), place.path("fashion-mnist")).unwrap();
    let made = place.json("expand fashion-mnist --depth 2 --width 32 --out m");
    assert!(made["parameters"].as_u64().unwrap() < 100_000, "{made}");
}

#[test]
fn wrong_names_are_told_what_to_do() {
    let place = Place::new();
    place.write("empty/a.txt", "");
    place.refuses(
        "FLAGS",
        "
        expand fashion-mnits --depth 2 --width 64 --out o => did you mean fashion-mnist?
        expand nowhere/templates --depth 2 --width 64 --out o => wave templates
        templates empty => contains none
        templates nowhere => nowhere is not a template directory
        ",
    );
    let args = "expand --depth 2 --width 64 --out o";
    let mut homeless = place.command(args);
    for name in ["XDG_CACHE_HOME", "HOME", "USERPROFILE"] {
        homeless.env_remove(name);
    }
    assert_fails(&homeless.output().unwrap(), 2, args, &["XDG_CACHE_HOME"]);
}

#[test]
fn templates_are_unpacked_where_the_variable_says() {
    let place = Place::new();
    let mut list = place.command("templates");
    list.env("WAVE_CACHE", place.path("mine"));
    assert!(list.output().unwrap().status.success());
    for name in ["cifar-10", "fashion-mnist"] {
        let config = format!("mine/templates/{name}/config.json");
        assert!(place.path(&config).is_file(), "{name}");
    }
    assert!(!place.path("cache").exists());
    let args = "expand --depth 2 --width 64 --out o";
    let mut without = place.command(args);
    without.env("WAVE_CACHE", "");
    assert_fails(&without.output().unwrap(), 2, args, &["set WAVE_CACHE"]);
}
