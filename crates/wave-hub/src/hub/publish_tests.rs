use super::*;
use crate::hub::pull;
use crate::hub::server::{COMMIT, FakeHub, Fault, TOKEN, model_dir};
use crate::testing::{check_equal, check_request};
use crate::{read_model, sha256_file};

fn send(
    settings: &HubSettings,
    dir: &Path,
    options: &PublishOptions,
) -> Result<Published, HubError> {
    publish(settings, dir, &"o/n".parse().unwrap(), options, &mut |_| ())
}

fn setting() -> (tempfile::TempDir, std::path::PathBuf, FakeHub, HubSettings) {
    let root = tempfile::tempdir().unwrap();
    let dir = model_dir(root.path());
    let hub = FakeHub::new();
    let settings = hub.settings(&root.path().join("cache"));
    (root, dir, hub, settings)
}

#[test]
fn a_model_is_published_as_one_commit_and_pulls_back() {
    let (_root, dir, hub, settings) = setting();
    let options = PublishOptions {
        private: true,
        message: Some("Six layers".to_owned()),
        ..PublishOptions::default()
    };
    let published = send(&settings, &dir, &options).unwrap();
    assert_eq!(published.commit.as_deref(), Some(COMMIT));
    assert_eq!(published.url, Some(format!("{}/c", hub.url)));
    assert_eq!(hub.state().private, Some(true));
    let commits = hub.state().commits.clone();
    assert_eq!(commits.len(), 1);
    assert!(commits[0].contains("\"summary\":\"Six layers\""));
    assert_eq!(commits[0].lines().count(), 1 + published.plan.files.len());
    let pulled = pull(&settings, &"o/n".parse().unwrap(), &mut |_| ()).unwrap();
    check_equal(
        &read_model(&pulled.dir).unwrap().1,
        &read_model(&dir).unwrap().1,
    );
    assert_eq!(hub.count("POST /verify/"), 1);

    // What the storage has is not sent again.
    let puts = hub.count("PUT");
    send(&settings, &dir, &options).unwrap();
    assert_eq!(hub.count("PUT"), puts);
    assert_eq!(hub.count("repos/create"), 1);
}

#[test]
fn a_hub_that_stores_large_files_in_another_way_is_refused_before_the_commit() {
    let (_root, dir, hub, settings) = setting();
    hub.state().transfer = Some("xet");
    let error = send(&settings, &dir, &PublishOptions::default()).unwrap_err();
    check_request(error, &["o/n", "xet", "own client"]);
    assert!(hub.state().commits.is_empty());
}

#[test]
fn large_files_go_in_parts_where_the_hub_wants_it_and_progress_is_told() {
    let (_root, dir, hub, settings) = setting();
    hub.state().part = Some(1500);
    let mut told = Vec::new();
    let mut on_progress = |at: crate::hub::Progress<'_>| told.push((at.file.to_owned(), at.done));
    let repo = "o/n".parse().unwrap();
    let options = PublishOptions::default();
    publish(&settings, &dir, &repo, &options, &mut on_progress).unwrap();
    let file = dir.join("model.safetensors");
    let size = fs::metadata(&file).unwrap().len();
    assert_eq!(hub.count("PUT") as u64, size.div_ceil(1500));
    assert_eq!(hub.count("POST /complete/"), 1);
    let stored = hub.state().stored[&sha256_file(&file).unwrap()].clone();
    assert_eq!(stored, fs::read(&file).unwrap());
    assert_eq!(told.last(), Some(&("model.safetensors".to_owned(), size)));
}

#[test]
fn a_branch_is_created_and_a_pull_request_is_proposed() {
    let (_root, dir, hub, settings) = setting();
    let mut options = PublishOptions {
        revision: Some("v2".to_owned()),
        ..PublishOptions::default()
    };
    send(&settings, &dir, &options).unwrap();
    assert_eq!(hub.state().branches, ["main", "v2"]);
    assert_eq!(hub.count("POST /api/models/o/n/commit/v2"), 1);
    // A commit names the branch to the storage of large files, a pull request does not.
    let batches = || {
        let state = hub.state();
        let batches = state
            .seen
            .iter()
            .filter(|seen| seen.path.contains("objects/batch"));
        let of = |seen: &crate::hub::server::Seen| {
            let request: Value = serde_json::from_slice(&seen.body).unwrap();
            request.get("ref").cloned()
        };
        batches.map(of).collect::<Vec<_>>()
    };
    assert_eq!(batches().last().unwrap(), &Some(json!({ "name": "v2" })));
    options.create_pr = true;
    let published = send(&settings, &dir, &options).unwrap();
    assert_eq!(batches().last().unwrap(), &None);
    assert_eq!(published.url, Some(format!("{}/pr/1", hub.url)));
    assert_eq!(hub.count("commit/v2?create_pr=1"), 1);
    options.revision = Some("v3".to_owned());
    check_request(
        send(&settings, &dir, &options).unwrap_err(),
        &["no branch v3"],
    );
    options.revision = Some("../x".to_owned());
    check_request(send(&settings, &dir, &options).unwrap_err(), &["revision"]);
}

