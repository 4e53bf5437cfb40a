//! Every fused operator against stock candle in double precision: values and all gradients, on
//! odd shapes, on every instruction set that this processor has.

#[path = "fused/empty.rs"]
mod empty;

use candle_core::{DType, Device, Result, Tensor, Var};
use proptest::prelude::*;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use std::process::Command;
use wave_ops::{BlocksShape, Kronecker, Mode, Precision, Simd, stock};

/// Seeded normal values.
fn normal(seed: u64, shape: &[usize]) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|_| StandardNormal.sample(&mut rng)).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// Compares `f` in f32, where it is fused, with itself in f64, where it is stock candle.
fn check(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    check_with(inputs, &f, &f);
}

/// Runs `fused` in f32 and `plain` in f64 on the same inputs and compares the outputs and the
/// gradients of a fixed random projection of them; these with the slope along a random direction too. Rows
/// that a layer norm sees are not too short: the norm of two values is (-1, 1) whatever they are, and its
/// gradient nothing but rounding.
fn check_with(
    inputs: &[Tensor],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    plain: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let got = output_and_gradients(DType::F32, inputs, fused);
    let want = output_and_gradients(DType::F64, inputs, &plain);
    for (i, error) in relative_errors(&got, &want).into_iter().enumerate() {
        assert!(error < 1e-5, "output or gradient {i}: {error}");
    }
    let double = |t: &Tensor| t.to_dtype(DType::F64).unwrap();
    let direction = |(i, t): (usize, &Tensor)| double(&normal(500 + i as u64, t.dims()));
    let directions: Vec<Tensor> = inputs.iter().enumerate().map(direction).collect();
    let at = |by: f64| {
        let moved = |(t, d): (&Tensor, &Tensor)| (double(t) + (d * by).unwrap()).unwrap();
        let moved: Vec<Tensor> = inputs.iter().zip(&directions).map(moved).collect();
        let y = plain(&moved).unwrap();
        projected(&y).to_scalar::<f64>().unwrap()
    };
    let slope = (at(1e-6) - at(-1e-6)) / 2e-6;
    let dot = |(g, d): (&Vec<f64>, &Tensor)| g.iter().zip(flat(d)).map(|(g, d)| g * d).sum::<f64>();
    let expected: f64 = want[1..].iter().zip(&directions).map(dot).sum();
    let close = (slope - expected).abs() < 1e-4 * (1.0 + expected.abs());
    assert!(close, "slope {slope}, expected {expected}");
}

/// The sum of all values, each times a number of its own.
fn projected(y: &Tensor) -> Tensor {
    let projection = normal(99, y.dims()).to_dtype(y.dtype()).unwrap();
    (y * projection).unwrap().sum_all().unwrap()
}

fn flat(t: &Tensor) -> Vec<f64> {
    let flat = t.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
    flat.to_vec1().unwrap()
}

fn bits(t: &Tensor) -> Vec<u32> {
    let flat: Vec<f32> = t.flatten_all().unwrap().to_vec1().unwrap();
    flat.into_iter().map(f32::to_bits).collect()
}

/// A tensor of the type of another.
fn like(t: &Tensor, other: &Tensor) -> Result<Tensor> {
    t.to_dtype(other.dtype())
}

fn output_and_gradients(
    dtype: DType,
    inputs: &[Tensor],
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) -> Vec<Vec<f64>> {
    let vars: Vec<Var> = inputs
        .iter()
        .map(|t| Var::from_tensor(&t.to_dtype(dtype).unwrap()).unwrap())
        .collect();
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let y = f(&tensors).unwrap();
    let gradients = wave_ops::backward(&projected(&y)).unwrap();
    let gradients = vars
        .iter()
        .map(|v| flat(gradients.get(v).expect("a gradient")));
    std::iter::once(flat(&y)).chain(gradients).collect()
}

/// The norm of each tensor's difference over its norm, or over 0.1 per value of the output or of
/// the gradient, whichever has more. A short gradient sums over the output, and its terms may cancel.
fn relative_errors(got: &[Vec<f64>], want: &[Vec<f64>]) -> Vec<f64> {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    let outputs = want[0].len();
    let error = |(got, want): (&Vec<f64>, &Vec<f64>)| {
        let values = want.len().max(outputs) as f64;
        let size = norm(&mut want.iter().copied()).max(0.1 * values.sqrt());
        norm(&mut got.iter().zip(want).map(|(g, w)| g - w)) / size
    };
    got.iter().zip(want).map(error).collect()
}

