//! Multi-query associative recall: pairs of a key and a value, and the keys again, in another order.

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{FIRST_SYMBOL, Sequence, different};

/// Every key is given once and asked for once. Values are other symbols than keys, and may repeat. Which
/// key is asked for next cannot be known: only values and the end count.
pub(super) fn draw(pairs: usize, symbols: usize, rng: &mut ChaCha8Rng) -> Sequence {
    let values = FIRST_SYMBOL + symbols as u32;
    let keys = different(pairs, symbols, rng);
    let pair = |key| [key, values + rng.random_range(0..symbols as u32)];
    let mut known: Vec<[u32; 2]> = keys.into_iter().map(pair).collect();
    let question = known.concat();
    known.shuffle(rng);
    let mut sequence = Sequence::new(&question, &known.concat());
    let first = sequence.answers[0];
    let last = sequence.tokens.len() - 1;
    let counts = |at: &usize| (at - first) % 2 == 1 || *at == last;
    sequence.answers.retain(counts);
    sequence
}
