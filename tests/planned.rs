//! `wave condense` without a recipe: the plan for some minutes.

use crate::support::Place;

const PLANNED: &str = "condense --ancestor m --data shapes --train-limit 128 --test-limit 32 --minutes 5 \
                       --sizes 1x32..3x64 --steps 4";

#[test]
fn a_plan_is_carried_out_and_repeated_by_its_recipe() {
    let place = Place::with_model();
    let made = place.json(&format!("{PLANNED} --out t"));
    assert_ne!(made["accuracies"].as_array().unwrap().len(), 0);
    let recipe = place.text("t/run/recipe.toml");
    for part in [
        "[condense]",
        "[[condense.levels]]",
        "[condense.auxiliary]",
        "patch = 4\n",
        "minutes = 5",
    ] {
        assert!(recipe.contains(part), "{part}: {recipe}");
    }
    place.json("expand t --depth 2 --width 64 --out e");
    // The same command tells the result; the recipe alone makes the same bytes.
    assert_eq!(place.json(&format!("{PLANNED} --out t")), made);
    place.json("condense t/run/recipe.toml --out u");
    assert!(place.bytes("t/templates.safetensors") == place.bytes("u/templates.safetensors"));
    let printed = "condense t/run/recipe.toml --print-recipe";
    place.refused(printed, &["levels", "printed plan"]);
    place.refused(
        &format!("{PLANNED} --minutes 6 --out t").replace("--minutes 5 ", ""),
        &["other settings", "minutes"],
    );
}

