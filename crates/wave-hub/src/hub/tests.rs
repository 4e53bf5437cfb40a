//! A hub for the tests: as much of the API as hf-hub and this crate use, on the loopback interface, with faults on
//! demand. Large files are on a second host, as they are on the real one. A third is Xet's storage, which accepts
//! anything and returns nothing: the data that hf-xet sends there is not checked here.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::pull::git_hash;
use super::{HubSettings, OnProgress, Token};
use crate::testing::{names, weights};
use crate::{FloatType, sha256_hex, write_model};

pub(crate) const TOKEN: &str = "hf_a_secret_that_nobody_may_see";
pub(crate) const XET_TOKEN: &str = "a_token_for_xet_alone";
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// Progress that is ignored.
pub(crate) fn quiet() -> OnProgress {
    Arc::new(|_| ())
}

/// Runs the test `name` in a process of its own whose `HF_HOME` is below `root`, since hf-xet has no other setting
/// for its directory. Returns true in that process, which has to do the work.
pub(crate) fn with_a_home_of_its_own(root: &Path, name: &str) -> bool {
    const MARK: &str = "WAVE_HUB_TEST_HOME";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--nocapture"])
        .env("HF_HOME", root.join("home"))
        .env(MARK, "set")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    false
}

/// The card of [`model_dir`].
pub(crate) const CARD: &str = "---\nlicense: mit\n---\n\n# A model\n";

/// A small but sound model directory below `root`.
pub(crate) fn model_dir(root: &Path) -> PathBuf {
    let dir = root.join("model");
    let config = json!({
        "architecture": "vit_tiny_patch16_224", "num_classes": 10, "num_features": 4,
        "global_pool": "token",
    });
    let config = serde_json::from_value(config).unwrap();
    let weights = weights(&[("head.weight", &[10, 100]), ("head.bias", &[10])]);
    write_model(&dir, &config, &weights, None, CARD, FloatType::F32, false).unwrap();
    dir
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) host: Host,
}

impl Seen {
    fn is(&self, at: &str) -> bool {
        let line = format!("{} {}", self.method, self.path);
        at.split(' ').all(|word| line.contains(word))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Hub,
    /// The host of large files.
    Storage,
    /// The host of large files with Xet.
    Xet,
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A status with headers and a JSON body.
    Status(u16, &'static [(&'static str, &'static str)], String),
    /// The connection ends after this many bytes of the body.
    Cut(usize),
    /// One byte of the body is wrong.
    Flip,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) exists: bool,
    pub(crate) private: Option<bool>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) commits: Vec<String>,
    /// The transfer method of large files, if not Xet's.
    pub(crate) transfer: Option<&'static str>,
    /// True if large files can be downloaded with Xet.
    pub(crate) xet: bool,
    pub(crate) branches: Vec<String>,
    /// The list of models, for any query.
    pub(crate) listed: Vec<Value>,
    /// Faults for the next request whose method and path contain the words.
    pub(crate) faults: Vec<(&'static str, Fault)>,
    pub(crate) seen: Vec<Seen>,
    /// True if checksums are in upper case.
    pub(crate) upper: bool,
}

pub(crate) struct FakeHub {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

/// The addresses of the hub, its storage and Xet's.
type Urls = [String; 3];

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl FakeHub {
    pub(crate) fn new() -> Self {
        let state = Arc::new(Mutex::new(State {
            branches: vec!["main".to_owned()],
            ..State::default()
        }));
        let bind = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            (listener, format!("http://127.0.0.1:{port}"))
        };
        let ((hub, url), (storage, storage_url), (xet, xet_url)) = (bind(), bind(), bind());
        let urls = [url.clone(), storage_url, xet_url];
        for (listener, host) in [(hub, Host::Hub), (storage, Host::Storage), (xet, Host::Xet)] {
            let (state, urls) = (state.clone(), urls.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (state, urls) = (state.clone(), urls.clone());
                    std::thread::spawn(move || serve(stream, &state, &urls, host));
                }
            });
        }
        Self { url, state }
    }

    /// A hub whose repository `o/n` holds the files of `dir`.
    pub(crate) fn holding(dir: &Path) -> Self {
        let hub = Self::new();
        for name in names(dir) {
            let bytes = std::fs::read(dir.join(&name)).unwrap();
            hub.state().files.insert(name, bytes);
        }
        hub.state().exists = true;
        hub
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn fault(&self, at: &'static str, fault: Fault) {
        self.state().faults.push((at, fault));
    }

    /// Requests with these words in their method and path.
    pub(crate) fn count(&self, at: &str) -> usize {
        let seen = &self.state().seen;
        seen.iter().filter(|seen| seen.is(at)).count()
    }

    pub(crate) fn settings(&self, cache: &Path) -> HubSettings {
        HubSettings {
            endpoint: self.url.clone(),
            token: Some(Token::new(TOKEN).unwrap()),
            cache: cache.to_owned(),
            offline: false,
            attempts: 3,
            retry_delay: Duration::from_millis(1),
        }
    }
}

