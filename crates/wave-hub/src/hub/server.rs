//! A hub for the tests: as much of the API as this crate speaks, on the loopback interface, with
//! faults on demand. Large files lie with a second host, as they do on the real one.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use super::pull::git_hash;
use super::{HubSettings, Token};
use crate::testing::weights;
use crate::{ModelConfig, PretrainedCfg, sha256_hex, write_model};

pub(crate) const TOKEN: &str = "hf_a_secret_that_nobody_may_see";
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A small but sound model directory below `root`.
pub(crate) fn model_dir(root: &Path) -> PathBuf {
    let dir = root.join("model");
    let config = ModelConfig {
        architecture: "vit_tiny_patch16_224".to_owned(),
        num_classes: 10,
        num_features: 4,
        global_pool: "token".to_owned(),
        model_args: Map::new(),
        pretrained_cfg: PretrainedCfg::default(),
        label_names: None,
        wave: None,
    };
    let weights = weights(&[("head.weight", &[10, 100]), ("head.bias", &[10])]);
    let card = "---\nlicense: mit\n---\n\n# A model\n";
    write_model(&dir, &config, &weights, &[], card).unwrap();
    dir
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
    /// Whether it went to the host of large files.
    pub(crate) storage: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// A status with headers and a JSON body.
    Status(u16, &'static [(&'static str, &'static str)], String),
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// One byte of the body is wrong.
    Flip,
    /// The size is not told, and the body has no end.
    Endless,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) exists: bool,
    pub(crate) private: Option<bool>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) stored: BTreeMap<String, Vec<u8>>,
    pub(crate) commits: Vec<String>,
    /// Large files are uploaded in parts of this size.
    pub(crate) part: Option<usize>,
    /// The only way in which large files are taken, if not Git LFS's.
    pub(crate) transfer: Option<&'static str>,
    pub(crate) branches: Vec<String>,
    /// For the next request whose method and path contain the text.
    pub(crate) faults: Vec<(&'static str, Fault)>,
    pub(crate) seen: Vec<Seen>,
    /// Whether the storage answers ranges.
    pub(crate) ranges: bool,
    /// Whether checksums are in upper case.
    pub(crate) upper: bool,
}

pub(crate) struct FakeHub {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl FakeHub {
    pub(crate) fn new() -> Self {
        let state = Arc::new(Mutex::new(State {
            branches: vec!["main".to_owned()],
            ranges: true,
            ..State::default()
        }));
        let storage = TcpListener::bind("127.0.0.1:0").unwrap();
        let hub = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = |listener: &TcpListener| {
            format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port())
        };
        let (url, storage_url) = (address(&hub), address(&storage));
        for (listener, is_storage) in [(hub, false), (storage, true)] {
            let (state, hub, storage) = (state.clone(), url.clone(), storage_url.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (state, hub, storage) = (state.clone(), hub.clone(), storage.clone());
                    std::thread::spawn(move || serve(stream, &state, &hub, &storage, is_storage));
                }
            });
        }
        Self { url, state }
    }

    /// A hub whose repository `o/n` holds the files of `dir`.
    pub(crate) fn holding(dir: &Path) -> Self {
        let hub = Self::new();
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let bytes = std::fs::read(entry.path()).unwrap();
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

    /// Requests with this in their method and path.
    pub(crate) fn count(&self, at: &str) -> usize {
        let seen = &self.state().seen;
        let matches = |seen: &&Seen| format!("{} {}", seen.method, seen.path).contains(at);
        seen.iter().filter(matches).count()
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

fn serve(stream: TcpStream, state: &Mutex<State>, hub: &str, storage: &str, is_storage: bool) {
    let Some(seen) = read(&stream, is_storage) else {
        return;
    };
    let line = format!("{} {}", seen.method, seen.path);
    let mut state = state.lock().unwrap();
    state.seen.push(seen.clone());
    let at = state.faults.iter().position(|(at, _)| line.contains(at));
    let fault = at.map(|at| state.faults.remove(at).1);
    let (reply, keep) = match fault {
        Some(Fault::Status(status, headers, said)) => {
            let headers = headers.iter().map(|(k, v)| (k.to_string(), v.to_string()));
            let body = json!({ "error": said }).to_string().into_bytes();
            let headers = headers.collect();
            (
                Reply {
                    status,
                    headers,
                    body,
                },
                None,
            )
        }
        Some(Fault::Cut(n)) => (answer(&mut state, &seen, hub, storage), Some(n)),
        Some(Fault::Flip) => {
            let mut reply = answer(&mut state, &seen, hub, storage);
            reply.body[0] ^= 1;
            (reply, None)
        }
        Some(Fault::Endless) => {
            let reply = answer(&mut state, &seen, hub, storage);
            drop(state);
            return write_endless(stream, &reply, seen.method == "HEAD");
        }
        None => (answer(&mut state, &seen, hub, storage), None),
    };
    drop(state);
    write(stream, &reply, keep, seen.method == "HEAD");
}

fn read(stream: &TcpStream, storage: bool) -> Option<Seen> {
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
        storage,
    })
}

