//! Terminal output: messages on stderr, results on stdout.

use anyhow::{Context, Result};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Instant;

/// Start of the process, if details were asked for (`-v`).
static DETAILED: OnceLock<Instant> = OnceLock::new();

/// The widest column of a table, in characters.
const WIDEST: usize = 80;

/// Text from files, safe to show: control characters are escaped as in JSON, so that JSON stays valid.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !['\n', '\t'].contains(&c) && steers(c))
}

/// [`printable`] text on a single line: a name with a line break does not start a new row.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

/// A cell of a table: text on one line, cut if no column is wide enough.
pub fn cell(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(WIDEST) {
        None => text.into_owned(),
        Some(_) => text.chars().take(WIDEST - 1).chain(['…']).collect(),
    }
}

/// The width of a column of these cells, which [`cell`] bounds: the formatter panics on a large one.
pub fn column<'a>(cells: impl IntoIterator<Item = &'a str>) -> usize {
    let widths = cells.into_iter().map(|cell| cell.chars().count());
    widths.max().unwrap_or(0).min(WIDEST)
}

/// True if a character controls the terminal instead of being shown.
fn steers(c: char) -> bool {
    match c {
        // These change the direction of text, or break lines.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => true,
        c => c.is_control(),
    }
}

/// Text with some characters escaped as in JSON.
fn escaped(text: &str, steers: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&steers) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match steers(c) {
            true => _ = write!(safe, "\\u{:04x}", c as u32),
            false => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Prints a line on stderr; failures to write are ignored.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// Turns [`detail`] on.
pub fn show_details() {
    let _ = DETAILED.set(Instant::now());
}

/// With `-v`, prints a line on stderr with the time since the start.
pub fn detail(text: impl FnOnce() -> String) {
    if let Some(began) = DETAILED.get() {
        let seconds = began.elapsed().as_secs_f64();
        tell(&format!("[{seconds:.1} s] {}", text()));
    }
}

/// Prints a result on stdout. A reader that closes early is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    let printed = stdout
        .write_all(printable(text).as_bytes())
        .and_then(|()| stdout.flush());
    match printed {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e).context("cannot print the result"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_one_line_of_a_column_at_most() {
        assert_eq!(cell("x\n  y  99 %"), r"x\u000a  y  99 %");
        assert_eq!(cell(&"ü".repeat(WIDEST)), "ü".repeat(WIDEST));
        for long in [WIDEST + 1, 300, 70_000] {
            let found = cell(&"ü".repeat(long));
            assert_eq!(found, "ü".repeat(WIDEST - 1) + "…");
            assert_eq!(column(["a", &found]), WIDEST);
        }
        assert_eq!(column(["a", &"b".repeat(70_000)]), WIDEST);
        assert_eq!(column([]), 0);
    }

    #[test]
    fn what_steers_a_terminal_is_escaped_and_json_stays_the_same() {
        let hostile = "\u{1b}[2Jx\u{9b}\u{7f}\r\u{202e}y\n\tz";
        let safe = r"\u001b[2Jx\u009b\u007f\u000d\u202ey".to_string() + "\n\tz";
        assert_eq!(printable(hostile), safe);
        assert_eq!(one_line("a\n\tb\u{2028}"), r"a\u000a\u0009b\u2028");
        assert!(matches!(printable("größer \u{1f30a}\n"), Cow::Borrowed(_)));
        let json = serde_json::json!({ hostile: hostile });
        let shown = json.to_string();
        let read: serde_json::Value = serde_json::from_str(&printable(&shown)).unwrap();
        assert_eq!(read, json);
    }
}
