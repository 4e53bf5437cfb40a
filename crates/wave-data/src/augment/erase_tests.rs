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
        Erasing::default().apply(&mut input, 32, &mut rng);
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
fn a_rectangle_has_the_fill_asked_for() {
    for fill in [EraseFill::Mean, EraseFill::Colour, EraseFill::Noise] {
        let erasing = Erasing {
            probability: 1.0,
            fill,
            ..Erasing::default()
        };
        let mut input = vec![9.0; 3 * 16 * 16];
        erasing.apply(&mut input, 16, &mut ChaCha8Rng::seed_from_u64(5));
        let erased: Vec<f32> = input[..256].iter().copied().filter(|&x| x != 9.0).collect();
        assert!(!erased.is_empty());
        let constant = erased.iter().all(|&x| x == erased[0]);
        assert_eq!(constant, fill != EraseFill::Noise);
        assert_eq!(erased[0] == 0.0, fill == EraseFill::Mean);
    }
}
