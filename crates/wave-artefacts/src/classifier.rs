//! A model that classifies images, one at a time.

use crate::model::{Model, check_classifier};
use anyhow::Result;
use candle_core::{Device, Tensor};
use wave_data::{RawImage, Transform};
use wave_models::Frozen;
use wave_run::context::Context;
use wave_run::error::Error;

/// A model ready to run, with the preprocessing of its images and the names of its classes.
///
/// ```
/// use std::path::Path;
///
/// let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates/fashion-mnist");
/// let model = wave_artefacts::templates::read(Path::new(dir))?.expand(7, 320)?;
/// let image = wave_data::RawImage {
///     width: 28,
///     height: 28,
///     channels: 1,
///     pixels: vec![0; 28 * 28], // of a file: wave_data::decode
/// };
/// let classes = model.classifier(&Default::default())?.classify(&image)?;
/// assert_eq!(classes.len(), 10);
/// assert!(classes[0].probability >= classes[9].probability);
/// # Ok::<(), wave_run::error::Error>(())
/// ```
pub struct Classifier {
    frozen: Box<dyn Frozen>,
    transform: Transform,
    label_names: Vec<String>,
}

/// A class, and the probability that the image belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its index.
    pub index: usize,
    /// Its name, if it has one.
    pub label: Option<String>,
    /// The softmax of its score, 0 to 1.
    pub probability: f32,
}

impl Model {
    /// Makes the model ready to classify images, if it has a classifier and its weights fit its network.
    pub fn classifier(&self, context: &Context) -> Result<Classifier, Error> {
        check_classifier(&self.network)?;
        let placed = context.place(&self.weights);
        let frozen = placed.and_then(|weights| self.network.freeze(&weights));
        Ok(Classifier {
            frozen: frozen.map_err(anyhow::Error::from)?,
            transform: self.transform.clone(),
            label_names: self.label_names.clone(),
        })
    }
}

impl Classifier {
    /// Logits of an image; an error if it cannot be prepared, or one of them is not a finite number.
    pub fn logits(&self, image: &RawImage) -> Result<Vec<f32>, Error> {
        Ok(self.finite_logits(image)?)
    }

    fn finite_logits(&self, image: &RawImage) -> Result<Vec<f32>> {
        let t = &self.transform;
        let shape = (1, t.channels, t.image_size, t.image_size);
        let input = Tensor::from_vec(t.evaluate(image)?, shape, &Device::Cpu)?;
        let logits = self.frozen.logits(&input)?.squeeze(0)?.to_vec1::<f32>()?;
        if let Some(class) = logits.iter().position(|z| !z.is_finite()) {
            anyhow::bail!(
                "the logit of class {class} is {}, although all weights are finite: activations \
                 overflow on this image; train again with a lower learning rate",
                logits[class]
            );
        }
        Ok(logits)
    }

    /// All classes of an image, the most probable first; errors are those of [`Classifier::logits`].
    pub fn classify(&self, image: &RawImage) -> Result<Vec<Class>, Error> {
        Ok(self.classes(&self.logits(image)?))
    }

    /// The classes with these scores, the most probable first.
    pub fn classes(&self, logits: &[f32]) -> Vec<Class> {
        ranked(logits, &self.label_names)
    }
}

/// The classes with these scores and names, the most probable first.
pub fn ranked(logits: &[f32], label_names: &[String]) -> Vec<Class> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f32 = logits.iter().map(|z| (z - max).exp()).sum();
    let class = |(index, z): (usize, &f32)| Class {
        index,
        label: label_names.get(index).cloned(),
        probability: (z - max).exp() / total,
    };
    let mut order: Vec<(usize, &f32)> = logits.iter().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(a.1)); // stable: equal scores keep their order
    order.into_iter().map(class).collect()
}
