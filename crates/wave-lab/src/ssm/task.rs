//! Tasks on sequences of tokens, sampled anew for every batch, for testing state space models (thesis, section 3.3.1).
//!
//! A network reads the beginning of a sequence and predicts the rest, token by token; only the tokens of
//! the answer and the end count:
//!
//! ```text
//! copy     $ s | s .             s of random symbols
//! stack    $ s | s backwards .
//! recall   $ a1 b2 c3 | c3 a1 b2 .    every key once, the queries in another order; values and end count
//! sort     $ s | s in order .    s of different symbols
//! ```
//!
//! and, for language models, windows of a text, in which every character counts:
//!
//! ```text
//! text:FILE                      nine tenths to train on, the last tenth for tests
//! ```
//!
//! Every batch is a pure function of the task, the seed and the step, and all of its sequences have
//! the same length. Test sequences are the same for every seed.

mod text;

pub use text::Text;

use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Error, Result};
use candle_core::{Device, Tensor};
use clap::ValueEnum;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use wave_data::DataError;
use wave_models::refuse;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::train::TrainingData;
use wave_train::{Alone, Batches, Examples, Scores, Tally};

/// The tokens that are not symbols: `$`, `|` and `.`; symbols come after them.
const BEGIN: u32 = 0;
const BAR: u32 = 1;
const END: u32 = 2;
const FIRST_SYMBOL: u32 = 3;

/// Sequences in an epoch. Networks are tested after each epoch.
pub const EPOCH: usize = 12_800;

/// Maximum length of a string and number of symbols.
const MOST: usize = 1 << 16;

/// Seed of the test sequences.
const TEST_SEED: u64 = 0x7e57;

/// The rule that makes a sequence, by its name in specifications.
#[derive(ValueEnum, Clone, Debug, PartialEq)]
pub enum TaskKind {
    Copy,
    Stack,
    Recall,
    Sort,
    #[value(skip)]
    Text(Arc<Text>),
}

/// A task with its lengths and its number of symbols.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub kind: TaskKind,
    /// Minimum and maximum number of symbols (for recall: pairs) of a training string; sampled for each batch.
    pub lengths: (usize, usize),
    /// Number of different symbols; for recall, of keys and of values; for a text, of tokens.
    pub symbols: usize,
}

impl FromStr for Task {
    type Err = Error;

    /// Reads `copy`, `stack`, `recall` or `sort`, alone or with sizes: `copy:length=16,symbols=16`, or a
    /// range of lengths, `copy:length=8..16`. The defaults are 16 and 16, for `sort` 16 and 512.
    ///
    /// Or `text:FILE`, read immediately, in windows of 64 characters or of another length: `text:FILE,length=128`.
    fn from_str(spec: &str) -> Result<Task> {
        let wrong = |why: String| {
            request(format!(
                "`{spec}`: {why}; tasks are copy, stack, recall and sort, alone or with sizes, such as \
                 copy:length=16,symbols=16 or copy:length=8..16, and text:FILE,length=64"
            ))
        };
        let (name, sizes) = spec.split_once(':').unwrap_or((spec, ""));
        let (kind, sizes) = match name {
            "text" => {
                let sized = sizes.rsplit_once(',');
                let sized = sized.filter(|(_, size)| size.starts_with("length="));
                let (path, sizes) = sized.unwrap_or((sizes, ""));
                (TaskKind::Text(Arc::new(Text::read(path)?)), sizes)
            }
            name => match TaskKind::from_str(name, false) {
                Ok(kind) => (kind, sizes),
                Err(_) => return Err(wrong("is not a task".into())),
            },
        };
        let (length, symbols) = match &kind {
            TaskKind::Text(text) => (64, text.characters.len()),
            TaskKind::Sort => (16, 512),
            _ => (16, 16),
        };
        let mut task = Task {
            kind,
            lengths: (length, length),
            symbols,
        };
        for size in sizes.split(',').filter(|size| !size.is_empty()) {
            let number = |text: &str| -> Result<usize> {
                let n = text.trim().parse().ok();
                n.filter(|n| (1..=MOST).contains(n))
                    .ok_or_else(|| wrong(format!("`{text}` is not a number from 1 to {MOST}")))
            };
            match size.split_once('=').map(|(key, value)| (key.trim(), value)) {
                Some(("length", value)) => {
                    let (least, most) = value.split_once("..").unwrap_or((value, value));
                    task.lengths = (number(least)?, number(most)?);
                }
                Some(("symbols", value)) => task.symbols = number(value)?,
                _ => return Err(wrong(format!("`{size}` is not a size of a task"))),
            }
        }
        let (least, most) = task.lengths;
        if least > most || !task.has(most) {
            return Err(wrong(format!(
                "lengths are {least} to {most}: expected at most the number of different symbols, or a tenth of \
                 the text"
            )));
        }
        Ok(task)
    }
}

