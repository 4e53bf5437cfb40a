use rand::SeedableRng;

use super::*;

fn rectangle(left: usize, top: usize, width: usize, height: usize) -> Rectangle {
    Rectangle {
        left,
        top,
        width,
        height,
    }
}

#[test]
fn crops_are_distributed_as_torchvisions() {
    let fixture = crate::testing::pillow();
    let expected = fixture["distributions"]["crop: top, left, height, width, area, ratio"].clone();
    let expected: [f64; 6] = serde_json::from_value(expected).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let n = 20_000;
    let mut sums = [0.0; 6];
    for _ in 0..n {
        let r = ResizedCrop::default().draw(500, 375, &mut rng);
        let [t, l, h, w] = [r.top, r.left, r.height, r.width].map(|x| x as f64);
        for (sum, x) in sums.iter_mut().zip([t, l, h, w, h * w, w / h]) {
            *sum += x;
        }
    }
    // The means of 20,000 samples differ by at most about 1.5 %.
    for (sum, expected) in sums.into_iter().zip(expected) {
        let mean = sum / f64::from(n);
        let close = (mean / expected - 1.0).abs() < 0.025;
        assert!(close, "{mean} for {expected}");
    }
}

#[test]
fn an_image_of_extreme_shape_gives_the_largest_central_crop() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let whole = ResizedCrop {
        scale: (1.0, 1.0),
        ..ResizedCrop::default()
    };
    // torchvision: RandomResizedCrop.get_params(Image.new("L", (300, 30)), (1, 1), (3/4, 4/3))
    let wide = rectangle(130, 0, 40, 30);
    assert_eq!(whole.draw(300, 30, &mut rng), wide);
    let tall = rectangle(0, 130, 30, 40);
    assert_eq!(whole.draw(30, 300, &mut rng), tall);
    assert_eq!(whole.draw(1, 1, &mut rng).width, 1);
}

#[test]
fn an_image_is_decoded_no_smaller_than_the_input() {
    let factor = |width, height| rectangle(0, 0, width, height).reduction(224);
    assert_eq!(factor(500, 375), 1);
    assert_eq!(factor(448, 448), 2);
    assert_eq!(factor(447, 4000), 1);
    assert_eq!(factor(896, 900), 4);
    assert_eq!(factor(9000, 9000), 8);
}
