//! The files of an ImageFolder, listed in parallel; for large ones, the list is cached.
//!
//! The cache knows of each class folder when it last changed, so that a folder is listed again once a
//! file was added, removed or renamed in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::source::NO_FILE;
use crate::{DataError, cache};

/// The names of image files end so.
pub(crate) const EXTENSIONS: [&str; 5] = ["jpg", "jpeg", "png", "webp", "gif"];

/// Fewer images are listed faster than the cache is worth.
const CACHED_FROM: usize = 20_000;

/// Names of the folders in `part`, sorted, without the hidden.
pub(crate) fn folders(part: &Path) -> Result<Vec<String>, DataError> {
    entries(part, |entry| {
        Ok(match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => entry.path().is_dir(),
        })
    })
}

/// Names of the image files in `dir`, sorted, without the hidden.
pub(crate) fn image_names(dir: &Path) -> Result<Vec<String>, DataError> {
    entries(dir, |entry| {
        let name = entry.file_name();
        match entry.file_type() {
            Ok(kind) if is_image(&name) && !kind.is_dir() => {
                // A link is followed when it is read.
                if kind.is_file() || kind.is_symlink() {
                    return Ok(true);
                }
                Err(DataError::layout(
                    dir,
                    format!("holds `{}`, {NO_FILE}", name.to_string_lossy()),
                ))
            }
            _ => Ok(false),
        }
    })
}

/// The image files in `dir` and the folders below it, sorted, without the hidden. Links to folders are
/// not followed.
///
/// # Errors
/// When a folder cannot be read.
pub fn image_files(dir: &Path) -> Result<Vec<PathBuf>, DataError> {
    let is_file = |entry: &fs::DirEntry| entry.path().is_file() && is_image(&entry.file_name());
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries(dir, |entry| Ok(is_folder(entry) || is_file(entry)))?;
    let mut files = Vec::new();
    for path in names.into_iter().map(|name| dir.join(name)) {
        match path.is_dir() {
            true => files.extend(image_files(&path)?),
            false => files.push(path),
        }
    }
    Ok(files)
}

/// Names of the image files of each class.
pub(crate) fn images(
    part: &Path,
    classes: &[String],
    cache: Option<&Path>,
) -> Result<Vec<Vec<String>>, DataError> {
    let file = cache.map(|dir| cache::file(dir, part, "folder-index"));
    let known = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
    let known = known.map_or_else(BTreeMap::new, |text| recall(&text));
    // In parallel, for on a network each folder takes a while to answer.
    let listed: Vec<Result<Class, DataError>> = classes
        .par_iter()
        .map(|class| {
            let dir = part.join(class);
            let stamp = file.as_ref().and_then(|_| cache::stamp(&dir));
            if let (Some(stamp), Some((of, names))) = (&stamp, known.get(class))
                && stamp == of
            {
                return Ok(Class {
                    names: names.clone(),
                    stamp: Some(stamp.clone()),
                    new: false,
                });
            }
            Ok(Class {
                names: image_names(&dir)?,
                stamp,
                new: true,
            })
        })
        .collect();
    let listed: Vec<Class> = listed.into_iter().collect::<Result<_, _>>()?;
    let images: usize = listed.iter().map(|class| class.names.len()).sum();
    let news = listed
        .iter()
        .any(|class| class.new && class.stamp.is_some());
    if let Some(file) = file
        && news
        && images >= CACHED_FROM
    {
        // A cache that cannot be written costs time, nothing else.
        let _ = cache::write_atomically(&file, |out| {
            for (class, listed) in classes.iter().zip(&listed) {
                let plain = |name: &str| !name.contains(['\n', '\t']);
                if let Some(stamp) = &listed.stamp
                    && plain(class)
                    && listed.names.iter().all(|name| plain(name))
                {
                    writeln!(out, "\t{stamp}\t{class}")?;
                    listed
                        .names
                        .iter()
                        .try_for_each(|name| writeln!(out, "{name}"))?;
                }
            }
            writeln!(out, "\t")
        });
    }
    Ok(listed.into_iter().map(|class| class.names).collect())
}

struct Class {
    names: Vec<String>,
    stamp: Option<String>,
    /// Whether the cache did not know it.
    new: bool,
}

/// The classes of a cache's file, with their stamps; of a file that is cut off, none.
fn recall(text: &str) -> BTreeMap<String, (String, Vec<String>)> {
    let mut classes: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    if !text.ends_with("\n\t\n") {
        return classes;
    }
    let mut names: Option<&mut Vec<String>> = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix('\t') {
            names = match head.split_once('\t') {
                Some((stamp, class)) => {
                    let entry = classes.entry(class.to_owned()).or_default();
                    *entry = (stamp.to_owned(), Vec::new());
                    Some(&mut entry.1)
                }
                None => None,
            };
        } else if let Some(names) = &mut names {
            names.push(line.to_owned());
        }
    }
    classes
}

fn is_image(name: &std::ffi::OsStr) -> bool {
    let extension = Path::new(name).extension().map(|e| e.to_ascii_lowercase());
    extension.is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known))
}

/// Names of what is in `dir` and `wanted`, sorted, without the hidden.
fn entries(
    dir: &Path,
    wanted: impl Fn(&fs::DirEntry) -> Result<bool, DataError>,
) -> Result<Vec<String>, DataError> {
    let fail = DataError::open(dir);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") || !wanted(&entry)? {
            continue;
        }
        // Replaced characters would make one name of several.
        names.push(name.into_string().map_err(|name| {
            let problem = format!(
                "holds `{}`, whose name is not UTF-8; rename it",
                name.to_string_lossy()
            );
            DataError::layout(dir, problem)
        })?);
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
