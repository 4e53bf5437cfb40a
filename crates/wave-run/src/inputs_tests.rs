use super::*;
use crate::data::DataPlan;
use crate::data::Input;
use crate::settings::Images;
use std::fs;

/// Writes grey images of the classes `a` and `b`, each with its folder, file number and shade.
fn write_images(root: &Path, images: &[(&str, u32, u8)]) {
    for (folder, number, shade) in images {
        let path = root.join(folder).join(format!("{number}.png"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        image::GrayImage::from_pixel(8, 8, image::Luma([*shade]))
            .save(path)
            .unwrap();
    }
}

const IMAGES: [(&str, u32, u8); 6] = [
    ("train/a", 0, 10),
    ("train/a", 1, 20),
    ("train/b", 0, 30),
    ("train/b", 1, 40),
    ("val/a", 0, 50),
    ("val/b", 0, 60),
];

/// The identity of the images in `root`.
fn identity(root: &Path) -> BTreeMap<String, String> {
    let images = Images {
        data: Some(root.display().to_string()),
        ..Images::default()
    };
    let plan = DataPlan::of_images(&images, None).unwrap();
    let input = Input::Size {
        image_size: 8,
        channels: Some(1),
    };
    let data = Data::open(&plan, input, &Context::default()).unwrap();
    let inputs = Inputs::new(&Context::default()).images(plan.spec.as_deref(), &data);
    inputs.identity().clone()
}

/// The keys that differ from [`IMAGES`] after a change.
fn changed(change: impl FnOnce(&Path)) -> Vec<String> {
    let root = tempfile::tempdir().unwrap();
    let (before, after) = (root.path().join("d"), root.path().join("moved"));
    write_images(&before, &IMAGES);
    let was = identity(&before);
    fs::rename(&before, &after).unwrap();
    change(&after);
    let found = differences(&was, &identity(&after));
    let name = |text: String| text.split(": was ").next().unwrap().to_string();
    found.into_iter().map(name).collect()
}

#[test]
fn changes_of_the_images_are_named() {
    assert!(changed(|_| {}).is_empty());
    let more = changed(|dir| write_images(dir, &[("train/a", 2, 10)]));
    assert_eq!(more, ["normalisation", "training images"]);
    let other = changed(|dir| write_images(dir, &[("val/a", 0, 51)]));
    assert_eq!(other, ["test images"]);
    let rename = |dir: &Path, folders: &[(&str, &str)]| {
        for (from, to) in folders {
            fs::rename(dir.join(from), dir.join(to)).unwrap();
        }
    };
    let swap = [("train/a", "c"), ("train/b", "train/a"), ("c", "train/b")];
    assert_eq!(changed(|dir| rename(dir, &swap)), ["training images"]);
    let another = [("train/b", "train/z"), ("val/b", "val/z")];
    assert_eq!(changed(|dir| rename(dir, &another)), ["classes"]);
}

#[test]
fn artefacts_are_known_by_what_is_in_them() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("m");
    fs::create_dir(&dir).unwrap();
    let digest = |name: &str, text: &str| {
        fs::write(dir.join(name), text).unwrap();
        let inputs = Inputs::new(&Context::default()).artefact("model", &dir);
        inputs.unwrap().identity()["model"].clone()
    };
    let first = digest("model.safetensors", "x");
    let with_config = digest("config.json", "{}");
    assert_ne!(first, with_config);
    assert_eq!(digest("README.md", "a card"), with_config);
    assert_ne!(digest("model.safetensors", "y"), with_config);
}
