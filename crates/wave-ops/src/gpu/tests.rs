//! Every kernel and its gradient against the CPU operators, at odd shapes. The threads of blocks run
//! in four orders, with bit-identical results: a missing barrier would show.

use super::host::on_host_kernels;
use super::kernels::{Attention, Branch, Norm};
use super::{Kind, Place, Values};
use crate::{BlocksShape, Kronecker, Mode, Precision, stock};
use candle_core::{DType, Device, Result, Shape, Tensor, Var};
use rand::{Rng, SeedableRng};

mod optimisers;

const TOKENS: [usize; 4] = [1, 17, 50, 197];
/// Errors of f32 and of bf16 storage, relative to the norm of the expected values: accumulated roundings
/// of 2^-24 and 2^-9.
const CLOSE: f64 = 1e-5;
const NEAR: f64 = 1e-2;

/// Seeded values between -1 and 1.
fn random(seed: u64, shape: impl Into<Shape>) -> Var {
    let shape = shape.into();
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let values = (0..shape.elem_count()).map(|_| rng.random_range(-1f32..1.0));
    let t = Tensor::from_vec(values.collect(), shape, &Device::Cpu);
    Var::from_tensor(&t.unwrap()).unwrap()
}

/// The same, scaled.
fn scaled(seed: u64, shape: impl Into<Shape>, by: f64) -> Var {
    let t = random(seed, shape).as_tensor() * by;
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
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let size = norm(&mut expected.iter().map(|x| f64::from(*x)));
    let differences = found
        .iter()
        .zip(expected)
        .map(|(f, e)| f64::from(*f) - f64::from(*e));
    norm(&mut differences.into_iter()) / size.max(0.01 * (expected.len() as f64).sqrt())
}

#[track_caller]
fn assert_close(what: &str, found: &[Vec<f32>], expected: &[Vec<f32>], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = error(found, expected);
        assert!(error < tolerance, "{what}, result {i}: off by {error}");
    }
}

