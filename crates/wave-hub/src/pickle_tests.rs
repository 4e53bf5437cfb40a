use super::*;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/pickles")
        .join(name)
}

fn names(path: &Path) -> Vec<String> {
    let (weights, _) = crate::read_tensors(path).unwrap();
    weights.into_keys().collect()
}

/// `torch.save(torch.nn.Linear(3, 2).state_dict())`, and a checkpoint of timm's shape.
#[test]
fn state_dicts_and_checkpoints_are_read() {
    assert_eq!(names(&fixture("linear.pth")), ["bias", "weight"]);
    let checkpoint = names(&fixture("checkpoint.pth.tar"));
    assert_eq!(checkpoint.len(), 19);
    assert!(checkpoint.contains(&"blocks.0.attn.qkv.weight".to_owned()));
}

/// `torch.save({"epoch": 90, "arch": "resnet50", "state_dict": .., "best_acc1": torch.tensor(69.5)})`, as PyTorch's
/// example for ImageNet does it, on several GPUs.
#[test]
fn a_tensor_beside_the_weights_does_not_hide_them() {
    assert_eq!(names(&fixture("accuracy.pth.tar")), ["bias", "weight"]);
}

#[test]
fn damaged_files_are_errors() {
    let whole = std::fs::read(fixture("linear.pth")).unwrap();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("x.pth");
    for cut in [4, 100, whole.len() / 2, whole.len() - 30] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let error = crate::read_tensors(&path).unwrap_err().to_string();
        assert!(error.contains("save_file"), "{error}");
    }
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, &bytes).unwrap();
        let _ = crate::read_tensors(&path); // some bytes do not matter; none is a panic
    }
}
