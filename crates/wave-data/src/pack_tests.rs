use super::*;
use crate::RawImage;
use crate::testing::check_refused;

/// Images of another source, one of which cannot be read.
struct Failing(std::sync::Arc<dyn Source>);

impl Source for Failing {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn label(&self, i: usize) -> u32 {
        self.0.label(i)
    }
    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        match i {
            4000 => Err(DataError::Settings("no image 4000".to_owned())),
            i => self.0.image(i),
        }
    }
}

#[test]
fn packed_images_are_opened_again_once_all_are_packed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("packed");
    let spec = out.to_str().unwrap();
    let data = crate::open("shapes").unwrap();
    let failing = Dataset {
        train: std::sync::Arc::new(Failing(data.train.clone())),
        ..data.clone()
    };
    check_refused(pack(&failing, &out, 1 << 20), &["no image 4000"]);
    for left in [spec, &format!("{spec}/train-*.tar")] {
        check_refused(crate::open(left), &["not completely packed"]);
    }

    let packed = pack(&data, &out, 1 << 20).unwrap();
    assert_eq!(packed.images, 7000);
    assert!(packed.shards.len() > 3, "{:?}", packed.shards);
    let length = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
    let lengths: Vec<u64> = packed.shards.iter().map(length).collect();
    assert!(lengths.iter().all(|&n| n < (1 << 20) + 8192), "{lengths:?}");
    assert_eq!(packed.bytes, lengths.iter().sum::<u64>());
    let names = std::fs::read_dir(&out).unwrap();
    assert_eq!(names.count(), packed.shards.len() + 1); // and nothing temporary

    let again = crate::open(spec).unwrap();
    assert_eq!((again.train.len(), again.test.len()), (6000, 1000));
    assert_eq!(again.class_names, data.class_names);
    for i in [0, 17, 5999] {
        assert_eq!(again.train.label(i), data.train.label(i));
        assert_eq!(again.train.image(i).unwrap(), data.train.image(i).unwrap());
    }
    check_refused(pack(&again, &out, 1 << 20), &["already holds"]);
    check_refused(pack(&again, dir.path(), 10), &["too small"]);
}

/// Two classes of small images.
fn two(train: usize, test: usize) -> Dataset {
    let part = |n: usize| crate::source::InMemory {
        size: (1, 8, 8),
        pixels: vec![7; n * 8 * 8],
        labels: (0..n).map(|i| (i % 2) as u8).collect(),
    };
    let names = crate::source::numbered(1);
    Dataset::new("two".to_owned(), names, part(train), part(test))
}

#[test]
fn shards_of_an_interrupted_run_do_not_stay() {
    let dir = tempfile::tempdir().unwrap();
    let packed = pack(&two(90, 40), dir.path(), 1 << 16).unwrap();
    assert!(packed.shards.len() > 3, "{:?}", packed.shards);
    // Left by a run that does not end.
    fs::rename(dir.path().join(INFO), dir.path().join(INCOMPLETE)).unwrap();
    let packed = pack(&two(60, 0), dir.path(), 1 << 20).unwrap();
    assert_eq!(packed.shards.len(), 1);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2); // and the description
    let all = crate::open(&format!("{}/*.tar", dir.path().display())).unwrap();
    assert_eq!((all.train.len(), all.test.len()), (60, 0));
}
