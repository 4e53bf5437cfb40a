//! The part of a template directory's page that composes models in the browser.

use super::html::{base64, escape, script, section};
use anyhow::Result;
use candle_core::Tensor;
use serde_json::{Map, Value, json};
use std::path::Path;
use wave_learngene::{Learngene, Part};
use wave_run::paths::text;
use wave_stages::budget::Surface;
use wave_stages::templates::TemplateDir;

/// Templates and scalers of more values are left out, so that a page stays at a few megabytes: the sizes
/// remain.
const MOST_VALUES: usize = 1 << 20;

/// Sliders for depth and width, what a model of that size has, and the weights of its layers.
///
/// # Errors
/// If the templates do not fit together.
pub(super) fn composer(path: &Path, templates: &TemplateDir) -> Result<String> {
    let auxiliary = &templates.learngene.auxiliary;
    let step = auxiliary.head_width();
    let widths: Vec<usize> = (step..=2 * auxiliary.width).step_by(step).collect();
    let own = widths.iter().position(|width| *width == auxiliary.width);
    let data = data(path, templates, &widths)?;
    let composes = data["values"] != "";
    let slider = |name: &str, most: usize, value: usize| {
        let least = usize::from(name == "depth");
        format!(
            "<label>{name} <input id=\"composer-{name}\" type=\"range\" min=\"{least}\" max=\"{most}\" \
             value=\"{value}\"></label>\n"
        )
    };
    let parts = Part::ALL.map(|part| format!("<option>{}</option>", escape(part.name())));
    let hidden = if composes { "" } else { " hidden" };
    let body = format!(
        "<form class=\"composer\">\n{}{}<span{hidden}>{}<label>part <select id=\"composer-part\">{}\
         </select></label></span>\n</form>\n<p id=\"composer-size\"></p>\n<pre id=\"composer-command\"></pre>\n\
         <figure{hidden}><canvas id=\"composer-canvas\"></canvas><figcaption id=\"composer-caption\">\
         </figcaption></figure>\n",
        slider("depth", 2 * auxiliary.depth, auxiliary.depth),
        slider("width", widths.len() - 1, own.unwrap_or(0)),
        slider("layer", 2 * auxiliary.depth - 1, 0),
        parts.concat(),
    );
    let code = script("composer-data", &data, include_str!("composer.js"));
    Ok(section("Models of any size", &(body + &code)))
}

/// What the script needs: sizes with their numbers and expected accuracies, templates and scalers.
fn data(path: &Path, templates: &TemplateDir, widths: &[usize]) -> Result<Value> {
    let gene = &templates.learngene;
    let (auxiliary, plan) = (&gene.auxiliary, &gene.plan);
    let surface = Surface::new(&templates.config.accuracies);
    let size = |depth, width| -> Result<Value> {
        let shape = gene.shape(depth, width, None)?;
        let expected = surface.expected(depth, width);
        Ok(json!({
            "parameters": shape.parameter_count(),
            "multiply_adds": shape.multiply_adds(),
            "top1": expected.map(|(top1, _)| top1),
            "from": expected.map(|(_, from)| from),
        }))
    };
    let of_depth = |depth| -> Result<Vec<Value>> {
        let sizes = widths.iter().map(|width| size(depth, *width));
        sizes.collect()
    };
    let sizes: Vec<Vec<Value>> = (1..=2 * auxiliary.depth)
        .map(of_depth)
        .collect::<Result<_>>()?;
    let mut values: Vec<f32> = Vec::new();
    let mut put = |t: &Tensor| -> Result<Value> {
        let offset = values.len();
        values.extend(t.flatten_all()?.to_vec1::<f32>()?);
        Ok(json!({ "offset": offset, "shape": t.dims() }))
    };
    let mut level = |gene: &Learngene, depth: usize, width: usize| -> Result<Value> {
        // Once for each set, which parts may share.
        let sets = gene.templates.iter();
        let sets: Map<String, Value> = sets
            .map(|(set, t)| Ok((set.clone(), put(t)?)))
            .collect::<Result<_>>()?;
        let parts = gene.plan.sets.iter().map(|(part, set)| {
            let part_data = json!({
                "segments": part.segments(),
                "templates": sets[set],
                "bank": put(&gene.bank[part])?,
            });
            Ok((part.name().to_owned(), part_data))
        });
        let parts: Map<String, Value> = parts.collect::<Result<_>>()?;
        Ok(
            json!({ "depth": depth, "width": width, "bank_width": gene.auxiliary.width, "parts": parts }),
        )
    };
    let smaller = gene.smaller.iter().zip(&plan.levels);
    let mut levels: Vec<Value> = smaller
        .map(|(gene, of)| level(gene, of.depth, of.width))
        .collect::<Result<_>>()?;
    levels.push(level(gene, auxiliary.depth, auxiliary.width)?); // and what is larger
    if values.len() > MOST_VALUES {
        values.clear();
    }
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Ok(json!({
        "name": text(path),
        "template_size": plan.template_size,
        "levels": levels,
        "kronecker": plan.kronecker.name(),
        "depth_rule": gene.depth_rule.to_string(),
        "mlp_ratio": auxiliary.mlp_ratio,
        "widths": widths,
        "sizes": sizes,
        "values": base64(&bytes),
    }))
}
