use super::*;
use std::time::{Duration, Instant};

use crate::hub::tests::{COMMIT, FakeHub, Fault, TOKEN, model_dir, quiet, with_a_home_of_its_own};
use crate::testing::{check_equal, check_refused, check_text, names};
use crate::{read_model, sha256_hex};

const FILES: [&str; 3] = ["README.md", "config.json", "model.safetensors"];

fn get(settings: &HubSettings, name: &str) -> Result<Pulled, HubError> {
    pull(settings, &name.parse().unwrap(), &quiet())
}

/// A repository with a model, and a cache that is empty.
fn setting() -> (tempfile::TempDir, PathBuf, FakeHub, HubSettings) {
    let root = tempfile::tempdir().unwrap();
    let dir = model_dir(root.path());
    let hub = FakeHub::holding(&dir);
    let settings = hub.settings(&root.path().join("cache"));
    (root, dir, hub, settings)
}

#[track_caller]
fn check_same(a: &Path, b: &Path) {
    check_equal(&read_model(a).unwrap().1, &read_model(b).unwrap().1);
}

/// Every regular file below `dir` that is not a lock.
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
fn a_model_is_pulled_into_the_shared_layout_once_and_checked_out_whole() {
    let (root, dir, hub, settings) = setting();
    for name in ["train.py", "logs/x.txt"] {
        hub.state().files.insert(name.to_owned(), b"x".to_vec());
    }
    let last = Arc::new(Mutex::new(None));
    let told = last.clone();
    let on_progress: OnProgress = Arc::new(move |at: &FileProgress| {
        *told.lock().unwrap() = Some((at.filename.clone(), at.bytes_completed, at.total_bytes));
    });
    let pulled = pull(&settings, &"hf:o/n".parse().unwrap(), &on_progress).unwrap();
    assert_eq!(names(&pulled.dir), FILES);
    assert_eq!(pulled.skipped, ["logs/x.txt", "train.py"]);
    let size = fs::metadata(dir.join("config.json")).unwrap().len();
    let last = last.lock().unwrap().clone();
    assert_eq!(last, Some(("config.json".to_owned(), size, size)));
    check_same(&pulled.dir, &dir);

    let repo = settings.cache.join("models--o--n");
    assert_eq!(pulled.dir, repo.join("snapshots").join(COMMIT));
    assert_eq!(fs::read_to_string(repo.join("refs/main")).unwrap(), COMMIT);
    let blob = sha256_file(&dir.join("model.safetensors")).unwrap();
    assert!(repo.join("blobs").join(&blob).is_file());
    #[cfg(unix)]
    {
        let link = fs::read_link(pulled.dir.join("model.safetensors")).unwrap();
        assert_eq!(link, Path::new("../../blobs").join(blob));
    }

    let before = hub.count("");
    assert_eq!(get(&settings, "o/n").unwrap().dir, pulled.dir);
    assert_eq!(hub.count(""), before + 1, "only the branch is looked up");
    let again = get(&settings, &format!("o/n@{COMMIT}")).unwrap();
    assert_eq!(again.dir, pulled.dir);
    assert_eq!(hub.count(""), before + 1, "a commit needs no hub");

    let out = root.path().join("out");
    checkout(&pulled.dir, &out).unwrap();
    assert_eq!(names(&out), FILES);
    for name in FILES {
        assert!(!fs::symlink_metadata(out.join(name)).unwrap().is_symlink());
        let [copy, original] = [&out, &dir].map(|dir| fs::read(dir.join(name)).unwrap());
        assert_eq!(copy, original);
    }
    check_refused(checkout(&root.path().join("none"), &out), &["config.json"]);
}

