//! Controls: the images of another data set, altered so that their classes remain distinguishable while
//! the statistics of natural images are gone.
//!
//! They test the transfer of an initialisation from one kind of images to another: rotated by 90 degrees,
//! with dark and light exchanged, or with all pixels permuted, so that no neighbourhood is left.

use std::sync::Arc;

use image::metadata::Orientation;

use crate::source::permutation;
use crate::{DataError, Dataset, RawImage, Source};

/// The prefixes of controls, before a colon.
pub const CONTROLS: [&str; 3] = ["inverted", "rotated", "shuffled"];

/// Seed of the one permutation that all shuffled images share.
const SEED: u64 = 0x5afe;

const MOST_NESTED: usize = 8;

#[derive(Clone, Debug, PartialEq)]
enum Change {
    /// Dark and light exchanged.
    Inverted,
    /// A quarter turn to the left.
    Rotated,
    /// Pixel i is pixel `order[i]` of the original, in every image.
    Shuffled(Vec<u32>),
}

struct Control {
    source: Arc<dyn Source>,
    change: Change,
}

/// Opens the control `kind` of the data set `of`, written `spec`.
pub(crate) fn open(spec: &str, kind: &str, of: &str) -> Result<Dataset, DataError> {
    let nested = std::iter::successors(Some(of), |of| Some(split(of)?.1)).count();
    if nested > MOST_NESTED {
        return Err(DataError::Settings(format!(
            "{nested} nested controls ({}:...): expected at most {MOST_NESTED}",
            CONTROLS.join(":, ")
        )));
    }
    let part = |source: Arc<dyn Source>| -> Result<Arc<dyn Source>, DataError> {
        let change = match kind {
            "inverted" => Change::Inverted,
            "rotated" => Change::Rotated,
            _ => Change::Shuffled(order(spec, &*source)?),
        };
        Ok(Arc::new(Control { source, change }))
    };
    let dataset = crate::open(of)?;
    Ok(Dataset {
        name: format!("{kind} {}", dataset.name),
        train: part(dataset.train)?,
        test: part(dataset.test)?,
        ..dataset
    })
}

/// The kind of a control `inverted:SPEC`, `rotated:SPEC` or `shuffled:SPEC`, and SPEC.
pub(crate) fn split(spec: &str) -> Option<(&str, &str)> {
    let parts = spec.split_once(':');
    parts.filter(|(kind, _)| CONTROLS.contains(kind))
}

/// A permutation of the pixels of images that all have one size.
fn order(spec: &str, source: &dyn Source) -> Result<Vec<u32>, DataError> {
    let Some((_, height, width)) = source.native_size() else {
        return Err(DataError::Settings(format!(
            "`{spec}`: all images share one pixel shuffle, but these are not known to have one \
             size; use data that is, such as shuffled:fashion-mnist, or use rotated: or inverted:"
        )));
    };
    Ok(permutation(0..(height * width) as u32, SEED, 0))
}

impl Change {
    fn apply(&self, mut image: RawImage) -> RawImage {
        match self {
            Change::Inverted => image.pixels.iter_mut().for_each(|x| *x = 255 - *x),
            Change::Rotated => return image.oriented(Orientation::Rotate270), // clockwise
            Change::Shuffled(order) => {
                let c = image.channels;
                let pixel = |&i: &u32| &image.pixels[i as usize * c..][..c];
                image.pixels = order.iter().flat_map(pixel).copied().collect();
            }
        }
        image
    }
}

impl Source for Control {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn label(&self, i: usize) -> u32 {
        self.source.label(i)
    }

    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        Ok(self.change.apply(self.source.image(i)?))
    }

    fn file_size(&self, i: usize) -> Option<u64> {
        self.source.file_size(i)
    }

    fn modified(&self, i: usize) -> Option<std::time::SystemTime> {
        self.source.modified(i)
    }

    fn name(&self, i: usize) -> String {
        self.source.name(i)
    }

    fn native_size(&self) -> Option<(usize, usize, usize)> {
        let (channels, height, width) = self.source.native_size()?;
        Some(match self.change {
            Change::Rotated => (channels, width, height),
            _ => (channels, height, width),
        })
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
