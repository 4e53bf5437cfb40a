use super::*;

#[test]
fn a_large_folder_is_listed_once() {
    let dir = tempfile::tempdir().unwrap();
    let class = dir.path().join("train/cat");
    fs::create_dir_all(&class).unwrap();
    for k in 0..CACHED_FROM {
        fs::write(class.join(format!("{k:05}.jpg")), "").unwrap();
    }
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
    let age = |time| fs::File::open(&class).unwrap().set_modified(time).unwrap();
    age(old);
    let cache = dir.path().join("cache");
    let listed = || {
        let mut all = images(&dir.path().join("train"), &["cat".into()], Some(&cache)).unwrap();
        all.remove(0).names
    };
    let names = listed();
    assert_eq!(names.len(), CACHED_FROM);
    let mut kept = fs::read_dir(&cache).unwrap();
    let kept = kept.next().unwrap().unwrap().path();
    let whole = fs::read(&kept).unwrap();
    fs::rename(class.join("00000.jpg"), class.join("zzzzz.jpg")).unwrap();
    age(old); // as if nothing had changed
    assert_eq!(listed(), names);
    fs::write(&kept, &whole[..whole.len() - 3]).unwrap();
    assert_eq!(listed().last().unwrap(), "zzzzz.jpg"); // damaged, and made again
    fs::write(&kept, whole).unwrap();
    assert_eq!(listed(), names);
    age(old + std::time::Duration::from_secs(1));
    assert_eq!(listed().last().unwrap(), "zzzzz.jpg");
}
