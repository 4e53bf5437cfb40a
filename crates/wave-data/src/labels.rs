//! Labels of images that are not in class folders: a table with a line for each image, its file and its class.
//!
//! The file is named with or without its extension, and with any of the folders above it: `images/0.png` and `0.png`
//! both name `train/images/0.png`. The line with the most folders counts. Where no line's folders fit an image, they
//! are those of another machine, and only names count. All classes are training folders' names, or all are numbers.
//!
//! Commas, semicolons or tabs separate the columns, with quotes where a field contains one; without
//! separators, white space does, and the class is the rest of the line. This covers Caffe's `val.txt` and
//! a `metadata.csv` or `metadata.jsonl` next to images, as in the datasets library: a header or keys name its
//! columns, and every line names an image that is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tokenizers::NormalizedString;

use crate::DataError;
use crate::listing::{entries, is_image, is_part, walk};
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

const SEPARATORS: [char; 3] = [',', ';', '\t'];

/// Tables of files and labels among images, as in the datasets library.
pub const METADATA: [&str; 2] = ["metadata.csv", "metadata.jsonl"];

/// The files that may hold the labels of the directory `part`, if its name is text: `val.txt`, `val_labels.txt`,
/// `val.csv` beside it (of a directory `val`), or `labels.txt` or `labels.csv` in it.
pub fn label_files(part: &Path) -> Option<Vec<PathBuf>> {
    let name = part.file_name()?.to_str()?;
    let ends = [".txt", "_labels.txt", ".csv"];
    let beside = ends.map(|end| part.with_file_name(format!("{name}{end}")));
    let within = ["labels.txt", "labels.csv"].map(|file| part.join(file));
    Some([&beside[..], &within].concat())
}

/// The label file of the directory `part`, or metadata in it, if there is one.
pub(crate) fn find(part: &Path) -> Result<Option<Table>, DataError> {
    let files = label_files(part).unwrap_or_default();
    match files.into_iter().find(|file| file.is_file()) {
        None => metadata(part),
        Some(file) => Table::read(&file, part),
    }
}

