use std::collections::BTreeMap;

use super::*;
use crate::Choices;
use crate::testing::{hypernetwork, try_start};
use candle_core::{DType, Device, Var};
use wave_models::vit::VitShape;
use wave_models::vit::check_weights;

/// The network of `make_ghn3.py`.
fn target() -> VitShape {
    VitShape {
        image_size: 8,
        channels: 2,
        patch: 2,
        depth: 2,
        width: 6,
        heads: 2,
        mlp_ratio: 2.0,
        classes: 7,
        class_token: false,
        ..VitShape::default()
    }
}

/// Tensors of the fixture whose names have this prefix.
fn fixture(prefix: &str) -> Weights {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/ghn3.safetensors"
    );
    let all = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    let own = |(name, t): (String, Tensor)| Some((name.strip_prefix(prefix)?.to_owned(), t));
    all.into_iter().filter_map(own).collect()
}

#[track_caller]
fn assert_close(what: &str, got: &Tensor, want: &Tensor) {
    assert_eq!(got.dims(), want.dims(), "{what}");
    let d = (got - want).unwrap().abs().unwrap().flatten_all().unwrap();
    let d: f32 = d.max(0).unwrap().to_scalar().unwrap();
    assert!(d < 2e-5, "{what}: off by {d}");
}

#[test]
fn paths_embeddings_and_weights_are_those_of_pytorch() {
    let found = fixture("found.");
    let hyper = Hypernetwork::new(fixture("weights.")).unwrap();
    let graph = VitGraph::new(&target());
    let paths: Vec<u32> = found["paths"].flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(graph.paths, paths);
    let nodes = graphormer::embed(hyper.shape(), hyper.weights(), &graph).unwrap();
    assert_close("nodes", &nodes, &found["nodes"]);
    let predicted = hyper.predict(&target(), &mut generator(0, 0)).unwrap();
    check_weights(&predicted, &target().parameters()).unwrap();
    for (name, want) in &found {
        if let Some(got) = predicted.get(name) {
            assert_close(name, got, want);
        }
    }
    assert_eq!(predicted.len() + 2, found.len());
}

#[test]
fn the_graph_is_that_of_the_forward_pass() {
    let shape = VitShape {
        depth: 1,
        ..target()
    };
    let graph = VitGraph::new(&shape);
    let n = graph.len();
    let at = |name: &str| {
        graph
            .nodes
            .iter()
            .position(|node| node.name == name)
            .unwrap()
    };
    let path = |from: &str, to: &str| graph.paths[at(from) * n + at(to)];
    assert_eq!(n, 5 + 13 + 4);
    assert_eq!(graph.nodes[0].operation, Operation::Input);
    assert_eq!(graph.paths[at("patch_embed.proj.weight")], 1);
    assert_eq!(
        path("blocks.0.attn.qkv.weight", "blocks.0.attn.proj.weight"),
        3
    );
    // Over the sum after the patches and past attention: shorter than through it.
    assert_eq!(path("patch_embed.proj.bias", "blocks.0.norm2"), 3);
    assert_eq!(path("pos_embed", "blocks.0.norm1"), 2);
    assert_eq!(path("head.weight", "head.bias"), 1);
    // There is no way back, none from the input to the positions, and none from a node to itself.
    assert_eq!(path("head.bias", "head.weight"), 0);
    assert_eq!(graph.paths[at("pos_embed")], 0);
    assert!((0..n).all(|i| graph.paths[i * n + i] == 0));
    // Each tensor of a transformer is some node's, a norm's two are one's.
    let names: usize = graph
        .nodes
        .iter()
        .filter(|node| node.dims.is_some())
        .map(|node| 1 + usize::from(node.operation == Operation::LayerNorm))
        .sum();
    assert_eq!(names, shape.parameters().len());
    // Deep networks end at the cut-off.
    let deep = VitGraph::new(&shape.with_size(40, 6));
    assert_eq!(deep.paths.iter().max(), Some(&50));
}

#[test]
fn weights_larger_than_a_kernel_repeat_it() {
    let hyper = hypernetwork(); // 6 channels
    let shape = VitShape {
        width: 16,
        mlp_ratio: 1.0,
        ..target()
    };
    let predicted = hyper.predict(&shape, &mut generator(0, 0)).unwrap();
    let w: Vec<Vec<f32>> = predicted["blocks.1.mlp.fc1.weight"].to_vec2().unwrap();
    for i in 0..16 {
        for j in 0..16 {
            assert_eq!(w[i][j], w[i % 6][j % 6], "{i} {j}");
        }
    }
    let b: Vec<f32> = predicted["blocks.0.norm1.weight"].to_vec1().unwrap();
    assert!((0..16).all(|i| b[i] == b[i % 6] && (0.0..2.0).contains(&b[i])));
    let layers = ["0", "1"].map(|l| predicted[&format!("blocks.{l}.mlp.fc1.weight")].clone());
    let [a, b] = layers.map(|t| t.flatten_all().unwrap().to_vec1::<f32>().unwrap());
    assert_ne!(a, b);
}

