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
fn shards_that_were_not_packed_to_the_end_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = crate::open("shapes").unwrap();
    let failing = Dataset {
        train: std::sync::Arc::new(Failing(data.train.clone())),
        ..data.clone()
    };
    check_refused(pack(&failing, dir.path(), 1 << 20), &["no image 4000"]);
    let spec = dir.path().to_str().unwrap();
    for left in [spec, &format!("{spec}/train-*.tar")] {
        check_refused(crate::open(left), &["not completely packed"]);
    }
    pack(&data, dir.path(), 1 << 20).unwrap();
    assert_eq!(crate::open(spec).unwrap().train.len(), 6000);
}

#[test]
fn what_is_packed_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("packed");
    let data = crate::open("shapes").unwrap();
    let packed = pack(&data, &out, 4 << 20).unwrap();
    assert_eq!(packed.images, 7000);
    assert!(packed.shards.len() > 3, "{:?}", packed.shards);
    let length = |path: &PathBuf| std::fs::metadata(path).unwrap().len();
    let lengths: Vec<u64> = packed.shards.iter().map(length).collect();
    assert!(lengths.iter().all(|&n| n < (4 << 20) + 8192), "{lengths:?}");
    assert_eq!(packed.bytes, lengths.iter().sum::<u64>());
    let names = std::fs::read_dir(&out).unwrap();
    assert_eq!(names.count(), packed.shards.len() + 1); // and nothing temporary

    let again = crate::open(out.to_str().unwrap()).unwrap();
    assert_eq!((again.train.len(), again.test.len()), (6000, 1000));
    assert_eq!(again.class_names, data.class_names);
    for i in [0, 17, 5999] {
        assert_eq!(again.train.label(i), data.train.label(i));
        assert_eq!(again.train.image(i).unwrap(), data.train.image(i).unwrap());
    }
    check_refused(pack(&again, &out, 4 << 20), &["already holds"]);
    check_refused(pack(&again, dir.path(), 10), &["too small"]);
}
