//! A plan in words.

use super::rates::Rates;
use super::{Frame, LevelPlan, Time};
use crate::ancestor::{Ancestor, AncestorOutput};
use std::fmt::Write as _;
use wave_run::data::Data;
use wave_run::forecast;

/// The plan in a few lines.
pub(super) fn describe(
    frame: &Frame,
    levels: &[LevelPlan],
    time: &Time,
    rates: &Rates,
    (data, ancestor, output): (&Data, Option<&Ancestor>, AncestorOutput),
    minutes: f64,
) -> String {
    let mut text = String::new();
    let mut line = |name: &str, rest: String| _ = writeln!(text, "{name:<10} {rest}");
    if let Some(ancestor) = ancestor {
        let teaches = match output {
            AncestorOutput::Scores => "class scores",
            AncestorOutput::Features => "features",
        };
        line(
            "ancestor",
            format!("{}; its {teaches}", ancestor.describe()),
        );
    }
    line(
        "data",
        format!(
            "{}: {} images, {} to test on",
            data.spec,
            time.images,
            data.tests.indices.len()
        ),
    );
    let labels = data.train.class_names().len();
    if labels > 0 && ancestor.is_some_and(|a| a.has_other_classes(output, labels)) {
        line(
            "labels",
            format!(
                "not used: the data has {labels} classes, the ancestor {}",
                data.class_names.len()
            ),
        );
    }
    let shape = &rates.shape;
    let (least, most) = (frame.sizes.least, last_size(levels));
    line(
        "models",
        format!(
            "{} x {} to {} x {}, {} x {} pixels in patches of {}, heads of {}",
            least.0,
            least.1,
            most.0,
            most.1,
            shape.image_size,
            shape.image_size,
            shape.patch,
            shape.head_width()
        ),
    );
    if most != frame.sizes.most {
        let wanted = frame.sizes.most;
        line(
            "",
            format!(
                "{} x {} would get too few steps; give more --minutes for it",
                wanted.0, wanted.1
            ),
        );
    }
    line("measured", rates.words(time.batch as f64));
    let clock = |seconds: f64| forecast::duration(seconds);
    if rates.ancestor_in_steps {
        let why =
            "by the ancestor in every step: they fill the memory; --cache DIR keeps them on disk";
        line("outputs", why.into());
    } else if time.ancestor > 0.0 {
        line(
            "outputs",
            format!("{} for the ancestor's outputs", clock(time.ancestor)),
        );
    }
    let mut sum = time.ancestor + time.tests;
    for (at, level) in levels.iter().enumerate() {
        let seconds = level.epochs * time.images * level.cost(rates, time.batch as f64);
        sum += seconds;
        line(
            &format!("level {at}"),
            format!(
                "{}: {:.1} epochs at {:.1e}, {}",
                sizes_in_words(level.depths, &level.widths),
                level.epochs,
                level.lr,
                clock(seconds)
            ),
        );
    }
    if time.tests > 0.0 {
        line("tests", clock(time.tests));
    }
    line(
        "in all",
        format!("{} of {}", clock(sum), clock(60.0 * minutes)),
    );
    if let Some(last) = levels.last() {
        let twice = match most == frame.sizes.most {
            true => format!("{:.1} epochs in the last level", 2.0 * last.epochs),
            false => "larger models, or twice the epochs".to_owned(),
        };
        line("twice that", twice);
    }
    text
}

/// The largest size that trains.
pub(super) fn last_size(levels: &[LevelPlan]) -> (usize, usize) {
    let depth = levels.iter().map(|l| l.depths.1).max().unwrap_or(0);
    let width = levels
        .iter()
        .filter_map(|l| l.widths.last().copied())
        .max()
        .unwrap_or(0);
    (depth, width)
}

/// Depths and widths, such as "2 to 12 layers of width 64, 96".
pub(in crate::condense) fn sizes_in_words(depths: (usize, usize), widths: &[usize]) -> String {
    let widths: Vec<String> = widths.iter().map(usize::to_string).collect();
    let depths = match depths {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    format!("{depths} layers of width {}", widths.join(", "))
}
