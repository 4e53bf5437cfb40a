//! Every kernel and its gradient against the CPU operators, at odd shapes. The threads of blocks run
//! in four orders, with bit-identical results: a missing barrier would show.

use super::host::on_host_kernels;
use super::kernels::Attention;
use super::{Kind, Place, Values};
use crate::{BlocksShape, Kronecker, Mode, Precision, stock};
use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use rand::{Rng, SeedableRng};
use std::fmt::Debug;

mod optimisers;

const TOKENS: [usize; 4] = [1, 17, 50, 197];
/// Errors of f32 and of bf16 storage, relative to the norm of the expected values: accumulated roundings
/// of 2^-24 and 2^-9.
const CLOSE: f64 = 1e-5;
const NEAR: f64 = 1e-2;

/// Seeded values between -1 and 1.
fn random(seed: u64, shape: impl Into<Shape>) -> Var {
    scaled(seed, shape, 1.0)
}

/// The same, scaled.
fn scaled(seed: u64, shape: impl Into<Shape>, by: f32) -> Var {
    let shape = shape.into();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let values = (0..shape.elem_count()).map(|_| by * rng.random_range(-1f32..1.0));
    let t = Tensor::from_vec(values.collect(), shape, &Device::Cpu);
    Var::from_tensor(&t.unwrap()).unwrap()
}

/// All values as `f32`, in order.
fn values(t: &Tensor) -> Vec<f32> {
    let flat = t.flatten_all().unwrap().to_dtype(DType::F32).unwrap();
    flat.to_vec1().unwrap()
}

/// The norm of the difference over the norm of the expected values, or over 0.01 per value.
fn error(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let (mut off, mut size) = (0f64, 0f64);
    for (f, e) in found.iter().zip(expected) {
        let (f, e) = (f64::from(*f), f64::from(*e));
        off += (f - e) * (f - e);
        size += e * e;
    }
    off.sqrt() / size.sqrt().max(0.01 * (expected.len() as f64).sqrt())
}

#[track_caller]
fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>], tolerance: f64, what: impl Debug) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = error(found, expected);
        assert!(error < tolerance, "{what:?}, result {i}: off by {error}");
    }
}

/// The result of `f`, which must be the same in every order of threads.
#[track_caller]
fn in_all_orders(f: impl Fn() -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let bits =
        |all: &[Vec<f32>]| -> Vec<u32> { all.iter().flatten().map(|x| x.to_bits()).collect() };
    let first = on_host_kernels(0, &f);
    for order in 1..4 {
        let same = bits(&first) == bits(&on_host_kernels(order, &f));
        assert!(same, "the order {order} of threads changes the result");
    }
    first
}

/// The result of `f` and the gradients of a projection of it.
fn with_gradients(inputs: &[Var], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Vec<f32>> {
    let tensors: Vec<Tensor> = inputs.iter().map(|v| v.as_tensor().clone()).collect();
    let y = f(&tensors).unwrap();
    let projection = random(99, y.shape().clone());
    let loss = (&y * projection.as_tensor()).unwrap().sum_all().unwrap();
    let gradients = crate::backward(&loss).unwrap();
    let gradients = inputs
        .iter()
        .map(|v| values(gradients.get(v).expect("a gradient")));
    std::iter::once(values(&y)).chain(gradients).collect()
}

/// Compares the result with and without kernels.
#[track_caller]
fn check(inputs: &[Var], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let found = in_all_orders(|| with_gradients(inputs, &f));
    assert_close(&found, &with_gradients(inputs, &f), CLOSE, shapes(inputs));
}

/// The same in both precisions; in bf16 with this tolerance.
#[track_caller]
fn check_both(inputs: &[Var], near: f64, f: impl Fn(Precision, &[Tensor]) -> Result<Tensor>) {
    let single = |t: &[Tensor]| f(Precision::F32, t);
    check(inputs, single);
    let half = in_all_orders(|| with_gradients(inputs, |t| f(Precision::Bf16, t)));
    let what = ("bf16", shapes(inputs));
    assert_close(&half, &with_gradients(inputs, single), near, what);
}

fn shapes(inputs: &[Var]) -> Vec<&[usize]> {
    inputs.iter().map(|v| v.dims()).collect()
}

/// Values for kernels, stored in a kind; and the same as a tensor, rounded.
fn stored(kind: Kind, t: &Tensor) -> (Values, Tensor) {
    let place = Place::Host;
    let single = place.upload_f32(&values(t)).unwrap();
    if kind == Kind::F32 {
        return (single, t.clone());
    }
    let half = place.values(kind, t.elem_count()).unwrap();
    place.branch(single.view(), None, half.view()).unwrap();
    let rounded = Tensor::from_vec(read(&half), t.shape(), &Device::Cpu).unwrap();
    (half, rounded)
}

fn read(values: &Values) -> Vec<f32> {
    let bytes = Place::Host.download(values).unwrap();
    match values.kind {
        Kind::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            words.iter().map(|w| f32::from_ne_bytes(*w)).collect()
        }
        _ => {
            let half = |w: &[u8; 2]| crate::bf16::widened(u16::from_ne_bytes(*w));
            bytes.as_chunks::<2>().0.iter().map(half).collect()
        }
    }
}

