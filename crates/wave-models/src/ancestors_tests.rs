use crate::Network;
use crate::testing::{self, assert_close};
use candle_core::{Device, Tensor};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A case of `make_families.py`.
struct Case {
    name: String,
    args: Map<String, Value>,
    side: usize,
    parameters: Vec<(String, Vec<usize>)>,
}

fn cases() -> BTreeMap<String, Case> {
    let text = include_str!("../tests/fixtures/families.json");
    let cases: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    let case = |value: Value| Case {
        name: value["name"].as_str().unwrap().to_owned(),
        args: value["args"].as_object().unwrap().clone(),
        side: value["side"].as_u64().unwrap() as usize,
        parameters: serde_json::from_value::<BTreeMap<String, Vec<usize>>>(
            value["parameters"].clone(),
        )
        .unwrap()
        .into_iter()
        .collect(),
    };
    cases.into_iter().map(|(k, v)| (k, case(v))).collect()
}

fn expected() -> std::collections::HashMap<String, Tensor> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/families.safetensors"
    );
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()
}

fn largest(t: &Tensor) -> f32 {
    let largest = t.abs().unwrap().max_all().unwrap();
    largest.to_scalar::<f32>().unwrap().max(1.0)
}

/// Logits and features equal timm's, to within 1e-4 of the largest value.
#[track_caller]
fn check(names: &[&str], family: &str) {
    let (expected, cases) = (expected(), cases());
    for case in names.iter().copied() {
        let of = &cases[case];
        let weights = testing::weights(&of.parameters);
        let network = Network::recognise(&of.name, &of.args, Some(of.side), &weights)
            .unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(network.family(), family, "{case}");
        let mut names = network.parameters();
        names.sort();
        assert_eq!(names, of.parameters, "{case}");
        let frozen = network.freeze(&weights).unwrap();
        let images = testing::images(2, 3, of.side);
        let want = &expected[&format!("{case}.features")];
        let features = frozen.features(&images).unwrap();
        assert_eq!(features.dims(), [2, frozen.about().width], "{case}");
        let first = features.narrow(0, 0, 1).unwrap();
        assert_close(case, &first, want, 1e-4 * largest(want));
        let want = &expected[case];
        match network.classes() {
            0 => {
                assert_close(case, &features, want, 1e-4 * largest(want));
                let error = frozen.logits(&images).unwrap_err().to_string();
                assert!(error.contains("without a classifier"), "{error}");
            }
            classes => {
                assert_eq!(classes, 7, "{case}");
                let logits = frozen.logits(&images).unwrap();
                assert_close(case, &logits, want, 1e-4 * largest(want));
            }
        }
    }
}

#[cfg(feature = "ancestors")]
mod of_candle {
    use super::check;

    #[test]
    fn convnexts_give_timms_outputs() {
        check(&["convnext_atto", "convnext_tiny"], "a ConvNeXt");
        check(&["convnextv2_atto"], "a ConvNeXt V2");
    }

    #[test]
    fn resnets_give_timms_outputs() {
        check(&["resnet18", "resnet18_small", "resnet50"], "a ResNet");
    }

    #[test]
    fn repvggs_give_timms_outputs() {
        check(&["repvgg_a0"], "a RepVGG");
    }

    #[test]
    fn mobile_networks_give_timms_outputs() {
        check(
            &["mobilenetv4_conv_small", "mobilenetv4_hybrid_medium"],
            "a MobileNetV4",
        );
        check(&["mobileone_s1"], "a MobileOne");
    }

    #[test]
    fn fast_vits_give_timms_outputs() {
        check(&["fastvit_t8", "fastvit_sa12"], "a FastViT");
    }
}

#[test]
fn vggs_give_timms_outputs() {
    check(&["vgg", "vgg_bn"], "a VGG");
}

#[test]
fn efficient_vits_give_timms_outputs() {
    check(&["efficientvit_m0", "efficientvit_m1"], "an EfficientViT");
}

