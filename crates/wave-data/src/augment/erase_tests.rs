use rand::SeedableRng;

use super::*;

#[test]
fn as_much_is_erased_as_timm_erases() {
    let fixture = crate::testing::pillow();
    let expected = fixture["distributions"]["erased: part of all, of those erased"].clone();
    let expected: [f64; 2] = serde_json::from_value(expected).unwrap();
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
    for (found, expected) in erased.into_iter().zip(expected) {
        let close = (found / expected - 1.0).abs() < 0.1;
        assert!(close, "{found} for {expected}");
    }

    // With noise, in every channel.
    let mut input = vec![9.0; 3 * 16 * 16];
    apply(1.0, &mut input, 16, &mut rng);
    for plane in input.chunks(256) {
        let mut erased = plane.iter().filter(|&&x| x != 9.0);
        let first = erased.next().unwrap();
        assert!(erased.any(|x| x != first));
    }
}
