use std::io::Cursor;

use proptest::prelude::*;

use super::*;

pub(crate) fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        append(&mut bytes, name, content).unwrap();
    }
    finish(&mut bytes).unwrap();
    bytes
}

/// The path in errors.
fn path() -> &'static Path {
    Path::new("x.tar")
}

#[test]
fn what_is_written_is_listed() {
    let files: [(&str, &[u8]); 3] = [("a.jpg", b"one"), ("d/b.cls", &[7; 600]), ("empty", b"")];
    let bytes = archive(&files);
    let members = list(&mut Cursor::new(&bytes), path()).unwrap();
    let content = |m: &Member| &bytes[m.offset as usize..][..m.size as usize];
    let found: Vec<_> = members.iter().map(|m| (&*m.name, content(m))).collect();
    assert_eq!(found, files);
    assert!(append(&mut Vec::new(), &"x".repeat(101), b"").is_err());
}

#[test]
fn long_names_of_either_kind_are_read() {
    let name = format!("{}/a.jpg", "d".repeat(150));
    let (gnu, pax) = (format!("{name}\0"), format!("166 path={name}\n"));
    for (kind, header) in [(b'L', gnu), (b'x', pax)] {
        let mut bytes = Vec::new();
        append(&mut bytes, "header", header.as_bytes()).unwrap();
        set_kind(&mut bytes, kind);
        append(&mut bytes, "short", b"x").unwrap();
        finish(&mut bytes).unwrap();
        let members = list(&mut Cursor::new(bytes), path()).unwrap();
        assert_eq!(members.len(), 1);
        assert_eq!(members[0].name, name);
    }
}

/// Changes the kind of the first member, and its checksum with it.
fn set_kind(bytes: &mut [u8], kind: u8) {
    bytes[156] = kind;
    bytes[148..156].fill(b' ');
    let sum: u32 = bytes[..512].iter().map(|&byte| u32::from(byte)).sum();
    bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

#[track_caller]
fn check_refused(bytes: &[u8], expected: &str) {
    let listed = list(&mut Cursor::new(bytes), path());
    crate::testing::check_refused(listed, &["x.tar: ", expected]);
}

#[test]
fn an_archive_that_is_cut_anywhere_is_refused() {
    let mut sound = archive(&[("a.jpg", &[1; 600]), ("a.cls", b"3"), ("b.jpg", &[0; 700])]);
    for length in 0..sound.len() {
        check_refused(&sound[..length], "truncated");
    }
    // Other programs pad the last record.
    sound.resize(10_240, 0);
    assert_eq!(list(&mut Cursor::new(&sound), path()).unwrap().len(), 3);
}

#[test]
fn damaged_archives_are_refused() {
    let sound = archive(&[("a.jpg", &[1; 2000])]);
    check_refused(&[b'x'; 1024], "no header");
    let mut lying = sound.clone();
    lying[124..136].copy_from_slice(b"77777777777\0");
    set_kind(&mut lying, b'0');
    check_refused(&lying, "8589934591 bytes");
    lying[124] = 0xFF;
    set_kind(&mut lying, b'0');
    check_refused(&lying, "no readable size");
    let mut link = archive(&[("@LongLink", &[1; 100_000])]);
    set_kind(&mut link, b'L');
    check_refused(&link, "too long");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_make_it_panic(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        kind in prop::sample::select(b"0LxgK5\0".to_vec()),
        cut: prop::sample::Index,
        size in "[0-7]{11}",
        set_size: bool,
    ) {
        let mut bytes = archive(&[("a", b"30 path=x\n12 size=99\n"), ("a.jpg", &[1; 700]), ("a.cls", b"3")]);
        if set_size {
            bytes[124..135].copy_from_slice(size.as_bytes());
        }
        set_kind(&mut bytes, kind);
        for (at, with) in damage {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        bytes.truncate(bytes.len() - cut.index(bytes.len()) / 4);
        if let Ok(members) = list(&mut Cursor::new(&bytes), path()) {
            for member in members {
                prop_assert!(member.offset + member.size <= bytes.len() as u64);
            }
        }
        let _ = crate::webdataset::parse(&mut Cursor::new(&bytes), path());
    }
}