impl Task {
    pub fn vocabulary(&self) -> usize {
        match self.kind {
            TaskKind::Recall => FIRST_SYMBOL as usize + 2 * self.symbols,
            TaskKind::Text(_) => self.symbols,
            _ => FIRST_SYMBOL as usize + self.symbols,
        }
    }

    /// True if there are strings of this length: up to the number of symbols where they may not repeat; up to
    /// a tenth of a text.
    pub fn has(&self, length: usize) -> bool {
        match &self.kind {
            TaskKind::Copy | TaskKind::Stack => true,
            TaskKind::Recall | TaskKind::Sort => length <= self.symbols,
            TaskKind::Text(text) => text.has(length),
        }
    }

    /// Sequences of strings of this length.
    fn draw(&self, n: usize, length: usize, rng: &mut ChaCha8Rng) -> TokenBatch {
        if let TaskKind::Text(text) = &self.kind {
            return text.draw(n, length, rng);
        }
        let mut batch = TokenBatch {
            size: n,
            ..TokenBatch::default()
        };
        for _ in 0..n {
            let (question, answer) = self.question(length, rng);
            let first = question.len() + 2;
            let tokens = [&[BEGIN], &question[..], &[BAR], &answer[..], &[END]].concat();
            let last = tokens.len() - 1;
            // The next query of recall cannot be predicted: only values and the end count.
            let all = self.kind != TaskKind::Recall;
            let counts = |at: &usize| all || (at - first) % 2 == 1 || *at == last;
            let answers: Vec<usize> = (first..=last).filter(counts).collect();
            // Each token is predicted at the position before it; nothing follows the last.
            batch.tokens.extend(&tokens[..last]);
            batch.targets.extend(answers.iter().map(|at| tokens[*at]));
            batch.positions = answers.iter().map(|at| *at as u32 - 1).collect();
        }
        batch
    }

    /// The symbols before and after the bar.
    fn question(&self, length: usize, rng: &mut ChaCha8Rng) -> (Vec<u32>, Vec<u32>) {
        let symbols = self.symbols as u32;
        let question: Vec<u32> = match self.kind {
            TaskKind::Recall | TaskKind::Sort => different(length, self.symbols, rng),
            _ => {
                let symbol = |_| FIRST_SYMBOL + rng.random_range(0..symbols);
                (0..length).map(symbol).collect()
            }
        };
        let mut answer = question.clone();
        match self.kind {
            TaskKind::Recall => {
                // Values are other symbols than keys, and may repeat.
                let value = |key| [key, FIRST_SYMBOL + symbols + rng.random_range(0..symbols)];
                let mut pairs: Vec<[u32; 2]> = question.into_iter().map(value).collect();
                let question = pairs.concat();
                pairs.shuffle(rng);
                return (question, pairs.concat());
            }
            TaskKind::Sort => answer.sort_unstable(),
            TaskKind::Stack => answer.reverse(),
            _ => {}
        }
        (question, answer)
    }

    /// The `n` test sequences of a length, in batches of at most `batch`; fewer if a text has fewer.
    pub fn test_batches(&self, length: usize, n: usize, batch: usize) -> Vec<TokenBatch> {
        if let TaskKind::Text(text) = &self.kind {
            return text.tests(length, n, batch);
        }
        let mut rng = ChaCha8Rng::seed_from_u64(TEST_SEED);
        rng.set_stream(u64::MAX - length as u64); // no step is so late
        let next = |from: usize| self.draw(batch.min(n - from), length, &mut rng);
        (0..n).step_by(batch).map(next).collect()
    }
}

/// `n` different symbols of `symbols`, in random order.
fn different(n: usize, symbols: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..symbols as u32).collect();
    for i in 0..n {
        all.swap(i, rng.random_range(i..symbols));
    }
    all.truncate(n);
    all.iter().map(|symbol| FIRST_SYMBOL + symbol).collect()
}

