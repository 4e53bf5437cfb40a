//! wave as a library: makes a transformer from weight templates and classifies an image.
//!
//! ```text
//! cargo run --release -p wave --example expand -- TEMPLATES DEPTH WIDTH IMAGE
//! ```

use anyhow::{Context, Result, bail};
use candle_core::{Device, Tensor};
use std::path::Path;
use wave::model::Model;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [templates, depth, width, image] = &arguments[..] else {
        bail!("usage: expand TEMPLATES DEPTH WIDTH IMAGE");
    };
    let model = make(Path::new(templates), depth.parse()?, width.parse()?)?;
    let scores = classify(&model, Path::new(image))?;
    let best = (0..scores.len()).max_by(|i, j| scores[*i].total_cmp(&scores[*j]));
    let best = best.context("a model without classes")?;
    println!("{} parameters", model.parameters());
    println!(
        "{}: {} ({:.2})",
        image, model.label_names[best], scores[best]
    );
    Ok(())
}

/// A model of `depth` blocks and `width` channels, without data or an output directory.
fn make(templates: &Path, depth: usize, width: usize) -> Result<Model> {
    let templates = wave::templates::read(templates)?;
    let shape = templates.learngene.shape(depth, width, None)?;
    templates.model(&shape)
}

/// Class scores of an image file, with the preprocessing of the model.
fn classify(model: &Model, image: &Path) -> Result<Vec<f32>> {
    let bytes = std::fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let image = wave_data::decode(&bytes, &image.display().to_string())?;
    let t = &model.transform;
    let shape = (1, t.channels, t.image_size, t.image_size);
    let images = Tensor::from_vec(t.evaluate(&image)?, shape, &Device::Cpu)?;
    let frozen = model.network.freeze(&model.weights)?; // once for many images
    let logits = frozen.logits(&images)?; // (1, classes)
    Ok(logits.squeeze(0)?.to_vec1()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave::expand::expand;
    use wave::finetune::Options;
    use wave::settings::Expand;

    #[test]
    fn the_library_gives_what_the_command_gives() {
        let place = tempfile::tempdir().unwrap();
        let (out, picture) = (place.path().join("model"), place.path().join("a.png"));
        image::GrayImage::from_fn(28, 28, |x, y| image::Luma([(x * y % 251) as u8]))
            .save(&picture)
            .unwrap();
        let templates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates/fashion-mnist");
        let model = make(&templates, 2, 64).unwrap();
        assert_eq!(model.network.size(), (2, 64));
        let scores = classify(&model, &picture).unwrap();
        let settings = Expand {
            depth: Some(2),
            width: Some(64),
            ..Expand::default()
        };
        let options = Options::default(); // on the processor, quietly
        expand(&templates, &settings, &out, &options).unwrap();
        let Options {
            verbosity, context, ..
        } = &options;
        let (none, pictures) = (Default::default(), [picture]);
        let predicted =
            wave::predict::predict(&out, None, &none, &pictures, None, *verbosity, context)
                .unwrap();
        let logits = predicted["predictions"][0]["logits"].as_array().unwrap();
        assert_eq!(scores.len(), 10);
        for (score, logit) in scores.iter().zip(logits) {
            assert_eq!(f64::from(*score), logit.as_f64().unwrap());
        }
    }
}