/// The metadata in the directory `part`, or next to it, if they have labels. Captions alone are none; other metadata
/// without a column of labels are an error, since images would silently lose theirs.
pub(crate) fn metadata(part: &Path) -> Result<Option<Table>, DataError> {
    let name = part.file_name().unwrap_or_default().to_string_lossy();
    let above = part.parent().filter(|_| is_part(&name));
    let places = [Some(part), above].into_iter().flatten();
    for file in places.flat_map(|dir| METADATA.map(|file| dir.join(file))) {
        if file.is_file()
            && let Some(table) = Table::read(&file, part)?
        {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

fn is_metadata(file: &Path) -> bool {
    METADATA.iter().any(|name| file.ends_with(name))
}

/// The classes that a table gives to `names`, images of `part`, unless they are `known`, and the label of each.
pub(crate) fn read(
    table: &mut Table,
    part: &Path,
    names: &[String],
    known: Option<Vec<String>>,
) -> Result<(Vec<String>, Vec<u32>), DataError> {
    let mut paths = paths_in(part, names);
    // Lists such as Caffe's may be longer than the images that someone keeps.
    let is_complete = is_metadata(&table.file);
    // One table may list the images of all splits.
    if is_complete && table.file.parent() != Some(part) {
        paths.extend(other_splits(part)?);
    }
    table.fit_folders(&paths);
    let read = || {
        if is_complete {
            table.check_present(&paths)?;
        }
        let images = names.iter().zip(&paths);
        let rows = images.map(|(name, path)| table.class(name, path));
        let rows: Vec<(usize, &str)> = rows.collect::<Result<_, String>>()?;
        let classes = known.unwrap_or_else(|| classes(&rows));
        let labels = labels(&rows, &classes)?;
        Ok((classes, labels))
    };
    read().map_err(|problem: String| DataError::content(&table.file, problem))
}

/// The paths of images in `dir`, as in rows.
fn paths_in(dir: &Path, names: &[String]) -> Vec<String> {
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let path = |name: &String| dir.join(name).to_string_lossy().replace('\\', "/");
    names.iter().map(|name| composed(path(name))).collect()
}

/// The text with its accents composed (NFC), as most systems write them; macOS takes them apart.
fn composed(text: String) -> String {
    match text.is_ascii() {
        true => text,
        false => NormalizedString::from(text).nfc().get().to_owned(),
    }
}

/// The paths of the images in the other splits beside `part`.
fn other_splits(part: &Path) -> Result<Vec<String>, DataError> {
    let above = part.parent().filter(|dir| !dir.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    let own = part.file_name().unwrap_or_default();
    let mut images = Vec::new();
    for name in entries(above)?.folders {
        if is_part(&name) && own != name.as_str() {
            let split = above.join(name);
            images.extend(paths_in(&split, &walk(&split)?.names));
        }
    }
    Ok(images)
}

/// The lines of a file, each with its class, by the path of the image.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) file: PathBuf,
    /// The folder of the images.
    part: String,
    /// Looked up several times for each image, in no order.
    rows: HashMap<String, Vec<(usize, String)>>,
}

impl Table {
    /// The table in a file; `None` if it is metadata without classes.
    fn read(file: &Path, part: &Path) -> Result<Option<Table>, DataError> {
        let bytes = read_whole(file, MAX_BYTES, DataError::open(file))?;
        let wrong = |problem| DataError::content(file, problem);
        if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
            return Err(wrong("is text in UTF-16; save it as UTF-8".to_owned()));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            wrong(format!("line {line} is not UTF-8; save it as UTF-8"))
        })?;
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        if text.contains('\r') && !text.contains('\n') {
            let problem = "has line ends of old Macs; save it with line feeds".to_owned();
            return Err(wrong(problem));
        }
        let name = part.file_name().unwrap_or_default().to_string_lossy();
        let mut table = Table {
            file: file.to_owned(),
            part: name.into_owned(),
            ..Table::default()
        };
        let labelled = match file.extension().is_some_and(|e| e == "jsonl") {
            true => table.fill_from_json(text),
            false => table.fill_from_text(text, is_metadata(file)),
        };
        Ok(labelled.map_err(wrong)?.then_some(table))
    }

    /// Adds the lines of a text; false if they have no classes.
    fn fill_from_json(&mut self, text: &str) -> Result<bool, String> {
        let lines = (1..).zip(text.lines());
        let mut lines = lines.filter(|(_, text)| !text.trim().is_empty()).peekable();
        let first = lines.peek().map_or(1, |(line, _)| *line);
        let mut known = None;
        for (line, text) in lines {
            let wrong = |problem: String| format!("line {line}: {problem}");
            let mut row: Map<String, Value> = serde_json::from_str(text)
                .map_err(|error| wrong(format!("is not a JSON object ({error})")))?;
            row.retain(|_, value| !value.is_null());
            let columns: Vec<&str> = row.keys().map(String::as_str).collect();
            let labelled = is_labelled(&columns).map_err(wrong)?;
            if *known.get_or_insert(labelled) != labelled {
                let class = if labelled { "a class" } else { "no class" };
                return Err(wrong(format!(
                    "has {class}, unlike line {first}; expected one in every line, or in none"
                )));
            }
            let texts = FILES.split(' ').filter_map(|key| row.get(key)?.as_str());
            let Some(file) = likeliest_file(texts.map(|text| (text, text))) else {
                let problem = "has no text for `file_name`; expected a file's name".to_owned();
                return Err(wrong(problem));
            };
            match CLASSES.split(' ').find_map(|key| row.get(key)) {
                None => {}
                Some(Value::String(text)) => self.push(line, file, text),
                Some(class @ (Value::Array(_) | Value::Object(_))) => {
                    let problem = format!("the class is {class}; expected text or a number");
                    return Err(wrong(problem));
                }
                Some(other) => self.push(line, file, &other.to_string()),
            }
        }
        known.ok_or_else(|| "is empty; expected a line for each image".to_owned())
    }

    fn fill_from_text(&mut self, text: &str, is_metadata: bool) -> Result<bool, String> {
        let first = text.lines().find(|line| !line.trim().is_empty());
        let mut separator = first.and_then(first_separator);
        let mut rows = records(text, separator);
        let (line, first) = rows.next().unwrap_or((1, ""));
        let header = split(line, first, separator)?.into_iter();
        let header = header.map(|field| field.trim().to_ascii_lowercase());
        let header: Vec<String> = header.collect();
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        if is_metadata {
            let labelled = is_labelled(&header);
            if !labelled.map_err(|problem| format!("line {line}: {problem}"))? {
                return Ok(false);
            }
        }
        let example = records(text, separator).nth(1);
        let example = example.and_then(|(line, record)| split(line, record, separator).ok());
        let example = example.unwrap_or_default();
        let files = FILES.split(' ').filter_map(|word| {
            let at = column(&header, word)?;
            Some((at, example.get(at).map_or("", String::as_str)))
        });
        let named = likeliest_file(files).zip(column(&header, CLASSES));
        let (file, class) = named.unwrap_or_else(|| {
            // None if lines differ, as when class names merely contain a comma.
            let mut all = records(text, separator).map(|(_, line)| first_separator(line));
            separator = separator.filter(|_| all.all(|other| other == separator));
            rows = records(text, separator);
            (0, 1)
        });
        for (line, record) in rows {
            let fields = split(line, record, separator)?;
            let n = fields.len();
            let mut surplus = fields.iter().skip(header.len());
            if named.is_some() && surplus.any(|field| !field.trim().is_empty()) {
                let separator = match separator {
                    Some(';') => "semicolon",
                    Some('\t') => "tab",
                    _ => "comma",
                };
                return Err(format!(
                    "line {line} has {n} fields, the header {}; quote values that contain a {separator}",
                    header.len()
                ));
            }
            let (Some(file), Some(class)) = (fields.get(file), fields.get(class)) else {
                let shown: String = record.chars().take(80).collect();
                return Err(format!(
                    "line {line}: `{shown}` has {n} of at least {} fields; expected a file and its class, separated as \
                     in the other lines",
                    file.max(class) + 1
                ));
            };
            self.push(line, file, class);
        }
        Ok(true)
    }

    fn push(&mut self, line: usize, file: &str, class: &str) {
        let parts = file.trim().split(['/', '\\']);
        let parts: Vec<&str> = parts.filter(|part| !["", "."].contains(part)).collect();
        // An absolute path may lead through a folder `dev`: the last split's name counts, and only the image's
        // own folder where the images have no splits.
        let depth = if is_part(&self.part) { usize::MAX } else { 1 };
        let mut folders = parts.iter().rev().skip(1).take(depth);
        let split = folders.find(|folder| is_part(folder));
        if split.is_some_and(|split| *split != self.part) {
            return;
        }
        let rows = self.rows.entry(composed(parts.join("/"))).or_default();
        rows.push((line, composed(class.trim().to_owned())));
    }

    /// The rows that name an image, and the end of its path that they have.
    fn rows_of(&self, path: &str) -> Option<(&String, &Vec<(usize, String)>)> {
        let longest = |path: &str| {
            let folders = path.match_indices('/').map(|(at, _)| at + 1);
            let mut starts = std::iter::once(0).chain(folders);
            starts.find_map(|start| self.rows.get_key_value(&path[start..]))
        };
        longest(path).or_else(|| longest(stem(path)))
    }

    /// Removes the folders of all rows if none fit the images.
    fn fit_folders(&mut self, paths: &[String]) {
        let mut named = paths.iter().filter_map(|path| self.rows_of(path));
        if named.any(|(end, _)| end.contains('/')) {
            return;
        }
        for (path, rows) in std::mem::take(&mut self.rows) {
            let all = self.rows.entry(file_name(&path).to_owned());
            all.or_default().extend(rows);
        }
        for rows in self.rows.values_mut() {
            rows.sort_unstable();
        }
    }

    /// An error if rows name none of the images at `paths`.
    fn check_present(&self, paths: &[String]) -> Result<(), String> {
        let named = paths.iter().filter_map(|path| self.rows_of(path));
        let named: BTreeSet<&String> = named.map(|(end, _)| end).collect();
        let absent = self.rows.iter().filter(|(file, _)| !named.contains(file));
        let absent: Vec<(usize, &String)> = absent.map(|(file, rows)| (rows[0].0, file)).collect();
        match absent.iter().min() {
            None => Ok(()),
            Some((line, first)) => Err(format!(
                "line {line}: names `{first}`, an image that is not there ({} such in all); add the images, or remove \
                 their lines",
                absent.len()
            )),
        }
    }

    /// The line and the class of the image `name` at `path`.
    fn class(&self, name: &str, path: &str) -> Result<(usize, &str), String> {
        let (_, found) = self.rows_of(path).ok_or_else(|| {
            let name = match self.rows.keys().any(|file| file.contains('/')) {
                true => name,
                false => file_name(name),
            };
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
}

/// The classes of rows, sorted; for numbers, all up to the largest.
fn classes(rows: &[(usize, &str)]) -> Vec<String> {
    let all: BTreeSet<&str> = rows.iter().map(|(_, class)| *class).collect();
    // Numbers are labels: classes without an image keep their number.
    let number = |class: &&str| class.parse().ok().and_then(check_label);
    let numbers: Option<BTreeSet<u32>> = all.iter().map(number).collect();
    match numbers.and_then(|numbers| numbers.last().copied()) {
        Some(highest) => numbered(highest),
        None => all.into_iter().map(str::to_owned).collect(),
    }
}

/// The label of each row. Either all rows have names of classes, or all have numbers.
fn labels(rows: &[(usize, &str)], classes: &[String]) -> Result<Vec<u32>, String> {
    let names = classes.iter().map(|class| composed(class.clone()));
    let by_name: BTreeMap<String, u32> = names.zip(0..).collect();
    let by_number = |class: &str| {
        let number = class.parse::<u32>().ok();
        number.filter(|&k| (k as usize) < classes.len())
    };
    let Some(first) = rows.iter().find(|(_, class)| !by_name.contains_key(*class)) else {
        return Ok(rows.iter().map(|(_, class)| by_name[*class]).collect());
    };
    let wrong = |(line, class): &(usize, &str), problem: String| {
        format!("line {line}: `{class}` is {problem}")
    };
    let hint = "write the folder's name in every line";
    // Among folders `1` and `2`, a `1` may be meant as the name or, counted from 0, as the second.
    let numbers: Option<Vec<u32>> = classes.iter().map(|class| class.parse().ok()).collect();
    if numbers.is_some_and(|all| all.into_iter().ne(0..classes.len() as u32)) {
        let problem = "not a training folder's name, and the folders are numbers themselves";
        return Err(wrong(first, format!("{problem}; {hint}")));
    }
    let is_unknown = |class: &str| !by_name.contains_key(class) && by_number(class).is_none();
    if let Some(unknown) = rows.iter().find(|(_, class)| is_unknown(class)) {
        let last = classes.len().saturating_sub(1);
        let expected = format!("a training folder's name or a number from 0 to {last}");
        return Err(wrong(unknown, format!("not a class; expected {expected}")));
    }
    let labels: Option<Vec<u32>> = rows.iter().map(|(_, class)| by_number(class)).collect();
    let mixed = format!("a number, but other lines have names; {hint}");
    labels.ok_or_else(|| wrong(first, mixed))
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// A role of a character in a table.
enum Role {
    Text,
    /// Begins a quotation, before which the field is blank.
    Opening,
    Closing,
    /// Ends a field.
    Separator,
}

/// Follows quotes through a text. They count where a field begins; elsewhere they are ordinary characters.
#[derive(Default)]
struct Quotes {
    is_open: bool,
    /// True if the field is not blank so far.
    has_text: bool,
    /// True if the last character closed a quotation, so that another quote is part of it.
    is_closed: bool,
}

impl Quotes {
    /// The role of the next character; without a separator, white space separates.
    fn role(&mut self, c: char, separator: Option<char>) -> Role {
        let doubled = std::mem::take(&mut self.is_closed);
        let separates = || separator.map_or(c.is_whitespace(), |s| c == s);
        match c {
            '"' if doubled => (self.is_open, self.has_text) = (true, true),
            '"' if self.is_open => {
                (self.is_open, self.is_closed) = (false, true);
                return Role::Closing;
            }
            '"' if !self.has_text => {
                self.is_open = true;
                return Role::Opening;
            }
            _ if !self.is_open && (c == '\n' || separates()) => {
                self.has_text = false;
                return Role::Separator;
            }
            _ => self.has_text |= !c.is_whitespace(),
        }
        Role::Text
    }
}

/// The lines that are not blank, with their numbers; quoted fields may span several lines.
fn records(text: &str, separator: Option<char>) -> impl Iterator<Item = (usize, &str)> {
    let mut quotes = Quotes::default();
    let ends = move |c: char| matches!(quotes.role(c, separator), Role::Separator) && c == '\n';
    let lines = text.split(ends);
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

/// The first candidate whose value names an image file, else the first: an `id` may also only number the rows.
fn likeliest_file<'a, T>(mut candidates: impl Iterator<Item = (T, &'a str)> + Clone) -> Option<T> {
    let is_named = |(_, value): &(T, &str)| is_image(Path::new(value.trim()));
    let named = candidates.clone().find(is_named);
    named.or_else(|| candidates.next()).map(|(found, _)| found)
}

/// The column that has one of these names.
fn column(columns: &[&str], words: &str) -> Option<usize> {
    let mut words = words.split(' ');
    words.find_map(|word| columns.iter().position(|name| *name == word))
}

/// The separator that comes first in a line, outside quotes.
fn first_separator(line: &str) -> Option<char> {
    let mut quotes = Quotes::default();
    line.trim_start().chars().find(|c| {
        quotes.role(*c, None);
        !quotes.is_open && SEPARATORS.contains(c)
    })
}

/// The fields of a record, without their quotes; without a separator, the first word and the rest. Refuses open quotes.
fn split(line: usize, record: &str, separator: Option<char>) -> Result<Vec<String>, String> {
    let (mut fields, mut field, mut quotes) = (Vec::new(), String::new(), Quotes::default());
    for c in record.chars() {
        match quotes.role(c, separator) {
            Role::Text => field.push(c),
            Role::Opening => field.clear(),
            Role::Closing => {}
            Role::Separator => fields.push(std::mem::take(&mut field)),
        }
    }
    fields.push(field);
    if quotes.is_open {
        return Err(format!("line {line}: a quote is not closed"));
    }
    if separator.is_none() {
        fields.retain(|word| !word.is_empty());
        if fields.len() > 2 {
            let class = fields.split_off(1).join(" ");
            fields.push(class);
        }
    }
    Ok(fields)
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
