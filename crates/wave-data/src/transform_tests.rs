use std::sync::{Condvar, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::testing::check_refused;

fn plain(image_size: usize, channels: usize, crop_pct: f32) -> Transform {
    Transform {
        crop_pct,
        ..Transform::new(image_size, vec![0.0; channels], vec![1.0; channels])
    }
}

fn raw(width: usize, height: usize, channels: usize, pixels: Vec<u8>) -> RawImage {
    RawImage {
        width,
        height,
        channels,
        pixels,
    }
}

/// (x² · 3 + y² · 2 + x · y + 40 · channel) / 4 mod 256: smooth at first, then ever more detailed.
fn pattern(width: usize, height: usize, channels: usize) -> RawImage {
    let value = |i: usize| {
        let (k, x, y) = (i % channels, i / channels % width, i / channels / width);
        ((x * x * 3 + y * y * 2 + x * y + 40 * k) / 4 % 256) as u8
    };
    let pixels = (0..width * height * channels).map(value).collect();
    raw(width, height, channels, pixels)
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().map(|v| (v * 255.0).round() as u8).collect()
}

#[test]
fn interpolations_and_crop_modes_are_timms() {
    let cases: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../tests/fixtures/eval_steps.json")).unwrap();
    let modes = Interpolation::ALL.len() * CropMode::ALL.len();
    assert_eq!(cases.len(), 5 * modes);
    for case in cases {
        let number = |value: &serde_json::Value| value.as_u64().unwrap() as usize;
        let [w, h, c] = [0, 1, 2].map(|i| number(&case["image"][i]));
        let transform = Transform {
            mean: vec![0.485, 0.456, 0.406][..c].to_vec(),
            interpolation: case["interpolation"].as_str().unwrap().parse().unwrap(),
            crop_mode: case["crop_mode"].as_str().unwrap().parse().unwrap(),
            crop_pct: case["crop_pct"].as_f64().unwrap() as f32,
            ..plain(number(&case["size"]), c, 1.0)
        };
        let image = pattern(w, h, c);
        let found = transform.square(&image).unwrap();
        let expected: Vec<u8> = serde_json::from_value(case["pixels"].clone()).unwrap();
        assert_eq!(found[..], expected, "{transform:?}");
    }
}

#[test]
fn the_border_of_a_grey_image_is_of_the_mean_colour_of_each_channel() {
    let transform = Transform {
        mean: vec![0.1, 0.5, 1.0],
        crop_mode: CropMode::Border,
        ..plain(4, 3, 1.0)
    };
    let image = raw(4, 1, 1, vec![7; 4]);
    let square = transform.square(&image).unwrap();
    let (border, line) = ([26, 128, 255].repeat(4), vec![7; 12]);
    assert_eq!(&square[..12], border);
    assert_eq!(&square[12..24], line);
    assert_eq!(&square[24..], border.repeat(2));
}

#[test]
fn an_image_of_the_right_size_passes_through_exactly() {
    let image = pattern(28, 28, 1);
    let transform = plain(28, 1, 1.0);
    assert!(transform.keeps((1, 28, 28)));
    assert!(matches!(transform.square(&image), Ok(Cow::Borrowed(_))));
    let exact: Vec<f32> = image.pixels.iter().map(|&x| f32::from(x) / 255.0).collect();
    assert_eq!(transform.evaluate(&image).unwrap(), exact);
}

#[test]
fn the_resized_side_is_that_of_decimal_arithmetic() {
    // python3: [math.floor(s / p) for s, p in ((224, .8), (224, .7), (224, .9), (384, .95))]
    let side = |size, crop_pct| plain(size, 3, crop_pct).resized_side();
    assert_eq!([0.8, 0.7, 0.9].map(|pct| side(224, pct)), [280, 320, 248]);
    assert_eq!(side(384, 0.95), 404);
}

#[test]
fn colour_becomes_grey_as_in_pillow_and_grey_is_repeated() {
    // np.asarray(pattern(4, 4, 3).convert("L"))[:2].ravel().tolist()
    let grey = bytes(&plain(4, 1, 1.0).evaluate(&pattern(4, 4, 3)).unwrap());
    assert_eq!(grey[..8], [8, 8, 11, 14, 8, 9, 12, 16]);

    let image = pattern(7, 9, 1);
    let one = plain(5, 1, 1.0).evaluate(&image).unwrap();
    let three = plain(5, 3, 1.0).evaluate(&image).unwrap();
    assert_eq!(three, one.repeat(3));
}

#[test]
fn each_channel_is_normalised_by_its_own_numbers() {
    let transform = Transform {
        mean: vec![0.25, 0.5, 0.75],
        std: vec![0.5, 0.25, 2.0],
        ..plain(2, 3, 1.0)
    };
    let pixels: [[u8; 3]; 4] = [[0, 255, 51], [255, 0, 51], [255, 0, 51], [255, 0, 51]];
    let image = raw(2, 2, 3, pixels.concat());
    let blue = (51.0f32 / 255.0 - 0.75) / 2.0;
    let (red, green) = ([-0.5, 1.5, 1.5, 1.5], [2.0, -2.0, -2.0, -2.0]);
    let expected = [red, green, [blue; 4]].concat();
    assert_eq!(transform.evaluate(&image).unwrap(), expected);
}

#[test]
fn extreme_shapes_need_little_memory() {
    for (width, height) in [(3_000_000, 1), (1, 3_000_000)] {
        let image = raw(width, height, 1, vec![51; width * height]);
        let found = plain(64, 1, 0.9).evaluate(&image).unwrap();
        assert_eq!(bytes(&found), vec![51; 64 * 64]);
    }
}

#[test]
fn settings_out_of_range_are_refused() {
    let image = pattern(8, 8, 1);
    for (transform, expected) in [
        (plain(0, 1, 1.0), "image size of 0"),
        (plain(1 << 40, 1, 1.0), "expected 1 to 8192"),
        (plain(8, 2, 1.0), "the model's input has 2 channels"),
        (plain(8, 1, 0.0), "crop_pct = 0"),
        (plain(8, 1, 1.1), "crop_pct = 1.1"),
        (plain(8, 1, f32::NAN), "crop_pct = NaN"),
    ] {
        check_refused(transform.evaluate(&image), &[expected]);
    }
    let mut transform = plain(8, 3, 1.0);
    transform.mean.pop();
    check_refused(transform.evaluate(&image), &["2 means and 3 standard"]);
    transform.mean.push(0.0);
    transform.std[1] = 0.0;
    check_refused(transform.evaluate(&image), &["above 0"]);
    let contradictory = raw(8, 9, 1, vec![0; 64]);
    let evaluated = plain(8, 1, 1.0).evaluate(&contradictory);
    check_refused(evaluated, &["8 x 9 pixels"]);
}

struct Images(Vec<RawImage>);

impl Source for Images {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn label(&self, _: usize) -> u32 {
        0
    }
    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        let image = self.0.get(i).cloned();
        image.ok_or_else(|| crate::source::no_image(i, self.len()))
    }
}

