use crate::testing::{self, assert_close};
use crate::{About, FrozenNetwork, Network};
use candle_core::{DType, Device, Tensor};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use wave_ancestors::resnet::ResNetShape;
use wave_ancestors::vgg::VggShape;

/// A case of `make_families.py`.
struct Case {
    name: String,
    args: Map<String, Value>,
    side: usize,
    parameters: Vec<(String, Vec<usize>)>,
}

fn shapes(value: &Value) -> Vec<(String, Vec<usize>)> {
    let shapes: BTreeMap<String, Vec<usize>> = serde_json::from_value(value.clone()).unwrap();
    shapes.into_iter().collect()
}

fn cases() -> BTreeMap<String, Case> {
    let text = include_str!("../tests/fixtures/families.json");
    let cases: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    let case = |value: Value| Case {
        name: value["name"].as_str().unwrap().to_owned(),
        args: value["args"].as_object().unwrap().clone(),
        side: value["side"].as_u64().unwrap() as usize,
        parameters: shapes(&value["parameters"]),
    };
    cases.into_iter().map(|(k, v)| (k, case(v))).collect()
}

fn largest(t: &Tensor) -> f32 {
    t.abs().unwrap().max_all().unwrap().to_scalar().unwrap()
}

/// Logits and features equal timm's, to within 1e-4 of the largest value.
#[track_caller]
fn check(families: &[(&str, &[&str])]) {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/families.safetensors"
    );
    let expected = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    let cases = cases();
    let close = |case: &str, found: &Tensor, want: &Tensor| {
        assert_close(case, found, want, 1e-4 * largest(want).max(1.0));
    };
    for (family, names) in families {
        for case in names.iter().copied() {
            let of = &cases[case];
            let weights = testing::weights(&of.parameters);
            let network = Network::recognise(&of.name, &of.args, Some(of.side), &weights)
                .unwrap_or_else(|e| panic!("{case}: {e}"));
            assert_eq!(network.family(), *family, "{case}");
            let mut names = network.parameters();
            names.sort();
            assert_eq!(names, of.parameters, "{case}");
            let frozen = network.freeze(&weights).unwrap();
            let images = testing::images(2, 3, of.side);
            let features = frozen.features(&images).unwrap();
            assert_eq!(features.dims(), [2, frozen.about().width], "{case}");
            let first = features.narrow(0, 0, 1).unwrap();
            close(case, &first, &expected[&format!("{case}.features")]);
            if network.classes() == 0 {
                close(case, &features, &expected[case]);
                let error = frozen.logits(&images).unwrap_err().to_string();
                assert!(error.contains("without a classifier"), "{error}");
            } else {
                assert_eq!(network.classes(), 7, "{case}");
                close(case, &frozen.logits(&images).unwrap(), &expected[case]);
            }
        }
    }
}

#[cfg(feature = "ancestors")]
#[test]
fn networks_of_candle_give_timms_outputs() {
    check(&[
        ("a ConvNeXt", &["convnext_atto", "convnext_tiny"]),
        ("a ConvNeXt V2", &["convnextv2_atto"]),
        ("a ResNet", &["resnet18", "resnet18_small", "resnet50"]),
        ("a RepVGG", &["repvgg_a0"]),
    ]);
}

#[cfg(feature = "ancestors")]
#[test]
fn mobile_networks_give_timms_outputs() {
    let v4 = ["mobilenetv4_conv_small", "mobilenetv4_hybrid_medium"];
    check(&[
        ("a MobileNetV4", &v4),
        ("a MobileOne", &["mobileone_s1"]),
        ("a FastViT", &["fastvit_t8", "fastvit_sa12"]),
    ]);
}

#[test]
fn other_networks_give_timms_outputs() {
    check(&[
        ("a VGG", &["vgg", "vgg_bn"]),
        ("an EfficientViT", &["efficientvit_m0", "efficientvit_m1"]),
        ("a Hiera", &["hiera"]),
    ]);
}

