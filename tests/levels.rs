//! Templates that grow by levels of size.

use crate::support::{Place, RECIPE};
use serde_json::Value;

/// Templates of models of up to 2 layers of width 16 in `s`, which `t` grows to 4 layers of width 32.
fn place() -> Place {
    let place = Place::new();
    place.json(&format!("condense r.toml {SMALL} --out s"));
    place.json(&format!("condense r.toml --grow s {LARGE} --out t"));
    place
}

const SMALL: &str = "--depths 2 --widths 16 --template-size 16 --growth 0";
const LARGE: &str = "--depths 2,4 --widths 16,32 --template-size 16 --growth 0";

/// The weights of a model that templates make.
fn weights(place: &Place, templates: &str, size: &str) -> Vec<u8> {
    place.json(&format!("expand {templates} {size} --out m --overwrite"));
    place.bytes("m/model.safetensors")
}

#[test]
fn smaller_models_stay_as_they_are_to_the_byte() {
    let place = place();
    for (size, same) in [
        ("--depth 1 --width 16", true),
        ("--depth 2 --width 16", true),
        ("--depth 3 --width 16", false),
        ("--depth 2 --width 32", false),
        ("--depth 6 --width 48", false),
    ] {
        let [small, large] = ["s", "t"].map(|templates| weights(&place, templates, size));
        assert_eq!(small == large, same, "{size}");
    }
    let (small, large) = (place.config("s"), place.config("t"));
    assert_eq!(small.get("levels"), None);
    let levels = large["levels"].as_array().unwrap();
    assert_eq!(levels[0]["counts"], small["counts"]);
    assert_eq!(levels[1]["counts"], large["counts"]);
    let sizes = |level: &Value| [level["depth"].clone(), level["width"].clone()];
    assert_eq!([sizes(&levels[0]), sizes(&levels[1])], [[2, 16], [4, 32]]);
    // The default: as many more as the widest width's budget.
    let qkv = [&small, &large].map(|config| &config["counts"]["qkv"]);
    assert_eq!(qkv, [6, 6 + 24]);

    // The record says what each size is worth, the smaller as before.
    let recorded = |config: &Value, depth: u64, width: u64| {
        let all = config["accuracies"].as_array().unwrap().iter();
        let mut of_size = all.filter(|a| a["depth"] == depth && a["width"] == width);
        of_size.next().unwrap()["top1"].clone()
    };
    assert_eq!(recorded(&small, 2, 16), recorded(&large, 2, 16));
    let made = place.json("expand t --depth 4 --width 32 --out m --overwrite");
    assert_eq!(made["expected_top1"], recorded(&large, 4, 32));
    let found = place.json("eval m --data shapes --test-limit 64");
    assert_eq!(found["top1"], recorded(&large, 4, 32));
    assert_eq!(large["provenance"]["grown"], small["provenance"]);
    assert_eq!(large["provenance"]["widths"], serde_json::json!([16, 32]));
    assert_eq!(place.json("inspect t")["levels"], large["levels"]);
}

#[test]
fn a_model_uses_the_templates_of_its_level_or_of_another() {
    let place = place();
    let ledger = |size: &str| {
        let made = place.json(&format!("expand t {size} --out m --overwrite"));
        made["ledger"]["templates"].as_u64().unwrap()
    };
    // Templates of 16 x 16: 24 of the narrow width, 96 more of the wide.
    assert_eq!(ledger("--depth 2 --width 16"), 24 * 256);
    assert_eq!(ledger("--depth 4 --width 32"), 120 * 256);
    let few = "--depth 4 --width 32 --templates-used 24";
    assert_eq!(ledger(few), 24 * 256);
    let [all, used] = ["--depth 4 --width 32", few].map(|size| weights(&place, "t", size));
    assert_ne!(all, used);
    let own = "--depth 2 --width 16 --templates-used 24";
    assert_eq!(
        weights(&place, "t", own),
        weights(&place, "s", "--depth 2 --width 16")
    );
    // The last two levels of the shipped templates have the same number; a size takes its own.
    let last = "--depth 3 --width 128";
    assert_eq!(
        weights(&place, "cifar-10", &format!("{last} --templates-used 360")),
        weights(&place, "cifar-10", last)
    );
    place.refuses(
        "FLAGS --out o",
        "
        expand t --depth 2 --width 16 --templates-used 25 => templates_used = 25 | [24, 120]
        expand s --depth 2 --width 16 --templates-used 25 => [24]
        expand --depth 3 --width 64 --templates-used 3 => [192, 360]
        ",
    );
    place.configure("t", |config| config["levels"][0]["depth"] = 9.into());
    let parts = ["t/config.json", "levels", "the level before"];
    place.refused("expand t --depth 2 --width 16 --out o", &parts);
}

