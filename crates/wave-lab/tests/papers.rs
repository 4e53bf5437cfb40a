//! Every paper's command runs, at the smallest size.

use serde_json::Value;
use std::process::{Command, Output};

/// A directory to run `wave-lab` in, with recipes.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).unwrap();
    }

    fn run(&self, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wave-lab"));
        command.args(args.split_whitespace()).current_dir(&self.0);
        command.output().unwrap()
    }

    fn json(&self, args: &str) -> Value {
        let done = self.run(args);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "wave-lab {args}: {said}");
        serde_json::from_slice(&done.stdout).unwrap()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path().join(name)).unwrap()
    }
}

/// The claim of the paper, at the smallest size. (A single short length would not test it: convolutions
/// alone reach far enough back, and the default start learns that sooner.)
#[test]
fn a_mimetic_start_learns_to_copy_sooner() {
    let place = Place::new();
    let task = "[ssm]\nwidth = 32\nstate = 32\ndata = 'copy:length=6..12,symbols=8'";
    let training = "steps = 200\nlr = 1e-2\nbatch = 16\ntest_limit = 64";
    place.write("r.toml", &format!("{task}\n{training}"));
    let [default, mimetic] = ["default", "mimetic"].map(|method| {
        let found = place.json(&format!("ssm r.toml --method {method} --out {method}"));
        [0, 1].map(|i| found["lengths"][i]["top1"].as_f64().unwrap())
    });
    // At the training length and at twice that. Chance is 0.125.
    for (default, mimetic) in default.into_iter().zip(mimetic) {
        assert!(mimetic > 1.5 * default, "{mimetic} {default}");
    }
    let map = place.bytes("mimetic/attention-maps.png");
    assert!(map.starts_with(b"\x89PNG"));
    // A layer of a trained network starts another.
    let from = "--method pretrained-layer --from mimetic --donor-layer 1 --steps 2 --depth 3";
    place.json(&format!("ssm r.toml {from} --out student"));
    place.write("text.txt", &"the cat sees a dog. ".repeat(40));
    let text = "--arch transformer --width 16 --heads 2 --data text:text.txt,length=12 --steps 3";
    place.write("t.toml", training);
    let found = place.json(&format!("ssm t.toml {text} --out text"));
    assert!(found["lengths"][0]["bits_per_character"].is_number());
}

#[test]
fn every_network_of_a_population_learns_and_the_statistics_are_told() {
    let place = Place::new();
    place.write("r.toml", "data = 'shapes'\ntest_limit = 40\nbatch = 8");
    let size = "--networks 6 --depth 2 --width 8";
    for arch in ["convnext", "vit"] {
        let args = format!("population r.toml {size} --arch {arch} --out {arch}");
        let [start, found] = [0, 40].map(|n| place.json(&format!("{args} --steps {n}")));
        let [before, after] = [&start, &found].map(|found| found["loss"].as_f64().unwrap());
        assert!(after < before - 0.05, "{arch}: {before} {after}");
        assert_eq!(found["images_seen"], 320);
        for when in ["before", "after"] {
            assert_eq!(found[when]["layers"].as_array().unwrap().len(), 2);
            assert!(found[when]["layers"][0]["stripes_fc1"].is_number());
        }
        assert!(!place.bytes(&format!("{arch}/covariance.png")).is_empty());
    }
}

#[test]
fn attention_with_positions_trains() {
    let place = Place::new();
    let recipe =
        "[finetune]\ndata = 'shapes'\ntrain_limit = 64\ntest_limit = 16\nbatch = 16\nepochs = 1";
    place.write("r.toml", recipe);
    for (arch, method) in [("gpsa", "mimetic"), ("convolution-outside", "default")] {
        let args = format!("attention r.toml --arch {arch} --method {method} --out o");
        let found = place.json(&args);
        assert_eq!((&found["steps"], found["top1"].is_f64()), (&4.into(), true));
    }
}

/// Distributions of a tiny autoencoder, learned and tested in seconds.
const LEARNED: &str =
    "[dimaml]\ndata = 'shapes'\ntrain_limit = 256\ntest_limit = 16\nbatch = 8\nsteps = 3\nlr = 2e-2
conv_widths = [2, 3]\nlatent = 4\ninner_steps = 4\ninner_lr = 0.1\nvalidate_every = 2
test_data = 'inverted:shapes'\ntest_seeds = [0]";

#[test]
fn learned_starts_are_tested_and_the_same_every_time() {
    let place = Place::new();
    place.write("r.toml", LEARNED);
    let others = "--against usual,kaiming,usual@lars=0.01,kaiming@learned-rates";
    for method in ["normal", "plif"] {
        let args = format!("dimaml r.toml --method {method} {others} --out {method}");
        let tests = place.json(&args)["tests"].take();
        assert_eq!(tests.as_array().unwrap().len(), 5, "{method}");
        assert!(tests[0]["area"].as_f64().unwrap() > 0.0, "{tests}");
    }
    assert!(!place.bytes("plif/quantiles.svg").is_empty());
    place.json("dimaml r.toml --test-seeds 0 --out again");
    let weights = |dir: &str| place.bytes(&format!("{dir}/model.safetensors"));
    assert!(weights("again") == weights("normal"));
    place.write(
        "s.toml",
        &LEARNED.replace("conv_widths = [2, 3]\nlatent = 4\n", ""),
    );
    let one = "--inner-lr 0.01 --test-seeds 0 --width 6 --depth 1";
    let fixup = "--optimiser nesterov --gradient reptile";
    let tokens = "--data copy:length=3,symbols=3 --test-data sort:length=3,symbols=5";
    for (arch, args) in [("fixup", fixup), ("lstm", tokens)] {
        let args = format!("--arch {arch} {one} {args}");
        place.json(&format!("dimaml s.toml {args} --out {arch}"));
    }
}

