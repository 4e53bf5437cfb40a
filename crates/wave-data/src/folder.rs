//! A folder for each class: `train/CLASS/*.jpg` and `val/CLASS/*.jpg`.
//!
//! Opening reads names only. Files are read and decoded when their image is asked for.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::source::no_image;
use crate::{DataError, Dataset, RawImage, Source, decode};

const EXTENSIONS: [&str; 4] = ["jpg", "jpeg", "png", "webp"];

/// Opens `dir/train` and `dir/val`, or `dir/test` where there is no `val`. Classes are numbered in
/// the order of their names.
pub(crate) fn open(dir: &Path, name: String) -> Result<Dataset, DataError> {
    let train_dir = dir.join("train");
    let test_dir = ["val", "test"]
        .map(|part| dir.join(part))
        .into_iter()
        .find(|path| path.exists())
        .ok_or_else(|| {
            layout(
                dir,
                "has a folder `train`, but neither `val` nor `test`; expected one of them with the \
                 same classes"
                    .to_owned(),
            )
        })?;
    let classes = list_classes(&train_dir)?;
    let test_classes = list_classes(&test_dir)?;
    for (here, other, there) in [
        (&classes, &test_classes, &test_dir),
        (&test_classes, &classes, &train_dir),
    ] {
        if let Some(missing) = here.iter().find(|class| !other.contains(class)) {
            return Err(layout(
                there,
                format!(
                    "has no folder `{}`; expected the same classes for training and testing",
                    missing.to_string_lossy()
                ),
            ));
        }
    }
    let names: Arc<[String]> = classes
        .iter()
        .map(|class| class.to_string_lossy().into_owned())
        .collect();
    let list = |part: &Path| list_images(part, &classes, names.clone());
    Ok(Dataset {
        name,
        train: Arc::new(list(&train_dir)?),
        test: Arc::new(list(&test_dir)?),
    })
}

/// Images in files.
struct Folder {
    files: Vec<PathBuf>,
    labels: Vec<u32>,
    class_names: Arc<[String]>,
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.files.len()
    }

    fn label(&self, i: usize) -> u32 {
        self.labels[i]
    }

    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        let path = self.files.get(i).ok_or_else(|| no_image(i, self.len()))?;
        let bytes = fs::read(path).map_err(|source| DataError::Read {
            path: path.clone(),
            source,
        })?;
        decode(&bytes, &path.display().to_string())
    }

    fn encoded(&self, i: usize) -> Result<Option<crate::Encoded>, DataError> {
        let path = self.files.get(i).ok_or_else(|| no_image(i, self.len()))?;
        let bytes = fs::read(path).map_err(|source| DataError::Read {
            path: path.clone(),
            source,
        })?;
        Ok(Some(crate::Encoded {
            bytes,
            name: path.display().to_string(),
        }))
    }

    fn class_names(&self) -> &[String] {
        &self.class_names
    }

    fn native_size(&self) -> Option<(usize, usize, usize)> {
        None
    }
}

/// Names of the folders in `part`, sorted.
fn list_classes(part: &Path) -> Result<Vec<OsString>, DataError> {
    let mut classes = list(part)?;
    classes.retain(|name| part.join(name).is_dir());
    if classes.is_empty() {
        return Err(layout(
            part,
            "has no folder in it; expected one for each class".to_owned(),
        ));
    }
    Ok(classes)
}

fn list_images(
    part: &Path,
    classes: &[OsString],
    class_names: Arc<[String]>,
) -> Result<Folder, DataError> {
    let mut folder = Folder {
        files: Vec::new(),
        labels: Vec::new(),
        class_names,
    };
    for (label, class) in (0..).zip(classes) {
        let class_dir = part.join(class);
        let before = folder.len();
        let names = list(&class_dir)?;
        let files = names.iter().map(|name| class_dir.join(name));
        folder.files.extend(files.filter(|file| is_image(file)));
        if folder.len() == before {
            return Err(layout(
                &class_dir,
                format!(
                    "holds no image; expected at least one .{}",
                    EXTENSIONS.join(", .")
                ),
            ));
        }
        folder.labels.resize(folder.files.len(), label);
    }
    if u32::try_from(folder.len()).is_err() {
        let problem = format!("holds {} images; expected fewer than 2^32", folder.len());
        return Err(layout(part, problem));
    }
    Ok(folder)
}

fn is_image(file: &Path) -> bool {
    let extension = file.extension().map(|e| e.to_ascii_lowercase());
    extension.is_some_and(|e| EXTENSIONS.iter().any(|known| e == *known)) && !file.is_dir()
}

