//! Rules for manifests and imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Crates for tensors, images and files, each with the crates it may depend on.
const LOWER: [(&str, &[&str]); 8] = [
    ("wave-ops", &[]),
    ("wave-ancestors", &["wave-ops"]),
    ("wave-models", &["wave-ops", "wave-ancestors"]),
    ("wave-learngene", &["wave-ops", "wave-models"]),
    ("wave-init", &["wave-ops", "wave-models"]),
    ("wave-data", &[]),
    ("wave-train", &["wave-ops", "wave-data"]),
    ("wave-hub", &[]),
];

/// Crates for runs, each with the crates it may depend on beside all lower ones. Only `wave` is above
/// them.
const UPPER: [(&str, &[&str]); 5] = [
    ("wave-run", &[]),
    ("wave-artefacts", &["wave-run"]),
    ("wave-stages", &["wave-run", "wave-artefacts"]),
    ("wave-bench", &["wave-run", "wave-artefacts", "wave-stages"]),
    ("wave-lab", &["wave-run"]),
];

fn crates() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn manifests() -> BTreeMap<String, toml::Table> {
    let entries = std::fs::read_dir(crates()).unwrap().map(Result::unwrap);
    let manifest = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("Cargo.toml")).ok()?;
        let name = entry.file_name().into_string().unwrap();
        Some((name, text.parse::<toml::Table>().unwrap()))
    };
    entries.filter_map(manifest).collect()
}

/// The Rust files of a crate, each with its path below `src`.
fn sources(name: &str) -> BTreeMap<String, String> {
    let src = crates().join(name).join("src");
    let mut texts = BTreeMap::new();
    let mut dirs = vec![src.clone()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let file = path.strip_prefix(&src).unwrap().to_str().unwrap();
                texts.insert(file.to_owned(), std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    texts
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
    let lower = LOWER.map(|(name, _)| name);
    let check = |name: &str, allowed: &[&str]| {
        for dependency in dependencies(&manifests[name]) {
            let ours = dependency == "wave" || dependency.starts_with("wave-");
            assert!(
                !ours || allowed.contains(&dependency.as_str()),
                "{name} depends on {dependency}; it may only on {allowed:?}"
            );
        }
    };
    for (name, allowed) in LOWER {
        check(name, allowed);
    }
    for (name, allowed) in UPPER {
        check(name, &[&lower, allowed].concat());
    }
    assert_eq!(
        manifests.len(),
        LOWER.len() + UPPER.len() + 2, // wave, and wave-python above it
        "list the new crate here"
    );
}

/// Their layer norm cuts gradients silently, which does no harm where none flow.
#[test]
fn only_frozen_networks_use_candles_layers() {
    for (name, manifest) in manifests() {
        for dependency in dependencies(&manifest) {
            assert!(
                name == "wave-ancestors"
                    || !["candle-nn", "candle-transformers"].contains(&dependency.as_str()),
                "{name} depends on {dependency}, whose layer norm cuts the gradient"
            );
        }
    }
}

/// Refuses `words` in the sources of all crates.
fn forbid(words: &[&str], remedy: &str) {
    for name in manifests().keys() {
        for (file, text) in sources(name) {
            for word in words {
                assert!(!text.contains(word), "{name}, {file}: {word}; use {remedy}");
            }
        }
    }
}

/// `println!` and the like panic where they cannot write, and pass on terminal control characters.
#[test]
fn only_one_file_writes_to_the_terminal() {
    forbid(&["println!(", "print!(", "dbg!("], "wave::terminal");
}

/// It would make one path of `my.v1` and `my.v2`.
#[test]
fn no_path_is_made_by_replacing_an_extension() {
    forbid(&["with_extension("], "wave_run::paths::appended");
}

/// The paths in a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn used(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in inner.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => items.push(String::new()),
            c => items.last_mut().unwrap().push(c),
        }
    }
    let items = items.iter().flat_map(|item| used(item));
    items.map(|item| format!("{}{item}", head.trim())).collect()
}

