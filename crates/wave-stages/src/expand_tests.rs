use super::*;
use std::path::PathBuf;

/// The error of an expansion of missing templates, with these settings.
fn refused(settings: &str) -> String {
    let settings: toml::Table = settings.parse().unwrap();
    let settings: Expand = settings.try_into().unwrap();
    let source = PathBuf::from("no-templates").into();
    let made = in_memory(&source, &settings, &Options::default());
    made.err().unwrap().to_string()
}

#[test]
fn without_data_settings_of_fitting_are_refused() {
    for (settings, flag) in [
        ("lr = 0.1", "--lr"),
        ("flip = true", "--flip"),
        ("head_lr_ratio = 0.5", "--head-lr-ratio"),
    ] {
        let said = refused(settings);
        let expected = format!("{flag} does not apply to expand without --data");
        assert!(said.contains(&expected), "{said}");
    }
    // Keys of a whole recipe are for its other stages; a seed draws scalers too.
    for settings in [
        "batch = 8\ntrain_limit = 9",
        "seed = 3",
        "data = 'shapes'\nlr = 0.1",
    ] {
        let said = refused(settings);
        assert!(said.contains("no-templates"), "{said}");
    }
}