#[test]
fn transformers_give_timms_outputs() {
    let dinov2 = ["dinov2", "dinov2_headless", "dinov2_reg4", "dinov2_giant"];
    let dinov3 = ["dinov3", "dinov3_qkvb", "dinov3_plus", "dinov3_map"];
    let variants = [
        "layer_scale_qk_norm",
        "reg4_gap",
        "reg4_map",
        "no_norm",
        "rope_reg1_gap",
    ];
    check(&[
        ("a BEiT", &["beit", "beit_shared"]),
        ("a BEiT-3", &["beit3"]),
        ("an EVA", &["eva_large", "eva_giant", "eva_map"]),
        ("an EVA-02", &["eva02_tiny", "eva02_base", "eva02_clip"]),
        ("a DINOv2", &dinov2),
        ("a DINOv3", &dinov3),
        ("the tower of a CLIP", &["clip", "clip_quickgelu"]),
        (
            "the tower of a SigLIP",
            &["siglip", "siglip_tanh", "siglip_gap"],
        ),
        ("a DeiT III", &["deit3"]),
        ("a variant of the vision transformer", &variants),
    ]);
}

/// Batch norms of candle hold variables, but nothing in an ancestor trains.
#[cfg(feature = "ancestors")]
#[test]
fn outputs_keep_no_activations() {
    let cases = cases();
    for case in ["repvgg_a0", "mobileone_s1", "fastvit_t8"] {
        let of = &cases[case];
        let weights = testing::weights(&of.parameters);
        let network = Network::recognise(&of.name, &of.args, Some(of.side), &weights).unwrap();
        let frozen = network.freeze(&weights).unwrap();
        let images = testing::images(1, 3, of.side);
        for outputs in [frozen.features(&images), frozen.logits(&images)] {
            assert!(!outputs.unwrap().track_op(), "{case}");
        }
    }
}

/// A case's weights, all zero, with the shape that `change` gives each.
fn zeros(of: &Case, change: impl Fn(&str, &mut Vec<usize>)) -> crate::Weights {
    let zeros = |(name, dims): &(String, Vec<usize>)| {
        let mut dims = dims.clone();
        change(name, &mut dims);
        let zeros = Tensor::zeros(dims, DType::F32, &Device::Cpu).unwrap();
        (name.clone(), zeros)
    };
    of.parameters.iter().map(zeros).collect()
}

#[cfg(feature = "ancestors")]
#[test]
fn other_channels_than_colours_are_refused_or_work() {
    let cases = cases();
    for channels in [1, 4] {
        let recognise = |case: &str| {
            let of = &cases[case];
            let weights = zeros(of, |name, dims| {
                let first = name.contains("stem") || name == "conv1.weight";
                if first && dims.len() == 4 && dims[1] == 3 {
                    dims[1] = channels;
                }
            });
            Network::recognise(&of.name, &of.args, Some(of.side), &weights)
        };
        for (case, family) in [
            ("convnext_atto", "a ConvNeXt"),
            ("convnextv2_atto", "a ConvNeXt V2"),
            ("repvgg_a0", "a RepVGG"),
            ("mobilenetv4_conv_small", "a MobileNetV4"),
            ("mobileone_s1", "a MobileOne"),
            ("fastvit_t8", "a FastViT"),
        ] {
            let error = recognise(case).unwrap_err().to_string();
            let part = format!("in_chans is {channels}, expected 3: {family} is supported only");
            assert!(error.contains(&part), "{error}");
        }
        let resnet = recognise("resnet18_small").unwrap();
        assert_eq!(resnet.input(), (channels, 20));
    }
}

#[test]
fn images_that_do_not_divide_are_told_their_multiple() {
    let cases = cases();
    let refused = |case: &str, side: usize, positions: usize, part: &str| {
        let of = &cases[case];
        let weights = zeros(of, |name, dims| {
            if name == "pos_embed" {
                dims[1] = positions;
            }
        });
        let found = Network::recognise(&of.name, &Map::new(), Some(side), &weights);
        let error = found.expect_err(case).to_string();
        assert!(error.contains(part), "{error}");
    };
    let part = "image_size is 200, expected a multiple of 16";
    refused("efficientvit_m0", 200, 0, part);
    let part = "image_size is 36, expected a multiple of 32";
    refused("hiera", 36, 81, part);
}

#[test]
fn an_epsilon_that_is_no_small_number_is_refused() {
    let of = &cases()["dinov2"];
    let weights = testing::weights(&of.parameters);
    for odd in [json!(0), json!(-1e-6), json!(1), json!("1e-6")] {
        let mut args = of.args.clone();
        args.insert("layer_norm_eps".into(), odd.clone());
        let found = Network::recognise(&of.name, &args, Some(of.side), &weights);
        let part = format!("layer_norm_eps is {odd}, expected a number between 0 and 1");
        assert_eq!(found.unwrap_err().to_string(), part);
    }
}

