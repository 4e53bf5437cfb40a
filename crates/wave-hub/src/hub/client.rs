//! hf-hub's client, with what it lacks around a call: the waits that a hub asks for, timeouts, and errors that name a
//! remedy and no secret.

use std::error::Error;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use hf_hub::{HFClient, HFClientSync, HFError};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::HubSettings;
use crate::HubError;

const USER_AGENT: &str = concat!("wave/", env!("CARGO_PKG_VERSION"));
/// If a hub asks for a longer wait than this, the call fails.
const MAX_WAIT: Duration = Duration::from_secs(120);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum bytes of an API response. A repository of a million files lists them in about a hundred megabytes.
const MAX_ANSWER: u64 = 256 << 20;
/// Maximum time of a whole response: a slow trickle of bytes is no progress.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(300);

/// A connection to the hub.
pub(super) struct Client<'a> {
    pub(super) settings: &'a HubSettings,
    pub(super) hub: HFClientSync,
}

impl<'a> Client<'a> {
    /// A client that downloads into the cache at `cache`.
    pub(super) fn new(settings: &'a HubSettings, cache: &Path) -> Result<Self, HubError> {
        let http = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            // An encrypted hub cannot redirect to an unencrypted host.
            .https_only(settings.endpoint.starts_with("https:"))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .build();
        let client = |http| {
            let mut builder = HFClient::builder()
                .client(http)
                .user_agent(USER_AGENT)
                .endpoint(&settings.endpoint)
                .cache_dir(cache)
                .retry_max_attempts(0);
            if let Some(token) = &settings.token {
                builder = builder.token(token.secret());
            }
            builder.build_sync()
        };
        match http.map_err(HFError::from).and_then(client) {
            Ok(hub) => Ok(Self { settings, hub }),
            Err(cause) => Err(explain(settings, "HF_ENDPOINT", cause.into(), 1)),
        }
    }

    /// Makes a call, and retries transient failures. An error names `about`: the repository, or a file in it.
    pub(super) fn call<T, E: Into<Failure>>(
        &self,
        about: &str,
        call: impl Fn() -> Result<T, E>,
    ) -> Result<T, HubError> {
        let mut attempt = 1;
        loop {
            let failure: Failure = match call() {
                Ok(value) => return Ok(value),
                Err(cause) => cause.into(),
            };
            let asked = match &failure {
                Failure::Answer { wait, .. } => *wait,
                _ => None,
            };
            let last = attempt >= self.settings.attempts.max(1);
            if last || !failure.may_pass() || asked.is_some_and(|wait| wait > MAX_WAIT) {
                return Err(explain(self.settings, about, failure, attempt));
            }
            std::thread::sleep(asked.unwrap_or(self.pause(attempt)));
            attempt += 1;
        }
    }

    /// The wait before attempt number `attempt` + 1, if the hub asks for none.
    pub(super) fn pause(&self, attempt: u32) -> Duration {
        let factor = 1 << attempt.saturating_sub(1).min(5);
        let pause = self.settings.retry_delay.saturating_mul(factor);
        pause.min(MAX_WAIT)
    }

    /// A request that hf-hub has no method for, or whose response it would read without limit: POST of a body of this
    /// kind, else GET. The response is limited in length and time. The token is sent only to the hub's own address.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<T, Failure> {
        let endpoint = &self.settings.endpoint;
        let http = reqwest::blocking::Client::builder()
            .user_agent(USER_AGENT)
            .https_only(endpoint.starts_with("https:"))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(READ_TIMEOUT)
            .build()?;
        let url = format!("{endpoint}/{path}");
        let mut request = match body {
            None => http.get(url),
            Some((kind, body)) => http
                .post(url)
                .header(ACCEPT, kind)
                .header(CONTENT_TYPE, kind)
                .body(body.to_string()),
        };
        if let Some(token) = &self.settings.token {
            request = request.bearer_auth(token.secret());
        }
        let mut answer = request.send()?;
        let (status, wait) = (answer.status(), retry_after(answer.headers()));
        let said = answer.headers().get("x-error-message").cloned();
        let body = read_limited(&mut answer, MAX_ANSWER, MAX_ANSWER_TIME);
        if status.is_success() {
            return serde_json::from_slice(&body?).map_err(|cause| {
                Failure::Nonsense(format!("a response that does not fit the API ({cause})"))
            });
        }
        let status = status.as_u16();
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let said = said.as_ref().and_then(|said| said.to_str().ok());
        let said = said.or_else(|| body.get("error").and_then(Value::as_str));
        Err(Failure::Answer {
            status,
            said: said.map(str::to_owned),
            wait,
        })
    }

    /// An error for a response that does not fit the API.
    pub(super) fn unexpected(&self, about: &str, found: &str) -> HubError {
        explain(self.settings, about, Failure::Nonsense(found.to_owned()), 1)
    }
}