#[test]
fn a_plan_is_told_and_printed() {
    let place = Place::with_model();
    // 4 steps of 16 images, an eighth of all.
    let told = place.stdout(&format!("{PLANNED} --lr 0.003 --dry-run"));
    assert!(told.lines().count() <= 16, "{told}");
    for part in [
        "ancestor",
        "shapes: 128 training images, 32 test images",
        "1 x 32 to 3 x 64",
        "images per second",
        "in total",
        ": 0.5 epochs at 3.0e-3, ",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    for (given, parts) in [
        ("", &["# ancestor", "[[condense.levels]]"][..]),
        // Given settings stay.
        ("--lr 0.003 --batch 32", &["lr = 0.003", "batch = 32"]),
        (
            "--templates 6,2,8,8 --growth 0.1",
            &["\ntemplates = [6, 2, 8, 8]\nlr", "\ngrowth = 0.1\n"],
        ),
    ] {
        let printed = place.stdout(&format!("{PLANNED} {given} --print-recipe"));
        for part in parts {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        let own = given.contains("--growth");
        assert!(!own || !printed.contains("growth = 0.8"), "{printed}");
    }
}

#[test]
fn a_plan_takes_no_time_for_outputs_that_a_cache_has() {
    let place = Place::with_model();
    let planned = format!("{PLANNED} --cache c");
    let told = place.stdout(&format!("{planned} --dry-run"));
    assert!(told.contains(" for the ancestor's outputs\n"), "{told}");
    assert!(!place.path("c").exists());
    place.json(&format!("{planned} --out t"));
    let told = place.stdout(&format!("{planned} --dry-run"));
    assert!(told.contains("outputs    all in the cache\n"), "{told}");
    let more = planned.replace("--train-limit 128", "--train-limit 160");
    let told = place.stdout(&format!("{more} --dry-run"));
    assert!(told.contains(" for the missing outputs\n"), "{told}");
    place.refused(
        &format!("{planned} --flip false --dry-run"),
        &["augmentation", "another --cache"],
    );
}

/// The plan is made once: it opens the data, and so do the untrained templates for the stages after it.
#[test]
fn a_recipe_for_some_minutes_is_planned_once() {
    let place = Place::with_model();
    let recipe = r#"
[condense]
ancestor = "m"
data = "shapes"
train_limit = 128
test_limit = 32
minutes = 5
sizes = "1x32..2x32"
steps = 4

[expand]
depth = 2
width = 32
steps = 0
"#;
    place.write("r.toml", recipe);
    let (told, details) = place.texts("run r.toml --dry-run -v");
    for part in ["[condense]", "1 x 32 to 2 x 32", "[expand]"] {
        assert!(told.contains(part), "no `{part}` in {told}");
    }
    let opened = details.matches("shapes: 128 training images").count();
    assert_eq!(opened, 2, "{details}");
}

/// Images whose classes are not the ancestor's teach by the ancestor alone, as do images without labels.
#[test]
fn labels_of_other_classes_are_not_used() {
    let place = Place::with_model();
    for i in 0..40 {
        place.write_png(&format!("photos/train/{}/{i}.png", i % 2));
    }
    let args = "condense --ancestor m --data photos --minutes 5 --sizes 1x32..2x32 --steps 4";
    let told = place.stdout(&format!("{args} --dry-run"));
    let line = "not used: the data has 2 classes, the ancestor 8";
    assert!(told.contains(line), "{told}");
    place.json(&format!("{args} --out t"));
    let made = place.json("expand t --depth 1 --width 32 --out e");
    let makes = made["makes"].as_str().unwrap();
    assert!(makes.starts_with("8 classes"), "{made}");
    place.refused(
        &format!("{args} --ce-weight 1 --out u"),
        &["2 classes", "8", "same classes"],
    );
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let place = Place::with_model();
    for i in 0..40 {
        place.write_png(&format!("unlabelled/{i}.png"));
    }
    place.refused(
        "condense --data unlabelled --out o",
        &["no labels", "--ancestor"],
    );
    place.refuses(
        "FLAGS --ancestor m --out o",
        "
        condense --data shapes --sizes 2x50..4x64 => 50 | head width 32
        condense --data shapes --sizes 4x64..2x64 => swap
        condense --data shapes --sizes big => 2x64..12x192
        condense --data nowhere => nowhere
        condense --data shapes --minutes nan => minutes
        condense --data shapes --minutes 5 --grow t => grow = t | --depths, --widths
        condense --data shapes --train-limit 20 => 20 training images | 32
        condense --data shapes --minutes 0.01 --sizes 2x64..4x64 => minutes = 0.01 | left for training
        condense --data shapes --template-start ancestor --sizes 1x32..2x64 => the auxiliary's shape
        condense --data shapes --depths 1,2 => depths | --sizes
        condense --data shapes --set condense.auxiliary.width=64 => auxiliary.width | --sizes
        ",
    );
}

/// The auxiliary is the ancestor's, unless the settings ask for another. Its weights are the start on request; by
/// itself, the plan begins with them only where time is too short for levels.
#[test]
fn the_largest_size_can_be_that_of_a_vit() {
    let place = Place::with_model();
    let plan = |more: &str| {
        let args = PLANNED.replace("1x32..3x64", "1x16..2x32");
        place.stdout(&format!("{args} {more} --print-recipe"))
    };
    let printed = plan("--template-start ancestor");
    for part in [
        "template_start = \"ancestor\"",
        "the ancestor's own weights",
        "patch = 7",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert_eq!(printed.matches("[[condense.levels]]").count(), 1);
    place.write("r.toml", &printed);
    place.json("condense r.toml --out t");

    let printed = plan("");
    assert!(printed.contains("patch = 7") && !printed.contains("\"ancestor\""));
    for other in [
        "--set condense.auxiliary.patch=4",
        "--template-start xavier",
    ] {
        let printed = plan(other);
        assert!(printed.contains("patch = 4"), "{other}: {printed}");
    }
}

/// A cache of the trained ancestor is not that of the untrained one in the plan, and one whose outputs have no weight is
/// still the ancestor's.
#[test]
fn a_plan_accepts_the_cache_of_its_run() {
    let place = Place::with_model();
    let recipe = r#"
[ancestor]
data = "shapes"
train_limit = 128
test_limit = 32
batch = 32
steps = 1

[ancestor.init]
arch = "convmixer"
depth = 2
width = 16
kernel = 5
patch = 7

[condense]
data = "shapes"
train_limit = 128
test_limit = 32
minutes = 5
sizes = "1x32..2x32"
steps = 4
cache = "c"
"#;
    place.write("r.toml", recipe);
    place.json("run r.toml --out o");
    assert!(place.path("c/cache.json").exists());
    place.stdout("run r.toml --dry-run");
    place.json(&format!("{PLANNED} --cache d --out t"));
    place.stdout(&format!("{PLANNED} --kl-weight 0 --cache d --dry-run"));
}
