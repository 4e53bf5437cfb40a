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

#[test]
fn what_does_not_fit_is_told_with_what_would() {
    let step = Step::of_images(MEMORY, 64, 1, &Context::default()); // 740 bytes
    assert_eq!(step.beyond(740), None);
    let said = step.beyond(500).unwrap();
    for part in [
        "batch = 64",
        "740 B",
        "500 B",
        "--batch 32",
        "--accumulate 2",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let said = step.beyond(130).unwrap();
    assert!(
        said.contains("--batch 2,") && said.contains("--accumulate 32"),
        "{said}"
    );
    let said = step.beyond(105).unwrap();
    assert!(said.contains("not even one image"), "{said}");
    // Parts already set are kept, and pairs stay together.
    let step = Step {
        in_pairs: true,
        parts: 2,
        ..step
    };
    let said = step.beyond(200).unwrap();
    assert!(
        said.contains("--batch 16,") && said.contains("--accumulate 8"),
        "{said}"
    );
}

/// Side, patch, depth and width of a network of three channels and eight classes.
type Sizes = (usize, usize, usize, usize);

fn convmixer((image_size, patch, depth, width): Sizes) -> Network {
    Network::ConvMixer(ConvMixerShape {
        image_size,
        channels: 3,
        patch,
        depth,
        width,
        kernel: 5,
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

/// Peak resident memory of `wave finetune MODEL --data shapes --train-limit 200 --test-limit 1 --steps
/// 3 --threads 2`, in MiB, at two batches. (Measured with `wait4`; x86-64, mimalloc.)
#[test]
fn forecasts_are_near_what_was_measured() {
    let measured = [
        (convmixer((64, 2, 4, 64)), [(8, 133), (24, 257)]),
        (convmixer((64, 2, 2, 128)), [(8, 155), (24, 323)]),
        (convmixer((64, 2, 8, 32)), [(8, 131), (24, 261)]),
        (convnext((64, 2, 4, 64), 4.0), [(8, 247), (24, 551)]),
        (convnext((64, 2, 2, 64), 2.0), [(8, 149), (24, 293)]),
        (
            Network::Vit(vit((96, 8, 4, 128), 4)),
            [(16, 173), (64, 360)],
        ),
        (Network::Vit(vit((64, 4, 12, 64), 4)), [(8, 174), (32, 385)]),
        (
            Network::Vit(vit((32, 16, 4, 768), 12)),
            [(2, 1123), (4, 1129)],
        ),
        (convmixer_of_few_places(), [(2, 673), (2, 673)]),
    ];
    for (network, peaks) in measured {
        let memory = Memory::of_network(&network, Mode::default());
        let memory = Memory {
            tested: 0, // one image
            ..memory
        };
        for (batch, mebibytes) in peaks {
            let foreseen = memory.of_step(batch, batch) as f64 / f64::from(1 << 20);
            let ratio = foreseen / f64::from(mebibytes);
            assert!(
                (0.7..1.6).contains(&ratio),
                "{network:?}, {batch}: {foreseen} MiB"
            );
        }
    }
}

/// A ConvMixer whose weights take most of its memory.
fn convmixer_of_few_places() -> Network {
    match convmixer((32, 16, 4, 2048)) {
        Network::ConvMixer(shape) => Network::ConvMixer(ConvMixerShape { kernel: 3, ..shape }),
        other => other,
    }
}

/// As above, of `wave condense` (4 layers of width 768, two images of 32 x 32 pixels) with templates of
/// side 768 and 192, and of `wave expand` from each.
#[test]
fn composed_weights_are_foreseen_too() {
    let shape = vit((32, 16, 4, 768), 12);
    let outer = 768 * (3 * 256 + 4 + 2 + 8 + 4 * 13);
    let bank = |t: usize, n: [usize; 4]| {
        let blocks = 768 / t;
        let of_part = [3, 1, 4, 4]
            .iter()
            .zip(n)
            .map(|(m, n)| n * m * blocks * blocks);
        4 * of_part.sum::<usize>()
    };
    let large = bank(768, [6, 2, 8, 8]);
    let small = bank(192, [12, 4, 16, 16]);
    for (values, mebibytes) in [
        (24 * 768 * 768 + large + outer, 875),
        (48 * 192 * 192 + small + outer, 490),
        (large, 495),
        (small, 453),
    ] {
        let memory = Memory::of_composed(&shape, Mode::default(), values);
        let foreseen = memory.of_step(2, 2) as f64 / f64::from(1 << 20);
        let ratio = foreseen / f64::from(mebibytes);
        assert!((0.7..1.6).contains(&ratio), "{values}: {foreseen} MiB");
    }
}

#[test]
fn sizes_have_three_digits() {
    for (n, text) in [
        (0.0, "0.00 B"),
        (999.0, "999 B"),
        (1234.0, "1.23 kB"),
        (24.06e9, "24.1 GB"),
        (610.4e6, "610 MB"),
        (5.8e15, "5.80 PB"),
    ] {
        assert_eq!(bytes(n), text);
    }
}
