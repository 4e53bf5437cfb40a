use super::*;
use crate::testing::{check_slopes, difference, random, values};
use candle_core::{DType, Device, Var};
use proptest::prelude::*;

/// Input, weight, bias, and the output's gradient.
fn case(b: usize, h: usize, w: usize, c: usize, k: usize) -> [Var; 4] {
    let shapes = [vec![b, h, w, c], vec![c, k, k], vec![c], vec![b, h, w, c]];
    let mut seed = 0;
    shapes.map(|shape| {
        seed += 1;
        random(seed, shape)
    })
}

/// Output and the three gradients of `sum(y * dy)`.
fn run(
    f: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>,
    [x, w, b, dy]: &[Var; 4],
) -> Vec<Tensor> {
    let y = f(x, w, b).unwrap();
    let grads = (&y * dy.as_tensor())
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let of = |v: &Var| grads.get(v).unwrap().clone();
    vec![y, of(x), of(w), of(b)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_a_grouped_convolution(
        b in 1usize..4, h in 1usize..12, w in 1usize..18, c in 1usize..36, k in 1usize..11,
    ) {
        let case = case(b, h, w, c, k);
        let (ours, stock) = (run(depthwise_conv, &case), run(stock_depthwise_conv, &case));
        for (name, (a, b)) in ["y", "dx", "dw", "db"].iter().zip(ours.iter().zip(&stock)) {
            let d = difference(a, b);
            prop_assert!(d < 2e-4, "{name} differs by {d}");
        }
    }
}

#[test]
fn every_register_width_agrees() {
    let (h, w, c, k) = (7, 9, 21, 5);
    let [x, weight, bias, dy] = case(2, h, w, c, k).map(|v| values(&v));
    let g = Geometry::new(h, w, c, k);
    let run = |arch| {
        let (dx, d_weight, d_bias) = backward(arch, g, &x, &weight, &dy);
        [forward(arch, g, &x, &weight, &bias), dx, d_weight, d_bias]
    };
    #[allow(unused_mut)]
    let mut others = vec![Arch::Scalar];
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    others.extend(pulp::x86::V3::try_new().map(Arch::V3));
    let native = run(current().arch());
    for arch in others {
        for (a, b) in native.iter().flatten().zip(run(arch).iter().flatten()) {
            assert!((a - b).abs() < 1e-4, "{a} or {b}");
        }
    }
}

#[test]
fn even_kernels_pad_the_end() {
    // A kernel of ones of size 2: torch.nn.functional.conv2d(x, torch.ones(1, 1, 2, 2),
    // padding="same") of [[1, 2], [3, 4]] is [[10, 6], [7, 4]].
    let x = Tensor::new(&[1f32, 2., 3., 4.], &Device::Cpu).unwrap();
    let x = x.reshape((1, 2, 2, 1)).unwrap();
    let w = Tensor::ones((1, 2, 2), DType::F32, &Device::Cpu).unwrap();
    let b = Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap();
    let y = depthwise_conv(&x, &w, &b).unwrap();
    assert_eq!(values(&y), [10., 6., 7., 4.]);
}

#[test]
fn gradients_match_finite_differences() {
    let case = case(2, 4, 5, 3, 3);
    let grads = run(depthwise_conv, &case);
    check_slopes(depthwise_conv, &case, &grads[1..], 1e-3); // f64: the stock path
}

#[test]
fn repeats_bit_for_bit() {
    let case = case(9, 6, 7, 20, 5);
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let once = || pool.install(|| run(depthwise_conv, &case));
        for (a, b) in once().iter().zip(&once()) {
            assert_eq!(values(a), values(b));
        }
    }
}

#[test]
fn accepts_strided_input_and_rejects_wrong_shapes() {
    let [x, w, b, _] = case(2, 5, 6, 4, 3);
    let turned = x.permute((0, 2, 1, 3)).unwrap();
    let plain = depthwise_conv(&turned.contiguous().unwrap(), &w, &b).unwrap();
    assert_eq!(
        values(&depthwise_conv(&turned, &w, &b).unwrap()),
        values(&plain)
    );
    assert!(depthwise_conv(&x, &random(0, (3, 3, 3)), &b).is_err());
    assert!(depthwise_conv(&x, &random(0, (4, 3, 2)), &b).is_err());
    assert!(depthwise_conv(&x, &w, &random(0, 3)).is_err());
    let none = Tensor::zeros((0, 5, 6, 4), DType::F32, &Device::Cpu).unwrap();
    assert_eq!(depthwise_conv(&none, &w, &b).unwrap().dims(), [0, 5, 6, 4]);
}