/// The inputs of a stack of blocks: x and the twelve slabs.
fn block_inputs(b: usize, n: usize, shape: BlocksShape, seed: u64) -> Vec<Tensor> {
    let mut inputs = vec![normal(seed, &[b, n, shape.width])];
    for (i, size) in shape.sizes().into_iter().enumerate() {
        let t = normal(seed + 1 + i as u64, &[shape.depth, size]);
        inputs.push((t * 0.3).unwrap());
    }
    inputs
}

fn shape(depth: usize, width: usize, heads: usize, hidden: usize) -> BlocksShape {
    BlocksShape {
        depth,
        width,
        heads,
        hidden,
        eps: 1e-6,
    }
}

/// Drop-path scales of every sample in every branch.
fn scales(samples: usize, depth: usize, seed: u64) -> Vec<f32> {
    let places = (0..depth * 2 * samples).map(|i| (i + seed as usize) % 3);
    places.map(|i| [0.0, 1.25, 2.0][i]).collect()
}

fn slabs(t: &[Tensor]) -> [Tensor; 12] {
    t[1..].to_vec().try_into().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn blocks_equal_stock(
        b in 1usize..20, n in 1usize..20, heads in 1usize..4, head in 4usize..9,
        hidden in 1usize..40, depth in 1usize..4, dropped in any::<bool>(), seed in 0u64..1000,
    ) {
        let shape = shape(depth, heads * head, heads, hidden);
        let scales = dropped.then(|| scales(b, depth, seed));
        let inputs = block_inputs(b, n, shape, seed);
        let blocks = |recompute, t: &[Tensor]| {
            let mode = Mode { recompute, ..Mode::default() };
            wave_ops::blocks(mode, &t[0], &slabs(t), shape, scales.clone())
        };
        check(&inputs, |t| blocks(false, t));
        let run = |recompute| output_and_gradients(DType::F32, &inputs, |t| blocks(recompute, t));
        prop_assert_eq!(run(false), run(true), "activations computed again");
    }

    /// A factor rounded to bf16 is off by at most 2^-9. Errors of that size, nearly independent,
    /// pass through a few layers.
    #[test]
    fn blocks_in_bf16_are_near_those_in_f32(
        b in 1usize..4, n in 1usize..80, heads in 1usize..4, head in 4usize..33,
        hidden in 1usize..80, depth in 1usize..4, seed in 0u64..1000,
    ) {
        let shape = shape(depth, heads * head, heads, hidden);
        let mut inputs = block_inputs(b, n, shape, seed);
        // Scores of the size that they have in networks: the softmax is not a maximum.
        inputs[3] = (&inputs[3] / (shape.width as f64).sqrt()).unwrap();
        let run = |precision| output_and_gradients(DType::F32, &inputs, |t| {
            wave_ops::blocks(precision, &t[0], &slabs(t), shape, None)
        });
        let (single, half) = (run(Precision::F32), run(Precision::Bf16));
        for (i, error) in relative_errors(&half, &single).into_iter().enumerate() {
            prop_assert!(error < 0.05, "output or gradient {i}: relative error {error}");
        }
        if !wave_ops::simd().unwrap().has_bf16() {
            prop_assert_eq!(single, half);
        }
    }

    /// Templates shared by two matrices and used beside the blocks: their gradients, which the blocks
    /// hand on themselves, add up with candle's.
    #[test]
    fn blocks_of_composed_weights_equal_stock(
        b in 1usize..4, n in 1usize..10, c in 1usize..4, depth in 1usize..4, count in 1usize..4,
        interleave in any::<bool>(), seed in 0u64..1000,
    ) {
        let t = 8;
        let order = if interleave { Kronecker::Interleave } else { Kronecker::Tile };
        let shape = shape(depth, t * c, 2, t * c);
        let mut inputs = block_inputs(b, n, shape, seed);
        inputs.push((normal(seed + 20, &[count, t, t]) * 0.3).unwrap());
        for i in 0..2 {
            inputs.push(normal(seed + 21 + i, &[depth, count, c, c]));
        }
        check(&inputs, |t| {
            let mut slabs = slabs(&t[..13]);
            let replaced = (slabs[8].sum_all()? + slabs[10].sum_all()?)?;
            slabs[8] = wave_ops::kronecker_sum(&t[13], &t[14], order)?;
            slabs[10] = wave_ops::kronecker_sum(&t[13], &t[15], order)?;
            let beside = ((&slabs[8] * 0.1)?.sum_all()? + replaced)?;
            wave_ops::blocks(Precision::F32, &t[0], &slabs, shape, None)?.broadcast_add(&beside)
        });
    }

    #[test]
    fn small_operators_equal_stock(
        b in 1usize..6, n in 1usize..8, k in 1usize..40, d in 8usize..40, seed in 0u64..1000,
    ) {
        let x = normal(seed, &[b, n, k]);
        let (w, bias) = (normal(seed + 1, &[d, k]), normal(seed + 2, &[d]));
        check(&[x.clone(), w.clone(), bias], |t| wave_ops::linear(&t[0], &t[1], &t[2]));
        for prefix in 0..2 {
            let table = normal(seed + 3, &[n + prefix, d]);
            check(&[w.clone(), table], |t| {
                wave_ops::embed(Precision::F32, &like(&x, &t[0])?, &t[0], &t[1])
            });
        }
        let y = normal(seed + 4, &[b, n, d]);
        let (scale, shift) = (normal(seed + 5, &[d]), normal(seed + 6, &[d]));
        check(&[y.clone(), scale.clone(), shift], |t| {
            wave_ops::layer_norm(&t[0], &t[1], &t[2], 1e-6)
        });
        check(&[y.clone(), scale], |t| wave_ops::rms_norm(&t[0], &t[1], 1e-3));
        check(&[y], |t| wave_ops::gelu(&t[0]));
        let targets = stock::softmax(&normal(seed + 7, &[b, d])).unwrap();
        check(&[(normal(seed + 8, &[b, d]) * 3.0).unwrap()], |t| {
            wave_ops::soft_cross_entropy(&t[0], &like(&targets, &t[0])?)
        });
    }

    #[test]
    fn kronecker_sums_equal_stock(
        l in 1usize..4, n in 1usize..5, r in 1usize..4, c in 1usize..4, t in 1usize..6,
        tile in any::<bool>(), seed in 0u64..1000,
    ) {
        let order = if tile { Kronecker::Tile } else { Kronecker::Interleave };
        let inputs = [normal(seed, &[n, t, t]), normal(seed + 1, &[l, n, r, c])];
        check(&inputs, |x| wave_ops::kronecker_sum(&x[0], &x[1], order));
    }

    #[test]
    fn maps_of_populations_equal_stock(
        m in 1usize..150, n in 1usize..6, k in 1usize..20, o in 1usize..36, seed in 0u64..1000,
    ) {
        let inputs = three(seed, [&[m, n, k], &[n, o, k], &[n, o]]);
        check(&inputs, |t| wave_ops::linear_each(&t[0], &t[1], &t[2]));
    }

    /// Sequences longer and shorter than the taps.
    #[test]
    fn operators_of_sequences_equal_stock(
        b in 1usize..4, t in 1usize..9, e in 1usize..7, n in 1usize..12, taps in 1usize..5,
        seed in 0u64..1000,
    ) {
        let x = normal(seed, &[b, t, e]);
        let inputs = [x.clone(), normal(seed + 1, &[e, taps]), normal(seed + 2, &[e])];
        check(&inputs, |t| wave_ops::causal_convolution(&t[0], &t[1], &t[2]));
        let positive = |seed, shape: &[usize]| {
            let squares = normal(seed, shape).sqr().unwrap();
            squares.affine(0.3, 0.1).unwrap()
        };
        let inputs = [
            x,
            positive(seed + 3, &[b, t, e]),
            positive(seed + 4, &[e, n]).neg().unwrap(),
            normal(seed + 5, &[b, t, n]),
            normal(seed + 6, &[b, t, n]),
        ];
        check(&inputs, |t| wave_ops::selective_scan(&t[0], &t[1], &t[2], &t[3], &t[4]));
    }

    #[test]
    fn depthwise_convolutions_equal_stock(
        b in 1usize..4, h in 1usize..12, w in 1usize..18, c in 1usize..36, k in 1usize..11,
        dilation in 1usize..5, seed in 0u64..1000,
    ) {
        let inputs = convolved([b, h, w, c], k, seed);
        check(&inputs, |t| wave_ops::depthwise_conv(&t[0], &t[1], &t[2]));
        let inputs = convolved([b, h, w, c], k / 2 * 2 + 1, seed);
        check_with(
            &inputs,
            |t| wave_ops::dilated_depthwise_conv(&t[0], &t[1], &t[2], dilation),
            |t| stock_dilated(&t[0], &t[1], &t[2], dilation),
        );
    }

    #[test]
    fn batch_norms_equal_stock(
        b in 2usize..5, h in 2usize..9, w in 2usize..9, c in 1usize..40, seed in 0u64..1000,
    ) {
        let inputs = normed([b, h, w, c], seed);
        let (mean, var) = (normal(seed + 3, &[c]), normal(seed + 4, &[c]).sqr().unwrap());
        let statistics = [mean, (var + 0.1).unwrap()];
        check(&inputs, |t| Ok(wave_ops::batch_norm_train(&t[0], &t[1], &t[2], EPS)?.0));
        check(&inputs, |t| Ok(wave_ops::gelu_batch_norm_train(&t[0], &t[1], &t[2], EPS)?.0));
        check(&inputs, |t| {
            let (mean, var) = (like(&statistics[0], &t[0])?, like(&statistics[1], &t[0])?);
            wave_ops::batch_norm_eval(&t[0], &t[1], &t[2], &mean, &var, EPS)
        });
        // With the statistics of the batch.
        let [x, weight, bias] = &inputs;
        let (y, mean, var) = wave_ops::batch_norm_train(x, weight, bias, EPS).unwrap();
        let frozen = wave_ops::batch_norm_eval(x, weight, bias, &mean, &var, EPS).unwrap();
        prop_assert!(relative_errors(&[flat(&frozen)], &[flat(&y)])[0] < 1e-5);
    }
}

