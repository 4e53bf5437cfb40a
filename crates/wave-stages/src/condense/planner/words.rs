//! A plan in words.

use super::rates::Rates;
use super::{Frame, LevelPlan, MINUTES, Time, starts_from_ancestor};
use crate::ancestor::{Ancestor, AncestorOutput};
use wave_learngene::Sizes;
use wave_run::data::Data;
use wave_run::progress;
use wave_run::settings::Condense;

pub(super) fn describe(
    frame: &Frame,
    levels: &[LevelPlan],
    time: &Time,
    rates: &Rates,
    (data, ancestor, output): (&Data, Option<&Ancestor>, AncestorOutput),
    settings: &Condense,
) -> String {
    let mut text = String::new();
    if let Some(ancestor) = ancestor {
        let teaches = match output {
            AncestorOutput::Scores => "class scores",
            AncestorOutput::Features => "features",
        };
        let words = ancestor.describe();
        text += &format!("ancestor   {words}; teaches by its {teaches}\n");
    }
    let (spec, images, tests) = (&data.spec, time.images, data.tests.indices.len());
    text += &format!("data       {spec}: {images} training images, {tests} test images\n");
    let (labels, own) = (data.labels, data.class_names.len());
    if labels > 0 && ancestor.is_some_and(|a| a.has_other_classes(output, labels)) {
        text +=
            &format!("labels     not used: the data has {labels} classes, the ancestor {own}\n");
    }
    let shape = &rates.shape;
    let (side, patch, head) = (shape.image_size, shape.patch, shape.head_width());
    let size = |(depth, width): (usize, usize)| format!("{depth} x {width}");
    let [least, last, most] = [frame.sizes.least, last_size(levels), frame.sizes.most].map(size);
    text += &format!(
        "models     {least} to {last}, {side} x {side} pixels, patch size {patch}, head width {head}\n"
    );
    if last != most {
        text += &format!("           {most} would get too few steps; give more --minutes for it\n");
    }
    if starts_from_ancestor(settings) {
        text += "start      from the ancestor's own weights, at the largest size\n";
    }
    text += &format!("measured   {}\n", rates.words(time.batch as f64));
    let clock = progress::duration;
    if rates.ancestor_in_steps {
        text += "outputs    computed in every step, as they do not fit into memory; --cache DIR \
                 keeps them on disk\n";
    } else if time.ancestor > 0.0 {
        let seconds = clock(time.ancestor);
        let which = if time.cached { "missing" } else { "ancestor's" };
        text += &format!("outputs    {seconds} for the {which} outputs\n");
    } else if time.cached {
        text += "outputs    all in the cache\n";
    }
    let mut sum = time.ancestor + time.tests;
    for (at, level) in levels.iter().enumerate() {
        let (sizes, epochs, lr) = (&level.sizes, level.epochs, level.lr);
        let seconds = epochs * time.images * rates.of_sizes(sizes, time.batch as f64);
        sum += seconds;
        let (words, spent) = (sizes_in_words(sizes), clock(seconds));
        text += &format!("level {at}    {words}: {epochs:.1} epochs at {lr:.1e}, {spent}\n");
    }
    if time.tests > 0.0 {
        text += &format!("tests      {}\n", clock(time.tests));
    }
    let minutes = clock(60.0 * settings.minutes.unwrap_or(MINUTES));
    text + &format!("in total   {} of {minutes}\n", clock(sum))
}

/// The largest size that trains.
pub(super) fn last_size(levels: &[LevelPlan]) -> (usize, usize) {
    let sizes = levels.iter().map(|level| level.sizes.largest());
    sizes.fold((0, 0), |(depth, width), (d, w)| {
        (depth.max(d), width.max(w))
    })
}

/// Depths and widths, such as "2 to 12 layers of width 64, 96".
pub(in crate::condense) fn sizes_in_words(sizes: &Sizes) -> String {
    let widths: Vec<String> = sizes.widths.iter().map(usize::to_string).collect();
    let depths = match sizes.depths {
        (least, most) if least == most => least.to_string(),
        (least, most) => format!("{least} to {most}"),
    };
    format!("{depths} layers of width {}", widths.join(", "))
}
