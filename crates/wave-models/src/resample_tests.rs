use super::*;

fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
    assert_eq!(a.dims(), b.dims());
    let difference = (a - b).unwrap().abs().unwrap();
    difference.max_all().unwrap().to_scalar().unwrap()
}

#[test]
fn positions_and_patches_are_timms() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/resampled.safetensors"
    );
    let known = candle_core::safetensors::load(file, &Device::Cpu).unwrap();
    for to in [3, 8] {
        let found = positions(&known["positions"], 2, to).unwrap();
        let error = largest_difference(&found, &known[&format!("positions.{to}")]);
        assert!(error < 2e-6, "{to}: {error}");
    }
    for to in [4, 9] {
        let found = patches(&known["patches"], to).unwrap();
        let error = largest_difference(&found, &known[&format!("patches.{to}")]);
        assert!(error < 1e-5, "{to}: {error}");
    }
}

/// The same filter as for positions, which are compared with timm's.
#[test]
fn images_are_resized_as_positions_are() {
    let (from, to) = (6, 9);
    let values = (0..2 * from * from).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0);
    let grid = Tensor::from_vec(values.collect(), (1, from * from, 2), &Device::Cpu).unwrap();
    let image = |grid: &Tensor, side: usize| {
        let grid = grid.t().unwrap();
        grid.reshape((1, 2, side, side)).unwrap()
    };
    let expected = image(&positions(&grid, 0, to).unwrap(), to);
    let found = images(&image(&grid, from), to).unwrap();
    assert!(largest_difference(&found, &expected) < 1e-5);
    let same = images(&found, to).unwrap();
    assert_eq!(largest_difference(&same, &found), 0.0);
}

#[test]
fn a_larger_patch_gives_the_products_of_the_small_one() {
    let (from, to) = (4, 7);
    let numbers = |n: usize| (0..n).map(|i| ((i * 37 % 23) as f32 - 11.0) / 7.0);
    let tensor = |shape: &[usize]| {
        let n = shape.iter().product();
        Tensor::from_vec(numbers(n).collect(), shape, &Device::Cpu).unwrap()
    };
    let (kernel, patch) = (tensor(&[1, 1, from, from]), tensor(&[from, from]));
    let resize = matrix(&bicubic_matrix(from, to), (to, from), &patch).unwrap();
    let resized = resize.matmul(&patch).unwrap();
    let resized = resized.matmul(&resize.t().unwrap()).unwrap();
    let product = |kernel: &Tensor, patch: &Tensor| -> f32 {
        let side = patch.dim(0).unwrap();
        let kernel = kernel.reshape((side, side)).unwrap();
        let sum = (kernel * patch).unwrap().sum_all().unwrap();
        sum.to_scalar().unwrap()
    };
    let larger = patches(&kernel, to).unwrap();
    let (found, expected) = (product(&larger, &resized), product(&kernel, &patch));
    assert!((found - expected).abs() < 1e-4, "{found} {expected}");
}
