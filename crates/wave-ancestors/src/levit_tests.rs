use super::*;
use crate::testing::{self, assert_close};
use crate::{Folded, Frozen};
use candle_core::{DType, Device, Var};
use proptest::prelude::*;

fn logits(shape: &LevitShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    Folded::new(shape, weights.clone()).logits(images)
}

/// A stage of this width, depth, heads, value and hidden channels.
fn stage((width, depth, heads, value, hidden): (usize, usize, usize, usize, usize)) -> LevitStage {
    LevitStage {
        width,
        depth,
        heads,
        value,
        hidden,
    }
}

/// Widths, depths and heads of the stages, with twice as many value channels as key channels and hidden
/// channels twice the width, as in all published LeViTs.
fn published(key: usize, stages: [(usize, usize, usize); 3]) -> LevitShape {
    LevitShape {
        image_size: 224,
        channels: 3,
        stem: 4,
        key,
        stages: stages
            .iter()
            .map(|&(width, depth, heads)| stage((width, depth, heads, 2 * key, 2 * width)))
            .collect(),
        classes: 1000,
        distilled: true,
        convolutional: false,
        activation: Activation::HardSwish,
    }
}

fn levit_128s() -> LevitShape {
    published(16, [(128, 2, 4), (256, 3, 6), (384, 4, 8)])
}

fn levit_384() -> LevitShape {
    published(32, [(384, 4, 6), (512, 4, 9), (768, 4, 12)])
}

fn small() -> LevitShape {
    LevitShape {
        image_size: 64,
        channels: 1,
        stem: 3,
        key: 8,
        stages: [(32, 1, 3, 24, 96), (48, 2, 4, 16, 96)].map(stage).to_vec(),
        classes: 10,
        distilled: false,
        convolutional: false,
        activation: Activation::Silu,
    }
}

fn check_against_timm(case: &str, shape: &LevitShape, images: usize) {
    let weights = testing::weights(&shape.parameters());
    let inferred = LevitShape::infer(&weights, shape.activation);
    assert_eq!(inferred.as_ref(), Ok(shape), "{case}");
    let fused = shape.fuse(&weights).unwrap();
    let images = testing::images(images, shape.channels, shape.image_size);
    let out = logits(shape, &fused, &images).unwrap();
    assert_close(case, &out, &testing::expected(case), 1e-4);
}

#[test]
fn published_levits_agree_with_timm() {
    check_against_timm("levit_128s", &levit_128s(), 2);
    check_against_timm("levit_384", &levit_384(), 1);
}

#[test]
fn other_levits_agree_with_timm() {
    let odd_grid = LevitShape {
        image_size: 80,
        classes: 10,
        ..published(32, [(192, 4, 3), (288, 4, 5), (384, 4, 6)])
    };
    check_against_timm("levit_192_odd", &odd_grid, 3);
    let convolutional = LevitShape {
        classes: 10,
        convolutional: true,
        ..published(16, [(128, 4, 4), (256, 4, 8), (384, 4, 12)])
    };
    check_against_timm("levit_conv_128", &convolutional, 1);
    // One head, SiLU and a short stem.
    check_against_timm("levit_single_head", &small(), 3);
}

#[test]
fn the_number_of_weights_is_timms() {
    let count = |shape: &LevitShape| -> usize {
        let mut trained = shape.parameters();
        trained.retain(|(name, _)| !name.contains("running_"));
        let sizes = trained
            .iter()
            .map(|(_, dims)| dims.iter().product::<usize>());
        sizes.sum()
    };
    // timm: sum(p.numel() for p in create_model(name).parameters())
    assert_eq!(count(&levit_128s()), 7_777_058);
    assert_eq!(count(&levit_384()), 39_128_836);
}

#[test]
fn a_batch_in_chunks_is_its_images_one_by_one() {
    let shape = small();
    let weights = shape.fuse(&testing::weights(&shape.parameters())).unwrap();
    let images = testing::images(19, 1, 64);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(2)
        .build()
        .unwrap();
    let out = pool.install(|| logits(&shape, &weights, &images)).unwrap();
    for i in [0, 7, 15, 16, 18] {
        let one = logits(&shape, &weights, &images.narrow(0, i, 1).unwrap()).unwrap();
        assert_close("image", &one, &out.narrow(0, i, 1).unwrap(), 1e-5);
    }
    let none = images.narrow(0, 0, 0).unwrap();
    let none = logits(&shape, &weights, &none).unwrap();
    assert_eq!(none.dims(), [0, 10]);
}