fn three(seed: u64, shapes: [&[usize]; 3]) -> [Tensor; 3] {
    [0, 1, 2].map(|i| normal(seed + i as u64, shapes[i]))
}

/// Image, kernels and bias of a depthwise convolution.
fn convolved(image: [usize; 4], k: usize, seed: u64) -> [Tensor; 3] {
    let c = image[3];
    three(seed, [&image, &[c, k, k], &[c]])
}

/// Input, scale and shift of a norm of channels.
fn normed(image: [usize; 4], seed: u64) -> [Tensor; 3] {
    let c = image[3];
    three(seed, [&image, &[c], &[c]])
}

const EPS: f64 = 1e-5;

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

#[test]
fn results_are_the_same_bits_twice_on_several_threads() {
    let shape = shape(2, 24, 3, 50);
    type Operator<'a> = &'a (dyn Fn(&[Tensor]) -> Result<Tensor> + Sync);
    let on = |threads: usize, inputs: &[Tensor], f: Operator<'_>| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().unwrap();
        pool.install(|| output_and_gradients(DType::F32, inputs, f))
    };
    let inputs = block_inputs(37, 9, shape, 5);
    let blocks = |t: &[Tensor]| wave_ops::blocks(Precision::F32, &t[0], &slabs(t), shape, None);
    assert_eq!(on(3, &inputs, &blocks), on(3, &inputs, &blocks));
    let inputs = convolved([9, 6, 7, 20], 5, 3);
    let convolution = |t: &[Tensor]| wave_ops::depthwise_conv(&t[0], &t[1], &t[2]);
    for threads in [1, 2, 3] {
        let [first, again] = [(); 2].map(|()| on(threads, &inputs, &convolution));
        assert_eq!(first, again);
    }
    // Layer norms sum the gradients of scale and shift by thread; their rows are the same on any number.
    let inputs = normed([9, 13, 11, 20], 4);
    let norm = |t: &[Tensor]| wave_ops::layer_norm(&t[0], &t[1], &t[2], EPS);
    let (alone, shared) = (on(1, &inputs, &norm), on(3, &inputs, &norm));
    assert_eq!(shared, on(3, &inputs, &norm));
    assert_eq!(alone[..2], shared[..2]);
    assert_ne!(alone[2..], shared[2..]);
    // Batch norms even on any number of threads.
    let inputs = normed([9, 13, 11, 20], 3);
    let norm = |t: &[Tensor]| Ok(wave_ops::gelu_batch_norm_train(&t[0], &t[1], &t[2], EPS)?.0);
    assert_eq!(on(1, &inputs, &norm), on(3, &inputs, &norm));
}

