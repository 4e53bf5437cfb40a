use super::*;
use crate::testing::{assert_close, tensor};
use proptest::prelude::*;

const ACTIVATIONS: [Activation; 6] = [
    Activation::Identity,
    Activation::Gelu,
    Activation::Relu,
    Activation::Relu6,
    Activation::HardSwish,
    Activation::Silu,
];

/// Values between -2 and 2 that depend on the name.
fn random(name: &str, dims: &[usize]) -> Tensor {
    let t = tensor(&format!("{name}_token"), dims);
    (t * 2.0).unwrap()
}

/// A map with a weight (inputs, outputs).
fn map(inputs: usize, outputs: usize) -> Affine {
    Affine {
        weight: random("w", &[inputs, outputs]),
        bias: random("b", &[outputs]),
    }
}

#[test]
fn activations_agree_with_stock_operators() {
    let values: Vec<f32> = (-2000..2000).map(|i| i as f32 / 100.0).collect();
    let x = Tensor::new(values.clone(), &Device::Cpu).unwrap();
    for activation in ACTIVATIONS {
        let mut values = values.clone();
        activate(activation, &mut values);
        let want = stock::activate(activation, &x).unwrap();
        let got = Tensor::new(values, &Device::Cpu).unwrap();
        assert_close(activation.name(), &got, &want, 2e-6);
    }
}

#[test]
fn windows_are_pytorchs_and_tensorflows() {
    let out = |w: Window| (w.before, w.out);
    assert_eq!(out(Window::padded(224, 3, 2, 1)), (1, 112));
    assert_eq!(out(Window::padded(97, 3, 2, 1)), (1, 49));
    // timm: pad_same puts the odd zero last.
    assert_eq!(out(Window::same(224, 3, 2)), (0, 112));
    assert_eq!(out(Window::same(75, 3, 2)), (1, 38));
    assert_eq!(out(Window::same(112, 5, 2)), (1, 56));
    assert_eq!(out(Window::same(7, 5, 1)), (2, 7));
}

#[test]
fn refuses_shapes_that_do_not_fit() {
    let x = random("x", &[2, 3, 4]);
    let none = Activation::Identity;
    assert!(map(3, 5).linear(&x, none).is_err());
    let residual = random("r", &[2, 3, 4]);
    assert!(map(4, 5).onto(&residual, &x).is_err());
    let image = random("x", &[1, 4, 4, 2]);
    let window = Window::padded(4, 3, 1, 1);
    assert!(map(4, 5).convolve(&image, window, None, none).is_err());
    assert!(map(4, 5).depthwise(&image, window, none).is_err());
    let part = Columns {
        tokens: &x,
        offset: 3,
        per_head: 4,
    };
    let bias = random("bias", &[1, 3, 3]);
    assert!(attention(part, part, part, &bias, (2, 2), none).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn linear_agrees_with_stock(
        b in 0usize..4, n in 1usize..400, inputs in 1usize..20, outputs in 1usize..40,
        activation in 0usize..6, with_residual: bool,
    ) {
        let x = random("x", &[b, n, inputs]);
        let map = map(inputs, outputs);
        let residual = random("r", &[b, n, outputs]);
        let residual = with_residual.then_some(&residual);
        let activation = ACTIVATIONS[activation];
        let got = map.product(&x, residual, activation).unwrap();
        if b > 0 {
            let want = stock::linear(&x, &map, residual, activation).unwrap();
            assert_close("linear", &got, &want, 1e-4);
        }
    }

    #[test]
    fn convolutions_agree_with_stock(
        b in 1usize..3, size in 1usize..30, c in 1usize..40, outputs in 1usize..20,
        kernel in 1usize..6, stride in 1usize..4, same: bool, with_residual: bool,
    ) {
        let kernel = if same { kernel } else { kernel.min(size) };
        let window = if same {
            Window::same(size, kernel, stride)
        } else {
            Window::padded(size, kernel, stride, kernel / 2)
        };
        let x = random("x", &[b, size, size, c]);
        let dense = map(kernel * kernel * c, outputs);
        let act = Activation::Relu6;
        let residual = random("r", &[b, window.out, window.out, outputs]);
        let residual = with_residual.then_some(&residual);
        let got = dense.convolve(&x, window, residual, act).unwrap();
        let want = stock::convolve(&x, &dense, window, residual, act).unwrap();
        assert_close("dense", &got, &want, 1e-3);
        let some = x.abs().unwrap();
        let want = stock::max_pool(&some, window).unwrap();
        assert_close("maxima", &max_pool(&some, window).unwrap(), &want, 1e-9);
        let map = map(kernel * kernel, c);
        let got = map.depthwise(&x, window, act).unwrap();
        assert_close("depthwise", &got, &stock::depthwise(&x, &map, window, act).unwrap(), 1e-4);
    }

    #[test]
    fn attention_agrees_with_stock(
        b in 1usize..4, n in 1usize..20, m in 1usize..40, heads in 1usize..4,
        width in 1usize..9, value in 1usize..9, gap in 0usize..3,
    ) {
        let q = random("q", &[b, n, heads * (width + gap)]);
        let kv = random("kv", &[b, m, heads * (width + value + gap)]);
        let bias = random("bias", &[heads, n, m]);
        let query = Columns { tokens: &q, offset: gap, per_head: width + gap };
        let part = |offset| Columns { tokens: &kv, offset, per_head: width + value + gap };
        let (k, v) = (part(gap), part(gap + width));
        let widths = (width, value);
        let act = Activation::HardSwish;
        let got = attention(query, k, v, &bias, widths, act).unwrap();
        let want = stock::attention(query, k, v, &bias, widths, act).unwrap();
        assert_close("attention", &got, &want, 1e-4);
    }
}
