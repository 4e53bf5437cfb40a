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
        let largest = want.abs().unwrap().max_all().unwrap();
        let largest = largest.to_scalar::<f32>().unwrap().max(1.0);
        // transformers' own epsilon in the last norm of a ConvNeXt is ignored.
        let tolerance = [1e-4, 1e-3][usize::from(name.starts_with("convnext"))];
        assert_close(&name, &found, want, tolerance * largest);
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
    let unwrapped = import(&wrapped("module.")).unwrap();
    assert!(unwrapped.keys().eq(weights.keys()));
    let error = Network::recognise("", &Map::new(), None, &wrapped("backbone.")).unwrap_err();
    let told = "all tensor names start with `backbone.`";
    assert!(error.to_string().contains(told), "{error}");
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
    let refused = |name: &str, key: &str, value: Value, part: &str| {
        let (mut config, weights) = cases[name].clone();
        config[key] = value;
        let error = recognise(&config, &weights).unwrap_err().to_string();
        assert!(error.contains(part), "{name}, {key}: {error}");
        assert!(!error.contains(",,"), "{error}");
    };
    let hidden = "hidden_size = 48, the weights have 32";
    refused("dinov2", "hidden_size", json!(48), hidden);
    let layers = "num_hidden_layers";
    refused("clip_tower", layers, json!(3), "num_hidden_layers = 3");
    let act = "hidden_act";
    refused("beit", act, json!("relu"), "its hidden_act is \"relu\"");
    refused("dinov3", "rope_theta", json!(10.0), "rope_theta");
    refused("dinov3_gated", act, json!("gelu"), act);
    let sizes = json!([8, 16, 24, 32]);
    refused("convnext", "hidden_sizes", sizes, "[8,16,24,32]");
    refused("convnext", act, json!("relu"), act);
    let eps = "layer_norm_eps";
    refused("convnext", eps, json!(1e-3), "layer_norm_eps is 0.001");
    let heads = "num_attention_heads";
    refused("dinov2", heads, json!(0), "num_attention_heads is 0");
    refused("resnet", "depths", json!([1, 1, 1, 1]), "custom sizes");
    for (name, sides) in [("vit_tanh", [16, 64]), ("msn", [64, 16])] {
        let part = format!("{} x {} pixels; only square", sides[0], sides[1]);
        refused(name, "image_size", json!(sides), &part);
    }
    let siglip2 = json!("siglip2_vision_model");
    refused("siglip_tower", "model_type", siglip2, "layout is not read");
    refused("beit", "model_type", json!("swinv2"), "layout is not read");
    let (config, mut weights) = cases["clip_tower"].clone();
    weights.insert(
        "visual_projection.weight".into(),
        testing::tensor("x", &[3, 3]),
    );
    let error = recognise(&config, &weights).unwrap_err().to_string();
    assert!(error.contains("projection"), "{error}");
}