#[test]
fn names_what_is_wrong_with_weights() {
    let weights = testing::weights(&small().parameters());
    let refused = |change: &dyn Fn(&mut Weights), parts: &[&str]| {
        let mut weights = weights.clone();
        change(&mut weights);
        let error = LevitShape::infer(&weights, Activation::Silu).unwrap_err();
        let message = error.to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    };
    let name = "stages.1.blocks.1.mlp.ln2.linear.weight";
    refused(&|w| drop(w.remove(name)), &[name, "missing"]);
    let extra = "stages.9.extra";
    refused(&|w| drop(w.insert(extra.into(), w[name].clone())), &[extra]);
    let turned = |w: &mut Weights| drop(w.insert(name.into(), w[name].t().unwrap()));
    refused(&turned, &["[96, 48], expected [48, 96]"]);
    for (dtype, found) in [
        (DType::F64, "f64, expected f32"),
        (DType::I64, "i64, expected f32"),
    ] {
        let cast = |w: &mut Weights| drop(w.insert(name.into(), w[name].to_dtype(dtype).unwrap()));
        refused(&cast, &[name, found]);
    }
    let seven = |w: &mut Weights| {
        let biases = "stages.0.blocks.0.attn.attention_biases";
        let seven = w[biases].narrow(1, 0, 7).unwrap();
        w.insert(biases.into(), seven);
    };
    refused(&seven, &["attention_biases"]);
    let error = LevitShape::infer(&weights, Activation::Relu).unwrap_err();
    assert!(error.to_string().contains("hard_swish or silu"), "{error}");

    // Other projects' counters are ignored.
    let mut more = weights.clone();
    let counter = Tensor::zeros((), DType::I64, &Device::Cpu).unwrap();
    more.insert("stem.conv1.bn.num_batches_tracked".into(), counter.clone());
    more.insert("stages.0.blocks.0.attn.attention_bias_idxs".into(), counter);
    assert_eq!(LevitShape::infer(&more, Activation::Silu), Ok(small()));
}

#[test]
fn refuses_other_images_and_gradients() {
    let shape = small();
    let weights = shape.fuse(&testing::weights(&shape.parameters())).unwrap();
    let message = |r: Result<Tensor>| r.unwrap_err().to_string();
    let wrong = logits(&shape, &weights, &testing::images(1, 3, 64));
    assert!(message(wrong).contains("expected (b, 1, 64, 64)"));
    let tracked = Var::from_tensor(&testing::images(1, 1, 64)).unwrap();
    assert!(message(logits(&shape, &weights, &tracked)).contains("no gradient"));
    let mut tracked = weights.clone();
    let weight = Var::from_tensor(&weights["stem.conv1.weight"]).unwrap();
    tracked.insert("stem.conv1.weight".into(), weight.as_tensor().clone());
    let refused = logits(&shape, &tracked, &testing::images(1, 1, 64));
    assert!(message(refused).contains("no gradient"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_shape_is_read_off_any_weights(
        side in 1usize..6, channels in 1usize..4, key in 1usize..9, classes in 1usize..5,
        stem in 3usize..5, distilled: bool, convolutional: bool,
        stages in prop::collection::vec((1usize..4, 1usize..3, 1usize..4, 1usize..6, 1usize..9), 1..4),
    ) {
        let stages = stages
            .into_iter()
            .map(stage)
            .map(|s| LevitStage { width: (8 * s.width).max(key).next_multiple_of(8), ..s })
            .collect();
        let shape = LevitShape {
            image_size: side << stem, channels, stem, key, stages, classes, distilled,
            convolutional, activation: Activation::HardSwish,
        };
        let weights = testing::weights(&shape.parameters());
        prop_assert_eq!(LevitShape::infer(&weights, Activation::HardSwish), Ok(shape.clone()));
        let out = logits(
            &shape,
            &shape.fuse(&weights).unwrap(),
            &testing::images(2, channels, shape.image_size),
        );
        let out: Vec<f32> = out.unwrap().flatten_all().unwrap().to_vec1().unwrap();
        prop_assert!(out.iter().all(|v| v.is_finite()) && out.len() == 2 * classes);
    }
}
