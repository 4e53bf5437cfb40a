use super::*;
use crate::hub::server::{COMMIT, FakeHub, Fault, TOKEN, model_dir};
use crate::read_model;
use crate::testing::{check_equal, check_request, names};

const FILES: [&str; 3] = ["README.md", "config.json", "model.safetensors"];

fn get(settings: &HubSettings, name: &str) -> Result<Pulled, HubError> {
    pull(settings, &name.parse().unwrap(), &mut |_| ())
}

/// A repository with a model, and a cache that is empty.
fn setting() -> (tempfile::TempDir, PathBuf, FakeHub, HubSettings) {
    let root = tempfile::tempdir().unwrap();
    let dir = model_dir(root.path());
    let hub = FakeHub::holding(&dir);
    let settings = hub.settings(&root.path().join("cache"));
    (root, dir, hub, settings)
}

/// Every regular file below `dir` that is no lock.
fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(all_files(&path));
        } else if path.extension() != Some("lock".as_ref()) {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_model_is_pulled_into_the_shared_layout_once() {
    let (_root, dir, hub, settings) = setting();
    hub.state()
        .files
        .insert("train.py".to_owned(), b"x".to_vec());
    hub.state()
        .files
        .insert("logs/x.txt".to_owned(), b"x".to_vec());
    let mut last = None;
    let mut on_progress = |at: Progress<'_>| last = Some((at.file.to_owned(), at.done, at.total));
    let pulled = pull(&settings, &"hf:o/n".parse().unwrap(), &mut on_progress).unwrap();
    assert_eq!(names(&pulled.dir), FILES);
    assert_eq!(pulled.skipped, ["logs/x.txt", "train.py"]);
    let size = fs::metadata(dir.join("config.json")).unwrap().len();
    assert_eq!(last, Some(("config.json".to_owned(), size, size)));
    check_equal(
        &read_model(&pulled.dir).unwrap().1,
        &read_model(&dir).unwrap().1,
    );

    let repo = settings.cache.join("models--o--n");
    assert_eq!(pulled.dir, repo.join("snapshots").join(COMMIT));
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    let blob = sha256_file(&dir.join("model.safetensors")).unwrap();
    assert!(repo.join("blobs").join(&blob).is_file());
    #[cfg(unix)]
    assert_eq!(
        fs::read_link(pulled.dir.join("model.safetensors")).unwrap(),
        Path::new("../../blobs").join(blob)
    );

    let before = hub.count("");
    assert_eq!(get(&settings, "o/n").unwrap().dir, pulled.dir);
    assert_eq!(hub.count(""), before + 1, "only the branch is looked up");
    assert_eq!(
        get(&settings, &format!("o/n@{COMMIT}")).unwrap().dir,
        pulled.dir
    );
    assert_eq!(hub.count(""), before + 1, "a commit needs no hub");
}

#[test]
fn what_a_killed_download_left_is_removed() {
    let (_root, dir, _hub, settings) = setting();
    let blobs = settings.cache.join("models--o--n/blobs");
    fs::create_dir_all(&blobs).unwrap();
    let weights = sha256_file(&dir.join("model.safetensors")).unwrap();
    fs::write(blobs.join(format!(".wave-{weights}-x1y2z3.tmp")), "half").unwrap();
    get(&settings, "o/n").unwrap();
    let left = names(&blobs);
    assert!(left.contains(&weights), "{left:?}");
    assert!(!left.iter().any(|name| name.ends_with(".tmp")), "{left:?}");
}

#[test]
fn offline_works_from_the_cache_alone() {
    let (_root, _, hub, mut settings) = setting();
    settings.offline = true;
    check_request(
        resolve(&settings, "hf:o/n", &mut |_| ()).unwrap_err(),
        &["hf:o/n@main", "not in the cache", "HF_HUB_OFFLINE"],
    );
    assert_eq!(hub.count(""), 0);
    settings.offline = false;
    let pulled = get(&settings, "o/n").unwrap();
    settings.offline = true;
    settings.endpoint = "http://127.0.0.1:1".to_owned();
    assert_eq!(
        resolve(&settings, "hf:o/n", &mut |_| ()).unwrap(),
        pulled.dir
    );
    assert!(get(&settings, "o/n@other").is_err());
}

#[test]
fn an_artefact_is_checked_out_whole() {
    let (root, dir, _hub, settings) = setting();
    let pulled = get(&settings, "o/n").unwrap();
    let out = root.path().join("out");
    checkout(&pulled.dir, &out).unwrap();
    assert_eq!(names(&out), FILES);
    for name in FILES {
        assert!(!fs::symlink_metadata(out.join(name)).unwrap().is_symlink());
        let (a, b) = (fs::read(out.join(name)), fs::read(dir.join(name)));
        assert_eq!(a.unwrap(), b.unwrap());
    }
    check_request(
        checkout(&root.path().join("none"), &out).unwrap_err(),
        &["config.json"],
    );
}

#[test]
fn trouble_that_passes_is_waited_out() {
    let (_root, _, hub, settings) = setting();
    let busy = |status, headers| Fault::Status(status, headers, String::new());
    hub.fault("revision", busy(503, &[]));
    hub.fault("revision", busy(429, &[("retry-after", "0")]));
    hub.fault("GET /get/", busy(500, &[]));
    hub.fault("HEAD /o/n/resolve", busy(502, &[]));
    get(&settings, "o/n").unwrap();
    assert_eq!(hub.count("revision"), 3);
}

#[test]
fn a_cut_connection_is_taken_up_where_it_ended() {
    for ranges in [true, false] {
        let (_root, dir, hub, settings) = setting();
        hub.state().ranges = ranges;
        hub.fault("GET /get/", Fault::Cut(1000));
        hub.fault("GET /get/", Fault::Cut(ranges.into()));
        let pulled = get(&settings, "o/n").unwrap();
        check_equal(
            &read_model(&pulled.dir).unwrap().1,
            &read_model(&dir).unwrap().1,
        );
        let asked: Vec<Option<String>> = hub
            .state()
            .seen
            .iter()
            .filter(|seen| seen.storage)
            .map(|seen| seen.headers.get("range").cloned())
            .collect();
        let expected = match ranges {
            true => [
                None,
                Some("bytes=1000-".to_owned()),
                Some("bytes=1001-".to_owned()),
            ],
            false => [None, Some("bytes=1000-".to_owned()), None],
        };
        assert_eq!(asked, expected);
    }
}

/// Asserts that a pull fails with each of `parts` in its message, and leaves no content behind.
#[track_caller]
fn check_failed(hub: &FakeHub, settings: &HubSettings, parts: &[&str]) -> HubError {
    let error = get(settings, "o/n").unwrap_err();
    let text = format!("{error} {error:?}");
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
    assert!(
        !text.contains(TOKEN) && !text.contains("signature"),
        "{text}"
    );
    let left = all_files(&settings.cache);
    let whole = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        hub.state().files.values().any(|content| *content == bytes)
    };
    assert!(left.iter().all(whole), "{left:?}");
    let mut offline = settings.clone();
    offline.offline = true;
    assert!(get(&offline, "o/n").is_err(), "an incomplete artefact");
    error
}

