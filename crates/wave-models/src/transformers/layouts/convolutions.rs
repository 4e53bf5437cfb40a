//! transformers' ResNets and ConvNeXts under timm's names.
//!
//! transformers uses its `layer_norm_eps`, by default 1e-12, in the last norm of a ConvNeXt. Here it is
//! timm's 1e-6 everywhere, as in the training of the published networks, whose files have the default.

use super::super::rename;
use super::InTimm;
use crate::check::unsupported;
use crate::{Checked, Weights};
use serde_json::{Map, Value, json};

/// The supported `model_type`s.
pub(super) const KINDS: [&str; 3] = ["resnet", "convnext", "convnextv2"];

/// Values of `layer_norm_eps` in the last norm of a ConvNeXt that are read as 1e-6.
const LAST_EPS: [f64; 2] = [1e-6, 1e-12];

/// Registered ResNets: kind of blocks, number in each stage, name.
const RESNETS: [(&str, [usize; 4], &str); 5] = [
    ("basic", [2, 2, 2, 2], "resnet18"),
    ("basic", [3, 4, 6, 3], "resnet34"),
    ("bottleneck", [3, 4, 6, 3], "resnet50"),
    ("bottleneck", [3, 4, 23, 3], "resnet101"),
    ("bottleneck", [3, 8, 36, 3], "resnet152"),
];

/// Registered ConvNeXts: blocks in each stage, the first width, and the suffix of their name.
const CONVNEXTS: [([usize; 4], usize, &str); 10] = [
    ([2, 2, 6, 2], 40, "atto"),
    ([2, 2, 6, 2], 48, "femto"),
    ([2, 2, 6, 2], 64, "pico"),
    ([2, 2, 8, 2], 80, "nano"),
    ([3, 3, 9, 3], 96, "tiny"),
    ([3, 3, 27, 3], 96, "small"),
    ([3, 3, 27, 3], 128, "base"),
    ([3, 3, 27, 3], 192, "large"),
    ([3, 3, 27, 3], 256, "xlarge"),
    ([3, 3, 27, 3], 352, "huge"),
];

/// The network in timm's terms, if it is one of these.
pub(super) fn in_timm(kind: &str, config: &Value, weights: &Weights) -> Checked<Option<InTimm>> {
    let (usual, name): (&str, fn(&str) -> Option<String>) = match kind {
        "resnet" => ("relu", of_resnet),
        "convnext" | "convnextv2" => ("gelu", of_convnext),
        _ => return Ok(None),
    };
    let said = |key: &str| config.get(key).filter(|value| !value.is_null());
    for (key, value) in [
        ("hidden_act", json!(usual)),
        ("downsample_in_first_stage", json!(false)),
        ("downsample_in_bottleneck", json!(false)),
    ] {
        if said(key).is_some_and(|said| *said != value) {
            let what = format!("its {key} is {}; only {value} is supported", config[key]);
            let found = format!("{key} in its config.json");
            return Err(unsupported(kind, &what, &found));
        }
    }
    if let Some(eps) = said("layer_norm_eps").filter(|_| kind != "resnet")
        && eps.as_f64().is_none_or(|eps| !LAST_EPS.contains(&eps))
    {
        let what = format!(
            "its layer_norm_eps is {eps}; only 1e-6, and transformers' default 1e-12 read as 1e-6, \
             are supported"
        );
        let found = "layer_norm_eps in its config.json";
        return Err(unsupported(kind, &what, found));
    }
    let renamed = |(theirs, tensor): (&String, &candle_core::Tensor)| {
        let tensor = match theirs.contains(".grn.") {
            true => tensor.flatten_all().unwrap_or(tensor.clone()), // (1, 1, 1, c) there
            false => tensor.clone(),
        };
        (name(theirs).unwrap_or(theirs.clone()), tensor)
    };
    let weights: Weights = weights.iter().map(renamed).collect();
    let sizes = |key: &str| -> Vec<usize> {
        serde_json::from_value(config[key].clone()).unwrap_or_default()
    };
    let (depths, widths) = (sizes("depths"), sizes("hidden_sizes"));
    let mut args = Map::new();
    let name = match kind {
        "resnet" => {
            let layer = said("layer_type").and_then(Value::as_str);
            let layer = layer.unwrap_or("bottleneck");
            let last = if layer == "basic" { 512 } else { 2048 };
            let usual = widths == [last / 8, last / 4, last / 2, last];
            let mut known = RESNETS.iter().filter(|_| usual);
            let found = known.find(|(blocks, of, _)| *blocks == layer && depths == *of);
            found.map(|(.., name)| (*name).to_owned())
        }
        "convnext" if weights.contains_key("head.fc.weight") => {
            args.insert("dims".into(), json!(widths));
            args.insert("depths".into(), json!(depths));
            Some(kind.to_owned())
        }
        _ => {
            let doubled = |first: usize| [1, 2, 4, 8].map(|times| times * first);
            let mut known = CONVNEXTS.iter();
            let found = known.find(|(of, first, _)| depths == *of && widths == doubled(*first));
            found.map(|(.., end)| format!("{kind}_{end}"))
        }
    };
    let Some(name) = name else {
        let what = "it has custom sizes; only sizes registered in timm are supported (any size for \
                    a ConvNeXt with a classifier)";
        let found = "depths and hidden_sizes in its config.json";
        return Err(unsupported(kind, what, found));
    };
    Ok(Some(InTimm {
        name,
        args,
        weights,
    }))
}

