//! Options of the methods of `wave init`, and the architectures and methods that they apply to.

use anyhow::Result;
use std::str::FromStr;
use toml::{Table, Value};
use wave_init::choices::ZeroScope;
use wave_init::error::by_name;
use wave_init::filters::{FilterChoices, Schedule};
use wave_init::mimetic::Attention;
use wave_init::{Choices, DirectMethod, MlpMean, Positions, find};
use wave_models::refuse;
use wave_run::error::request;
use wave_run::recipe::{means_nothing, narrow};
use wave_run::settings::{Init, InitValues, PositionKind, Scaled};

/// The choices of `method`, for transformers, in the settings. Refuses unknown values, and mimetic attention where the
/// method cannot use it.
pub fn choices(method: &str, settings: &Init) -> Result<Choices> {
    let choices = Choices {
        positions: settings.positions.map(|kind| match kind {
            PositionKind::Learned => Positions::Learned,
            PositionKind::Sinusoidal => Positions::Sinusoidal,
        }),
        position_scale: settings.position_scale,
        mlp_mean: settings.mlp_mean.as_deref().map(mlp_mean).transpose()?,
        qk: mixture("qk", settings.qk.as_deref())?,
        vp: mixture("vp", settings.vp.as_deref())?,
        gamma: settings.gamma,
        scaled_skip: settings.scaled == Some(Scaled::Skip),
        blocks: settings.blocks,
        similarity: settings.similarity.clone().unwrap_or_default(),
        attention: parsed(&settings.mimetic)?,
        zero: parsed(&settings.zero)?,
        layers: parsed(&settings.layers)?,
        rest: parsed(&settings.rest)?,
    };
    if let ("mimetic" | "layerscale", Some(rest)) = (method, &settings.rest) {
        by_name("base", rest, &[("timm", ()), ("xavier", ())])?;
    }
    for (name, mix) in [("qk", choices.qk), ("vp", choices.vp)] {
        if mix.is_some_and(|mix| mix != (0.0, 0.0)) && choices.attention == Attention::Equal {
            refuse!(
                "--{name} mixes products, but --mimetic equal has none to mix; drop it, or give 0,0"
            );
        }
    }
    Ok(choices)
}

pub(super) fn filters(settings: &InitValues) -> Result<FilterChoices> {
    let shift = settings.mlp_mean.as_deref().map(mlp_mean).transpose()?;
    let schedule = match settings.filter_variance.as_deref() {
        None => Schedule::default(),
        Some(&[start, velocity, acceleration]) => Schedule {
            start,
            velocity,
            acceleration,
        },
        Some(other) => refuse!(
            "filter_variance = {other:?}; give three numbers: start, velocity, acceleration"
        ),
    };
    Ok(FilterChoices {
        schedule,
        sawtooth: settings.sawtooth.unwrap_or(false),
        factored: settings.factored,
        mlp_mean: shift.unwrap_or(MlpMean::None),
    })
}

/// The choice of this name, or the default.
fn parsed<T: FromStr + Default>(given: &Option<String>) -> Result<T>
where
    anyhow::Error: From<T::Err>,
{
    let choice = given.as_deref().map(str::parse::<T>).transpose()?;
    Ok(choice.unwrap_or_default())
}

fn mixture(name: &str, values: Option<&[f64]>) -> Result<Option<(f64, f64)>> {
    match values {
        None => Ok(None),
        Some(&[alpha, beta]) => Ok(Some((alpha, beta))),
        Some(other) => {
            refuse!("{name} = {other:?}; give two numbers, alpha and beta, such as 0.7,0.7")
        }
    }
}

/// Parses `none`, `eq1=SIGMA`, `eq2=B`, `bias=B` or `half`.
fn mlp_mean(text: &str) -> Result<MlpMean> {
    let wrong = || format!("mlp_mean = {text}; expected none, eq1=SIGMA, eq2=B, bias=B or half");
    let number = |v: &str| v.parse::<f64>().map_err(|_| request(wrong()));
    match text.split_once('=') {
        None if text == "none" => Ok(MlpMean::None),
        None if text == "half" => Ok(MlpMean::Half),
        Some(("bias", v)) => Ok(MlpMean::Bias { b: number(v)? }),
        Some(("eq1", v)) => Ok(MlpMean::Eq1 { sigma: number(v)? }),
        Some(("eq2", v)) => Ok(MlpMean::Eq2 { b: number(v)? }),
        _ => Err(request(wrong())),
    }
}

const ALL: &[&str] = &["vit", "convmixer", "convnext"];
const FILTERS: &[&str] = &["convmixer", "convnext"];
const VIT: &[&str] = &["vit"];

