//! Runs the tests of the Python module, where there is a Python with numpy and pytest.

use std::path::Path;
use std::process::Command;

#[test]
fn tests_of_the_python_module_pass() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = std::env::var("PYTHON").unwrap_or("python3".into());
    let has = Command::new(&python)
        .args(["-c", "import numpy, pytest"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: {python} has not both of numpy and pytest");
        return;
    }
    // The package as a wheel lays it out: its Python files, and beside them the library.
    let place = tempfile::tempdir().unwrap();
    let package = place.path().join("wave_templates");
    std::fs::create_dir(&package).unwrap();
    for file in std::fs::read_dir(here.join("python/wave_templates")).unwrap() {
        let file = file.unwrap();
        if file.path().is_file() {
            std::fs::copy(file.path(), package.join(file.file_name())).unwrap();
        }
    }
    let executable = std::env::current_exe().unwrap();
    let library = format!(
        "{}wave_templates_native{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let library = executable.with_file_name(library);
    std::fs::copy(&library, package.join("_native.abi3.so"))
        .unwrap_or_else(|e| panic!("{}: {e}", library.display()));
    let output = Command::new(&python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg(here.join("tests"))
        .env("PYTHONPATH", place.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
}
