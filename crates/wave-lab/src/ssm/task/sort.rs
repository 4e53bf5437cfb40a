//! Sorting different symbols.

use rand_chacha::ChaCha8Rng;

use super::{Sequence, different};

pub(super) fn draw(length: usize, symbols: usize, rng: &mut ChaCha8Rng) -> Sequence {
    let string = different(length, symbols, rng);
    let mut answer = string.clone();
    answer.sort_unstable();
    Sequence::new(&string, &answer)
}
