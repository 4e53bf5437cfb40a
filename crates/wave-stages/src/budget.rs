//! Model sizes by cost: `wave expand --max-params 8M`.
//!
//! Most users know their limits better than depths and widths. Candidates are the sizes within the
//! range of recorded accuracies; between recorded sizes, expected accuracy is interpolated linearly
//! over depth, then over width. The choice is the candidate within the limits with the highest expected
//! accuracy; among candidates equal within noise, the one with the fewest multiply-adds. If other
//! settings than the size leave a candidate without a record, all are ranked as in the condensed shape.

use crate::record::Record;
use crate::timing::{WARM_UP, clock};
use anyhow::Result;
use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use wave_artefacts::model::Network;
use wave_artefacts::templates::TemplateDir;
use wave_learngene::Learngene;
use wave_models::refuse;
use wave_models::vit::VitShape;
use wave_run::context::Context;
use wave_run::error::request;
use wave_run::settings::ExpandValues;

/// Accuracy differences up to this count as noise: a tenth of a point.
const NOISE: f64 = 1e-3;
/// Number of sizes shown in addition to the chosen one.
const RUNNERS_UP: usize = 4;
/// Number of forward passes; the latency is their median.
const PASSES: usize = 21;

/// A size with its cost and its expected accuracy, as in the output of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Blocks.
    pub depth: usize,
    /// Width, in channels.
    pub width: usize,
    /// Values in all weights.
    pub parameters: usize,
    /// Multiply-adds of a forward pass of one image, called FLOPs in papers.
    pub multiply_adds: usize,
    /// Milliseconds of a forward pass of one image on this machine, if limited.
    pub latency_ms: Option<f64>,
    /// Expected top-1 accuracy without training data, 0 to 1, if recorded for such a shape.
    #[serde(rename = "expected_top1")]
    pub expected: Option<f64>,
    /// The accuracy that ranks it: the expected one, or if it is unknown that of the condensed shape.
    #[serde(skip)]
    rank: f64,
    /// True if its accuracy equals that of the chosen size within noise.
    #[serde(rename = "equal_within_noise")]
    pub equal: bool,
}

/// Depth and width, both required.
pub(crate) fn needed(depth: Option<usize>, width: Option<usize>) -> Result<(usize, usize)> {
    let missing = |name: &str| request(format!("no {name}; give --{name} N"));
    let depth = depth.ok_or_else(|| missing("depth"))?;
    Ok((depth, width.ok_or_else(|| missing("width"))?))
}

/// The shape of this size with the given settings.
pub(crate) fn shape(
    given: &ExpandValues,
    gene: &Learngene,
    (depth, width): (usize, usize),
) -> Result<VitShape> {
    let mut shape = gene.shape(depth, width, given.heads)?;
    shape.image_size = given.image_size.unwrap_or(shape.image_size);
    shape.patch = given.patch.unwrap_or(shape.patch);
    shape.mlp_ratio = given.mlp_ratio.unwrap_or(shape.mlp_ratio);
    shape.validate()?;
    Ok(shape)
}

/// The best size within the limits of the settings, then the runners-up, best first; none without limits. A given
/// depth or width is fixed.
pub(crate) fn choose(
    templates: &TemplateDir,
    given: &ExpandValues,
    context: &Context,
) -> Result<Vec<Candidate>> {
    let most_parameters = given.max_params.as_deref().map(count).transpose()?;
    let most_multiply_adds = given.max_macs.as_deref().map(count).transpose()?;
    let most_latency = given.max_latency_ms;
    let limits = [most_parameters, most_multiply_adds, most_latency];
    if limits.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    if most_latency.is_some() {
        check_measured(context.ranks().size(), context.device().is_cpu())?;
    }
    if let (Some(_), Some(_)) = (given.depth, given.width) {
        refuse!("depth and width leave nothing to choose; drop one of them, or the limits");
    }
    let gene = &templates.learngene;
    let candidates = candidates(templates, given)?;
    let Some(least) = candidates.iter().min_by_key(|c| c.multiply_adds) else {
        refuse!(
            "the templates record no accuracies, so no size can be chosen; give --depth and --width"
        );
    };
    let within = |value: usize, limit: Option<f64>| limit.is_none_or(|most| value as f64 <= most);
    let small = |c: &&Candidate| {
        within(c.parameters, most_parameters) && within(c.multiply_adds, most_multiply_adds)
    };
    let latency = |c: &Candidate| latency_ms(gene, &shape(given, gene, (c.depth, c.width))?);
    let mut chosen: Vec<Candidate> = Vec::new();
    for mut candidate in ranked(candidates.iter().filter(small).cloned().collect()) {
        if let Some(most) = most_latency {
            let found = latency(&candidate)?;
            candidate.latency_ms = Some(found);
            if found > most {
                continue;
            }
        }
        chosen.push(candidate);
        if chosen.len() > RUNNERS_UP {
            break;
        }
    }
    if chosen.is_empty() {
        let latency = match most_latency {
            Some(_) => format!(" and takes {:.3} ms", latency(least)?),
            None => String::new(),
        };
        let (depth, width, adds) = (least.depth, least.width, least.multiply_adds);
        refuse!(
            "no size is within the limits: the smallest measured size, {depth} x {width}, has {} \
             parameters and {adds} multiply-adds{latency}; raise the limits, or give --depth and --width",
            least.parameters
        );
    }
    let best = chosen[0].rank;
    for candidate in &mut chosen {
        candidate.equal = (candidate.rank - best).abs() <= NOISE;
    }
    Ok(chosen)
}