#[test]
fn a_connection_that_keeps_being_cut_leaves_nothing() {
    let (_root, _, hub, settings) = setting();
    for _ in 0..3 {
        hub.fault("GET /get/", Fault::Cut(10));
    }
    let error = check_failed(
        &hub,
        &settings,
        &["model.safetensors", "was cut after 30 of"],
    );
    assert!(!error.is_request());
    get(&settings, "o/n").unwrap();
}

#[test]
fn a_wrong_checksum_leaves_nothing() {
    let (_root, _, hub, settings) = setting();
    hub.fault("GET /get/", Fault::Flip);
    check_failed(
        &hub,
        &settings,
        &["model.safetensors", "SHA-256", "expected"],
    );
    hub.fault(
        "GET /o/n/resolve/0123456789abcdef0123456789abcdef01234567/config",
        Fault::Flip,
    );
    check_failed(&hub, &settings, &["config.json", "git hash", "expected"]);
    get(&settings, "o/n").unwrap();
}

#[test]
fn checksums_in_upper_case_are_checked_too() {
    let (_root, _, hub, settings) = setting();
    hub.state().upper = true;
    hub.fault("GET /get/", Fault::Flip);
    check_failed(&hub, &settings, &["model.safetensors", "SHA-256"]);
    get(&settings, "o/n").unwrap();
}

#[test]
fn a_file_that_nothing_verifies_is_refused() {
    let (_root, _, hub, settings) = setting();
    for etag in [
        "\"sha256-of-it\"",
        "\"5d41402abc4b2a76b9719d911017c592\"",
        "\"\"",
    ] {
        let fault = Fault::Status(200, vec![("etag", etag)].leak(), String::new());
        hub.fault("HEAD", fault);
        check_failed(&hub, &settings, &["without a checksum"]);
    }
}

