use super::*;

#[test]
fn broken_images_are_found_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    for part in ["train", "val"] {
        for class in ["a", "b"] {
            let class = dir.path().join(part).join(class);
            std::fs::create_dir_all(&class).unwrap();
            let png = include_bytes!("../tests/fixtures/alpha.png");
            std::fs::write(class.join("1.png"), png).unwrap();
        }
    }
    let turned = include_bytes!("../tests/fixtures/turned.jpg");
    let train = dir.path().join("train");
    std::fs::write(train.join("a/2.jpg"), turned).unwrap();
    std::fs::write(train.join("b/2.jpg"), &turned[..700]).unwrap();
    std::fs::write(train.join("b/3.jpg"), "text").unwrap();
    let data = crate::testing::open(dir.path()).unwrap();
    let report = check(&*data.train, &data.class_names);
    assert_eq!(report.unlabelled, 0);
    assert_eq!(report.classes, [("a".to_owned(), 2), ("b".to_owned(), 3)]);
    let broken: Vec<u32> = report.broken.iter().map(|image| image.index).collect();
    assert_eq!(broken, [3, 4]);
    assert!(report.broken[0].path.ends_with("b/2.jpg"));
    assert!(report.broken[0].problem.contains("truncated"));
}
