use super::*;
use crate::settings::{Condense, Expand, Finetune, Init};

fn recipe(text: &str, overrides: &[&str]) -> Result<Recipe> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.toml");
    std::fs::write(&path, text).unwrap();
    let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
    Recipe::read(&path, &overrides)
}

#[test]
fn flags_beat_overrides_beat_the_table_beat_the_common_keys() {
    let r = recipe(
        "seed = 1\ndata = 'a'\n[finetune]\nlr = 1e-3\nbatch = 4\nepochs = 2",
        &["finetune.batch=8", "finetune.data=b c"],
    )
    .unwrap();
    let mut flags = Finetune::default();
    flags.training.optimisation.lr = Some(0.5);
    flags.training.optimisation.steps = Some(7);
    let flags = to_table(&flags).unwrap();
    let got: Finetune = r.stage("finetune", Some(&flags)).unwrap();
    assert_eq!(got.training.images.data.as_deref(), Some("b c"));
    let got = got.training.optimisation;
    let found = (got.seed, got.lr, got.batch);
    assert_eq!(found, (Some(1), Some(0.5), Some(8)));
    assert_eq!((got.epochs, got.steps), (None, Some(7)));
}

#[test]
fn a_duration_replaces_one_of_either_kind() {
    let r = recipe("[finetune]\nsteps = 2", &[]).unwrap();
    let mut both: Table = "steps = 5".parse().unwrap();
    merge(&mut both, &"epochs = 3.0".parse().unwrap());
    let got: Finetune = r.stage("finetune", Some(&both)).unwrap();
    let got = got.training.optimisation;
    assert_eq!((got.epochs, got.steps), (Some(3.0), None));
}

#[test]
fn an_override_replaces_a_duration_of_either_kind() {
    let duration = |set: &[&str]| -> Result<(Option<f64>, Option<u64>)> {
        let r = recipe("[finetune]\nepochs = 2", set)?;
        let got: Finetune = r.stage("finetune", None)?;
        let got = got.training.optimisation;
        Ok((got.epochs, got.steps))
    };
    assert_eq!(duration(&[]).unwrap(), (Some(2.0), None));
    assert_eq!(duration(&["finetune.steps=5"]).unwrap(), (None, Some(5)));
    let three = duration(&["finetune.epochs=3"]).unwrap();
    assert_eq!(three, (Some(3.0), None));
    let both = duration(&["finetune.epochs=3", "finetune={steps=5}"]);
    let error = both.unwrap_err().to_string();
    assert!(error.contains("are two durations"), "{error}");

    let set = Recipe::empty("finetune", &["finetune.epochs=3".into()]).unwrap();
    let beside = |flags: &str| {
        let error = set.refuse_beside("finetune", &flags.parse().unwrap());
        error.unwrap_err().to_string()
    };
    assert!(beside("steps = 7").contains("both give a duration"));
    assert!(beside("epochs = 7.0").contains("both give epochs"));
}

#[test]
fn a_limit_has_one_of_its_names() {
    let most = |text: &str, over: &str| {
        let over: Table = over.parse().unwrap();
        let settings = recipe(text, &[]).and_then(|r| r.stage::<Expand>("expand", Some(&over)));
        settings.map(|settings| settings.max_macs.unwrap())
    };
    let alias = "[expand]\nmax_flops = '1G'";
    assert_eq!(most(alias, "").unwrap(), "1G");
    assert_eq!(most(alias, "max_macs = '2G'").unwrap(), "2G");
    let other = "[expand]\nmax_macs = '1G'";
    assert_eq!(most(other, "max_flops = '2G'").unwrap(), "2G");
    for (text, over) in [
        ("[expand]\nmax_flops = '1G'\nmax_macs = '2G'", ""),
        ("[expand]", "max_macs = '1G'\nmax_flops = '2G'"),
    ] {
        let error = most(text, over).unwrap_err();
        assert_eq!(crate::error::exit_code(&error), 2);
        let said = format!("{error:#}");
        assert!(
            said.contains("max_flops") && said.contains("max_macs"),
            "{said}"
        );
    }
    let set = Recipe::empty("expand", &["expand.max_flops=1G".into()]).unwrap();
    let flags = "max_macs = '2G'".parse().unwrap();
    assert!(set.refuse_beside("expand", &flags).is_err());
}

