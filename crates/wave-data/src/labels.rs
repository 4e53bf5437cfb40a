//! Labels of images that are not in class folders: a table with a line for each image, its file and its class.
//!
//! The file is named with or without its extension; the class is a training folder's name or its number.
//! Commas, semicolons or tabs separate the columns, with quotes where a field contains one; without
//! separators, white space does, and the class is the rest of the line. This covers Caffe's `val.txt` and
//! a `metadata.csv` or `metadata.jsonl` next to images, as in the datasets library.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::DataError;
use crate::listing::is_part;
use crate::source::{check_label, numbered, read_whole};

/// A longer file is not a list of labels.
const MAX_BYTES: u64 = 1 << 30;

/// Header names of the file column, and of the class column, most likely first.
const FILES: &str =
    "file_name filename file filepath path image image_name image_id imageid img id name";
const CLASSES: &str = "label labels class class_name classname category target species breed";

/// Column separators.
const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// Tables of files and labels among images, as in the datasets library.
pub const METADATA: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

/// The files that may hold the labels of the directory `part`, if its name is text: `val.txt`, `val_labels.txt`,
/// `val.csv` beside it (of a directory `val`), or `labels.txt` or `labels.csv` in it.
pub fn label_files(part: &Path) -> Option<Vec<PathBuf>> {
    let name = part.file_name()?.to_str()?;
    let beside = [
        format!("{name}.txt"),
        format!("{name}_labels.txt"),
        format!("{name}.csv"),
    ];
    let beside = beside.iter().map(|file| part.with_file_name(file));
    let within = ["labels.txt", "labels.csv"].map(|file| part.join(file));
    Some(beside.chain(within).collect())
}

/// The label file of the directory `part`, or metadata in it, if there is one.
pub(crate) fn find(part: &Path) -> Option<PathBuf> {
    let found = label_files(part)?.into_iter().find(|file| file.is_file());
    found.or_else(|| metadata(part))
}

/// The metadata in the directory `part`, or next to it, if they have a column of labels.
pub(crate) fn metadata(part: &Path) -> Option<PathBuf> {
    let name = part.file_name().unwrap_or_default().to_string_lossy();
    let above = part.parent().filter(|_| is_part(&name));
    let places = [Some(part), above].into_iter().flatten();
    let mut files = places.flat_map(|dir| METADATA.map(|file| dir.join(file)));
    files.find(|file| file.is_file() && Table::read(file, part).is_ok_and(|table| table.labelled))
}

/// The classes that a file gives to `names`, images of `part`, unless they are `known`, and the label of each.
pub(crate) fn read(
    file: &Path,
    part: &Path,
    names: &[String],
    known: Option<Vec<String>>,
) -> Result<(Vec<String>, Vec<u32>), DataError> {
    let table = Table::read(file, part)?;
    let read = || {
        let classes = known.map_or_else(|| table.classes(names), Ok)?;
        let labels = table.labels(names, &classes)?;
        Ok((classes, labels))
    };
    read().map_err(|problem: String| DataError::content(file, problem))
}

/// The lines of a file, each with its class, by the name of the image without folders.
#[derive(Default)]
struct Table {
    /// The folder of the images.
    part: String,
    rows: BTreeMap<String, Vec<(usize, String)>>,
    /// True if the file declares a class column.
    labelled: bool,
}

