//! A reader, for this crate's tests to look at what was written.

use super::*;

/// The value of a field, by wire type.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Field {
    Int(i64),
    Double(f64),
    Bytes(Vec<u8>),
    Float(f32),
}

impl Field {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            other => panic!("expected bytes, found {other:?}"),
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self {
            Field::Int(value) => *value,
            other => panic!("expected an integer, found {other:?}"),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }
}

/// The fields of a message, in order; anything left over is a failure.
pub(crate) fn fields(mut bytes: &[u8]) -> Vec<(u32, Field)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Int(varint(&mut bytes) as i64),
            1 => Field::Double(f64::from_le_bytes(take(&mut bytes, 8).try_into().unwrap())),
            2 => {
                let n = varint(&mut bytes) as usize;
                Field::Bytes(take(&mut bytes, n).to_vec())
            }
            5 => Field::Float(f32::from_le_bytes(take(&mut bytes, 4).try_into().unwrap())),
            other => panic!("wire type {other}"),
        };
        all.push(((tag >> 3) as u32, field));
    }
    all
}

/// The values of field `number`.
pub(crate) fn all(bytes: &[u8], number: u32) -> Vec<Field> {
    let of_number = |(n, field)| (n == number).then_some(field);
    fields(bytes).into_iter().filter_map(of_number).collect()
}

/// The one value of field `number`.
#[track_caller]
pub(crate) fn one(bytes: &[u8], number: u32) -> Field {
    let mut found = all(bytes, number);
    assert_eq!(found.len(), 1, "field {number}");
    found.remove(0)
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> &'a [u8] {
    let (head, tail) = bytes.split_at(n);
    *bytes = tail;
    head
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a varint without end")
}

#[test]
fn bytes_are_those_of_the_format() {
    // The encoding guide's own examples: field 1 = 150, field 2 = "testing", field 3 = {1: 150}.
    let inner = Message::new().int(1, 150);
    assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
    let message = inner.clone().text(2, "testing").message(3, inner);
    assert_eq!(message.as_bytes()[3..12], *b"\x12\x07testing");
    assert_eq!(message.as_bytes()[12..], [0x1a, 0x03, 0x08, 0x96, 0x01]);
    // A negative number has ten bytes; fixed widths are little-endian; 3201 = 400 << 3 | 1.
    let negative = Message::new().int(1, -1);
    assert_eq!(
        negative.as_bytes(),
        *b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    );
    let fixed = Message::new().float(3, -0.5).double(400, 0.5);
    assert_eq!(
        fixed.as_bytes(),
        *b"\x1d\0\0\0\xbf\x81\x19\0\0\0\0\0\0\xe0\x3f"
    );
}
