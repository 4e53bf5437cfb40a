//! The part of onnx.proto that is written here: field numbers, and the messages made of them.

use crate::FloatType;
use crate::proto::Message;

pub(super) mod model {
    pub(crate) const IR_VERSION: u32 = 1;
    pub(crate) const PRODUCER_NAME: u32 = 2;
    pub(crate) const PRODUCER_VERSION: u32 = 3;
    pub(crate) const GRAPH: u32 = 7;
    pub(crate) const OPSET_IMPORT: u32 = 8;
    pub(crate) const METADATA_PROPS: u32 = 14;
}

pub(super) mod opset {
    pub(crate) const DOMAIN: u32 = 1;
    pub(crate) const VERSION: u32 = 2;
}

pub(super) mod entry {
    pub(crate) const KEY: u32 = 1;
    pub(crate) const VALUE: u32 = 2;
}

pub(super) mod graph {
    pub(crate) const NODE: u32 = 1;
    pub(crate) const NAME: u32 = 2;
    pub(crate) const INITIALIZER: u32 = 5;
    pub(crate) const INPUT: u32 = 11;
    pub(crate) const OUTPUT: u32 = 12;
}

pub(super) mod node {
    pub(crate) const INPUT: u32 = 1;
    pub(crate) const OUTPUT: u32 = 2;
    pub(crate) const NAME: u32 = 3;
    pub(crate) const OP_TYPE: u32 = 4;
    pub(crate) const ATTRIBUTE: u32 = 5;
}

pub(super) mod attribute {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const FLOAT: u32 = 2;
    pub(crate) const INT: u32 = 3;
    pub(crate) const INTS: u32 = 8;
    pub(crate) const TYPE: u32 = 20;
}

pub(super) mod tensor {
    pub(crate) const DIMS: u32 = 1;
    pub(crate) const DATA_TYPE: u32 = 2;
    pub(crate) const NAME: u32 = 8;
    pub(crate) const RAW_DATA: u32 = 9;
}

/// `TensorProto.DataType`.
pub(super) const FLOAT: i64 = 1;
const INT64: i64 = 7;
const FLOAT16: i64 = 10;
const BFLOAT16: i64 = 16;

/// The value of a node's attribute.
#[derive(Debug, Clone, Copy)]
pub(super) enum Attribute<'a> {
    Int(i64),
    Float(f32),
    Ints(&'a [i64]),
}

/// `AttributeProto`.
pub(super) fn attribute(name: &str, value: Attribute<'_>) -> Message {
    let message = Message::new().text(attribute::NAME, name);
    // The last number of each line is the `AttributeType`.
    match value {
        Attribute::Float(v) => message.float(attribute::FLOAT, v).int(attribute::TYPE, 1),
        Attribute::Int(v) => message.int(attribute::INT, v).int(attribute::TYPE, 2),
        Attribute::Ints(v) => v
            .iter()
            .fold(message, |message, v| message.int(attribute::INTS, *v))
            .int(attribute::TYPE, 7),
    }
}

/// `ValueInfoProto` of an f32 tensor; the dimension without a size is named `batch`.
pub(super) fn float_value(name: &str, shape: &[Option<usize>]) -> Message {
    let dims = shape.iter().fold(Message::new(), |dims, size| {
        let dim = match size {
            Some(n) => Message::new().int(1, *n as i64),
            None => Message::new().text(2, "batch"),
        };
        dims.message(1, dim)
    });
    // TypeProto.Tensor: elem_type, shape. TypeProto: tensor_type.
    let tensor = Message::new().int(1, FLOAT).message(2, dims);
    let kind = Message::new().message(1, tensor);
    Message::new().text(1, name).message(2, kind)
}

/// A one-dimensional i64 `TensorProto`.
pub(super) fn integers(name: &str, values: &[i64]) -> Message {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Message::new()
        .int(tensor::DIMS, values.len() as i64)
        .int(tensor::DATA_TYPE, INT64)
        .text(tensor::NAME, name)
        .bytes(tensor::RAW_DATA, &data)
}

/// An i64 `TensorProto` without dimensions.
pub(super) fn index(name: &str, value: i64) -> Message {
    Message::new()
        .int(tensor::DATA_TYPE, INT64)
        .text(tensor::NAME, name)
        .bytes(tensor::RAW_DATA, &value.to_le_bytes())
}

/// An f32 `TensorProto` without dimensions.
pub(super) fn scalar(name: &str, value: f32) -> Message {
    Message::new()
        .int(tensor::DATA_TYPE, FLOAT)
        .text(tensor::NAME, name)
        .bytes(tensor::RAW_DATA, &value.to_le_bytes())
}

/// A `TensorProto` of floating-point numbers up to its values, which come last.
pub(super) fn tensor_head(name: &str, shape: &[usize], float: FloatType) -> Message {
    let values: usize = shape.iter().product();
    let (data_type, bytes) = match float {
        FloatType::F32 => (FLOAT, 4),
        FloatType::F16 => (FLOAT16, 2),
        FloatType::Bf16 => (BFLOAT16, 2),
    };
    shape
        .iter()
        .fold(Message::new(), |message, n| {
            message.int(tensor::DIMS, *n as i64)
        })
        .int(tensor::DATA_TYPE, data_type)
        .text(tensor::NAME, name)
        .open(tensor::RAW_DATA, bytes * values)
}