#[test]
fn levels_of_a_recipe_are_condensations_one_after_another() {
    let place = place();
    let levels = "levels = [\n    { depths = [2], widths = [16] },\n    { depths = [2, 4], widths = [16, 32] },\n]\n\
                  growth = 0\n[condense.auxiliary]";
    place.write("l.toml", RECIPE.replace("[condense.auxiliary]", levels));
    let all = "condense l.toml --template-size 16";
    let plan = place.stdout(&format!("{all} --dry-run"));
    assert!(
        plan.contains("level 0 of levels") && plan.contains("30 qkv"),
        "{plan}"
    );
    place.json(&format!("{all} --out l"));
    for (ours, theirs) in [("l/run/levels/0", "s"), ("l", "t")] {
        let of = |dir: &str| place.bytes(&format!("{dir}/templates.safetensors"));
        assert!(of(ours) == of(theirs), "{ours}");
    }
    // Complete levels are not made again.
    let before = place.bytes("l/run/levels/0/run/log.jsonl");
    place.json(&format!("{all} --out l --resume"));
    assert_eq!(place.bytes("l/run/levels/0/run/log.jsonl"), before);

    let grown = "[{ depths = [2] }, { depths = [2, 3], grow = \"s\" }]";
    for (levels, level, part) in [
        ("[]", "levels", "is empty"),
        (
            "[{ depths = [2] }, { depth = 3 }]",
            "level 1",
            "unknown key depth",
        ),
        (grown, "level 1", "remove grow"),
        (
            "[{ depths = [4] }, { depths = [2] }]",
            "level 1",
            "larger --depths",
        ),
    ] {
        let levels = format!("levels = {levels}\n[condense.auxiliary]");
        place.write("w.toml", RECIPE.replace("[condense.auxiliary]", &levels));
        place.refused("condense w.toml --out o", &[level, part]);
    }
}

/// A recipe of two levels, `l.toml`.
fn leveled() -> Place {
    let place = Place::new();
    let levels = "levels = [{ depths = [2], widths = [16] }, { depths = [2], widths = [16, 32] }]\nsteps = 2\n\
                  [condense.auxiliary]";
    let recipe = RECIPE.replace("[condense.auxiliary]", levels);
    place.write("l.toml", recipe.replace("steps = 12\n", ""));
    place
}

#[test]
fn levels_belong_to_their_run() {
    let place = leveled();
    // A neighbour with the name of a level is another's, whatever is replaced.
    place.json("condense r.toml --steps 2 --out l-level-0");
    let neighbour = place.bytes("l-level-0/templates.safetensors");
    place.json("condense l.toml --out l");
    place.json("condense l.toml --out l --overwrite --set condense.lr=1e-3");
    assert!(place.bytes("l-level-0/templates.safetensors") == neighbour);
    // They move with it.
    std::fs::rename(place.path("l"), place.path("moved")).unwrap();
    place.json("condense l.toml --out moved --set condense.lr=1e-3");
    // Errors of the whole are refused before a level trains.
    place.write("stranger/config.json", "{}");
    place.json("condense r.toml --steps 2 --out other");
    for (out, part) in [("stranger", "config.json"), ("other", "without level 0")] {
        place.refused(
            &format!("condense l.toml --out {out}"),
            &[part, "--overwrite"],
        );
        let level = format!("{out}/run/levels/0/run/log.jsonl");
        assert!(!place.path(&level).exists(), "{out}");
    }
    place.json("condense l.toml --out other --overwrite");
}

#[cfg(unix)]
#[test]
fn levels_go_wherever_a_run_goes() {
    use std::os::unix::ffi::OsStrExt;
    let place = leveled();
    std::fs::create_dir_all(place.path("x/here")).unwrap();
    let strange = std::ffi::OsStr::from_bytes(b"nu\xff");
    for out in [strange, ".".as_ref(), "../y/..".as_ref()] {
        let mut command = place.command("condense ../../l.toml");
        command
            .current_dir(place.path("x/here"))
            .arg("--out")
            .arg(out);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{out:?}: {output:?}");
        let made = place.path("x/here").join(out);
        assert!(made.join("templates.safetensors").exists(), "{out:?}");
        assert!(made.join("run/levels/0/config.json").exists(), "{out:?}");
    }
}

