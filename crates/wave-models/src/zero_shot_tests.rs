use super::*;
use crate::ShapeError;
use serde_json::{Value, json};

const HEADS: &str = "num_attention_heads";
const FIXTURES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/fixtures/zero_shot"
);

/// `config.json` and weights of a case of `make_zero_shot.py`.
fn case(name: &str) -> (Value, Weights) {
    let config = std::fs::read(format!("{FIXTURES}/{name}/config.json")).unwrap();
    let file = format!("{FIXTURES}/{name}/model.safetensors");
    let weights = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    (
        serde_json::from_slice(&config).unwrap(),
        weights.into_iter().collect(),
    )
}

fn dual(name: &str) -> DualEncoder {
    let (config, weights) = case(name);
    DualEncoder::read(&config, &weights).unwrap()
}

#[test]
fn sizes_and_ends_are_read() {
    for (name, end, embedding) in [
        ("clip", EndOfText::Token(106), 12),
        ("clip_gelu", EndOfText::Largest, 12),
        ("siglip", EndOfText::Last, 16),
    ] {
        let (config, weights) = case(name);
        let dual = DualEncoder::read(&config, &weights).unwrap();
        assert_eq!(dual.text.end, end, "{name}");
        assert_eq!(dual.images.embedding, embedding, "{name}");
        assert_eq!(dual.images.tower.image_size, 32);
        assert_eq!((dual.images.tower.depth, dual.text.blocks.depth), (2, 2));
        let all = weights.iter().filter(|(n, _)| !n.ends_with("position_ids"));
        let count: usize = all.map(|(_, t)| t.elem_count()).sum();
        assert_eq!(dual.parameters(), count, "{name}");
        let classes = Tensor::ones((3, embedding), candle_core::DType::F32, &Device::Cpu).unwrap();
        let (network, weights) = dual.classifier(&classes).unwrap();
        let mut names: Vec<_> = network.parameters().into_iter().map(|(n, _)| n).collect();
        names.sort();
        assert_eq!(names, weights.keys().cloned().collect::<Vec<_>>());
    }
}

/// Tokens after the end of a text have no effect in CLIP, and an effect in SigLIP.
#[test]
fn only_what_is_before_the_end_of_a_text_counts() {
    let tower = dual("clip").texts(&Device::Cpu).unwrap();
    let (short, long) = (vec![105, 5, 6, 106], vec![105, 5, 6, 106, 40, 41, 42]);
    let both = tower.embed(&[short.clone(), long]).unwrap();
    let alone = tower.embed(&[short]).unwrap();
    let difference = (both.broadcast_sub(&alone)).unwrap().abs().unwrap();
    assert!(difference.max_all().unwrap().to_scalar::<f32>().unwrap() < 1e-6);

    let tower = dual("siglip").texts(&Device::Cpu).unwrap();
    let mut other = vec![1; 24];
    other[23] = 7;
    let both = tower.embed(&[vec![1; 24], other]).unwrap();
    let rows = both.to_vec2::<f32>().unwrap();
    assert!((rows[0][0] - rows[1][0]).abs() > 1e-3, "{rows:?}");
    assert!(tower.embed(&[vec![1; 5]]).is_err()); // not padded
}

#[test]
fn texts_that_do_not_fit_are_errors() {
    let tower = dual("clip").texts(&Device::Cpu).unwrap();
    for (text, part) in [
        (vec![], "no end"),
        (vec![105, 5], "no end"),
        (vec![106; 21], "21 tokens"),
        (vec![105, 107, 106], "token 107"),
    ] {
        let error = tower.embed(&[text]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn what_contradicts_or_is_missing_is_named() {
    let (config, weights) = case("clip");
    let read = |config: &Value, weights: &Weights| -> ShapeError {
        DualEncoder::read(config, weights).unwrap_err()
    };
    for (path, value, part) in [
        ("/model_type", json!("siglip2"), "siglip2"),
        ("/vision_config/image_size", json!(64), "image_size"),
        ("/text_config/vocab_size", json!(108), "vocab_size"),
        ("/projection_dim", json!(13), "projection_dim"),
        ("/text_config/hidden_act", json!("relu"), "relu"),
        ("/text_config/num_attention_heads", json!(5), HEADS),
        ("/text_config/num_attention_heads", json!(0), HEADS),
        ("/text_config/layer_norm_eps", json!("no"), "layer_norm_eps"),
        ("/text_config/eos_token_id", json!(-1), "eos_token_id"),
    ] {
        let mut other = config.clone();
        *other.pointer_mut(path).unwrap() = value;
        let error = read(&other, &weights).to_string();
        assert!(error.contains(part), "{path}: {error}");
    }
    for part in [
        "logit_scale",
        "visual_projection",
        "layers.1.mlp.fc2.bias",
        "patch_embedding",
    ] {
        let mut fewer = weights.clone();
        fewer.remove(weights.keys().find(|name| name.contains(part)).unwrap());
        let error = read(&config, &fewer).to_string();
        assert!(error.contains(part) && error.contains("missing"), "{error}");
    }
    let mut more = weights.clone();
    let odd = "vision_model.encoder.layers.0.extra".to_owned();
    more.insert(odd.clone(), weights["text_projection.weight"].clone());
    assert_eq!(read(&config, &more), ShapeError::Unexpected(odd));
}

/// For keys that an old file has twice, `text_config_dict` wins; missing keys take transformers' defaults.
#[test]
fn configurations_of_older_files_are_read() {
    let (mut config, weights) = case("clip");
    let old = json!({"num_attention_heads": 4, "hidden_act": "gelu", "layer_norm_eps": 1e-6});
    config["text_config_dict"] = old;
    let dual = DualEncoder::read(&config, &weights).unwrap();
    assert_eq!(dual.text.blocks.heads, 4);
    assert_eq!(dual.text.blocks.norm_eps, 1e-6);
    assert_eq!(dual.text.end, EndOfText::Token(49407));
    config["text_config_dict"] = Value::Null;
    config["text_config"] = json!({});
    let dual = DualEncoder::read(&config, &weights).unwrap();
    assert_eq!(dual.text.blocks.heads, 8);
    assert_eq!(dual.text.blocks.norm_eps, 1e-5);
}
