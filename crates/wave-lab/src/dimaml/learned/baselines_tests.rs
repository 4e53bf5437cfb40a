use super::*;
use crate::testing::values;

/// "zeros except centre tap = gain Q; assert QᵀQ = I".
#[test]
fn the_middle_of_delta_orthogonal_filters_is_orthogonal() {
    for (out, inp, k) in [(8, 5, 3), (6, 6, 5), (3, 7, 1), (4, 9, 3)] {
        let filters = delta_orthogonal(&[out, inp, k, k], 2.0, 1, 0).unwrap();
        let middle = filters.narrow(2, k / 2, 1).unwrap();
        let middle = middle.narrow(3, k / 2, 1).unwrap();
        let q = (middle.reshape((out, inp)).unwrap() / 2.0).unwrap();
        let gram = match out >= inp {
            true => q.t().unwrap().matmul(&q).unwrap(),
            false => q.matmul(&q.t().unwrap()).unwrap(),
        };
        let identity = Tensor::eye(out.min(inp), gram.dtype(), gram.device()).unwrap();
        let error = (gram - identity).unwrap();
        assert!(values(&error).iter().all(|e| e.abs() < 1e-6));
        let all = dot(&filters, &filters).unwrap();
        let within = dot(&middle, &middle).unwrap();
        assert_eq!(all, within, "zeros but in the middle");
    }
    assert!(delta_orthogonal(&[4, 4, 2, 2], 1.0, 0, 0).is_err());
    assert!(delta_orthogonal(&[4], 1.0, 0, 0).is_err());
}

/// "Assert direction W/‖W‖ unchanged", and that the norms move as the slope says.
#[test]
fn metainit_changes_norms_alone() {
    let t = |values: &[f64], dims: &[usize]| {
        let t = Tensor::from_slice(values, dims, &Device::Cpu);
        t.unwrap()
    };
    let start = Weights::from([
        ("a".into(), t(&[3.0, 4.0, 0.0, 0.0], &[2, 2])),
        ("b".into(), t(&[-1.0, 2.0], &[1, 2])),
        ("bias".into(), t(&[1.0, 2.0], &[2])),
        ("zero".into(), t(&[0.0, 0.0], &[1, 2])),
    ]);
    // (|a| - 2)² and |b|²: the slopes are 2 (|a| - 2) a / |a| and 2 b.
    let slope = |_: u64, w: &Weights| {
        let norm = dot(&w["a"], &w["a"])?.sqrt();
        Ok(Weights::from([
            ("a".into(), (&w["a"] * (2.0 * (norm - 2.0) / norm))?),
            ("b".into(), (&w["b"] * 2.0)?),
            ("bias".into(), w["bias"].clone()),
        ]))
    };
    let end = metainit(&start, 400, [0.01, 0.5], slope).unwrap();
    let norm = |t: &Tensor| dot(t, t).unwrap().sqrt();
    assert!((norm(&end["a"]) - 2.0).abs() < 0.05);
    assert!((norm(&end["b"]) - LEAST_NORM).abs() < 0.05);
    for name in ["a", "b"] {
        let (from, to) = (&start[name], &end[name]);
        let cosine = dot(from, to).unwrap() / (norm(from) * norm(to));
        assert!((cosine - 1.0).abs() < 1e-12, "{name}: {cosine}");
    }
    for name in ["bias", "zero"] {
        let kept = (&start[name] - &end[name]).unwrap();
        assert_eq!(norm(&kept), 0.0, "{name}");
    }
}
