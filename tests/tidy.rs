//! What the manifests may say.

use std::collections::BTreeMap;
use std::path::Path;

/// The workspace's crates, and those of them that each may depend on.
const ALLOWED: [(&str, &[&str]); 7] = [
    ("wave-ops", &[]),
    ("wave-models", &["wave-ops"]),
    ("wave-learngene", &["wave-ops", "wave-models"]),
    ("wave-init", &["wave-ops", "wave-models"]),
    ("wave-data", &[]),
    ("wave-train", &["wave-ops", "wave-data"]),
    ("wave-hub", &[]),
];

fn manifests() -> BTreeMap<String, toml::Table> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_dir(crates)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.path().join("Cargo.toml").is_file())
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
            (
                entry.file_name().into_string().unwrap(),
                text.parse().unwrap(),
            )
        })
        .collect()
}

fn dependencies(manifest: &toml::Table) -> Vec<String> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|table| manifest.get(*table)?.as_table())
        .flat_map(|table| table.keys().cloned())
        .collect()
}

#[test]
fn crates_depend_in_one_direction() {
    let manifests = manifests();
    for (name, allowed) in ALLOWED {
        for dependency in dependencies(&manifests[name]) {
            let ours = dependency == "wave" || dependency.starts_with("wave-");
            assert!(
                !ours || allowed.contains(&dependency.as_str()),
                "{name} depends on {dependency}; it may only on {allowed:?}"
            );
        }
    }
    assert_eq!(
        manifests.len(),
        ALLOWED.len() + 1,
        "list the new crate here"
    );
}

#[test]
fn no_crate_uses_candles_layers() {
    for (name, manifest) in manifests() {
        for dependency in dependencies(&manifest) {
            assert!(
                !["candle-nn", "candle_nn"].contains(&dependency.as_str()),
                "{name} depends on {dependency}, whose layer norm cuts the gradient"
            );
        }
    }
}

/// `println!` and its like panic where nothing can be written, and pass on what steers a terminal.
#[test]
fn only_one_file_writes_to_the_terminal() {
    fn check(dir: &Path) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                check(&path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for word in ["println!(", "print!(", "dbg!("] {
                    let path = path.display();
                    assert!(!text.contains(word), "{path}: {word}; use wave::terminal");
                }
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in std::fs::read_dir(crates).unwrap() {
        let sources = entry.unwrap().path().join("src");
        if sources.is_dir() {
            check(&sources);
        }
    }
}