/// The result of `f`, which must be the same in every order of threads.
#[track_caller]
fn in_all_orders(f: impl Fn() -> Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let first = on_host_kernels(0, &f);
    for order in 1..4 {
        let bits =
            |all: &[Vec<f32>]| -> Vec<u32> { all.iter().flatten().map(|x| x.to_bits()).collect() };
        let other = on_host_kernels(order, &f);
        assert!(
            bits(&first) == bits(&other),
            "the order {order} of threads changes the result"
        );
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
fn check(what: &str, inputs: &[Var], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let expected = with_gradients(inputs, &f);
    let found = in_all_orders(|| with_gradients(inputs, &f));
    assert_close(what, &found, &expected, CLOSE);
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

fn tolerance(kind: Kind) -> f64 {
    if kind == Kind::F32 { CLOSE } else { NEAR }
}

#[test]
fn bf16_is_rounded_to_the_nearest() {
    // 1 + 2^-8 is halfway between 1 and 1 + 2^-7: ties to even give 1. 1 + 3 2^-8 goes to 1 + 2^-6.
    let half = 2f32.powi(-8);
    let numbers = [
        1.0,
        1.0 + half,
        1.0 + 3.0 * half,
        -3.3,
        1e-40,
        f32::INFINITY,
        1e38,
    ];
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
        check(&format!("layer norm of ({rows}, {d})"), &inputs, |t| {
            crate::layer_norm(&t[0], &t[1], &t[2], 1e-6)
        });
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
        let cut = || vec![values(&crate::patchify(&images, p).unwrap())];
        assert_eq!(in_all_orders(cut), cut());
        let (n, k) = ((h / p) * (w / p), c * p * p);
        let patches = crate::patchify(&images, p).unwrap();
        let inputs = [random(2, (d, k)), random(3, (first + n, d))];
        let run = |precision| {
            let patches = &patches;
            move |t: &[Tensor]| crate::embed(precision, patches, &t[0], &t[1])
        };
        let what = format!("embedding of ({b}, {n}, {k})");
        check(&what, &inputs, run(Precision::F32));
        let half = in_all_orders(|| with_gradients(&inputs, run(Precision::Bf16)));
        let single = with_gradients(&inputs, run(Precision::F32));
        assert_close(&format!("{what} in bf16"), &half, &single, NEAR);
    }
}

#[test]
fn gelu_and_its_gradient() {
    for n in [1, 7, 8, 17, 1000] {
        check(&format!("GELU of {n}"), &[scaled(1, n, 5.0)], |t| {
            crate::gelu(&t[0])
        });
    }
}

#[test]
fn losses_and_their_gradients() {
    for (rows, classes) in [(1, 1), (3, 10), (17, 257), (5, 1000)] {
        let what = format!("({rows}, {classes})");
        let logits = scaled(1, (rows, classes), 8.0);
        let other = scaled(2, (rows, classes), 8.0).as_detached_tensor();
        let targets = stock::softmax(&other).unwrap();
        // The loss of one class is 0, and so is its gradient, so there is no relative error.
        check(&format!("cross-entropy of {what}"), &[logits], |t| {
            crate::soft_cross_entropy(&t[0], &targets)
        });
    }
}

#[test]
fn kronecker_sums_and_their_gradients() {
    for (n, t, l, r, c) in [
        (1, 1, 1, 1, 1),
        (3, 5, 2, 2, 3),
        (7, 16, 3, 1, 4),
        (4, 33, 2, 3, 1),
    ] {
        for order in [Kronecker::Tile, Kronecker::Interleave] {
            let inputs = [random(1, (n, t, t)), random(2, (l, n, r, c))];
            check(
                &format!("{order:?} of {n} templates of {t}"),
                &inputs,
                |x| crate::kronecker_sum(&x[0], &x[1], order),
            );
        }
    }
}

/// Runs qkv with a bias and the gradient of the outputs; returns outputs, d qkv.
fn attention(
    kind: Kind,
    z: Attention,
    [qkv, bias, d_o]: [&Tensor; 3],
) -> (Vec<Vec<f32>>, [Tensor; 3]) {
    let place = Place::Host;
    let ((qkv, qkv_is), (d_o, d_o_is)) = (stored(kind, qkv), stored(kind, d_o));
    let (shift, _) = stored(Kind::F32, bias);
    let o = place.values(kind, d_o.len).unwrap();
    let lse = place.values(Kind::F32, z.rows()).unwrap();
    let bias_view = Some(shift.view());
    place
        .attention(z, qkv.view(), bias_view, o.view(), lse.view())
        .unwrap();
    let d_qkv = place.values(kind, qkv.len).unwrap();
    let from = (qkv.view(), bias_view);
    let to = d_qkv.view();
    place
        .attention_backward(z, from, (o.view(), lse.view()), d_o.view(), to)
        .unwrap();
    (vec![read(&o), read(&d_qkv)], [qkv_is, bias.clone(), d_o_is])
}

/// The same with candle's operators, in double precision.
fn attention_expected(z: Attention, [qkv, bias, d_o]: &[Tensor; 3]) -> Vec<Vec<f32>> {
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
    let qkv = (random(1, (samples, tokens, 3 * d)).as_tensor() * 2.0).unwrap();
    let (bias, d_o) = (random(2, 3 * d), random(3, (samples, tokens, d)));
    let inputs = [&qkv, bias.as_tensor(), d_o.as_tensor()];
    let found = in_all_orders(|| attention(kind, z, inputs).0);
    let expected = attention_expected(z, &attention(kind, z, inputs).1);
    assert_close(
        &format!("{z:?} in {kind:?}"),
        &found,
        &expected,
        tolerance(kind),
    );
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

/// Kernels with bf16 storage against themselves with f32 storage of the same values.
#[test]
fn bf16_storage_is_near_f32() {
    let (rows, d) = (50, 100);
    let place = Place::Host;
    let x = (random(1, (rows, d)).as_tensor() * 3.0).unwrap();
    let (w, b, dy) = (random(2, d), random(3, d), random(4, (rows, d)));
    let run = |kind: Kind| {
        let room = |kind, n| place.values(kind, n).unwrap();
        let single = |t: &Tensor| stored(Kind::F32, t).0;
        // The values are exact in bf16 in either case.
        let half = |t: &Tensor| stored(kind, &stored(Kind::Bf16, t).1).0;
        let (x, w, b) = (single(&x), single(&w), single(&b));
        let (g, z) = (
            half(&dy),
            half(&(random(5, (rows, d)).as_tensor() * 3.0).unwrap()),
        );
        let (n, view) = (rows * d, |v: &Values| read(v));
        let scales = place.upload_f32(&[0.0, 1.25, 2.0, 1.0, 0.5]).unwrap();

        let norm = Norm {
            weight: w.view(),
            bias: b.view(),
            eps: 1e-6,
        };
        // A residual connection and its norm, together and separately.
        let branch = Branch {
            values: z.view(),
            bias: b.view(),
            scales: Some(scales.view()),
        };
        let (sum, y) = (room(Kind::F32, n), room(kind, n));
        place
            .norm(x.view(), Some((branch, sum.view())), Some((norm, y.view())))
            .unwrap();
        let (alone, after) = (room(Kind::F32, n), room(kind, n));
        place
            .norm(x.view(), Some((branch, alone.view())), None)
            .unwrap();
        place
            .norm(alone.view(), None, Some((norm, after.view())))
            .unwrap();
        assert_eq!(
            (read(&sum), read(&y)),
            (read(&alone), read(&after)),
            "{kind:?}"
        );

        // The gradient of the branch is that of the sum, converted to its kind.
        let (dx, d_branch) = (single(&random(6, n)), room(kind, n));
        let [dw, db, d_bias, total] = std::array::from_fn(|_| room(Kind::F32, d));
        let to = Branch {
            values: d_branch.view(),
            bias: d_bias.view(),
            scales: Some(scales.view()),
        };
        place
            .norm_backward(
                (x.view(), norm),
                g.view(),
                (dx.view(), true),
                Some(to),
                [dw.view(), db.view()],
            )
            .unwrap();
        let again = room(kind, n);
        place
            .branch(dx.view(), Some(scales.view()), again.view())
            .unwrap();
        assert_eq!(read(&again), read(&d_branch), "{kind:?}");
        place.column_sums(d_branch.view(), total.view()).unwrap();
        assert_close("bias", &[read(&d_bias)], &[read(&total)], tolerance(kind));

        let (active, dz) = (room(kind, n), half(&dy));
        place
            .gelu_columns((z.view(), b.view()), dz.view(), active.view(), total.view())
            .unwrap();
        let again = room(kind, n);
        place.gelu(z.view(), Some(b.view()), again.view()).unwrap();
        assert_eq!(read(&again), read(&active));
        let none = place.upload_f32(&vec![0.0; d]).unwrap();
        let (plain, other) = (room(kind, n), half(&dy));
        place
            .gelu_backward(z.view(), g.view(), plain.view())
            .unwrap();
        place
            .gelu_columns(
                (z.view(), none.view()),
                other.view(),
                again.view(),
                total.view(),
            )
            .unwrap();
        assert_eq!(read(&plain), read(&other));
        place.column_sums(z.view(), total.view()).unwrap();

        let (size, d_logits) = ((rows, d), room(kind, n));
        let mean = place.soft_cross_entropy(size, z.view(), g.view()).unwrap();
        let d_loss = place.upload_f32(&[3.0]).unwrap();
        place
            .soft_cross_entropy_backward(size, (z.view(), g.view()), d_loss.view(), d_logits.view())
            .unwrap();
        [
            y, dx, dw, db, active, dz, sum, d_branch, d_bias, total, mean, d_logits,
        ]
        .each_ref()
        .map(view)
        .to_vec()
    };
    assert_close(
        "bf16",
        &in_all_orders(|| run(Kind::Bf16)),
        &run(Kind::F32),
        NEAR,
    );
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
        let mode = |precision| Mode {
            precision,
            recompute,
        };
        let inputs = block_inputs(b, n, shape);
        let scales = (0..depth * 2 * b).map(|i| [0.0, 1.25, 2.0][i % 3]);
        for scales in [None, Some(scales.collect::<Vec<f32>>())] {
            let run = |precision| {
                let (mode, scales) = (mode(precision), &scales);
                move |t: &[Tensor]| run_blocks(mode, shape, scales.clone(), t)
            };
            check(&format!("{shape:?}"), &inputs, run(Precision::F32));
            let single = with_gradients(&inputs, run(Precision::F32));
            let half = in_all_orders(|| with_gradients(&inputs, run(Precision::Bf16)));
            // Rounding errors accumulate over a few layers.
            assert_close(&format!("{shape:?} in bf16"), &half, &single, 5.0 * NEAR);
        }
    }
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
    inputs.truncate(13);
    inputs.push(random(20, (3, t, t)));
    inputs.push(random(21, (depth, 3, c, c)));
    check("composed blocks", &inputs, |x| {
        let w = crate::kronecker_sum(&x[13], &x[14], Kronecker::Tile)?;
        let mut all = x[..13].to_vec();
        all[9] = (x[9].reshape(w.shape())? + &w)?;
        all[11] = w.clone();
        let y = run_blocks(Mode::default(), shape, None, &all)?;
        let beside = (w.sum_all()? + x[11].sum_all()?)?;
        y.broadcast_add(&beside)
    });
}
