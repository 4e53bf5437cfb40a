use super::rates::Measured;
use super::words::last_size;
use super::*;
use wave_models::vit::VitShape;
use wave_run::settings::{Auxiliary, ScalerStart};

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

/// Rates of a machine of 50 GFLOP/s, with 0.1 ms per update of a million weights.
fn rates(settings: &Condense, frame: &Frame) -> Rates {
    let plan = frame.plan(settings, frame.sizes.most).unwrap().on(3, 10);
    let largest = plan.largest();
    let of = |(depth, width): (usize, usize)| {
        let multiply_adds = largest.with_size(depth, width).multiply_adds() as f64;
        Measured {
            depth,
            width,
            multiply_adds,
            image: 6.0 * multiply_adds / 50e9,
            update: 1e-4 * (12 * depth * width * width) as f64 / 1e6,
        }
    };
    Rates {
        measured: [(2, 64), (largest.depth, largest.width)].map(of).into(),
        shape: largest,
        ancestor: 0.0,
        ancestor_in_steps: false,
        loading: 0.0,
        ahead: false,
    }
}

fn time(minutes: f64) -> Time {
    Time {
        images: 50_000.0,
        batch: 128,
        ancestor: 0.0,
        tests: 0.0,
        training: 60.0 * minutes,
        cached: false,
    }
}

