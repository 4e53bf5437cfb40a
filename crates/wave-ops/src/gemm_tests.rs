use super::*;
use crate::bf16::{pair_columns, pairs};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn supported() -> Vec<Simd> {
    Simd::ALL.into_iter().filter(|s| s.supported()).collect()
}

/// Supported instruction sets that multiply bf16.
fn rounding() -> Vec<Simd> {
    let mut all = supported();
    all.retain(|simd| simd.has_bf16());
    all
}

/// Integers from -8 to 8: all products and their sums are exact in any order.
fn whole(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64)
        .map(|i| {
            let x = (i + 1)
                .wrapping_mul(seed | 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((x >> 40) % 17) as f32 - 8.0
        })
        .collect()
}

/// `start + A B` by definition; `a` (m, k) and `b` (k, n) as functions of their indices.
fn plain(
    (m, n, k): (usize, usize, usize),
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
    start: impl Fn(usize, usize) -> f32,
) -> Vec<f32> {
    let entry = |i, j| (0..k).map(|p| a(i, p) * b(p, j)).sum::<f32>() + start(i, j);
    (0..m * n).map(|e| entry(e / n, e % n)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_path_multiplies_any_size_and_layout(
        m in 1usize..120, n in 1usize..70, k in 0usize..40,
        a_turned in any::<bool>(), b_turned in any::<bool>(), kind in 0usize..3, seed in any::<u64>(),
    ) {
        // Strides wider than the matrix: a view of some columns of a larger one.
        let (a_stride, b_stride, c_stride) = if a_turned { (m + 3, n + 5, n + 2) } else { (k + 1, n + k, n) };
        let (a, b) = (whole(seed, (m + k) * a_stride), whole(seed / 2, (n + k) * b_stride.max(k)));
        let (bias, c) = (whole(seed / 3, n), whole(seed / 5, m * c_stride));
        let b_stride = b_stride.max(k);
        let at = |i: usize, p: usize| if a_turned { a[p * a_stride + i] } else { a[i * a_stride + p] };
        let bt = |p: usize, j: usize| if b_turned { b[j * b_stride + p] } else { b[p * b_stride + j] };
        let left = if a_turned { transposed(&a, a_stride) } else { rows(&a, a_stride) };
        let right = if b_turned { transposed(&b, b_stride) } else { rows(&b, b_stride) };
        let want = plain((m, n, k), at, bt, |i, j| [0.0, c[i * c_stride + j], bias[j]][kind]);
        for simd in supported() {
            for packed in [false, true] {
                let start = [StartValue::Zero, StartValue::Kept, StartValue::Row(&bias)][kind];
                let mut got = c.clone();
                if packed {
                    let right = Packed::new(simd, (k, n), right);
                    gemm_packed(m, left, &right, start, &mut got, c_stride);
                } else {
                    gemm(simd, (m, n, k), left, right, start, &mut got, c_stride);
                }
                for i in 0..m {
                    let (row, beyond) = got[i * c_stride..][..c_stride].split_at(n);
                    prop_assert_eq!(row, &want[i * n..][..n], "{}, row {}", simd, i);
                    prop_assert_eq!(beyond, &c[i * c_stride + n..][..c_stride - n]);
                }
            }
        }
    }

    #[test]
    fn rounded_factors_multiply_exactly_what_they_round_to(
        m in 1usize..60, n in 1usize..110, k in 1usize..140,
        a_turned in any::<bool>(), b_turned in any::<bool>(), seed in any::<u64>(),
    ) {
        // Less than half a unit in the last place of bf16 away from an integer, which rounding restores.
        let near = |v: &[f32]| -> Vec<f32> {
            v.iter().enumerate().map(|(i, v)| v * (1.0 + (i % 7) as f32 * 2e-4)).collect()
        };
        // Views of some columns of larger matrices.
        let (a_stride, b_stride) = (if a_turned { m + 3 } else { k + 1 }, n.max(k) + 5);
        let a = whole(seed, (m + k) * a_stride);
        let b = whole(seed / 2, (n + k) * b_stride);
        let at = |i: usize, p: usize| if a_turned { a[p * a_stride + i] } else { a[i * a_stride + p] };
        let bt = |p: usize, j: usize| if b_turned { b[j * b_stride + p] } else { b[p * b_stride + j] };
        let want = plain((m, n, k), at, bt, |_, _| 0.0);
        let (near_a, near_b) = (near(&a), near(&b));
        let left = if a_turned { transposed(&near_a, a_stride) } else { rows(&near_a, a_stride) };
        let right = if b_turned { transposed(&near_b, b_stride) } else { rows(&near_b, b_stride) };
        for simd in rounding() {
            let mut got = vec![f32::NAN; m * n];
            gemm_rounded(simd, (m, n, k), left, right, StartValue::Zero, &mut got, n);
            prop_assert_eq!(&got, &want, "{}", simd);
        }

        // The right side packed in advance, like weights; sums start at the destination's values, or at a bias.
        let b_columns: Vec<f32> = (0..n * k).map(|e| bt(e % k, e / k)).collect();
        let a_rows: Vec<f32> = (0..m * k).map(|e| at(e / k, e % k)).collect();
        let bias = whole(seed / 3, n);
        for (simd, kind) in rounding().into_iter().flat_map(|simd| [0, 1, 2].map(|kind| (simd, kind))) {
            let depth = depth(simd, k);
            let right = pair_columns(&near(&b_columns), (n, k), k, depth);
            let left = pair_columns(&near(&a_rows), (m, k), k, depth);
            let packed = Packed::new(simd, (depth, n), transposed(pairs(&right), depth));
            let start = [StartValue::Zero, StartValue::Kept, StartValue::Row(&bias)][kind];
            let stride = n + 2;
            let mut got: Vec<f32> = (0..m * stride).map(|e| bias[e % stride % n]).collect();
            gemm_packed(m, rows(pairs(&left), depth), &packed, start, &mut got, stride);
            for (i, row) in got.chunks_exact(stride).enumerate() {
                for j in 0..n {
                    let first = if kind == 0 { 0.0 } else { bias[j] };
                    prop_assert_eq!(row[j], want[i * n + j] + first, "{}, start {}", simd, kind);
                }
                prop_assert_eq!(row[n], bias[0]);
            }
        }
    }
}

/// A left side of several blocks, the last one smaller, read in place and copied.
#[test]
fn blocks_of_the_left_side_follow_each_other() {
    let (m, n, k) = (29, 120, 6000);
    let (a, b) = (whole(3, m * k), whole(5, k * n));
    for a_turned in [false, true] {
        let at = |i: usize, p: usize| if a_turned { a[p * m + i] } else { a[i * k + p] };
        let want = plain((m, n, k), at, |p, j| b[p * n + j], |_, _| 0.0);
        let sides = [rows(&a, k), transposed(&a, m)];
        let (left, right, size) = (sides[usize::from(a_turned)], rows(&b, n), (m, n, k));
        for simd in supported() {
            let mut got = vec![f32::NAN; m * n];
            gemm(simd, size, left, right, StartValue::Zero, &mut got, n);
            assert_eq!(got, want, "{simd}");
        }
    }
}

#[test]
fn rows_that_share_cache_sets_are_copied() {
    let in_place = |size: (usize, usize, usize)| {
        let of = |simd| reads_in_place::<f32>(simd, size, size.1);
        let found: BTreeSet<bool> = supported().into_iter().map(of).collect();
        assert_eq!(found.len(), 1, "all instruction sets agree");
        found.contains(&true)
    };
    // Rows of the MLP of a ViT-B are 1024 values times three apart, of a projection of queries, keys and values 256 times
    // nine.
    assert!(!in_place((197, 3072, 768)) && !in_place((197, 768, 3072)));
    assert!(in_place((197, 2304, 768)) && in_place((50, 3072, 768)));
    assert!(!in_place((257, 2304, 768)));
    let (m, n, k) = (128, 1024, 260);
    let (a, b) = (whole(3, m * k), whole(5, k * n));
    let want = plain(
        (m, n, k),
        |i, p| a[i * k + p],
        |p, j| b[p * n + j],
        |_, _| 0.0,
    );
    for simd in supported() {
        let mut got = vec![f32::NAN; m * n];
        let sides = (rows(&a, k), rows(&b, n));
        gemm(
            simd,
            (m, n, k),
            sides.0,
            sides.1,
            StartValue::Zero,
            &mut got,
            n,
        );
        assert_eq!(got, want, "{simd}");
    }
}

#[test]
fn bf16_rounds_to_the_nearest_even() {
    // torch.tensor([...]).bfloat16().view(torch.uint16)
    let cases = [
        (1.0, 0x3f80),
        (1.003_906_2, 0x3f80), // half way, down to even
        (1.011_718_5, 0x3f81), // a little below half way
        (1.011_718_8, 0x3f82), // half way, up to even
        (-3.0e38, 0xff62),
        (f32::INFINITY, 0x7f80),
    ];
    let x: Vec<f32> = cases.iter().map(|c| c.0).collect();
    let columns = pair_columns(&x, (1, x.len()), x.len(), x.len() / 2);
    let halves: Vec<u32> = pairs(&columns)
        .iter()
        .flat_map(|p| [p.0 & 0xffff, p.0 >> 16])
        .collect();
    let want: Vec<u32> = cases.iter().map(|c| c.1).collect();
    assert_eq!(halves, want);
    let nan = pair_columns(&[f32::NAN, -f32::NAN], (1, 2), 2, 1);
    let halves = [pairs(&nan)[0].0 << 16, pairs(&nan)[0].0 & 0xffff_0000];
    assert!(halves.iter().all(|h| f32::from_bits(*h).is_nan()));
}

#[test]
fn a_stride_beyond_all_memory_is_outside_of_any_slice() {
    let data = [0f32; 8];
    assert!(rows(&data, 4).holds(2, 4) && !rows(&data, 4).holds(2, 5));
    assert!(rows(&data, usize::MAX).holds(1, 8) && rows(&data, usize::MAX).holds(0, 9));
    // When multiplied, these overflow to 0 and 1.
    assert!(!rows(&data, 1 << (usize::BITS - 1)).holds(3, 1));
    assert!(!transposed(&data, usize::MAX).holds(2, 3));
}
