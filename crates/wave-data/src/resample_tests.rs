use super::*;

#[test]
fn the_same_size_is_the_same_image_and_flat_stays_flat() {
    let pixels: Vec<u8> = (0..7 * 70 * 3).map(|i| (i * 31 % 251) as u8).collect();
    let view = View::whole(&pixels, (70, 7), 3);
    let flat = vec![200; 70 * 7];
    let taps = |size, start, length: f64, to, by| {
        let scale = length / to as f64;
        let axis = Axis { size, start, scale };
        axis.taps(0..to, by)
    };
    for by in Interpolation::ALL {
        let same = taps(70, 0.0, 70.0, 70, by);
        assert_eq!(across(view, &same), pixels);
        let same = taps(7, 0.0, 7.0, 7, by);
        assert_eq!(down(view, &same), pixels);
        let view = View::whole(&flat, (70, 7), 1);
        for (start, length, to) in [(3.3, 40.2, 33), (0.0, 70.0, 129)] {
            let found = across(view, &taps(70, start, length, to, by));
            assert!(found.iter().all(|p| *p == 200));
        }
        let found = down(view, &taps(7, 0.5, 6.5, 3, by));
        assert!(found.iter().all(|p| *p == 200));
    }
}

#[test]
fn an_unknown_interpolation_is_refused() {
    let expected = "`random`, expected one of nearest";
    crate::testing::check_refused("random".parse::<Interpolation>(), &[expected]);
}
