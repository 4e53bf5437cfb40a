use super::*;
use wave_models::convmixer::ConvMixerShape;
use wave_models::convnext::ConvNextShape;
use wave_models::{Activation, Dilations};

const MEMORY: Memory = Memory {
    fixed: 100,
    loaded: 0,
    image: 10,
    tested: 0,
};

#[test]
fn recomputing_takes_less() {
    let network = Network::Vit(VitShape::default());
    let memory = |recompute| {
        let mode = Mode {
            recompute,
            ..Mode::default()
        };
        Memory::of_network(&network, mode)
    };
    assert!(memory(true).image * 2 < memory(false).image);
    assert_eq!(memory(true).fixed, memory(false).fixed);
}

/// Bytes beyond 64 bits are as many as there can be.
#[test]
fn no_network_is_too_large_for_a_forecast() {
    let shape = vit((1 << 20, 1, 1 << 20, 1 << 20), 1);
    let (network, mode) = (Network::Vit(shape.clone()), Mode::default());
    for memory in [
        Memory::of_network(&network, mode),
        Memory::of_composed(&shape, mode, usize::MAX),
        Memory::of_passes(&network).beside(&network),
    ] {
        assert_eq!(memory.fixed, u64::MAX);
        assert_eq!(memory.of_step(2, 2), u64::MAX);
    }
}

#[test]
fn what_does_not_fit_is_told_with_what_would() {
    let check = |step: &Step, free: u64, parts: &[&str]| {
        let said = step.beyond(free).unwrap();
        for part in parts {
            assert!(said.contains(part), "{said}");
        }
    };
    let step = Step::of_images(MEMORY, 64, 1, &Context::default()); // 740 bytes
    assert_eq!(step.beyond(740), None);
    check(&step, 500, &["batch = 64", "740 B", "500 B"]);
    check(&step, 500, &["--batch 32", "--accumulate 2"]);
    check(&step, 130, &["--batch 2,", "--accumulate 32"]);
    check(&step, 105, &["not even one image fits"]);
    // Parts already set are kept, and pairs stay together.
    let step = Step {
        in_pairs: true,
        parts: 2,
        ..step
    };
    check(&step, 200, &["--batch 16,", "--accumulate 8"]);
}

/// Side, patch, depth and width of a network of three channels and eight classes.
type Sizes = (usize, usize, usize, usize);

fn convmixer((image_size, patch, depth, width): Sizes, kernel: usize) -> Network {
    Network::ConvMixer(ConvMixerShape {
        image_size,
        channels: 3,
        patch,
        depth,
        width,
        kernel,
        classes: 8,
        activation: Activation::Gelu,
        dilations: Dilations::default(),
    })
}

fn convnext((image_size, patch, depth, width): Sizes, mlp_ratio: f64) -> Network {
    Network::ConvNext(ConvNextShape {
        image_size,
        channels: 3,
        patch,
        depth,
        stages: None,
        width,
        kernel: 5,
        mlp_ratio,
        classes: 8,
    })
}

fn vit((image_size, patch, depth, width): Sizes, heads: usize) -> VitShape {
    VitShape {
        image_size,
        channels: 3,
        patch,
        depth,
        width,
        heads,
        classes: 8,
        class_token: false,
        ..VitShape::default()
    }
}

#[track_caller]
fn check_near(memory: Memory, batch: usize, mebibytes: u32) {
    let foreseen = memory.of_step(batch, batch) as f64 / f64::from(1 << 20);
    let ratio = foreseen / f64::from(mebibytes);
    assert!((0.7..1.6).contains(&ratio), "{memory:?}: {foreseen} MiB");
}

/// Peak resident memory of `wave finetune MODEL --data shapes --train-limit 200 --test-limit 1 --steps
/// 3 --threads 2`, in MiB, at two batches. (Measured with `wait4`; x86-64, mimalloc.)
#[test]
fn forecasts_are_near_what_was_measured() {
    let vit = |sizes, heads| Network::Vit(vit(sizes, heads));
    for (network, peaks) in [
        (convmixer((64, 2, 4, 64), 5), [(8, 133), (24, 257)]),
        (convmixer((64, 2, 2, 128), 5), [(8, 155), (24, 323)]),
        (convmixer((64, 2, 8, 32), 5), [(8, 131), (24, 261)]),
        (convnext((64, 2, 4, 64), 4.0), [(8, 247), (24, 551)]),
        (convnext((64, 2, 2, 64), 2.0), [(8, 149), (24, 293)]),
        (vit((96, 8, 4, 128), 4), [(16, 173), (64, 360)]),
        (vit((64, 4, 12, 64), 4), [(8, 174), (32, 385)]),
        (vit((32, 16, 4, 768), 12), [(2, 1123), (4, 1129)]),
        // Weights that take most of the memory.
        (convmixer((32, 16, 4, 2048), 3), [(2, 673), (2, 673)]),
    ] {
        let memory = Memory {
            tested: 0, // one image
            ..Memory::of_network(&network, Mode::default())
        };
        for (batch, mebibytes) in peaks {
            check_near(memory, batch, mebibytes);
        }
    }
}

/// As above, of `wave condense` (4 layers of width 768, two images of 32 x 32 pixels) with templates of
/// side 768 and 192, and of `wave expand` from each.
#[test]
fn composed_weights_are_foreseen_too() {
    let shape = vit((32, 16, 4, 768), 12);
    let outer = 768 * (3 * 256 + 4 + 2 + 8 + 4 * 13);
    let bank = |t: usize, n: [usize; 4]| {
        let of_part = [3, 1, 4, 4].iter().zip(n).map(|(m, n)| n * m);
        4 * of_part.sum::<usize>() * (768 / t).pow(2)
    };
    let large = bank(768, [6, 2, 8, 8]);
    let small = bank(192, [12, 4, 16, 16]);
    for (values, mebibytes) in [
        (24 * 768 * 768 + large + outer, 875),
        (48 * 192 * 192 + small + outer, 490),
        (large, 495),
        (small, 453),
    ] {
        check_near(
            Memory::of_composed(&shape, Mode::default(), values),
            2,
            mebibytes,
        );
    }
}

#[test]
fn sizes_have_three_digits() {
    let found = [0.0, 999.0, 1234.0, 24.06e9, 5.8e15].map(bytes);
    assert_eq!(found, ["0.00 B", "999 B", "1.23 kB", "24.1 GB", "5.80 PB"]);
}
