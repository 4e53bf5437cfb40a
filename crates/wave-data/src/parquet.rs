//! Parquet files in Hugging Face's layout for images: a column `image` of `{bytes, path}`, or of bytes, and
//! a column `label` of whole numbers.
//!
//! Opening reads footers and labels. An image is read from its own page: earlier pages of its row
//! group are skipped by their headers.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Type as Physical;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl, get_column_reader};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use rayon::prelude::*;

use crate::source::{MOST_CLASSES, check_label, numbered, open_file};
use crate::webdataset::by_pattern;
use crate::{DataError, Dataset, Source};

/// Number of values of a column that are read at a time.
const BATCH: usize = 4096;

/// Opens files by pattern: see [`by_pattern`].
pub(crate) fn open_pattern(spec: &str) -> Result<Dataset, DataError> {
    let (name, _, [train, test]) = by_pattern(spec)?;
    let (train, test) = (Tables::open(train)?, Tables::open(test)?);
    let highest = train.labels.iter().chain(&test.labels).max().copied();
    let class_names = numbered(highest.unwrap_or(0));
    Ok(Dataset::new(name, class_names, train, test))
}

/// A row group: rows that are stored together.
struct Group {
    file: u32,
    group: usize,
    /// The source's index of its first row.
    first: usize,
}

struct Table {
    path: PathBuf,
    metadata: ParquetMetaData,
    /// Index of the column with the images' bytes.
    images: usize,
}

#[derive(Default)]
struct Tables {
    tables: Vec<Table>,
    groups: Vec<Group>,
    labels: Vec<u32>,
}

impl Tables {
    fn open(files: Vec<PathBuf>) -> Result<Self, DataError> {
        let read: Vec<Result<Opened, DataError>> = files.into_par_iter().map(open_table).collect();
        let mut all = Self::default();
        for table in read {
            let (table, labels) = table?;
            for (group, labels) in labels.into_iter().enumerate() {
                all.groups.push(Group {
                    file: all.tables.len() as u32,
                    group,
                    first: all.labels.len(),
                });
                all.labels.extend(labels);
            }
            all.tables.push(table);
        }
        if let (true, Some(first)) = (all.labels.is_empty(), all.tables.first()) {
            let problem = "holds no rows; expected images";
            return Err(DataError::content(&first.path, problem));
        }
        Ok(all)
    }

    /// The row group of row `i`, and the row's index in it.
    fn place(&self, i: usize) -> (&Group, usize) {
        let after = self.groups.partition_point(|group| group.first <= i);
        let group = &self.groups[after - 1];
        (group, i - group.first)
    }
}

impl Source for Tables {
    fn len(&self) -> usize {
        self.labels.len()
    }

    fn label(&self, i: usize) -> u32 {
        self.labels[i]
    }

    fn encoded(&self, i: usize) -> Result<Option<Vec<u8>>, DataError> {
        let (group, row) = self.place(i);
        let table = &self.tables[group.file as usize];
        let file = Arc::new(Sound::open(&table.path)?);
        let read = || -> Result<Vec<u8>, String> {
            let mut column = column(&file, &table.metadata, group.group, table.images)?;
            let ColumnReader::ByteArrayColumnReader(column) = &mut column else {
                return Err("its images are not bytes".to_owned());
            };
            let skipped = column.skip_records(row).map_err(describe)?;
            match read_values(column, 1)?.into_iter().next().flatten() {
                Some(bytes) if skipped == row => Ok(bytes.data().to_vec()),
                _ => Err("has no bytes".to_owned()),
            }
        };
        let wrong = |problem| DataError::content(self.name(i), problem);
        guarded(read).map(Some).map_err(wrong)
    }

    fn name(&self, i: usize) -> String {
        let (group, row) = self.place(i);
        let path = self.tables[group.file as usize].path.display();
        format!("{path}, row group {}, row {row}", group.group)
    }
}

/// A file that may be damaged: reading beyond its end is an error. The parquet reader would allocate any stated size,
/// and skip a declared list element by element, even past the end of the file.
struct Sound {
    file: File,
    len: u64,
}

impl Sound {
    fn open(path: &Path) -> Result<Self, DataError> {
        let open = || {
            let file = open_file(path)?;
            let len = file.metadata()?.len();
            Ok(Self { file, len })
        };
        open().map_err(DataError::open(path))
    }
}

impl Length for Sound {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Sound {
    type T = Strict;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.file.get_read(start).map(Strict)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        match start.checked_add(length as u64) {
            Some(end) if end <= self.len => self.file.get_bytes(start, length),
            _ => Err(ParquetError::EOF(format!(
                "{length} bytes at offset {start} go beyond the {} of the file",
                self.len
            ))),
        }
    }
}

/// A reader that treats the end of its input as an error.
struct Strict(BufReader<File>);

