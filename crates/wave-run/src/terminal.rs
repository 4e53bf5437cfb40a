//! The one way to the terminal: messages on stderr, results on stdout.

use anyhow::{Context, Result};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::time::Instant;

/// Start of the process, if details were asked for (`-v`).
static DETAILED: OnceLock<Instant> = OnceLock::new();

/// Text from files, safe to show: control characters are escaped as in JSON, so that JSON stays valid.
pub fn printable(text: &str) -> Cow<'_, str> {
    let steers = |c: char| match c {
        '\n' | '\t' => false,
        // These change the direction of text.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    };
    if !text.contains(steers) {
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
        tell(&format!(
            "[{:.1} s] {}",
            began.elapsed().as_secs_f64(),
            text()
        ));
    }
}

/// Prints a result on stdout. A reader that closes early is no error.
///
/// # Errors
/// If stdout cannot be written for another reason.
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
    fn what_steers_a_terminal_is_escaped_and_json_stays_the_same() {
        let hostile = "\u{1b}[2Jx\u{9b}\u{7f}\r\u{202e}y\n\tz";
        let safe = r"\u001b[2Jx\u009b\u007f\u000d\u202ey".to_string() + "\n\tz";
        assert_eq!(printable(hostile), safe);
        assert!(matches!(printable("größer \u{1f30a}\n"), Cow::Borrowed(_)));
        let json = serde_json::json!({ hostile: hostile });
        let shown = json.to_string();
        let read: serde_json::Value = serde_json::from_str(&printable(&shown)).unwrap();
        assert_eq!(read, json);
    }
}
