//! Output on terminals: streams that cannot be written, control characters in names, verbosity, and
//! Ctrl-C.

use crate::resume::start;
use crate::support::{INIT, Place, SHAPES, assert_fails};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
#[cfg(target_os = "linux")]
fn progress_that_cannot_be_written_stops_nothing() {
    let place = Place::with_model();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let train = format!("finetune m {SHAPES} --epochs 2");
    let mut command = place.loud(&format!("{train} --out a"));
    let command = command.stdout(Stdio::null()).stderr(full());
    assert!(command.status().unwrap().success());
    // To a process that has ended.
    let mut command = place.loud(&format!("{train} --out b"));
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());

    for args in [
        "--help",
        "completions bash",
        "inspect m",
        "inspect m --json",
    ] {
        let mut command = place.loud(args);
        let failed = command.stdout(full()).output().unwrap();
        assert_fails(&failed, 1, args, &["cannot print"]);
        // A reader that closes after one line, or at once.
        let mut command = place.loud(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "wave {args}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "wave {args}");
    }
}

#[test]
fn names_that_steer_a_terminal_are_escaped() {
    let place = Place::with_model();
    let evil = "\u{1b}[2J\u{9b}1m";
    place.configure("m", |config| {
        for name in config["label_names"].as_array_mut().unwrap() {
            *name = evil.into();
        }
    });
    let weights = place.tensors("m/model.safetensors");
    let renamed = weights.into_iter().map(|(name, t)| (name + evil, t));
    let file = place.path("evil.safetensors");
    wave_hub::write_tensors(&file, &renamed.collect(), &Default::default()).unwrap();
    place.write_png(&format!("p/{evil}.png"));
    place.write(&format!("d/train/{evil}/1.png"), "no picture");
    place.write("d/val/a/1.png", "no picture");
    for args in [
        "inspect evil.safetensors",
        "inspect m",
        "eval evil.safetensors --data shapes",
        "predict m p",
        "predict m p --json",
        "predict m d",
        "data check d",
        "eval m --data d",
        "finetune m --data d --steps 1",
        "-v predict m p",
    ] {
        let output = place.loud(args).output().unwrap();
        for stream in [&output.stdout, &output.stderr] {
            let text = String::from_utf8_lossy(stream);
            assert!(
                !text.contains(['\u{1b}', '\u{9b}']),
                "wave {args}: {text:?}"
            );
        }
    }
    let found = place.json("predict m p");
    assert_eq!(found["predictions"][0]["label"], evil);
    assert!(place.stdout("predict m p").contains(r"\u001b[2J\u009b1m"));
}

#[test]
fn quiet_prints_errors_alone_and_verbose_says_more() {
    let place = Place::with_model();
    let train = format!("finetune m {SHAPES} --epochs 1");
    for args in [
        "inspect m",
        &format!("{train} --out a"),
        &format!("{train} --dry-run"),
    ] {
        let output = place.run(args);
        let printed = (output.stdout.len(), output.stderr.len());
        assert!(output.status.success() && printed == (0, 0), "{args}");
    }
    assert!(stderr(&place.run("inspect nothing")).contains("nothing"));

    let (normal, usual) = place.texts(&format!("{train} --out b"));
    let (verbose, told) = place.texts(&format!("{train} --out c -v"));
    for said in [
        "[finetune] of finetune",
        "train_limit = 256",
        "shapes: 256 training images, 64 test images, 8 classes",
        "steps 0 to 8 of batch 32",
        " s] ",
        "done on 1 threads",
        "peak memory",
    ] {
        assert!(!usual.contains(said), "{said}");
        assert!(told.contains(said), "{said}: {told}");
    }
    assert_eq!(normal.replace("out         b", "out         c"), verbose);
}

#[test]
fn results_are_aligned_and_have_units() {
    let place = Place::new();
    let made = place.stdout(&format!("{INIT} --out m"));
    assert_eq!(made.lines().next(), Some("out                     m"));
    let parameters = "parameters              27.8 k (27,848)";
    assert!(made.contains(parameters), "{made}");
    assert!(!made.contains("null") && !made.contains("top-1"), "{made}");
    let shown = place.stdout("inspect m");
    assert!(!shown.contains("fresh"), "{shown}");
    let found = place.json("inspect m");
    assert_eq!((&found["heads"], &found["patch"]), (&2.into(), &7.into()));
    assert_eq!(found["pooling"], "average");
}