#[test]
fn statistics_of_a_batch_survive_a_large_mean() {
    // The naive mean of squares minus square of the mean has no correct digit here in f32.
    let x: Vec<f32> = (0..30000).map(|i| 1000.0 + (i % 7) as f32 / 7.0).collect();
    let exact: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
    let mean = exact.iter().sum::<f64>() / 30000.0;
    let var = exact.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 30000.0;
    let x = Tensor::from_vec(x, (30000, 1), &Device::Cpu).unwrap();
    let one = Tensor::ones(1, DType::F32, &Device::Cpu).unwrap();
    let (_, found_mean, found_var) = wave_ops::batch_norm_train(&x, &one, &one, EPS).unwrap();
    assert!((flat(&found_mean)[0] - mean).abs() < 1e-4);
    let off = (flat(&found_var)[0] - var).abs();
    assert!(off < 1e-4 * var, "off by {off} from {var}");
}

#[test]
fn even_kernels_pad_the_end() {
    // A kernel of ones of size 2: torch.nn.functional.conv2d(x, torch.ones(1, 1, 2, 2),
    // padding="same") of [[1, 2], [3, 4]] is [[10, 6], [7, 4]].
    let x = Tensor::new(&[1f32, 2., 3., 4.], &Device::Cpu).unwrap();
    let x = x.reshape((1, 2, 2, 1)).unwrap();
    let w = Tensor::ones((1, 2, 2), DType::F32, &Device::Cpu).unwrap();
    let b = Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap();
    let y = wave_ops::depthwise_conv(&x, &w, &b).unwrap();
    assert_eq!(flat(&y), [10., 6., 7., 4.]);
}

