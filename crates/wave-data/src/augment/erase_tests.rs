use rand::SeedableRng;

use super::*;

#[test]
fn as_much_is_erased_as_timm_erases() {
    let fixture = crate::testing::pillow();
    let expected = &fixture["distributions"]["erased: part of all, of those erased"];
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut all, mut some) = (0.0, Vec::new());
    for _ in 0..8000 {
        let mut input = vec![9.0; 3 * 32 * 32];
        apply(0.25, &mut input, 32, &mut rng);
        let part = input.iter().filter(|&&x| x != 9.0).count() as f64 / input.len() as f64;
        all += part;
        some.extend((part > 0.0).then_some(part));
    }
    let erased = [all / 8000.0, some.iter().sum::<f64>() / some.len() as f64];
    for (found, expected) in erased.into_iter().zip(expected.as_array().unwrap()) {
        let expected = expected.as_f64().unwrap();
        assert!(
            (found / expected - 1.0).abs() < 0.1,
            "{found} for {expected}"
        );
    }
}

#[test]
fn a_rectangle_is_filled_with_noise() {
    let mut input = vec![9.0; 3 * 16 * 16];
    apply(1.0, &mut input, 16, &mut ChaCha8Rng::seed_from_u64(5));
    for plane in input.chunks(256) {
        let erased: Vec<f32> = plane.iter().copied().filter(|&x| x != 9.0).collect();
        assert!(!erased.is_empty());
        assert!(erased.iter().any(|&x| x != erased[0]));
    }
}