#[test]
fn inspect_lists_the_tensors_of_the_file() {
    let place = Place::with_model();
    place.rewrite("m/model.safetensors", |weights| {
        weights.retain(|name, _| !name.ends_with("qkv.bias"))
    });
    place.configure("m", |config| config["digests"] = Value::Null); // of other weights
    let weights = place.tensors("m/model.safetensors");
    // A directory lists them on demand; a file tells nothing else.
    for (args, listed) in [
        ("inspect m", false),
        ("inspect m -v", true),
        ("inspect m/model.safetensors", true),
    ] {
        let shown = place.stdout(args);
        let row = "\n  blocks.0.attn.qkv.weight  ";
        assert_eq!(shown.contains(row), listed, "{args}: {shown}");
        let found = place.json(args);
        let names = found["tensors"].as_object().unwrap().keys();
        assert!(names.eq(weights.keys()), "{args}");
    }
}

#[test]
fn predictions_are_five_classes_a_table_and_directories() {
    let place = Place::with_model();
    for name in ["p/b/2.png", "p/a.png", "1.png"] {
        place.write_png(name);
    }
    place.write("p/notes.txt", "no picture");
    let found = place.json("predict m 1.png p --csv out/labels.csv");
    let found = found["predictions"].as_array().unwrap();
    let images: Vec<&str> = found.iter().map(|p| p["image"].as_str().unwrap()).collect();
    assert_eq!(images, ["1.png", "p/a.png", "p/b/2.png"]);
    for prediction in found {
        let top = prediction["top"].as_array().unwrap();
        assert_eq!(top.len(), 5);
        for key in ["index", "label", "probability"] {
            assert_eq!(prediction[key], top[0][key]);
        }
        assert_eq!(prediction["logits"].as_array().unwrap().len(), 8);
    }
    let table = place.text("out/labels.csv");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "image,index,label,probability");
    assert_eq!(lines.len(), 4);
    assert!(lines[3].starts_with("p/b/2.png,"), "{table}");
    let text = place.stdout("predict m 1.png");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (6, "1.png"));
    let aligned = |line: &&str| line.ends_with(" %") && line.len() == lines[1].len();
    assert!(lines[1..].iter().all(aligned), "{text}");
    #[cfg(unix)]
    {
        let text = place.stdout("predict m 1.png --csv /dev/stdout");
        assert!(text.contains("image,index,label,probability\n1.png,"));
        // Redirected into a file that is no .csv.
        let into = std::fs::File::create(place.path("log.txt")).unwrap();
        let mut command = place.loud("predict m 1.png --csv /dev/stdout");
        assert!(command.stdout(into).status().unwrap().success());
        assert_eq!(place.text("log.txt"), text);
    }
    place.write("empty/notes.txt", "no picture");
    place.refused("predict m empty", &["empty holds no image"]);
}

#[test]
fn flags_that_mean_nothing_to_a_command_are_refused() {
    let place = Place::with_model();
    for (args, flag) in [
        ("eval m --data shapes --lr 3", "--lr"),
        ("eval m --data shapes --resume", "--resume"),
        ("eval m --data shapes --out o", "--out"),
        ("predict m a.png --set a.b=1", "--set"),
        ("inspect m --dry-run", "--dry-run"),
        ("speed --out o", "--out"),
    ] {
        place.refused(args, &[flag]);
    }
    let wave = || {
        let mut wave = Command::new(env!("CARGO_BIN_EXE_wave"));
        wave.arg("inspect").arg(place.path("m"));
        wave
    };
    for refused in [
        wave().args(["--threads", "100000"]).output(),
        wave().env("RAYON_NUM_THREADS", "100000").output(),
    ] {
        let parts = ["expected 1 to 1024"];
        assert_fails(&refused.unwrap(), 2, "inspect m", &parts);
    }
    // A seed shuffles the images that a limit takes, and held-out images differ from the test images.
    let loss = |flags: &str| place.json(&format!("eval m --data shapes {flags}"))["loss"].clone();
    assert_ne!(loss("--test-limit 50"), loss("--test-limit 50 --seed 1"));
    assert_ne!(loss("--test-limit 50"), loss("--hold-out 50"));
    // Every seed holds out the same images.
    assert_eq!(loss("--hold-out 50"), loss("--hold-out 50 --seed 5"));
}

#[test]
fn misspelt_names_are_answered_with_what_was_meant() {
    let place = Place::new();
    place.write("photos/vals/notes.txt", "no picture");
    let init = "--depth 2 --width 64 --out o";
    for (args, meant) in [
        (format!("init mimetc {init}"), "mimetic"),
        (
            format!("init covarance --arch convmixer {init}"),
            "covariance",
        ),
        (format!("init timm --data shaps {init}"), "shapes"),
        (
            "condense r.toml --set condense.temprature=2".into(),
            "temperature",
        ),
        ("condense r.toml --set condens.lr=2".into(), "condense"),
        ("data check photo".into(), "photos"),
        ("data check photos/val".into(), "photos/vals"),
        ("data check fashon-mnist".into(), "fashion-mnist"),
        ("data check inverted:shaps".into(), "inverted:shapes"),
    ] {
        let said = place.refused(&args, &[]).replace('`', "");
        let hint = format!("did you mean {meant}?");
        assert!(said.contains(&hint), "wave {args}: {said}");
    }
}

