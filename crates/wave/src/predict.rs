//! `wave predict`: classification of images.

use anyhow::{Context as _, Result};
use rayon::prelude::*;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use wave_artefacts::classifier::Class;
use wave_artefacts::model::Model;
use wave_artefacts::zero_shot;
use wave_data::RawImage;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::paths::check_replaceable;
use wave_run::progress::{Report, Verbosity};
use wave_run::settings::ZeroShot;
use wave_run::terminal::{cell, column, one_line};

/// Number of classes listed per image.
const TOP: usize = 5;

/// The key of the images that could not be read, each with its error.
pub(crate) const BROKEN: &str = "broken";

/// A request to classify image files, and all images in directories.
#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)] // its subcommand already has a group of this name
pub struct Predict {
    /// Model directory or safetensors file
    pub model: PathBuf,
    /// Number of attention heads of a transformer whose config.json lacks it
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// JPEG, PNG, WebP, GIF, BMP, TIFF or PNM files, or directories of images
    #[arg(required = true)]
    pub images: Vec<PathBuf>,
    /// Also write a CSV file with one row per image: image, index, label, probability
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Class names for a CLIP or SigLIP.
    #[command(flatten)]
    pub classes: ZeroShot,
}

/// Classifies the images of a request. Returns the output of `--json`.
///
/// # Errors
/// If there is no such model, no image can be read, or logits are not finite. If only some images cannot be read,
/// they are listed under `broken`.
pub fn predict(asked: &Predict, verbosity: Verbosity, context: &Context) -> Result<Value> {
    if let Some(file) = &asked.csv {
        check_replaceable(file, "csv")?;
    }
    let (model, _) = zero_shot::open(&asked.model, asked.heads, &asked.classes, context)?;
    let images = files(&asked.images)?.into_iter().map(Picture::File);
    let result = classify(&model, images.collect(), verbosity, context)?;
    if let (Some(file), Some(predictions)) = (&asked.csv, result["predictions"].as_array()) {
        wave_hub::write_named(file, table(predictions).as_bytes())?;
    }
    Ok(result)
}

/// An image to classify.
pub enum Picture {
    /// A file.
    File(PathBuf),
    /// The content of a file, and a name for it.
    Bytes(String, Vec<u8>),
}

impl Picture {
    fn name(&self) -> String {
        match self {
            Picture::File(path) => path.display().to_string(),
            Picture::Bytes(name, _) => name.clone(),
        }
    }
}

/// [`predict`] with a model in memory.
pub fn classify(
    model: &Model,
    images: Vec<Picture>,
    verbosity: Verbosity,
    context: &Context,
) -> Result<Value> {
    let classifier = model.classifier(context)?;
    let progress = Mutex::new((Report::new("predict", 0, images.len() as u64, verbosity), 0));
    let one = |picture: &Picture| {
        let name = picture.name();
        let logits = read(picture, &name).map(|image| classifier.logits(&image));
        let (report, done) = &mut *progress.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        report.step(*done, 1, "");
        (name, logits)
    };
    let outcomes: Vec<_> = images.par_iter().map(one).collect();
    drop(progress);
    let mut predictions = Vec::new();
    let (mut broken, mut first) = (Vec::new(), None);
    for (name, outcome) in outcomes {
        match outcome {
            Ok(logits) => {
                let logits = logits.with_context(|| name.clone())?;
                predictions.push(prediction(&name, &logits, &classifier.classes(&logits)));
            }
            Err(error) => {
                broken.push(json!({ "image": name, "error": format!("{error:#}") }));
                first.get_or_insert(error);
            }
        }
    }
    if let (true, Some(error)) = (predictions.is_empty(), first) {
        return Err(error);
    }
    let mut result = json!({ "predictions": predictions });
    if !broken.is_empty() {
        result[BROKEN] = broken.into();
    }
    Ok(result)
}

/// The pixels of an image file.
fn read(picture: &Picture, name: &str) -> Result<RawImage> {
    let bytes = match picture {
        Picture::File(path) => &wave_hub::read_bytes(path)
            .map_err(|e| request(format!("cannot read the image {e}")))?,
        Picture::Bytes(_, bytes) => bytes,
    };
    Ok(wave_data::decode(bytes, name)?)
}

