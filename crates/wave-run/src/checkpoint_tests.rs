use super::*;
use candle_core::Var;

fn variables(value: f32) -> Vec<Variable> {
    let value = Tensor::full(value, (2, 3), &Device::Cpu).unwrap();
    vec![Variable {
        name: "head.weight".into(),
        var: Var::from_tensor(&value).unwrap(),
        rate: Some(1.0),
        weight_decay: 0.0,
        muon: None,
    }]
}

fn about() -> Metadata {
    [("inputs".to_string(), "{}".to_string())].into()
}

/// A directory with the states of steps 1 and 2; the values of each are its step.
fn saved() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpoints::new(dir.path(), about());
    for step in [1, 2] {
        let variables = variables(step as f32);
        let mut state = State::new(&variables, true).unwrap();
        state.step = step;
        assert!(checkpoints.save(&state, &variables, true).unwrap());
    }
    dir
}

/// The step from which a run in `dir` continues, and the error in a later state.
fn step(dir: &Path) -> Result<(u64, Option<String>)> {
    let found = Checkpoints::new(dir, about()).find()?.unwrap();
    let into = variables(0.0);
    let state = found.restore(&into)?;
    let values = into[0].var.flatten_all()?.to_vec1::<f32>()?;
    assert_eq!(values, [state.step as f32; 6]);
    assert_eq!(found.about["inputs"], "{}");
    assert_eq!(found.about["step"], state.step.to_string());
    Ok((state.step, found.broken))
}

#[test]
fn any_wrong_bit_makes_the_state_before_stand_in() {
    let dir = saved();
    assert_eq!(step(dir.path()).unwrap(), (2, None));
    let [latest, before] = [LATEST, BEFORE].map(|name| dir.path().join(name));
    let [whole, previous] = [&latest, &before].map(|path| fs::read(path).unwrap());
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        // Not overwritten in place: both names may belong to one file.
        fs::remove_file(&latest).unwrap();
        fs::write(&latest, bytes).unwrap();
        fs::write(&before, &previous).unwrap();
        let (step, broken) = step(dir.path()).unwrap();
        assert_eq!(step, 1, "byte {at}");
        assert!(broken.unwrap().contains(LATEST), "byte {at}");
    }
}

/// The next write keeps the state that a run resumed from, even if that write fails.
#[test]
fn a_damaged_state_is_not_kept_in_the_place_of_a_whole_one() {
    let dir = saved();
    let latest = dir.path().join(LATEST);
    fs::remove_file(&latest).unwrap();
    fs::write(&latest, "damaged").unwrap();
    let (resumed, broken) = step(dir.path()).unwrap();
    assert!(resumed == 1 && broken.is_some(), "{resumed}: {broken:?}");
    assert_eq!(step(dir.path()).unwrap(), (1, None));

    let values = variables(3.0);
    let mut state = State::new(&values, true).unwrap();
    state.step = 3;
    let mut checkpoints = Checkpoints::new(dir.path(), about());
    assert!(checkpoints.save(&state, &values, true).unwrap());
    fs::write(&latest, "damaged").unwrap();
    let (resumed, broken) = step(dir.path()).unwrap();
    assert!(resumed == 1 && broken.is_some(), "{resumed}: {broken:?}");
}

#[test]
fn without_a_whole_state_nothing_goes_on() {
    let dir = saved();
    let plain = Weights::from([(
        "variable.head.weight".into(),
        variables(1.0)[0].var.as_tensor().clone(),
    )]);
    for name in [LATEST, BEFORE] {
        // States of earlier versions had no checksums.
        let path = dir.path().join(name);
        wave_hub::write_tensors(&path, &plain, &about()).unwrap();
    }
    let error = step(dir.path()).unwrap_err();
    assert_eq!(crate::error::exit_code(&error), 2);
    for part in [LATEST, "no checksum", "earlier version", "--overwrite"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn best_values_are_whole_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut checkpoints = Checkpoints::new(dir.path(), about());
    assert!(checkpoints.best().unwrap().is_none());
    let values = Weights::from([("w".into(), variables(3.0)[0].var.as_tensor().clone())]);
    let best = Best { top1: 0.5, values };
    checkpoints.keep_best(&best).unwrap();
    checkpoints.wait().unwrap();
    assert_eq!(checkpoints.best().unwrap().unwrap().top1, 0.5);
    let path = dir.path().join(BEST);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = checkpoints.best().err().unwrap();
    assert!(error.to_string().contains("--overwrite"), "{error}");
}
