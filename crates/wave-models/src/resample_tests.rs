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
