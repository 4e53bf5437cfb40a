//! The content of the file, read back field by field. The numbers that it computes are checked from outside, with an
//! ONNX runtime and timm: `tests/python/check_onnx.py`.

use std::collections::BTreeSet;
use std::fs;

use super::*;
use crate::float::cast;
use crate::proto::tests::{Field, all, one};
use crate::testing::{counting, names, weights};

fn sizes(class_token: bool) -> VitSizes {
    VitSizes {
        image_size: 12,
        channels: 3,
        patch: 4,
        depth: 2,
        width: 10,
        heads: 5,
        classes: 7,
        class_token,
        norm_eps: 1e-6,
    }
}

fn weights_of(sizes: &VitSizes) -> Weights {
    let (d, h, p) = (sizes.width, 30, sizes.patch);
    let tokens = sizes.grid() * sizes.grid() + usize::from(sizes.class_token);
    let mut all = weights(&[
        ("pos_embed", &[1, tokens, d]),
        ("patch_embed.proj.weight", &[d, sizes.channels, p, p]),
        ("patch_embed.proj.bias", &[d]),
        (&format!("{}.weight", sizes.last_norm()), &[d]),
        (&format!("{}.bias", sizes.last_norm()), &[d]),
        ("head.weight", &[sizes.classes, d]),
        ("head.bias", &[sizes.classes]),
    ]);
    if sizes.class_token {
        all.insert("cls_token".to_owned(), counting(&[1, 1, d]));
    }
    for l in 0..sizes.depth {
        for (name, (out, from)) in [
            ("attn.qkv", (3 * d, d)),
            ("attn.proj", (d, d)),
            ("mlp.fc1", (h, d)),
            ("mlp.fc2", (d, h)),
        ] {
            all.insert(format!("blocks.{l}.{name}.weight"), counting(&[out, from]));
            all.insert(format!("blocks.{l}.{name}.bias"), counting(&[out]));
        }
        for name in ["norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"] {
            all.insert(format!("blocks.{l}.{name}"), counting(&[d]));
        }
    }
    all
}

fn exported(class_token: bool, float: FloatType) -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("model.onnx");
    let metadata = Metadata::from([("label_names".to_owned(), "[]".to_owned())]);
    let sizes = sizes(class_token);
    let weights = cast(&path, &weights_of(&sizes), float).unwrap();
    let staged = stage(&path, &sizes, &weights, &metadata, float).unwrap();
    staged.commit_synced().unwrap();
    assert_eq!(names(root.path()), ["model.onnx"]);
    fs::read(&path).unwrap()
}

/// The nodes of this operator.
fn nodes(file: &[u8], operator: &str) -> Vec<Field> {
    let mut nodes = all(one(file, 7).bytes(), 1);
    nodes.retain(|node| one(node.bytes(), 4).text() == operator);
    nodes
}

fn texts(message: &[u8], field: u32) -> Vec<String> {
    all(message, field).iter().map(Field::text).collect()
}

/// Element type, name, and dimensions (0 if free) of a `ValueInfoProto`.
fn value(message: &[u8]) -> (String, i64, Vec<i64>) {
    let tensor = one(one(message, 2).bytes(), 1);
    let dims = all(one(tensor.bytes(), 2).bytes(), 1);
    let dims = dims.iter().map(|dim| match &all(dim.bytes(), 1)[..] {
        [n] => n.int(),
        _ => {
            assert_eq!(one(dim.bytes(), 2).text(), "batch");
            0
        }
    });
    let kind = one(tensor.bytes(), 1).int();
    (one(message, 1).text(), kind, dims.collect())
}

#[test]
fn the_file_says_what_it_is() {
    let file = exported(true, FloatType::F32);
    assert_eq!(one(&file, 1).int(), 8);
    assert_eq!(one(&file, 2).text(), "wave");
    let opset = one(&file, 8);
    assert_eq!(one(opset.bytes(), 2).int(), 17);
    let entry = one(&file, 14);
    assert_eq!(texts(entry.bytes(), 1), ["label_names"]);
    assert_eq!(texts(entry.bytes(), 2), ["[]"]);
    let graph = one(&file, 7);
    let expected = ("images".to_owned(), 1, vec![0, 3, 12, 12]);
    assert_eq!(value(one(graph.bytes(), 11).bytes()), expected);
    let expected = ("logits".to_owned(), 1, vec![0, 7]);
    assert_eq!(value(one(graph.bytes(), 12).bytes()), expected);
}

