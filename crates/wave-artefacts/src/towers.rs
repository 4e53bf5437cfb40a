//! Directories with the two towers of a CLIP or SigLIP: supported formats, and the reasons to refuse others.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::path::Path;
use wave_hub::Kind;
use wave_models::refuse;
use wave_models::zero_shot::DualEncoder;

const OPEN_CLIP: &str = "open_clip_config.json";

/// The `config.json` of a directory and its CLIP or SigLIP, if there is one.
pub fn read(dir: &Path) -> Result<Option<(Value, DualEncoder)>> {
    refuse_open_clip(dir)?;
    if dir.is_file() || wave_hub::directory_kind(dir)? != Kind::Transformers {
        return Ok(None);
    }
    let config: Value = wave_hub::read_json(&dir.join("config.json"))?;
    if !DualEncoder::is_one(&config) {
        return Ok(None);
    }
    let (config, weights) = wave_hub::read_transformers(dir)?;
    let dual = DualEncoder::read(&config, &weights).with_context(|| dir.display().to_string())?;
    wave_hub::check_digests(dir)?;
    Ok(Some((config, dual)))
}

/// Refuses a directory that only open_clip can read.
pub(crate) fn refuse_open_clip(dir: &Path) -> Result<()> {
    if !dir.join("config.json").exists() && dir.join(OPEN_CLIP).exists() {
        refuse!(
            "{} is in open_clip's layout ({OPEN_CLIP}), which is not supported; use the model in \
             transformers' layout, with a config.json of model_type clip or siglip",
            dir.display()
        );
    }
    Ok(())
}

/// Refuses a CLIP or SigLIP without class names.
pub(crate) fn refuse_nameless(dir: &Path) -> Result<()> {
    let config: Value = wave_hub::read_json(&dir.join("config.json"))?;
    if !DualEncoder::is_one(&config) {
        return Ok(());
    }
    refuse!(
        "{}: model_type is {}, which needs class names; give --labels FILE with one name per line, \
         to condense or finetune with it as --ancestor, to eval or to predict",
        dir.display(),
        config["model_type"]
    )
}
