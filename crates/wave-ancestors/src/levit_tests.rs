use super::*;
use crate::testing::{self, assert_close};
use crate::{Folded, Frozen};
use candle_core::{DType, Device, Var};
use proptest::prelude::*;

fn logits(shape: &LevitShape, weights: &Weights, images: &Tensor) -> Result<Tensor> {
    Folded::new(shape, weights.clone()).logits(images)
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
            .map(|&(width, depth, heads)| LevitStage {
                width,
                depth,
                heads,
                value: 2 * key,
                hidden: 2 * width,
            })
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
        stages: [(32, 1, 3, 24, 96), (48, 2, 4, 16, 96)]
            .map(|(width, depth, heads, value, hidden)| LevitStage {
                width,
                depth,
                heads,
                value,
                hidden,
            })
            .to_vec(),
        classes: 10,
        distilled: false,
        convolutional: false,
        activation: Activation::Silu,
    }
}

fn check_against_timm(case: &str, shape: &LevitShape, images: usize) {
    let weights = testing::weights(&shape.parameters());
    assert_eq!(
        LevitShape::infer(&weights, shape.activation).as_ref(),
        Ok(shape),
        "{case}"
    );
    let fused = shape.fuse(&weights).unwrap();
    let images = testing::images(images, shape.channels, shape.image_size);
    let out = logits(shape, &fused, &images).unwrap();
    assert_close(case, &out, &testing::expected(case), 1e-4);
}

#[test]
fn levit_128s_agrees_with_timm() {
    check_against_timm("levit_128s", &levit_128s(), 2);
}

#[test]
fn levit_384_agrees_with_timm() {
    check_against_timm("levit_384", &levit_384(), 1);
}

#[test]
fn odd_token_grids_agree_with_timm() {
    let shape = LevitShape {
        image_size: 80,
        classes: 10,
        ..published(32, [(192, 4, 3), (288, 4, 5), (384, 4, 6)])
    };
    check_against_timm("levit_192_odd", &shape, 3);
}

#[test]
fn convolutional_weights_agree_with_timm() {
    let shape = LevitShape {
        classes: 10,
        convolutional: true,
        ..published(16, [(128, 4, 4), (256, 4, 8), (384, 4, 12)])
    };
    check_against_timm("levit_conv_128", &shape, 1);
}

#[test]
fn one_head_silu_and_a_short_stem_agree_with_timm() {
    check_against_timm("levit_single_head", &small(), 3);
}

#[test]
fn the_number_of_weights_is_timms() {
    let count = |shape: &LevitShape| -> usize {
        let parameters = shape.parameters().into_iter();
        parameters
            .filter(|(name, _)| !name.contains("running_"))
            .map(|(_, dims)| dims.iter().product::<usize>())
            .sum()
    };
    // timm: sum(p.numel() for p in create_model(name).parameters())
    assert_eq!(count(&levit_128s()), 7_777_058);
    assert_eq!(count(&levit_384()), 39_128_836);
}

#[test]
fn attention_biases_follow_the_distance() {
    let stored = Tensor::arange(0u32, 9, &Device::Cpu).unwrap();
    let stored = stored.reshape((1, 9)).unwrap();
    let found = fold::biases_by_distance(&stored, 3, 2).unwrap();
    // Queries at the corners; the index is 3 |dy| + |dx| for each of the nine keys.
    let want: [[u32; 9]; 4] = [
        [0, 1, 2, 3, 4, 5, 6, 7, 8],
        [2, 1, 0, 5, 4, 3, 8, 7, 6],
        [6, 7, 8, 3, 4, 5, 0, 1, 2],
        [8, 7, 6, 5, 4, 3, 2, 1, 0],
    ];
    assert_eq!(found.to_vec3::<u32>().unwrap()[0], want);
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
    assert_eq!(
        logits(&shape, &weights, &images.narrow(0, 0, 0).unwrap())
            .unwrap()
            .dims(),
        [0, 10]
    );
}

#[test]
fn names_what_is_wrong_with_weights() {
    let weights = testing::weights(&small().parameters());
    let infer = |change: &dyn Fn(&mut Weights)| {
        let mut weights = weights.clone();
        change(&mut weights);
        LevitShape::infer(&weights, Activation::Silu)
            .unwrap_err()
            .to_string()
    };
    let name = "stages.1.blocks.1.mlp.ln2.linear.weight";
    let message = infer(&|w| drop(w.remove(name)));
    assert!(
        message.contains(name) && message.contains("missing"),
        "{message}"
    );
    let message = infer(&|w| drop(w.insert("stages.9.extra".into(), w[name].clone())));
    assert!(message.contains("stages.9.extra"), "{message}");
    let message = infer(&|w| drop(w.insert(name.into(), w[name].t().unwrap())));
    assert!(message.contains("[96, 48], expected [48, 96]"), "{message}");
    for (dtype, found) in [(DType::F64, "f64"), (DType::I64, "i64")] {
        let message = infer(&|w| drop(w.insert(name.into(), w[name].to_dtype(dtype).unwrap())));
        assert!(
            message.contains(name) && message.contains(&format!("{found}, expected f32")),
            "{message}"
        );
    }
    let message = infer(&|w| {
        let biases = "stages.0.blocks.0.attn.attention_biases";
        let seven = w[biases].narrow(1, 0, 7).unwrap();
        w.insert(biases.into(), seven);
    });
    assert!(message.contains("attention_biases"), "{message}");
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
            .map(|(width, depth, heads, value, hidden)| LevitStage {
                width: (8 * width).max(key), depth, heads, value, hidden,
            })
            .map(|s| LevitStage { width: s.width.next_multiple_of(8), ..s })
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
