//! Decodes every image of a source and counts the images.

use rayon::prelude::*;

use crate::{BrokenImage, DataError, Source};

/// The content of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Each class with its number of images.
    pub classes: Vec<(String, usize)>,
    /// Images whose label is beyond the classes.
    pub unlabelled: usize,
    /// Images that cannot be read or decoded, by index.
    pub broken: Vec<BrokenImage>,
}

/// Counts the images of each class and decodes all images in parallel, with one per thread in memory.
pub fn check(source: &dyn Source, class_names: &[String]) -> Report {
    let mut counts = vec![0; class_names.len()];
    let mut unlabelled = 0;
    for i in 0..source.len() {
        match counts.get_mut(source.label(i) as usize) {
            Some(count) => *count += 1,
            None => unlabelled += 1,
        }
    }
    let broken = |i: usize| {
        let (path, problem) = match source.image(i).err()? {
            DataError::Content { path, problem } => (path, problem),
            // Its path is that of the image.
            DataError::Io { action, cause, .. } => {
                (source.name(i), format!("cannot {action} the file: {cause}"))
            }
            other => (source.name(i), other.to_string()),
        };
        Some(BrokenImage {
            index: i as u32,
            path,
            problem,
        })
    };
    let all = (0..source.len()).into_par_iter();
    Report {
        classes: class_names.iter().cloned().zip(counts).collect(),
        unlabelled,
        broken: all.filter_map(broken).collect(),
    }
}
