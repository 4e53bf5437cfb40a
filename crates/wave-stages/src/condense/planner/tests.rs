use super::rates::Measured;
use super::words::last_size;
use super::*;
use wave_models::vit::VitShape;
use wave_run::settings::Auxiliary;

fn settings(image_size: usize) -> Condense {
    Condense {
        auxiliary: Auxiliary {
            image_size: Some(image_size),
            patch: Some(patch(image_size).unwrap()),
            ..Auxiliary::default()
        },
        ..Condense::default()
    }
}

fn frame(settings: &mut Condense, sizes: &str) -> Frame {
    Frame::new(settings, sizes.parse().unwrap()).unwrap()
}

/// The rates of a machine with this many operations per second and seconds per update of a million weights.
fn of_speed(largest: &VitShape, speed: f64, update: f64) -> Rates {
    let of = |(depth, width): (usize, usize)| {
        let multiply_adds = largest.with_size(depth, width).multiply_adds() as f64;
        Measured {
            depth,
            width,
            multiply_adds,
            image: 6.0 * multiply_adds / speed,
            update: update * (12 * depth * width * width) as f64 / 1e6,
        }
    };
    Rates {
        shape: largest.clone(),
        measured: [(2, 64), (largest.depth, largest.width)].map(of).into(),
        ancestor: 0.0,
        ancestor_in_steps: false,
        loading: 0.0,
        ahead: false,
    }
}

/// Rates of a machine of 50 GFLOP/s.
fn rates(settings: &Condense, frame: &Frame) -> Rates {
    let plan = frame.plan(settings, frame.sizes.most).unwrap().on(3, 10);
    of_speed(&plan.largest(), 50e9, 1e-4)
}

fn time(minutes: f64, images: usize) -> Time {
    Time {
        images: images as f64,
        batch: 128,
        ancestor: 0.0,
        tests: 0.0,
        training: 60.0 * minutes,
    }
}

#[test]
fn patches_leave_49_to_256_tokens_and_as_few_as_can_be() {
    let tokens = |side: usize| (side / patch(side).unwrap()).pow(2);
    assert_eq!(
        [28, 32, 64, 96, 224].map(patch).map(Result::unwrap),
        [4, 4, 8, 12, 32]
    );
    for side in (7..400).filter(|side| side % 8 == 0 || side % 7 == 0) {
        assert!((49..=256).contains(&tokens(side)), "{side}");
    }
    let refused = patch(227).unwrap_err().to_string();
    assert!(refused.contains("auxiliary.patch"), "{refused}");
}

#[test]
fn widths_between_are_multiples_of_the_head_width() {
    let widths = |sizes: &str| frame(&mut settings(32), sizes).widths;
    assert_eq!(widths("2x64..12x192"), [64, 96, 128, 192]);
    assert_eq!(widths("6x192..12x576"), [192, 256, 384, 512, 576]);
    assert_eq!(widths("3x160..3x160"), [160]);
    assert_eq!(widths("2x48..4x144"), [48, 96, 144]); // heads of 24
    assert_eq!(widths("1x16..2x32"), [16, 32]);
    let wrong = Frame::new(&mut settings(32), "2x50..4x64".parse().unwrap());
    assert!(wrong.err().unwrap().to_string().contains("head width 32"));
}

#[test]
fn more_time_trains_larger_models_and_levels_share_it() {
    let mut given = settings(32);
    let frame = frame(&mut given, "2x64..12x192");
    let rates = rates(&given, &frame);
    let mut last = 0;
    for minutes in [10.0, 30.0, 70.0, 240.0] {
        let time = time(minutes, 50_000);
        let levels = frame.levels(&given, &time, &rates).unwrap();
        let seconds: f64 = levels
            .iter()
            .map(|level| level.epochs * time.images * rates.of_sizes(&level.sizes, 128.0))
            .sum();
        assert!(
            (seconds / time.training - 1.0).abs() < 1e-6,
            "{minutes}: {seconds}"
        );
        assert!(
            levels.iter().all(|level| level.epochs >= LEAST_EPOCHS),
            "{levels:?}"
        );
        let (depth, width) = last_size(&levels);
        assert!(
            depth * width * width >= last,
            "{minutes}: {depth} x {width}"
        );
        last = depth * width * width;
    }
    assert_eq!(last, 12 * 192 * 192);
    // Too little time for one epoch of the smallest.
    let refused = frame
        .levels(&given, &time(0.05, 50_000), &rates)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("--minutes"), "{refused}");
}