fn write(mut stream: TcpStream, reply: &Reply, keep: Option<usize>, head: bool) {
    let mut text = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        text += &format!("{name}: {value}\r\n");
    }
    if !reply
        .headers
        .iter()
        .any(|(name, _)| name == "content-length")
    {
        text += &format!("content-length: {}\r\n", reply.body.len());
    }
    let body = match keep {
        _ if head => &[],
        Some(n) => &reply.body[..n.min(reply.body.len())],
        None => &reply.body[..],
    };
    let _ = stream.write_all(text.as_bytes());
    let _ = stream.write_all(b"\r\n");
    let _ = stream.write_all(body);
    let _ = stream.flush();
}

fn write_endless(mut stream: TcpStream, reply: &Reply, head: bool) {
    let mut text = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", reply.status);
    for (name, value) in reply
        .headers
        .iter()
        .filter(|(name, _)| name != "content-length")
    {
        text += &format!("{name}: {value}\r\n");
    }
    let mut sent = stream.write_all((text + "\r\n").as_bytes());
    while sent.is_ok() && !head {
        sent = stream.write_all(&[b'x'; 1 << 16]);
    }
}

fn ok(body: Value) -> Reply {
    Reply {
        status: 200,
        headers: Vec::new(),
        body: body.to_string().into_bytes(),
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

fn answer(state: &mut State, seen: &Seen, hub: &str, storage: &str) -> Reply {
    let path = seen.path.split('?').next().unwrap();
    if seen.storage {
        return answer_storage(state, seen, path);
    }
    if seen.headers.get("authorization") != Some(&format!("Bearer {TOKEN}")) {
        return status(401);
    }
    if path == "/api/repos/create" {
        let request: Value = serde_json::from_slice(&seen.body).unwrap();
        assert_eq!(
            (&request["organization"], &request["name"]),
            (&json!("o"), &json!("n"))
        );
        state.exists = true;
        state.private = request["private"].as_bool();
        return ok(json!({}));
    }
    let Some(path) = path.strip_prefix("/api/models/o/n") else {
        return answer_files(state, seen, path, hub, storage);
    };
    if !state.exists {
        return status(404);
    }
    let parts: Vec<&str> = path.split('/').collect();
    match (&*seen.method, &parts[..]) {
        ("GET", [""]) => ok(json!({ "id": "o/n" })),
        ("POST", ["", "branch", branch]) => {
            state.branches.push((*branch).to_owned());
            ok(json!({}))
        }
        ("GET", ["", "revision", revision]) => {
            let known = state.branches.iter().any(|branch| branch == revision);
            if !known && *revision != COMMIT {
                return status(404);
            }
            let names = state.files.keys();
            let siblings: Vec<Value> = names.map(|name| json!({ "rfilename": name })).collect();
            ok(json!({ "sha": COMMIT, "siblings": siblings }))
        }
        ("POST", ["", "preupload", _]) => {
            let request: Value = serde_json::from_slice(&seen.body).unwrap();
            let files = request["files"].as_array().unwrap().iter().map(|file| {
                let large = file["path"].as_str().unwrap().ends_with(".safetensors");
                BASE64.decode(file["sample"].as_str().unwrap()).unwrap();
                let mode = if large { "lfs" } else { "regular" };
                json!({ "path": file["path"], "uploadMode": mode, "shouldIgnore": false })
            });
            ok(json!({ "files": files.collect::<Vec<_>>() }))
        }
        ("POST", ["", "commit", _]) => {
            let text = String::from_utf8(seen.body.clone()).unwrap();
            let mut url = json!({ "commitOid": COMMIT, "commitUrl": format!("{hub}/c") });
            if seen.path.ends_with("?create_pr=1") {
                url["pullRequestUrl"] = json!(format!("{hub}/pr/1"));
            }
            for line in text.lines() {
                let line: Value = serde_json::from_str(line).unwrap();
                let value = &line["value"];
                let name = || value["path"].as_str().unwrap().to_owned();
                if line["key"] == "file" {
                    let content = value["content"].as_str().unwrap();
                    state.files.insert(name(), BASE64.decode(content).unwrap());
                } else if line["key"] == "lfsFile" {
                    let content = state.stored[value["oid"].as_str().unwrap()].clone();
                    state.files.insert(name(), content);
                }
            }
            state.commits.push(text);
            ok(url)
        }
        _ => status(405),
    }
}

fn answer_files(state: &mut State, seen: &Seen, path: &str, hub: &str, storage: &str) -> Reply {
    if path == "/o/n.git/info/lfs/objects/batch" {
        let request: Value = serde_json::from_slice(&seen.body).unwrap();
        let objects = request["objects"].as_array().unwrap().iter();
        let objects = objects.map(|object| {
            let (id, size) = (
                object["oid"].as_str().unwrap(),
                object["size"].as_u64().unwrap(),
            );
            if state.stored.contains_key(id) || state.transfer.is_some() {
                return json!({ "oid": id, "size": size });
            }
            let mut header = Map::new();
            let mut href = format!("{storage}/put/{id}?signature=secret");
            if let Some(part) = state.part {
                header.insert("chunk_size".to_owned(), json!(part.to_string()));
                for number in 1..=(size as usize).div_ceil(part) {
                    let href = format!("{storage}/put/{id}?part={number}");
                    header.insert(number.to_string(), json!(href));
                }
                href = format!("{hub}/complete/{id}");
            }
            let upload = json!({ "href": href, "header": header });
            let verify = json!({ "href": format!("{hub}/verify/{id}") });
            json!({ "oid": id, "size": size, "actions": { "upload": upload, "verify": verify } })
        });
        let transfer = state.transfer.unwrap_or("basic");
        return ok(json!({ "transfer": transfer, "objects": objects.collect::<Vec<_>>() }));
    }
    if path.starts_with("/complete/") || path.starts_with("/verify/") {
        let request: Value = serde_json::from_slice(&seen.body).unwrap();
        let id = request["oid"].as_str().unwrap();
        let content = &state.stored[id];
        return match sha256_hex(content) == id {
            true => status(200),
            false => status(422),
        };
    }
    let Some(name) = path.strip_prefix(&format!("/o/n/resolve/{COMMIT}/")) else {
        return status(404);
    };
    let Some(content) = state.files.get(name) else {
        return status(404);
    };
    let case = |sum: String| match state.upper {
        true => sum.to_ascii_uppercase(),
        false => sum,
    };
    if name.ends_with(".safetensors") {
        let headers = vec![
            header("location", format!("{storage}/get/{name}?signature=secret")),
            header("etag", "\"of-the-redirect\""),
            header(
                "x-linked-etag",
                format!("\"{}\"", case(sha256_hex(content))),
            ),
            header("x-linked-size", content.len()),
            header("content-length", 0),
        ];
        return Reply {
            status: 302,
            headers,
            body: Vec::new(),
        };
    }
    Reply {
        status: 200,
        headers: vec![
            header("etag", format!("W/\"{}\"", case(git_hash(content)))),
            header("content-length", content.len()),
        ],
        body: content.clone(),
    }
}

/// The host of large files, which must not see the token.
fn answer_storage(state: &mut State, seen: &Seen, path: &str) -> Reply {
    assert!(
        !seen.headers.contains_key("authorization"),
        "a token for the storage"
    );
    if let Some(id) = path.strip_prefix("/put/") {
        let content = state.stored.entry(id.to_owned()).or_default();
        content.extend(&seen.body);
        return Reply {
            status: 200,
            headers: vec![header("etag", "\"part\"")],
            body: Vec::new(),
        };
    }
    let name = path.strip_prefix("/get/").unwrap();
    let content = state.files[name].clone();
    let range = seen.headers.get("range").filter(|_| state.ranges);
    let start = range.map(|range| {
        let start = range.strip_prefix("bytes=").unwrap().strip_suffix('-');
        start.unwrap().parse::<usize>().unwrap()
    });
    match start {
        Some(start) => Reply {
            status: 206,
            headers: vec![header(
                "content-range",
                format!("bytes {start}-{}/{}", content.len() - 1, content.len()),
            )],
            body: content[start..].to_vec(),
        },
        None => Reply {
            status: 200,
            headers: Vec::new(),
            body: content,
        },
    }
}
