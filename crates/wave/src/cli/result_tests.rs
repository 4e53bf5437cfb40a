use super::*;
use serde_json::json;

#[test]
fn a_result_is_aligned_rows() {
    let result = json!({
        "out": "runs/a",
        "parameters": 1_234_567,
        "top1": 0.9008,
        "loss": 0.34567,
        "top5": null,
        "ledger": { "templates": 9_216, "fresh": null },
        "lengths": [
            { "length": 8, "top1": 1.0, "logits": [1] },
            { "length": 16, "top1": 0.5, "exact": null },
        ],
        "broken": [],
        "tensors": { "pos_embed": [1, 16, 32], "scale": [] },
    });
    let expected = "\
out         runs/a
parameters  1.2 M (1,234,567)
top-1       90.1 %
loss        0.3457
ledger
  templates  9,216
lengths
  length    top-1
       8  100.0 %
      16   50.0 %
tensors
  pos_embed  1 x 16 x 32
  scale
";
    assert_eq!(text(&result, true), expected);
    assert_eq!(text(&json!({ "report": "# All" }), true), "# All");
    let short = text(&result, false);
    assert!(
        short.ends_with("tensors     2, listed with -v\n"),
        "{short}"
    );
}

#[test]
fn long_names_are_cut_and_line_breaks_make_no_rows() {
    let long = "x".repeat(70_000);
    let result = json!({
        long.clone(): 1,
        "tensors": { long.clone(): [1, 2], "a\n  b": [3] },
        "accuracies": [{ "condition": long, "top1": 0.5 }, { "condition": "a\nb", "top1": 1.0 }],
        "path": "here\nthere",
    });
    let shown = text(&result, true);
    assert_eq!(shown.lines().count(), 9, "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() < 100),
        "{shown}"
    );
    for part in [r"a\u000a  b", r"a\u000ab", r"here\u000athere", "…"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn numbers_are_short_and_have_units() {
    for (key, given, expected) in [
        ("peak_rss_bytes", json!(3_000_000), "3.00 MB"),
        ("seconds", json!(12.0), "12.0 s"),
        ("step_ms_median", json!(1234.56), "1235"),
        ("lr", json!(1e-7), "1e-7"),
        ("mean", json!([0.5, 0.4375]), "0.5, 0.4375"),
        ("depth_range", json!([2, 12]), "2 to 12"),
        ("top1_range", json!([0.5, 0.75]), "50.0 % to 75.0 %"),
        ("loss", json!(-2.0), "-2"),
    ] {
        assert_eq!(value(key, &given), expected, "{key}");
    }
}
