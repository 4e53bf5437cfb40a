//! Names of several files at once: `a/{00000..00099}.tar`, `{train,extra}-*.parquet`.

use std::path::{Path, PathBuf};

use crate::DataError;
use crate::listing::TEST;

/// A pattern stands for at most this many files.
const MAX_FILES: usize = 1_000_000;

/// Splits `TRAIN,TEST` at the first comma outside braces.
pub(crate) fn split(spec: &str) -> (&str, Option<&str>) {
    let mut depth = 0;
    for (i, c) in spec.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => return (&spec[..i], Some(&spec[i + 1..])),
            _ => {}
        }
    }
    (spec, None)
}

/// The files of a pattern, in order: braces as in a shell (all must exist), `*` in a file's name (any that exist).
pub(crate) fn expand(pattern: &str) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    for name in braces(pattern)? {
        if name.contains('*') {
            files.extend(starred(Path::new(&name))?);
        } else if Path::new(&name).is_file() {
            files.push(name.into());
        } else {
            return Err(DataError::Settings(format!(
                "`{name}` is not a file; `{pattern}` needs it"
            )));
        }
    }
    if files.is_empty() {
        return Err(DataError::Settings(format!("`{pattern}` matches no file")));
    }
    Ok(files)
}

fn braces(pattern: &str) -> Result<Vec<String>, DataError> {
    let fail = |why: &str| Err(DataError::Settings(format!("`{pattern}`: {why}")));
    let Some(open) = pattern.find('{') else {
        return Ok(vec![pattern.to_owned()]);
    };
    let Some(length) = pattern[open..].find('}') else {
        return fail("a brace is not closed; expected {00000..00099} or {a,b}");
    };
    let inside = &pattern[open + 1..open + length];
    let choices: Vec<String> = match inside.split_once("..") {
        Some((first, last)) => {
            let (Ok(from), Ok(to)) = (first.parse::<usize>(), last.parse::<usize>()) else {
                return fail("expected numbers, as in {00000..00099}");
            };
            if from > to || to - from >= MAX_FILES {
                return fail("expected an ascending range of fewer than a million files");
            }
            let width = first.len();
            if width > 255 {
                return fail("has numbers with more digits than a file name can have, 255");
            }
            (from..=to).map(|k| format!("{k:0width$}")).collect()
        }
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let (before, after) = (&pattern[..open], &pattern[open + length + 1..]);
    let rest = braces(after)?;
    if choices.len().saturating_mul(rest.len()) > MAX_FILES {
        return fail("matches more than a million files");
    }
    let mut names = Vec::new();
    for choice in &choices {
        names.extend(rest.iter().map(|after| format!("{before}{choice}{after}")));
    }
    Ok(names)
}

/// The files of a directory whose names match the last part of `path`, sorted.
pub(crate) fn starred(path: &Path) -> Result<Vec<PathBuf>, DataError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let dir = dir.unwrap_or(Path::new("."));
    let wanted = path.file_name().unwrap_or_default().to_string_lossy();
    let fail = DataError::open(dir);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(fail)? {
        let file = entry.map_err(fail)?.file_name();
        let text = file.to_string_lossy();
        if !text.starts_with('.') && matches_star(&text, &wanted) {
            found.push(dir.join(&file));
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn matches_star(text: &str, pattern: &str) -> bool {
    let Some((first, others)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let (middle, last) = others.rsplit_once('*').unwrap_or(("", others));
    let Some(mut rest) = text.strip_prefix(first).and_then(|t| t.strip_suffix(last)) else {
        return false;
    };
    for part in middle.split('*') {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    true
}

/// True if one of the words of a file's name is `val`, `valid`, `validation` or `test`, and none is `train`.
pub(crate) fn is_test(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let words = name.split(|c: char| !c.is_ascii_alphabetic());
    let is_word = |word: &str| words.clone().any(|w| w.eq_ignore_ascii_case(word));
    (TEST.into_iter().any(is_word) || is_word("valid")) && !is_word("train")
}

#[cfg(test)]
#[path = "pattern_tests.rs"]
mod tests;
