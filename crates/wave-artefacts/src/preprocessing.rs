//! The preprocessing of a model's images: read from its files, adapted to its network.

use anyhow::Result;
use serde_json::Value;
use std::path::Path;
use wave_data::Transform;
use wave_hub::{FLOOR, Kind, ModelConfig, Preprocessing, Source};
use wave_models::{Network, Weights, resample};
use wave_run::error::request;
use wave_run::progress;

/// The preprocessing of a model directory or a file of weights, for a network that takes images of so many `channels`
/// and `side` x `side` pixels, with the origin of each value.
///
/// # Errors
/// If a file is broken, or asks for steps that are not supported.
pub fn of(path: &Path, (channels, side): (usize, usize)) -> Result<Preprocessing> {
    let path = wave_hub::model_directory(path);
    let bare = path.is_file();
    let mut steps = match bare {
        true => Preprocessing::assumed(),
        false => wave_hub::read_preprocessing(path)?,
    };
    let timms = bare || wave_hub::directory_kind(path)? == Kind::Model;
    let size = &mut steps.size;
    let loose = timms || matches!(size.source, Source::Assumed(_));
    if bare || (size.value != [side; 2] && loose) {
        let [height, width] = size.value;
        size.source = match &size.source {
            Source::File(keys) => Source::Assumed(format!(
                "the weights are for {side} x {side} pixels, {keys} says {height} x {width}"
            )),
            _ => Source::Weights,
        };
        size.value = [side; 2];
    }
    // One value of timm's stands for every channel of the network, whatever channels the file names.
    if timms || steps.channels > 1 {
        steps.spread(channels);
    }
    let said = steps.mean.value.len();
    if said != channels && timms {
        for values in [&mut steps.mean, &mut steps.std] {
            values.value = vec![0.5; channels];
            values.source = Source::Assumed(format!(
                "{} has {said} values for {channels} channels",
                match &values.source {
                    Source::File(keys) => keys,
                    _ => "timm's default",
                }
            ));
        }
    }
    steps.channels = channels;
    Ok(steps)
}

/// The steps that [`of`] reads and their transform, with a warning on stderr about assumed values.
pub fn read(path: &Path, input: (usize, usize)) -> Result<(Preprocessing, Transform)> {
    let steps = of(path, input)?;
    warn(path, &steps);
    let transform = transform(&steps, path, input.1)?;
    Ok((steps, transform))
}

/// Warns on stderr about values that are not given anywhere.
fn warn(path: &Path, steps: &Preprocessing) {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    let all = steps.described();
    for (name, value, source) in &all {
        let Source::Assumed(why) = source else {
            continue;
        };
        let taken = format!("{name} {value}");
        match reasons.iter_mut().find(|(other, _)| other == why) {
            Some((_, values)) => values.push(taken),
            None => reasons.push((why, vec![taken])),
        }
    }
    for (why, taken) in reasons {
        progress::note(&format!(
            "wave: warning: {}: the preprocessing is assumed: {} ({why}). If this is wrong, so are \
             the outputs: give pretrained_cfg in config.json (timm), or preprocessor_config.json \
             (transformers)",
            path.display(),
            taken.join(", ")
        ));
    }
}