#[test]
fn every_command_has_help_with_an_example_and_completions() {
    let place = Place::new();
    let (script, all) = (place.stdout("completions bash"), place.stdout("--help"));
    assert!(script.contains("_wave()"));
    let names = "run,bench,condense,expand,init,finetune,eval,predict,convert,inspect,publish,pull,\
                 data,speed,completions,data check,data pack";
    for name in names.split(',') {
        let command = name.split(' ').next().unwrap();
        assert!(script.contains(command) && all.contains(command), "{name}");
        let help = place.stdout(&format!("{name} --help"));
        let last = help.trim_end().rsplit("\n\n").next().unwrap();
        let start = format!("Example: wave {name} ");
        assert!(last.starts_with(&start), "{name}: {last}");
        let mut words = last.split_whitespace();
        if let Some(recipe) = words.find(|word| word.starts_with("recipes/")) {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            assert!(Path::new(root).join(recipe).exists(), "{recipe}");
        }
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    let status = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// Waits for the end of a process, which must come soon.
pub(crate) fn ended(mut child: Child) -> Output {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(600) {
            child.kill().unwrap();
            panic!("it went on: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

#[test]
#[cfg(unix)]
fn the_first_ctrl_c_ends_what_has_nothing_to_save() {
    let place = Place::new();
    place.json("init timm --data shapes --depth 12 --width 192 --heads 3 --patch 2 --out m");
    for args in [
        "speed --mode forward --depth 2 --steps 1000000",
        "eval m --data shapes",
    ] {
        let mut command = place.command(args);
        let child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let mut child = child.unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert!(child.try_wait().unwrap().is_none(), "{args}");
        signal(child.id(), "-INT");
        let output = ended(child);
        assert_fails(&output, 130, args, &[]);
        assert_eq!(stderr(&output), "wave: interrupted\n", "{args}");
    }
}

#[test]
#[cfg(unix)]
fn the_first_ctrl_c_saves_a_training() {
    let place = Place::with_model();
    let args = format!("finetune m {SHAPES} --checkpoint-steps 1 --out o --steps 100000");
    let child = start(&place, &args, "o/run/checkpoint.safetensors");
    signal(child.id(), "-INT");
    assert_fails(&ended(child), 130, &args, &["step"]);
}

/// A hub that answers requests for a model, but stalls in the middle of its weights.
#[cfg(unix)]
fn stalling_hub() -> String {
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let request = lines.next().unwrap().unwrap();
                while !lines.next().unwrap().unwrap().is_empty() {}
                let list = format!(
                    r#"{{"id":"someone/model","sha":"{commit}","siblings":[{{"rfilename":"config.json"}},{{"rfilename":"model.safetensors"}}]}}"#
                );
                let (length, body) = match request.starts_with("GET /api/") {
                    true => (list.len(), list),
                    false if request.starts_with("HEAD ") => (1_000_000, String::new()),
                    false => (1_000_000, "half of it".repeat(50_000)),
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\netag: \"{commit}\"\r\nx-repo-commit: {commit}\r\n\
                     content-length: {length}\r\nconnection: close\r\n\r\n"
                );
                stream.write_all((head + &body).as_bytes()).unwrap();
                if body.len() < length && !body.is_empty() {
                    let _ = stream.read(&mut [0]); // until the other end is closed
                }
            });
        }
    });
    format!("http://{address}")
}

/// The files below a directory.
#[cfg(unix)]
fn files_below(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => files_below(&path),
        false => vec![path],
    });
    files.collect()
}

#[test]
#[cfg(unix)]
fn ctrl_c_in_a_download_leaves_nothing_in_the_cache() {
    let place = Place::new();
    let mut command = place.command("pull someone/model");
    command
        .env("HF_ENDPOINT", stalling_hub())
        .env("HF_HOME", place.path("home"))
        .env_remove("HF_HUB_CACHE");
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let parts = || files_below(&place.path("home/hub/models--someone--model"));
    let began = Instant::now();
    while !parts()
        .iter()
        .any(|path| path.metadata().is_ok_and(|m| m.len() >= 400_000))
    {
        assert!(began.elapsed() < Duration::from_secs(600), "no part");
        if child.try_wait().unwrap().is_some() {
            panic!("it ended: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(child.id(), "-INT");
    assert_fails(&ended(child), 130, "pull", &[]);
    assert!(parts().is_empty(), "{:?}", parts());
}
