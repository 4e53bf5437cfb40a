//! Requests to the hub: retried where that helps, answered with a value or a plain message.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use ureq::http::{Request, Response};
use ureq::{Agent, Body, SendBody};

use super::{HubSettings, OnProgress, Progress};
use crate::HubError;

/// The hub's answers other than files are small.
const MAX_ANSWER: u64 = 64 << 20;
/// A hub that asks for more patience than this gets an error instead.
const MAX_WAIT: Duration = Duration::from_secs(120);
const MAX_REDIRECTS: usize = 8;
/// Progress is told every so many bytes.
const PIECE: usize = 256 << 10;

/// A connection to the hub, or to where it sends us.
pub(super) struct Client<'a> {
    pub(super) settings: &'a HubSettings,
    agent: Agent,
}

/// A request. `about` is what an error names: the repository, or a file in it.
#[derive(Clone)]
pub(super) struct Call<'a> {
    pub(super) method: &'a str,
    pub(super) url: String,
    pub(super) about: &'a str,
    pub(super) headers: Vec<(String, String)>,
    pub(super) content: RequestBody<'a>,
    /// Statuses that are answers rather than errors.
    pub(super) accepted: &'a [u16],
}

/// The body of a request.
#[derive(Clone, Copy)]
pub(super) enum RequestBody<'a> {
    Nothing,
    Bytes(&'a [u8]),
    Part {
        file: &'a Path,
        start: u64,
        length: u64,
    },
}

impl<'a> Call<'a> {
    pub(super) fn new(method: &'a str, url: String, about: &'a str) -> Self {
        Self {
            method,
            url,
            about,
            headers: Vec::new(),
            content: RequestBody::Nothing,
            accepted: &[],
        }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(super) fn content(mut self, content: RequestBody<'a>) -> Self {
        self.content = content;
        self
    }

    pub(super) fn accept(mut self, statuses: &'a [u16]) -> Self {
        self.accepted = statuses;
        self
    }
}

impl<'a> Client<'a> {
    pub(super) fn new(settings: &'a HubSettings) -> Self {
        let patience = Some(Duration::from_secs(60));
        let config = Agent::config_builder()
            .http_status_as_error(false)
            // Followed here, so that the token stays with the hub and its headers are seen.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("wave/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(300)))
            .timeout_per_read(patience)
            .timeout_per_write(patience)
            .build();
        Self {
            settings,
            agent: config.new_agent(),
        }
    }