#[test]
fn bf16_is_rounded_to_the_nearest() {
    // 1 + 2^-8 is halfway between 1 and 1 + 2^-7: ties to even give 1. 1 + 3 2^-8 goes to 1 + 2^-6.
    let half = 2f32.powi(-8);
    let halves = [1.0 + half, 1.0 + 3.0 * half];
    let numbers = [halves[0], halves[1], -3.3, 1e-40, f32::INFINITY, 1e38];
    let numbers = Tensor::new(&numbers, &Device::Cpu).unwrap();
    let (_, rounded) = stored(Kind::Bf16, &numbers);
    assert_eq!(
        values(&rounded),
        values(&numbers.to_dtype(DType::BF16).unwrap())
    );
}

#[test]
fn layer_norm_and_its_gradient() {
    for (rows, d) in [(1, 4), (17, 33), (50, 100), (197, 192), (9, 1000)] {
        let inputs = [random(1, (rows, d)), random(2, d), random(3, d)];
        check(&inputs, |t| crate::layer_norm(&t[0], &t[1], &t[2], 1e-6));
    }
}

#[test]
fn patches_and_their_embedding() {
    // A class token and another, or none; a row and a column that do not fill a patch; rows of odd length.
    for (b, c, h, w, p, first, d) in [
        (2, 3, 9, 7, 2, 2, 33),
        (3, 1, 8, 8, 4, 0, 16),
        (1, 2, 5, 5, 5, 1, 7),
    ] {
        let images = random(1, (b, c, h, w));
        let patches = || crate::patchify(&images, p).unwrap();
        let cut = || vec![values(&patches())];
        assert_eq!(in_all_orders(cut), cut());
        let (n, k) = ((h / p) * (w / p), c * p * p);
        let (patches, inputs) = (patches(), [random(2, (d, k)), random(3, (first + n, d))]);
        check_both(&inputs, NEAR, |precision, t| {
            crate::embed(precision, &patches, &t[0], &t[1])
        });
    }
}

#[test]
fn gelu_and_its_gradient() {
    for n in [1, 7, 8, 17, 1000] {
        check(&[scaled(1, n, 5.0)], |t| crate::gelu(&t[0]));
    }
}

#[test]
fn losses_and_their_gradients() {
    for size in [(1, 1), (3, 10), (17, 257), (5, 1000)] {
        let targets = stock::softmax(&scaled(2, size, 8.0).as_detached_tensor()).unwrap();
        // The loss of one class is 0, and so is its gradient, so there is no relative error.
        let loss = |t: &[Tensor]| crate::soft_cross_entropy(&t[0], &targets);
        check(&[scaled(1, size, 8.0)], loss);
    }
}

#[test]
fn kronecker_sums_and_their_gradients() {
    for (n, t, l, r, c) in [(1, 1, 1, 1, 1), (7, 16, 3, 1, 4), (4, 33, 2, 3, 1)] {
        let inputs = [random(1, (n, t, t)), random(2, (l, n, r, c))];
        for order in [Kronecker::Tile, Kronecker::Interleave] {
            check(&inputs, |x| crate::kronecker_sum(&x[0], &x[1], order));
        }
    }
}

/// Outputs and the gradient of qkv with candle's operators, in double precision.
fn attention(z: Attention, [qkv, bias, d_o]: [&Tensor; 3]) -> Vec<Vec<f32>> {
    let double = |t: &Tensor| t.to_dtype(DType::F64).unwrap();
    let qkv = Var::from_tensor(&double(qkv)).unwrap();
    let o = stock::attention(&qkv.broadcast_add(&double(bias)).unwrap(), z.heads).unwrap();
    let loss = (&o * double(d_o)).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    vec![values(&o), values(gradients.get(&qkv).unwrap())]
}