/// Names of what is in `dir`, sorted, without the hidden.
fn list(dir: &Path) -> Result<Vec<OsString>, DataError> {
    let fail = |source| DataError::Open {
        path: dir.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn layout(path: &Path, problem: String) -> DataError {
    DataError::Layout {
        path: path.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, GrayImage, Luma, Rgb, RgbImage};
    use tempfile::TempDir;

    use super::*;

    fn colour() -> DynamicImage {
        RgbImage::from_fn(20, 10, |x, y| Rgb([10 * x as u8, 20 * y as u8, 7])).into()
    }

    fn grey() -> DynamicImage {
        GrayImage::from_pixel(9, 9, Luma([77])).into()
    }

    /// Two classes, three formats. Names are out of order, and some are not images' names.
    fn sound(test: &str) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("train/dog/b.webp", colour()),
            ("train/dog/a.PNG", grey()),
            ("train/cat/z.jpeg", colour()),
            ("train/cat/y.jpg", grey()),
            ("TEST/cat/1.png", colour()),
            ("TEST/dog/2.webp", colour()),
        ];
        for (name, image) in files {
            let path = dir.path().join(name.replace("TEST", test));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            image.save(path).unwrap();
        }
        fs::write(dir.path().join("train/README.txt"), "not a class").unwrap();
        fs::write(dir.path().join("train/dog/notes.txt"), "not an image").unwrap();
        fs::write(dir.path().join("train/dog/.hidden.png"), "not an image").unwrap();
        dir
    }

    fn open_at(dir: &TempDir) -> Result<Dataset, DataError> {
        crate::open(dir.path().to_str().unwrap())
    }

    #[test]
    fn three_formats_in_the_order_of_their_names() {
        for test in ["val", "test"] {
            let data = open_at(&sound(test)).unwrap();
            assert_eq!(data.train.class_names(), ["cat", "dog"]);
            assert_eq!(data.test.class_names(), ["cat", "dog"]);
            assert_eq!((data.train.len(), data.test.len()), (4, 2));
            let labels: Vec<u32> = (0..4).map(|i| data.train.label(i)).collect();
            assert_eq!(labels, [0, 0, 1, 1]);
            assert_eq!(data.train.native_size(), None);
        }
        let dir = sound("val");
        let data = open_at(&dir).unwrap();
        let size = |i| {
            let image = data.train.image(i).unwrap();
            (image.channels, image.height, image.width)
        };
        let sizes = [(1, 9, 9), (3, 10, 20), (1, 9, 9), (3, 10, 20)]; // y, z, a, b
        assert_eq!([0, 1, 2, 3].map(size), sizes);
        assert_eq!(data.train.image(2).unwrap().pixels, vec![77; 81]);
        assert_eq!(
            data.train.image(3).unwrap().pixels,
            colour().into_rgb8().into_raw()
        );
        assert!(data.train.image(4).unwrap_err().is_request());
    }

    #[track_caller]
    fn check_refused(spoil: impl FnOnce(&Path), expected: &[&str]) {
        let dir = sound("val");
        spoil(dir.path());
        let error = open_at(&dir).err().expect("must be refused");
        assert!(error.is_request());
        for part in expected {
            assert!(error.to_string().contains(part), "no `{part}` in: {error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let remove =
            |name: &'static str| move |dir: &Path| fs::remove_dir_all(dir.join(name)).unwrap();
        check_refused(remove("val"), &["neither `val` nor `test`"]);
        check_refused(remove("val/cat"), &["val: ", "no folder `cat`"]);
        check_refused(remove("train/dog"), &["train: ", "no folder `dog`"]);
        let empty = |dir: &Path| {
            fs::remove_dir_all(dir.join("train")).unwrap();
            fs::create_dir(dir.join("train")).unwrap();
        };
        check_refused(empty, &["train: ", "one for each class"]);
        let no_images = |dir: &Path| fs::remove_file(dir.join("val/dog/2.webp")).unwrap();
        check_refused(no_images, &["val/dog: ", "no image", ".webp"]);
        let a_file = |dir: &Path| {
            fs::remove_dir_all(dir.join("val")).unwrap();
            fs::write(dir.join("val"), "a file").unwrap();
        };
        check_refused(a_file, &["cannot read", "val"]);
    }

    #[test]
    fn a_file_that_is_no_image_is_named() {
        let dir = sound("val");
        fs::write(dir.path().join("train/cat/y.jpg"), "plain text").unwrap();
        let error = open_at(&dir).unwrap().train.image(0).unwrap_err();
        assert!(error.is_request());
        assert!(error.to_string().contains("train/cat/y.jpg: not an image"));
    }

    #[test]
    fn a_file_that_vanishes_is_not_the_users_fault() {
        let dir = sound("val");
        let data = open_at(&dir).unwrap();
        fs::remove_file(dir.path().join("train/cat/y.jpg")).unwrap();
        let error = data.train.image(0).unwrap_err();
        assert!(!error.is_request());
        assert!(error.to_string().contains("train/cat/y.jpg"));
    }
}