#[test]
fn gradients_are_those_of_differences() {
    let hyper = hypernetwork();
    let exact: BTreeMap<String, Var> = hyper
        .weights()
        .iter()
        .map(|(name, t)| {
            let t = t.to_dtype(DType::F64).unwrap();
            (name.clone(), Var::from_tensor(&t).unwrap())
        })
        .collect();
    let tracked = |vars: &BTreeMap<String, Var>| -> Weights {
        let tensors = vars
            .iter()
            .map(|(name, v)| (name.clone(), v.as_tensor().clone()));
        tensors.collect()
    };
    let loss = |weights: &Weights| {
        let predicted = predict(hyper.shape(), weights, &target(), &mut generator(0, 0)).unwrap();
        let squares = predicted
            .values()
            .map(|t| t.sqr().unwrap().sum_all().unwrap());
        squares.reduce(|a, b| (a + b).unwrap()).unwrap()
    };
    let gradients = loss(&tracked(&exact)).backward().unwrap();
    for (name, var) in &exact {
        let gradient = gradients
            .get(var)
            .unwrap_or_else(|| panic!("{name} has no gradient"));
        // Along the gradient itself, of length 1.
        let length: f64 = gradient
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar()
            .unwrap();
        let length = length.sqrt();
        assert!(length > 0.0, "{name}");
        let at = |by: f64| -> f64 {
            let mut moved = tracked(&exact);
            let step = (gradient * (by / length)).unwrap();
            moved.insert(name.clone(), (var.as_tensor() + step).unwrap());
            loss(&moved).to_scalar().unwrap()
        };
        let slope = (at(1e-5) - at(-1e-5)) / 2e-5;
        assert!(
            (slope - length).abs() < 1e-5 * (1.0 + length),
            "{name}: {slope} {length}"
        );
    }
}

#[test]
fn names_of_running_code_are_those_of_files() {
    let moved = |(name, t): (&String, &Tensor)| {
        let place = ["centrality", "input_dist"]
            .iter()
            .any(|p| name.starts_with(p));
        (
            if place {
                format!("gnn.0.{name}")
            } else {
                name.clone()
            },
            t.clone(),
        )
    };
    let weights: Weights = hypernetwork().weights().iter().map(moved).collect();
    let hyper = Hypernetwork::new(weights).unwrap();
    assert_eq!(hyper.shape(), hypernetwork().shape());
    let mut weights = hypernetwork().weights().clone();
    weights.remove("gnn.1.ff.net.3.bias");
    let error = Hypernetwork::new(weights).unwrap_err().to_string();
    assert!(error.contains("gnn.1.ff.net.3.bias"), "{error}");
}

#[test]
fn sizes_of_the_published_ones_are_known() {
    // GHN-3-T/m8: 64 channels, 3 layers, kernels of (64, 64, 16, 16), ImageNet.
    let shape = HyperShape {
        hidden: 64,
        layers: 3,
        heads: 8,
        channels: 64,
        spatial: 16,
        classes: 1000,
        final_norm: true,
    };
    let of = |name: &str| {
        let found = shape.parameters().into_iter().find(|(n, _)| n == name);
        found.unwrap().1
    };
    // 1, 3, 8 to 56 by 8, 64 to 4080 by 16, 4096 to 8192 by 32, and 1000; one for none.
    assert_eq!(
        of("shape_enc.embed_channel.weight")[0],
        2 + 7 + 252 + 129 + 1 + 1
    );
    assert_eq!(of("shape_enc.embed_spatial.weight")[0], 11);
    assert_eq!(of("decoder.fc.0.weight"), [4 * 64 * 256, 64]);
    let small = HyperShape {
        spatial: 11,
        ..shape
    };
    assert_eq!(small.parameters()[2].1[0], 9);
}

#[test]
fn a_start_needs_a_hypernetwork_and_draws_what_it_does_not_predict() {
    let shape = VitShape {
        class_token: true,
        ..target()
    };
    let error = try_start("ghn3", &shape, &[], &Choices::default()).unwrap_err();
    assert!(error.to_string().contains("--from DIR"), "{error}");
    let choices = Choices {
        hypernetwork: Some(hypernetwork()),
        ..Choices::default()
    };
    let start = try_start("ghn3", &shape, &[], &choices).unwrap();
    check_weights(&start.weights, &shape.parameters()).unwrap();
    assert_eq!(start.cost.stored, hypernetwork().parameters());
    assert_eq!(start.cost.transferred, 0);
    let token: Vec<f32> = start.weights["cls_token"]
        .flatten_all()
        .unwrap()
        .to_vec1()
        .unwrap();
    assert!(token.iter().any(|v| *v != 0.0) && token.iter().all(|v| v.abs() < 0.2));
}
