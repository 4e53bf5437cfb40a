use super::*;

// python3 -c "import datetime as d; print(d.datetime.fromtimestamp(S, d.timezone.utc))"
#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, expected) in [
        (0, "19700101-0000"),
        (951_782_400, "20000229-0000"),
        (951_868_800, "20000301-0000"),
        (1_735_689_599, "20241231-2359"),
        (4_107_542_400, "21000301-0000"),
    ] {
        assert_eq!(date_and_time(seconds), expected);
    }
}

#[test]
fn no_two_directories_have_one_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("runs/my.v1");
    for number in 1..4 {
        assert_eq!(create_unused(&path).unwrap(), number);
        assert!(numbered(&path, number).is_dir());
    }
    assert!(root.path().join("runs/my.v1-3").is_dir());
}

#[cfg(unix)]
#[test]
fn every_spelling_leads_to_one_place() {
    let root = tempfile::tempdir().unwrap();
    let real = root.path().canonicalize().unwrap().join("real");
    fs::create_dir_all(real.join("inside")).unwrap();
    let link = root.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    for (path, expected) in [
        (link.clone(), real.clone()),
        (link.join("./inside/../new/x/.."), real.join("new")),
        (link.join("inside/../../link/new"), real.join("new")),
    ] {
        assert_eq!(resolve(&path), expected);
    }
    let nowhere = Path::new("/nowhere/at/../all");
    assert_eq!(resolve(nowhere), Path::new("/nowhere/all"));
}
