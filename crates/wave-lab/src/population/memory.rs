//! Memory of training, foreseen.

use super::network::PopulationShape;
use wave_run::forecast::{Memory, isotropic, places};

/// Memory to train a population; an image belongs to one network.
pub(super) fn memory(shape: &PopulationShape) -> Memory {
    let pixels = shape.channels * shape.image_size * shape.image_size;
    let layers = isotropic(shape.depth, shape.width, shape.hidden);
    let kept = places(shape.image_size, shape.patch) * layers + pixels as f64;
    Memory::of_parameters(&shape.parameters(), pixels, kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth of resident memory with the batch: KiB of an image of one network.
    #[test]
    fn populations_are_foreseen_too() {
        for (networks, patch, depth, kibibytes) in [(50, 7, 2, 36), (20, 4, 4, 173)] {
            let shape = PopulationShape {
                networks,
                image_size: 28,
                channels: 1,
                patch,
                depth,
                width: 16,
                kernel: 3,
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
