//! Labels of images that are not in class folders: a table with a line for each image, its file and its class.
//!
//! The file is named with or without its extension; the class is a training folder's name or its number.
//! Commas, semicolons or tabs separate the columns, with quotes where a field contains one; without
//! separators, white space does, and the class is the rest of the line. This covers Caffe's `val.txt` and
//! a `metadata.csv` or `metadata.jsonl` next to images, as in the datasets library: a header or keys name its
//! columns, and every line names an image that is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::DataError;
use crate::listing::{entries, is_part};
use crate::source::{check_label, numbered, read_whole};

/// A longer file is not a list of labels.
const MAX_BYTES: u64 = 1 << 30;

/// Header names of the file column, and of the class column, most likely first.
const FILES: &str =
    "file_name filename file filepath path image image_name image_id imageid img id name";
const CLASSES: &str = "label labels class class_name classname category target species breed";

/// Columns of metadata that have no class on purpose: captions, questions, objects in an image.
const NO_CLASSES: &str = "text caption captions prompt description question answer conversations messages \
    ground_truth objects bbox bboxes mask";

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
pub(crate) fn find(part: &Path) -> Result<Option<Table>, DataError> {
    let files = label_files(part).unwrap_or_default();
    match files.into_iter().find(|file| file.is_file()) {
        None => metadata(part),
        Some(file) => Table::read(&file, part).map(Some),
    }
}

/// The metadata in the directory `part`, or next to it, if they have labels. Captions alone are none; other metadata
/// without a column of labels are an error, since images would silently lose theirs.
pub(crate) fn metadata(part: &Path) -> Result<Option<Table>, DataError> {
    let name = part.file_name().unwrap_or_default().to_string_lossy();
    let above = part.parent().filter(|_| is_part(&name));
    let places = [Some(part), above].into_iter().flatten();
    for file in places.flat_map(|dir| METADATA.map(|file| dir.join(file))) {
        if file.is_file() {
            let table = Table::read(&file, part)?;
            if table.labelled {
                return Ok(Some(table));
            }
        }
    }
    Ok(None)
}

fn is_metadata(file: &Path) -> bool {
    METADATA.iter().any(|name| file.ends_with(name))
}

/// The classes that a table gives to `names`, images of `part`, unless they are `known`, and the label of each.
pub(crate) fn read(
    table: &Table,
    part: &Path,
    names: &[String],
    known: Option<Vec<String>>,
) -> Result<(Vec<String>, Vec<u32>), DataError> {
    let file = &table.file;
    // One table may list the images of all splits.
    let beside = match file.parent() == Some(part) {
        true => Vec::new(),
        false => other_splits(part)?,
    };
    let read = || {
        // Lists such as Caffe's may be longer than the images that someone keeps.
        if is_metadata(file) {
            let present = names.iter().chain(&beside);
            table.check_present(present.map(|name| file_name(name)).collect())?;
        }
        let classes = known.map_or_else(|| table.classes(names), Ok)?;
        let labels = table.labels(names, &classes)?;
        Ok((classes, labels))
    };
    read().map_err(|problem: String| DataError::content(file, problem))
}

