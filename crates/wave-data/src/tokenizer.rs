//! Tokenization by a `tokenizer.json` of the tokenizers library: byte-pair encoding, words, unigrams.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::Value;
use tokenizers::{Tokenizer as Inner, TruncationParams};

use crate::DataError;
use crate::guard::guarded;
use crate::source::read_whole;

/// Maximum size of a `tokenizer.json`: the largest published vocabularies take a tenth of it.
const MOST_BYTES: u64 = 1 << 28;

/// Published tokenizers nest eight deep.
const DEEPEST: usize = 64;

/// Normalisation may make a text this many times as long, or ..
const MOST_GROWTH: u64 = 32;
/// .. this many bytes long.
const MOST_NORMALISED: u64 = 1 << 26;

/// A tokenizer, without the truncation and padding that its file may specify.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    /// The path that it was read from.
    pub path: String,
    /// The id of the file's padding token, if it has one.
    pub padding: Option<u32>,
    inner: Inner,
    /// The steps that normalise a text, as the file has them.
    normalizer: Value,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If the file does not exist or is not a tokenizer.
    pub fn read(path: &Path) -> Result<Tokenizer, DataError> {
        let bytes = read_whole(path, MOST_BYTES, DataError::open(path))?;
        let wrong = |why: String| {
            let problem = format!(
                "is not a tokenizer ({why}); expected a tokenizer.json from `tokenizer.save` of the \
                 tokenizers library or `save_pretrained` of transformers"
            );
            DataError::content(path, problem)
        };
        let normalizer = look_over(&bytes).map_err(wrong)?;
        let read = || {
            let mut inner = Inner::from_bytes(&bytes).map_err(|e| e.to_string())?;
            let padding = inner.get_padding().map(|padding| padding.pad_id);
            inner.with_padding(None);
            inner.with_truncation(None).map_err(|e| e.to_string())?;
            if inner.get_vocab(true).is_empty() {
                return Err("its vocabulary is empty".to_owned());
            }
            Ok((inner, padding))
        };
        let (inner, padding) = guarded(read).flatten().map_err(wrong)?;
        Ok(Tokenizer {
            path: path.display().to_string(),
            padding,
            inner,
            normalizer,
        })
    }

    /// The same, with texts truncated to `tokens` tokens, begin and end tokens included.
    ///
    /// # Errors
    /// If the tokens at begin and end leave no room.
    pub fn truncated(mut self, tokens: usize) -> Result<Tokenizer, DataError> {
        let truncation = TruncationParams {
            max_length: tokens,
            ..TruncationParams::default()
        };
        let set = guarded(|| {
            let set = self.inner.with_truncation(Some(truncation));
            set.map(drop).map_err(|error| error.to_string())
        });
        set.flatten().map_err(|error| {
            DataError::Settings(format!(
                "{}: texts of {tokens} tokens: {error}; use the tokenizer.json of this model",
                self.path
            ))
        })?;
        Ok(self)
    }

    /// The tokens of a text, with the file's begin and end tokens.
    ///
    /// # Errors
    /// If there are characters that the tokenizer has no token for.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        let most = longest(&self.normalizer, text.len() as u64);
        let limit = MOST_NORMALISED.max(MOST_GROWTH.saturating_mul(text.len() as u64));
        let encoded = match most > limit {
            true => Err(format!(
                "its normalizer may make {most} bytes of {}; expected at most {limit}",
                text.len()
            )),
            false => guarded(|| {
                let encoded = self.inner.encode_fast(text, true);
                let tokens = encoded.map(|encoded| encoded.get_ids().to_vec());
                tokens.map_err(|error| error.to_string())
            })
            .flatten(),
        };
        encoded.map_err(|error| {
            DataError::Settings(format!(
                "{}: a text cannot be encoded: {error}; use a tokenizer made for such texts",
                self.path
            ))
        })
    }

    /// The id of a token.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }
}

/// Checks the depth of a file and the lengths of its tables, which the library does not. Returns the normalizer.
fn look_over(json: &[u8]) -> Result<Value, String> {
    let mut whole: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    // Each with its nesting depth in brackets and braces.
    let mut steps = vec![(&whole, 0)];
    while let Some((step, depth)) = steps.pop() {
        if let Some(table) = step["precompiled_charsmap"].as_str() {
            check_charsmap(table)?;
        }
        match step {
            Value::Array(_) | Value::Object(_) if depth == DEEPEST => {
                return Err(format!("it nests more than {DEEPEST} deep"));
            }
            Value::Array(inner) => steps.extend(inner.iter().map(|step| (step, depth + 1))),
            Value::Object(inner) => steps.extend(inner.values().map(|step| (step, depth + 1))),
            _ => {}
        }
    }
    let normalizer = whole.get_mut("normalizer").map(Value::take);
    Ok(normalizer.unwrap_or_default())
}

/// A table in base 64: the length of its trie in four bytes, the trie, texts. The library allocates that length.
fn check_charsmap(table: &str) -> Result<(), String> {
    let start = table.get(..8).map(|start| BASE64_STANDARD.decode(start));
    let start = start.and_then(Result::ok).unwrap_or_default();
    let length = start.first_chunk();
    let length = length.ok_or("its precompiled_charsmap is not a base64 table")?;
    let trie = u64::from(u32::from_le_bytes(*length));
    let holds = table.len() as u64 / 4 * 3;
    if trie + 4 > holds || trie % 4 != 0 || trie == 0 {
        return Err(format!(
            "its precompiled_charsmap declares a trie of {trie} bytes, but holds {holds}"
        ));
    }
    Ok(())
}

/// Maximum bytes that a normalizer makes of `length`, without the growth by Unicode normalisation forms.
fn longest(step: &Value, length: u64) -> u64 {
    let bytes = |key: &str| step[key].as_str().map_or(0, |text| text.len() as u64);
    match step["type"].as_str() {
        Some("Sequence") => {
            let steps = step["normalizers"].as_array().into_iter().flatten();
            steps.fold(length, |length, step| longest(step, length))
        }
        Some("Prepend") => length.saturating_add(bytes("prepend")),
        Some("Replace") => {
            let made = |times: u64| times.saturating_mul(bytes("content"));
            let found = step["pattern"]["String"].as_str().map_or(0, str::len) as u64;
            match found {
                // An expression may match anywhere, even the empty string.
                0 => length.saturating_add(made(length.saturating_add(1))),
                _ => length.max(made(length / found).saturating_add(length % found)),
            }
        }
        _ => length,
    }
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
