//! Copying, in order or backwards.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{FIRST_SYMBOL, Sequence};

/// A string of symbols, each as likely as the others, and again.
pub(super) fn draw(
    length: usize,
    symbols: usize,
    backwards: bool,
    rng: &mut ChaCha8Rng,
) -> Sequence {
    let symbol = |_| FIRST_SYMBOL + rng.random_range(0..symbols as u32);
    let string: Vec<u32> = (0..length).map(symbol).collect();
    let mut answer = string.clone();
    if backwards {
        answer.reverse();
    }
    Sequence::new(&string, &answer)
}
