//! Runs of `wave`, and the files that it writes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;
use wave_hub::Weights;

/// A condensation of a few seconds: 3 anchors, widths 16 and 32, 12 steps.
pub(crate) const RECIPE: &str = r#"
data = "shapes"
train_limit = 256
test_limit = 64
batch = 32

[condense]
depths = [1, 3]
widths = [16, 32]
template_size = 16
steps = 12
lr = 2e-3
checkpoint_steps = 2
crop_padding = 2
flip = true
views = 2
kl_weight = 0

[condense.auxiliary]
depth = 3
width = 32
head_width = 16
patch = 7
image_size = 28
"#;

/// Makes a small transformer for the procedural shapes.
pub(crate) const INIT: &str = "init timm --data shapes --depth 2 --width 32 --heads 2 --patch 7";

/// Makes a small ConvMixer; `--data` is to be added.
pub(crate) const CONVMIXER: &str =
    "init default --arch convmixer --depth 2 --width 16 --kernel 5 --patch 7";

/// Flags that keep training on the procedural shapes short.
pub(crate) const SHAPES: &str = "--data shapes --train-limit 256 --test-limit 64 --batch 32";

/// An empty directory in which `wave` runs.
pub(crate) struct Place(TempDir);

impl Place {
    /// A directory with only `r.toml`, the tiny recipe.
    pub(crate) fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.write("r.toml", RECIPE);
        place
    }

    /// The same, with templates condensed into `t/`.
    pub(crate) fn with_templates() -> Place {
        let place = Place::new();
        place.json("condense r.toml --out t");
        place
    }

    /// The same, with a small transformer in `m/`.
    pub(crate) fn with_model() -> Place {
        let place = Place::new();
        place.json(&format!("{INIT} --out m"));
        place
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in the directory, and creates its parents.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Writes a grey image of 28 x 28 pixels.
    pub(crate) fn write_png(&self, name: &str) {
        let pixel = |x: u32, y: u32| image::Luma([(x * y % 251) as u8]);
        self.save(name, image::GrayImage::from_fn(28, 28, pixel));
    }

    /// Writes an image in the directory, and creates its parents.
    pub(crate) fn save(&self, name: &str, picture: impl Into<image::DynamicImage>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        picture.into().save(path).unwrap();
    }

    /// Writes `train` images for training and `test` to test on of each class, in a directory.
    pub(crate) fn write_classes(&self, dir: &str, classes: [&str; 2], train: usize, test: usize) {
        for (split, n) in [("train", train), ("val", test)] {
            for (class, i) in classes.iter().flat_map(|c| (0..n).map(move |i| (c, i))) {
                self.write_png(&format!("{dir}/{split}/{class}/{i}.png"));
            }
        }
    }

    /// The bytes of a file in the directory.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The text of a file in the directory.
    pub(crate) fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).unwrap()
    }

    /// The tensors of a weight file in the directory.
    pub(crate) fn tensors(&self, file: &str) -> Weights {
        wave_hub::read_tensors(&self.path(file)).unwrap().0
    }

    /// Changes the tensors of a weight file in the directory.
    pub(crate) fn rewrite(&self, file: &str, change: impl FnOnce(&mut Weights)) {
        let path = self.path(file);
        let (mut weights, metadata) = wave_hub::read_tensors(&path).unwrap();
        change(&mut weights);
        wave_hub::write_tensors(&path, &weights, &metadata).unwrap();
    }

    /// A JSON file in the directory.
    pub(crate) fn read(&self, name: &str) -> Value {
        serde_json::from_slice(&self.bytes(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The `config.json` of an artefact.
    pub(crate) fn config(&self, dir: &str) -> Value {
        self.read(&format!("{dir}/config.json"))
    }

    /// Changes the `config.json` of an artefact.
    pub(crate) fn configure(&self, dir: &str, change: impl FnOnce(&mut Value)) {
        let mut config = self.config(dir);
        change(&mut config);
        self.write(&format!("{dir}/config.json"), config.to_string());
    }

    /// `wave args`, on one thread unless they say otherwise, ready to start.
    pub(crate) fn loud(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wave"));
        command
            .current_dir(self.0.path())
            .args(args.split_whitespace())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env_remove("WAVE_CACHE");
        if !args.contains("--threads") {
            command.args(["--threads", "1"]);
        }
        command
    }

    /// The same with `--quiet`.
    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = self.loud(args);
        command.arg("-q");
        command
    }

    /// Runs `wave` to its end.
    pub(crate) fn run(&self, args: &str) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs `wave`, which must fail with `code`, say all of `parts`, not panic and make no `o`; returns its output.
    #[track_caller]
    pub(crate) fn fails(&self, args: &str, code: i32, parts: &[&str]) -> Output {
        let made = || self.path("o").exists();
        let before = made();
        let output = self.run(args);
        assert_fails(&output, code, args, parts);
        assert_eq!(made(), before, "wave {args} left o");
        output
    }

    /// Runs `wave`, which must refuse the request with all of these words; returns its stderr.
    #[track_caller]
    pub(crate) fn refused(&self, args: &str, parts: &[&str]) -> String {
        let output = self.fails(args, 2, parts);
        assert!(output.stdout.is_empty(), "wave {args} printed a result");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs a command with each line of `FLAGS => PART | PART` in the place of FLAGS: all must be
    /// [`refused`](Self::refused).
    #[track_caller]
    pub(crate) fn refuses(&self, command: &str, lines: &str) {
        for line in lines.trim().lines() {
            let (flags, parts) = line.split_once(" => ").unwrap_or((line, ""));
            let parts: Vec<&str> = parts.split(" | ").collect();
            self.refused(&command.replace("FLAGS", flags), &parts);
        }
    }

    /// Runs `wave`, which must succeed; returns its stdout and stderr.
    #[track_caller]
    pub(crate) fn texts(&self, args: &str) -> (String, String) {
        let output = self.loud(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        assert!(output.status.success(), "wave {args}: {stderr}");
        (stdout, stderr)
    }

    /// Runs `wave`, which must succeed; returns its stdout.
    #[track_caller]
    pub(crate) fn stdout(&self, args: &str) -> String {
        self.texts(args).0
    }

    /// Runs `wave --json`, which must succeed and print one JSON object and nothing else.
    pub(crate) fn json(&self, args: &str) -> Value {
        let text = self.stdout(&format!("{args} --json"));
        let value: Value = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("wave {args} printed {text:?}: {e}"));
        assert!(value.is_object(), "wave {args} printed {text:?}");
        value
    }
}

/// Asserts that `wave args` ended with `code`, said all of `parts`, and did not panic.
#[track_caller]
pub(crate) fn assert_fails(output: &Output, code: i32, args: &str, parts: &[&str]) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "wave {args}: {stderr}");
    assert!(!stderr.contains("panicked"), "wave {args}: {stderr}");
    for part in parts {
        assert!(
            stderr.contains(part),
            "wave {args}: no `{part}` in {stderr}"
        );
    }
}

/// The files of an artefact by name: those directly in the directory, without `run/`.
pub(crate) fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(dir)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Asserts that two directories hold the same artefact, bit by bit.
pub(crate) fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (files(a), files(b));
    assert!(a.contains_key("config.json"), "{:?}", a.keys());
    assert_eq!(a.keys().collect::<Vec<_>>(), b.keys().collect::<Vec<_>>());
    for (name, bytes) in &a {
        assert!(bytes == &b[name], "{name} differs");
    }
}

/// All values of a tensor, row by row.
pub(crate) fn values(t: &candle_core::Tensor) -> Vec<f32> {
    t.flatten_all().unwrap().to_vec1().unwrap()
}
