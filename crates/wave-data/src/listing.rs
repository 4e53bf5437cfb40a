//! The files of an ImageFolder, listed in parallel; for large ones, the list is cached.
//!
//! The cache stores the modification time of each class folder, so that a folder is listed again once a
//! file is added, removed or renamed in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::source::{NO_FILE, PassedOver};
use crate::{DataError, cache};

/// Extensions of image files.
pub const IMAGE_EXTENSIONS: [&str; 14] = [
    "jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm", "pbm", "pnm", "jfif",
    "jpe",
];

/// Files and folders that systems and programs leave behind: neither classes nor reported.
const JUNK: [&str; 8] = [
    "__MACOSX",
    "@eaDir",
    "$RECYCLE.BIN",
    "System Volume Information",
    "lost+found",
    "Thumbs.db",
    "desktop.ini",
    "Icon\r",
];

/// Names of folders for splits in other projects, case-insensitive: they are not classes.
const PARTS: &str = "train training val valid validation test testing eval evaluation dev";

/// True if a folder is named like a split of a data set.
pub(crate) fn is_part(name: &str) -> bool {
    PARTS.split(' ').any(|part| name.eq_ignore_ascii_case(part))
}

/// Names of the splits of test images, most likely first.
pub(crate) const TEST: [&str; 3] = ["val", "validation", "test"];

/// With fewer images, listing is too fast for the cache to be worth it.
const CACHED_FROM: usize = 20_000;

/// The kind of the cache file; renamed whenever the listing changes.
const CACHED: &str = "folder-index-3";

/// Maximum depth of nested folders.
const DEEPEST: usize = 32;

/// Content of a folder.
#[derive(Default)]
pub(crate) struct Listed {
    /// Images, by their path in it.
    pub(crate) names: Vec<String>,
    /// True if everything relevant lies directly in it.
    flat: bool,
    pub(crate) passed_over: PassedOver,
    /// Stamp of the folder, if the cache may have its images.
    stamp: Option<String>,
}

/// The images in `dir` and the folders below it: a folder's own, sorted, then its subfolders'. Links are
/// followed, but not into a folder that contains them.
pub(crate) fn walk(dir: &Path) -> Result<Listed, DataError> {
    let mut listed = Listed {
        flat: true,
        ..Listed::default()
    };
    walk_into(dir, "", &mut Vec::new(), &mut listed)?;
    Ok(listed)
}

fn walk_into(
    dir: &Path,
    below: &str,
    above: &mut Vec<PathBuf>,
    listed: &mut Listed,
) -> Result<(), DataError> {
    let found = entries(dir)?;
    let images = found.images.iter().map(|name| format!("{below}{name}"));
    listed.names.extend(images);
    listed.passed_over.add(dir, &found.others);
    if found.folders.is_empty() {
        return Ok(());
    }
    listed.flat = false;
    above.push(dir.canonicalize().map_err(DataError::open(dir))?);
    for name in found.folders {
        let folder = dir.join(&name);
        let real = folder.canonicalize().map_err(DataError::open(&folder))?;
        if above.contains(&real) || above.len() > DEEPEST {
            listed.passed_over.add(dir, [name]);
        } else {
            walk_into(&folder, &format!("{below}{name}/"), above, listed)?;
        }
    }
    above.pop();
    Ok(())
}

/// The image files in `dir` and below, sorted, without hidden ones. Links to folders are followed.
///
/// # Errors
/// When a folder cannot be read.
pub fn image_files(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut names = walk(dir)?.names;
    names.sort_unstable();
    Ok(names.into_iter().map(|name| dir.join(name)).collect())
}