#[test]
fn the_normalisation_is_the_mean_and_deviation_of_what_is_chosen() {
    let grey = |x: u8| raw(1, 2, 1, vec![x; 2]);
    let colour = raw(2, 2, 3, [255, 0, 51].repeat(4));
    let source = Images(vec![grey(0), grey(255), colour, grey(102)]);
    let measure =
        |indices: &[u32], channels| measure_normalisation(&source, indices, 2, channels).unwrap();
    assert_eq!(measure(&[0, 1], 1), (vec![0.5], vec![0.5]));
    // (0 + 255) / 2, and so on for each channel: np.mean, np.std of [1, 1], [1, 0], [1, .2]
    let (mean, std) = measure(&[1, 2], 3);
    assert_eq!(mean, [1.0, 0.5, 0.6]);
    assert_eq!(std, [1.0 / 255.0, 0.5, 0.4]);

    let measure =
        |indices: &[u32], size, channels| measure_normalisation(&source, indices, size, channels);
    check_refused(measure(&[], 2, 1), &["without images"]);
    check_refused(measure(&[4], 2, 1), &["image 4"]);
    check_refused(measure(&[0], 0, 1), &["image size of 0"]);
    check_refused(measure(&[0], 2, 4), &["4 channels"]);
}

/// Two images, each of which is read only while the other one is.
#[derive(Default)]
struct Together(Mutex<usize>, Condvar);

impl Source for Together {
    fn len(&self) -> usize {
        2
    }
    fn label(&self, _: usize) -> u32 {
        0
    }
    fn image(&self, _: usize) -> Result<RawImage, DataError> {
        let mut begun = self.0.lock().unwrap();
        *begun += 1;
        self.1.notify_all();
        let long = Duration::from_secs(10);
        let both = self.1.wait_timeout_while(begun, long, |begun| *begun < 2);
        assert!(!both.unwrap().1.timed_out(), "one image after the other");
        Ok(raw(1, 1, 1, vec![51]))
    }
}

