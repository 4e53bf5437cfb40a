use super::*;
use crate::testing::{check_text, names};

#[test]
fn writing_creates_parents_replaces_and_leaves_an_ordinary_file_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b/file.txt");
    write_atomic(&path, b"first").unwrap();
    write_atomic(&path, b"second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"second");
    assert_eq!(names(&root.path().join("a/b")), ["file.txt"]);
    let plain = root.path().join("plain");
    fs::write(&plain, b"x").unwrap();
    let permissions = |path: &Path| fs::metadata(path).unwrap().permissions();
    assert_eq!(permissions(&path), permissions(&plain));
}

#[test]
fn what_killed_writers_left_is_removed_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let others = [".waves.tmp", "wave-a.tmp"];
    fs::create_dir(root.path().join(".wave-dir.tmp")).unwrap();
    for name in [".wave-a1B2.tmp", ".wave-.tmp", others[0], others[1]] {
        fs::write(root.path().join(name), "x").unwrap();
    }
    remove_temporaries(root.path()).unwrap();
    assert_eq!(names(root.path()), others);
}

#[test]
fn a_failing_writer_keeps_the_old_file_and_leaves_no_temporary_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file.txt");
    write_atomic(&path, b"old").unwrap();
    let failed = Staged::new(&path, |file| {
        file.write_all(b"half").unwrap();
        let cause = io::Error::from(io::ErrorKind::StorageFull);
        Err(HubError::io("write", &path)(cause))
    });
    assert!(failed.is_err_and(|error| !error.is_request()));
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(root.path()), ["file.txt"]);
}

#[test]
fn a_process_that_ends_leaves_no_temporary_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("file.txt");
    let staged = Staged::from_bytes(&path, b"half").unwrap();
    let named = Staged::from_bytes(&path, b"whole").unwrap();
    named.commit().unwrap();
    assert_eq!(names(root.path()).len(), 2);
    // Files that other tests write meanwhile are not to be removed here.
    let known = staged.file.path().to_owned();
    assert!(temporary_files().contains(&known));
    assert!(!temporary_files().contains(&path));
    drop(staged);
    assert!(!temporary_files().contains(&known));
    assert_eq!(names(root.path()), ["file.txt"]);
}

#[cfg(unix)]
#[test]
fn links_and_pipes_that_a_user_named_stay() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::write(at("real.csv"), "old").unwrap();
    symlink("real.csv", at("link.csv")).unwrap();
    symlink("link.csv", at("second.csv")).unwrap();
    symlink("absent.csv", at("dangling.csv")).unwrap();
    symlink("circle", at("circle")).unwrap();
    write_named(&at("second.csv"), b"new").unwrap();
    write_named(&at("dangling.csv"), b"made").unwrap();
    assert!(at("link.csv").is_symlink() && at("second.csv").is_symlink());
    assert_eq!(fs::read(at("real.csv")).unwrap(), b"new");
    assert!(at("dangling.csv").is_symlink());
    assert_eq!(fs::read(at("absent.csv")).unwrap(), b"made");
    assert!(write_named(&at("circle"), b"x").is_err());

    let pipe = at("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    symlink("pipe", at("to-pipe")).unwrap();
    let from = pipe.clone();
    let reader = std::thread::spawn(move || fs::read(from).unwrap());
    write_named(&at("to-pipe"), b"through").unwrap();
    assert_eq!(reader.join().unwrap(), b"through");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    write_named(Path::new("/dev/null"), b"nothing").unwrap();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_directory_is_created_but_not_below_a_regular_file() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "x").unwrap();
    for error in [
        write_atomic(&file.join("below/out.json"), b"x").unwrap_err(),
        prepare_out(&file.join("below")).unwrap_err(),
        prepare_out(&file).unwrap_err(),
    ] {
        check_text(&error.to_string(), &[&file.display().to_string()]);
        assert!(!error.is_request());
    }
    assert_eq!(names(root.path()), ["file"]);
    let out = root.path().join("runs/one");
    prepare_out(&out).unwrap();
    prepare_out(&out).unwrap();
    assert!(names(&out).is_empty());
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_is_refused_by_name() {
    use std::os::unix::fs::PermissionsExt;
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("locked");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o555)).unwrap();
    // The superuser may write anywhere: nothing to see then.
    if File::create(out.join("probe")).is_err() {
        let error = prepare_out(&out).unwrap_err();
        check_text(&error.to_string(), &["locked"]);
        assert!(!error.is_request());
    }
    fs::set_permissions(&out, fs::Permissions::from_mode(0o755)).unwrap();
}
