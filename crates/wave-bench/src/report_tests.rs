use super::*;
use std::collections::BTreeMap;

/// The Markdown and the written files.
fn written(fixture: &Findings) -> (String, BTreeMap<String, String>) {
    let dir = tempfile::tempdir().unwrap();
    let text = write(fixture, dir.path()).unwrap();
    let files: BTreeMap<String, String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    assert_eq!(files["report.md"], text);
    (text, files)
}

#[track_caller]
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "no {line:?} in\n{text}");
    }
}

#[test]
fn methods_are_rows_with_a_column_for_each_size() {
    let mut fixture = Findings::of(&["wave", "mimetic"]);
    for row in fixture.rows("wave", 3, &[0.8712, 0.8655, 0.8690]) {
        row.transferred_parameters = 109_834;
        (row.stored_parameters, row.shared_epochs, row.start_top1) = (120_000, 12.0, 0.846);
    }
    fixture.rows("mimetic", 3, &[0.8501, 0.8533, 0.8490]);
    fixture.rows("mimetic", 6, &[0.8, 0.9]);
    // Neither is in the recipe.
    fixture.rows("unnamed", 6, &[0.99]);
    fixture.rows("wave", 12, &[0.99]);
    let (text, files) = written(&fixture);
    has(
        &text,
        &[
            "| method | extra epochs | transferred | stored | 3 x 64 (192.0 K) | 6 x 64 (384.0 K) |",
            "| wave | 12 | 109.8 K | 120.0 K | **86.86** ± 0.29 (84.6) |  |",
            "| mimetic | 0 | 0 | 0 | 85.08 ± 0.22 (10.0) | **85.00** ± 7.07 (10.0), 2 of 3 seeds |",
            "| 3 x 64 | mimetic | all | +1.78 | 6.34 | 0.024 | 3 |",
            "wave has 86.9 % after 1 epoch of fine-tuning at 3 x 64, 1.8 points ahead of the best other \
             method there, mimetic, with 85.1 %.",
        ],
    );
    // Two points, start and end, are not a curve.
    assert_eq!(files.keys().collect::<Vec<_>>(), ["report.md", "sizes.svg"]);
}

#[test]
fn methods_of_each_length_have_a_table() {
    let names = ["he", "Direct PT", "wave", "he-10"];
    let mut fixture = Findings::of(&names);
    for depth in [3, 6] {
        for name in names {
            let row = &mut fixture.rows(name, depth, &[0.5])[0];
            match name {
                "wave" => {
                    (row.top1, row.transferred_parameters) = (0.8, 1_293_000);
                    (row.shared_epochs, row.own_epochs) = (12.0, 0.25);
                    row.stored_parameters = 1_500_000;
                }
                "Direct PT" => {
                    (row.top1, row.own_epochs, row.epochs) = (0.75, 150.0, 1.0004);
                    row.stored_parameters = 64_000 * depth;
                }
                "he-10" => row.epochs = 10.0,
                _ => {}
            }
        }
    }
    fixture.grid.bench.seeds = vec![0];
    let (text, _) = written(&fixture);
    has(
        &text,
        &[
            "Fine-tuned for 1 epoch:",
            "| method | extra epochs | transferred | stored | 3 x 64 (192.0 K) | 6 x 64 (384.0 K) |",
            "| wave | 12 + 2 × 0.25 = 12.5 | 1.29 M | 1.50 M | **80.00** (10.0) | **80.00** (10.0) |",
            "| Direct PT | 2 × 150 = 300 | 0 | 288.0 K | 75.00 (10.0) | 75.00 (10.0) |",
            "Fine-tuned for 10 epochs:",
            "| he-10 | 0 | 0 | 0 | **50.00** (10.0) | **50.00** (10.0) |",
            "| 3 x 64 | Direct PT | all | +5.00 |  |  | 1 |",
        ],
    );
}

#[test]
fn a_rival_with_part_of_an_epoch_more_is_the_best_other() {
    let mut fixture = Findings::of(&["wave", "he", "timm"]);
    fixture.rows("wave", 3, &[0.8]);
    fixture.rows("he", 3, &[0.5]);
    fixture.rows("timm", 3, &[0.75])[0].epochs = 1.0004;
    let (text, _) = written(&fixture);
    let lead = "5.0 points ahead of the best other method there, timm, with 75.0 %.";
    assert!(text.contains(lead), "{text}");
    has(&text, &["| 3 x 64 | timm | all | +5.00 |  |  | 1 |"]);
}