#[test]
fn content_of_another_commit_is_not_downloaded_again_and_what_a_kill_left_is_removed() {
    let (_root, dir, hub, settings) = setting();
    // A killed download left this.
    let repo = settings.cache.join("models--o--n");
    let left = repo.join(".wave-x1y2z3.tmp/models--o--n/blobs");
    fs::create_dir_all(&left).unwrap();
    fs::write(left.join("0123.incomplete"), "half").unwrap();
    let pulled = get(&settings, "o/n").unwrap();
    assert_eq!(names(&repo), ["blobs", "refs", "snapshots"]);

    fs::remove_dir_all(&pulled.dir).unwrap();
    hub.state().seen.clear();
    get(&settings, "o/n").unwrap();
    assert_eq!(hub.count("GET /get/"), 0);
    assert_eq!(hub.count("GET /o/n/resolve/"), 0);
    // But its content is checked, and partial downloads of other programs are left alone.
    let weights = sha256_file(&dir.join("model.safetensors")).unwrap();
    let blobs = repo.join("blobs");
    let begun = blobs.join(format!("{weights}.incomplete"));
    fs::write(blobs.join(weights), "an error page").unwrap();
    fs::write(&begun, "a part").unwrap();
    fs::remove_dir_all(&pulled.dir).unwrap();
    let pulled = get(&settings, "o/n").unwrap();
    assert_eq!(fs::read(begun).unwrap(), b"a part");
    check_same(&pulled.dir, &dir);
}

#[test]
fn offline_works_from_the_cache_alone() {
    let (_root, _, hub, mut settings) = setting();
    settings.offline = true;
    let parts = ["hf:o/n@main", "not in the cache", "HF_HUB_OFFLINE"];
    check_refused(get(&settings, "hf:o/n"), &parts);
    assert_eq!(hub.count(""), 0);
    settings.offline = false;
    let pulled = get(&settings, "o/n").unwrap();
    settings.offline = true;
    settings.endpoint = "http://127.0.0.1:1".to_owned();
    assert_eq!(get(&settings, "hf:o/n").unwrap().dir, pulled.dir);
    assert!(get(&settings, "o/n@other").is_err());
}

#[test]
fn trouble_that_passes_is_waited_out_for_as_long_as_the_hub_asks() {
    let (_root, _, hub, settings) = setting();
    let busy = |status, headers| Fault::Status(status, headers, String::new());
    hub.fault("revision", busy(503, &[]));
    hub.fault("revision", busy(429, &[("retry-after", "1")]));
    hub.fault("GET /get/", busy(500, &[]));
    hub.fault("HEAD /o/n/resolve", busy(502, &[]));
    let began = Instant::now();
    get(&settings, "o/n").unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(hub.count("revision"), 3);
}

