use super::*;
use crate::compose;
use crate::testing::*;
use candle_core::{Device, Var};
use proptest::prelude::*;

// >>> r = np.linspace(0, 1, 5) * 2; [[max(0, 1 - abs(x - k)) for k in range(3)] for x in r]
#[test]
fn layers_read_their_two_nearest_anchors() {
    let matrix = |depth, anchors| depth_matrix(depth, anchors, DepthRule::LastIsOne);
    assert_eq!(matrix(5, 3)[1..3], [[0.5, 0.5, 0.], [0., 1., 0.]]);
    assert_eq!(matrix(5, 3)[3..], [[0., 0.5, 0.5], [0., 0., 1.]]);
    // One layer reads the first anchor, and one anchor is read by all.
    assert_eq!(matrix(1, 3), [[1., 0., 0.]]);
    assert_eq!(matrix(3, 1), [[1.], [1.], [1.]]);
    assert_eq!(matrix(1, 1), [[1.]]);
}

#[test]
fn tlegs_layers_are_even_steps_that_stop_before_the_last_anchor() {
    for anchors in [2, 3, 5] {
        let matrix = depth_matrix(4, anchors, DepthRule::Tleg);
        let last = (anchors - 1) as f32;
        let read = |row: &Vec<f32>| -> f32 {
            let anchors = (0..).zip(row);
            anchors.map(|(k, w)| w * k as f32 / last).sum()
        };
        let found: Vec<f32> = matrix.iter().map(read).collect();
        assert_eq!(found, [0.0, 0.25, 0.5, 0.75]);
    }
    assert_eq!(depth_matrix(1, 2, DepthRule::Tleg), [[1.0, 0.0]]);
    assert_eq!(depth_matrix(2, 2, DepthRule::Tleg)[1], [0.5, 0.5]);
}

#[test]
fn depth_rules_read_back() {
    for rule in [DepthRule::LastIsOne, DepthRule::Tleg] {
        assert_eq!(DepthRule::from_formula(&rule.to_string()), Some(rule));
    }
    assert_eq!(DepthRule::from_formula("l"), None);
}

#[test]
fn the_gradient_of_an_interpolation_is_its_weights() {
    let bank = Var::from_tensor(&normal(&mut rng(2), (3, 2))).unwrap();
    let read = interpolate_depth(&bank, 5, DepthRule::LastIsOne).unwrap();
    let grads = read.sum_all().unwrap().backward().unwrap();
    // Columns of the matrix of five layers and three anchors sum to 1.5, 2 and 1.5.
    let gradient = flat(grads.get(&bank).unwrap());
    assert_close(&gradient, &[1.5, 1.5, 2., 2., 1.5, 1.5], 1e-6);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn interpolation_keeps_ends_and_lines(depth in 1usize..30, anchors in 1usize..20) {
        let matrix = depth_matrix(depth, anchors, DepthRule::LastIsOne);
        for row in &matrix {
            prop_assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            prop_assert!(row.iter().all(|&f| (0.0..=1.0).contains(&f)));
        }
        prop_assert_eq!(matrix[0][0], 1.0);
        if depth > 1 {
            prop_assert_eq!(matrix[depth - 1][anchors - 1], 1.0);
        }
        if depth == anchors {
            prop_assert!((0..depth).all(|l| matrix[l][l] == 1.0));
        }
        // A bank that is linear in relative depth reads as that line.
        let line = |l: usize, n: usize| 3.0 - 2.0 * l as f32 / (n.max(2) - 1) as f32;
        if anchors > 1 {
            let bank: Vec<f32> = (0..anchors).flat_map(|k| [line(k, anchors), 7.0]).collect();
            let bank = Tensor::from_vec(bank, (anchors, 2), &Device::Cpu).unwrap();
            let read = interpolate_depth(&bank, depth, DepthRule::LastIsOne).unwrap();
            let expected: Vec<f64> = (0..depth).flat_map(|l| [line(l, depth) as f64, 7.0]).collect();
            assert_close(&flat(&read), &expected, 1e-6);
        }
    }

    #[test]
    fn gathering_is_block_modulo_source(
        segments in 1usize..4, source in 1usize..6, target in 1usize..14, axis in 0usize..3,
        divide: bool,
    ) {
        let mut dims = [2, 3, 4];
        dims[axis] = segments * source;
        let x = normal(&mut rng(3), &dims[..]);
        let y = gather_width(&x, axis, segments, 1, source, target, divide).unwrap();
        prop_assert_eq!(y.dim(axis).unwrap(), segments * target);
        for s in 0..segments {
            for j in 0..target {
                let copies = (0..target).filter(|k| k % source == j % source).count();
                let share = if divide { 1.0 / copies as f64 } else { 1.0 };
                let from = x.narrow(axis, s * source + j % source, 1).unwrap();
                let to = y.narrow(axis, s * target + j, 1).unwrap();
                let expected: Vec<f64> = flat(&from).iter().map(|v| v * share).collect();
                assert_close(&flat(&to), &expected, 1e-6);
            }
        }
    }
}

