//! Every fused operator against stock candle in double precision: values and all gradients, on
//! odd shapes, on every instruction set that this processor has.

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

/// Runs `fused` in f32 and `plain` in f64 on the same inputs and compares the outputs and the
/// gradients of a fixed random projection of them. Rows that a layer norm sees are not too short:
/// the norm of two values is (-1, 1) whatever they are, and its gradient nothing but rounding.
fn check(
    inputs: &[Tensor],
    fused: impl Fn(&[Tensor]) -> Result<Tensor>,
    plain: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let got = output_and_gradients(DType::F32, inputs, fused);
    let want = output_and_gradients(DType::F64, inputs, plain);
    for (i, error) in relative_errors(&got, &want).into_iter().enumerate() {
        assert!(
            error < 1e-5,
            "output or gradient {i}: relative error {error}"
        );
    }
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
    let projection = normal(99, y.dims()).to_dtype(dtype).unwrap();
    let projected = (&y * projection).unwrap().sum_all().unwrap();
    let gradients = wave_ops::backward(&projected).unwrap();
    let flat = |t: &Tensor| {
        let flat = t.flatten_all().unwrap().to_dtype(DType::F64).unwrap();
        flat.to_vec1::<f64>().unwrap()
    };
    let gradients = vars
        .iter()
        .map(|v| flat(gradients.get(v).expect("a gradient")));
    std::iter::once(flat(&y)).chain(gradients).collect()
}

