use super::*;
use crate::Network;
use crate::import;
use crate::testing::{self, assert_close};
use candle_core::Device;
use std::collections::BTreeMap;

/// A case of `make_layouts.py`: its `config.json`, and its weights under the file's names.
fn cases() -> BTreeMap<String, (Value, Weights)> {
    let text = include_str!("../../../tests/fixtures/layouts.json");
    let cases: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    let case = |about: &Value| {
        let named = serde_json::from_value(about["weights"].clone()).unwrap();
        let named: Vec<(String, Vec<usize>)> = named;
        (about["config"].clone(), testing::weights(&named))
    };
    cases
        .iter()
        .map(|(name, about)| (name.clone(), case(about)))
        .collect()
}

fn recognise(config: &Value, weights: &Weights) -> Result<(Network, Weights), ShapeError> {
    let found = in_timm(config, weights)?;
    let network = Network::recognise(&found.name, &found.args, Some(32), &found.weights)?;
    Ok((network, found.weights))
}

#[test]
fn every_layout_that_is_read_gives_the_outputs_of_transformers() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/layouts.safetensors"
    );
    let expected = candle_core::safetensors::load(path, &Device::Cpu).unwrap();
    let images = testing::images(2, 3, 32);
    let mut kinds = std::collections::BTreeSet::new();
    for (name, (config, weights)) in cases() {
        let kind = config["model_type"].as_str().unwrap();
        if !cfg!(feature = "ancestors") && ["resnet", "convnextv2"].contains(&kind) {
            continue;
        }
        kinds.insert(kind.to_owned());
        let (network, own) = recognise(&config, &weights).unwrap_or_else(|e| panic!("{name}: {e}"));
        let frozen = network.freeze(&own).unwrap();
        let found = match network.classes() {
            0 => frozen.features(&images).unwrap(),
            _ => frozen.logits(&images).unwrap(),
        };
        let want = &expected[&name];
        let largest = want
            .abs()
            .unwrap()
            .max_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap();
        // transformers' own epsilon in the last norm of a ConvNeXt is ignored.
        let tolerance = if name.starts_with("convnext") {
            1e-3
        } else {
            1e-4
        };
        assert_close(&name, &found, want, tolerance * largest.max(1.0));
    }
    for (kind, ..) in LAYOUTS {
        assert!(kinds.contains(kind), "no case of {kind}");
    }
}

/// Prefixes of training wrappers are removed; other prefixes are reported.
#[test]
fn wrappers_are_dropped_and_what_else_is_before_all_names_is_told() {
    let cases = cases();
    for (name, wrapper) in [
        ("msn", "module."),
        ("dinov2", "_orig_mod.module."),
        ("clip_tower", "model."),
        ("vit_quick", "module.model."),
    ] {
        let (config, weights) = &cases[name];
        let wrapped = weights
            .iter()
            .map(|(name, t)| (format!("{wrapper}{name}"), t.clone()));
        let (network, _) = recognise(config, &wrapped.collect()).unwrap();
        assert_eq!(network, recognise(config, weights).unwrap().0, "{name}");
    }
    let timm = crate::vit::VitShape::default().with_size(1, 64);
    let weights = testing::weights(&timm.parameters());
    let wrapped = |wrapper: &str| -> Weights {
        let all = weights.iter();
        all.map(|(name, t)| (format!("{wrapper}{name}"), t.clone()))
            .collect()
    };
    assert!(
        import(&wrapped("module."))
            .unwrap()
            .keys()
            .eq(weights.keys())
    );
    let error = Network::recognise("", &Map::new(), None, &wrapped("backbone.")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("all tensor names start with `backbone.`"),
        "{error}"
    );
}

/// No tensor is silently ignored, and no configuration value that matters.
#[test]
fn what_does_not_belong_is_refused_by_name() {
    let cases = cases();
    for (name, (config, weights)) in &cases {
        if !cfg!(feature = "ancestors") && ["resnet", "convnextv2"].contains(&name.as_str()) {
            continue;
        }
        let mut more = weights.clone();
        more.insert(
            "encoder.layer.0.other.weight".into(),
            testing::tensor("x", &[3]),
        );
        let error = recognise(config, &more).unwrap_err().to_string();
        assert!(error.contains("other.weight"), "{name}: {error}");
    }
    for (name, key, value, part) in [
        (
            "dinov2",
            "hidden_size",
            json!(48),
            "hidden_size = 48, the weights have 32",
        ),
        (
            "clip_tower",
            "num_hidden_layers",
            json!(3),
            "num_hidden_layers = 3",
        ),
        (
            "beit",
            "hidden_act",
            json!("relu"),
            "its hidden_act is \"relu\"",
        ),
        ("dinov3", "rope_theta", json!(10.0), "rope_theta"),
        ("dinov3_gated", "hidden_act", json!("gelu"), "hidden_act"),
        (
            "convnext",
            "hidden_sizes",
            json!([8, 16, 24, 32]),
            "[8,16,24,32]",
        ),
        ("convnext", "hidden_act", json!("relu"), "hidden_act"),
        ("resnet", "depths", json!([1, 1, 1, 1]), "custom sizes"),
        (
            "vit_tanh",
            "image_size",
            json!([16, 64]),
            "16 x 64 pixels; only square",
        ),
        (
            "msn",
            "image_size",
            json!([64, 16]),
            "64 x 16 pixels; only square",
        ),
        (
            "siglip_tower",
            "model_type",
            json!("siglip2_vision_model"),
            "layout is not read",
        ),
        ("beit", "model_type", json!("swinv2"), "layout is not read"),
    ] {
        let (mut config, weights) = cases[name].clone();
        config[key] = value;
        let error = recognise(&config, &weights).unwrap_err().to_string();
        assert!(error.contains(part), "{name}, {key}: {error}");
        assert!(!error.contains(",,"), "{error}");
    }
    let (config, mut weights) = cases["clip_tower"].clone();
    weights.insert(
        "visual_projection.weight".into(),
        testing::tensor("x", &[3, 3]),
    );
    let error = recognise(&config, &weights).unwrap_err().to_string();
    assert!(error.contains("projection"), "{error}");
}
