use super::*;
use crate::hub::tests::{FakeHub, Fault};
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
    assert_eq!(
        found,
        [
            Found {
                name: "a/t".to_owned(),
                downloads: Some(7),
                license: Some("mit".to_owned()),
                datasets: vec!["cifar10".to_owned(), "b".to_owned()],
            },
            Found {
                name: "b/bare".to_owned(),
                downloads: None,
                license: None,
                datasets: Vec::new(),
            }
        ]
    );
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
    assert!(
        refused.contains("a search for wave") && refused.contains("400"),
        "{refused}"
    );
    settings.offline = true;
    assert!(failure(&settings).contains("HF_HUB_OFFLINE"));
    assert_eq!(hub.count("/api/models"), 1);
}