#[test]
fn hieras_give_timms_outputs() {
    check(&["hiera"], "a Hiera");
}

#[test]
fn beits_and_evas_give_timms_outputs() {
    check(&["beit", "beit_shared"], "a BEiT");
    check(&["beit3"], "a BEiT-3");
    check(&["eva_large", "eva_giant"], "an EVA");
    check(&["eva02_tiny", "eva02_base", "eva02_clip"], "an EVA-02");
}

#[test]
fn dinos_give_timms_outputs() {
    check(
        &["dinov2", "dinov2_headless", "dinov2_reg4", "dinov2_giant"],
        "a DINOv2",
    );
    check(&["dinov3", "dinov3_qkvb", "dinov3_plus"], "a DINOv3");
}

#[test]
fn towers_give_timms_outputs() {
    check(&["clip", "clip_quickgelu"], "the tower of a CLIP");
    check(
        &["siglip", "siglip_tanh", "siglip_gap"],
        "the tower of a SigLIP",
    );
}

#[test]
fn variants_of_transformers_give_timms_outputs() {
    check(&["deit3"], "a DeiT III");
    let variants = ["layer_scale_qk_norm", "reg4_gap", "rope_reg1_gap"];
    check(&variants, "a variant of the vision transformer");
}

/// A transformer with LayerScale and registers gives the same outputs in the forward pass used for training,
/// and the gradient of its scales matches finite differences.
#[test]
fn a_variant_that_trains_has_gradients() {
    let of = &cases()["dinov2_reg4"];
    let weights = testing::weights(&of.parameters);
    let network = Network::recognise(&of.name, &of.args, Some(of.side), &weights).unwrap();
    assert!(network.trainable());
    let images = testing::images(2, 3, of.side);
    let prepared = network.prepare(&weights).unwrap();
    let frozen = network.freeze(&weights).unwrap();
    let logits = network.logits(&prepared, &images).unwrap();
    assert_close("logits", &logits, &frozen.logits(&images).unwrap(), 1e-5);

    let loss = |weights: &crate::Weights| {
        let logits = network.logits(weights, &images).unwrap();
        logits.sqr().unwrap().sum_all().unwrap()
    };
    let vars: BTreeMap<String, candle_core::Var> = prepared
        .iter()
        .map(|(name, t)| (name.clone(), candle_core::Var::from_tensor(t).unwrap()))
        .collect();
    let tracked = vars.iter().map(|(n, v)| (n.clone(), v.as_tensor().clone()));
    let gradients = wave_ops::backward(&loss(&tracked.collect())).unwrap();
    for (name, var) in &vars {
        let gradient = gradients
            .get(var)
            .unwrap_or_else(|| panic!("{name} has no gradient"));
        assert!(largest_of(gradient) > 0.0, "{name}");
    }
    for name in ["blocks.ls1.gamma", "blocks.ls2.gamma"] {
        let at = |step: f32| {
            let mut values: Vec<f32> = prepared[name].flatten_all().unwrap().to_vec1().unwrap();
            values[5] += step;
            let moved = Tensor::from_vec(values, prepared[name].dims(), &Device::Cpu).unwrap();
            let mut weights = prepared.clone();
            weights.insert(name.into(), moved);
            loss(&weights).to_scalar::<f32>().unwrap()
        };
        let difference = (at(0.02) - at(-0.02)) / 0.04;
        let gradient = gradients.get(&vars[name]).unwrap().flatten_all().unwrap();
        let gradient = gradient.to_vec1::<f32>().unwrap()[5];
        let most = 0.02 * difference.abs().max(0.01);
        assert!(
            (difference - gradient).abs() < most,
            "{name}: {difference} and {gradient}"
        );
    }
}

fn largest_of(t: &Tensor) -> f32 {
    t.abs().unwrap().max_all().unwrap().to_scalar().unwrap()
}