fn serve(stream: TcpStream, state: &Mutex<State>, urls: &Urls, host: Host) {
    let Some(seen) = read(&stream, host) else {
        return;
    };
    let mut state = state.lock().unwrap();
    state.seen.push(seen.clone());
    let at = state.faults.iter().position(|(at, _)| seen.is(at));
    let fault = at.map(|at| state.faults.remove(at).1);
    let mut reply = match &fault {
        Some(Fault::Status(status, headers, said)) => Reply {
            status: *status,
            headers: headers.iter().map(|(k, v)| header(k, v)).collect(),
            body: json!({ "error": said }).to_string().into_bytes(),
        },
        _ => answer(&mut state, &seen, urls),
    };
    drop(state);
    let mut kept = reply.body.len();
    match fault {
        Some(Fault::Cut(n)) => kept = n,
        Some(Fault::Flip) => reply.body[0] ^= 1,
        _ => {}
    }
    if seen.method == "HEAD" {
        kept = 0;
    }
    write(stream, &reply, kept);
}

fn read(stream: &TcpStream, host: Host) -> Option<Seen> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim().split_once(':') else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers
        .get("content-length")
        .map_or(0, |n| n.parse().unwrap());
    assert!(!headers.contains_key("transfer-encoding"), "sent in chunks");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Seen {
        method,
        path,
        headers,
        body,
        host,
    })
}

/// Sends a reply, with at most `kept` bytes of its body.
fn write(mut stream: TcpStream, reply: &Reply, kept: usize) {
    let (status, length) = (reply.status, reply.body.len());
    let mut text = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n");
    text += &format!("content-length: {length}\r\n");
    for (name, value) in &reply.headers {
        text += &format!("{name}: {value}\r\n");
    }
    let body = &reply.body[..kept.min(reply.body.len())];
    let _ = stream.write_all(&[text.as_bytes(), b"\r\n", body].concat());
    let _ = stream.flush();
}

fn ok(body: Value) -> Reply {
    Reply {
        body: body.to_string().into_bytes(),
        ..status(200)
    }
}

fn status(status: u16) -> Reply {
    Reply {
        status,
        headers: Vec::new(),
        body: Vec::new(),
    }
}

