//! The part of a template directory's page that composes models in the browser.

use super::html::{escape, paragraph, script, section};
use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use candle_core::Tensor;
use half::f16;
use serde_json::{Map, Value, json};
use std::path::Path;
use wave_artefacts::templates::TemplateDir;
use wave_learngene::{Learngene, Part};
use wave_stages::record::Surface;

/// Learngenes with up to this many values are embedded in the page as f32, ...
const MOST_SINGLES: usize = 1 << 20;
/// ... up to this many as f16; larger ones are left out, so that a page stays at a few megabytes.
const MOST_HALVES: usize = 1 << 22;
/// Minimum of the largest width to which models are composed.
const WIDEST: usize = 576;

/// The first screen of a template directory's page: a size to choose, its numbers and command, a layer as the product
/// of templates and scalers, and an image to classify.
pub(super) fn composer(path: &Path, templates: &TemplateDir) -> Result<String> {
    let auxiliary = &templates.learngene.auxiliary;
    let step = auxiliary.head_width();
    let widest = WIDEST.max(2 * auxiliary.width);
    let widths: Vec<usize> = (step..=widest).step_by(step).collect();
    let own = widths.iter().position(|width| *width == auxiliary.width);
    let data = data(path, templates, &widths)?;
    let composes = data["values"] != "";
    let slider = |name: &str, least: usize, most: usize, value: usize| {
        format!(
            "<label>{name} <input id=\"composer-{name}\" type=\"range\" min=\"{least}\" max=\"{most}\" \
             value=\"{value}\"> <output id=\"composer-{name}-value\"></output></label>\n"
        )
    };
    let fact = |id: &str, name: &str| {
        format!("<div><dt>{name}</dt><dd id=\"composer-{id}\"></dd></div>\n")
    };
    let parts = Part::ALL.map(|part| format!("<option>{}</option>", escape(part.name())));
    let (depth, classes) = (2 * auxiliary.depth, auxiliary.classes);
    let side = auxiliary.image_size;
    let lead = paragraph(&format!(
        "One distillation, a vision transformer of any size: {classes} classes at {side} x {side} pixels. Choose a size."
    ));
    let size = format!(
        "{lead}<form class=\"composer\">\n{}{}</form>\n<dl class=\"facts\">\n{}{}{}</dl>\n\
         <p id=\"composer-note\"></p>\n<p class=\"command\"><code id=\"composer-command\"></code> \
         <button id=\"composer-copy\" type=\"button\">copy</button></p>\n\
         <figure><svg id=\"composer-curve\" viewBox=\"0 0 640 260\" role=\"img\" \
         aria-label=\"accuracy over parameters\"></svg></figure>\n",
        slider("depth", 1, depth, auxiliary.depth),
        slider("width", 0, widths.len() - 1, own.unwrap_or(0)),
        fact("parameters", "parameters"),
        fact("macs", "multiply-adds"),
        fact("top1", "expected top-1"),
    );
    let layer = format!(
        "<form class=\"composer\">\n{}<label>part <select id=\"composer-part\">{}</select></label>\n</form>\n\
         <div id=\"composer-terms\"></div>\n",
        slider("layer", 1, depth, 1),
        parts.concat(),
    );
    let picture = format!(
        "<p><input id=\"composer-file\" type=\"file\" accept=\"image/*\" aria-label=\"a picture\"></p>\n\
         <div class=\"picture\"><canvas id=\"composer-image\" width=\"{side}\" height=\"{side}\" hidden></canvas>\
         <ol id=\"composer-classes\"></ol></div>\n<p id=\"composer-made\"></p>\n"
    );
    let of = |title: &str, shown: bool, body: &str| {
        let section = section(title, body);
        match shown {
            true => section,
            false => format!("<div hidden>{section}</div>\n"),
        }
    };
    let classifies = composes && runs(templates);
    let body = size
        + &of("Classify a picture here", classifies, &picture)
        + &of("A layer: templates times scalers", composes, &layer);
    Ok(body + &script("composer-data", &data, include_str!("composer.js")))
}

/// True if the page's script can run models of these templates.
fn runs(templates: &TemplateDir) -> bool {
    let gene = &templates.learngene;
    let known = |name: &String| {
        let outside = [
            "cls_token",
            "pos_embed",
            "patch_embed.proj",
            "norm",
            "fc_norm",
            "head",
        ];
        let name = name.trim_end_matches(".weight").trim_end_matches(".bias");
        name.starts_with("blocks.") || outside.contains(&name)
    };
    !gene.auxiliary.distilled && gene.auxiliary.classes > 0 && gene.inherited.keys().all(known)
}

