use super::*;

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
    let error = pack(&again, &out, 4 << 20, || ()).unwrap_err();
    assert!(
        error.is_request() && error.to_string().contains("already holds"),
        "{error}"
    );
    assert!(
        pack(&again, dir.path(), 10, || ())
            .unwrap_err()
            .is_request()
    );
}