#[test]
fn the_normalisation_is_measured_on_several_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
    let measure = || measure_normalisation(&Together::default(), &[0, 1], 1, 1).unwrap();
    let (mean, std) = pool.unwrap().install(measure);
    assert_eq!((mean, std), (vec![0.2], vec![1.0 / 255.0]));
}

/// Black images, of which every tenth is broken from the first to `broken`.
struct Tenths {
    len: usize,
    broken: usize,
}

impl Source for Tenths {
    fn len(&self) -> usize {
        self.len
    }
    fn label(&self, _: usize) -> u32 {
        0
    }
    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        match i.is_multiple_of(10) && i <= self.broken {
            true => Err(DataError::content(format!("{i}.png"), "not an image")),
            false => Ok(raw(1, 1, 1, vec![0])),
        }
    }
}

#[test]
fn the_first_broken_images_are_reported_whichever_thread_finds_them() {
    let measure = |broken| {
        let source = Tenths { len: 300, broken };
        let indices: Vec<u32> = (0..300).collect();
        measure_normalisation(&source, &indices, 1, 1)
    };
    assert_eq!(measure(90).unwrap(), (vec![0.0], vec![1.0 / 255.0]));
    let list: Vec<String> = (0..11)
        .map(|k| format!("{}.png: not an image", 10 * k))
        .collect();
    let told = format!(
        "11 of 300 images are broken, more than the 10 allowed; repair or remove them:\n{}",
        list.join("\n")
    );
    assert_eq!(measure(300).unwrap_err().to_string(), told);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_image_becomes_a_full_input(
        width in 1usize..90,
        height in 1usize..90,
        colour: bool,
        image_size in 1usize..40,
        colour_input: bool,
        crop_pct in 0.01f32..=1.0,
    ) {
        let image = pattern(width, height, if colour { 3 } else { 1 });
        let channels = if colour_input { 3 } else { 1 };
        let input = plain(image_size, channels, crop_pct).evaluate(&image).unwrap();
        prop_assert_eq!(input.len(), channels * image_size * image_size);
        prop_assert!(input.iter().all(|x| (0.0..=1.0).contains(x)));
    }

    #[test]
    fn cropping_before_resizing_changes_nothing(
        width in 20usize..90,
        height in 20usize..400,
        image_size in 5usize..30,
        crop_pct in 0.5f32..1.0,
    ) {
        let image = pattern(width, height, 1);
        let transform = plain(image_size, 1, crop_pct);
        // The whole image resized, then cropped.
        let side = transform.resized_side() as usize;
        let shorter = width.min(height);
        let (w, h) = (side * width / shorter, side * height / shorter);
        let view = View::whole(&image.pixels, (width, height), 1);
        let axis = |size: usize, to: usize| Axis {
            size,
            start: 0.0,
            scale: size as f64 / to as f64,
        };
        let by = Interpolation::Bicubic;
        let (across, down) = (axis(width, w).taps(0..w, by), axis(height, h).taps(0..h, by));
        let first = height_first([width, height], [w as u64, h as u64]);
        let whole = resample(view, &across, &down, first);
        let offset = |n: usize| ((n - image_size) as f64 / 2.0).round_ties_even() as usize;
        let found = transform.square(&image).unwrap();
        for (i, &f) in found.iter().enumerate() {
            let (x, y) = (i % image_size + offset(w), i / image_size + offset(h));
            prop_assert_eq!(f, whole[y * w + x], "at {}, {}", x, y);
        }
    }
}

/// A ramp is 1, 3 or 5 pixels too wide. torchvision rounds half of that to even, transformers down.
#[test]
fn the_half_of_an_odd_margin_is_rounded_by_a_rule() {
    use CropOffset::{Floor, HalfToEven};
    for (width, crop_offset, first) in [
        (33u8, HalfToEven, 0),
        (35, HalfToEven, 2),
        (37, HalfToEven, 2),
        (35, Floor, 1),
    ] {
        let row: Vec<u8> = (0..width).collect();
        let ramp = raw(width.into(), 32, 1, row.repeat(32));
        let transform = Transform {
            crop_offset,
            ..plain(32, 1, 1.0)
        };
        let found = bytes(&transform.evaluate(&ramp).unwrap());
        assert_eq!(found[..32], row[first..first + 32], "{width}");
    }
}