impl Table {
    fn read(file: &Path, part: &Path) -> Result<Table, DataError> {
        let bytes = read_whole(file, MAX_BYTES, DataError::open(file))?;
        let wrong = |problem| DataError::content(file, problem);
        if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
            return Err(wrong("is text in UTF-16; save it as UTF-8".to_owned()));
        }
        let text = String::from_utf8_lossy(&bytes);
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        let mut table = Table {
            part: name.into_owned(),
            ..Table::default()
        };
        let filled = match file.extension().is_some_and(|e| e == "jsonl") {
            true => table.fill_from_json(text),
            false => table.fill_from_text(text),
        };
        filled.map(|()| table).map_err(wrong)
    }

    fn fill_from_json(&mut self, text: &str) -> Result<(), String> {
        for (line, text) in (1..).zip(text.lines()) {
            if text.trim().is_empty() {
                continue;
            }
            let row: Value = serde_json::from_str(text)
                .map_err(|error| format!("line {line}: is not JSON ({error})"))?;
            let of = |keys: &str| keys.split(' ').map(|key| &row[key]).find(|v| !v.is_null());
            if let (Some(Value::String(file)), Some(class)) = (of(FILES), of(CLASSES)) {
                let text = match class {
                    Value::String(text) => text.clone(),
                    Value::Array(_) | Value::Object(_) => {
                        return Err(format!(
                            "line {line}: the class is {class}; expected text or a number"
                        ));
                    }
                    other => other.to_string(),
                };
                self.labelled = true;
                self.push(line, file, &text);
            }
        }
        Ok(())
    }

    fn fill_from_text(&mut self, text: &str) -> Result<(), String> {
        let separator = common_separator(text);
        let mut columns = None;
        for (line, record) in records(text) {
            let mut fields = match separator {
                Some(separator) => fields(record, |c| c == separator),
                None => fields(record, char::is_whitespace),
            }
            .ok_or_else(|| format!("line {line}: a quote is not closed"))?;
            if separator.is_none() {
                fields.retain(|word| !word.is_empty());
                if fields.len() > 2 {
                    let class = fields.split_off(1).join(" ");
                    fields.push(class);
                }
            }
            let (file, class) = *columns.get_or_insert_with(|| {
                let names = fields.iter().map(|field| field.trim().to_ascii_lowercase());
                let names: Vec<String> = names.collect();
                let column = |words: &str| {
                    let mut words = words.split(' ');
                    words.find_map(|word| names.iter().position(|name| name == word))
                };
                let named = column(FILES).zip(column(CLASSES));
                self.labelled = named.is_some();
                named.unwrap_or((0, 1))
            });
            if fields.len() > file.max(class) {
                self.push(line, &fields[file], &fields[class]);
            }
        }
        Ok(())
    }

    fn push(&mut self, line: usize, file: &str, class: &str) {
        let file = file.trim();
        let folder = file.rsplit(['/', '\\']).nth(1);
        // One table may list the images of all splits.
        if folder.is_some_and(|folder| is_part(folder) && folder != self.part) {
            return;
        }
        let rows = self.rows.entry(file_name(file).to_owned());
        rows.or_default().push((line, class.trim().to_owned()));
    }

    /// The line and the class of an image.
    fn class(&self, name: &str) -> Result<(usize, &str), String> {
        let name = file_name(name);
        let found = [name, stem(name)].iter().find_map(|n| self.rows.get(*n));
        let found = found.ok_or_else(|| {
            let quoted = match name.contains(char::is_whitespace) {
                true => format!("\"{name}\""),
                false => name.to_owned(),
            };
            format!("does not name {name}; expected a line `{quoted} CLASS` for each image")
        })?;
        let (line, class) = &found[0];
        match found.iter().find(|(_, other)| other != class) {
            None if class.is_empty() => Err(format!("line {line}: {name} has no class")),
            None => Ok((*line, class)),
            Some((other, of)) => Err(format!(
                "gives {name} two classes: `{class}` in line {line}, `{of}` in line {other}; \
                 expected one"
            )),
        }
    }

    /// The classes of some images, sorted; for numbers, all up to the largest.
    fn classes(&self, names: &[String]) -> Result<Vec<String>, String> {
        let all = names.iter().map(|name| Ok(self.class(name)?.1));
        let all: BTreeSet<&str> = all.collect::<Result<_, String>>()?;
        // Numbers are labels: classes without an image keep their number.
        let number = |class: &&str| class.parse().ok().and_then(check_label);
        let numbers: Option<BTreeSet<u32>> = all.iter().map(number).collect();
        Ok(match numbers.and_then(|numbers| numbers.last().copied()) {
            Some(highest) => numbered(highest),
            None => all.into_iter().map(str::to_owned).collect(),
        })
    }

    fn labels(&self, names: &[String], classes: &[String]) -> Result<Vec<u32>, String> {
        let by_name: BTreeMap<&str, u32> =
            (0..).zip(classes).map(|(k, c)| (c.as_str(), k)).collect();
        let highest = classes.len().saturating_sub(1);
        let of = |class: &str| {
            let number = || class.parse().ok();
            let number = || number().filter(|&k: &u32| (k as usize) < classes.len());
            by_name.get(class).copied().or_else(number)
        };
        let label = |name: &String| {
            let (line, class) = self.class(name)?;
            of(class).ok_or_else(|| {
                format!(
                    "line {line}: `{class}` is not a class; expected a training folder's name or a \
                     number from 0 to {highest}"
                )
            })
        };
        names.iter().map(label).collect()
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// The lines that are not blank, with their numbers; quoted fields may span several lines.
fn records(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut quoted = false;
    let lines = text.split(move |c| {
        quoted ^= c == '"';
        c == '\n' && !quoted
    });
    let mut next = 1;
    let numbered = lines.map(move |line| {
        let begun = next;
        next += 1 + line.matches('\n').count();
        (begun, line.strip_suffix('\r').unwrap_or(line))
    });
    numbered.filter(|(_, line)| !line.trim().is_empty())
}

/// The separator that comes first in every line, outside quotes. None if lines differ, as when class names
/// merely contain a comma.
fn common_separator(text: &str) -> Option<char> {
    let mut all = records(text).map(|(_, line)| {
        let mut quoted = false;
        line.trim_start().chars().find(|c| {
            quoted ^= *c == '"';
            !quoted && SEPARATORS.contains(c)
        })
    });
    let first = all.next()?;
    first.filter(|_| all.all(|other| other == first))
}

/// The fields of a record, without their quotes; None if a quote is not closed.
fn fields(record: &str, is_separator: impl Fn(char) -> bool) -> Option<Vec<String>> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut characters = record.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted => quoted = false,
            // Elsewhere in a field a quote is an ordinary character.
            '"' if field.trim().is_empty() => {
                field.clear();
                quoted = true;
            }
            c if !quoted && is_separator(c) => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    (!quoted).then_some(fields)
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
