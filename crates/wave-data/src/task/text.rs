//! The next token of a text: every position predicts the token after it, a character unless there is a
//! tokenizer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::TokenBatch;
use crate::source::read_whole;
use crate::{DataError, Tokenizer};

/// The longest text, in bytes: a character takes four bytes in memory.
const MOST_BYTES: u64 = 1 << 30;

/// One part in so many, the last, is for tests.
const PARTS: usize = 10;

/// Bytes of text, in whole lines, that a tokenizer takes at a time: what it remembers of each token takes
/// much more than the token.
const AT_ONCE: usize = 1 << 20;

/// What the tokens of a text stand for.
#[derive(Clone, Debug, PartialEq)]
pub enum Vocabulary {
    /// Every character that there is, in the order of Unicode; a token is an index.
    Characters(Vec<char>),
    /// What a tokenizer makes of texts.
    Tokens(Arc<Tokenizer>),
}

impl Vocabulary {
    /// Number of different tokens.
    pub fn size(&self) -> usize {
        match self {
            Vocabulary::Characters(characters) => characters.len(),
            Vocabulary::Tokens(tokenizer) => tokenizer.vocabulary(),
        }
    }

    /// What a token is, and several are.
    pub fn unit(&self) -> (&'static str, &'static str) {
        match self {
            Vocabulary::Characters(_) => ("character", "characters"),
            Vocabulary::Tokens(_) => ("token", "tokens"),
        }
    }
}

/// A text as tokens. What is trained on comes before what is tested on.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    path: String,
    vocabulary: Vocabulary,
    tokens: Vec<u32>,
}

impl Text {
    /// Reads a text file, or the plain files of a directory in the order of their names, one after
    /// another; links are left out, since they name files again. A token is a character, or what
    /// `tokenizer` makes of the text.
    ///
    /// # Errors
    /// If there is no such file, it is no text, one of fewer than 100 tokens, or one that the tokenizer
    /// has no tokens for.
    pub fn read(path: &str, tokenizer: Option<&Arc<Tokenizer>>) -> Result<Text, DataError> {
        let mut text = String::new();
        for file in files(Path::new(path))? {
            let unread = DataError::open(&file);
            let bytes = fs::metadata(&file).map_err(unread)?.len();
            if bytes + text.len() as u64 > MOST_BYTES {
                return Err(wrong(&file, "more than 1 GiB of text; take a part of it"));
            }
            let read = String::from_utf8(read_whole(&file, MOST_BYTES)?);
            text += &read.map_err(|_| wrong(&file, "no text in UTF-8; convert it"))?;
        }
        let (vocabulary, tokens) = match tokenizer {
            Some(tokenizer) => (
                Vocabulary::Tokens(tokenizer.clone()),
                tokenized(&text, tokenizer)?,
            ),
            None => by_character(&text),
        };
        if tokens.len() < 10 * PARTS {
            let found = format!(
                "{} {}; expected a text of at least {}",
                tokens.len(),
                vocabulary.unit().1,
                10 * PARTS
            );
            return Err(wrong(Path::new(path), &found));
        }
        Ok(Text {
            path: path.to_owned(),
            vocabulary,
            tokens,
        })
    }

    /// The path that it was read from.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What its tokens stand for.
    pub fn vocabulary(&self) -> &Vocabulary {
        &self.vocabulary
    }

    /// The text as tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// The nine tenths that are trained on, and the last tenth.
    fn parts(&self) -> (&[u32], &[u32]) {
        let last = self.tokens.len() / PARTS;
        self.tokens.split_at(self.tokens.len() - last)
    }

    /// Whether both parts hold a window of so many tokens and the one after it.
    pub(super) fn has(&self, length: usize) -> bool {
        self.parts().1.len() > length
    }

    /// Windows that begin anywhere in the training part.
    pub(super) fn draw(&self, n: usize, length: usize, rng: &mut ChaCha8Rng) -> TokenBatch {
        let part = self.parts().0;
        let begin = |_| rng.random_range(0..part.len() - length);
        windows(part, &(0..n).map(begin).collect::<Vec<_>>(), length)
    }

    /// Windows of the test part that do not overlap, spread over it: `n`, or as many as there are.
    pub(super) fn tests(&self, length: usize, n: usize, batch: usize) -> Vec<TokenBatch> {
        let part = self.parts().1;
        let all = (part.len() - 1) / length;
        let n = n.min(all);
        let begins: Vec<usize> = (0..n).map(|i| i * all / n * length).collect();
        let batches = begins.chunks(batch.max(1));
        batches.map(|some| windows(part, some, length)).collect()
    }
}

/// The characters of a text, and the text as their indices.
fn by_character(text: &str) -> (Vocabulary, Vec<u32>) {
    let mut characters: Vec<char> = text.chars().collect();
    characters.sort_unstable();
    characters.dedup();
    let token = |c| characters.partition_point(|known| *known < c) as u32;
    let tokens = text.chars().map(token).collect();
    (Vocabulary::Characters(characters), tokens)
}

/// The tokens of a text, some lines at a time.
fn tokenized(text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, DataError> {
    let mut parts = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for line in text.split_inclusive('\n') {
        end += line.len();
        if end - begin >= AT_ONCE {
            parts.push(&text[begin..end]);
            begin = end;
        }
    }
    parts.push(&text[begin..]);
    let parts = parts.par_iter().map(|part| tokenizer.encode(part, false));
    Ok(parts.collect::<Result<Vec<_>, _>>()?.concat())
}

/// The windows that begin at these places.
fn windows(part: &[u32], begins: &[usize], length: usize) -> TokenBatch {
    let from = |shift: usize| {
        let all = begins.iter().map(move |at| at + shift);
        all.flat_map(|at| part[at..at + length].to_vec()).collect()
    };
    TokenBatch {
        tokens: from(0),
        positions: (0..length as u32).collect(),
        targets: from(1),
        size: begins.len(),
    }
}

/// The file itself, or those of a directory.
fn files(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let unread = DataError::open(path);
    if !fs::metadata(path).map_err(unread)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        if entry.file_type().map_err(unread)?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn wrong(path: &Path, problem: &str) -> DataError {
    DataError::Spec(format!("{}: {problem}", path.display()))
}