#[test]
fn absurd_images_are_refused() {
    let cases = cases();
    for case in ["vgg", "resnet18_small", "efficientvit_m0"] {
        let of = &cases[case];
        let weights = testing::weights(&of.parameters);
        let found = Network::recognise(&of.name, &of.args, Some(1 << 21), &weights);
        let error = found.expect_err(case).to_string();
        let part = "image_size is 2097152; it must be at most 1048576";
        assert!(error.contains(part), "{case}: {error}");
    }
    // The memory of a network in another library is not bounded by its weights.
    let foreign = FrozenNetwork::Foreign(About {
        family: "a network",
        depth: 1,
        width: 1,
        channels: 3,
        image_size: 1 << 32,
        classes: 1,
    });
    assert_eq!(foreign.floats(), 192.0 * 2f64.powi(64));
}

#[test]
fn layers_without_channels_are_refused() {
    let vgg = VggShape {
        image_size: 16,
        channels: 3,
        convolutions: vec![(0, 0, true), (3, 8, true)],
        norms: false,
        head: (6, 5),
        classes: 2,
    };
    let resnet = |within, after| ResNetShape {
        image_size: 32,
        channels: 3,
        stem: 4,
        small: true,
        stages: vec![(1, within, after), (1, 4, 4), (1, 4, 4), (1, 4, 4)],
        bottleneck: false,
        classes: 2,
    };
    for (name, parameters, part) in [
        ("vgg11", vgg.parameters(), "channels of a convolution is 0"),
        (
            "resnet18",
            resnet(0, 4).parameters(),
            "channels within a block is 0",
        ),
        (
            "resnet18",
            resnet(4, 0).parameters(),
            "channels after a block is 0",
        ),
    ] {
        let weights = testing::weights(&parameters);
        let found = Network::recognise(name, &Map::new(), Some(32), &weights);
        let error = found.expect_err(part).to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn other_rotary_positions_are_refused_by_name() {
    let cases = cases();
    let recognise = |case: &str, key: &str, value: &Value| {
        let of = &cases[case];
        let mut args = of.args.clone();
        args.insert(key.into(), value.clone());
        let weights = testing::weights(&of.parameters);
        Network::recognise(&of.name, &args, Some(of.side), &weights)
    };
    for (case, key, value) in [
        ("eva02_tiny", "use_rot_pos_emb", json!(false)),
        ("dinov3", "use_rot_pos_emb", json!(false)),
        ("dinov3", "rope_rotate_half", json!(false)),
        ("dinov3", "rope_rotate_half", Value::Null), // timm's name implies true, and null replaces it
        ("eva02_tiny", "use_rot_pos_emb", Value::Null),
        ("eva02_base", "rope_rotate_half", json!(true)),
        ("eva02_base", "rope_temperature", json!(100)),
        ("eva_large", "use_rot_pos_emb", json!(true)),
    ] {
        let error = recognise(case, key, &value).unwrap_err().to_string();
        let part = format!("{key} = {value}");
        assert!(error.contains(&part), "no `{part}` in: {error}");
    }
    for (case, key, value) in [
        ("eva02_tiny", "use_rot_pos_emb", json!(true)),
        ("eva02_base", "rope_temperature", json!(10_000)),
        ("eva_large", "use_rot_pos_emb", json!(false)),
    ] {
        recognise(case, key, &value).unwrap_or_else(|e| panic!("{case}, {key}: {e}"));
    }
}

/// timm hands the activation to gated MLPs, where it replaces their own, and to the attention pooling.
#[test]
fn other_activations_than_those_of_the_name_are_refused() {
    let cases = cases();
    for (case, key, value) in [
        ("dinov2_giant", "act_layer", json!("gelu")),
        ("dinov2_giant", "act_layer", Value::Null),
        ("clip_quickgelu", "act_layer", Value::Null),
        ("dinov2_giant", "global_pool", json!("map")),
    ] {
        let of = &cases[case];
        let mut args = of.args.clone();
        args.insert(key.into(), value);
        let weights = testing::weights(&of.parameters);
        let error = Network::recognise(&of.name, &args, Some(of.side), &weights).unwrap_err();
        assert!(error.to_string().contains(key), "{case}: {error}");
    }
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
        assert!(largest(gradients.get(var).expect(name)) > 0.0, "{name}");
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
        let near = (difference - gradient).abs() < 0.02 * difference.abs().max(0.01);
        assert!(near, "{name}: {difference} and {gradient}");
    }
}