/// Keys that apply to some architectures, and to some methods if any are listed. A method may also be the `rest`, such
/// as mimetic attention.
const KEYS: [(&str, &[&str], &[&str]); 22] = [
    ("mlp_ratio", &["vit", "convnext"], &[]),
    ("class_token", VIT, &[]),
    ("kernel", FILTERS, &[]),
    ("activation", &["convmixer"], &[]),
    ("stages", &["convnext"], &[]),
    ("filter_variance", FILTERS, &["covariance"]),
    ("sawtooth", &["convnext"], &["covariance"]),
    ("dilation", FILTERS, &[]),
    ("factored", FILTERS, &["covariance", "covariance-transfer"]),
    ("heads", VIT, &[]),
    ("positions", VIT, &[]),
    ("position_scale", VIT, &[]),
    ("vp", VIT, &["mimetic"]),
    ("qk", VIT, &["mimetic", "layerscale"]),
    ("mimetic", VIT, &["mimetic", "layerscale"]),
    ("gamma", ALL, &["layerscale"]),
    ("scaled", ALL, &["layerscale"]),
    ("zero", ALL, &["zero"]),
    (
        "layers",
        ALL,
        &["weight-selection", "pretrained-attention", "nested"],
    ),
    ("blocks", ALL, &["heru-lg", "auto-lg"]),
    ("similarity", ALL, &["auto-lg"]),
    ("train_limit", ALL, &["prune"]),
];

/// Methods without a donor that leave some weights to `rest`; methods with a donor do as well.
const LEAVE_A_REST: [&str; 4] = ["mimetic", "mlp-mean", "layerscale", "zero"];

/// Keys that change only blocks.
const OF_BLOCKS: &str = "mlp_mean qk vp mimetic";

/// Keys that change nothing outside the classifier, which starts alike in any rest.
const OF_ALL: &str = "mlp_mean qk vp mimetic rest positions position_scale";

/// Keys of the `rest` that change only weights which the method replaces.
const REPLACED: [(&str, &str); 6] = [
    ("weight-selection", OF_BLOCKS),
    ("nested", OF_BLOCKS),
    ("ligo", OF_ALL),
    ("prune", OF_ALL),
    ("pretrained-attention", "qk vp mimetic"),
    ("zero", "qk"),
];

/// Refuses settings of an image network that do not apply to its architecture or method.
pub fn check(method: &str, given: &Table) -> Result<()> {
    let arch = given.get("arch").and_then(Value::as_str).unwrap_or("vit");
    let rest = given.get("rest").and_then(Value::as_str).unwrap_or(method);
    let leaves_rest = LEAVE_A_REST.contains(&method) || find(method).is_ok_and(|found| found.donor);
    let unread = (!leaves_rest).then_some("rest");
    let replaced = REPLACED.iter().filter(|(name, _)| *name == method);
    let replaced = replaced.flat_map(|(_, keys)| keys.split(' '));
    let mut idle = unread.into_iter().chain(replaced);
    if let Some(key) = idle.find(|key| given.contains_key(*key)) {
        return Err(means_nothing(key, &format!("method {method}")));
    }
    for (key, architectures, methods) in KEYS {
        if !given.contains_key(key) {
            continue;
        }
        if !architectures.contains(&arch) {
            return Err(means_nothing(key, &format!("--arch {arch}")));
        }
        if !methods.is_empty() && !methods.contains(&method) && !methods.contains(&rest) {
            return Err(means_nothing(key, &format!("method {method}")));
        }
    }
    narrow::<Init>(given, &format!("--arch {arch}")).map(drop)
}

/// Refuses settings that have no effect beside the others. A bench accepts them, since its methods share settings.
pub(super) fn check_together(method: &str, settings: &Init, choices: &Choices) -> Result<()> {
    let is_mimetic = choices.rest == DirectMethod::Mimetic;
    let sinusoidal = match choices.positions {
        Some(positions) => positions == Positions::Sinusoidal,
        None => is_mimetic || matches!(method, "mimetic" | "layerscale"),
    };
    if settings.position_scale.is_some() && !sinusoidal {
        return Err(means_nothing("position_scale", "learned positions"));
    }
    let fills_attention = method == "zero" && choices.zero != ZeroScope::QueryKey;
    let fills_mlp = method == "zero" && choices.zero == ZeroScope::Blocks;
    let keeps_matrix = matches!(
        choices.mlp_mean,
        None | Some(MlpMean::None | MlpMean::Bias { .. })
    );
    let scope = format!("--zero {}", choices.zero.name());
    let idle = [
        ("vp", fills_attention && settings.vp.is_some()),
        ("mimetic", fills_attention && settings.mimetic.is_some()),
        ("mlp_mean", fills_mlp && !keeps_matrix),
    ];
    match idle.into_iter().find(|(_, is_idle)| *is_idle) {
        None => Ok(()),
        Some((key, _)) => Err(means_nothing(key, &scope)),
    }
}
