//! Decodes every image of a source, and counts.

use rayon::prelude::*;

use crate::{BrokenImage, DataError, Source};

/// The content of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Number of images, the broken ones included.
    pub images: usize,
    /// Each class and its number of images.
    pub classes: Vec<(String, usize)>,
    /// Images whose label is beyond the classes.
    pub unlabelled: usize,
    /// Images that cannot be read or decoded, by index.
    pub broken: Vec<BrokenImage>,
    /// The least and the greatest (width, height) of the sound images, each for itself, in pixels.
    pub sizes: Option<[(usize, usize); 2]>,
}

/// Counts the images of each class and decodes every image, in parallel. Memory is bounded by an
/// image a thread. `progress` is called now and then, from any thread, with the number of images since its
/// last call.
pub fn check(source: &dyn Source, progress: impl Fn(usize) + Sync) -> Report {
    const CHUNK: usize = 64;
    let n = source.len();
    let mut counts = vec![0; source.class_names().len()];
    let mut unlabelled = 0;
    for i in 0..n {
        match counts.get_mut(source.label(i) as usize) {
            Some(count) => *count += 1,
            None => unlabelled += 1,
        }
    }
    type Found = (Vec<BrokenImage>, Sizes);
    let look = |chunk: usize| -> Found {
        let (mut broken, mut sizes) = (Vec::new(), None);
        let images = chunk * CHUNK..((chunk + 1) * CHUNK).min(n);
        let looked_at = images.len();
        for i in images {
            match source.image(i) {
                Ok(image) => sizes = span(sizes, Some([(image.width, image.height); 2])),
                Err(error) => broken.push(describe(source, i, error)),
            }
        }
        progress(looked_at);
        (broken, sizes)
    };
    let join = |mut a: Found, mut b: Found| {
        a.0.append(&mut b.0);
        (a.0, span(a.1, b.1))
    };
    let chunks = (0..n.div_ceil(CHUNK)).into_par_iter().map(look);
    let (mut broken, sizes) = chunks.reduce(|| (Vec::new(), None), join);
    broken.sort_by_key(|image| image.index);
    Report {
        images: n,
        classes: source.class_names().iter().cloned().zip(counts).collect(),
        unlabelled,
        broken,
        sizes,
    }
}

fn describe(source: &dyn Source, i: usize, error: DataError) -> BrokenImage {
    let (path, problem) = match error {
        DataError::Content { path, problem } => (path, problem),
        other => (source.name(i), other.to_string()),
    };
    BrokenImage {
        index: i as u32,
        path,
        problem,
    }
}

/// The least and the greatest (width, height).
type Sizes = Option<[(usize, usize); 2]>;

fn span(a: Sizes, b: Sizes) -> Sizes {
    match (a, b) {
        (Some([low, high]), Some([l, h])) => Some([
            (low.0.min(l.0), low.1.min(l.1)),
            (high.0.max(h.0), high.1.max(h.1)),
        ]),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
