//! Output for people: logs, and the page of `wave inspect --html`.

use crate::resume::kill;
use crate::support::{Place, SHAPES};
use candle_core::{DType, Device, Tensor};
use serde_json::Value;

/// The table of the log without the column of speeds, which differ between runs.
fn table(place: &Place, dir: &str) -> Vec<Vec<String>> {
    let text = place.text(&format!("{dir}/run/log.csv"));
    let cells = |line: &str| line.split(',').map(String::from).collect();
    let mut rows: Vec<Vec<String>> = text.lines().map(cells).collect();
    let mut head = rows[0].iter();
    let speed = head.position(|c| c == "images_per_second").unwrap();
    for row in &mut rows {
        assert_eq!(row.len(), 9, "{row:?}");
        row.remove(speed);
    }
    rows
}

/// Checks that the three logs say the same.
fn check_logs(place: &Place, dir: &str) {
    let text = place.text(&format!("{dir}/run/log.jsonl"));
    let table = table(place, dir);
    assert_eq!(text.lines().count() + 1, table.len());
    for (row, line) in table[1..].iter().zip(text.lines()) {
        let entry: Value = serde_json::from_str(line).unwrap();
        for (key, cell) in table[0].iter().zip(row) {
            assert_eq!(entry[key].as_f64(), cell.parse().ok(), "{key}");
        }
    }
    let events = place.bytes(&format!("{dir}/run/events.out.tfevents.0.wave"));
    for tag in [
        "brain.Event:2",
        "train/loss",
        "train/learning_rate",
        "test/top1",
        "test/loss",
    ] {
        let held = events.windows(tag.len()).any(|w| w == tag.as_bytes());
        assert!(held, "{tag}");
    }
}

#[test]
fn a_run_that_goes_on_has_the_log_of_one_that_was_not_killed() {
    let place = Place::with_model();
    let args = format!("finetune m {SHAPES} --epochs 6 --checkpoint-steps 3");
    place.json(&format!("{args} --out whole"));
    check_logs(&place, "whole");
    kill(&place, &format!("{args} --out killed"), "killed");
    // An entry cut short by a kill.
    let log = "killed/run/log.jsonl";
    place.write(log, place.text(log) + "{\"step\": 9");
    place.json(&format!("{args} --out killed --resume"));
    assert_eq!(table(&place, "whole"), table(&place, "killed"));
    let plot = |dir: &str| place.bytes(&format!("{dir}/run/loss.svg"));
    assert_eq!(plot("whole"), plot("killed"));
}

/// A page without what is in its scripts, which is not markup.
fn without_scripts(page: &str) -> String {
    let mut parts = page.split("<script");
    let mut kept = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let (_, after) = part.split_once("</script>").expect("a script that ends");
        kept += after;
    }
    kept
}

/// Checks that elements close in the reverse order of opening, and that all attributes are quoted.
fn check_markup(page: &str) {
    const VOID: [&str; 3] = ["meta", "img", "input"];
    let mut open: Vec<String> = Vec::new();
    let page = without_scripts(page);
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("a tag that ends");
        let (tag, after) = (&rest[..end], &rest[end + 1..]);
        rest = after;
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        let name = tag.trim_start_matches('/').split([' ', '\n', '/']).next();
        let name = name.unwrap().to_string();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
}

#[test]
fn inspect_writes_one_page() {
    let place = Place::with_templates();
    place.json(&format!(
        "expand t --depth 2 --width 32 --steps 4 {SHAPES} --out e"
    ));
    for (dir, parts) in [
        (
            "t",
            &["anchor 0 fc1", "Training loss", "composer-depth"][..],
        ),
        (
            "e",
            &["layer 1 fc2", "Learning rate", "blocks.1.attn.qkv.weight"],
        ),
        ("e/scalers.safetensors", &["layer 0 qkv"]),
    ] {
        let found = place.json(&format!("inspect {dir} --html p/page.html"));
        assert_eq!(found["html"], "p/page.html");
        let page = place.text("p/page.html");
        check_markup(&page);
        for part in parts {
            assert!(page.contains(part), "{dir}: {part}");
        }
        assert!(page.contains("src=\"data:image/png;base64,"));
        assert!(page.contains("name=\"viewport\""));
        // No external resources; scripts where models are composed.
        for foreign in [
            "<link",
            "src=\"http",
            "url(",
            "@import",
            "fetch(",
            "<script src",
        ] {
            assert!(!page.contains(foreign), "{dir}: {foreign}");
        }
        assert_eq!(page.contains("<script"), dir == "t");
        assert!(page.len() < 4_000_000, "{}", page.len());
    }
    let again = place.text("p/page.html");
    place.json("inspect e/scalers.safetensors --html p/page.html");
    assert_eq!(again, place.text("p/page.html"));
}

#[test]
fn names_in_files_do_not_become_markup() {
    let place = Place::with_model();
    let evil = "</td><script>alert('1')</script>\"&";
    place.configure("m", |config| {
        config["label_names"][0] = evil.into();
        config["wave"] = serde_json::json!({ "parameters": {evil: 1}, evil: evil });
    });
    place.write(
        "m/run/log.jsonl",
        format!("{{\"step\": 1}}\n[{evil}\n\"{evil}\"\n"),
    );
    place.json("inspect m --html page.html");
    // A file of tensors with such names.
    let one = Tensor::zeros((2, 1, 1), DType::F32, &Device::Cpu).unwrap();
    let weights = [(format!("scalers.0.{evil}"), one)].into();
    let metadata = [(evil.to_string(), evil.to_string())].into();
    wave_hub::write_tensors(&place.path("<b>.safetensors"), &weights, &metadata).unwrap();
    place.json("inspect <b>.safetensors --html file.html");
    for page in ["page.html", "file.html"] {
        let page = place.text(page);
        check_markup(&page);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
    }
}