/// Of each tensor, the norm of the difference over the norm, or over 0.1 per value.
fn relative_errors(got: &[Vec<f64>], want: &[Vec<f64>]) -> Vec<f64> {
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|v| v * v).sum::<f64>().sqrt();
    let error = |(got, want): (&Vec<f64>, &Vec<f64>)| {
        let size = norm(&mut want.iter().copied()).max(0.1 * (want.len() as f64).sqrt());
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

fn slabs(t: &[Tensor]) -> [Tensor; 12] {
    t[1..].to_vec().try_into().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn blocks_equal_stock(
        b in 1usize..5, n in 1usize..20, heads in 1usize..4, head in 4usize..9,
        hidden in 1usize..40, depth in 1usize..4, dropped in any::<bool>(), seed in 0u64..1000,
    ) {
        let shape = BlocksShape { depth, width: heads * head, heads, hidden, eps: 1e-6 };
        let scales = dropped.then(|| {
            (0..depth * 2 * b).map(|i| [0.0, 1.25, 2.0][(i + seed as usize) % 3]).collect::<Vec<_>>()
        });
        check(
            &block_inputs(b, n, shape, seed),
            |t| wave_ops::blocks(&t[0], &slabs(t), shape, scales.clone()),
            |t| stock::blocks(&t[0], &slabs(t), shape, scales.as_deref()),
        );
    }

    /// A factor rounded to bf16 is off by at most 2^-9. Errors of that size, nearly independent,
    /// pass through a few layers.
    #[test]
    fn blocks_in_bf16_are_near_those_in_f32(
        b in 1usize..4, n in 1usize..80, heads in 1usize..4, head in 4usize..33,
        hidden in 1usize..80, depth in 1usize..4, seed in 0u64..1000,
    ) {
        let shape = BlocksShape { depth, width: heads * head, heads, hidden, eps: 1e-6 };
        let mut inputs = block_inputs(b, n, shape, seed);
        // Scores of the size that they have in networks: the softmax is not a maximum.
        inputs[3] = (&inputs[3] / (shape.width as f64).sqrt()).unwrap();
        let run = |precision| output_and_gradients(DType::F32, &inputs, |t| {
            wave_ops::blocks_in(precision, &t[0], &slabs(t), shape, None)
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
        b in 1usize..4, n in 1usize..10, c in 1usize..4, layers in 1usize..4, count in 1usize..4,
        interleave in any::<bool>(), seed in 0u64..1000,
    ) {
        let (t, depth) = (8, layers);
        let order = if interleave { Kronecker::Interleave } else { Kronecker::Tile };
        let shape = BlocksShape { depth, width: t * c, heads: 2, hidden: t * c, eps: 1e-6 };
        let mut inputs = block_inputs(b, n, shape, seed);
        inputs.push((normal(seed + 20, &[count, t, t]) * 0.3).unwrap());
        for i in 0..2 {
            inputs.push(normal(seed + 21 + i, &[depth, count, c, c]));
        }
        type Sum = fn(&Tensor, &Tensor, Kronecker) -> Result<Tensor>;
        type Blocks<'a> = &'a dyn Fn(&Tensor, &[Tensor; 12]) -> Result<Tensor>;
        let run = |t: &[Tensor], sum: Sum, blocks: Blocks| {
            let mut slabs = slabs(&t[..13]);
            let replaced = (slabs[8].sum_all()? + slabs[10].sum_all()?)?;
            slabs[8] = sum(&t[13], &t[14], order)?;
            slabs[10] = sum(&t[13], &t[15], order)?;
            let beside = ((&slabs[8] * 0.1)?.sum_all()? + replaced)?;
            blocks(&t[0], &slabs)?.broadcast_add(&beside)
        };
        check(
            &inputs,
            |t| run(t, wave_ops::kronecker_sum, &|x, w| wave_ops::blocks(x, w, shape, None)),
            |t| run(t, stock::kronecker_sum, &|x, w| stock::blocks(x, w, shape, None)),
        );
    }

    #[test]
    fn activations_computed_again_are_the_same_bits(
        b in 1usize..40, n in 1usize..20, heads in 1usize..4, head in 4usize..9,
        hidden in 1usize..40, depth in 1usize..4, dropped in any::<bool>(), seed in 0u64..1000,
    ) {
        let shape = BlocksShape { depth, width: heads * head, heads, hidden, eps: 1e-6 };
        let scales = dropped.then(|| {
            (0..depth * 2 * b).map(|i| [0.0, 1.25, 2.0][(i + seed as usize) % 3]).collect::<Vec<_>>()
        });
        let inputs = block_inputs(b, n, shape, seed);
        let run = |recompute| output_and_gradients(DType::F32, &inputs, |t| {
            let mode = Mode { recompute, ..Mode::default() };
            wave_ops::blocks_in(mode, &t[0], &slabs(t), shape, scales.clone())
        });
        prop_assert_eq!(run(false), run(true));
    }

    #[test]
    fn small_operators_equal_stock(
        b in 1usize..6, n in 1usize..8, k in 1usize..40, d in 8usize..40, seed in 0u64..1000,
    ) {
        let x = normal(seed, &[b, n, k]);
        let (w, bias) = (normal(seed + 1, &[d, k]), normal(seed + 2, &[d]));
        check(
            &[x.clone(), w.clone(), bias],
            |t| wave_ops::linear(&t[0], &t[1], &t[2]),
            |t| stock::linear(&t[0], &t[1], &t[2]),
        );
        for prefix in 0..2 {
            let table = normal(seed + 3, &[n + prefix, d]);
            check(
                &[w.clone(), table],
                |t| wave_ops::embed(Precision::F32, &x, &t[0], &t[1]),
                |t| stock::embed(&x.to_dtype(DType::F64)?, &t[0], &t[1]),
            );
        }
        let y = normal(seed + 4, &[b, n, d]);
        check(
            &[y.clone(), normal(seed + 5, &[d]), normal(seed + 6, &[d])],
            |t| wave_ops::layer_norm(&t[0], &t[1], &t[2], 1e-6),
            |t| stock::layer_norm(&t[0], &t[1], &t[2], 1e-6),
        );
        check(&[y], |t| wave_ops::gelu(&t[0]), |t| t[0].gelu_erf());
        let targets = stock::softmax(&normal(seed + 7, &[b, d])).unwrap();
        check(
            &[(normal(seed + 8, &[b, d]) * 3.0).unwrap()],
            |t| wave_ops::soft_cross_entropy(&t[0], &targets),
            |t| stock::soft_cross_entropy(&t[0], &targets.to_dtype(DType::F64)?),
        );
    }

    #[test]
    fn kronecker_sums_equal_stock(
        l in 1usize..4, n in 1usize..5, r in 1usize..4, c in 1usize..4, t in 1usize..6,
        tile in any::<bool>(), seed in 0u64..1000,
    ) {
        let order = if tile { Kronecker::Tile } else { Kronecker::Interleave };
        check(
            &[normal(seed, &[n, t, t]), normal(seed + 1, &[l, n, r, c])],
            |x| wave_ops::kronecker_sum(&x[0], &x[1], order),
            |x| stock::kronecker_sum(&x[0], &x[1], order),
        );
    }
}

#[test]
fn blocks_give_the_same_bits_twice_on_several_threads() {
    let shape = BlocksShape {
        depth: 2,
        width: 24,
        heads: 3,
        hidden: 50,
        eps: 1e-6,
    };
    let inputs = block_inputs(37, 9, shape, 5);
    let pool = rayon_pool(3);
    let run = || {
        pool.install(|| {
            let vars: Vec<Var> = inputs
                .iter()
                .map(|t| Var::from_tensor(t).unwrap())
                .collect();
            let t: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
            let y = wave_ops::blocks(&t[0], &slabs(&t), shape, None).unwrap();
            let g = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            vars.iter()
                .map(|v| {
                    g.get(v)
                        .unwrap()
                        .flatten_all()
                        .unwrap()
                        .to_vec1::<f32>()
                        .unwrap()
                })
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(run(), run());
}

fn rayon_pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap()
}

#[test]
fn kronecker_order_is_pinned() {
    // numpy: S = [[1, 2]], T = [[1, 10], [100, 1000]]; np.kron(S, T) and np.kron(T, S)
    let s = Tensor::new(&[[[[1f32, 2.0]]]], &Device::Cpu).unwrap();
    let t = Tensor::new(&[[[1f32, 10.0], [100.0, 1000.0]]], &Device::Cpu).unwrap();
    let compose = |order| {
        let w = wave_ops::kronecker_sum(&t, &s, order).unwrap();
        w.squeeze(0).unwrap().to_vec2::<f32>().unwrap()
    };
    assert_eq!(
        compose(Kronecker::Tile),
        [[1.0, 10.0, 2.0, 20.0], [100.0, 1000.0, 200.0, 2000.0]]
    );
    assert_eq!(
        compose(Kronecker::Interleave),
        [[1.0, 2.0, 10.0, 20.0], [100.0, 200.0, 1000.0, 2000.0]]
    );
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let shape = BlocksShape {
        depth: 1,
        width: 8,
        heads: 3,
        hidden: 16,
        eps: 1e-6,
    };
    let inputs = block_inputs(1, 2, shape, 0);
    assert!(wave_ops::blocks(&inputs[0], &slabs(&inputs), shape, None).is_err());
    let (x, w, b) = (normal(0, &[2, 3]), normal(1, &[4, 5]), normal(2, &[4]));
    assert!(wave_ops::linear(&x, &w, &b).is_err());
    assert!(wave_ops::layer_norm(&x, &b, &b, 1e-6).is_err());
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
    wave_ops::choose_simd(Simd::Portable).unwrap();
    assert_eq!(wave_ops::simd(), Ok(Simd::Portable));
    assert!(wave_ops::gelu(&x).is_ok());
}