    /// The address of `path` in the hub's API or files.
    pub(super) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.settings.endpoint)
    }

    /// Sends a request and reads its answer as JSON; `Null` when the answer has no body.
    pub(super) fn json(&self, call: &Call<'_>) -> Result<(u16, Value), HubError> {
        let mut answer = self.send(call, &mut |_| ())?;
        let status = answer.status().as_u16();
        let reader = answer.body_mut().with_config().limit(MAX_ANSWER);
        let text = reader
            .read_to_vec()
            .map_err(|cause| self.broken(call.about, &cause))?;
        if text.is_empty() || !(200..300).contains(&status) {
            return Ok((status, Value::Null));
        }
        match serde_json::from_slice(&text) {
            Ok(value) => Ok((status, value)),
            Err(_) => Err(self.unexpected(call.about, "an answer that is not JSON")),
        }
    }

    /// Sends a request, again where the trouble may pass. The answer is a success, a redirect or
    /// one of the accepted statuses.
    pub(super) fn send(
        &self,
        call: &Call<'_>,
        progress: OnProgress<'_>,
    ) -> Result<Response<Body>, HubError> {
        let attempts = self.settings.attempts.max(1);
        for attempt in 1.. {
            let last = attempt >= attempts;
            let answer = match self.attempt(call, progress) {
                Ok(answer) => answer,
                Err(Trouble::Local(error)) => return Err(error),
                Err(Trouble::Wire(cause)) if last || !passes(&cause) => {
                    return Err(self.broken(call.about, &cause));
                }
                Err(Trouble::Wire(_)) => {
                    self.wait(attempt);
                    continue;
                }
            };
            let status = answer.status().as_u16();
            if status < 400 || call.accepted.contains(&status) {
                return Ok(answer);
            }
            if !matches!(status, 408 | 429 | 500 | 502 | 503 | 504) || last {
                return Err(self.refused(call, answer, attempt));
            }
            match asked_wait(&answer) {
                Some(wait) if wait > MAX_WAIT => return Err(self.refused(call, answer, attempt)),
                Some(wait) => std::thread::sleep(wait),
                None => self.wait(attempt),
            }
        }
        // The last attempt returns.
        Err(self.unexpected(call.about, "no answer"))
    }

    /// A GET or HEAD whose redirects are followed. Calls `visit` with every answer on the way.
    /// With `leave` false, a redirect to another host is not followed but returned.
    pub(super) fn follow(
        &self,
        call: &Call<'_>,
        leave: bool,
        visit: &mut dyn FnMut(&Response<Body>),
    ) -> Result<Response<Body>, HubError> {
        let mut call = call.clone();
        for _ in 0..MAX_REDIRECTS {
            let answer = self.send(&call, &mut |_| ())?;
            visit(&answer);
            if !(300..400).contains(&answer.status().as_u16()) {
                return Ok(answer);
            }
            let target = header(&answer, "location").and_then(|to| join(&call.url, to));
            let Some(target) = target else {
                return Err(self.unexpected(call.about, "a redirect to nowhere"));
            };
            if call.url.starts_with("https:") && !target.starts_with("https:") {
                return Err(self.unexpected(call.about, "a redirect to an unencrypted address"));
            }
            if !leave && origin(&target) != origin(&call.url) {
                return Ok(answer);
            }
            call.url = target;
        }
        Err(self.unexpected(call.about, "redirects without end"))
    }

    /// Waits before attempt number `attempt` + 1.
    pub(super) fn wait(&self, attempt: u32) {
        let factor = 1 << attempt.saturating_sub(1).min(5);
        let wait = self.settings.retry_delay.saturating_mul(factor);
        std::thread::sleep(wait.min(MAX_WAIT));
    }

    fn attempt(
        &self,
        call: &Call<'_>,
        progress: OnProgress<'_>,
    ) -> Result<Response<Body>, Trouble> {
        let mut request = Request::builder().method(call.method).uri(&call.url);
        for (name, value) in &call.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.settings.token
            && origin(&call.url) == origin(&self.settings.endpoint)
        {
            request = request.header("authorization", token.header());
        }
        let wire = |cause: ureq::http::Error| Trouble::Wire(cause.into());
        let answer = match call.content {
            RequestBody::Nothing => self.agent.run(request.body(()).map_err(wire)?),
            RequestBody::Bytes(bytes) => self.agent.run(request.body(bytes).map_err(wire)?),
            RequestBody::Part {
                file,
                start,
                length,
            } => {
                let local = |cause| Trouble::Local(HubError::io("read", file)(cause));
                let mut source = File::open(file).map_err(local)?;
                source.seek(SeekFrom::Start(start)).map_err(local)?;
                let mut counted = Counted {
                    inner: source.take(length),
                    name: call.about,
                    done: start,
                    told: start,
                    total: start + length,
                    progress,
                };
                let request = request.header("content-length", length);
                let body = SendBody::from_reader(&mut counted);
                self.agent.run(request.body(body).map_err(wire)?)
            }
        };
        answer.map_err(Trouble::Wire)
    }

    /// An error for an answer that is a refusal.
    fn refused(&self, call: &Call<'_>, mut answer: Response<Body>, attempts: u32) -> HubError {
        let status = answer.status().as_u16();
        let said = self.said(&mut answer);
        let known = self.settings.token.is_some();
        let wait = asked_wait(&answer).map(|wait| wait.as_secs());
        let (found, remedy, request) = match status {
            401 if known => (
                "the hub does not accept the token (401), or there is no such repository"
                    .to_owned(),
                "check the name, and that HF_TOKEN is valid",
                true,
            ),
            401 => (
                "the hub asks for a token (401), or there is no such repository".to_owned(),
                "check the name; for a private or new repository set HF_TOKEN",
                true,
            ),
            403 => (
                "the account may not do this (403)".to_owned(),
                "use a token that may write to the repository, or accept the conditions on the \
                 model's page",
                true,
            ),
            404 => (
                "not found on the hub (404)".to_owned(),
                "check the name and the revision; what is private needs HF_TOKEN",
                true,
            ),
            409 | 412 => (
                format!("somebody else changed the repository meanwhile ({status})"),
                "look at it, then run the command again",
                false,
            ),
            413 => (
                "the hub does not take as much (413)".to_owned(),
                "publish a smaller artefact",
                true,
            ),
            429 => (
                match wait {
                    Some(wait) => format!("the hub asks to wait {wait} s (429)"),
                    None => "too many requests to the hub (429)".to_owned(),
                },
                "try again later; a token raises the limit",
                false,
            ),
            500.. => (
                format!("the hub failed ({status}) at each of {attempts} attempts"),
                "try again later",
                false,
            ),
            _ => (
                format!("the hub refused ({status})"),
                "correct what it names, or look at the repository's page",
                false,
            ),
        };
        HubError::Remote {
            about: call.about.to_owned(),
            found: found + &said,
            remedy: remedy.to_owned(),
            request,
        }
    }

    /// The hub's own words, cut to a line and without secrets.
    fn said(&self, answer: &mut Response<Body>) -> String {
        let header = header(answer, "x-error-message").map(str::to_owned);
        let words = header.or_else(|| {
            let body = answer.body_mut().with_config().limit(64 << 10);
            let body: Value = serde_json::from_slice(&body.read_to_vec().ok()?).ok()?;
            let words = body.get("error").or_else(|| body.get("message"))?;
            words.as_str().map(str::to_owned)
        });
        match words {
            Some(words) => {
                let words = self.settings.scrub(&words);
                let plain = words.chars().map(|c| if c.is_control() { ' ' } else { c });
                let plain: String = plain.take(300).collect();
                format!(": {}", plain.trim())
            }
            None => String::new(),
        }
    }

    /// An error for a connection that failed.
    pub(super) fn broken(&self, about: &str, cause: &ureq::Error) -> HubError {
        // Addresses may be signed, which makes them secrets: none is repeated.
        let cause = match cause {
            ureq::Error::Io(cause) => cause.to_string(),
            ureq::Error::Timeout(limit) => format!("no answer in time ({limit})"),
            ureq::Error::HostNotFound => "the host is not known".to_owned(),
            ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => {
                "the address makes no sense".to_owned()
            }
            other => other.to_string(),
        };
        HubError::Remote {
            about: about.to_owned(),
            found: format!(
                "no connection to {}: {}",
                self.settings.endpoint,
                self.settings.scrub(&cause)
            ),
            remedy: "check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 works from the cache"
                .to_owned(),
            request: false,
        }
    }

    /// An error for an answer that the API does not have.
    pub(super) fn unexpected(&self, about: &str, found: &str) -> HubError {
        HubError::Remote {
            about: about.to_owned(),
            found: format!("{} sent {found}", self.settings.endpoint),
            remedy: "check that HF_ENDPOINT is a hub".to_owned(),
            request: false,
        }
    }
}