/// Outputs that are too large to keep cost one pass of the ancestor per image in each step.
#[test]
fn an_ancestor_in_every_step_costs_time() {
    let mut given = settings(32);
    let frame = frame(&mut given, "2x64..4x96");
    let mut rates = rates(&given, &frame);
    rates.ancestor = 1e-3;
    let size = (2, 64);
    let before = rates.step(size, size, 128.0);
    rates.ancestor_in_steps = true;
    assert!((rates.step(size, size, 128.0) - before - 0.128).abs() < 1e-9);
}

#[test]
fn versions_that_are_shifted_anew_are_few() {
    assert_eq!([0.3, 1.9, 40.0].map(|n| views(n, true)), [1, 1, 2]);
    assert_eq!([0.3, 1.9, 40.0].map(|n| views(n, false)), [1, 1, 16]);
}

#[test]
fn one_size_is_one_level() {
    let mut given = settings(32);
    let frame = frame(&mut given, "4x96..4x96");
    let rates = rates(&given, &frame);
    let levels = frame.levels(&given, &time(60.0, 50_000), &rates).unwrap();
    assert_eq!(levels.len(), 1);
    assert_eq!(
        (levels[0].sizes.depths, &levels[0].sizes.widths[..]),
        ((4, 4), &[96][..])
    );
}

/// A level's table holds the settings of its plan, and given settings are kept.
#[test]
fn the_levels_are_written_as_settings() {
    let mut given = settings(32);
    given.training.optimisation.lr = Some(3e-3);
    let frame = frame(&mut given, "2x64..12x128");
    let rates = rates(&given, &frame);
    let levels = frame.levels(&given, &time(70.0, 50_000), &rates).unwrap();
    write_levels(&mut given, &frame, &levels);
    let written = super::super::growth::levels(&given).unwrap();
    assert_eq!(written.len(), levels.len());
    for (settings, level) in written.iter().zip(&levels) {
        assert_eq!(settings.widths.as_ref(), Some(&level.sizes.widths));
        assert_eq!(settings.training.optimisation.lr, Some(3e-3));
        let epochs = settings.training.optimisation.epochs.unwrap();
        assert!(
            (epochs - level.epochs).abs() < 0.01,
            "{epochs} {}",
            level.epochs
        );
    }
    super::super::plans(&given).unwrap();
}

#[test]
fn a_vit_of_the_largest_size_is_the_auxiliary() {
    let shape = VitShape {
        image_size: 96,
        patch: 12,
        depth: 4,
        width: 96,
        heads: 3,
        classes: 10,
        ..VitShape::default()
    };
    let start = |given: Condense, shape: &VitShape| {
        let mut settings = given;
        own_start(&mut settings, shape).unwrap();
        settings.template_start.is_some().then_some(settings)
    };
    let of_sizes = |sizes: &str| Condense {
        sizes: Some(sizes.parse().unwrap()),
        ..Condense::default()
    };
    let filled = start(Condense::default(), &shape).unwrap();
    assert_eq!(filled.sizes.unwrap().to_string(), "2x64..4x96");
    assert_eq!(filled.auxiliary.patch, Some(12));
    assert_eq!(filled.auxiliary.class_token, Some(true));
    assert!(start(of_sizes("1x32..4x96"), &shape).is_some());
    assert!(start(of_sizes("2x64..6x96"), &shape).is_none());
    let mut other = of_sizes("2x64..4x96");
    other.auxiliary.patch = Some(8);
    assert!(start(other, &shape).is_none());
    // Larger than the usual sizes, with a head width that does not divide the usual ones, with another token.
    let of = |depth, width, heads| VitShape {
        depth,
        width,
        heads,
        ..shape.clone()
    };
    assert!(start(Condense::default(), &of(12, 384, 6)).is_none());
    let filled = start(Condense::default(), &of(12, 144, 3)).unwrap();
    assert_eq!(filled.sizes.unwrap().to_string(), "2x96..12x144");
    let distilled = VitShape {
        distilled: true,
        ..shape.clone()
    };
    assert!(start(Condense::default(), &distilled).is_none());

    // No size is dropped, and templates are enough for the ancestor's layers.
    let mut given = Condense {
        template_start: Some(TemplateStart::Ancestor),
        ..settings(32)
    };
    let frame = frame(&mut given, "2x64..12x192");
    let rates = rates(&given, &frame);
    let levels = frame.levels(&given, &time(4.0, 50_000), &rates).unwrap();
    assert_eq!((levels.len(), last_size(&levels)), (1, (12, 192)));
    assert_eq!(frame.templates(&given, (12, 192)), [1080, 360, 1440, 1440]);
}
