//! Pretrained models and licences behind an artefact, for its card: `origin` in the provenance of each
//! artefact, passed on by every stage.
//!
//! ```json
//! "origin": { "base_models": ["OWNER/NAME"], "licenses": ["apache-2.0", null] }
//! ```
//!
//! An unknown licence is `null`. Without a pretrained model, `origin` itself is `null`.

use serde_json::{Value, json};
use std::path::Path;
use wave_hub::{CardFront, CardResult};
use wave_run::context::Context;
use wave_run::locate;

/// The hub's name of a built-in data set, if it has one.
fn on_hub(spec: &str) -> Option<String> {
    (spec == "fashion-mnist").then(|| "zalando-datasets/fashion_mnist".to_owned())
}

/// The origin of an artefact made from `source`, whose provenance is given (null if it is from
/// another project).
///
/// Its licence is the one on its card or in its `config.json`, or else that of its own origin.
pub fn of(source: &Path, provenance: &Value, context: &Context) -> Value {
    let name = locate::repository(source);
    let stated = locate::locate(source, context)
        .ok()
        .and_then(|path| wave_hub::stated_license(wave_hub::model_directory(&path)));
    let inherited = &provenance["origin"];
    if !provenance.is_null() && name.is_none() && stated.is_none() {
        return inherited.clone();
    }
    let or = |own: Option<String>, key: &str, unknown: Value| match own {
        Some(own) => json!([own]),
        None if inherited[key].is_array() => inherited[key].clone(),
        None => unknown,
    };
    json!({
        "base_models": or(name, "base_models", json!([])),
        "licenses": or(stated, "licenses", json!([null])),
    })
}

/// The origin of an artefact made from a trained model of unknown origin.
pub fn unknown() -> Value {
    json!({ "base_models": [], "licenses": [null] })
}

/// The origin of an artefact made from two others.
pub fn both(a: &Value, b: &Value) -> Value {
    if a.is_null() || b.is_null() {
        return if a.is_null() { b } else { a }.clone();
    }
    let joined = |key: &str| {
        let mut all: Vec<&Value> = Vec::new();
        for value in [a, b].iter().filter_map(|o| o[key].as_array()).flatten() {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        json!(all)
    };
    json!({ "base_models": joined("base_models"), "licenses": joined("licenses") })
}

/// A card with the licence, base model and data sets of the provenance; its text says why a licence is unknown.
pub fn card(front: CardFront, provenance: &Value, title: &str, body: &str) -> String {
    let origin = &provenance["origin"];
    let license = license(origin);
    let body = match &license {
        Ok(_) => body.to_owned(),
        Err(why) => format!("{}\n\n{NO_LICENCE} {why}\n", body.trim_end()),
    };
    let mut front = CardFront {
        license: license.ok(),
        base_model: origin["base_models"][0].as_str().map(str::to_owned),
        datasets: datasets(provenance),
        ..front
    };
    if let (Some(accuracy), Some(name)) =
        (provenance["top1"].as_f64(), provenance["top1_of"].as_str())
    {
        front.results.push(CardResult {
            dataset: dataset(provenance),
            name: format!("top-1 of {name}"),
            accuracy,
        });
    }
    wave_hub::model_card(&front, title, &body)
}

/// Opening words of the line about an unknown licence.
const NO_LICENCE: &str = "The licence is not stated:";

/// The licence, or the reason why it is unknown.
fn license(origin: &Value) -> Result<String, String> {
    let Some(licenses) = origin["licenses"].as_array() else {
        return Err(
            "these weights derive from no other trained model, so the publisher chooses one (`wave \
             publish --license`)."
                .into(),
        );
    };
    let known: Vec<&str> = licenses.iter().filter_map(Value::as_str).collect();
    match known[..] {
        [one] if licenses.len() == 1 => Ok(one.into()),
        _ if known.len() < licenses.len() => {
            let bases = origin["base_models"].as_array().into_iter().flatten();
            let names: Vec<&str> = bases.filter_map(Value::as_str).collect();
            let of = match names[..] {
                [] => "a model without a known licence".into(),
                _ => format!("{}, whose card names no licence", names.join(", ")),
            };
            Err(format!(
                "these weights derive from {of}. Ask its authors before redistributing them."
            ))
        }
        _ => Err(format!(
            "these weights derive from models under {}.",
            known.join(" and ")
        )),
    }
}

/// The data set of a stage: by its name on the hub, or its name here.
pub(crate) fn dataset(provenance: &Value) -> String {
    let spec = provenance["data"].as_str().unwrap_or("unknown");
    on_hub(spec).unwrap_or_else(|| spec.to_owned())
}

/// Training data of a model and of the models it started from, by its names on the hub.
fn datasets(provenance: &Value) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut stage = provenance;
    while stage.is_object() {
        let spec = stage["data"].as_str().unwrap_or_default();
        if let Some(name) = on_hub(spec).or_else(|| locate::repository(Path::new(spec)))
            && !all.contains(&name)
        {
            all.push(name);
        }
        stage = &stage["start"];
    }
    all
}

/// A card as published on the hub: it loads by the repository's name, with a licence if given.
pub fn published(card: &str, repo: &str, license: Option<&str>) -> String {
    let download = format!("hf download {repo} --local-dir templates\npython templates/");
    let pretrained = format!("from_pretrained(\"{repo}\")");
    let card = card
        .replace("local-dir:DIR", &format!("hf-hub:{repo}"))
        .replace("wave expand DIR", &format!("wave expand hf:{repo}"))
        .replace("python DIR/", &download)
        .replace("from_pretrained(\"DIR\")", &pretrained);
    let Some(license) = license else {
        return card;
    };
    let kept = card.lines().filter(|line| !line.starts_with(NO_LICENCE));
    let card: String = kept.map(|line| format!("{line}\n")).collect();
    wave_hub::with_license(&card, license)
}

/// A card that shows its picture below the title, unless it already does.
pub fn illustrated(card: &str) -> String {
    let picture = wave_hub::PICTURE_FILE;
    match card.split_once("\n# ") {
        Some((head, rest)) if !card.contains(picture) => {
            let (title, body) = rest.split_once('\n').unwrap_or((rest, ""));
            format!("{head}\n# {title}\n\n![]({picture})\n{body}")
        }
        _ => card.to_owned(),
    }
}

#[cfg(test)]
#[path = "origin_tests.rs"]
mod tests;
