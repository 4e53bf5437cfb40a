//! Protocol Buffers, as far as ONNX files and TensorBoard events need them: writing only. A message is a run of fields,
//! each a tag (field number times 8 plus wire type) and a value. The field numbers are with the writers of the formats.

/// The bytes of a message under construction.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// `int32`, `int64`, `enum` or `bool`. Negative numbers take ten bytes, as the format has it.
    pub(crate) fn int(mut self, field: u32, value: i64) -> Self {
        self.tag(field, 0);
        push_varint(&mut self.0, value as u64);
        self
    }

    /// `float`.
    pub(crate) fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// `double`.
    pub(crate) fn double(mut self, field: u32, value: f64) -> Self {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// `string`.
    pub(crate) fn text(self, field: u32, value: &str) -> Self {
        self.open(field, value.len()).then(value.as_bytes())
    }

    /// A message within this one.
    pub(crate) fn message(self, field: u32, value: Message) -> Self {
        self.open(field, value.0.len()).then(&value.0)
    }

    /// The start of a `bytes` or message field whose `len` bytes the caller appends, if too large to be held twice.
    pub(crate) fn open(mut self, field: u32, len: usize) -> Self {
        self.tag(field, 2);
        push_varint(&mut self.0, len as u64);
        self
    }

    /// Appends the content of a field that was opened.
    pub(crate) fn then(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn tag(&mut self, field: u32, wire: u32) {
        push_varint(&mut self.0, u64::from(field << 3 | wire));
    }
}

/// Seven bits to a byte, lowest first; the eighth says that more follow.
fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[cfg(test)]
#[path = "proto_tests.rs"]
pub(crate) mod tests;