fn check_attention(kind: Kind, samples: usize, tokens: usize, heads: usize, head_width: usize) {
    let z = Attention {
        samples,
        tokens,
        heads,
        head_width,
    };
    let d = heads * head_width;
    // Scores with a magnitude of a few units.
    let qkv = scaled(1, (samples, tokens, 3 * d), 2.0);
    let (bias, d_o) = (random(2, 3 * d), random(3, (samples, tokens, d)));
    let ((qkv, qkv_is), (d_o, d_o_is)) = (stored(kind, &qkv), stored(kind, &d_o));
    let shift = stored(Kind::F32, &bias).0;
    let expected = attention(z, [&qkv_is, bias.as_tensor(), &d_o_is]);
    let found = in_all_orders(|| {
        let room = |kind, n| Place::Host.values(kind, n).unwrap();
        let (o, lse) = (room(kind, d_o.len), room(Kind::F32, z.rows()));
        let d_qkv = room(kind, qkv.len);
        let (qkv, bias, o_view, lse) = (qkv.view(), Some(shift.view()), o.view(), lse.view());
        let done = Place::Host.attention(z, qkv, bias, o_view, lse);
        done.unwrap();
        let (from, kept) = ((qkv, bias), (o_view, lse));
        let done = Place::Host.attention_backward(z, from, kept, d_o.view(), d_qkv.view());
        done.unwrap();
        vec![read(&o), read(&d_qkv)]
    });
    let tolerance = if kind == Kind::F32 { CLOSE } else { NEAR };
    assert_close(&found, &expected, tolerance, (z, kind));
}

#[test]
fn attention_and_its_gradient() {
    let one = |tokens| [16, 32, 64].map(|head_width| (1, tokens, 1, head_width));
    // Several heads and samples; widths that are padded, and widths read one value at a time.
    let several = [(2, 17, 3, 24), (3, 5, 2, 7), (2, 33, 1, 100)];
    for (samples, tokens, heads, head_width) in TOKENS.into_iter().flat_map(one).chain(several) {
        for kind in [Kind::F32, Kind::Bf16] {
            check_attention(kind, samples, tokens, heads, head_width);
        }
    }
    check_attention(Kind::F32, 1, 20, 2, 1);
}

/// x and the twelve slabs.
fn block_inputs(b: usize, n: usize, shape: BlocksShape) -> Vec<Var> {
    let mut inputs = vec![random(1, (b, n, shape.width))];
    for (i, size) in shape.sizes().into_iter().enumerate() {
        inputs.push(scaled(2 + i as u64, (shape.depth, size), 0.3));
    }
    inputs
}

fn run_blocks(
    mode: Mode,
    shape: BlocksShape,
    scales: Option<Vec<f32>>,
    t: &[Tensor],
) -> Result<Tensor> {
    let slabs: [Tensor; 12] = t[1..].to_vec().try_into().unwrap();
    crate::blocks(mode, &t[0], &slabs, shape, scales)
}

#[test]
fn blocks_and_their_gradients() {
    for (b, n, heads, head, hidden, depth, recompute) in [
        (2, 17, 3, 16, 100, 2, false),
        (1, 1, 1, 32, 7, 1, false),
        (3, 5, 2, 9, 33, 3, true),
    ] {
        let shape = BlocksShape {
            depth,
            width: heads * head,
            heads,
            hidden,
            eps: 1e-6,
        };
        let inputs = block_inputs(b, n, shape);
        let scales = (0..depth * 2 * b).map(|i| [0.0, 1.25, 2.0][i % 3]);
        for scales in [None, Some(scales.collect::<Vec<f32>>())] {
            // Rounding errors accumulate over a few layers.
            check_both(&inputs, 5.0 * NEAR, |precision, t| {
                let mode = Mode {
                    precision,
                    recompute,
                };
                run_blocks(mode, shape, scales.clone(), t)
            });
        }
    }
}

#[test]
fn batches_beyond_the_largest_grid_are_refused() {
    let shape = BlocksShape {
        depth: 1,
        width: 1,
        heads: 1,
        hidden: 1,
        eps: 1e-6,
    };
    let inputs = block_inputs(1 << 16, 1, shape);
    let tensors: Vec<Tensor> = inputs.iter().map(|v| v.as_tensor().clone()).collect();
    let run = || run_blocks(Mode::default(), shape, None, &tensors);
    let error = on_host_kernels(0, run).unwrap_err().to_string();
    let told = error.contains("65536") && error.contains("--accumulate");
    assert!(told, "{error}");
}

/// Templates shared by two slabs and also used outside the blocks.
#[test]
fn blocks_of_composed_weights() {
    let (b, n, t, c, depth) = (2, 5, 8, 2, 2);
    let shape = BlocksShape {
        depth,
        width: t * c,
        heads: 2,
        hidden: t * c,
        eps: 1e-6,
    };
    let mut inputs = block_inputs(b, n, shape);
    inputs.push(random(20, (3, t, t)));
    inputs.push(random(21, (depth, 3, c, c)));
    check(&inputs, |x| {
        let w = crate::kronecker_sum(&x[13], &x[14], Kronecker::Tile)?;
        let mut all = x[..13].to_vec();
        all[9] = (x[9].reshape(w.shape())? + &w)?;
        all[11] = w.clone();
        let y = run_blocks(Mode::default(), shape, None, &all)?;
        let beside = (w.sum_all()? + x[11].sum_all()?)?;
        y.broadcast_add(&beside)
    });
}
