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
    let shapes: Vec<(&str, &[usize])> = names.iter().map(|n| (n.as_str(), &[2][..])).collect();
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
