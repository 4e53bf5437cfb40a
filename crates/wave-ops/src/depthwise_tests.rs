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

/// candle's own dilated convolution, in as many groups as channels.
fn stock_dilated(x: &Tensor, weight: &Tensor, bias: &Tensor, dilation: usize) -> Result<Tensor> {
    let (c, k, _) = weight.dims3()?;
    let padding = dilation * (k - 1) / 2;
    x.permute((0, 3, 1, 2))?
        .contiguous()?
        .conv2d(&weight.unsqueeze(1)?, padding, 1, dilation, c)?
        .permute((0, 2, 3, 1))?
        .contiguous()?
        .broadcast_add(bias)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn dilated_agrees_with_a_grouped_convolution(
        b in 1usize..3, h in 1usize..12, w in 1usize..14, c in 1usize..20, half in 0usize..4,
        dilation in 1usize..5,
    ) {
        let case = case(b, h, w, c, 2 * half + 1);
        let ours = run(|x, w, b| dilated_depthwise_conv(x, w, b, dilation), &case);
        let stock = run(|x, w, b| stock_dilated(x, w, b, dilation), &case);
        for (name, (a, b)) in ["y", "dx", "dw", "db"].iter().zip(ours.iter().zip(&stock)) {
            let d = difference(a, b);
            prop_assert!(d < 2e-4, "{name} differs by {d}");
        }
    }
}

#[test]
fn a_dilated_kernel_reaches_as_far_as_one_of_the_effective_size() {
    let side = 21;
    for (k, dilation) in [(3, 1), (3, 2), (3, 3), (5, 2), (7, 3), (1, 4)] {
        let effective = k + (k - 1) * (dilation - 1);
        let mut point = vec![0f32; side * side];
        point[side * side / 2] = 1.0;
        let point = Tensor::from_vec(point, (1, side, side, 1), &Device::Cpu).unwrap();
        let w = Tensor::ones((1, k, k), DType::F32, &Device::Cpu).unwrap();
        let b = Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap();
        let y = dilated_depthwise_conv(&point, &w, &b, dilation).unwrap();
        assert_eq!(y.dims(), point.dims());
        let met: Vec<usize> = (0..side * side).filter(|i| values(&y)[*i] != 0.0).collect();
        assert_eq!(met.len(), k * k);
        let extent = |of: fn(usize) -> usize| {
            let places = || met.iter().map(|i| of(*i));
            places().max().unwrap() - places().min().unwrap() + 1
        };
        assert_eq!(extent(|i| i / 21), effective);
        assert_eq!(extent(|i| i % 21), effective);
    }
    let [x, w, b, _] = case(1, 4, 4, 2, 4);
    assert!(dilated_depthwise_conv(&x, &w, &b, 1).is_ok());
    assert!(dilated_depthwise_conv(&x, &w, &b, 2).is_err());
    assert!(dilated_depthwise_conv(&x, &w, &b, 0).is_err());
}

#[test]
fn every_register_width_agrees() {
    let (h, w, c, k) = (7, 9, 21, 5);
    let [x, weight, bias, dy] = case(2, h, w, c, k).map(|v| values(&v));
    let g = Geometry::new(h, w, c, k);
    let run = |arch| {
        let (dx, d_weight, d_bias) = backward(arch, g, &x, &weight, &dy, true);
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
    let dilated = |x: &Tensor, w: &Tensor, b: &Tensor| dilated_depthwise_conv(x, w, b, 2);
    let grads = run(dilated, &case);
    check_slopes(dilated, &case, &grads[1..], 1e-3);
}

#[test]
fn a_frozen_kernel_has_no_gradient_and_changes_no_other() {
    let case = case(3, 6, 7, 20, 5);
    let all = run(depthwise_conv, &case);
    let [x, w, b, dy] = &case;
    let y = depthwise_conv(x, &w.as_detached_tensor(), b).unwrap();
    let sum = (&y * dy.as_tensor()).unwrap().sum_all().unwrap();
    let grads = sum.backward().unwrap();
    assert!(grads.get(w).is_none());
    assert_eq!(values(grads.get(x).unwrap()), values(&all[1]));
    assert_eq!(values(grads.get(b).unwrap()), values(&all[3]));
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
