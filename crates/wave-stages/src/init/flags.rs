//! Flags of `wave init` that only some architectures or methods know.

use anyhow::Result;
use wave_run::error::request;
use wave_run::recipe::to_table;
use wave_run::settings::Init;

const FILTERS: &[&str] = &["convmixer", "convnext"];
const ATTENTION: &[&str] = &[
    "vit",
    "gpsa",
    "convolution-inside",
    "convolution-outside",
    "convolution-positive",
];
const KERNELS: &[&str] = &[
    "convmixer",
    "convnext",
    "gpsa",
    "convolution-inside",
    "convolution-outside",
    "convolution-positive",
];

/// Keys, and the architectures of images that know them.
const OF_ARCHITECTURES: [(&[&str], &[&str]); 4] = [
    (&["kernel"], KERNELS),
    (
        &["dilation", "filter_variance", "negative", "factored"],
        FILTERS,
    ),
    (
        &["heads", "positions", "position_scale", "qk", "vp"],
        ATTENTION,
    ),
    (
        &[
            "networks",
            "state",
            "attention_layers",
            "linear_attention_layers",
            "parts",
            "state_power",
            "mimetic_layers",
        ],
        &[],
    ),
];

/// Keys, and the methods that know them.
const OF_METHODS: [(&[&str], &[&str]); 3] = [
    (&["gamma", "scaled"], &["layerscale"]),
    (&["blocks"], &["heru-lg", "auto-lg"]),
    (&["similarity"], &["auto-lg"]),
];

/// Refuses flags that mean nothing to the architecture, one of images, or to the method.
pub fn check(method: &str, settings: &Init) -> Result<()> {
    let arch = settings.arch.as_deref().unwrap_or("vit");
    let given = to_table(settings)?;
    let unknown = |table: &[(&[&'static str], &[&str])], name: &str| {
        let foreign = table.iter().filter(|(_, of)| !of.contains(&name));
        let mut keys = foreign.flat_map(|(keys, _)| keys.iter().copied());
        keys.find(|key| given.contains_key(*key))
    };
    let wrong = [
        (unknown(&OF_ARCHITECTURES, arch), "--arch", arch),
        (unknown(&OF_METHODS, method), "method", method),
    ];
    for (key, what, name) in wrong {
        if let Some(key) = key {
            return Err(request(format!(
                "--{} means nothing to {what} {name}; leave it out",
                key.replace('_', "-")
            )));
        }
    }
    Ok(())
}