enum Trouble {
    /// On this machine.
    Local(HubError),
    /// On the way.
    Wire(ureq::Error),
}

/// Whether another attempt may do better.
fn passes(cause: &ureq::Error) -> bool {
    matches!(
        cause,
        ureq::Error::Io(_)
            | ureq::Error::Timeout(_)
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_)
    )
}

/// `Retry-After` in seconds; as a date it is passed over.
fn asked_wait(answer: &Response<Body>) -> Option<Duration> {
    let seconds = header(answer, "retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A header's value, where it is text.
pub(super) fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

/// Scheme, host and port.
pub(super) fn origin(url: &str) -> &str {
    let after = url.find("://").map_or(0, |at| at + 3);
    let end = url[after..].find(['/', '?', '#']);
    &url[..end.map_or(url.len(), |end| after + end)]
}

/// The target of a redirect from `base`, as a whole URL.
pub(super) fn join(base: &str, target: &str) -> Option<String> {
    if target.starts_with("https://") || target.starts_with("http://") {
        Some(target.to_owned())
    } else if target.starts_with('/') && !target.starts_with("//") {
        Some(format!("{}{target}", origin(base)))
    } else {
        None
    }
}

/// `text` as one segment of an address.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// A file that tells how much of it has been read.
struct Counted<'a> {
    inner: io::Take<File>,
    name: &'a str,
    done: u64,
    told: u64,
    total: u64,
    progress: OnProgress<'a>,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.done += n as u64;
        if self.done - self.told >= PIECE as u64 || (self.done == self.total && n > 0) {
            self.told = self.done;
            (self.progress)(Progress {
                file: self.name,
                done: self.done,
                total: self.total,
            });
        }
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_and_put_together() {
        assert_eq!(origin("https://h:8/a?b"), "https://h:8");
        assert_eq!(origin("http://h?b"), "http://h");
        let base = "https://h/a/b";
        assert_eq!(join(base, "/c?d").unwrap(), "https://h/c?d");
        assert_eq!(join(base, "https://i/c").unwrap(), "https://i/c");
        for target in ["", "c", "//i/c", "file:///etc/passwd"] {
            assert_eq!(join(base, target), None);
        }
        assert_eq!(quoted("refs/pr/1 \u{e9}"), "refs%2Fpr%2F1%20%C3%A9");
    }
}