/// The modules of a crate, `a::b` for `src/a/b.rs`, with the modules that each imports.
fn imports(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut texts = BTreeMap::new();
    for (file, text) in sources(name) {
        let module = file.trim_end_matches(".rs");
        if !module.ends_with("tests") {
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let lines = code.lines().map(|l| l.split("//").next().unwrap());
            let code = lines.collect::<Vec<_>>().join(" ");
            texts.insert(module.replace('/', "::"), code);
        }
    }
    // Operators hand over to `gpu`, if it is compiled, and its operators have their shapes and gradients.
    texts.remove("gpu");
    texts.retain(|module, _| !module.starts_with("gpu::"));
    let file = |path: &str| {
        let mut path = path;
        loop {
            if texts.contains_key(path) && path != "lib" {
                return Some(path.to_owned());
            }
            path = path.rsplit_once("::")?.0;
        }
    };
    let imported = |(module, text): (&String, &String)| {
        let uses = text.split("use ").skip(1);
        let mut paths: Vec<String> = uses
            .flat_map(|u| used(u.split(';').next().unwrap()))
            .collect();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let written = text.split("crate::").skip(1);
        paths.extend(written.map(|p| format!("crate::{}", p.split(|c| !word(c)).next().unwrap())));
        let absolute = |path: &String| {
            let mut above = module.as_str();
            let mut path = path.as_str();
            if let Some(path) = path.strip_prefix("crate::") {
                return Some(path.to_owned());
            }
            while let Some(rest) = path.strip_prefix("super::") {
                above = above.rsplit_once("::").map_or("", |(above, _)| above);
                path = rest;
            }
            (above != module).then(|| {
                format!("{above}::{path}")
                    .trim_start_matches(':')
                    .to_owned()
            })
        };
        let found = paths
            .iter()
            .filter_map(absolute)
            .filter_map(|path| file(&path));
        (
            module.clone(),
            found.filter(|other| other != module).collect(),
        )
    };
    texts.iter().map(imported).collect()
}

/// A circle of modules that import each other. A module and all below it are one node, beside its siblings.
fn circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut parents: BTreeSet<&str> = [""].into();
    for module in imports.keys() {
        parents.extend(module.match_indices("::").map(|(at, _)| &module[..at]));
    }
    parents.into_iter().find_map(|parent| {
        let node = |module: &str| -> Option<String> {
            let below = match parent {
                "" => module,
                _ => module.strip_prefix(parent)?.strip_prefix("::")?,
            };
            Some(below.split("::").next().unwrap_or(below).to_owned())
        };
        let mut graph: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, others) in imports {
            let Some(from) = node(module) else { continue };
            let to = others.iter().filter_map(|other| node(other));
            let to = to.filter(|other| *other != from);
            graph.entry(from.clone()).or_default().extend(to);
        }
        cycle(&graph)
    })
}

/// A cycle of a graph.
fn cycle(graph: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let next = |node: &str| -> Vec<&str> {
        let all = graph.get(node).into_iter().flatten();
        all.map(String::as_str).collect()
    };
    let mut done = BTreeSet::new();
    for start in graph.keys() {
        let mut trail = vec![(start.as_str(), next(start))];
        while let Some((node, left)) = trail.last_mut() {
            match left.pop() {
                None => {
                    done.insert(*node);
                    trail.pop();
                }
                Some(other) => {
                    if let Some(at) = trail.iter().position(|(n, _)| *n == other) {
                        return Some(trail[at..].iter().map(|(n, _)| (*n).to_owned()).collect());
                    }
                    if !done.contains(other) {
                        trail.push((other, next(other)));
                    }
                }
            }
        }
    }
    None
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    for name in manifests().keys() {
        let found = circle(&imports(name));
        assert!(
            found.is_none(),
            "{name}: {found:?}; take what they share into a file of its own"
        );
    }
    let found = |edges: &[(&str, &str)]| {
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in edges {
            all.entry((*to).to_owned()).or_default();
            let others = all.entry((*from).to_owned()).or_default();
            others.insert((*to).to_owned());
        }
        circle(&all)
    };
    let ring = [("a", "b"), ("b", "c"), ("c", "a")];
    assert!(found(&ring).is_some());
    let below = [("a", "a::d"), ("a::d", "a")];
    let none = [&ring[..2], &[("a", "c")], &below].concat();
    assert!(found(&none).is_none());
}
