use std::fs;

use super::*;
use crate::hub::tests::{
    CARD, COMMIT, FakeHub, Fault, Host, Seen, TOKEN, XET_TOKEN, model_dir, quiet,
    with_a_home_of_its_own,
};
use crate::testing::{check_refused, check_text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

fn send(
    settings: &HubSettings,
    dir: &Path,
    options: &PublishOptions,
) -> Result<Published, HubError> {
    publish(settings, dir, &"o/n".parse().unwrap(), options, &quiet())
}

fn options() -> PublishOptions {
    PublishOptions {
        card: CARD.to_owned(),
        ..PublishOptions::default()
    }
}

fn setting() -> (tempfile::TempDir, std::path::PathBuf, FakeHub, HubSettings) {
    let root = tempfile::tempdir().unwrap();
    let dir = model_dir(root.path());
    let hub = FakeHub::new();
    let settings = hub.settings(&root.path().join("cache"));
    (root, dir, hub, settings)
}

/// The lines of the only commit, and the one about `path`.
fn committed(hub: &FakeHub, path: &str) -> (Vec<Value>, Value) {
    let commits = hub.state().commits.clone();
    assert_eq!(commits.len(), 1);
    let parse = |line| serde_json::from_str(line).unwrap();
    let lines: Vec<Value> = commits[0].lines().map(parse).collect();
    let line = lines.iter().find(|line| line["value"]["path"] == path);
    (lines.clone(), line.unwrap().clone())
}

/// The order in which requests with these in their path came.
fn order<'a>(hub: &FakeHub, parts: &[&'a str]) -> Vec<&'a str> {
    let part = |seen: &Seen| parts.iter().find(|at| seen.path.contains(**at)).copied();
    let mut order: Vec<_> = hub.state().seen.iter().filter_map(part).collect();
    order.dedup();
    order
}

#[test]
fn a_model_is_published_as_one_commit_its_weights_by_xet_and_its_text_in_it() {
    let (root, dir, hub, settings) = setting();
    if !with_a_home_of_its_own(root.path(), "a_model_is_published_as_one_commit") {
        return;
    }
    let options = PublishOptions {
        private: true,
        message: Some("Six layers".to_owned()),
        card: "---\nlicense: mit\n---\n\n# Another\n".to_owned(),
        ..options()
    };
    let published = send(&settings, &dir, &options).unwrap();
    assert_eq!(published.commit.as_deref(), Some(COMMIT));
    assert_eq!(published.url, Some(format!("{}/c", hub.url)));
    assert_eq!(hub.state().private, Some(true));
    let (lines, weights) = committed(&hub, "model.safetensors");
    assert_eq!(lines.len(), 1 + published.files.len());
    assert_eq!(lines[0]["value"]["summary"], "Six layers");
    let file = dir.join("model.safetensors");
    let expected = json!({
        "path": "model.safetensors",
        "algo": "sha256",
        "oid": crate::sha256_file(&file).unwrap(),
        "size": fs::metadata(&file).unwrap().len(),
    });
    assert_eq!(weights, json!({ "key": "lfsFile", "value": expected }));
    let config = fs::read_to_string(dir.join("config.json")).unwrap();
    for (name, text) in [("README.md", options.card), ("config.json", config)] {
        let (_, line) = committed(&hub, name);
        let content = BASE64.decode(line["value"]["content"].as_str().unwrap());
        assert_eq!(line["key"], "file");
        assert_eq!(content.unwrap(), text.as_bytes());
    }
    // Content goes first, under Xet's own token.
    let steps = "create batch xet-write-token /v1/xorbs/default/ /v1/shards commit/main";
    let steps: Vec<&str> = steps.split(' ').collect();
    assert_eq!(order(&hub, &steps), steps);
    let mut sent = 0;
    for seen in &hub.state().seen {
        if seen.path.starts_with("/v1/xorbs/default/") {
            sent += seen.body.len();
        }
        let token = match seen.host {
            Host::Xet => XET_TOKEN,
            _ => TOKEN,
        };
        assert!(seen.headers["authorization"].ends_with(token));
    }
    assert!(sent > 1000, "{sent} bytes of 4,000 that count up");
}

/// Asserts that nothing is committed, and that the error holds each of `parts` and no token.
#[track_caller]
fn check_failed(hub: &FakeHub, settings: &HubSettings, dir: &Path, parts: &[&str]) {
    let error = send(settings, dir, &options()).unwrap_err();
    let text = format!("{error} {error:?}");
    check_text(&text, parts);
    assert!(!text.contains(TOKEN) && !text.contains(XET_TOKEN), "{text}");
    assert!(hub.state().commits.is_empty());
}

#[test]
fn a_hub_without_xet_is_refused_before_anything_is_sent() {
    for transfer in ["basic", "multipart"] {
        let (_root, dir, hub, settings) = setting();
        hub.state().transfer = Some(transfer);
        let parts = ["o/n", transfer, "expected Xet", "hf upload"];
        check_refused(send(&settings, &dir, &options()), &parts);
        assert!(hub.state().commits.is_empty());
        assert_eq!(hub.count("preupload"), 0);
    }
}