/// An error that names the images of a result that could not be read, if there are any.
pub fn check(result: &Value) -> Result<()> {
    let broken: Vec<&Value> = result[BROKEN].as_array().into_iter().flatten().collect();
    if broken.is_empty() {
        return Ok(());
    }
    let of_all = match result["predictions"].as_array() {
        Some(read) => format!(" of {}", broken.len() + read.len()),
        None => String::new(),
    };
    let line = |image: &&Value| {
        let (name, error) = (image["image"].as_str()?, image["error"].as_str()?);
        let line = match error.contains(name) {
            true => error.to_owned(),
            false => format!("{name}: {error}"),
        };
        Some(one_line(&line).into_owned())
    };
    let lines: Vec<String> = broken.iter().filter_map(line).collect();
    anyhow::bail!(
        "{}{of_all} images cannot be read:\n{}",
        broken.len(),
        lines.join("\n")
    )
}

/// The named files, and all images in the named directories, sorted. Each directory must contain some.
pub fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let inside = wave_data::image_files(path)?;
        if inside.is_empty() {
            refuse!(
                "the directory {} holds no image; expected JPEG, PNG, WebP, GIF, BMP, TIFF or PNM files",
                path.display()
            );
        }
        files.extend(inside);
    }
    Ok(files)
}

fn prediction(image: &str, logits: &[f32], classes: &[Class]) -> Value {
    let class = |class: &Class| {
        json!({
            "index": class.index,
            "label": class.label,
            "probability": class.probability,
        })
    };
    let top: Vec<Value> = classes.iter().take(TOP).map(class).collect();
    let first = top.first().unwrap_or(&Value::Null);
    json!({
        "image": image,
        "index": first["index"],
        "label": first["label"],
        "probability": first["probability"],
        "logits": logits,
        "top": top,
    })
}

/// Predictions as text: the most probable classes of each image, by name or number.
pub(crate) fn text(predictions: &[Value]) -> String {
    let mut text = String::new();
    for prediction in predictions {
        let top = prediction["top"].as_array().into_iter().flatten();
        let class = |class: &Value| {
            let label = class["label"].as_str().map(str::to_owned);
            let name = cell(&label.unwrap_or_else(|| class["index"].to_string()));
            (name, class["probability"].as_f64().unwrap_or(f64::NAN))
        };
        let classes: Vec<(String, f64)> = top.map(class).collect();
        let width = column(classes.iter().map(|(name, _)| name.as_str()));
        text += &one_line(prediction["image"].as_str().unwrap_or_default());
        text.push('\n');
        for (name, probability) in &classes {
            text += &format!("  {name:width$}  {:5.1} %\n", 100.0 * probability);
        }
    }
    text
}

fn table(predictions: &[Value]) -> String {
    let mut text = String::from("image,index,label,probability\n");
    for p in predictions {
        let (image, label) = (quoted(p["image"].as_str()), quoted(p["label"].as_str()));
        text += &format!("{image},{},{label},{}\n", p["index"], p["probability"]);
    }
    text
}

/// A CSV field.
fn quoted(text: Option<&str>) -> String {
    let text = text.unwrap_or_default();
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave_artefacts::classifier::ranked;

    #[test]
    fn the_most_probable_classes_come_first() {
        let labels = ["a", "b, c", "d"].map(String::from);
        let logits = [0.0, 2f32.ln(), 0.0];
        let found = prediction("x.png", &logits, &ranked(&logits, &labels));
        assert_eq!(
            (&found["index"], &found["label"]),
            (&1.into(), &"b, c".into())
        );
        let order: Vec<u64> = found["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|class| class["index"].as_u64().unwrap())
            .collect();
        assert_eq!(order, [1, 0, 2]);
        let found = [found];
        assert_eq!(
            text(&found),
            "x.png\n  b, c   50.0 %\n  a      25.0 %\n  d      25.0 %\n"
        );
        assert_eq!(
            table(&found),
            "image,index,label,probability\nx.png,1,\"b, c\",0.5\n"
        );
    }
}
