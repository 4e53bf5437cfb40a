//! The manifest of a cache, which identifies its ancestor, images and augmentations.

use super::rows::Format;
use crate::ancestor::{Ancestor, AncestorOutput};
use anyhow::Result;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use wave_artefacts::model::unusual;
use wave_data::Augment;
use wave_run::data::{self, Data};

/// Incremented whenever the same settings give other outputs or other files.
const FORMAT_VERSION: u32 = 2;
/// Keys for human readers, each with the key that it explains.
const NOTES: [(&str, &str); 3] = [
    ("ancestor", "ancestor_sha256"),
    ("data", "data_sha256"),
    ("labels", "labels_sha256"),
];

/// Number of class names in a note.
const SHOWN: usize = 5;

pub(super) fn manifest(format: Format, ancestor: &Ancestor, data: &Data) -> Result<Value> {
    let (own, input) = (&ancestor.transform, &data.transform);
    let (channels, side, crop) = (input.channels, input.image_size, input.crop_pct);
    let mut steps = format!("{channels} x {side} x {side}, crop_pct {crop}");
    let odd = [
        unusual(&input.interpolation),
        unusual(&input.crop_mode),
        unusual(&input.crop_offset),
    ];
    for step in odd.iter().flatten() {
        steps += &format!(", {step}");
    }
    let all: Vec<u32> = (0..data.train.len() as u32).collect();
    let mut manifest = json!({
        "format_version": FORMAT_VERSION,
        "ancestor": ancestor.describe(),
        "ancestor_sha256": ancestor.digest,
        "ancestor_input": format!("mean {:?}, std {:?}", own.mean, own.std),
        "classes": format.width,
        "data": data.spec,
        "data_sha256": data::identity(&*data.train, &all),
        "images": data.train.len(),
        "input": steps,
        "augmentation": augmentation(data),
        "view_seed": data.plan.view_seed,
        "cache_top": format.kept.map_or(json!("all"), Value::from),
    });
    if format.output == AncestorOutput::Features {
        manifest["outputs"] = json!("features");
    }
    if let Some(named) = &ancestor.named {
        manifest["labels"] = json!(few(&ancestor.label_names));
        manifest["labels_sha256"] = json!(named.digest);
        manifest["prompts"] = json!(named.prompts);
    }
    Ok(manifest)
}

/// The first few names, for human readers.
fn few(names: &[String]) -> String {
    let first = names[..names.len().min(SHOWN)].join(", ");
    match names.len() > SHOWN {
        true => format!("{first}, .. ({})", names.len()),
        false => first,
    }
}

fn is_note(key: &str) -> bool {
    NOTES.iter().any(|(note, _)| key == *note)
}

/// The digest of a manifest, without the keys for human readers.
pub(super) fn digest(manifest: &Value) -> String {
    let mut manifest = manifest.clone();
    if let Some(map) = manifest.as_object_mut() {
        map.retain(|key, _| !is_note(key));
    }
    wave_hub::sha256_hex(manifest.to_string().as_bytes())
}

/// The first difference between a manifest and the one that a run needs, if any.
pub(super) fn difference(found: &Value, wanted: &Value) -> Option<String> {
    let maps = [wanted, found].into_iter().filter_map(Value::as_object);
    let keys: BTreeSet<&String> = maps.flat_map(|map| map.keys()).collect();
    let differs = |key: &&String| !is_note(key) && found[key.as_str()] != wanted[key.as_str()];
    let describe = |key: &String| {
        let note = NOTES.iter().find(|(_, explained)| explained == key);
        let text = |manifest: &Value| match note {
            Some((note, _)) if !manifest[*note].is_null() => {
                format!("{} ({})", manifest[key], plain(&manifest[*note]))
            }
            _ => plain(&manifest[key]),
        };
        format!("{key} = {}, now {}", text(found), text(wanted))
    };
    let differing: Vec<String> = keys.into_iter().filter(differs).map(describe).collect();
    (!differing.is_empty()).then(|| differing.join("; "))
}

/// The remedy for a manifest that differs from the one that a run needs.
pub(super) fn remedy(found: &Value) -> &'static str {
    let version = found["format_version"].as_u64();
    match version.cmp(&Some(u64::from(FORMAT_VERSION))) {
        Ordering::Greater => "use the version of wave that wrote it, or a newer one",
        Ordering::Equal => "use the same settings",
        Ordering::Less => "remove it",
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "none".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The augmentation in terms of the recipe. The normalisation is included only where it determines
/// the colour of painted pixels, since the ancestor normalises images in its own way.
fn augmentation(data: &Data) -> String {
    let Augment {
        crop_padding,
        flip,
        resized_crop,
        rand_augment,
        erasing,
        mixing: _,  // refused
        repeats: _, // refused
    } = &data.plan.augment.at_first(data.plan.views);
    let parts = [
        (*crop_padding > 0).then(|| format!("crop_padding {crop_padding}")),
        flip.then(|| "flip".to_owned()),
        resized_crop.as_ref().map(|crop| format!("{crop:?}")),
        rand_augment.as_ref().map(|policy| format!("{policy:?}")),
        // As in caches that exist.
        erasing.map(|p| {
            let rest = "area: (0.02, 0.3333333333333333), aspect: 0.3, fill: Noise";
            format!("Erasing {{ probability: {p:?}, {rest} }}")
        }),
    ];
    let mut parts: Vec<String> = parts.into_iter().flatten().collect();
    if rand_augment.is_some() || erasing.is_some() {
        let t = &data.transform;
        parts.push(format!("mean {:?}, std {:?}", t.mean, t.std));
    }
    match parts.is_empty() {
        true => "none".into(),
        false => parts.join(", "),
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