#[test]
fn nothing_found_is_a_report_too() {
    let failures = [Failure {
        cell: "wave-3x64-s0".to_owned(),
        error: "a | b <script>".to_owned(),
    }];
    let mut fixture = Findings::of(&["wave", "mimetic"]);
    fixture.pair("wave", "mimetic");
    fixture.ablation("Parts", &["wave"]);
    fixture.failures = &failures;
    let (text, _) = written(&fixture);
    has(&text, &["- wave-3x64-s0: a \\| b \\<script>"]);
    assert!(text.contains("No training run has finished."), "{text}");
    fixture.grid.bench.seeds.clear();
    fixture.grid.datasets.clear();
    let (text, _) = written(&fixture);
    has(&text, &["# grid"]);
}

#[test]
fn every_data_set_has_its_tables() {
    let mut fixture = Findings::of(&["wave", "mimetic"]);
    fixture.grid.datasets = ["a/b", "c"]
        .map(|name| (name.to_owned(), Default::default()))
        .into();
    for dataset in ["a/b", "c"] {
        let row = fixture.curve("wave", &[(0.0, 0.5), (1.0, 0.7), (4.0, 0.9)]);
        row.dataset = dataset.to_owned();
    }
    let rival = fixture.curve("mimetic", &[(0.0, 0.1), (4.0, 0.7), (8.0, 0.8)]);
    rival.dataset = "c".to_owned();
    fixture.pair("wave", "mimetic");
    fixture.ablation("Components (Table 4)", &["mimetic", "wave"]);
    let (text, files) = written(&fixture);
    has(
        &text,
        &[
            "## Accuracy on a/b",
            "## Accuracy on c",
            "## Ablation: Components (Table 4)",
            "No other method was fine-tuned for as long as wave.",
            "| wave | 4 | **90.00** (50.0), 1 of 3 seeds |",
            "| c, 6 x 64 | wave | mimetic | 70.00 % (epoch 1) | 1.00 | 4.00 | from the first model | from the \
             first model |",
        ],
    );
    assert!(files.contains_key("curve-a-b-6x64.svg") && files.contains_key("curve-c-6x64.svg"));
}

/// Epochs of fine-tuning, and the methods of equal length, are those of each data set.
#[test]
fn lengths_are_those_of_each_data_set() {
    let mut fixture = Findings::of(&["wave", "timm", "late"]);
    fixture.grid.bench.seeds = vec![0];
    fixture.grid.datasets = ["a", "b"]
        .map(|name| (name.to_owned(), Default::default()))
        .into();
    for (method, dataset, epochs) in [
        ("wave", "a", 1.0),
        ("wave", "b", 3.0),
        ("timm", "a", 1.0),
        ("late", "b", 3.0),
    ] {
        let row = &mut fixture.rows(method, 6, &[if method == "wave" { 0.8 } else { 0.5 }])[0];
        (row.dataset, row.epochs, row.own_epochs) = (dataset.to_owned(), epochs, 0.5);
    }
    fixture.ablation("Parts", &["wave"]);
    let (text, _) = written(&fixture);
    has(
        &text,
        &[
            "Fine-tuned for 1 epoch:",
            "Fine-tuned for 3 epochs:",
            // Pretrained at the one size of two that has rows.
            "| wave | 1 × 0.5 = 0.5 | 0 | 0 | **80.00** (10.0) |",
            "| 6 x 64 | timm | all | +30.00 |  |  | 1 |",
            "| 6 x 64 | late | all | +30.00 |  |  | 1 |",
            "| wave | 1 | **80.00** (10.0) |",
            "| wave | 3 | **80.00** (10.0) |",
        ],
    );
    assert!(!text.contains("2 epochs"), "{text}");
}

#[test]
fn rates_say_what_they_were_chosen_from_and_where_that_ends() {
    let words = |lr, grid| {
        rate(&Rates {
            method: "a".to_owned(),
            dataset: String::new(),
            lr,
            grid,
        })
    };
    let grid = vec![(5e-4, 0.777), (1e-3, 0.7996), (2e-3, 0.8)];
    let chosen = "chosen from 5e-4: 77.70 %, 1e-3: 79.96 %, 2e-3: 80.00 %";
    let highest = format!("a: 2e-3, {chosen}; the highest tried, so a higher one may be better");
    assert_eq!(words(1e-3, Vec::new()), "a: 1e-3 (given)");
    assert_eq!(words(2e-3, grid.clone()), highest);
    assert_eq!(words(1e-3, grid), format!("a: 1e-3, {chosen}"));
}