/// The transform for these steps, which `path` describes; if it is not supported, the error names file and field.
pub fn transform(steps: &Preprocessing, path: &Path, side: usize) -> Result<Transform> {
    let wrong = |source: &Source, found: String| {
        let place = match source {
            Source::File(keys) if !path.is_file() => path.join(keys).display().to_string(),
            source => format!("{} ({source})", path.display()),
        };
        request(format!("{place}: {found}"))
    };
    let (said, channels) = (steps.mean.value.len(), steps.channels);
    if said != channels {
        return Err(wrong(
            &steps.mean.source,
            format!(
                "the mean has {said} values, but the network takes images of {channels} channels; \
                 correct whichever is wrong"
            ),
        ));
    }
    let [height, width] = steps.size.value;
    if steps.crop_mode.value == "none" {
        return Err(wrong(
            &steps.crop_mode.source,
            format!(
                "images keep their aspect ratio, {height} pixels on the shorter side, but the \
                 network takes {side} x {side}; correct `do_center_crop` and `crop_size` in the \
                 file"
            ),
        ));
    }
    if [height, width] != [side; 2] {
        return Err(wrong(
            &steps.size.source,
            format!(
                "images are resized to {height} x {width} pixels, but the network takes {side} x \
                 {side}; correct whichever is wrong"
            ),
        ));
    }
    let narrow = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
    let named = |source: &Source, error: wave_data::DataError| {
        wrong(source, format!("{error}; correct the file"))
    };
    let (by, mode, offset) = (&steps.interpolation, &steps.crop_mode, &steps.crop_offset);
    Ok(Transform {
        crop_pct: steps.crop_pct.value as f32,
        interpolation: by.value.parse().map_err(|e| named(&by.source, e))?,
        crop_mode: mode.value.parse().map_err(|e| named(&mode.source, e))?,
        crop_offset: offset.value.parse().map_err(|e| named(&offset.source, e))?,
        ..Transform::new(side, narrow(&steps.mean.value), narrow(&steps.std.value))
    })
}

/// Adapts a network in timm's layout to the image size that timm uses: with `dynamic_img_size`, that is
/// `input_size`, and positions are resized to it.
pub fn resized(
    path: &Path,
    config: &ModelConfig,
    network: Network,
    weights: Weights,
) -> Result<(Network, Weights)> {
    if path.is_file() || !config.is_dynamic() {
        return Ok((network, weights));
    }
    let size = wave_hub::read_preprocessing(path)?.size;
    let (_, side) = network.input();
    let [height, width] = size.value;
    if [height, width] == [side; 2] || matches!(size.source, Source::Assumed(_)) {
        return Ok((network, weights));
    }
    let wrong = |found: &str| {
        request(format!(
            "{}: images of {height} x {width} pixels ({}) need positions resized from {side} x \
             {side} (model_args.dynamic_img_size), but {found}; give the network's own size",
            path.display(),
            size.source
        ))
    };
    let patch = match &network {
        Network::Vit(shape) => shape.patch,
        Network::Transformer(shape) => shape.patch,
        _ => 0,
    };
    if height != width || patch == 0 || height % patch != 0 || height > 8192 {
        return Err(wrong("the images are not a square of whole patches"));
    }
    match resample::network(&network, &weights, height)? {
        Some(resized) => Ok(resized),
        None => Err(wrong("this network's cannot be resized (attention biases)")),
    }
}

/// A model's preprocessing in the format of transformers.
pub fn processor(config: &ModelConfig) -> Result<Value> {
    let processor = Preprocessing::from(config).processor().map_err(|why| {
        request(format!(
            "format = transformers: {why}; write timm's layout (--format timm)"
        ))
    })?;
    if processor.get("pretrained_cfg").is_some() {
        progress::note(
            "wave: this model's crops round to the even pixel, as in timm, while transformers' own \
             processors round down; the directory names TimmWrapperImageProcessor, for which \
             transformers needs the package timm",
        );
    }
    Ok(processor)
}

/// A note on where timm treats a directory in its layout differently.
pub fn note_for_timm(config: &ModelConfig) {
    let steps = &config.pretrained_cfg;
    // Otherwise the crop keeps all of the resized image.
    let crops = steps.crop_mode == "center" || steps.crop_pct < 1.0;
    if crops && config.crop_offset.as_deref() == Some(FLOOR) {
        progress::note(
            "wave: this model's crops round down, as in transformers (crop_offset in config.json); \
             timm rounds to the even pixel, so some crops differ by a pixel",
        );
    }
    if let Some(eps) = config.layer_norm_eps {
        progress::note(&format!(
            "wave: this model's layer norms have eps {eps:e} (layer_norm_eps in config.json); \
             timm's have 1e-6"
        ));
    }
}
