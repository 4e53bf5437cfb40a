//! Memory of training, foreseen.

use super::network::{Mixer, SequenceShape};
use wave_run::forecast::Memory;

/// Memory to train a sequence network on sequences of so many tokens.
///
/// The leading terms count what each operator keeps for its gradient. The rest is fitted to measured
/// peaks of resident memory, some of which are in the test.
pub(super) fn memory(shape: &SequenceShape, tokens: usize) -> Memory {
    let SequenceShape {
        width,
        inner,
        state,
        heads,
        attention_heads,
        hidden,
        vocabulary,
        ..
    } = *shape;
    let [t, d, e, n, h, hidden, v] =
        [tokens, width, inner, state, heads, hidden, vocabulary].map(|v| v as f64);
    let layer = |mixer: &Mixer| match mixer {
        Mixer::Mamba2 => 26.0 * h * t * t + 4.3 * t * (2.0 * e + 2.0 * n + h),
        Mixer::Mamba => t * e * (n + 18.0),
        Mixer::Attention => 15.0 * attention_heads as f64 * t * t + 8.0 * t * d,
        Mixer::LinearAttention => 15.0 * t * t + t * (8.0 * d + 6.0 * n),
        Mixer::Mlp => t * (2.0 * hidden + d),
    };
    let kept = shape.mixers.iter().map(layer).sum::<f64>() + t * (4.0 * d + 3.0 * v);
    let loaded = 0; // made as they are needed
    Memory::of_parameters(&shape.parameters(), loaded, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth of resident memory with the batch, of copied sequences: KiB of each.
    #[test]
    fn sequences_are_foreseen_too() {
        let sized = |mixer, depth, width, state, heads| SequenceShape {
            state,
            heads,
            ..SequenceShape::new(10, depth, width, mixer)
        };
        let transformer = |blocks, width, attention_heads| SequenceShape {
            attention_heads,
            ..SequenceShape::transformer(10, blocks, width)
        };
        for (shape, tokens, kibibytes) in [
            (sized(Mixer::Mamba2, 2, 32, 16, 1), 129, 4128),
            (sized(Mixer::Mamba2, 4, 64, 128, 2), 65, 5728),
            (sized(Mixer::Mamba, 2, 32, 16, 1), 129, 2240),
            (sized(Mixer::Mamba, 4, 64, 16, 1), 65, 4331),
            (sized(Mixer::LinearAttention, 2, 32, 128, 1), 129, 2752),
            (transformer(2, 32, 4), 129, 8256),
            (transformer(4, 64, 4), 65, 4917),
        ] {
            let foreseen = memory(&shape, tokens).image as f64 / 1024.0;
            let ratio = foreseen / f64::from(kibibytes);
            assert!((0.7..1.6).contains(&ratio), "{shape:?}: {foreseen} KiB");
        }
    }
}