fn header(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn answer(state: &mut State, seen: &Seen, urls: &Urls) -> Reply {
    let [hub, storage, xet] = urls;
    let path = seen.path.split('?').next().unwrap();
    let path = &*path.replace("%2F", "/");
    let token = seen.headers.get("authorization");
    match seen.host {
        Host::Storage => return answer_storage(state, seen, path),
        Host::Xet => {
            assert_eq!(token, Some(&format!("Bearer {XET_TOKEN}")));
            return answer_xet(seen, path);
        }
        Host::Hub if token != Some(&format!("Bearer {TOKEN}")) => return status(401),
        Host::Hub => {}
    }
    if path == "/api/repos/create" {
        let request: Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(request["organization"], "o");
        assert_eq!(request["name"], "n");
        state.exists = true;
        state.private = request["private"].as_bool();
        return ok(json!({ "url": format!("{hub}/o/n") }));
    }
    if path == "/api/models" {
        return ok(json!(state.listed));
    }
    let api = path.strip_prefix("/api/models/o/n");
    let Some(path) = api.or(path.strip_prefix("/api/datasets/o/n")) else {
        return answer_files(state, seen, path, storage);
    };
    if !state.exists {
        return status(404);
    }
    answer_api(state, seen, path, hub, xet)
}

fn answer_api(state: &mut State, seen: &Seen, path: &str, hub: &str, xet: &str) -> Reply {
    let (_, parts) = path.split_once('/').unwrap_or_default();
    let (action, of) = parts.split_once('/').unwrap_or((parts, ""));
    match (&*seen.method, action) {
        ("GET", "") => ok(json!({ "id": "o/n" })),
        ("POST", "branch") => {
            state.branches.push(of.to_owned());
            ok(json!({}))
        }
        ("GET", "revision") => {
            let known = state.branches.iter().any(|branch| branch == of);
            if !known && of != COMMIT {
                return status(404);
            }
            let names = state.files.keys();
            let siblings: Vec<Value> = names.map(|name| json!({ "rfilename": name })).collect();
            ok(json!({ "id": "o/n", "sha": COMMIT, "siblings": siblings }))
        }
        ("POST", "preupload") => {
            let request: Value = serde_json::from_slice(&seen.body).unwrap();
            let files = request["files"].as_array().unwrap().iter().map(|file| {
                let large = file["path"].as_str().unwrap().ends_with(".safetensors");
                BASE64.decode(file["sample"].as_str().unwrap()).unwrap();
                let mode = if large { "lfs" } else { "regular" };
                json!({ "path": file["path"], "uploadMode": mode, "shouldIgnore": false })
            });
            ok(json!({ "files": files.collect::<Vec<_>>() }))
        }
        ("GET", "xet-write-token" | "xet-read-token") => {
            ok(json!({ "casUrl": xet, "accessToken": XET_TOKEN, "exp": 4_000_000_000_u64 }))
        }
        ("POST", "discussions") => {
            let request: Value = serde_json::from_slice(&seen.body).unwrap();
            assert_eq!(request["pullRequest"], json!(true));
            state.branches.push("refs/pr/7".to_owned());
            ok(json!({ "num": 7, "title": request["title"] }))
        }
        ("POST", "commit") => {
            assert!(state.branches.iter().any(|branch| branch == of), "{of}");
            let text = String::from_utf8(seen.body.clone()).unwrap();
            state.commits.push(text);
            ok(json!({ "commitOid": COMMIT, "commitUrl": format!("{hub}/c") }))
        }
        _ => status(405),
    }
}

fn answer_files(state: &mut State, seen: &Seen, path: &str, storage: &str) -> Reply {
    if path == "/o/n.git/info/lfs/objects/batch" {
        let request: Value = serde_json::from_slice(&seen.body).unwrap();
        assert!(!request["objects"].as_array().unwrap().is_empty());
        let transfer = state.transfer.unwrap_or("xet");
        return ok(json!({ "transfer": transfer, "objects": request["objects"] }));
    }
    let path = path.strip_prefix("/datasets").unwrap_or(path);
    let name = path.strip_prefix(&format!("/o/n/resolve/{COMMIT}/"));
    let Some((name, content)) = name.and_then(|name| state.files.get_key_value(name)) else {
        return status(404);
    };
    let large = [".safetensors", ".parquet", ".tar"];
    let large = large.iter().any(|ending| name.ends_with(ending));
    let mut sum = match large {
        true => sha256_hex(content),
        false => git_hash(content),
    };
    if state.upper {
        sum = sum.to_ascii_uppercase();
    }
    let mut reply = status(200);
    reply.headers.push(header("x-repo-commit", COMMIT));
    if !large {
        reply.headers.push(header("etag", format!("W/\"{sum}\"")));
        reply.body = content.clone();
        return reply;
    }
    reply.status = 302;
    reply.headers.extend([
        header("location", format!("{storage}/get/{name}?signature=secret")),
        header("etag", "\"of-the-redirect\""),
        header("x-linked-etag", format!("\"{sum}\"")),
        header("x-linked-size", content.len()),
    ]);
    if state.xet {
        reply.headers.push(header("x-xet-hash", "5".repeat(64)));
    }
    reply
}

/// The host of large files, which must not see the token.
fn answer_storage(state: &mut State, seen: &Seen, path: &str) -> Reply {
    let token = seen.headers.get("authorization");
    assert_eq!(token, None, "a token for the storage");
    let name = path.strip_prefix("/get/").unwrap();
    let mut reply = status(200);
    reply.body = state.files[name].clone();
    reply
}

/// Xet's storage: uploads without grants, shards by the older of two ways, no downloads.
fn answer_xet(seen: &Seen, path: &str) -> Reply {
    match &*seen.method {
        "POST" if path == "/v1/shards" => ok(json!({ "result": 1 })),
        "POST" if path.starts_with("/v1/xorbs/default/") => ok(json!({ "was_inserted": true })),
        _ => status(404),
    }
}
