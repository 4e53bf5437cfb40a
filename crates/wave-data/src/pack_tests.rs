use super::*;
use crate::testing::check_refused;

#[test]
fn shards_that_were_not_packed_to_the_end_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let spec = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let data = crate::open("shapes").unwrap();
    let (killed, saved) = (dir.path().join("killed"), std::cell::Cell::new(0));
    let save = || {
        // The state after a kill in the middle of the work.
        saved.set(saved.get() + 1);
        if saved.get() == 4000 {
            fs::create_dir(&killed).unwrap();
            for entry in fs::read_dir(spec("whole")).unwrap() {
                let file = entry.unwrap();
                fs::copy(file.path(), killed.join(file.file_name())).unwrap();
            }
        }
    };
    pack(&data, Path::new(&spec("whole")), 1 << 20, save).unwrap();
    assert!(crate::open(&spec("whole")).is_ok());
    for left in ["killed", "killed/train-*.tar"] {
        check_refused(crate::open(&spec(left)), &["not packed to the end"]);
    }
    pack(&data, &killed, 1 << 20, || ()).unwrap();
    assert_eq!(crate::open(&spec("killed")).unwrap().train.len(), 6000);
}

#[test]
fn what_is_packed_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("packed");
    let data = crate::open("shapes").unwrap();
    let packed = pack(&data, &out, 4 << 20, || ()).unwrap();
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
    assert_eq!(again.train.class_names(), data.train.class_names());
    for i in [0, 17, 5999] {
        assert_eq!(again.train.label(i), data.train.label(i));
        assert_eq!(again.train.image(i).unwrap(), data.train.image(i).unwrap());
    }
    check_refused(pack(&again, &out, 4 << 20, || ()), &["already holds"]);
    check_refused(pack(&again, dir.path(), 10, || ()), &["too small"]);
}
