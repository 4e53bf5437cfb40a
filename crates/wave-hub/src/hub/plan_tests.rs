use super::*;
use crate::directory::{CONFIG_FILE, MODEL_FILE};
use crate::hub::tests::{CARD, model_dir};
use crate::testing::{check_refused, weights};
use crate::write_tensors;

#[test]
fn exactly_what_would_be_sent_is_listed() {
    let root = tempfile::tempdir().unwrap();
    let dir = model_dir(root.path());
    fs::create_dir(dir.join("run")).unwrap();
    fs::write(dir.join("run/log.jsonl"), "{}").unwrap();
    fs::write(dir.join("LICENSE"), "free").unwrap();
    for foreign in ["templates.safetensors", EXPAND_FILE] {
        fs::write(dir.join(foreign), "of an earlier run").unwrap();
    }
    let found = plan(&dir, CARD).unwrap();
    let names: Vec<&str> = found.files.iter().map(|file| &*file.path).collect();
    assert_eq!(names, ["LICENSE", CARD_FILE, CONFIG_FILE, MODEL_FILE]);
    assert_eq!(
        found.left_out,
        [EXPAND_FILE, "run", "templates.safetensors"]
    );
    for file in &found.files {
        let bytes = fs::read(dir.join(&file.path)).unwrap();
        assert_eq!(file.bytes, bytes.len() as u64);
        assert_eq!(file.sha256, sha256_hex(&bytes));
    }
}

#[test]
fn what_is_not_part_of_an_artefact_is_refused_by_name() {
    let check = |name: &str, make: &dyn Fn(&Path), expected: &str| {
        let root = tempfile::tempdir().unwrap();
        let dir = model_dir(root.path());
        make(&dir.join(name));
        check_refused(plan(&dir, CARD), &[name, expected]);
    };
    for (name, content, expected) in [
        ("pytorch_model.bin", &b"PK\x03\x04"[..], "pickle"),
        ("state.pt", b"", "pickle"),
        ("LICENSE", b"\x80\x04\x95", "pickle"),
        ("train.py", b"import os", "not part of an artefact"),
        (".env", b"HF_TOKEN=hf_secret", "not part of an artefact"),
        ("more.safetensors", b"half", "fewer than"),
    ] {
        check(name, &|path| fs::write(path, content).unwrap(), expected);
    }
    check("more", &|path| fs::create_dir(path).unwrap(), "not part");
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_out_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = model_dir(root.path());
    let outside = root.path().join("scalers.safetensors");
    write_tensors(&outside, &weights(&[("a", &[1])]), &Default::default()).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("scalers.safetensors")).unwrap();
    check_refused(plan(&dir, CARD), &["scalers.safetensors", "points outside"]);
}

#[test]
fn a_broken_artefact_or_card_is_refused() {
    let root = tempfile::tempdir().unwrap();
    check_refused(plan(root.path(), CARD), &["holds no artefact"]);
    let dir = model_dir(root.path());
    check_refused(plan(&dir, "# Mine"), &["README.md", "no YAML front matter"]);
    let bytes = fs::read(dir.join(MODEL_FILE)).unwrap();
    fs::write(dir.join(MODEL_FILE), &bytes[..bytes.len() - 1]).unwrap();
    check_refused(plan(&dir, CARD), &[MODEL_FILE]);
}
