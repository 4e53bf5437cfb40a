//! `wave speed`: training, inference and condensation speed of a transformer on this machine.
//!
//! Steps are the same as in the stages, on random images in memory, so loading is not measured.

use crate::condense::step_seconds;
use crate::timing::{WARM_UP, clock, descend, examples};
use anyhow::Result;
use serde_json::{Value, json};
use wave_models::vit::{self, VitShape};
use wave_models::{Network, Weights, refuse};
use wave_ops::Precision;
use wave_run::context::Context;
use wave_run::forecast::{self, Memory, Step};
use wave_run::settings::{self, Speed, SpeedMode, SpeedValues};

/// Runs the measurements and returns the output of `--json`.
pub fn speed(wanted: &Speed, context: &Context) -> Result<Value> {
    settings::check(wanted)?;
    let wanted = SpeedValues::from(wanted.clone());
    let shape = shape(&wanted)?;
    let (batch, steps) = (wanted.batch, wanted.steps);
    if batch == 0 || steps == 0 || wanted.classes == 0 {
        refuse!("--batch, --steps and --classes must be at least 1");
    }
    let device = context.device();
    if wanted.peak && !device.is_cpu() {
        refuse!("--peak measures the processor, but another device is selected; drop --peak");
    }
    let how = settings::mode(wanted.precision, wanted.recompute, device)?;
    let network = Network::Vit(shape.clone());
    let memory = match wanted.mode {
        SpeedMode::Forward => Memory::of_passes(&network),
        SpeedMode::Train | SpeedMode::Condense => Memory {
            tested: 0,
            ..Memory::of_network(&network, how)
        },
    };
    let step = Step::of_images(memory, batch, 1, context);
    if !step.can_time(batch) {
        refuse!(
            "a step with batch = {batch} needs about {}, more than is free; give a smaller --batch, \
             --image, --depth or --width",
            forecast::bytes(step.bytes() as f64)
        );
    }
    let input = (shape.channels, shape.image_size);
    let (images, targets) = examples(input, shape.classes, batch, device)?;
    let (passes, mut seconds) = match wanted.mode {
        SpeedMode::Forward => {
            let weights = context.place(&fresh(&shape)?)?;
            let pass = || vit::logits_in(how, &shape, &weights, &images, None);
            (1.0, clock(device, WARM_UP, steps, pass)?)
        }
        SpeedMode::Train => {
            let loss = |weights: &Weights| {
                let logits = vit::logits_in(how, &shape, weights, &images, None)?;
                wave_ops::soft_cross_entropy(&logits, &targets)
            };
            let seconds = descend(fresh(&shape)?, device, (WARM_UP, steps), loss)?;
            (3.0, seconds)
        }
        SpeedMode::Condense => (3.0, step_seconds(&shape, &images, &targets, how, steps)?),
    };
    seconds.sort_by(f64::total_cmp);
    let median = seconds[seconds.len() / 2];
    let operations = 2.0 * passes * shape.multiply_adds() as f64 * batch as f64;
    let mut found = json!({
        "images_per_second": batch as f64 / median,
        "step_ms_median": 1e3 * median,
        "step_ms_min": 1e3 * seconds[0],
        "peak_rss_bytes": forecast::peak(),
        "gflops": operations / median / 1e9,
        "simd": wave_ops::simd()?.name(),
        "precision": match how.precision {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
        },
        "threads": rayon::current_num_threads(),
        "parameters": shape.parameter_count(),
    });
    if wanted.peak {
        let peak = wave_ops::peak(how.precision);
        found["peak_gflops"] = json!(peak / 1e9);
        found["share_of_peak"] = json!(operations / median / peak);
    }
    Ok(found)
}

fn shape(wanted: &SpeedValues) -> Result<VitShape> {
    let shape = VitShape {
        image_size: wanted.image,
        channels: wanted.channels,
        patch: wanted.patch,
        depth: wanted.depth,
        width: wanted.width,
        heads: wanted.heads.unwrap_or((wanted.width / 64).max(1)),
        mlp_ratio: wanted.mlp_ratio,
        classes: wanted.classes,
        class_token: wanted.class_token,
        ..VitShape::default()
    };
    shape.validate()?;
    Ok(shape)
}

fn fresh(shape: &VitShape) -> Result<Weights> {
    let (method, choices) = (wave_init::DirectMethod::Timm, wave_init::Choices::default());
    let weights = wave_init::initialise(shape, method, &choices, 0)?;
    Ok(vit::stack(&weights, shape.depth)?)
}