impl Read for Strict {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.0.read(to)? {
            0 if !to.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

/// A file, and the label of each row of each of its row groups.
type Opened = (Table, Vec<Vec<u32>>);

fn open_table(path: PathBuf) -> Result<Opened, DataError> {
    let file = Arc::new(Sound::open(&path)?);
    guarded(|| read_table(&file, &path)).map_err(|problem| DataError::content(&path, problem))
}

fn read_table(file: &Arc<Sound>, path: &Path) -> Result<Opened, String> {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&**file);
    let metadata = metadata.map_err(describe)?;
    let schema = metadata.file_metadata().schema_descr();
    let columns: Vec<String> = schema.columns().iter().map(|c| c.path().string()).collect();
    let find = |names: &[&str], kinds: &[Physical]| {
        let mut numbered = columns.iter().enumerate();
        let found = numbered.find(|(_, name)| names.contains(&name.as_str()));
        let fits = |&k: &usize| {
            let column = schema.column(k);
            kinds.contains(&column.physical_type()) && column.max_rep_level() == 0
        };
        found.map(|(k, _)| k).filter(fits).ok_or_else(|| {
            let (columns, names) = (columns.join(", "), names.join(" or "));
            format!("has the columns {columns}; expected {names} of type {kinds:?}")
        })
    };
    let names = ["image.bytes", "img.bytes", "image", "img"];
    let images = find(&names, &[Physical::BYTE_ARRAY])?;
    let names = ["label", "labels", "fine_label"];
    let labels = find(&names, &[Physical::INT64, Physical::INT32])?;
    let mut all = Vec::new();
    for group in 0..metadata.num_row_groups() {
        let rows = metadata.row_group(group).num_rows();
        let found: Vec<Option<i64>> = match column(file, &metadata, group, labels)? {
            ColumnReader::Int64ColumnReader(mut column) => read_values(&mut column, rows as usize)?,
            ColumnReader::Int32ColumnReader(mut column) => {
                let values = read_values(&mut column, rows as usize)?.into_iter();
                values.map(|value| value.map(i64::from)).collect()
            }
            _ => return Err("its labels are not integers".to_owned()),
        };
        if found.len() as i64 != rows {
            let held = found.len();
            return Err(format!("declares {rows} rows but holds {held} labels"));
        }
        let label = |value: Option<i64>| {
            let label = value.and_then(|n| check_label(u64::try_from(n).ok()?));
            label.ok_or_else(|| {
                let found = value.map_or("none".to_owned(), |n| n.to_string());
                let highest = MOST_CLASSES - 1;
                format!("has the label {found}; expected numbers from 0 to {highest}")
            })
        };
        all.push(found.into_iter().map(label).collect::<Result<_, _>>()?);
    }
    if u32::try_from(all.iter().map(Vec::len).sum::<usize>()).is_err() {
        return Err("holds more than 2^32 rows".to_owned());
    }
    let table = Table {
        path: path.to_owned(),
        metadata,
        images,
    };
    Ok((table, all))
}

fn column(
    file: &Arc<Sound>,
    metadata: &ParquetMetaData,
    group: usize,
    column: usize,
) -> Result<ColumnReader, String> {
    let rows = metadata.row_group(group);
    let chunk = rows.column(column);
    let total = usize::try_from(rows.num_rows()).map_err(|_| "has a negative number of rows")?;
    let pages = SerializedPageReader::new(file.clone(), chunk, total, None).map_err(describe)?;
    Ok(get_column_reader(chunk.column_descr_ptr(), Box::new(pages)))
}

/// Up to `rows` values, read in chunks, so that memory grows with the values actually there.
fn read_values<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    rows: usize,
) -> Result<Vec<Option<T::T>>, String> {
    let mut all = Vec::new();
    let mut left = rows;
    while left > 0 {
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let part = left.min(BATCH);
        let read = column.read_records(part, Some(&mut levels), None, &mut values);
        let (records, _, _) = read.map_err(describe)?;
        if records == 0 {
            break;
        }
        if levels.is_empty() {
            all.extend(values.into_iter().map(Some)); // a column that is always there has no levels
        } else {
            let full = levels.iter().max().copied().unwrap_or(0).max(1);
            let mut values = values.into_iter();
            let value = |level: i16| if level == full { values.next() } else { None };
            all.extend(levels.into_iter().map(value));
        }
        left -= records;
    }
    Ok(all)
}

fn describe(error: ParquetError) -> String {
    format!("is not a valid parquet file: {error}")
}

/// The parquet reader panics on damaged files, which must not end the process.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    crate::guard::guarded(work)
        .unwrap_or_else(|_| Err("is not a valid parquet file: it contradicts itself".to_owned()))
}

#[cfg(test)]
#[path = "parquet_tests.rs"]
mod tests;
