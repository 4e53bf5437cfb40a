//! Memory of training, foreseen.

use super::network::{Mixer, PopulationShape};
use wave_run::forecast::{Memory, isotropic, places};

/// Memory to train a population; an image belongs to one network.
pub(super) fn memory(shape: &PopulationShape) -> Memory {
    let pixels = shape.channels * shape.image_size * shape.image_size;
    let places = places(shape.image_size, shape.patch);
    let mut layers = isotropic(shape.depth, shape.width, shape.hidden);
    if let Mixer::Attention { heads } = shape.mixer {
        // What it keeps of a position: some 12 vectors, and 10 numbers for each position it looks at.
        let of_layer = 12.0 * shape.width as f64 + 10.0 * heads as f64 * places;
        layers += shape.depth as f64 * of_layer;
    }
    let kept = places * layers + pixels as f64;
    Memory::of_parameters(&shape.parameters(), pixels, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth of resident memory with the batch: KiB of an image of one network.
    #[test]
    fn populations_are_foreseen_too() {
        let convolution = Mixer::Convolution { kernel: 3 };
        let attention = Mixer::Attention { heads: 2 };
        for (networks, patch, depth, mixer, kibibytes) in [
            (50, 7, 2, convolution, 36),
            (20, 4, 4, convolution, 173),
            (50, 7, 4, attention, 180),
            (20, 4, 2, attention, 650),
        ] {
            let shape = PopulationShape {
                networks,
                image_size: 28,
                channels: 1,
                patch,
                depth,
                width: 16,
                mixer,
                hidden: 32,
                classes: 8,
            };
            let memory = memory(&shape);
            let foreseen = (memory.image + memory.loaded) as f64 / 1024.0;
            let ratio = foreseen / f64::from(kibibytes);
            assert!((0.7..1.6).contains(&ratio), "{shape:?}: {foreseen} KiB");
        }
    }
}