#[test]
fn unknown_keys_are_named() {
    let check = |text: &str, needle: &str| {
        let error = recipe(text, &[])
            .and_then(|r| r.stage::<Condense>("condense", None))
            .unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
        assert_eq!(crate::error::exit_code(&error), 2);
    };
    check("[condense]\nepochz = 3", "epochz; did you mean epochs?");
    check("[condense]\ndepth = 3", "depth; did you mean depths?");
    let misspelt = "auxiliary.widht; did you mean width?";
    check("[condense.auxiliary]\nwidht = 3", misspelt);
    check("[condens]\nepochs = 3", "condens; did you mean condense?");
    check("sead = 3", "sead; did you mean seed?");
    check("lr = 3", "lr");
    check("[condense]\nepochs = 'many'", "epochs");
    check("[condense", "recipe");
}

#[test]
fn keys_outside_the_tables_are_for_the_stages_that_have_them() {
    let seed = |text: &str| {
        let got: Result<Init> = recipe(text, &[]).and_then(|r| r.stage("init", None));
        got.map(|init| init.seed).map_err(|error| error.to_string())
    };
    assert_eq!(seed("name = 'n'\nbatch = 4\nseed = 3\n[init]"), Ok(Some(3)));
    for own in ["batch = 4", "name = 'n'", "mean = [0.5]"] {
        let error = seed(&format!("batch = 4\n[init]\n{own}")).unwrap_err();
        assert!(error.contains("unknown key"), "{error}");
    }
}

#[test]
fn what_would_have_no_effect_is_refused() {
    let flags: Table = "lr = 0.5\ndata = 'd'".parse().unwrap();
    let beside = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|s| s.to_string()).collect();
        Recipe::empty("finetune", &set)?.refuse_beside("finetune", &flags)
    };
    beside(&["finetune.batch=8", "seed=3"]).unwrap();
    for set in ["finetune.lr=0.1", "data=other", "condense.lr=1"] {
        let error = beside(&[set]).unwrap_err();
        assert_eq!(crate::error::exit_code(&error), 2, "{error}");
    }

    let levels = "levels = [{ depths = [2], steps = 4 }, { depths = [4] }]";
    let r = recipe(&format!("[condense]\nlr = 0.1\n{levels}"), &[]).unwrap();
    let over = |text: &str| {
        let flags: Table = text.parse().unwrap();
        r.refuse_in_levels("condense", [&flags, &Table::new()])
    };
    for free in ["lr = 0.5", "batch = 8", "seed = 3", "widths = [64]"] {
        over(free).unwrap();
    }
    for decided in [
        "depths = [3]",
        "steps = 2",
        "epochs = 1.0",
        "minutes = 5.0",
        "sizes = '2x64'",
    ] {
        let error = over(decided).unwrap_err().to_string();
        assert!(error.contains("levels"), "{error}");
    }
}

#[test]
fn a_key_in_a_table_is_the_same_key() {
    for twice in [
        ["condense={lr=0.5}", "condense.lr=0.001"],
        ["condense.auxiliary.depth=3", "condense.auxiliary={depth=2}"],
    ] {
        let error = recipe("", &twice).unwrap_err().to_string();
        assert!(error.contains("is given twice"), "{error}");
    }
    let other = ["condense={lr=0.5}", "condense.epochs=3"];
    let got: Condense = recipe("", &other).unwrap().stage("condense", None).unwrap();
    let optimisation = got.training.optimisation;
    assert_eq!(
        (optimisation.lr, optimisation.epochs),
        (Some(0.5), Some(3.0))
    );
}