/// The images in the other splits beside `part`.
fn other_splits(part: &Path) -> Result<Vec<String>, DataError> {
    let above = part.parent().filter(|dir| !dir.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let mut images = Vec::new();
    for name in entries(above)?.folders.iter().filter(|name| is_part(name)) {
        images.extend(entries(&above.join(name))?.images);
    }
    Ok(images)
}

/// The lines of a file, each with its class, by the name of the image without folders.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) file: PathBuf,
    /// The folder of the images.
    part: String,
    rows: BTreeMap<String, Vec<(usize, String)>>,
    /// True if metadata have a class column.
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
            file: file.to_owned(),
            part: name.into_owned(),
            ..Table::default()
        };
        let filled = match file.extension().is_some_and(|e| e == "jsonl") {
            true => table.fill_from_json(text),
            false => table.fill_from_text(text, is_metadata(file)),
        };
        filled.map(|()| table).map_err(wrong)
    }

    fn fill_from_json(&mut self, text: &str) -> Result<(), String> {
        let lines = (1..).zip(text.lines());
        let mut lines = lines.filter(|(_, text)| !text.trim().is_empty()).peekable();
        let first = lines.peek().map_or(1, |(line, _)| *line);
        let mut known = None;
        for (line, text) in lines {
            let wrong = |problem: String| format!("line {line}: {problem}");
            let row: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| wrong(format!("is not a JSON object ({error})")))?;
            let given = row.iter().filter(|(_, value)| !value.is_null());
            let columns: Vec<&str> = given.map(|(key, _)| key.as_str()).collect();
            let labelled = is_labelled(&columns).map_err(wrong)?;
            if *known.get_or_insert(labelled) != labelled {
                let has = if labelled {
                    "has a class"
                } else {
                    "has no class"
                };
                return Err(wrong(format!(
                    "{has}, unlike line {first}; expected one in every line, or in none"
                )));
            }
            let of = |keys: &str| {
                keys.split(' ')
                    .find_map(|key| row.get(key).filter(|v| !v.is_null()))
            };
            let Some(Value::String(file)) = of(FILES) else {
                return Err(wrong(
                    "has no text for `file_name`; expected a file's name".to_owned(),
                ));
            };
            match of(CLASSES) {
                None => {}
                Some(Value::String(text)) => self.push(line, file, text),
                Some(class @ (Value::Array(_) | Value::Object(_))) => {
                    let problem = format!("the class is {class}; expected text or a number");
                    return Err(wrong(problem));
                }
                Some(other) => self.push(line, file, &other.to_string()),
            }
        }
        self.labelled = known.ok_or("is empty; expected a line for each image")?;
        Ok(())
    }

    fn fill_from_text(&mut self, text: &str, is_metadata: bool) -> Result<(), String> {
        let mut rows = records(text);
        let (line, first) = rows.next().unwrap_or((1, ""));
        let mut separator = first_separator(first);
        let header =
            split(first, separator).ok_or_else(|| format!("line {line}: a quote is not closed"))?;
        let header = header.iter().map(|field| field.trim().to_ascii_lowercase());
        let header: Vec<String> = header.collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        if is_metadata {
            let labelled = is_labelled(&header);
            self.labelled = labelled.map_err(|problem| format!("line {line}: {problem}"))?;
            if !self.labelled {
                return Ok(());
            }
        }
        let named = column(&header, FILES).zip(column(&header, CLASSES));
        let (file, class) = named.unwrap_or_else(|| {
            (rows, separator) = (records(text), common_separator(text));
            (0, 1)
        });
        let open = text.matches('"').count() % 2 == 1;
        if let Some((line, _)) = records(text).last().filter(|_| open) {
            return Err(format!("line {line}: a quote is not closed"));
        }
        for (line, record) in rows {
            let wrong = |problem: String| format!("line {line}: {problem}");
            let fields = split(record, separator)
                .ok_or_else(|| wrong("a quote is not closed".to_owned()))?;
            let (Some(file), Some(class)) = (fields.get(file), fields.get(class)) else {
                let shown: String = record.chars().take(80).collect();
                return Err(wrong(format!(
                    "`{shown}` has {} of at least {} fields; expected a file and its class, separated as in the \
                     other lines",
                    fields.len(),
                    file.max(class) + 1
                )));
            };
            self.push(line, file, class);
        }
        Ok(())
    }

    /// An error if rows name images that are not `present`.
    fn check_present(&self, present: BTreeSet<&str>) -> Result<(), String> {
        let stems: BTreeSet<&str> = present.iter().map(|name| stem(name)).collect();
        let absent =
            |name: &&String| !present.contains(name.as_str()) && !stems.contains(name.as_str());
        let absent: Vec<&String> = self.rows.keys().filter(absent).collect();
        let line = |name: &&String| self.rows[*name][0].0;
        match absent.iter().min_by_key(|name| line(name)) {
            None => Ok(()),
            Some(first) => Err(format!(
                "line {}: names `{first}`, an image that is not there ({} such in all); add the images, or remove \
                 their lines",
                line(first),
                absent.len()
            )),
        }
    }

    fn push(&mut self, line: usize, file: &str, class: &str) {
        let file = file.trim();
        let folder = file.rsplit(['/', '\\']).nth(1);
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

/// True if metadata with these columns have labels, false if they have none on purpose.
fn is_labelled(columns: &[&str]) -> Result<bool, String> {
    let has = |words: &str| column(columns, words).is_some();
    match (has(FILES), has(CLASSES)) {
        (true, true) => Ok(true),
        (true, false) if columns.len() == 1 || has(NO_CLASSES) => Ok(false),
        _ => {
            let mut found = match columns {
                [] => "none".to_owned(),
                _ => format!("`{}`", columns.join("`, `")),
            };
            if found.chars().count() > 120 {
                found = found.chars().take(120).chain("..".chars()).collect();
            }
            Err(format!(
                "the columns are {found}; expected `file_name` and `label` (for images without labels, \
                 `file_name` and `text`); correct them, or rename a file about something else"
            ))
        }
    }
}

/// The column that has one of these names.
fn column(columns: &[&str], words: &str) -> Option<usize> {
    let mut words = words.split(' ');
    words.find_map(|word| columns.iter().position(|name| *name == word))
}

/// The separator that comes first in a line, outside quotes.
fn first_separator(line: &str) -> Option<char> {
    let mut quoted = false;
    line.trim_start().chars().find(|c| {
        quoted ^= *c == '"';
        !quoted && SEPARATORS.contains(c)
    })
}

/// The separator that comes first in every line. None if lines differ, as when class names merely contain a comma.
fn common_separator(text: &str) -> Option<char> {
    let mut all = records(text).map(|(_, line)| first_separator(line));
    let first = all.next()?;
    first.filter(|_| all.all(|other| other == first))
}

/// The fields of a record; without a separator, words of which the first is the file. None if a quote is not closed.
fn split(record: &str, separator: Option<char>) -> Option<Vec<String>> {
    if let Some(separator) = separator {
        return fields(record, |c| c == separator);
    }
    let mut words = fields(record, char::is_whitespace)?;
    words.retain(|word| !word.is_empty());
    if words.len() > 2 {
        let class = words.split_off(1).join(" ");
        words.push(class);
    }
    Some(words)
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