/// Asserts that a pull fails with each of `parts` in its message, and leaves no content behind.
#[track_caller]
fn check_failed(hub: &FakeHub, settings: &HubSettings, parts: &[&str]) -> HubError {
    let error = get(settings, "o/n").unwrap_err();
    let text = format!("{error} {error:?}");
    check_text(&text, parts);
    let secret = text.contains(TOKEN) || text.contains("signature");
    assert!(!secret, "{text}");
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
fn a_cut_connection_is_tried_again_and_leaves_nothing() {
    let (_root, dir, hub, settings) = setting();
    for _ in 0..3 {
        hub.fault("GET /get/", Fault::Cut(10));
    }
    let error = check_failed(&hub, &settings, &["model.safetensors", "was lost"]);
    assert!(!error.is_request());
    hub.fault("GET /get/", Fault::Cut(1000));
    hub.fault("GET /get/", Fault::Cut(0));
    check_same(&get(&settings, "o/n").unwrap().dir, &dir);
}

#[test]
fn wrong_content_and_error_pages_are_never_stored() {
    let page = Fault::Status(500, &[], "out of order".to_owned());
    let (model, config) = ("GET /get/", "GET /config.json");
    for (at, fault, name, kind) in [
        (model, &page, "model.safetensors", "SHA-256"),
        (model, &Fault::Flip, "model.safetensors", "SHA-256"),
        (config, &Fault::Flip, "config.json", "git hash"),
    ] {
        for upper in [false, true] {
            let (_root, _, hub, settings) = setting();
            hub.state().upper = upper;
            hub.fault(at, fault.clone());
            hub.fault(at, fault.clone());
            let remedy = "run the command again later: a failing hub sends error pages";
            check_failed(&hub, &settings, &[name, kind, "expected", remedy]);
            hub.fault(at, fault.clone());
            get(&settings, "o/n").unwrap();
        }
    }
}

#[test]
fn checksums_and_sizes_that_no_file_has_are_refused() {
    let (_root, _, hub, _) = setting();
    let sum = sha256_hex(&hub.state().files["model.safetensors"]);
    let md5 = "5d41402abc4b2a76b9719d911017c592";
    let huge = ("x-linked-size", "1000000000000000000");
    let unverified = ["README.md", "without a checksum"];
    let too_large = ["model.safetensors", "1000000000000000000 bytes"];
    for (at, sum, more, parts) in [
        ("HEAD README", "sha256-of-it", None, unverified),
        ("HEAD README", md5, None, unverified),
        ("HEAD model", sum.as_str(), Some(huge), too_large),
    ] {
        let (_root, _, hub, settings) = setting();
        let etag: &'static str = format!("\"{sum}\"").leak();
        let mut headers = vec![("etag", etag), ("x-repo-commit", COMMIT)];
        headers.extend(more);
        let headers: &'static [_] = headers.leak();
        for _ in 0..2 {
            hub.fault(at, Fault::Status(200, headers, String::new()));
        }
        check_failed(&hub, &settings, &parts);
    }
}

#[test]
fn large_files_are_asked_for_by_xet_where_the_hub_has_it() {
    let (root, _, hub, settings) = setting();
    if !with_a_home_of_its_own(root.path(), "large_files_are_asked_for_by_xet") {
        return;
    }
    hub.state().xet = true;
    // The storage has nothing: what comes back from a real one is up to hf-xet.
    let text = get(&settings, "o/n").unwrap_err().to_string();
    check_text(&text, &["model.safetensors: ", "Xet"]);
    assert_eq!(hub.count("GET /api/models/o/n/xet-read-token/"), 1);
    assert!(hub.count("reconstructions/5555") > 0);
    assert_eq!(hub.count("GET /get/"), 0);
    assert!(!text.contains(TOKEN), "{text}");
}

#[test]
fn the_chosen_files_of_a_data_set_are_pulled_with_their_folders() {
    let (_root, _, hub, mut settings) = setting();
    let image = |class: &str| (format!("train/{class}/0.png"), b"an image".to_vec());
    let mut files: Vec<_> = ["cat", "dog"].map(image).into();
    files.push(("data/train.tar".to_owned(), b"a shard".to_vec()));
    files.push(("loader.py".to_owned(), b"code".to_vec()));
    hub.state().files = files.into_iter().collect();
    let choose = |files: &[String]| {
        let wanted = files.iter().filter(|file| !file.ends_with(".py"));
        Ok(wanted.cloned().collect())
    };
    let pull = |settings: &HubSettings, name: &str| {
        pull_data(settings, &name.parse().unwrap(), &choose, &quiet())
    };
    hub.fault("GET /get/data/train.tar", Fault::Cut(3));
    settings.attempts = 1;
    assert!(pull(&settings, "o/n").is_err());
    settings.offline = true;
    check_refused(pull(&settings, "o/n"), &["not in the cache"]);
    settings.offline = false;
    let pulled = pull(&settings, "o/n").unwrap();
    assert_eq!(pulled.skipped, ["loader.py"]);
    let repo = settings.cache.join("datasets--o--n");
    assert_eq!(pulled.dir, repo.join("snapshots").join(COMMIT));
    let files = hub.state().files.clone();
    for (file, content) in files.iter().filter(|(file, _)| *file != "loader.py") {
        assert_eq!(&fs::read(pulled.dir.join(file)).unwrap(), content, "{file}");
    }
    let blobs = names(&repo.join("blobs")).len();
    assert_eq!(blobs, 2, "equal files share a blob");
    assert!(hub.count("/datasets/o/n/resolve/") > 0);

    let before = hub.count("");
    let again = pull(&settings, &format!("o/n@{COMMIT}")).unwrap();
    assert_eq!((again.dir, hub.count("")), (pulled.dir.clone(), before));
    settings.offline = true;
    assert_eq!(pull(&settings, "o/n").unwrap().dir, pulled.dir);
    let refuse = |_: &[String]| Err(crate::Fault::new("", "holds no images", "look elsewhere"));
    settings.offline = false;
    let refused = pull_data(&settings, &"o/n".parse().unwrap(), &refuse, &quiet());
    check_refused(refused, &["hf:o/n@main", "no images", "elsewhere"]);
}

#[test]
fn refusals_are_explained_and_keep_the_secret() {
    let (_root, _, hub, mut settings) = setting();
    let cases: [(u16, bool, &[&str]); 5] = [
        (401, true, &["does not accept the token", "HF_TOKEN"]),
        (403, true, &["not permitted", "accept the conditions"]),
        (404, true, &["not found", "check the name and the revision"]),
        (418, false, &["refused (418)"]),
        (409, false, &["changed the repository", "again"]),
    ];
    for (status, request, parts) in cases {
        let said = format!("no\nway, {TOKEN}");
        hub.fault("revision", Fault::Status(status, &[], said));
        let error = check_failed(&hub, &settings, &["hf:o/n@main", "no way, [token]"]);
        assert_eq!(error.is_request(), request, "{status}");
        check_text(&error.to_string(), parts);
    }
    for _ in 0..3 {
        hub.fault("revision", Fault::Status(503, &[], String::new()));
    }
    check_failed(&hub, &settings, &["failed (503) at each of 3 attempts"]);
    let later = &[("retry-after", "3600")];
    hub.fault("revision", Fault::Status(429, later, String::new()));
    check_failed(&hub, &settings, &["asks to wait 3600 s"]);
    settings.token = None;
    check_failed(&hub, &settings, &["asks for a token"]);
    settings.endpoint = "http://127.0.0.1:1".to_owned();
    let found = "no connection to http://127.0.0.1:1";
    check_failed(&hub, &settings, &[found, "refused", "HF_HUB_OFFLINE=1"]);
}

#[test]
fn repositories_without_an_artefact_are_refused() {
    let (_root, _, hub, settings) = setting();
    let long = format!("config.json {}.safetensors", "a".repeat(244));
    for (names, expected) in [
        ("config.json pytorch_model.bin", "only as pytorch_model.bin"),
        ("config.json", "no .safetensors"),
        ("model.safetensors", "config.json is missing"),
        (
            "config.json model.safetensors.index.json model-00001-of-00002.safetensors",
            "several files (model.safetensors.index.json), expected model.safetensors",
        ),
        ("config.json ../model.safetensors", "points outside"),
        ("config.json /etc/x.safetensors", "points outside"),
        ("config.json a\u{1b}[2J.safetensors", "control characters"),
        (long.as_str(), "256 bytes"),
    ] {
        let names = names.split(' ').map(str::to_owned);
        hub.state().files = names.map(|name| (name, Vec::new())).collect();
        check_refused(get(&settings, "o/n"), &["hf:o/n", expected]);
    }
    assert!(all_files(&settings.cache).is_empty());
    assert_eq!(hub.count("resolve"), 0);
}

#[test]
fn answers_that_are_no_hubs_are_said_to_be() {
    let (_root, _, hub, settings) = setting();
    hub.fault("revision", Fault::Flip);
    check_failed(&hub, &settings, &["does not fit the API", "HF_ENDPOINT"]);
    hub.fault("revision", Fault::Status(200, &[], String::new()));
    check_failed(&hub, &settings, &["does not fit the API"]);
    let tagged = Fault::Status(200, &[("etag", "\"x\"")], String::new());
    hub.fault("HEAD README", tagged);
    let parts = ["README.md", "X-Repo-Commit", "HF_ENDPOINT"];
    check_failed(&hub, &settings, &parts);
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
    check_same(&pulled.dir, &dir);
}
