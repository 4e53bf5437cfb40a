//! Runs of `wave`, and the files that it writes.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

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

/// Flags that keep training on the procedural shapes short.
pub(crate) const SHAPES: [&str; 8] = [
    "--data",
    "shapes",
    "--train-limit",
    "256",
    "--test-limit",
    "64",
    "--batch",
    "32",
];

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
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let picture = image::GrayImage::from_fn(28, 28, |x, y| image::Luma([(x * y % 251) as u8]));
        picture.save(path).unwrap();
    }

    /// The bytes of a file in the directory.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// `wave args` on one thread, ready to start.
    pub(crate) fn loud(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wave"));
        command
            .current_dir(self.0.path())
            .args(args.split_whitespace())
            .args(["--threads", "1"])
            .env("XDG_CACHE_HOME", self.path("cache"));
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

    /// Runs `wave`, which must refuse the request with all of these words; returns its stderr.
    #[track_caller]
    pub(crate) fn refused(&self, args: &str, parts: &[&str]) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "wave {args}: {stderr}");
        for part in parts {
            assert!(
                stderr.contains(part),
                "wave {args}: no `{part}` in {stderr}"
            );
        }
        stderr
    }

    /// Runs `wave`, which must succeed; returns its stdout.
    pub(crate) fn stdout(&self, args: &str) -> String {
        let output = self.loud(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "wave {args}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
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

/// `--data shapes` and its limits, as words.
pub(crate) fn shapes() -> String {
    SHAPES.join(" ")
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