#[test]
fn a_frozen_kernel_has_no_gradient_and_changes_no_other() {
    let [x, w, b] = convolved([3, 6, 7, 20], 5, 1);
    let [x, b] = [x, b].map(|t| Var::from_tensor(&t).unwrap());
    let kernels = Var::from_tensor(&w).unwrap();
    let gradients = |w: &Tensor| {
        let y = wave_ops::depthwise_conv(&x, w, &b).unwrap();
        projected(&y).backward().unwrap()
    };
    let (all, frozen) = (gradients(&kernels), gradients(&w));
    assert!(all.get(&kernels).is_some() && frozen.get(&w).is_none());
    for v in [&x, &b] {
        assert_eq!(bits(frozen.get(v).unwrap()), bits(all.get(v).unwrap()));
    }
}

#[test]
fn strided_and_empty_inputs_are_convolved_and_normed() {
    let [x, w, b] = convolved([2, 5, 6, 4], 3, 1);
    let convolve = |x: &Tensor| wave_ops::depthwise_conv(x, &w, &b).unwrap();
    let turned = x.permute((0, 2, 1, 3)).unwrap();
    let plain = convolve(&turned.contiguous().unwrap());
    assert_eq!(bits(&convolve(&turned)), bits(&plain));
    let none = x.narrow(0, 0, 0).unwrap();
    assert_eq!(convolve(&none).dims(), [0, 5, 6, 4]);
    let normed = wave_ops::batch_norm_eval(&none, &b, &b, &b, &b, EPS).unwrap();
    assert_eq!(normed.dims(), [0, 5, 6, 4]);
}

/// More rows than are computed at once.
#[test]
fn maps_of_a_population_are_those_of_its_networks_to_the_bit() {
    let (m, n, k, o) = (300, 3, 19, 21);
    let [x, w, b] = three(1, [&[m, n, k], &[n, o, k], &[n, o]]);
    let all = wave_ops::linear_each(&x, &w, &b).unwrap();
    for i in 0..n {
        let x = x.narrow(1, i, 1).unwrap().squeeze(1).unwrap();
        let one = wave_ops::linear(&x, &w.get(i).unwrap(), &b.get(i).unwrap()).unwrap();
        assert_eq!(
            bits(&all.narrow(1, i, 1).unwrap()),
            bits(&one),
            "network {i}"
        );
    }
}

/// Six values could be two rows of three, but they are one row of six.
#[test]
fn rows_of_a_layer_norm_are_as_long_as_its_weight() {
    let t = |shape: &[usize]| normal(0, shape);
    let error = wave_ops::layer_norm(&t(&[1, 6]), &t(&[3]), &t(&[3]), EPS).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("layer norm of [1, 6]"), "{error}");
    let none = wave_ops::layer_norm(&t(&[0, 3]), &t(&[3]), &t(&[3]), EPS).unwrap();
    assert_eq!(none.dims(), [0, 3]);
}

