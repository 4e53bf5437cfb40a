//! The part of onnx.proto that is written here: field numbers, and the messages made of them.

use crate::FloatType;
use crate::proto::Message;

pub(super) const MODEL_IR_VERSION: u32 = 1;
pub(super) const MODEL_PRODUCER_NAME: u32 = 2;
pub(super) const MODEL_PRODUCER_VERSION: u32 = 3;
pub(super) const MODEL_GRAPH: u32 = 7;
pub(super) const MODEL_OPSET_IMPORT: u32 = 8;
pub(super) const MODEL_METADATA_PROPS: u32 = 14;

pub(super) const OPSET_DOMAIN: u32 = 1;
pub(super) const OPSET_VERSION: u32 = 2;

pub(super) const ENTRY_KEY: u32 = 1;
pub(super) const ENTRY_VALUE: u32 = 2;

pub(super) const GRAPH_NODE: u32 = 1;
pub(super) const GRAPH_NAME: u32 = 2;
pub(super) const GRAPH_INITIALIZER: u32 = 5;
pub(super) const GRAPH_INPUT: u32 = 11;
pub(super) const GRAPH_OUTPUT: u32 = 12;

pub(super) const NODE_INPUT: u32 = 1;
pub(super) const NODE_OUTPUT: u32 = 2;
pub(super) const NODE_NAME: u32 = 3;
pub(super) const NODE_OP_TYPE: u32 = 4;
pub(super) const NODE_ATTRIBUTE: u32 = 5;

const ATTRIBUTE_NAME: u32 = 1;
const ATTRIBUTE_FLOAT: u32 = 2;
const ATTRIBUTE_INT: u32 = 3;
const ATTRIBUTE_INTS: u32 = 8;
const ATTRIBUTE_TYPE: u32 = 20;

const TENSOR_DIMS: u32 = 1;
const TENSOR_DATA_TYPE: u32 = 2;
const TENSOR_NAME: u32 = 8;
const TENSOR_RAW_DATA: u32 = 9;

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
    let message = Message::new().text(ATTRIBUTE_NAME, name);
    // The last number of each line is the `AttributeType`.
    match value {
        Attribute::Float(v) => message.float(ATTRIBUTE_FLOAT, v).int(ATTRIBUTE_TYPE, 1),
        Attribute::Int(v) => message.int(ATTRIBUTE_INT, v).int(ATTRIBUTE_TYPE, 2),
        Attribute::Ints(v) => v
            .iter()
            .fold(message, |message, v| message.int(ATTRIBUTE_INTS, *v))
            .int(ATTRIBUTE_TYPE, 7),
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

/// A whole i64 `TensorProto`.
pub(super) fn integers(name: &str, shape: &[usize], values: &[i64]) -> Message {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    tensor_head(name, shape, INT64, data.len()).then(&data)
}

/// A whole f32 `TensorProto` without dimensions.
pub(super) fn scalar(name: &str, value: f32) -> Message {
    tensor_head(name, &[], FLOAT, 4).then(&value.to_le_bytes())
}

/// A `TensorProto` of floating-point numbers up to its values, which come last.
pub(super) fn float_head(name: &str, shape: &[usize], float: FloatType) -> Message {
    let data_type = match float {
        FloatType::F32 => FLOAT,
        FloatType::F16 => FLOAT16,
        FloatType::Bf16 => BFLOAT16,
    };
    let values: usize = shape.iter().product();
    tensor_head(name, shape, data_type, float.bytes() * values)
}

fn tensor_head(name: &str, shape: &[usize], data_type: i64, bytes: usize) -> Message {
    let dims = shape.iter().fold(Message::new(), |message, n| {
        message.int(TENSOR_DIMS, *n as i64)
    });
    dims.int(TENSOR_DATA_TYPE, data_type)
        .text(TENSOR_NAME, name)
        .open(TENSOR_RAW_DATA, bytes)
}