/// Refuses to measure latencies in one of several processes, or for another device than the CPU.
fn check_measured(ranks: usize, on_cpu: bool) -> Result<()> {
    match (ranks, on_cpu) {
        (1, true) => Ok(()),
        (1, false) => refuse!(
            "max_latency_ms measures on the CPU, but another device is selected; choose the size \
             first, without --device"
        ),
        _ => refuse!(
            "{ranks} ranks were started, but max_latency_ms measures in one process; choose the \
             size first, without mpirun"
        ),
    }
}

/// Candidates, best first: those within noise of the best, by multiply-adds, then the next best with
/// those within noise of it, and so on.
fn ranked(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    candidates.sort_by(|a, b| b.rank.total_cmp(&a.rank));
    let mut rest = &mut candidates[..];
    while let Some(best) = rest.first() {
        let least = best.rank - NOISE;
        let equals = rest.partition_point(|c| c.rank >= least);
        let (tier, worse) = rest.split_at_mut(equals.max(1));
        tier.sort_by_key(|c| (c.multiply_adds, c.parameters));
        rest = worse;
    }
    candidates
}

/// The candidates as a human-readable table, with the reason for the choice; empty without candidates.
pub fn table(candidates: &[Candidate]) -> String {
    if candidates.is_empty() {
        return String::new();
    }
    let mut text =
        "depth x width   parameters  multiply-adds  latency ms  expected top-1\n".to_string();
    for c in candidates {
        let size = format!("{} x {}", c.depth, c.width);
        let latency = c.latency_ms.map_or("-".into(), |ms| format!("{ms:.2}"));
        let expected = c.expected.map(|top1| format!("{:.2} %", 100.0 * top1));
        text += &format!(
            "{size:13}  {:>11}  {:>13}  {latency:>10}  {:>13}\n",
            c.parameters,
            c.multiply_adds,
            expected.as_deref().unwrap_or("-")
        );
    }
    let accuracy = match candidates.iter().all(|c| c.expected == Some(c.rank)) {
        true => "recorded accuracy",
        false => "accuracy in the condensed shape, as none is recorded in this one (-)",
    };
    text += &match candidates.iter().filter(|c| c.equal).count() {
        0 | 1 => format!("chosen: the first, which has the best {accuracy}\n"),
        n => format!(
            "chosen: the first; these {n} are equal within noise ({} points), and it has the fewest \
             multiply-adds; ranked by {accuracy}\n",
            100.0 * NOISE
        ),
    };
    text
}

/// Reads `8M`, `1.2G`, `300k` or a plain number.
fn count(text: &str) -> Result<f64> {
    let text = text.trim();
    let (digits, scale) = match text.char_indices().last() {
        Some((i, 'k' | 'K')) => (&text[..i], 1e3),
        Some((i, 'm' | 'M')) => (&text[..i], 1e6),
        Some((i, 'g' | 'G')) => (&text[..i], 1e9),
        Some((i, 't' | 'T')) => (&text[..i], 1e12),
        _ => (text, 1.0),
    };
    match digits.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value * scale),
        _ => refuse!("limit {text}; expected a number above 0, such as 8M, 1.2G or 300k"),
    }
}

/// All sizes in the recorded range, or those of the given depth or width.
fn candidates(templates: &TemplateDir, given: &ExpandValues) -> Result<Vec<Candidate>> {
    let gene = &templates.learngene;
    let record = Record::new(&templates.config, &gene.auxiliary);
    let Some(((shallow, deep), (narrow, wide))) = record.surface.range() else {
        return Ok(Vec::new());
    };
    let step = gene.auxiliary.head_width();
    // Widths that are no multiples of the head width were recorded with other heads.
    let (least, divisor, name) = match given.heads {
        Some(heads) => (narrow, heads, "heads"),
        None => (narrow.next_multiple_of(step), step, "the head width"),
    };
    let fits = |width: &usize| width.is_multiple_of(divisor);
    let all = (least..=wide).step_by(step).filter(fits);
    let widths: Vec<usize> = given.width.map_or_else(|| all.collect(), |w| vec![w]);
    if widths.is_empty() {
        refuse!(
            "{name} {divisor} divides no width from {narrow} to {wide} in steps of {step}; give \
             other --heads, or --depth and --width"
        );
    }
    let depths = given.depth.map_or(shallow..=deep, |depth| depth..=depth);
    let mut all = Vec::new();
    for depth in depths {
        for &width in &widths {
            let shape = shape(given, gene, (depth, width))?;
            all.push(Candidate {
                depth,
                width,
                parameters: shape.parameter_count(),
                multiply_adds: shape.multiply_adds(),
                latency_ms: None,
                expected: record.expected(&shape).map(|(top1, _)| top1),
                rank: record.surface.at(depth, width).unwrap_or(f64::NEG_INFINITY),
                equal: false,
            });
        }
    }
    if all.iter().all(|c| c.expected.is_some()) {
        for c in &mut all {
            c.rank = c.expected.unwrap_or(c.rank);
        }
    }
    Ok(all)
}

/// Median time of a forward pass of one image, in milliseconds.
fn latency_ms(gene: &Learngene, shape: &VitShape) -> Result<f64> {
    let network = Network::Vit(shape.clone());
    let weights = network.prepare(&gene.weights(shape)?)?;
    let side = shape.image_size;
    let image = Tensor::zeros((1, shape.channels, side, side), DType::F32, &Device::Cpu)?;
    let pass = || network.logits(&weights, &image);
    let mut times = clock(&Device::Cpu, WARM_UP, PASSES, pass)?;
    times.sort_by(f64::total_cmp);
    Ok(1e3 * times[PASSES / 2])
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