#[test]
fn settings_that_mean_nothing_are_refused() {
    let place = Place::new();
    place.write("r.toml", "");
    for (args, why) in [
        (
            "ssm --data copy --arch mamba --heads 2",
            "--heads does not apply to --arch mamba",
        ),
        (
            "ssm --data copy --arch linear-attention --heads 2",
            "--heads does not apply",
        ),
        (
            "ssm --data copy --arch attention --state 4",
            "--state does not apply",
        ),
        (
            "ssm --data copy --arch transformer --parts state",
            "--parts does not apply",
        ),
        (
            "ssm --data copy --method default --parts state",
            "--parts does not apply to --method default",
        ),
        (
            "ssm --data copy --method default --mimetic-layers 1",
            "--mimetic-layers does not apply to --method default",
        ),
        (
            "ssm --data copy --mimetic-layers 0,2",
            "mimetic_layers: there is no layer 2",
        ),
        (
            "ssm --data copy --donor-layer 1",
            "--donor-layer does not apply to --method mimetic",
        ),
        (
            "ssm --data copy --depth 1000000000000000000",
            "depth is 1000000000000000000",
        ),
        (
            "dimaml --data shapes --arch fixup --latent 3",
            "--latent does not apply to --arch fixup",
        ),
        (
            "dimaml --data copy --arch lstm --conv-widths 2",
            "--conv-widths does not apply",
        ),
        (
            "dimaml --data copy --arch lstm --stages 2",
            "--stages does not apply",
        ),
        (
            "dimaml --data shapes --width 4",
            "--width does not apply to --arch autoencoder",
        ),
        ("dimaml --data shapes --depth 4", "--depth does not apply"),
        (
            "ssm --data copy --arch attention --attention-layers 0",
            "--attention-layers does not apply to --arch attention",
        ),
        (
            "dimaml --data shapes --inner-steps 0",
            "inner_steps is 0; it must be at least 1",
        ),
        (
            "dimaml --data shapes --test-steps 0",
            "test_steps is 0; it must be at least 1",
        ),
        (
            "dimaml --data shapes --validate-every 0",
            "validate_every is 0; it must be at least 1",
        ),
        (
            "population --data shapes --networks 1",
            "networks = 1; statistics over networks need at least 2",
        ),
        ("population --data shapes --networks 0", "networks is 0"),
        (
            "population --data shapes --networks 1000000000000000000",
            "networks is 1000000000000000000",
        ),
    ] {
        let (paper, flags) = args.split_once(' ').unwrap();
        let done = place.run(&format!("{paper} r.toml {flags}"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args}: {said}");
        assert!(said.contains(why), "{args}: {said}");
    }
}

#[test]
fn an_empty_list_of_test_seeds_is_refused() {
    let place = Place::new();
    place.write(
        "r.toml",
        &LEARNED.replace("test_seeds = [0]", "test_seeds = []"),
    );
    let done = place.run("dimaml r.toml");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("number of test_seeds is 0"), "{said}");
}

#[test]
fn an_output_directory_that_cannot_be_made_is_told_before_the_training() {
    let place = Place::new();
    place.write("taken", "");
    place.write(
        "r.toml",
        "data = 'copy'\nsteps = 1\nbatch = 4\ntest_limit = 4",
    );
    place.write("d.toml", LEARNED);
    for args in ["ssm r.toml", "dimaml d.toml"] {
        let done = place.run(&format!("{args} --out taken"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success(), "{args}");
        assert!(said.contains("create the directory"), "{args}: {said}");
        assert!(!said.contains("objective"), "{args}: {said}");
    }
}

#[test]
fn recipes_of_the_papers_are_read_and_wrong_keys_refused() {
    let papers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes/papers");
    let mut commands = 0;
    for entry in std::fs::read_dir(papers).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let of_lab = |line: &&str| line.starts_with('#') && line.contains("wave-lab ");
        let Some(line) = text.lines().find(of_lab) else {
            continue;
        };
        let paper = line.split("wave-lab ").nth(1).unwrap();
        let mut words = paper.split(|c: char| !c.is_ascii_alphanumeric());
        let paper = words.next().unwrap();
        let place = Place::new();
        // A key of no paper is the only fault.
        place.write("r.toml", &format!("widht = 3\n{text}"));
        let done = place.run(&format!("{paper} r.toml"));
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        let named = said.contains("--widht does not apply");
        assert!(named, "{}: {said}", path.display());
        commands += 1;
    }
    assert!(commands >= 8, "{commands}");
}
