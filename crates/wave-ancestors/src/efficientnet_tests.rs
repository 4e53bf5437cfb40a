use super::*;
use crate::testing::{self, assert_close};
use crate::{Folded, Frozen};
use candle_core::DType;

/// A member of the family, by widths and depths of the stages.
fn lite(widths: [usize; 7], depths: [usize; 7]) -> EfficientNetShape {
    let stages = [(3, 1), (3, 6), (5, 6), (3, 6), (5, 6), (5, 6), (3, 6)]
        .iter()
        .zip(widths.iter().zip(depths))
        .map(
            |(&(kernel, expansion), (&width, depth))| EfficientNetStage {
                width,
                depth,
                kernel,
                expansion,
            },
        )
        .collect();
    EfficientNetShape {
        image_size: 224,
        channels: 3,
        stem: 32,
        stages,
        features: 1280,
        classes: 1000,
        tensorflow: true,
    }
}

fn lite0() -> EfficientNetShape {
    lite([16, 24, 40, 80, 112, 192, 320], [1, 2, 2, 3, 3, 4, 1])
}

fn check_against_timm(case: &str, shape: &EfficientNetShape) {
    let weights = testing::weights(&shape.parameters());
    let inferred = EfficientNetShape::infer(&weights, shape.image_size, shape.tensorflow);
    assert_eq!(inferred.as_ref(), Ok(shape), "{case}");
    let fused = shape.fuse(&weights).unwrap();
    let images = testing::images(2, 3, shape.image_size);
    let out = Folded::new(shape, fused).logits(&images).unwrap();
    assert_close(case, &out, &testing::expected(case), 1e-4);
}

#[test]
fn lite_networks_agree_with_timm() {
    check_against_timm("tf_efficientnet_lite0", &lite0());
    let odd_images = EfficientNetShape {
        image_size: 75,
        classes: 10,
        ..lite([16, 24, 48, 88, 120, 208, 352], [1, 3, 3, 4, 4, 5, 1])
    };
    check_against_timm("tf_efficientnet_lite2_odd", &odd_images);
    let symmetric_padding = EfficientNetShape {
        image_size: 97,
        classes: 10,
        tensorflow: false,
        ..lite([16, 24, 40, 80, 112, 192, 320], [1, 3, 3, 4, 4, 5, 1])
    };
    check_against_timm("efficientnet_lite1", &symmetric_padding);
}

#[test]
fn the_number_of_weights_is_timms() {
    let mut trained = lite0().parameters();
    trained.retain(|(name, _)| !name.contains("running_"));
    let sizes = trained
        .iter()
        .map(|(_, dims)| dims.iter().product::<usize>());
    // timm: sum(p.numel() for p in create_model("tf_efficientnet_lite0").parameters())
    assert_eq!(sizes.sum::<usize>(), 4_652_008);
}

#[test]
fn names_what_is_wrong_with_weights() {
    let weights = testing::weights(&lite0().parameters());
    let refused = |change: &dyn Fn(&mut Weights), part: &str| {
        let mut weights = weights.clone();
        change(&mut weights);
        let error = EfficientNetShape::infer(&weights, 224, true).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    let name = "blocks.3.1.bn2.running_var";
    refused(&|w| drop(w.remove(name)), &format!("{name} is missing"));
    // A squeeze-and-excitation layer: an EfficientNet, but not a Lite one.
    let se = "blocks.1.0.se.conv_reduce.weight";
    refused(
        &|w| drop(w.insert(se.into(), w["conv_head.weight"].clone())),
        se,
    );
    let half = |w: &mut Weights| {
        let half = w["bn1.bias"].to_dtype(DType::F16).unwrap();
        w.insert("bn1.bias".into(), half);
    };
    refused(&half, "bn1.bias holds f16, expected f32");
    let fewer = |w: &mut Weights| w.retain(|name, _| !name.starts_with("blocks.6"));
    refused(&fewer, "stages is 6, expected 7");
}
