use super::*;
use crate::efficientnet;
use crate::levit::LevitStage;
use crate::testing;
use candle_core::DType;

fn levit() -> LevitShape {
    LevitShape {
        image_size: 32,
        channels: 3,
        stem: 4,
        key: 8,
        stages: vec![LevitStage {
            width: 16,
            depth: 2,
            heads: 2,
            value: 16,
            hidden: 32,
        }],
        classes: 5,
        distilled: true,
        convolutional: false,
        activation: Activation::HardSwish,
    }
}

fn vit() -> VitShape {
    VitShape {
        image_size: 16,
        channels: 3,
        patch: 8,
        depth: 2,
        width: 24,
        heads: 3,
        classes: 5,
        ..VitShape::default()
    }
}

fn convmixer() -> ConvMixerShape {
    ConvMixerShape {
        image_size: 28,
        channels: 3,
        patch: 7,
        depth: 2,
        width: 8,
        kernel: 3,
        classes: 5,
        activation: Activation::Relu,
        dilations: Dilations::default(),
    }
}

fn convnext() -> ConvNextShape {
    ConvNextShape {
        image_size: 28,
        channels: 3,
        patch: 7,
        depth: 2,
        stages: None,
        width: 8,
        kernel: 3,
        mlp_ratio: 4.0,
        classes: 5,
    }
}

fn efficientnet() -> EfficientNetShape {
    let stage = efficientnet::EfficientNetStage {
        width: 4,
        depth: 1,
        kernel: 3,
        expansion: 2,
    };
    EfficientNetShape {
        image_size: 32,
        channels: 3,
        stem: 4,
        stages: vec![stage; 7],
        features: 8,
        classes: 5,
        tensorflow: true,
    }
}