fn of_resnet(name: &str) -> Option<String> {
    let outer = [
        ("resnet.embedder.embedder.convolution", "conv1"),
        ("resnet.embedder.embedder.normalization", "bn1"),
        ("classifier.1", "fc"),
    ];
    let name = match name.starts_with("embedder.") || name.starts_with("encoder.") {
        true => format!("resnet.{name}"), // without a classifier
        false => name.to_owned(),
    };
    let Some(rest) = name.strip_prefix("resnet.encoder.stages.") else {
        return rename(outer.into_iter(), &name);
    };
    let (stage, rest) = rest.split_once(".layers.")?;
    let (layer, rest) = rest.split_once('.')?;
    let stage = stage.parse::<usize>().ok()? + 1;
    if let Some(rest) = rest.strip_prefix("shortcut.") {
        let ends = [("convolution", "0"), ("normalization", "1")];
        let part = rename(ends.into_iter(), rest)?;
        return Some(format!("layer{stage}.{layer}.downsample.{part}"));
    }
    let (number, part) = rest.strip_prefix("layer.")?.split_once('.')?;
    let number = number.parse::<usize>().ok()? + 1;
    let (module, part) = part.split_once('.')?;
    let module = match module {
        "convolution" => "conv",
        "normalization" => "bn",
        _ => return None,
    };
    Some(format!("layer{stage}.{layer}.{module}{number}.{part}"))
}

fn of_convnext(name: &str) -> Option<String> {
    let mut modules = ["convnext.", "convnextv2."].into_iter();
    let inner = modules.find_map(|module| name.strip_prefix(module));
    let name = inner.unwrap_or(name);
    let outer = [
        ("embeddings.patch_embeddings", "stem.0"),
        ("embeddings.layernorm", "stem.1"),
        ("layernorm", "head.norm"),
        ("classifier", "head.fc"),
    ];
    let inner = [
        ("dwconv", "conv_dw"),
        ("layernorm", "norm"),
        ("pwconv1", "mlp.fc1"),
        ("pwconv2", "mlp.fc2"),
        ("layer_scale_parameter", "gamma"),
        ("grn", "mlp.grn"),
    ];
    let Some(rest) = name.strip_prefix("encoder.stages.") else {
        return rename(outer.into_iter(), name);
    };
    let (stage, rest) = rest.split_once('.')?;
    if let Some(rest) = rest.strip_prefix("downsampling_layer.") {
        return Some(format!("stages.{stage}.downsample.{rest}"));
    }
    let (layer, rest) = rest.strip_prefix("layers.")?.split_once('.')?;
    let part = rename(inner.into_iter(), rest)?;
    Some(format!("stages.{stage}.blocks.{layer}.{part}"))
}
