use candle_core::DType;

use super::*;
use crate::testing::{check_refused, weights};
use crate::write_tensors;

#[test]
fn scalers_are_those_of_all_layers_and_no_others() {
    let root = tempfile::tempdir().unwrap();
    assert!(read_scalers(root.path(), 2).unwrap().is_none());
    let names: Vec<String> = (0..2)
        .flat_map(|l| PARTS.map(|part| format!("scalers.{l}.{part}")))
        .collect();
    let shapes: Vec<(&str, &[usize])> =
        names.iter().map(|n| (n.as_str(), &[2, 1, 1][..])).collect();
    let whole = weights(&shapes);
    let write = |weights: &Weights| {
        let path = root.path().join(SCALERS_FILE);
        write_tensors(&path, weights, &Default::default()).unwrap();
    };
    write(&whole);
    assert!(read_scalers(root.path(), 2).unwrap().is_some());
    for (depth, part) in [(1, "scalers.1.fc1"), (3, "scalers.2.fc1")] {
        check_refused(read_scalers(root.path(), depth), &[part]);
    }
    let mut wrong = whole.clone();
    let t = wrong.remove("scalers.1.proj").unwrap();
    write(&wrong);
    let missing = ["`scalers.1.proj` is missing", "scalers.safetensors"];
    check_refused(read_scalers(root.path(), 2), &missing);
    wrong.insert("scalers.1.projx".into(), t);
    write(&wrong);
    check_refused(read_scalers(root.path(), 2), &["`scalers.1.projx`"]);
}

#[test]
fn scalers_of_another_rank_or_type_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join(SCALERS_FILE);
    let names = PARTS.map(|part| format!("scalers.0.{part}"));
    let shapes = names.each_ref().map(|name| (&**name, &[2, 1, 3][..]));
    let whole = weights(&shapes);
    for (wrong, found) in [
        (whole["scalers.0.qkv"].flatten_all(), "shape [6]"),
        (whole["scalers.0.qkv"].narrow(0, 0, 0), "shape [0, 1, 3]"),
        (whole["scalers.0.qkv"].to_dtype(DType::F16), "type F16"),
    ] {
        let mut weights = whole.clone();
        weights.insert("scalers.0.qkv".into(), wrong.unwrap());
        write_tensors(&path, &weights, &Default::default()).unwrap();
        let parts = ["scalers.safetensors", "`scalers.0.qkv`", found, "and F32"];
        check_refused(read_scalers(root.path(), 1), &parts);
    }
}