/// Sequences of tokens, and the prediction targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenBatch {
    /// (size, length of a sequence)
    pub tokens: Vec<u32>,
    /// The positions at which predictions count, the same in every sequence.
    pub positions: Vec<u32>,
    /// The tokens after these positions: (size, positions)
    pub targets: Vec<u32>,
    pub size: usize,
}

/// Training batches of a task, each a pure function of its step.
#[derive(Clone, Debug)]
pub struct TaskLoader {
    pub task: Task,
    rows: Vec<usize>,
    seed: u64,
    context: Context,
}

impl TaskLoader {
    /// Batches of `batch` sequences.
    pub fn new(task: Task, batch: usize, seed: u64) -> Result<TaskLoader> {
        if !(1..=EPOCH).contains(&batch) {
            refuse!("a batch of {batch} sequences: expected 1 to {EPOCH}");
        }
        Ok(TaskLoader {
            task,
            rows: (0..batch).collect(),
            seed,
            context: Context::default(),
        })
    }

    /// The batch of a step, counted from 0.
    pub fn batch(&self, step: u64) -> TokenBatch {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(step);
        let (least, most) = self.task.lengths;
        let length = rng.random_range(least..=most);
        self.task.draw(self.rows.len(), length, &mut rng)
    }
}

impl Batches for TaskLoader {
    type Batch = TokenBatch;

    fn steps_per_epoch(&self) -> usize {
        EPOCH / self.rows.len()
    }

    /// Training runs in one process.
    fn share(&self, _: usize, _: usize) -> Result<TaskLoader, DataError> {
        Ok(self.clone())
    }

    fn batch_size(&self) -> usize {
        self.rows.len()
    }

    fn rows(&self) -> &[usize] {
        &self.rows
    }

    // Sampling a batch takes microseconds: no thread prefetches.
    fn prefetch(&self, from: u64, to: u64) -> impl Iterator<Item = Result<TokenBatch, DataError>> {
        (from..to).map(|step| Ok(self.batch(step)))
    }
}

impl TrainingData for TaskLoader {
    type Batches = TaskLoader;

    fn batches(&self) -> &TaskLoader {
        self
    }

    fn has_tests(&self) -> bool {
        true
    }

    fn in_pairs(&self) -> bool {
        false
    }

    fn context(&self) -> &Context {
        &self.context
    }
}

impl Examples for TokenBatch {
    fn input(&self) -> candle_core::Result<Tensor> {
        Tensor::from_slice(&self.tokens, (self.size, ()), &Device::Cpu)
    }

    fn split(&self, n: usize) -> candle_core::Result<Vec<Vec<usize>>> {
        let rows: Vec<usize> = (0..self.size).collect();
        Ok(rows.chunks(self.size / n).map(<[usize]>::to_vec).collect())
    }

    fn select(&self, rows: &[usize]) -> TokenBatch {
        let of = |values: &[u32]| -> Vec<u32> {
            let len = values.len() / self.size;
            let parts = rows.iter().map(|row| &values[row * len..(row + 1) * len]);
            parts.flatten().copied().collect()
        };
        TokenBatch {
            tokens: of(&self.tokens),
            targets: of(&self.targets),
            positions: self.positions.clone(),
            size: rows.len(),
        }
    }
}

/// Scores of `logits` (tokens (b, t) and positions (m) to (b, m, vocabulary)) over batches, and the fraction of
/// sequences in which every token has the highest score.
pub(super) fn evaluate(
    batches: &[TokenBatch],
    logits: impl Fn(&Tensor, &Tensor) -> candle_core::Result<Tensor>,
) -> Result<(Scores, f64)> {
    let mut tally = Tally::default();
    let (mut exact, mut sequences) = (0, 0);
    for batch in batches {
        let m = batch.positions.len();
        let positions = Tensor::from_slice(&batch.positions, m, &Device::Cpu)?;
        let z = logits(&batch.input()?, &positions)?.flatten_to(1)?;
        let z = z.to_vec2::<f32>()?;
        for (z, targets) in z.chunks(m).zip(batch.targets.chunks(m)) {
            let mut right = true;
            for (z, &target) in z.iter().zip(targets) {
                right &= tally.add(z, target)?;
            }
            exact += usize::from(right);
            sequences += 1;
        }
    }
    let exact = exact as f64 / sequences.max(1) as f64;
    Ok((tally.scores(&Alone), exact))
}

#[cfg(test)]
#[path = "task_tests.rs"]
mod tests;