/// The image files of each class.
pub(crate) fn images(
    part: &Path,
    classes: &[String],
    cache: Option<&Path>,
) -> Result<Vec<Listed>, DataError> {
    let file = cache.map(|dir| cache::file(dir, part, CACHED));
    // The stamp and the names of each class.
    let known: Option<BTreeMap<String, (String, Vec<String>)>> =
        file.as_ref().and_then(|file| cache::recall(file));
    let known = known.unwrap_or_default();
    let list = |class: &String| -> Result<Listed, DataError> {
        let dir = part.join(class);
        let stamp = file.as_ref().and_then(|_| cache::stamp(&dir));
        if let Some((of, names)) = known.get(class)
            && stamp.as_ref() == Some(of)
        {
            return Ok(Listed {
                names: names.clone(),
                stamp,
                ..Listed::default()
            });
        }
        let mut listed = walk(&dir)?;
        // A folder's modification time says nothing about its subfolders.
        let plain = listed.flat && listed.passed_over.count == 0;
        listed.stamp = stamp.filter(|_| plain);
        Ok(listed)
    };
    // In parallel, since each folder is slow to list over a network.
    let listed: Vec<Result<Listed, DataError>> = classes.par_iter().map(list).collect();
    let listed: Vec<Listed> = listed.into_iter().collect::<Result<_, _>>()?;
    let images: usize = listed.iter().map(|class| class.names.len()).sum();
    let stamped = classes.iter().zip(&listed).filter_map(|(class, found)| {
        let stamp = found.stamp.as_ref()?;
        Some((class, (stamp, &found.names)))
    });
    let stamped: BTreeMap<_, _> = stamped.collect();
    let mut stamps = stamped.iter().map(|(class, (stamp, _))| (*class, *stamp));
    let is_new = stamps.any(|(class, stamp)| known.get(class).is_none_or(|(of, _)| of != stamp));
    if let Some(file) = file.filter(|_| is_new && images >= CACHED_FROM) {
        cache::remember(&file, &stamped);
    }
    Ok(listed)
}

/// True if a file has the name of an image.
pub(crate) fn is_image(file: &Path) -> bool {
    let extension = file.extension().map(|e| e.to_ascii_lowercase());
    extension.is_some_and(|e| IMAGE_EXTENSIONS.iter().any(|known| e == *known))
}

/// True if a file is documentation of the data.
fn is_about(name: &str) -> bool {
    let (name, about) = (name.to_ascii_lowercase(), ["readme", "license", "licence"]);
    about.iter().any(|word| name.starts_with(word))
}

/// Names in a folder, sorted, without hidden ones and ones that belong to no data set.
#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) folders: Vec<String>,
    pub(crate) images: Vec<String>,
    others: Vec<String>,
}

impl Entries {
    /// The files in `dir` that are neither images nor in `read`, and worth reporting.
    pub(crate) fn strays(&self, dir: &Path, read: &[&str]) -> PassedOver {
        let mut passed_over = PassedOver::default();
        let others = self.others.iter();
        passed_over.add(dir, others.filter(|name| !read.contains(&name.as_str())));
        passed_over
    }
}

pub(crate) fn entries(dir: &Path) -> Result<Entries, DataError> {
    let fail = DataError::open(dir);
    let mut found = Entries::default();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let shown = name.to_string_lossy();
        if JUNK.contains(&&*shown) || shown.starts_with('.') {
            continue;
        }
        let kind = entry.file_type().map_err(fail)?;
        let list = if kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()) {
            &mut found.folders
        } else if !is_image(name.as_ref()) {
            if !is_about(&shown) {
                found.others.push(shown.into_owned());
            }
            continue;
        } else if kind.is_file() || kind.is_symlink() {
            // A link is followed when it is read.
            &mut found.images
        } else {
            let problem = format!("holds `{shown}`, {NO_FILE}");
            return Err(DataError::content(dir, problem));
        };
        // Lossy conversion could merge several names into one.
        list.push(name.into_string().map_err(|name| {
            let name = name.display();
            let problem = format!("holds `{name}`, whose name is not UTF-8; rename it");
            DataError::content(dir, problem)
        })?);
    }
    for list in [&mut found.folders, &mut found.images, &mut found.others] {
        list.sort_unstable();
    }
    Ok(found)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