/// The frame of these sizes, and the levels for these minutes.
fn planned(settings: &mut Condense, sizes: &str, minutes: f64) -> (Frame, Vec<LevelPlan>) {
    let frame = frame(settings, sizes);
    let rates = rates(settings, &frame);
    let levels = frame.levels(settings, &time(minutes), &rates).unwrap();
    (frame, levels)
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
fn a_size_is_tested_once() {
    let mut given = settings(32);
    for (sizes, tested) in [
        ("3x64..3x64", &[(3, 64)][..]),
        ("2x64..3x96", &[(2, 64), (3, 64), (2, 96), (3, 96)]),
        ("1x64..9x64", &[(1, 64), (3, 64), (5, 64), (7, 64), (9, 64)]),
    ] {
        let frame = frame(&mut given, sizes);
        let rates = rates(&given, &frame);
        let expected: f64 = tested.iter().map(|&(d, w)| rates.forward(d, w)).sum();
        assert_eq!(frame.seconds_of_test(&rates), expected, "{sizes}");
    }
}

#[test]
fn an_update_takes_time_in_proportion_to_its_weights() {
    let mut given = settings(32);
    let frame = frame(&mut given, "2x64..12x192");
    let rates = rates(&given, &frame);
    let step = |reach| rates.step((2, 64), reach, 128.0);
    let per_weight = 1e-4 * 12.0 / 1e6;
    for (depth, width) in [(3, 96), (4, 128), (12, 192)] {
        let more = (depth * width * width - 2 * 64 * 64) as f64 * per_weight;
        let found = step((depth, width)) - step((2, 64));
        assert!((found - more).abs() < 1e-9, "{depth} x {width}: {found}");
    }
}

#[test]
fn more_time_trains_larger_models_and_levels_share_it() {
    let mut given = settings(32);
    let frame = frame(&mut given, "2x64..12x192");
    let rates = rates(&given, &frame);
    let mut last = 0;
    for minutes in [10.0, 30.0, 70.0, 240.0] {
        let time = time(minutes);
        let levels = frame.levels(&given, &time, &rates).unwrap();
        let seconds: f64 = levels
            .iter()
            .map(|level| level.epochs * time.images * rates.of_sizes(&level.sizes, 128.0))
            .sum();
        let share = seconds / time.training;
        assert!((share - 1.0).abs() < 1e-6, "{minutes}: {share}");
        // Half an epoch is enough for the last of two levels.
        let least = |at| match (levels.len(), at) {
            (2, 1) => LAST_EPOCHS,
            _ => LEAST_EPOCHS,
        };
        let mut epochs = levels.iter().map(|level| level.epochs).enumerate();
        assert!(epochs.all(|(at, epochs)| epochs >= least(at)), "{levels:?}");
        let (depth, width) = last_size(&levels);
        let work = depth * width * width;
        assert!(work >= last, "{minutes}: {depth} x {width}");
        last = work;
    }
    assert_eq!(last, 12 * 192 * 192);
    // Too little time for one epoch of the smallest.
    let refused = frame.levels(&given, &time(0.05), &rates).unwrap_err();
    let refused = refused.to_string();
    assert!(refused.contains("--minutes"), "{refused}");
    let (_, one) = planned(&mut settings(32), "4x96..4x96", 60.0);
    assert_eq!(one.len(), 1);
    let sizes = &one[0].sizes;
    assert_eq!((sizes.depths, &sizes.widths[..]), ((4, 4), &[96][..]));
}

#[test]
fn a_short_plan_ends_with_a_few_steps_of_larger_sizes() {
    let (_, levels) = planned(&mut settings(32), "2x64..12x128", 25.0);
    let largest: Vec<_> = levels.iter().map(|level| level.sizes.largest()).collect();
    assert!(largest.len() == 2 && largest[0].0 < 12, "{levels:?}");
    assert_eq!(largest[1], (12, 128));
    assert!(levels[0].epochs > LEAST_EPOCHS && levels[1].epochs >= LAST_EPOCHS);
    assert!(levels[0].lr > levels[1].lr);
    // In much less time the last level would hold few more sizes.
    let (_, levels) = planned(&mut settings(32), "2x64..12x192", 3.0);
    assert_eq!(levels.len(), 1, "{levels:?}");
    // Given templates are those of a single level.
    let mut given = settings(32);
    given.templates = Some(vec![48, 16, 64, 64]);
    assert_eq!(planned(&mut given, "2x64..12x128", 25.0).1.len(), 1);
}

#[test]
fn the_last_of_levels_reaches_the_largest_size() {
    let (_, levels) = planned(&mut settings(32), "2x64..12x128", 45.0);
    assert_eq!((levels.len(), last_size(&levels)), (3, (12, 128)));
}

/// A last level that would add no size in its share of the time is left out, and the one before keeps its depth.
#[test]
fn every_level_adds_sizes() {
    for (sizes, head_width, minutes, last) in [
        // All sizes, with the third width, would train for less than half an epoch.
        ("2x8..4x64", 8, 1.5, (4, 32)),
        // So would the second level, which is the last one: its single depth is no range to shrink.
        ("3x160..6x1280", 160, 400.0, (6, 1280)),
    ] {
        let mut given = settings(32);
        given.auxiliary.head_width = Some(head_width);
        let (frame, levels) = planned(&mut given, sizes, minutes);
        assert_eq!((levels.len(), last_size(&levels)), (2, last), "{levels:?}");
        let depths = |level: &LevelPlan| level.sizes.depths;
        assert!(levels.iter().map(depths).all(|(least, most)| least <= most));
        write_levels(&mut given, &frame, &levels);
        super::super::plans(&given).unwrap();
    }
}

/// A level's table holds the settings of its plan, and given settings are kept.
#[test]
fn the_levels_are_written_as_settings() {
    let mut given = settings(32);
    given.training.optimisation.lr = Some(3e-3);
    let (frame, levels) = planned(&mut given, "2x64..12x128", 70.0);
    write_levels(&mut given, &frame, &levels);
    let written = super::super::growth::levels(&given).unwrap();
    assert_eq!(written.len(), levels.len());
    for (settings, level) in written.iter().zip(&levels) {
        assert_eq!(settings.widths.as_ref(), Some(&level.sizes.widths));
        assert_eq!(settings.training.optimisation.lr, Some(3e-3));
        let epochs = settings.training.optimisation.epochs.unwrap();
        let error = epochs - level.epochs;
        assert!(error.abs() < 0.01, "{epochs}: {error}");
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
    let start = |sizes: Option<&str>, patch, shape: &VitShape| {
        let mut settings = Condense {
            sizes: sizes.map(|sizes: &str| sizes.parse().unwrap()),
            ..Condense::default()
        };
        settings.auxiliary.patch = patch;
        own_start(&mut settings, shape).unwrap();
        settings.template_start.is_some().then_some(settings)
    };
    let filled = start(None, None, &shape).unwrap();
    assert_eq!(filled.sizes.unwrap().to_string(), "2x64..4x96");
    assert_eq!(filled.auxiliary.patch, Some(12));
    assert_eq!(filled.auxiliary.class_token, Some(true));
    assert!(start(Some("1x32..4x96"), None, &shape).is_some());
    assert!(start(Some("2x64..6x96"), None, &shape).is_none());
    assert!(start(Some("2x64..4x96"), Some(8), &shape).is_none());
    // Larger than the usual sizes, with a head width that does not divide the usual ones, with another token.
    let mut other = shape.clone();
    (other.depth, other.width, other.heads) = (12, 384, 6);
    assert!(start(None, None, &other).is_none());
    (other.width, other.heads) = (144, 3);
    let filled = start(None, None, &other).unwrap();
    assert_eq!(filled.sizes.unwrap().to_string(), "2x96..12x144");
    let mut distilled = shape;
    distilled.distilled = true;
    assert!(start(None, None, &distilled).is_none());

    // No size is dropped, and templates are enough for the ancestor's layers.
    let mut given = Condense {
        template_start: Some(TemplateStart::Ancestor),
        ..settings(32)
    };
    let (frame, levels) = planned(&mut given, "2x64..12x192", 4.0);
    assert_eq!((levels.len(), last_size(&levels)), (1, (12, 192)));
    assert_eq!(frame.templates(&given, (12, 192)), [1080, 360, 1440, 1440]);
}

/// The ancestor's weights bring scalers with them, which would replace those that are asked for.
#[test]
fn a_given_start_of_scalers_leaves_the_ancestors_weights_alone() {
    let start = |template_start| {
        let mut settings = Condense {
            scaler_start: Some(ScalerStart::Telg),
            template_start,
            ..Condense::default()
        };
        own_start(&mut settings, &VitShape::default().with_size(4, 128)).unwrap();
        (settings.template_start, settings.auxiliary.width)
    };
    let own = Some(TemplateStart::Ancestor);
    assert_eq!(start(None), (None, None));
    // Both together are refused where settings are checked.
    assert_eq!(start(own), (own, Some(128)));
}
