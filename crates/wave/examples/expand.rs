//! wave as a library: makes a transformer from weight templates and classifies an image.
//!
//! ```text
//! cargo run --release -p wave-templates --example expand -- TEMPLATES DEPTH WIDTH IMAGE
//! ```

use anyhow::{Context as _, Result, bail};
use std::path::Path;
use wave::context::Context;
use wave::templates;
use wave_data::RawImage;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [templates, depth, width, image] = &arguments[..] else {
        bail!("usage: expand TEMPLATES DEPTH WIDTH IMAGE");
    };
    // No data, and no output directory.
    let model = templates::read(Path::new(templates))?.expand(depth.parse()?, width.parse()?)?;
    println!("{} parameters", model.parameters());
    let classifier = model.classifier(&Context::default())?; // once for many images
    for class in classifier
        .classify(&read(Path::new(image))?)?
        .iter()
        .take(3)
    {
        let label = class.label.as_deref().unwrap_or_default();
        println!("{label}: {:.1} %", 100.0 * class.probability);
    }
    Ok(())
}

/// The pixels of an image file.
fn read(image: &Path) -> Result<RawImage> {
    let bytes = std::fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    Ok(wave_data::decode(&bytes, &image.display().to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wave::expand::expand;
    use wave::finetune::Options;
    use wave::predict::{Predict, predict};
    use wave::settings::Expand;

    #[test]
    fn the_library_gives_what_the_command_gives() {
        let place = tempfile::tempdir().unwrap();
        let (out, picture) = (place.path().join("model"), place.path().join("a.png"));
        image::GrayImage::from_fn(28, 28, |x, y| image::Luma([(x * y % 251) as u8]))
            .save(&picture)
            .unwrap();
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../templates/fashion-mnist");
        let model = templates::read(&dir).unwrap().expand(2, 64).unwrap();
        assert_eq!(model.network.size(), (2, 64));
        let classifier = model.classifier(&Context::default()).unwrap();
        let image = read(&picture).unwrap();
        let scores = classifier.logits(&image).unwrap();
        let settings = Expand {
            depth: Some(2),
            width: Some(64),
            ..Expand::default()
        };
        let options = Options::default(); // on the processor, quietly
        expand(&dir.into(), &settings, &out, &options).unwrap();
        let Options {
            verbosity, context, ..
        } = &options;
        let asked = Predict {
            model: out,
            images: vec![picture],
            ..Predict::default()
        };
        let predicted = predict(&asked, *verbosity, context).unwrap();
        let logits = predicted["predictions"][0]["logits"].as_array().unwrap();
        assert_eq!(scores.len(), 10);
        let best = &classifier.classify(&image).unwrap()[0];
        assert_eq!(
            predicted["predictions"][0]["label"],
            best.label.clone().unwrap()
        );
        for (score, logit) in scores.iter().zip(logits) {
            assert_eq!(f64::from(*score), logit.as_f64().unwrap());
        }
    }
}
