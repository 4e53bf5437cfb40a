//! The same images in every layout: the same classes, counts and pixels.

#[path = "../examples/imagenet_like/generate.rs"]
mod generate;

use generate::Shape;
use wave_data::{Dataset, Source, check};

const SHAPE: Shape = Shape {
    classes: 5,
    train: 43,
    val: 12,
    side: 24,
    distinct: 20,
};

fn open(spec: &std::path::Path) -> Dataset {
    wave_data::open(spec.to_str().unwrap()).unwrap()
}

/// The images of each class, and which images are broken.
fn look(data: &Dataset, source: &dyn Source) -> (Vec<usize>, Vec<u32>) {
    let report = check(source, &data.class_names);
    assert_eq!(report.unlabelled, 0);
    let counts = report.classes.into_iter().map(|(_, n)| n).collect();
    (counts, report.broken.into_iter().map(|b| b.index).collect())
}

#[test]
fn every_layout_holds_the_same_images() {
    let dir = tempfile::tempdir().unwrap();
    generate::image_folder(&dir.path().join("folder"), &SHAPE).unwrap();
    let folder = open(&dir.path().join("folder"));
    wave_data::pack(&folder, &dir.path().join("shards"), 1 << 16).unwrap();
    let mut layouts = vec![open(&dir.path().join("shards"))];
    layouts.push(open(&dir.path().join("shards/*.tar")));
    #[cfg(feature = "parquet")]
    {
        for (name, source) in [("train", &folder.train), ("val", &folder.test)] {
            let path = dir.path().join(format!("parquet/{name}.parquet"));
            generate::parquet(&path, &**source).unwrap();
        }
        layouts.push(open(&dir.path().join("parquet/*.parquet")));
    }

    let (train, broken) = look(&folder, &*folder.train);
    assert_eq!(train, generate::counts(SHAPE.train, SHAPE.classes));
    assert_eq!(broken.len(), 2); // the ninth and the twenty-ninth that were written are cut off
    let report = check(&*folder.train, &folder.class_names);
    let ninth = &report.broken[0];
    assert!(ninth.path.ends_with("n00000_8.jpg"), "{ninth:?}");
    assert!(ninth.problem.contains("truncated"), "{ninth:?}");
    let (test, _) = look(&folder, &*folder.test);
    assert_eq!(test, generate::counts(SHAPE.val, SHAPE.classes));
    for data in layouts {
        assert_eq!(look(&data, &*data.train), (train.clone(), broken.clone()));
        assert_eq!(look(&data, &*data.test).0, test);
        for i in (0..SHAPE.train).filter(|&i| !broken.contains(&(i as u32))) {
            assert_eq!(data.train.label(i), folder.train.label(i));
            assert_eq!(data.train.image(i).unwrap(), folder.train.image(i).unwrap());
        }
    }
}