#[test]
fn a_body_without_end_is_cut_off() {
    let (_root, _, hub, settings) = setting();
    // The storage's size is told by the hub.
    hub.fault("GET /get/", Fault::Endless);
    check_failed(
        &hub,
        &settings,
        &["model.safetensors", "bytes it should have"],
    );
    for at in [
        "HEAD /o/n/resolve/0123456789abcdef0123456789abcdef01234567/config",
        "GET /o/n/resolve/0123456789abcdef0123456789abcdef01234567/config",
    ] {
        hub.fault(at, Fault::Endless);
    }
    check_failed(
        &hub,
        &settings,
        &["more than 67108864 bytes of a file of untold size"],
    );
    get(&settings, "o/n").unwrap();
}

#[test]
fn refusals_are_explained_and_keep_the_secret() {
    let (_root, _, hub, mut settings) = setting();
    let cases: [(u16, bool, &[&str]); 5] = [
        (401, true, &["does not accept the token", "HF_TOKEN"]),
        (403, true, &["may not do this", "accept the conditions"]),
        (404, true, &["not found", "check the name and the revision"]),
        (418, false, &["refused (418)"]),
        (409, false, &["changed the repository", "again"]),
    ];
    for (status, request, parts) in cases {
        let said = format!("no\nway, {TOKEN}");
        hub.fault("revision", Fault::Status(status, &[], said));
        let error = check_failed(&hub, &settings, &["hf:o/n@main", "no way, [token]"]);
        assert_eq!(error.is_request(), request, "{status}");
        check_failed_text(&error, parts);
    }
    for _ in 0..3 {
        hub.fault("revision", Fault::Status(503, &[], String::new()));
    }
    check_failed(&hub, &settings, &["failed (503) at each of 3 attempts"]);
    let later = &[("retry-after", "3600")];
    hub.fault("revision", Fault::Status(429, later, String::new()));
    check_failed(&hub, &settings, &["asks to wait 3600 s"]);
    settings.token = None;
    let text = get(&settings, "o/n").unwrap_err().to_string();
    assert!(text.contains("asks for a token"), "{text}");
    settings.endpoint = "http://127.0.0.1:1".to_owned();
    let error = get(&settings, "o/n").unwrap_err();
    check_failed_text(
        &error,
        &["no connection to http://127.0.0.1:1", "HF_HUB_OFFLINE=1"],
    );
}

#[track_caller]
fn check_failed_text(error: &HubError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

#[test]
fn repositories_without_an_artefact_are_refused() {
    let (_root, _, hub, settings) = setting();
    let set = |names: &[&str]| {
        let files = names.iter().map(|name| ((*name).to_owned(), b"x".to_vec()));
        hub.state().files = files.collect();
    };
    for (files, expected) in [
        (
            &["config.json", "pytorch_model.bin"][..],
            "only as pytorch_model.bin",
        ),
        (&["config.json"], "no .safetensors"),
        (&["model.safetensors"], "config.json is missing"),
        (&["config.json", "../model.safetensors"], "leads out"),
        (&["config.json", "/etc/x.safetensors"], "leads out"),
    ] {
        set(files);
        check_request(get(&settings, "o/n").unwrap_err(), &["hf:o/n", expected]);
    }
    assert!(all_files(&settings.cache).is_empty());
    assert_eq!(hub.count("resolve"), 0);
}

#[test]
fn answers_that_are_no_hubs_are_said_to_be() {
    let (_root, _, hub, settings) = setting();
    hub.fault("revision", Fault::Flip);
    check_failed(&hub, &settings, &["not JSON", "HF_ENDPOINT"]);
    hub.fault("revision", Fault::Status(200, &[], String::new()));
    check_failed(&hub, &settings, &["without commit or files"]);
    hub.fault(
        "HEAD",
        Fault::Status(302, &[("location", "ftp://x/y")], String::new()),
    );
    check_failed(&hub, &settings, &["redirect to nowhere"]);
    hub.fault(
        "HEAD",
        Fault::Status(200, &[("etag", "\"../../x\"")], String::new()),
    );
    check_failed(&hub, &settings, &["without a checksum"]);
}

#[test]
fn two_at_a_time_do_not_disturb_each_other() {
    let (_root, dir, _hub, settings) = setting();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| get(&settings, "o/n").unwrap());
        }
    });
    let pulled = get(&settings, "o/n").unwrap();
    check_equal(
        &read_model(&pulled.dir).unwrap().1,
        &read_model(&dir).unwrap().1,
    );
}
