//! The messages of onnx.proto that are written here. Comments name the fields.

use crate::FloatType;
use crate::proto::Message;

/// `TensorProto.DataType`.
pub(super) const FLOAT: i64 = 1;
const INT64: i64 = 7;
const FLOAT16: i64 = 10;
const BFLOAT16: i64 = 16;

/// `NodeProto`: input 1, output 2, name 3, op_type 4, attribute 5.
pub(super) fn node(
    operator: &str,
    name: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: &[Message],
) -> Message {
    let mut node = Message::new();
    for input in inputs {
        node = node.text(1, input);
    }
    for output in outputs {
        node = node.text(2, output);
    }
    node = node.text(3, name).text(4, operator);
    for attribute in attributes {
        node = node.message(5, attribute.clone());
    }
    node
}

// `AttributeProto`: name 1, f 2, i 3, ints 8, type 20.

pub(super) fn float(name: &str, value: f32) -> Message {
    Message::new().text(1, name).float(2, value).int(20, 1)
}

pub(super) fn int(name: &str, value: i64) -> Message {
    Message::new().text(1, name).int(3, value).int(20, 2)
}

pub(super) fn ints(name: &str, values: &[i64]) -> Message {
    let list = Message::new().text(1, name);
    let list = values.iter().fold(list, |list, value| list.int(8, *value));
    list.int(20, 7)
}

/// `ValueInfoProto` of an f32 tensor with these dimensions after the free one, which is named `batch`.
pub(super) fn float_value(name: &str, shape: &[usize]) -> Message {
    let batch = Message::new().message(1, Message::new().text(2, "batch"));
    let dims = shape.iter().fold(batch, |dims, n| {
        dims.message(1, Message::new().int(1, *n as i64))
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

/// `TensorProto`: dims 1, data_type 2, name 8, raw_data 9.
fn tensor_head(name: &str, shape: &[usize], data_type: i64, bytes: usize) -> Message {
    let dims = shape
        .iter()
        .fold(Message::new(), |message, n| message.int(1, *n as i64));
    dims.int(2, data_type).text(8, name).open(9, bytes)
}
