use super::*;
use crate::hub::tests::{FakeHub, Fault};
use crate::testing::check_text;
use serde_json::json;

#[test]
fn a_search_finds_what_has_all_tags() {
    let root = tempfile::tempdir().unwrap();
    let hub = FakeHub::new();
    let settings = hub.settings(root.path());
    hub.state().listed = vec![
        json!({ "id": "a/t", "downloads": 7,
            "tags": ["learngene", "wave", "license:mit", "dataset:cifar10", "dataset:b"] }),
        json!({ "id": "a/other", "downloads": 9, "tags": ["learngene"] }),
        json!({ "id": "b/bare", "tags": ["wave", "learngene"] }),
    ];
    hub.fault("/api/models", Fault::Status(503, &[], "busy".to_owned()));
    let found = search(&settings, &["wave", "learngene"]).unwrap();
    let [tagged, bare] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&*tagged.name, tagged.downloads), ("a/t", Some(7)));
    assert_eq!(tagged.license.as_deref(), Some("mit"));
    assert_eq!(tagged.datasets, ["cifar10", "b"]);
    assert_eq!((&*bare.name, bare.downloads), ("b/bare", None));
    assert!(bare.license.is_none() && bare.datasets.is_empty());
    assert_eq!(hub.count("GET /api/models?filter=learngene&"), 2);
}

#[test]
fn a_search_that_fails_names_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    let hub = FakeHub::new();
    let mut settings = hub.settings(root.path());
    let failure = |settings: &HubSettings| search(settings, &["wave"]).unwrap_err().to_string();
    hub.fault("/api/models", Fault::Status(400, &[], "no".to_owned()));
    let refused = failure(&settings);
    check_text(&refused, &["a search for wave", "400"]);
    settings.offline = true;
    assert!(failure(&settings).contains("HF_HUB_OFFLINE"));
    assert_eq!(hub.count("/api/models"), 1);
}
