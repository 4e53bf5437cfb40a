//! Flags of `wave init` that apply to some architectures or methods only.

use anyhow::Result;
use toml::{Table, Value};
use wave_init::find;
use wave_run::recipe::{means_nothing, narrow};
use wave_run::settings::Init;

const FILTERS: &[&str] = &["convmixer", "convnext"];

/// A key, and the architectures or methods that it applies to.
type Applies = (&'static str, &'static [&'static str]);

/// Keys that apply to some image architectures.
const OF_ARCHITECTURES: [Applies; 13] = [
    ("kernel", FILTERS),
    ("activation", &["convmixer"]),
    ("stages", &["convnext"]),
    ("sawtooth", &["convnext"]),
    ("dilation", FILTERS),
    ("filter_variance", FILTERS),
    ("factored", FILTERS),
    ("heads", &["vit"]),
    ("positions", &["vit"]),
    ("position_scale", &["vit"]),
    ("qk", &["vit"]),
    ("vp", &["vit"]),
    ("mimetic", &["vit"]),
];

/// Keys that apply to some methods.
const OF_METHODS: [Applies; 10] = [
    ("filter_variance", &["covariance"]),
    ("sawtooth", &["covariance"]),
    ("factored", &["covariance", "covariance-transfer"]),
    ("gamma", &["layerscale"]),
    ("scaled", &["layerscale"]),
    ("zero", &["zero"]),
    (
        "layers",
        &["weight-selection", "pretrained-attention", "nested"],
    ),
    ("blocks", &["heru-lg", "auto-lg"]),
    ("similarity", &["auto-lg"]),
    ("train_limit", &["prune"]),
];

/// Keys of mimetic attention, and the methods that use it; other methods accept them if it is their `rest`.
const OF_MIMETIC: [Applies; 3] = [
    ("vp", &["mimetic"]),
    ("qk", &["mimetic", "layerscale"]),
    ("mimetic", &["mimetic", "layerscale"]),
];

/// Methods without a donor that leave some weights to `rest`; methods with a donor do as well.
const LEAVE_A_REST: [&str; 4] = ["mimetic", "mlp-mean", "layerscale", "zero"];

/// The settings of an image network; refuses any that do not apply to its architecture or method.
pub fn own(method: &str, given: &Table) -> Result<Init> {
    let arch = given.get("arch").and_then(Value::as_str).unwrap_or("vit");
    let rest = given.get("rest").and_then(Value::as_str).unwrap_or(method);
    let leaves_rest =
        LEAVE_A_REST.contains(&method) || find(method).is_ok_and(|found| found.donors > 0);
    let foreign_rest = !leaves_rest && given.contains_key("rest");
    let unknown = |table: &[Applies], names: &[&str]| {
        let applies = |of: &[&str]| names.iter().any(|name| of.contains(name));
        let mut keys = table.iter().filter(|(_, of)| !applies(of));
        keys.find_map(|(key, _)| given.contains_key(*key).then_some(*key))
    };
    let wrong = [
        (unknown(&OF_ARCHITECTURES, &[arch]), "--arch", arch),
        (unknown(&OF_METHODS, &[method]), "method", method),
        (foreign_rest.then_some("rest"), "method", method),
        (unknown(&OF_MIMETIC, &[method, rest]), "method", method),
    ];
    for (key, what, name) in wrong {
        if let Some(key) = key {
            return Err(means_nothing(key, &format!("{what} {name}")));
        }
    }
    narrow(given, &format!("--arch {arch}"))
}
