//! Helpers of this crate's tests.

use std::path::Path;

use candle_core::{Device, Tensor};

use crate::{HubError, Weights};

/// The names in `dir`, sorted: what a test calls "nothing left behind".
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Asserts that the request was wrong and that the message holds each of `parts`.
#[track_caller]
pub(crate) fn check_refused<T>(result: Result<T, HubError>, parts: &[&str]) {
    let error = result.err().expect("refused");
    assert!(error.is_request(), "not a wrong request: {error}");
    check_text(&error.to_string(), parts);
}

/// Asserts that a message holds each of `parts`.
#[track_caller]
pub(crate) fn check_text(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

/// An f32 tensor of the given shape that counts up from 0.5.
pub(crate) fn counting(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| i as f32 + 0.5).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// A weight map of counting tensors.
pub(crate) fn weights(shapes: &[(&str, &[usize])]) -> Weights {
    shapes
        .iter()
        .map(|(name, shape)| ((*name).to_owned(), counting(shape)))
        .collect()
}

/// Asserts equal names, shapes, element types and values.
#[track_caller]
pub(crate) fn check_equal(left: &Weights, right: &Weights) {
    assert!(left.keys().eq(right.keys()));
    for (name, a) in left {
        let b = &right[name];
        assert_eq!((a.dims(), a.dtype()), (b.dims(), b.dtype()), "{name}");
        let difference = a.ne(b).unwrap().flatten_all().unwrap();
        let difference = difference.to_vec1::<u8>().unwrap();
        assert!(difference.iter().all(|&differs| differs == 0), "{name}");
    }
}
