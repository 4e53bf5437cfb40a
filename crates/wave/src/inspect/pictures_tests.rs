use super::*;
use candle_core::Device;

#[test]
fn a_mosaic_keeps_every_value_between_lines() {
    let t = Tensor::arange(0.0_f32, 16.0, &Device::Cpu).unwrap();
    let (_, rows, cols, values) = mosaic("s".into(), &t.reshape((4, 2, 2)).unwrap()).unwrap();
    assert_eq!((rows, cols), (5, 5));
    let n = f32::NAN;
    let expected = [
        [0.0, 1.0, n, 4.0, 5.0],
        [2.0, 3.0, n, 6.0, 7.0],
        [n; 5],
        [8.0, 9.0, n, 12.0, 13.0],
        [10.0, 11.0, n, 14.0, 15.0],
    ];
    for (found, expected) in values.iter().zip(expected.as_flattened()) {
        assert!(found == expected || (found.is_nan() && expected.is_nan()));
    }
}

#[test]
fn a_thinned_matrix_keeps_every_so_manyth_row_and_column() {
    let values: Vec<f32> = (0..15).map(|v| v as f32).collect();
    let panel = ("m".to_owned(), 3, 5, values);
    assert_eq!(thin(&panel, 5), (panel.clone(), 1));
    let kept = vec![0.0, 2.0, 4.0, 10.0, 12.0, 14.0];
    assert_eq!(thin(&panel, 3), (("m".to_owned(), 2, 3, kept), 2));
    assert_eq!(thin(&panel, 0).0.3, [0.0]);
}
