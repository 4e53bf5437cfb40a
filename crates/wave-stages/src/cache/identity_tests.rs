use super::*;

#[test]
fn entries_of_either_manifest_differ() {
    let scores = json!({"classes": 16, "images": 3});
    let features = json!({"classes": 16, "images": 3, "outputs": "features"});
    let found = |a, b| difference(a, b).unwrap();
    assert_eq!(found(&scores, &features), "outputs = none, now features");
    assert_eq!(found(&features, &scores), "outputs = features, now none");
    assert_eq!(difference(&scores, &scores), None);
    let named = json!({"classes": 16, "images": 3, "labels_sha256": "ab", "labels": "cat"});
    assert_eq!(
        found(&scores, &named),
        "labels_sha256 = none, now \"ab\" (cat)"
    );
}

#[test]
fn the_remedy_depends_on_the_version() {
    for (version, part) in [(3, "newer"), (2, "same settings"), (1, "remove it")] {
        let told = remedy(&json!({"format_version": version}));
        assert!(told.contains(part), "{version}: {told}");
    }
}