#[test]
fn every_node_takes_only_what_was_made_before_it_and_nothing_is_unused() {
    for class_token in [true, false] {
        let file = exported(class_token, FloatType::F32);
        let graph = one(&file, 7).bytes().to_vec();
        let mut known = BTreeSet::from(["images".to_owned()]);
        for tensor in all(&graph, 5) {
            assert!(known.insert(one(tensor.bytes(), 8).text()));
        }
        let mut used = BTreeSet::from(["logits".to_owned()]);
        let mut node_names = BTreeSet::new();
        for node in all(&graph, 1) {
            let name = one(node.bytes(), 3).text();
            for input in texts(node.bytes(), 1) {
                assert!(known.contains(&input), "{name} takes {input}");
                used.insert(input);
            }
            for output in texts(node.bytes(), 2) {
                assert!(known.insert(output.clone()), "{output} is made twice");
            }
            assert!(node_names.insert(name));
        }
        assert_eq!(known, used);
    }
}

#[test]
fn every_norm_has_the_epsilon_of_the_network() {
    let norms = nodes(&exported(true, FloatType::F32), "LayerNormalization");
    // Two norms a block and the last.
    assert_eq!(norms.len(), 5);
    for node in norms {
        let epsilon = &all(node.bytes(), 5)[1];
        assert_eq!(texts(epsilon.bytes(), 1), ["epsilon"]);
        assert_eq!(one(epsilon.bytes(), 2), Field::Float(1e-6));
    }
}

#[test]
fn weights_keep_their_names_shapes_and_values_and_block_matrices_are_transposed() {
    let file = exported(false, FloatType::F32);
    let graph = one(&file, 7).bytes().to_vec();
    let weights = weights_of(&sizes(false));
    let mut seen = 0;
    for tensor in all(&graph, 5) {
        let name = one(tensor.bytes(), 8).text();
        let timm = name.strip_suffix("_t").unwrap_or(&name);
        let Some(weight) = weights.get(timm) else {
            continue;
        };
        let expected = match name.ends_with("_t") {
            true => weight.t().unwrap(),
            false => weight.clone(),
        };
        let dims: Vec<usize> = all(tensor.bytes(), 1)
            .iter()
            .map(|dim| dim.int() as usize)
            .collect();
        assert_eq!(dims, expected.dims(), "{name}");
        let raw: Vec<f32> = one(tensor.bytes(), 9)
            .bytes()
            .chunks_exact(4)
            .map(|value| f32::from_le_bytes(value.try_into().unwrap()))
            .collect();
        let flat = expected.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(raw, flat, "{name}");
        seen += 1;
    }
    assert_eq!(seen, weights.len());
}

#[test]
fn narrow_weights_are_widened_by_a_cast() {
    for (float, number) in [(FloatType::F16, 10), (FloatType::Bf16, 16)] {
        let file = exported(true, float);
        let suffix = format!("_{float}");
        let mut narrow = BTreeSet::new();
        for tensor in all(one(&file, 7).bytes(), 5) {
            let name = one(tensor.bytes(), 8).text();
            if name.ends_with(&suffix) {
                assert_eq!(one(tensor.bytes(), 2).int(), number);
                let values: i64 = all(tensor.bytes(), 1).iter().map(Field::int).product();
                assert_eq!(one(tensor.bytes(), 9).bytes().len() as i64, 2 * values);
                narrow.insert(name);
            }
        }
        let mut widened = BTreeSet::new();
        for node in nodes(&file, "Cast") {
            let output = one(node.bytes(), 2).text();
            let input = format!("{output}{suffix}");
            assert_eq!(texts(node.bytes(), 1), [input.as_str()]);
            assert_eq!(one(one(node.bytes(), 5).bytes(), 3).int(), 1);
            widened.insert(input);
        }
        assert_eq!(narrow.len(), weights_of(&sizes(true)).len());
        assert_eq!(narrow, widened);
    }
}

#[test]
fn the_same_model_gives_the_same_bytes() {
    let float = FloatType::F32;
    assert_eq!(exported(true, float), exported(true, float));
}