#[test]
fn a_growth_that_does_not_fit_is_refused() {
    let place = place();
    place.refuses(
        "FLAGS --grow s --template-size 16 --out o",
        "
        condense r.toml --depths 1,2 --widths 16 => up to 2 layers and width 16 | larger --depths
        condense r.toml --depths 2,4 --widths 32 --kronecker interleave => 16 x 16 | tile
        condense r.toml --depths 2,4 --widths 32 --templates 3,1,4,4 => levels
        condense r.toml --depths 2,4 --widths 32 --anchors 2 => anchors | remove the auxiliary's keys
        condense r.toml --depths 2,4 --widths 32 --mean 0.8 --std 0.1 => mean
        ",
    );
    place.refused(
        "condense r.toml --set condense.levels=[{},{mean=[0.5]}] --out o",
        &["level 1 of levels sets mean", "beside levels"],
    );
    // Only the first of some levels grows given templates.
    let levels = "[{depths=[2,3],widths=[16,32],steps=1},{depths=[2,4],widths=[16,32],steps=1}]";
    let args = "condense r.toml --grow s --template-size 16 --out w";
    place.json(&format!("{args} --set condense.levels={levels}"));
    assert_eq!(place.config("w")["levels"].as_array().unwrap().len(), 3);
    // Other images do not change the input of models that exist.
    place.json(&format!(
        "condense r.toml --grow s {LARGE} --data inverted:shapes --out v"
    ));
    let input = |set: &str| {
        place.json(&format!(
            "expand {set} --depth 2 --width 16 --out m --overwrite"
        ));
        place.config("m")["pretrained_cfg"].clone()
    };
    assert!(input("s")["mean"].is_array());
    assert_eq!(input("s"), input("v"));
    place.refused("condense r.toml --grow nowhere --out o", &["nowhere"]);
    // Growth of a grown set, and of one that grows while its sizes do.
    let again = "--depths 2,5 --widths 16,32 --template-size 16 --growth 0.9 --steps 3";
    place.json(&format!("condense r.toml --grow t {again} --out u"));
    let [before, after] = ["t", "u"].map(|set| weights(&place, set, "--depth 4 --width 32"));
    assert_eq!(before, after);
    let written = place.text("t/config.json");
    for (found, wrong, part) in [
        (
            "\"width\": 32,\n      \"counts\"",
            "\"width\": 999,\n      \"counts\"",
            "999",
        ),
        ("\"qkv\": 6", "\"kqv\": 6", "levels"),
        ("\"qkv\": 6", "\"qkv\": 0", "levels"),
    ] {
        let broken = written.replace(found, wrong);
        assert_ne!(broken, written, "{found}");
        place.write("t/config.json", broken);
        place.refused("expand t --depth 2 --width 16 --out o", &[part]);
    }
}

/// Templates that grow keep their values, and new ones begin with scalers of 0: no start applies to them, and one beside
/// the levels is the first level's.
#[test]
fn a_start_applies_to_the_first_level() {
    let place = Place::new();
    place.json(&format!("condense r.toml {SMALL} --steps 1 --out s"));
    place.refuses(
        &format!("condense r.toml --grow s {LARGE} FLAGS --out o"),
        "
        --template-start xavier => template_start does not apply to templates that grow
        --scaler-start random => scaler_start does not apply to templates that grow
        --scaler-start random --dry-run => remove scaler_start
        ",
    );
    let levels = |last: &str| {
        let first = "{depths=[2],widths=[16],steps=1}";
        let last = format!("{{depths=[2,4],widths=[16,32],steps=1{last}}}");
        format!("--template-size 16 --set condense.levels=[{first},{last}]")
    };
    let own = levels(",template_start=\"xavier\"");
    let parts = ["level 1 of levels", "template_start does not apply"];
    place.refused(&format!("condense r.toml {own} --out o"), &parts);
    let starts = "--template-start xavier --scaler-start random";
    let all = levels("");
    place.json(&format!("condense r.toml {all} {starts} --out l"));
    place.json(&format!(
        "condense r.toml {SMALL} --steps 1 {starts} --out x"
    ));
    let of = |dir: &str| place.bytes(&format!("{dir}/templates.safetensors"));
    assert!(of("l/run/levels/0") == of("x") && of("x") != of("s"));
}
