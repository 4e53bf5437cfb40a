//! The hub's settings, from the environment variables of Python's `huggingface_hub`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::HubError;

/// The addresses of the hub and its cache, and the patience with them.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// The hub's address, without a final slash: `https://huggingface.co`.
    pub endpoint: String,
    /// The access token, sent to `endpoint` and nowhere else.
    pub token: Option<Token>,
    /// The cache, which Python's `huggingface_hub` shares.
    pub cache: PathBuf,
    /// Work from the cache alone.
    pub offline: bool,
    /// Attempts before giving up, at least 1.
    pub attempts: u32,
    /// The wait before the second attempt; it doubles from then on.
    pub retry_delay: Duration,
}

impl HubSettings {
    /// The settings in the environment:
    ///
    /// - `HF_ENDPOINT`, by default `https://huggingface.co`;
    /// - `HF_TOKEN`, else the file `HF_TOKEN_PATH`, by default `$HF_HOME/token`;
    /// - `HF_HUB_CACHE`, by default `$HF_HOME/hub`;
    /// - `HF_HOME`, by default `$XDG_CACHE_HOME/huggingface` or `~/.cache/huggingface`;
    /// - `HF_HUB_OFFLINE` (or `TRANSFORMERS_OFFLINE`): `1`, `true`, `yes` or `on`.
    pub fn from_env() -> Result<Self, HubError> {
        Self::from_vars(|name| std::env::var(name).ok())
    }

    pub(crate) fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let var = |name: &str| var(name).filter(|value| !value.trim().is_empty());
        let user = var("HOME").or_else(|| var("USERPROFILE"));
        let user = user.map(PathBuf::from);
        let path = |name: &str| -> Option<PathBuf> {
            let value = var(name)?;
            match (value.strip_prefix("~/"), &user) {
                (Some(rest), Some(user)) => Some(user.join(rest)),
                _ => Some(PathBuf::from(value)),
            }
        };
        let below = |dir: Option<PathBuf>, name: &str| dir.map(|dir| dir.join(name));
        let home = path("HF_HOME")
            .or_else(|| below(path("XDG_CACHE_HOME"), "huggingface"))
            .or_else(|| below(user.clone(), ".cache/huggingface"));
        let cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| below(home.clone(), "hub"))
            .ok_or_else(|| {
                let found = "is not set, and neither is HOME";
                let remedy = "set it to a directory for downloads";
                HubError::missing(Path::new("HF_HUB_CACHE"), found, remedy)
            })?;
        let token = match var("HF_TOKEN").or_else(|| var("HUGGING_FACE_HUB_TOKEN")) {
            Some(token) => Some(Token::new(&token)?),
            None => match path("HF_TOKEN_PATH").or_else(|| below(home, "token")) {
                Some(file) => token_of(&file)?,
                None => None,
            },
        };
        let on = |name: &str| {
            let value = var(name).map(|value| value.trim().to_ascii_lowercase());
            value.is_some_and(|value| ["1", "true", "yes", "on"].contains(&value.as_str()))
        };
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| "https://huggingface.co".to_owned());
        Ok(Self {
            endpoint: checked_endpoint(endpoint.trim())?,
            token,
            cache,
            offline: on("HF_HUB_OFFLINE") || on("TRANSFORMERS_OFFLINE"),
            attempts: 5,
            retry_delay: Duration::from_secs(1),
        })
    }

    /// `text` without the token, should it be in there.
    pub(super) fn scrub(&self, text: &str) -> String {
        match &self.token {
            Some(Token(token)) => text.replace(token.as_str(), "[token]"),
            None => text.to_owned(),
        }
    }
}

/// A secret. It has no way into a message: nothing shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The token in a text, which no error repeats.
    pub fn new(text: &str) -> Result<Self, HubError> {
        let text = text.trim();
        if text.len() < 4 || !text.chars().all(|c| c.is_ascii_graphic()) {
            let found = "is not a token: it is too short or has invalid characters";
            let remedy = "copy it again from the hub's settings";
            return Err(HubError::malformed(Path::new("HF_TOKEN"), found, remedy));
        }
        Ok(Self(text.to_owned()))
    }

    /// The token itself, for a request's header and nothing else.
    pub(super) fn secret(&self) -> &str {
        &self.0
    }

    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        let token = self.0.as_bytes();
        bytes.windows(token.len()).any(|window| window == token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn token_of(file: &Path) -> Result<Option<Token>, HubError> {
    match std::fs::read_to_string(file) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Token::new(&text).map(Some).map_err(|_| {
            let remedy = "log in again, or set HF_TOKEN";
            HubError::malformed(file, "does not hold a token", remedy)
        }),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(HubError::io("read", file)(cause)),
    }
}

fn checked_endpoint(endpoint: &str) -> Result<String, HubError> {
    let endpoint = endpoint.trim_end_matches('/');
    let mut schemes = ["https://", "http://"].iter();
    let rest = schemes.find_map(|scheme| endpoint.strip_prefix(scheme));
    let odd = |c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c);
    if rest.is_none_or(|rest| rest.is_empty() || rest.contains(odd)) {
        // The address itself may hold a password.
        let found = "is not the address of a hub";
        let remedy = "write https://HOST; a secret goes into HF_TOKEN";
        return Err(HubError::malformed(Path::new("HF_ENDPOINT"), found, remedy));
    }
    Ok(endpoint.to_owned())
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