/// Each network with its name, which gives facts that weights do not show.
fn all() -> [(&'static str, Network); 5] {
    [
        ("vit_tiny_patch16_224", Network::Vit(vit())),
        ("convmixer_768_32.in1k", Network::ConvMixer(convmixer())),
        ("convnext_isotropic", Network::ConvNext(convnext())),
        (
            "levit_384.fb_dist_in1k",
            Network::Frozen(FrozenNetwork::Levit(levit())),
        ),
        (
            "tf_efficientnet_lite0",
            Network::Frozen(FrozenNetwork::EfficientNet(efficientnet())),
        ),
    ]
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap()
}

#[test]
fn every_network_is_recognised_and_runs() {
    for (name, network) in all() {
        let weights = testing::weights(&network.parameters());
        let (channels, side) = network.input();
        let found = Network::recognise(name, &Map::new(), Some(side), &weights).unwrap();
        assert_eq!(found, network);
        assert_eq!(found.classes(), 5);
        let frozen = found.freeze(&weights).unwrap();
        let out = frozen.logits(&testing::images(2, channels, side)).unwrap();
        let out: Vec<Vec<f32>> = out.to_vec2().unwrap();
        assert_eq!((out.len(), out[0].len()), (2, 5), "{name}");
        assert!(out.iter().flatten().all(|v| v.is_finite()), "{name}");
        assert_ne!(out[0], out[1], "{name}");
    }
}

#[test]
fn another_architecture_than_said_is_an_error() {
    for (_, network) in all() {
        let weights = testing::weights(&network.parameters());
        for (name, other) in all() {
            if other.family() == network.family() {
                continue;
            }
            let error = Network::recognise(name, &Map::new(), None, &weights).unwrap_err();
            let message = error.to_string();
            let named = message.contains(name) && message.contains(network.family());
            assert!(named, "{message}");
        }
    }
    let mut weights = Weights::new();
    let error = Network::recognise("", &Map::new(), None, &weights).unwrap_err();
    assert!(error.to_string().contains("(none)"), "{error}");
    weights.insert("fc.weight".into(), testing::tensor("fc.weight", &[2, 2]));
    for (name, expected) in [
        ("", "fc.weight"),
        ("vgg", "fc.weight"),
        ("resnet50", "a ResNet"),
    ] {
        let error = Network::recognise(name, &Map::new(), None, &weights).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_configuration_tells_dilations() {
    let weights = testing::weights(&convmixer().parameters());
    for (said, expected) in [(json!([1, 2]), "12"), (json!(2), "2"), (json!([1, 1]), "1")] {
        let args = arguments(json!({"dilation": said}));
        let found = Network::recognise("convmixer_768_32", &args, Some(28), &weights).unwrap();
        let expected = ConvMixerShape {
            dilations: Dilations::parse(expected, 2).unwrap(),
            ..convmixer()
        };
        assert_eq!(found, Network::ConvMixer(expected));
    }
}

#[test]
fn contradicting_arguments_are_an_error() {
    let all = all();
    let [vit, convmixer, convnext, levit, efficientnet] = all.each_ref().map(|(_, n)| n);
    let refused = |network: &Network, args: Value, part: &str| {
        let weights = testing::weights(&network.parameters());
        let error = Network::recognise("", &arguments(args), None, &weights).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(vit, json!({"depth": 3}), "depth = 3");
    refused(vit, json!({"class_token": false}), "class_token = false");
    refused(vit, json!({"global_pool": "avg"}), "global_pool");
    refused(vit, json!({"img_size": [32, 32]}), "img_size");
    refused(vit, json!({"act_layer": "relu"}), "relu");
    refused(vit, json!({"num_heads": 7}), "not a multiple of heads 7");
    let not_whole = "num_heads is 0, expected a whole number";
    refused(vit, json!({"num_heads": 0}), not_whole);
    refused(vit, json!({"num_heads": 1.5}), "num_heads is 1.5");
    for odd in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!("16"),
        json!([]),
        json!(1e18),
    ] {
        let part = format!("num_attention_heads is {odd}, expected a whole number");
        refused(vit, json!({"num_attention_heads": odd}), &part);
    }
    refused(convmixer, json!({"dim": 9}), "dim = 9");
    let other_depth = "a list of length 3 for 2 layers";
    refused(convmixer, json!({"dilation": [1, 2, 1]}), other_depth);
    refused(convnext, json!({"mlp_ratio": 2.0}), "mlp_ratio = 2");
    refused(levit, json!({"num_heads": [3]}), "num_heads = [3]");
    refused(levit, json!({"act_layer": "mish"}), "mish");
    refused(efficientnet, json!({"num_classes": 6}), "num_classes = 6");
    // Weights do not show these.
    refused(convmixer, json!({"global_pool": "max"}), "global_pool");
    refused(convmixer, json!({"bogus": 3}), "bogus = 3");
    refused(convnext, json!({"norm_eps": 1e-2}), "norm_eps = 0.01");
    refused(convnext, json!({"output_stride": 16}), "output_stride = 16");
    refused(levit, json!({"attn_act_layer": "silu"}), "attn_act_layer");
    refused(efficientnet, json!({"pad_type": "same"}), "pad_type");
    let usual = json!({"output_stride": 32, "pad_type": "", "global_pool": "avg", "bn_eps": null});
    let weights = testing::weights(&efficientnet.parameters());
    Network::recognise("", &arguments(usual), None, &weights).unwrap();
}

/// Their tensors do not tell activations, epsilons and paddings.
#[test]
fn names_tell_networks_of_the_same_tensors_apart() {
    let [.., (_, efficientnet)] = all();
    let lite = testing::weights(&efficientnet.parameters());
    let convnext = ConvNextShape {
        image_size: 32,
        depth: 4,
        stages: Some([1; 4]),
        mlp_ratio: 4.0,
        patch: 4,
        kernel: 7,
        ..convnext()
    };
    let stages = testing::weights(&convnext.parameters());
    let dims = json!({"dims": convnext.widths(), "depths": [1, 1, 1, 1]});
    let found = |name: &str, args: &Value, weights| {
        Network::recognise(name, &arguments(args.clone()), Some(32), weights)
    };
    let none = json!({});
    for (name, args, weights) in [
        ("tf_efficientnet_lite0", &none, &lite),
        ("tf_efficientnet_lite0", &json!({"pad_type": "same"}), &lite),
        ("efficientnet_lite0", &json!({"pad_type": ""}), &lite),
        ("convnext_tiny", &dims, &stages),
    ] {
        found(name, args, weights).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    for (name, args, weights, part) in [
        ("mnasnet_100", &none, &lite, "by its name"),
        ("efficientnet_es", &none, &lite, "by its name"),
        (
            "tf_efficientnet_lite0",
            &json!({"pad_type": ""}),
            &lite,
            "pad_type = \"\"",
        ),
        (
            "tf_efficientnet_lite0",
            &json!({"bn_eps": null}),
            &lite,
            "bn_eps is null",
        ),
        ("test_convnext3", &dims, &stages, "activation or epsilon"),
        ("convnext_xxlarge", &dims, &stages, "activation or epsilon"),
    ] {
        let error = found(name, args, weights).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
}

#[test]
fn an_argument_of_null_counts_as_absent() {
    let nulls = json!({
        "depth": null, "num_classes": null, "in_chans": null, "patch_size": null, "img_size": null,
        "class_token": null, "global_pool": null, "mlp_ratio": null, "layer_norm_eps": null,
        "dilation": null, "dim": null, "dims": null, "embed_dim": null, "num_heads": null,
    });
    for (name, network) in all() {
        let weights = testing::weights(&network.parameters());
        let (_, side) = network.input();
        let found = Network::recognise(name, &arguments(nulls.clone()), Some(side), &weights);
        assert_eq!(found, Ok(network), "{name}");
    }
}

#[test]
fn the_epsilon_of_a_plain_transformer_is_a_small_number() {
    let weights = testing::weights(&vit().parameters());
    for odd in [json!(0), json!("1e-12")] {
        let args = arguments(json!({"layer_norm_eps": odd}));
        let error = Network::recognise("", &args, None, &weights).unwrap_err();
        let part = format!("layer_norm_eps is {odd}, expected a number between 0 and 1");
        assert_eq!(error.to_string(), part);
    }
}

#[test]
fn a_convolutional_network_without_its_classifier_is_refused() {
    for (name, network) in all() {
        let mut weights = testing::weights(&network.parameters());
        let head = match network {
            Network::Frozen(FrozenNetwork::Levit(_)) => "head.linear.weight",
            Network::Frozen(FrozenNetwork::EfficientNet(_)) => "classifier.weight",
            _ => continue,
        };
        weights.remove(head);
        let error = Network::recognise(name, &Map::new(), None, &weights).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("without its classifier"), "{error}");
    }
}

#[test]
fn flat_and_transposed_tensors_are_told_their_shape() {
    let weights = testing::weights(&vit().parameters());
    for (name, dims, part) in [
        ("blocks.0.mlp.fc1.weight", vec![24, 96], "expected [96, 24]"),
        (
            "blocks.0.mlp.fc1.weight",
            vec![24 * 96],
            "expected [96, 24]",
        ),
        (
            "blocks.1.attn.qkv.weight",
            vec![24, 72],
            "expected [72, 24]",
        ),
        ("head.weight", vec![24, 5], "expected [5, 24]"),
        ("head.weight", vec![24 * 5], "expected [5, 24]"),
        (
            "patch_embed.proj.weight",
            vec![24, 192],
            "expected 4 dimensions",
        ),
        ("pos_embed", vec![5, 24], "expected 3 dimensions"),
    ] {
        let mut weights = weights.clone();
        weights.insert(name.into(), testing::tensor(name, &dims));
        let error = Network::recognise("", &Map::new(), None, &weights).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(part), "{text}");
    }
}

#[test]
fn every_hidden_size_is_the_product_of_its_ratio() {
    for width in (16..=512).step_by(2) {
        for hidden in 1..=4 * width {
            let mlp_ratio = vit::mlp_ratio(width, hidden);
            let shape = VitShape {
                width,
                mlp_ratio,
                ..vit()
            };
            assert_eq!(shape.hidden(), hidden, "width {width}");
        }
    }
}

#[test]
fn sizes_whose_products_would_overflow_are_refused() {
    let most = 1 << 20;
    let refused = |change: fn(&mut VitShape), part: &str| {
        let mut shape = vit();
        change(&mut shape);
        let error = shape.validate().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(
        |s| (s.image_size, s.patch) = (1 << 20, 1 << 11),
        "image_size^2 x channels is",
    );
    refused(
        |s| (s.image_size, s.patch) = (1 << 15, 1),
        "tokens is 1073741825; it must be at most 1048576",
    );
    refused(
        |s| (s.image_size, s.depth) = (4096, 1 << 20),
        "tokens x width x depth is",
    );
    refused(
        |s| (s.width, s.depth) = (3072, 1 << 20),
        "width^2 x depth is 9895604649984; it must be at most 1099511627776",
    );
    refused(
        |s| (s.mlp_ratio, s.depth) = (40_000.0, 1 << 20),
        "mlp_ratio x width^2 x depth is",
    );
    // ViT-22B, and a shape at three limits, are only large.
    let large = VitShape {
        image_size: 224,
        patch: 14,
        depth: 48,
        width: 6144,
        heads: 48,
        ..vit()
    };
    let limits = VitShape {
        image_size: 1 << 10,
        patch: 1,
        depth: 1 << 10,
        width: 1 << 10,
        heads: 1,
        mlp_ratio: 1024.0,
        class_token: false,
        ..vit()
    };
    for shape in [large, limits] {
        shape.validate().unwrap();
        let (weights, work) = (shape.parameter_count(), shape.multiply_adds());
        assert!(work > weights && weights > most, "{weights}, {work}");
    }
}

#[test]
fn a_rounded_mlp_ratio_agrees_with_its_hidden_channels() {
    // timm: int(56 * 2.7) = 151 hidden channels, not 151.2.
    let of_vit = Network::Vit(VitShape {
        width: 56,
        heads: 7,
        mlp_ratio: 2.7,
        ..vit()
    });
    // 21.6, rounded to 22
    let of_convnext = Network::ConvNext(ConvNextShape {
        mlp_ratio: 2.7,
        ..convnext()
    });
    for (stored, said, agrees) in [
        (&of_vit, 2.7, true),
        (&of_vit, 2.71, true),
        (&of_vit, 2.72, false),
        (&of_convnext, 2.7, true),
        (&of_convnext, 2.6, false),
    ] {
        let weights = testing::weights(&stored.parameters());
        let mut args = arguments(json!({"mlp_ratio": said}));
        if let Network::Vit(shape) = stored {
            args.insert("num_heads".into(), shape.heads.into());
        }
        let found = Network::recognise("", &args, Some(28), &weights);
        assert_eq!(found.is_ok(), agrees, "{stored:?}, {said}: {found:?}");
        if let Ok(found) = found {
            assert_eq!(found.parameters(), stored.parameters());
        }
    }
}

#[test]
fn agreeing_arguments_tell_what_weights_do_not() {
    let weights = testing::weights(&vit().parameters());
    let args = json!({
        "embed_dim": 24, "depth": 2, "num_heads": 2, "mlp_ratio": 4, "img_size": [16, 16],
        "class_token": true, "global_pool": "token", "layer_norm_eps": 1e-12,
    });
    let found = Network::recognise("", &arguments(args), None, &weights).unwrap();
    let want = VitShape {
        heads: 2,
        norm_eps: 1e-12,
        ..vit()
    };
    assert_eq!(found, Network::Vit(want));

    let weights = testing::weights(&levit().parameters());
    let args = json!({"embed_dim": [16], "depth": [2], "num_heads": [2], "key_dim": 8, "act_layer": "silu"});
    let found = Network::recognise("levit_384", &arguments(args), None, &weights).unwrap();
    let by_name = Network::recognise("levit_384_s8", &Map::new(), None, &weights).unwrap();
    let silu = |found: Network| matches!(found, Network::Frozen(FrozenNetwork::Levit(s)) if s.activation == Activation::Silu);
    assert!(silu(found) && silu(by_name));

    let weights = testing::weights(&efficientnet().parameters());
    let found = Network::recognise("efficientnet_lite3", &Map::new(), None, &weights).unwrap();
    let want = EfficientNetShape {
        image_size: 280,
        tensorflow: false,
        ..efficientnet()
    };
    assert_eq!(found, Network::Frozen(FrozenNetwork::EfficientNet(want)));
}

#[test]
fn tensors_of_other_types_and_zero_sizes_are_errors() {
    for (name, network) in all() {
        let weights = testing::weights(&network.parameters());
        for (tensor, value) in &weights {
            let refused = |other: Option<Tensor>| {
                let mut weights = weights.clone();
                weights.remove(tensor);
                weights.extend(other.map(|t| (tensor.clone(), t)));
                let found = Network::recognise(name, &Map::new(), None, &weights);
                found.expect_err(tensor).to_string()
            };
            for dtype in [DType::F64, DType::U8] {
                let message = refused(Some(value.to_dtype(dtype).unwrap()));
                let named = message.contains(tensor) && message.contains("f32");
                assert!(named, "{message}");
            }
            let empty = Tensor::zeros(vec![0; value.rank()], DType::F32, value.device());
            let scalar = Tensor::zeros((), DType::F32, value.device());
            for other in [Some(empty.unwrap()), Some(scalar.unwrap()), None] {
                refused(other);
            }
        }
    }
}
