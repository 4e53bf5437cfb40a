use crate::testing::{assert_close, assert_same, shape, start, values};

#[test]
fn what_feeds_the_residual_stream_is_xavier_times_the_scale() {
    let (target, d) = (shape(5, 16), 16);
    let fixed = start("t-fixup", &target, &[]).weights;
    let xavier = start("xavier", &target, &[]).weights;
    let scale = 0.67 * 5f64.powf(-0.25); // 0.4480560
    assert!((scale - 0.448_056_0).abs() < 1e-6, "{scale}");
    for (name, tensor) in &fixed {
        let plain = &xavier[name];
        if name.ends_with("attn.qkv.weight") {
            let qk = |t: &candle_core::Tensor| t.narrow(0, 0, 2 * d).unwrap();
            assert_same(name, &qk(tensor), &qk(plain));
            let v = |t: &candle_core::Tensor| t.narrow(0, 2 * d, d).unwrap();
            let scaled = (v(plain) * scale).unwrap();
            assert_close(&values(&v(tensor)), &values(&scaled), 1e-7);
        } else if ["attn.proj.weight", "fc1.weight", "fc2.weight"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            assert_close(&values(tensor), &values(&(plain * scale).unwrap()), 1e-7);
        } else {
            assert_same(name, tensor, plain);
        }
    }
}
