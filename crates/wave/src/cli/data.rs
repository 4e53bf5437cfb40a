//! `wave data`: checks data, and writes it as tar shards.

use super::arguments::DataCommand;
use crate::predict::BROKEN;
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::data::open;
use wave_run::inputs::Inputs;
use wave_run::{lock, out_dir, paths};

/// Returns the output of `--json`.
pub(super) fn data(command: DataCommand) -> Result<Value> {
    match command {
        DataCommand::Check { data } => check(&data),
        DataCommand::Pack {
            data,
            into,
            shard_mb,
        } => pack(&data, &into, shard_mb),
    }
}

/// Decodes every image of both splits. Broken ones are an error once the result is printed.
fn check(spec: &str) -> Result<Value> {
    let dataset = open(Some(spec), &Context::default())?;
    let mut out = json!({});
    let mut broken = Vec::new();
    for (name, source) in [("train", &dataset.train), ("test", &dataset.test)] {
        let report = wave_data::check(&**source, &dataset.class_names);
        out[name] = report.classes.into_iter().collect();
        if report.unlabelled > 0 {
            out[format!("{name}_unlabelled")] = report.unlabelled.into();
        }
        let describe =
            |image: &wave_data::BrokenImage| json!({ "image": image.path, "error": image.problem });
        broken.extend(report.broken.iter().map(describe));
    }
    let passed_over = dataset.passed_over;
    if passed_over.count > 0 {
        out["not_read"] = passed_over.to_string().into();
    }
    out[BROKEN] = broken.into();
    Ok(out)
}

fn pack(spec: &str, out: &Path, shard_mb: u64) -> Result<Value> {
    let context = Context::default();
    let dataset = open(Some(spec), &context)?;
    if dataset.class_names.is_empty() {
        refuse!(
            "the images of {spec} have no labels, but shards need one for each; sort them into \
             train/CLASS/ and val/CLASS/"
        );
    }
    Inputs::new(&context).place(Some(spec)).check_out(out)?;
    out_dir::check(out)?;
    lock::check_idle(out)?;
    wave_hub::prepare_out(out)?;
    let packed = wave_data::pack(&dataset, out, shard_mb.saturating_mul(1 << 20))?;
    Ok(json!({
        "out": paths::text(out),
        "shards": packed.shards.len(),
        "images": packed.images,
        "bytes": packed.bytes,
    }))
}