#[test]
fn nothing_is_uploaded_in_the_clear_from_an_encrypted_hub() {
    let (_root, dir, _, mut settings) = setting();
    settings.endpoint = "https://hub.invalid".to_owned();
    let repo: RepoName = "o/n".parse().unwrap();
    let hub = Hub {
        client: Client::new(&settings),
        repo: &repo,
        branch: "main",
        create_pr: false,
        about: repo.to_string(),
    };
    let plan = plan(&dir, None).unwrap();
    let clear = json!({ "href": "http://127.0.0.1:1/put" });
    let sealed = json!({ "href": "https://127.0.0.1:1/put", "header": {
        "chunk_size": "10", "1": "http://127.0.0.1:1/part"
    } });
    for actions in [
        json!({ "upload": clear }),
        json!({ "upload": sealed }),
        json!({ "verify": clear }),
    ] {
        let error = hub
            .store_one(&plan.files[0], &actions, &mut |_| ())
            .unwrap_err();
        assert!(
            error.to_string().contains("an unencrypted address"),
            "{error}"
        );
    }
}

#[test]
fn a_dry_run_needs_no_hub_and_no_token() {
    let (_root, dir, hub, mut settings) = setting();
    settings.token = None;
    settings.offline = true;
    let options = PublishOptions {
        dry_run: true,
        ..PublishOptions::default()
    };
    let published = send(&settings, &dir, &options).unwrap();
    assert_eq!(published.plan, plan(&dir, None).unwrap());
    assert_eq!((published.commit, published.url), (None, None));
    assert_eq!(hub.count(""), 0);
}

#[test]
fn without_token_network_or_a_clean_directory_nothing_is_sent() {
    let (_root, dir, hub, settings) = setting();
    let options = PublishOptions::default();
    let anonymous = HubSettings {
        token: None,
        ..settings.clone()
    };
    check_request(send(&anonymous, &dir, &options).unwrap_err(), &["HF_TOKEN"]);
    let offline = HubSettings {
        offline: true,
        ..settings.clone()
    };
    check_request(
        send(&offline, &dir, &options).unwrap_err(),
        &["HF_HUB_OFFLINE"],
    );
    let leak = PublishOptions {
        card: Some(format!("---\nlicense: mit\n---\n\nUse {TOKEN}\n")),
        ..options.clone()
    };
    let error = send(&settings, &dir, &leak).unwrap_err();
    assert!(!error.to_string().contains(TOKEN));
    check_request(error, &["README.md", "holds the hub's token"]);
    fs::write(dir.join("optimiser.pt"), "x").unwrap();
    check_request(
        send(&settings, &dir, &options).unwrap_err(),
        &["optimiser.pt"],
    );
    assert_eq!(hub.count(""), 0);
}

#[test]
fn trouble_that_passes_is_waited_out() {
    let (_root, dir, hub, settings) = setting();
    for at in [
        "GET /api/models",
        "preupload",
        "batch",
        "PUT",
        "/verify/",
        "commit",
    ] {
        hub.fault(
            at,
            Fault::Status(503, &[("retry-after", "0")], String::new()),
        );
    }
    send(&settings, &dir, &PublishOptions::default()).unwrap();
    assert_eq!(hub.state().commits.len(), 1);
}

#[test]
fn refusals_are_explained_keep_the_secret_and_commit_nothing() {
    for (at, status, expected) in [
        ("repos/create", 403, "may not do this"),
        ("preupload", 401, "does not accept the token"),
        ("batch", 413, "smaller"),
        ("PUT", 403, "may not do this"),
        ("/verify/", 422, "refused (422)"),
        ("commit", 409, "changed the repository meanwhile (409)"),
        ("commit", 412, "(412)"),
        ("commit", 400, "refused (400)"),
    ] {
        let (_root, dir, hub, settings) = setting();
        let said = format!("because of {TOKEN}");
        hub.fault(at, Fault::Status(status, &[], said));
        let error = send(&settings, &dir, &PublishOptions::default()).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(expected), "{at}: {text}");
        assert!(text.contains("because of [token]"), "{at}: {text}");
        assert!(
            !text.contains(TOKEN) && !text.contains("signature"),
            "{text}"
        );
        assert!(hub.state().commits.is_empty());
    }
}

#[test]
fn a_storage_that_refuses_an_object_is_quoted() {
    let (_root, dir, hub, settings) = setting();
    hub.fault("batch", Fault::Status(200, &[], String::new()));
    let error = send(&settings, &dir, &PublishOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no storage for large files"));
}