#[test]
fn kronecker_order_is_pinned() {
    // >>> s, t = [[1, 2], [3, 4]], [[0, 5], [6, 7]]
    // >>> np.kron(s, t).tolist(); np.kron(t, s).tolist()
    let s = Tensor::new(&[[[[1f32, 2.], [3., 4.]]]], &Device::Cpu).unwrap();
    let t = Tensor::new(&[[[0f32, 5.], [6., 7.]]], &Device::Cpu).unwrap();
    let tiled = [
        0., 5., 0., 10., 6., 7., 12., 14., 0., 15., 0., 20., 18., 21., 24., 28.,
    ];
    let interleaved = [
        0., 0., 5., 10., 0., 0., 15., 20., 6., 12., 7., 14., 18., 24., 21., 28.,
    ];
    let orders = [Kronecker::Tile, Kronecker::Interleave];
    for (order, expected) in orders.into_iter().zip([tiled, interleaved]) {
        let w = wave_ops::kronecker_sum(&t, &s, order).unwrap();
        assert_eq!(flat(&w), expected);
    }
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let shape = shape(1, 8, 3, 16);
    let inputs = block_inputs(1, 2, shape, 0);
    assert!(wave_ops::blocks(Precision::F32, &inputs[0], &slabs(&inputs), shape, None).is_err());
    let t = |shape: &[usize]| normal(0, shape);
    let (x, w, b) = (t(&[2, 3]), t(&[4, 5]), t(&[4]));
    let (image, kernels) = (t(&[2, 5, 6, 4]), t(&[4, 3, 3]));
    let (each, maps) = (t(&[3, 2, 4]), t(&[2, 5, 4]));
    let (states, rates, io) = (t(&[2, 7, 5]), t(&[5, 3]), t(&[2, 7, 3]));
    let norm = |x: &Tensor, b| wave_ops::batch_norm_train(x, &t(&[4]), b, EPS).map(|all| all.0);
    use wave_ops::*;
    let refused = [
        linear(&x, &w, &b),
        layer_norm(&x, &b, &b, 1e-6),
        rms_norm(&t(&[2, 4]), &t(&[3]), EPS),
        rms_norm(&t(&[2, 4]), &t(&[2, 4]), EPS),
        linear_each(&each, &maps, &t(&[2, 4])),
        linear_each(&each, &maps.t().unwrap(), &t(&[2, 5])),
        causal_convolution(&each, &t(&[2, 4]), &b),
        causal_convolution(&each, &t(&[4, 2]), &t(&[3])),
        selective_scan(&states, &states, &rates, &io.narrow(1, 0, 3).unwrap(), &io),
        selective_scan(&states, &io, &rates, &io, &io),
        selective_scan(&states, &states, &rates.t().unwrap(), &io, &io),
        depthwise_conv(&image, &t(&[3, 3, 3]), &b),
        depthwise_conv(&image, &t(&[4, 3, 2]), &b),
        depthwise_conv(&image, &kernels, &t(&[3])),
        dilated_depthwise_conv(&image, &kernels, &b, 0),
        dilated_depthwise_conv(&image, &t(&[4, 4, 4]), &b, 2),
        norm(&image, &t(&[5])),
        norm(&image.narrow(0, 0, 0).unwrap(), &b),
        batch_norm_eval(&image, &b, &b, &b, &t(&[5]), EPS),
        kronecker_sum(&t(&[3, 2, 2]), &t(&[1, 4, 1, 1]), Kronecker::Tile),
    ];
    for (i, found) in refused.iter().enumerate() {
        assert!(found.is_err(), "case {i}");
    }
    for (i, expected) in [(5, "(networks, out, in)"), (19, "(layers, N, r, c)")] {
        let error = refused[i].as_ref().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Runs tests of this file again in a process of their own.
fn again(simd: &str, filter: &str) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .env("WAVE_SIMD", simd)
        .arg(filter)
        .output()
        .unwrap()
}

#[test]
fn every_instruction_set_passes() {
    for simd in Simd::ALL.into_iter().filter(|s| s.supported()) {
        for filter in ["equal_stock", "bf16", "same_bits"] {
            let output = again(simd.name(), filter);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{simd}: {text}");
            assert!(!text.contains(" 0 passed"), "{simd}: {text}");
        }
    }
}

#[test]
fn a_forced_instruction_set_that_does_not_exist_is_an_error() {
    if std::env::var_os("WAVE_SIMD").is_none() {
        let output = again("sse9", "forced_instruction_set");
        assert!(output.status.success());
        return;
    }
    let x = normal(0, &[2, 8]);
    if let Err(error) = wave_ops::simd() {
        let error = error.to_string();
        assert!(error.contains("sse9") && error.contains("avx2"), "{error}");
        let operator = wave_ops::gelu(&x).unwrap_err().to_string();
        assert!(operator.contains("sse9"), "{operator}");
    }
}