#[test]
fn uneven_widths_crop_the_last_block() {
    let x = Tensor::new(&[1f32, 2., 3., 4., -1., -2., -3., -4.], &Device::Cpu).unwrap();
    let read = |to, divide| flat(&gather_width(&x, 0, 2, 4, 4, to, divide).unwrap());
    assert_eq!(read(3, true), [1., 2., 3., -1., -2., -3.]);
    let (wide, shared) = (read(6, false), read(6, true));
    assert_eq!(wide[..6], [1., 2., 3., 4., 1., 2.]);
    assert_eq!(wide[6..], [-1., -2., -3., -4., -1., -2.]);
    assert_eq!(shared[..6], [0.5, 1., 3., 4., 0.5, 1.]);
    assert_eq!(shared[6..], [-0.5, -1., -3., -4., -0.5, -1.]);
}

#[test]
fn gathered_gradients_sum_over_copies() {
    let x = Var::from_tensor(&normal(&mut rng(7), (2, 3))).unwrap();
    // A transposed use: the gradient that comes back is not contiguous.
    let gradient = |y: Tensor| {
        let weights = Tensor::new(&[[1f32, 2.], [3., 4.], [5., 6.], [7., 8.]], &Device::Cpu);
        let loss = (y.t().unwrap() * weights.unwrap()).unwrap();
        let grads = loss.sum_all().unwrap().backward().unwrap();
        flat(grads.get(&x).unwrap())
    };
    let wide = gather_width(&x, 1, 1, 1, 3, 4, false).unwrap();
    assert_eq!(gradient(wide), [8., 3., 5., 10., 4., 6.]);
    let shared = gather_width(&x, 1, 1, 1, 3, 4, true).unwrap();
    assert_eq!(gradient(shared), [4., 3., 5., 5., 4., 6.]);
}

/// `y = W x` at one width, and with widened scalers on the input repeated cyclically.
fn check_widening(part: Part, to: VitShape) {
    let rng = &mut rng(8);
    let t = 3;
    let plan = plan(t, Kronecker::Tile, [3, 2, 4, 2]);
    let from = block(6, 12);
    let templates = templates(rng, &plan);
    let small = scalers(rng, &plan, &from, 2);
    let wide = resized(&plan, &small, &from, &to);
    let layer = |scalers, shape| {
        let weights = compose(&plan, &templates, scalers, shape).unwrap();
        flat(&weights[&part].get(1).unwrap())
    };
    let (rows, cols) = part.rows_cols(&from);
    let x = normal(rng, cols);
    let (many_rows, many_cols) = part.rows_cols(&to);
    let many_x = gather_width(&x, 0, 1, t, cols, many_cols, false).unwrap();
    let y = plain_matvec(&layer(&small, &from), &flat(&x));
    let many_y = plain_matvec(&layer(&wide, &to), &flat(&many_x));

    let q = part.segments();
    let mut expected = Vec::new();
    for segment in y.chunks(rows / q) {
        expected.extend(segment.iter().cycle().take(many_rows / q));
    }
    assert_close(&many_y, &expected, 1e-5);
}

#[test]
fn widening_repeats_the_output() {
    for part in Part::ALL {
        // By whole factors, by whole templates, and to sides that crop the last block.
        let wider = [12, 18, 9, 7, 10, 14].map(|width| (width, 2 * width));
        for (width, hidden) in wider.into_iter().chain([(15, 33)]) {
            check_widening(part, block(width, hidden));
        }
    }
}

#[test]
fn a_narrower_block_is_the_corner_of_each_segment() {
    let rng = &mut rng(10);
    let plan = plan(2, Kronecker::Tile, [3, 2, 2, 2]);
    let (from, to) = (block(6, 12), block(4, 8));
    let templates = templates(rng, &plan);
    let wide = scalers(rng, &plan, &from, 1);
    let small = resized(&plan, &wide, &from, &to);
    let small = compose(&plan, &templates, &small, &to).unwrap();
    let wide = compose(&plan, &templates, &wide, &from).unwrap();
    for part in Part::ALL {
        let (q, (rows, cols)) = (part.segments(), part.rows_cols(&from));
        let (short, thin) = part.rows_cols(&to);
        let corner = wide[&part].reshape((q, rows / q, cols)).unwrap();
        let corner = corner.narrow(1, 0, short / q).unwrap();
        let corner = corner.narrow(2, 0, thin).unwrap();
        assert_close(&flat(&small[&part]), &flat(&corner), 1e-6);
    }
}
