//! Text as tokens, by a `tokenizer.json` of the library tokenizers: byte-pair encoding, words, unigrams.

use std::path::Path;
use std::sync::Arc;

use tokenizers::{Tokenizer as Inner, TruncationParams};

use crate::DataError;
use crate::source::read_whole;

/// The longest `tokenizer.json`: the largest published vocabularies take a tenth of it.
const MOST_BYTES: u64 = 1 << 28;

/// A tokenizer, without the truncation and padding that its file may ask for.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    path: String,
    /// The file's bytes.
    json: Arc<[u8]>,
    inner: Inner,
    padding: Option<u32>,
    vocabulary: usize,
}

impl PartialEq for Tokenizer {
    fn eq(&self, other: &Tokenizer) -> bool {
        self.json == other.json
    }
}

impl Tokenizer {
    /// Reads a `tokenizer.json`.
    ///
    /// # Errors
    /// If there is no such file, or it is not one.
    pub fn read(path: &Path) -> Result<Tokenizer, DataError> {
        let bytes = read_whole(path, MOST_BYTES)?;
        let wrong = |why: String| {
            DataError::content(
                path,
                format!(
                    "is no tokenizer ({why}); expected a tokenizer.json, as `tokenizer.save` of the \
                     library tokenizers and `save_pretrained` of transformers write it"
                ),
            )
        };
        let mut inner = Inner::from_bytes(&bytes).map_err(|e| wrong(e.to_string()))?;
        let padding = inner.get_padding().map(|padding| padding.pad_id);
        inner.with_padding(None);
        inner
            .with_truncation(None)
            .map_err(|e| wrong(e.to_string()))?;
        let largest = inner.get_vocab(true).into_values().max();
        let Some(largest) = largest else {
            return Err(wrong("its vocabulary is empty".into()));
        };
        Ok(Tokenizer {
            path: path.display().to_string(),
            json: bytes.into(),
            inner,
            padding,
            vocabulary: largest as usize + 1, // numbers may have gaps
        })
    }

    /// The same, of which a text has at most so many tokens, those at its begin and end included.
    ///
    /// # Errors
    /// If the tokens at begin and end leave no room.
    pub fn truncated(mut self, tokens: usize) -> Result<Tokenizer, DataError> {
        let truncation = TruncationParams {
            max_length: tokens,
            ..TruncationParams::default()
        };
        match self.inner.with_truncation(Some(truncation)) {
            Ok(_) => Ok(self),
            Err(error) => Err(DataError::Settings(format!(
                "{}: texts of {tokens} tokens: {error}; take the tokenizer.json of this model",
                self.path
            ))),
        }
    }

    /// The tokens of a text; `whole` with those that the file puts at its begin and end.
    ///
    /// # Errors
    /// If there are characters that the tokenizer has no token for.
    pub fn encode(&self, text: &str, whole: bool) -> Result<Vec<u32>, DataError> {
        let encoded = self.inner.encode_fast(text, whole);
        encoded
            .map(|encoded| encoded.get_ids().to_vec())
            .map_err(|error| {
                DataError::Settings(format!(
                    "{}: a text cannot be encoded: {error}; take a tokenizer made for such texts",
                    self.path
                ))
            })
    }

    /// The path that it was read from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The bytes of its file.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// Number of different tokens: the largest and one.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// The number of a token.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.inner.token_to_id(text)
    }

    /// The token that its file pads with, if it does.
    pub fn padding(&self) -> Option<u32> {
        self.padding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Tokenizer, DataError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, json).unwrap();
        Tokenizer::read(&path)
    }

    const WORDS: &str = r#"{
        "version": "1.0", "truncation": {"direction": "Right", "max_length": 2,
        "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 5, "pad_type_id": 0, "pad_token": "e"},
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 2, "e": 5}, "unk_token": "?"}}"#;

    #[test]
    fn words_become_tokens_neither_cut_nor_padded() {
        let tokenizer = read(WORDS).unwrap();
        assert_eq!(tokenizer.encode("a b c a", true).unwrap(), [0, 1, 2, 0]);
        assert_eq!(tokenizer.vocabulary(), 6);
        assert_eq!(tokenizer.padding(), Some(5));
        let short = tokenizer.truncated(3).unwrap();
        assert_eq!(short.encode("a b c a", true).unwrap(), [0, 1, 2]);
    }

    #[test]
    fn what_is_no_tokenizer_is_refused_by_its_path() {
        for json in [
            "",
            "{}",
            "[1]",
            r#"{"model": {"type": "WordLevel"}}"#,
            &WORDS.replace(
                r#""vocab": {"a": 0, "b": 1, "?": 2, "e": 5}"#,
                r#""vocab": {}"#,
            ),
            &WORDS.replace("WordLevel", "Nothing"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.is_request());
            let text = error.to_string();
            assert!(text.contains("tokenizer.json: is no tokenizer ("), "{text}");
        }
    }

    #[test]
    fn a_text_without_tokens_for_it_is_an_error() {
        let tokenizer = read(&WORDS.replace(r#""unk_token": "?""#, r#""unk_token": "!""#)).unwrap();
        let error = tokenizer.encode("a z", true).unwrap_err();
        assert!(error.to_string().contains("cannot be encoded"), "{error}");
    }
}