#[test]
fn a_branch_is_created_and_a_pull_request_is_proposed() {
    let (root, dir, hub, settings) = setting();
    if !with_a_home_of_its_own(root.path(), "a_branch_is_created_and_a_pull_request") {
        return;
    }
    let mut options = PublishOptions {
        revision: Some("v2".to_owned()),
        ..options()
    };
    send(&settings, &dir, &options).unwrap();
    assert_eq!(hub.state().branches, ["main", "v2"]);
    assert_eq!(hub.count("POST /api/models/o/n/commit/v2"), 1);
    let batches = || {
        let mut seen = hub.state().seen.clone();
        seen.retain(|seen| seen.path.contains("objects/batch"));
        let body = |seen: &Seen| serde_json::from_slice::<Value>(&seen.body).unwrap();
        let named = |seen: &Seen| body(seen).get("ref").cloned();
        seen.iter().map(named).collect::<Vec<_>>()
    };
    let named = Some(json!({ "name": "v2" }));
    assert_eq!(batches(), [named.clone(), named]);

    options.create_pr = true;
    let parts = ["v2", "to main only", "omit the branch"];
    check_refused(send(&settings, &dir, &options), &parts);
    options.revision = None;
    let published = send(&settings, &dir, &options).unwrap();
    let proposed = format!("{}/o/n/discussions/7", hub.url);
    assert_eq!(published.url, Some(proposed));
    // Nothing asks for write access to main.
    assert_eq!(batches()[2], None);
    assert_eq!(hub.count("xet-write-token/refs%2Fpr%2F7"), 1);
    assert_eq!(hub.count("commit/refs%2Fpr%2F7"), 1);
    assert_eq!(hub.count("main"), 0);
    options.revision = Some("../x".to_owned());
    check_refused(send(&settings, &dir, &options), &["revision"]);
}

#[test]
fn without_token_network_or_a_clean_directory_nothing_is_sent_and_a_dry_run_needs_none() {
    let (_root, dir, hub, settings) = setting();
    let options = options();
    let (mut anonymous, mut offline) = (settings.clone(), settings.clone());
    anonymous.token = None;
    check_refused(send(&anonymous, &dir, &options), &["HF_TOKEN"]);
    offline.offline = true;
    check_refused(send(&offline, &dir, &options), &["HF_HUB_OFFLINE"]);
    let leak = PublishOptions {
        card: format!("---\nlicense: mit\n---\n\nUse {TOKEN}\n"),
        ..options.clone()
    };
    let error = send(&settings, &dir, &leak).unwrap_err();
    assert!(!error.to_string().contains(TOKEN));
    check_refused::<()>(Err(error), &["README.md", "holds the hub's token"]);
    let (mut dry, mut unable) = (options.clone(), offline);
    dry.dry_run = true;
    unable.token = None;
    let planned = send(&unable, &dir, &dry).unwrap();
    assert_eq!(planned, plan(&dir, CARD).unwrap());
    assert_eq!((planned.commit, planned.url), (None, None));
    fs::write(dir.join("optimiser.pt"), "x").unwrap();
    check_refused(send(&settings, &dir, &options), &["optimiser.pt"]);
    assert_eq!(hub.count(""), 0);
}

#[test]
fn refusals_are_explained_and_commit_nothing_and_trouble_that_passes_is_waited_out() {
    let (root, dir, hub, settings) = setting();
    if !with_a_home_of_its_own(root.path(), "publish::tests::refusals_are_explained") {
        return;
    }
    // Before its storage has anything: content that it has is not sent again.
    for _ in 0..20 {
        hub.fault("/v1/xorbs/", Fault::Status(403, &[], "no room".to_owned()));
    }
    check_failed(&hub, &settings, &dir, &["o/n: ", "Xet"]);
    for (at, status, expected) in [
        ("repos/create", 403, "not permitted to do this"),
        ("preupload", 401, "does not accept the token"),
        ("batch", 413, "smaller"),
        ("xet-write-token", 403, "not permitted to do this"),
        ("commit", 409, "repository in the meantime (409)"),
        ("commit", 412, "(412)"),
        ("commit", 400, "refused (400)"),
    ] {
        let (_root, dir, hub, settings) = setting();
        let said = format!("because of {TOKEN}");
        hub.fault(at, Fault::Status(status, &[], said));
        let parts = [expected, "because of [token]"];
        check_failed(&hub, &settings, &dir, &parts);
    }

    // A commit is tried again as a whole.
    let (_root, dir, hub, mut settings) = setting();
    settings.attempts = 5;
    let passing = [
        "GET /api/models",
        "preupload",
        "batch",
        "xet-write-token",
        "commit",
    ];
    for at in passing {
        let wait = &[("retry-after", "0")];
        hub.fault(at, Fault::Status(503, wait, String::new()));
    }
    send(&settings, &dir, &options()).unwrap();
    assert_eq!(hub.state().commits.len(), 1);
}
