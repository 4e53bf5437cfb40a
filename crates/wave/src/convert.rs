//! `wave convert`: the same weights in another layout or precision.

use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;
use wave_artefacts::layout::Layout;
use wave_artefacts::model::Model;
use wave_run::context::Context;
use wave_run::inputs::Inputs;
use wave_run::locate;
use wave_run::recipe::to_table;
use wave_run::run_dir::{self, Options, StageOutput};
use wave_run::settings::Output;

/// Writes the model in `from` to `out`, in the layout and precision of `output`. Refuses a layout that cannot hold it,
/// and an `out` that is not free. Returns the output of `--json`.
pub fn convert(from: &Path, output: &Output, out: &Path, options: &Options) -> Result<Value> {
    let context = &options.context;
    let (model, layout) = read(from, output, context)?;
    let path = locate::locate(from, context)?;
    let scalers = wave_hub::read_scalers(wave_hub::model_directory(&path), model.network.size().0)?;
    let inputs = Inputs::new(context).artefact("model", from)?;
    run_dir::fill(out, &to_table(output)?, &inputs, options, |_| {
        let result = json!({ "parameters": model.parameters(), "top1": null });
        let summary = format!("Converted with wave from {}.", from.display());
        Ok(StageOutput {
            result,
            write: Box::new(move || model.write(out, layout, scalers.as_ref(), &summary)),
        })
    })
}

/// The output of `--dry-run`.
pub fn describe(from: &Path, output: &Output, context: &Context) -> Result<String> {
    let (model, Layout { format, float }) = read(from, output, context)?;
    let (depth, width) = model.network.size();
    Ok(format!(
        "{}, {depth} layers, width {width}: {} parameters as {float:?} in the layout {format:?}\n",
        model.network.family(),
        model.parameters(),
    ))
}

fn read(from: &Path, output: &Output, context: &Context) -> Result<(Model, Layout)> {
    let model = Model::read(from, context)?;
    let layout = Layout::of(output, &model.network)?;
    Ok((model, layout))
}