/// Reads all of `answer`, at most `most` bytes and within `time`.
fn read_limited(answer: &mut impl Read, most: u64, time: Duration) -> Result<Vec<u8>, Failure> {
    let began = Instant::now();
    let (mut all, mut part) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let n = match answer.read(&mut part) {
            Ok(0) => return Ok(all),
            Ok(n) => n,
            Err(cause) if cause.kind() == ErrorKind::Interrupted => continue,
            Err(cause) => return Err(Failure::wire(&cause, true)),
        };
        all.extend(&part[..n]);
        let (megabytes, seconds) = (most >> 20, time.as_secs());
        let found = if all.len() as u64 > most {
            format!("a response of more than {megabytes} MB, expected a list of files")
        } else if began.elapsed() > time {
            format!("a response that did not end within {seconds} s")
        } else {
            continue;
        };
        return Err(Failure::Nonsense(found));
    }
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The hub refused.
    Answer {
        status: u16,
        said: Option<String>,
        wait: Option<Duration>,
    },
    /// No complete response arrived.
    Wire { cause: String, again: bool },
    /// The response does not fit the API.
    Nonsense(String),
    /// A file on this machine could not be read or written.
    Local(std::io::Error),
}

impl Failure {
    /// True if a retry may succeed.
    fn may_pass(&self) -> bool {
        match self {
            Self::Answer { status, .. } => matches!(status, 408 | 429 | 500 | 502..=504),
            Self::Wire { again, .. } => *again,
            Self::Nonsense(_) | Self::Local(_) => false,
        }
    }

    fn wire(cause: &dyn Error, again: bool) -> Self {
        let cause = without_queries(&cause.to_string());
        Self::Wire { cause, again }
    }
}

impl From<HFError> for Failure {
    fn from(error: HFError) -> Self {
        let answer = |status, said, wait| Self::Answer { status, said, wait };
        match error {
            HFError::Http { context }
            | HFError::AuthRequired { context }
            | HFError::Forbidden { context }
            | HFError::Conflict { context } => {
                answer(context.status.as_u16(), context.server_message, None)
            }
            HFError::RateLimited {
                retry_after,
                context,
            } => answer(429, context.server_message, retry_after),
            HFError::RepoNotFound { context, .. }
            | HFError::RevisionNotFound { context, .. }
            | HFError::EntryNotFound { context, .. } => {
                let said = context.and_then(|context| context.server_message);
                answer(404, said, None)
            }
            HFError::Request { source, .. } => source.into(),
            HFError::Io(cause) => Self::Local(cause),
            HFError::MalformedResponse { what, .. } => {
                Self::Nonsense(format!("no valid response: {what}"))
            }
            HFError::Json(cause) => {
                Self::Nonsense(format!("a response that is not a hub's: {cause}"))
            }
            HFError::CacheLockTimeout { .. } => Self::Wire {
                cause: "a file with the same content takes too long".to_owned(),
                again: true,
            },
            // hf-xet does its own retries.
            other => Self::wire(&other, false),
        }
    }
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        // Addresses may be signed, which makes them secrets.
        let error = error.without_url();
        let mut last: &(dyn Error + 'static) = &error;
        while let Some(cause) = last.source() {
            last = cause;
        }
        if last.is::<serde_json::Error>() {
            return Self::Nonsense(format!("a response that does not fit the API ({last})"));
        }
        Self::wire(last, !error.is_builder() && !error.is_redirect())
    }
}

