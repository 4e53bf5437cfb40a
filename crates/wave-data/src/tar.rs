//! The tar format, as far as data sets use it: regular files in ustar, GNU and pax archives.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::DataError;

pub(crate) const BLOCK: u64 = 512;

/// Maximum length of a name.
const MAX_NAME: u64 = 1 << 16;

/// A regular file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Offset of its content, from the archive's start.
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Fills `to` with the bytes from offset `at` on.
pub(crate) fn read_at(archive: &mut (impl Read + Seek), at: u64, to: &mut [u8]) -> io::Result<()> {
    archive.seek(SeekFrom::Start(at))?;
    archive.read_exact(to)
}

/// Lists the regular files of the archive at `path`, reading headers only.
///
/// An archive without two empty blocks and whole blocks of padding at its end was truncated, perhaps between members.
pub(crate) fn list(
    archive: &mut (impl Read + Seek),
    path: &Path,
) -> Result<Vec<Member>, DataError> {
    let fail = DataError::open(path);
    let end = archive.seek(SeekFrom::End(0)).map_err(fail)?;
    let mut members = Vec::new();
    let (mut at, mut long_name) = (0, None);
    loop {
        let wrong = |what: &str| DataError::content(path, format!("{what} at byte {at}"));
        let mut block = |at: u64| -> Result<[u8; BLOCK as usize], DataError> {
            let mut block = [0; BLOCK as usize];
            if end < at + BLOCK {
                return Err(wrong("is truncated: no end marker (two empty blocks)"));
            }
            read_at(archive, at, &mut block).map_err(fail)?;
            Ok(block)
        };
        let is_empty = |block: &[u8]| block.iter().all(|&byte| byte == 0);
        let header = block(at)?;
        if is_empty(&header) {
            if !is_empty(&block(at + BLOCK)?) || !end.is_multiple_of(BLOCK) {
                return Err(wrong("is damaged or truncated: half an end marker"));
            }
            return Ok(members);
        }
        if !is_header(&header) {
            return Err(wrong("is not a tar archive or is damaged: no header"));
        }
        let size = number(&header[124..136]).ok_or_else(|| wrong("has no readable size"))?;
        let offset = at + BLOCK;
        if size > end - offset {
            return Err(wrong(&format!(
                "is truncated: a member of {size} bytes begins"
            )));
        }
        let mut content = || -> Result<Vec<u8>, DataError> {
            if size > MAX_NAME {
                return Err(wrong("has an extended header that is too long"));
            }
            let mut content = vec![0; size as usize];
            archive.read_exact(&mut content).map_err(fail)?;
            Ok(content)
        };
        match header[156] {
            b'0' | 0 | b'7' => {
                let name = long_name.take().unwrap_or_else(|| short_name(&header));
                members.push(Member { name, offset, size });
            }
            b'L' => long_name = Some(text(&content()?)),
            b'x' => long_name = pax_path(&content()?).or(long_name),
            // Directories, links and all others are ignored.
            _ => long_name = None,
        }
        at = offset + size.next_multiple_of(BLOCK);
    }
}

/// True if a block's checksum is right: the sum of its bytes, its own field counting as spaces.
fn is_header(header: &[u8; BLOCK as usize]) -> bool {
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    let own: u64 = header[148..156].iter().map(|&byte| u64::from(byte)).sum();
    number(&header[148..156]) == Some(sum - own + 8 * u64::from(b' '))
}

/// An octal number.
fn number(field: &[u8]) -> Option<u64> {
    let digits = field.split(|&byte| byte == 0).next()?;
    match std::str::from_utf8(digits).ok()?.trim() {
        "" => Some(0),
        digits => u64::from_str_radix(digits, 8).ok(),
    }
}

fn short_name(header: &[u8; BLOCK as usize]) -> String {
    let name = text(&header[..100]);
    if &header[257..262] == b"ustar" && header[262] == 0 && header[345] != 0 {
        return format!("{}/{name}", text(&header[345..500]));
    }
    name
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// The path in records `LENGTH KEY=VALUE\n`, of which the last counts, up to the first malformed one.
fn pax_path(mut content: &[u8]) -> Option<String> {
    let next = || {
        let space = content.iter().position(|&byte| byte == b' ')?;
        let length = std::str::from_utf8(&content[..space]).ok()?;
        let length: usize = length.parse().ok()?;
        let record = content.get(space + 1..length)?;
        content = &content[length..];
        Some(record)
    };
    let paths = std::iter::from_fn(next).filter_map(|record| record.strip_prefix(b"path="));
    let path = String::from_utf8_lossy(paths.last()?);
    Some(path.trim_end_matches('\n').to_owned())
}

/// Appends a file to an archive. Its name has at most 100 bytes.
pub(crate) fn append(archive: &mut dyn Write, name: &str, content: &[u8]) -> io::Result<()> {
    if name.len() > 100 {
        let problem = format!("`{name}` is too long for a tar archive");
        return Err(io::Error::other(problem));
    }
    let mut header = [0; BLOCK as usize];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0"); // the same bytes whenever it is made
    header[148..156].fill(b' ');
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    archive.write_all(&header)?;
    archive.write_all(content)?;
    let padding = content.len().next_multiple_of(BLOCK as usize) - content.len();
    archive.write_all(&[0; BLOCK as usize][..padding])
}

/// The end of an archive.
pub(crate) fn finish(archive: &mut dyn Write) -> io::Result<()> {
    archive.write_all(&[0; 2 * BLOCK as usize])
}

#[cfg(test)]
#[path = "tar_tests.rs"]
pub(crate) mod tests;
