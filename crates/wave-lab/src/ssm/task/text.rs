//! Prediction of the next character of a text, at every position.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Error, Result};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use wave_run::error::request;

use super::TokenBatch;

/// The last of this many equal parts is for tests.
const PARTS: usize = 10;

/// A text as tokens: its distinct characters, in Unicode order; a token is an index into them. The part
/// for training comes before the part for tests.
#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    pub(super) characters: Vec<char>,
    tokens: Vec<u32>,
}

impl Text {
    /// Reads a text file, or the plain files of a directory in the order of their names, one after
    /// another; links are skipped, since their targets could be read twice.
    pub fn read(path: &str) -> Result<Text> {
        let mut text = String::new();
        for file in files(Path::new(path))? {
            text += &wave_hub::read_text(&file)?;
        }
        let mut characters: Vec<char> = text.chars().collect();
        if characters.len() < 10 * PARTS {
            let (found, least) = (characters.len(), 10 * PARTS);
            let problem = format!("{found} characters; expected a text of at least {least}");
            return Err(wrong(Path::new(path), &problem));
        }
        characters.sort_unstable();
        characters.dedup();
        let token = |c| characters.partition_point(|known| *known < c) as u32;
        Ok(Text {
            tokens: text.chars().map(token).collect(),
            characters,
        })
    }

    /// The first nine tenths, for training, and the last tenth, for tests.
    fn parts(&self) -> (&[u32], &[u32]) {
        let last = self.tokens.len() / PARTS;
        self.tokens.split_at(self.tokens.len() - last)
    }

    /// True if both parts hold a window of this many tokens and the one after it.
    pub(super) fn has(&self, length: usize) -> bool {
        self.parts().1.len() > length
    }

    /// Windows from random positions of the training part.
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
        let batches = begins.chunks(batch);
        batches.map(|some| windows(part, some, length)).collect()
    }
}

/// The windows that begin at these positions.
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

/// The file itself, or the files of a directory.
fn files(path: &Path) -> Result<Vec<PathBuf>> {
    let found = fs::metadata(path).map_err(|e| wrong(path, &e.to_string()))?;
    if !found.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn wrong(path: &Path, problem: &str) -> Error {
    request(format!("{}: {problem}", path.display()))
}