/// `text` without the query strings of its URLs: signatures are secrets.
fn without_queries(text: &str) -> String {
    let words = text.split(' ').map(|word| match word.contains("://") {
        true => word.split('?').next().unwrap_or(word),
        false => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// `Retry-After` in seconds; a date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    seconds.ok().map(Duration::from_secs)
}

fn explain(settings: &HubSettings, about: &str, failure: Failure, attempts: u32) -> HubError {
    let endpoint = &settings.endpoint;
    let (found, remedy, request) = match failure {
        Failure::Local(cause) => return HubError::io("transfer", Path::new(about))(cause),
        Failure::Nonsense(found) => {
            let remedy = "check that HF_ENDPOINT is a hub";
            (format!("{endpoint} sent {found}"), remedy, false)
        }
        Failure::Wire { cause, .. } => (
            format!("no connection to {endpoint}, or it was lost: {cause}"),
            "check the network and HF_ENDPOINT; HF_HUB_OFFLINE=1 works from the cache",
            false,
        ),
        Failure::Answer { status, said, wait } => {
            let (found, remedy) = refusal(status, settings.token.is_some());
            let more = match (status, wait) {
                (429, Some(wait)) => format!(", which asks to wait {} s", wait.as_secs()),
                (500.., _) => format!(" at each of {attempts} attempts"),
                _ => String::new(),
            };
            let said = said.map_or_else(String::new, |said| format!(": {}", one_line(&said)));
            let request = matches!(status, 401 | 403 | 404 | 413);
            (format!("{found} ({status}){more}{said}"), remedy, request)
        }
    };
    HubError::remote(about, settings.scrub(&found), remedy, request)
}

/// The hub's own words as one line.
fn one_line(said: &str) -> String {
    let plain = said.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(300).collect::<String>().trim().to_owned()
}

/// The meaning of a status and its remedy. `known`: with a token.
fn refusal(status: u16, known: bool) -> (&'static str, &'static str) {
    match status {
        401 if known => (
            "the hub does not accept the token, or there is no such repository",
            "check the name, and that HF_TOKEN is valid",
        ),
        401 => (
            "the hub asks for a token, or there is no such repository",
            "check the name; for a private or new repository set HF_TOKEN",
        ),
        403 => (
            "the account is not permitted to do this",
            "use a token with write access to the repository, or accept the conditions on its page",
        ),
        404 => (
            "not found on the hub",
            "check the name and the revision; private repositories need HF_TOKEN",
        ),
        409 | 412 => (
            "someone else changed the repository in the meantime",
            "check it, then run the command again",
        ),
        413 => (
            "the hub does not accept this much data",
            "publish a smaller artefact",
        ),
        429 => (
            "too many requests to the hub",
            "try again later; a token raises the limit",
        ),
        500.. => ("the hub failed", "try again later"),
        _ => (
            "the hub refused",
            "correct the named fault, or check the repository's page",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_end_is_given_up() {
        let minute = Duration::from_secs(60);
        let whole = read_limited(&mut &b"[1, 2]"[..], 6, minute).unwrap();
        assert_eq!(whole, b"[1, 2]");
        for (most, time, part) in [
            (1 << 20, minute, "more than 1 MB"),
            (u64::MAX, Duration::ZERO, "within 0 s"),
        ] {
            let failure = read_limited(&mut std::io::repeat(b'['), most, time).unwrap_err();
            assert!(format!("{failure:?}").contains(part), "{failure:?}");
        }
    }

    #[test]
    fn signatures_are_cut_off_and_other_words_stay() {
        let text = "why? GET https://h/a?signature=secret failed";
        assert_eq!(without_queries(text), "why? GET https://h/a failed");
    }
}