/// The data that the script needs: sizes with their expected accuracies, templates, scalers and inherited weights.
fn data(path: &Path, templates: &TemplateDir, widths: &[usize]) -> Result<Value> {
    let gene = &templates.learngene;
    let config = &templates.config;
    let (auxiliary, plan) = (&gene.auxiliary, &gene.plan);
    let surface = Surface::new(&config.accuracies);
    let size = |depth, width| -> Result<Value> {
        let shape = gene.shape(depth, width, None)?;
        let expected = surface.expected(depth, width);
        let note = match expected {
            Some((_, from)) => from.to_owned(),
            None if width > auxiliary.width => format!(
                "Wider than condensed: blocks repeat. Expect the accuracy of width {}; fine-tune to gain from the size.",
                auxiliary.width
            ),
            None => "Outside the recorded sizes.".to_owned(),
        };
        Ok(json!({
            "parameters": shape.parameter_count(),
            "multiply_adds": shape.multiply_adds(),
            "top1": expected.map(|(top1, _)| top1),
            "note": note,
        }))
    };
    let of_depth = |depth| widths.iter().map(|width| size(depth, *width)).collect();
    let sizes = (1..=2 * auxiliary.depth).map(of_depth);
    let sizes: Vec<Vec<Value>> = sizes.collect::<Result<_>>()?;
    let recorded = config.accuracies.iter().map(|row| -> Result<Value> {
        let parameters = gene.shape(row.depth, row.width, None)?.parameter_count();
        let (depth, width, top1) = (row.depth, row.width, row.top1);
        Ok(json!({ "depth": depth, "width": width, "parameters": parameters, "top1": top1 }))
    });
    let recorded: Vec<Value> = recorded.collect::<Result<_>>()?;
    let mut values: Vec<f32> = Vec::new();
    let mut put = |t: &Tensor| -> Result<Value> {
        let offset = values.len();
        values.extend(t.flatten_all()?.to_vec1::<f32>()?);
        Ok(json!({ "offset": offset, "shape": t.dims() }))
    };
    let mut level = |gene: &Learngene, depth: usize, width: usize| -> Result<Value> {
        // Once for each set, since parts may share a set.
        let sets = gene.templates.iter();
        let sets = sets.map(|(set, t)| Ok((set.clone(), put(t)?)));
        let sets: Map<String, Value> = sets.collect::<Result<_>>()?;
        let parts = gene.plan.sets.iter().map(|(part, set)| {
            let part_data = json!({
                "segments": part.segments(),
                "templates": sets[set],
                "bank": put(&gene.bank[part])?,
            });
            Ok((part.name().to_owned(), part_data))
        });
        let parts: Map<String, Value> = parts.collect::<Result<_>>()?;
        let inherited = gene.inherited.iter();
        let inherited = inherited.map(|(name, t)| Ok((name.clone(), put(t)?)));
        let inherited: Map<String, Value> = inherited.collect::<Result<_>>()?;
        Ok(json!({
            "depth": depth,
            "width": width,
            "bank_width": gene.auxiliary.width,
            "parts": parts,
            "inherited": inherited,
        }))
    };
    let smaller = gene.smaller.iter().zip(&plan.levels);
    let levels = smaller.map(|(gene, of)| level(gene, of.depth, of.width));
    let mut levels: Vec<Value> = levels.collect::<Result<_>>()?;
    levels.push(level(gene, auxiliary.depth, auxiliary.width)?); // and all larger sizes
    let half = values.len() > MOST_SINGLES;
    let bytes: Vec<u8> = match values.len() {
        n if n > MOST_HALVES => Vec::new(),
        _ if half => {
            let halves = values.iter().map(|v| f16::from_f32(*v));
            halves.flat_map(f16::to_le_bytes).collect()
        }
        _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let numbered = (0..auxiliary.classes).map(|class| format!("class {class}"));
    let labels = match config.label_names.is_empty() {
        true => numbered.collect(),
        false => config.label_names.clone(),
    };
    // The directory's name, not its local path.
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(json!({
        "name": name.to_string_lossy(),
        "template_size": plan.template_size,
        "levels": levels,
        "kronecker": plan.kronecker.name(),
        "depth_rule": gene.depth_rule.to_string(),
        "mlp_ratio": auxiliary.mlp_ratio,
        "head_width": auxiliary.head_width(),
        "norm_eps": auxiliary.norm_eps,
        "class_token": auxiliary.class_token,
        "patch": auxiliary.patch,
        "image_size": auxiliary.image_size,
        "channels": auxiliary.channels,
        "crop_pct": config.crop_pct,
        "mean": config.mean,
        "std": config.std,
        "labels": labels,
        "widths": widths,
        "sizes": sizes,
        "recorded": recorded,
        "dtype": if half { "f16" } else { "f32" },
        "values": BASE64.encode(&bytes),
    }))
}
