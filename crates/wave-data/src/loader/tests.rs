mod broken;
mod shares;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::RawImage;
use crate::pipeline::evaluation_batches;
use crate::prefetch::PREFETCHED;
use crate::testing::{self, check_refused};

/// Image i is a 4 x 4 ramp from i + 1 on (never black), of class i mod 3; image `broken` fails.
struct Ramps {
    len: usize,
    broken: Option<usize>,
    served: AtomicUsize,
    native: bool,
}

impl Source for Ramps {
    fn len(&self) -> usize {
        self.len
    }
    fn label(&self, i: usize) -> u32 {
        i as u32 % 3
    }
    fn image(&self, i: usize) -> Result<RawImage, DataError> {
        self.served.fetch_add(1, Ordering::SeqCst);
        if self.broken == Some(i) {
            return Err(DataError::Content {
                path: format!("{i}.jpg"),
                problem: "broken".to_owned(),
            });
        }
        Ok(RawImage {
            width: 4,
            height: 4,
            channels: 1,
            pixels: (0..16).map(|k| (1 + i + k) as u8).collect(),
        })
    }
    fn native_size(&self) -> Option<(usize, usize, usize)> {
        self.native.then_some((1, 4, 4))
    }
}

fn ramps(len: usize) -> Arc<Ramps> {
    ramps_with(len, None, true)
}

fn ramps_with(len: usize, broken: Option<usize>, native: bool) -> Arc<Ramps> {
    Arc::new(Ramps {
        len,
        broken,
        served: AtomicUsize::new(0),
        native,
    })
}

fn bytes() -> Transform {
    Transform::new(4, vec![0.0], vec![1.0 / 255.0])
}

const VARIED: Augment = Augment {
    crop_padding: 1,
    flip: true,
    ..Augment::NONE
};

fn loader(source: Arc<dyn Source>, batch: usize, views: Option<u32>, seed: u64) -> Loader {
    let indices = (0..source.len() as u32).collect();
    Loader::train(source, indices, bytes(), VARIED, batch, views, seed).unwrap()
}

/// With at most `allowed` broken images.
fn tolerating(loader: Loader, allowed: usize) -> Loader {
    let broken = Arc::new(BrokenImages::at_most(allowed, loader.indices.len()));
    Loader { broken, ..loader }
}

#[test]
fn an_epoch_shows_every_image_once_save_the_last_partial_batch() {
    let loader = loader(ramps(23), 5, None, 1);
    assert_eq!(loader.steps_per_epoch(), 4);
    let shown = |step| {
        let batch = loader.batch(step).unwrap();
        assert_eq!((batch.size, batch.channels, batch.image_size), (5, 1, 4));
        assert_eq!(batch.images.len(), 5 * 16);
        let labels: Vec<u32> = batch.indices.iter().map(|i| i % 3).collect();
        assert_eq!(batch.labels, labels);
        batch.indices
    };
    let epoch = |e: u64| -> Vec<u32> { (4 * e..4 * e + 4).flat_map(shown).collect() };
    let (first, second) = (epoch(0), epoch(1));
    for order in [&first, &second] {
        let different: BTreeSet<&u32> = order.iter().collect();
        assert_eq!(different.len(), 20);
    }
    assert_ne!(first, second);
    assert_eq!(first, epoch(0));
}

#[test]
fn an_augmented_image_is_a_shifted_and_perhaps_mirrored_one() {
    let source = ramps(30);
    let loader = loader(source.clone(), 30, None, 5);
    let (mut mirrored, mut shifts) = (0, BTreeMap::new());
    for view in 0..20 {
        let batch = loader.view_images(&[7], view).unwrap();
        let pixels = source.image(7).unwrap().pixels;
        // All possible results: 3 x 3 shifts of the image on black, mirrored or not.
        let candidates = (-1..=1).flat_map(|down| (-1..=1).map(move |right| (right, down)));
        let found = candidates
            .flat_map(|shift| [(shift, false), (shift, true)])
            .find(|&((right, down), flip)| {
                (0..16).all(|k| {
                    let (x, y) = (k % 4, k / 4);
                    let (x, y) = (if flip { 3 - x } else { x } + right, y + down);
                    let inside = (0..4).contains(&x) && (0..4).contains(&y);
                    let expected = match inside {
                        true => pixels[(y * 4 + x) as usize],
                        false => 0,
                    };
                    batch.images[k as usize].round() as u8 == expected
                })
            });
        let (shift, flip) = found.expect("a crop of the padded image");
        mirrored += usize::from(flip);
        *shifts.entry(shift).or_insert(0) += 1;
    }
    assert!((4..=16).contains(&mirrored), "{mirrored}");
    assert!(shifts.len() >= 4, "{shifts:?}");
}

/// The batches of an evaluation, and the broken images that it found.
fn evaluate(
    source: &Arc<dyn Source>,
    indices: &[u32],
    transform: &Transform,
    batch: usize,
) -> (Vec<Result<Batch, DataError>>, Vec<BrokenImage>) {
    let broken = Arc::new(BrokenImages::new(indices.len()));
    let batches = evaluation_batches(source, indices, transform, batch, &broken);
    (batches.collect(), broken.list())
}

#[test]
fn evaluation_is_in_order_and_complete() {
    let source: Arc<dyn Source> = ramps(30);
    let indices = [3, 1, 4, 15, 9, 2, 6];
    let evaluate = |indices: &[u32], batch| evaluate(&source, indices, &bytes(), batch).0;
    let batches: Result<Vec<Batch>, DataError> = evaluate(&indices, 3).into_iter().collect();
    let batches = batches.unwrap();
    let sizes: Vec<usize> = batches.iter().map(|b| b.size).collect();
    assert_eq!(sizes, [3, 3, 1]);
    let seen: Vec<u32> = batches.iter().flat_map(|b| b.indices.clone()).collect();
    assert_eq!(seen, indices);
    let expected: Vec<f32> = (0..16).map(|k| (7 + k) as f32).collect(); // image 6
    let found: Vec<f32> = batches[2].images.iter().map(|x| x.round()).collect();
    assert_eq!(found, expected);
    assert_eq!(evaluate(&[], 3).len(), 0);
    assert_eq!(evaluate(&indices, usize::MAX).len(), 1);
}

#[test]
fn impossible_requests_are_refused() {
    let train = |indices: Vec<u32>, batch, views| {
        Loader::train(ramps(10), indices, bytes(), VARIED, batch, views, 0)
    };
    check_refused(train((0..10).collect(), 16, None), &["10 ", "16"]);
    check_refused(train(vec![], 1, None), &["0 training images"]);
    check_refused(train((0..10).collect(), 0, None), &["batch of 0"]);
    check_refused(train((0..10).collect(), 2, Some(0)), &["0 views"]);
    check_refused(train(vec![1, 10], 2, None), &["image 10", "has 10"]);
    let wide = Augment {
        crop_padding: usize::MAX,
        ..Augment::NONE
    };
    let padded = Loader::train(ramps(9), vec![0], bytes(), wide, 1, None, 0);
    check_refused(padded, &["crop_padding", "at most 4"]);
    let loader = train((0..10).collect(), 2, None).unwrap();
    check_refused(loader.view_images(&[3, 11], 0), &["image 11"]);

    let source: Arc<dyn Source> = ramps(10);
    let only = |indices: &[u32], batch| {
        let mut batches = evaluate(&source, indices, &bytes(), batch).0;
        assert_eq!(batches.len(), 1);
        batches.remove(0)
    };
    check_refused(only(&[1], 0), &["batch of 0"]);
    check_refused(only(&[1, 10], 1), &["image 10"]);
}

/// Files of 40 x 30 pixels; every eighth is broken.
fn files(n: usize) -> (tempfile::TempDir, Arc<dyn Source>) {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..n {
        let colour = |x: u32, y: u32| image::Rgb([6 * x as u8, 8 * y as u8, 5 * i as u8]);
        let file = dir.path().join(format!("{i:03}.jpg"));
        let image = image::RgbImage::from_fn(40, 30, colour);
        image.save(&file).unwrap();
        if i % 8 == 3 {
            std::fs::write(&file, "no image").unwrap();
        }
    }
    let source = testing::open(dir.path()).unwrap().train;
    (dir, source)
}

fn everything() -> Augment {
    Augment {
        crop_padding: 1,
        flip: true,
        resized_crop: Some(crate::ResizedCrop::default()),
        rand_augment: Some("rand-m9-mstd0.5-inc1".parse().unwrap()),
        erasing: Some(0.25),
        mixing: Some(crate::Mixing {
            mixup: 0.8,
            cutmix: 1.0,
        }),
        repeats: 3,
    }
}

fn colour_input(image_size: usize) -> Transform {
    Transform::new(image_size, vec![0.5; 3], vec![0.2; 3])
}

/// A loader of 24 files, at most `allowed` of them broken.
fn of_files(source: &Arc<dyn Source>, augment: Augment, batch: usize, allowed: usize) -> Loader {
    let (indices, transform) = ((0..24).collect(), colour_input(8));
    let loader = Loader::train(source.clone(), indices, transform, augment, batch, None, 5);
    tolerating(loader.unwrap(), allowed)
}

#[test]
fn repeats_show_fewer_images_more_often() {
    let train = |views| {
        let augment = Augment {
            repeats: 3,
            ..VARIED
        };
        Loader::train(ramps(30), (0..30).collect(), bytes(), augment, 6, views, 1)
    };
    let loader = train(None).unwrap();
    let mut shown = BTreeMap::new();
    let mut differing = 0;
    for step in 0..loader.steps_per_epoch() as u64 {
        let batch = loader.batch(step).unwrap();
        for (&i, image) in batch.indices.iter().zip(batch.images.chunks(16)) {
            let views: &mut Vec<Vec<f32>> = shown.entry(i).or_default();
            differing += usize::from(views.iter().any(|view| view != image));
            views.push(image.to_vec());
        }
    }
    assert_eq!(shown.len(), 10);
    assert!(shown.values().all(|views| views.len() == 3));
    assert!(differing > 10, "{differing}");
    check_refused(train(Some(2)), &["3 repeats", "views"]);
}

#[test]
fn a_large_image_is_decoded_smaller_to_much_the_same_input() {
    let dir = tempfile::tempdir().unwrap();
    let image = image::RgbImage::from_fn(400, 300, |x, y| {
        let wave = |t: f32| (127.0 + 120.0 * (t / 23.0).sin()) as u8;
        image::Rgb([wave(x as f32), wave(y as f32), wave((x + y) as f32)])
    });
    image.save(dir.path().join("x.jpg")).unwrap();
    let files = testing::open(dir.path()).unwrap().train;
    // The same image, without its file.
    let image = files.image(0).unwrap();
    let decoded: Arc<dyn Source> = Arc::new(crate::source::InMemory {
        size: (3, 300, 400),
        pixels: image.pixels,
        labels: vec![0],
    });
    for (size, scale) in [(32, (0.5, 1.0)), (100, (0.9, 1.0))] {
        let augment = Augment {
            resized_crop: Some(crate::ResizedCrop {
                scale,
                ratio: (1.0, 1.0),
            }),
            ..Augment::NONE
        };
        let view = |source: &Arc<dyn Source>, view| {
            let augment = augment.clone();
            let transform = colour_input(size);
            let loader = Loader::train(source.clone(), vec![0], transform, augment, 1, None, 0);
            loader.unwrap().view_images(&[0], view).unwrap().images
        };
        for k in 0..4 {
            let (small, full) = (view(&files, k), view(&decoded, k));
            let difference = small.iter().zip(&full).map(|(a, b)| (a - b).abs());
            let mean = difference.sum::<f32>() / full.len() as f32 * 0.2 * 255.0;
            assert!(mean < 3.0, "{size}: {mean} grey levels");
        }
    }
}

#[test]
fn dropping_the_iterator_ends_the_thread() {
    let source = ramps(20);
    let loader = loader(source.clone(), 2, None, 0);
    let mut batches = loader.prefetch(0, u64::MAX);
    assert!(batches.next().unwrap().is_ok());
    drop(batches); // returns once the thread has ended
    let served = source.served.load(Ordering::SeqCst);
    assert!(served <= 2 * (1 + PREFETCHED + 2), "{served}");
    drop(loader);
    assert_eq!(Arc::strong_count(&source), 1);
}

#[test]
fn repeated_views_have_a_seed_of_their_own() {
    let all: Vec<u32> = (0..23).collect();
    let pixels = |views, seed, view_seed| {
        let loader = loader(ramps(23), 5, views, seed).with_view_seed(view_seed);
        loader.view_images(&all, 2).unwrap().images
    };
    let first = pixels(Some(3), 1, 0);
    assert_eq!(first, pixels(Some(3), 2, 0));
    assert_eq!(first, pixels(Some(u32::MAX), 1, 0));
    assert_ne!(first, pixels(Some(3), 1, 7));
    assert_eq!(pixels(None, 1, 0), pixels(None, 1, 7));
}

#[test]
fn a_view_that_comes_round_again_is_cropped_anew_and_a_single_one_is_whole_at_first() {
    let (_dir, source) = files(1);
    let augment = Augment {
        resized_crop: Some(crate::ResizedCrop::default()),
        ..Augment::NONE
    };
    let shown = |augment: &Augment, views| {
        let (transform, augment) = (colour_input(8), augment.clone());
        let loader = Loader::train(source.clone(), vec![0], transform, augment, 1, views, 0);
        let loader = loader.unwrap();
        let pixels = |epoch| loader.batch(epoch).unwrap().images;
        assert_eq!(loader.view_images(&[0], 0).unwrap().images, pixels(0));
        [0, 1, 2, 3].map(pixels)
    };
    let whole = shown(&Augment::NONE, Some(1))[0].clone();
    let single = shown(&augment, Some(1));
    assert_eq!(single[0], whole);
    assert!(single[1] != whole && single[2] != whole && single[1] != single[2]);
    // Two views in turn are crops, each another one in its second round.
    let [a, b, again_a, again_b] = shown(&augment, Some(2));
    assert!(a != whole && b != whole && a != b && a != again_a && b != again_b);
    let endless = shown(&augment, None);
    assert_eq!([&endless[0], &endless[1]], [&a, &b]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn prefetching_changes_nothing(from in 0u64..30, n in 0u64..12, views in prop::option::of(1u32..4), seed: u64) {
        let loader = loader(ramps(23), 5, views, seed);
        let ahead: Vec<Batch> = loader.prefetch(from, from + n).map(Result::unwrap).collect();
        let single: Vec<Batch> = (from..from + n).map(|step| loader.batch(step).unwrap()).collect();
        prop_assert_eq!(ahead, single);
    }

    #[test]
    fn image_view_and_round_determine_the_pixels(batch in 1usize..9, other in 1usize..9, view in 0u32..3, seed: u64, native: bool) {
        let pixels = |batch: usize, native: bool| {
            let loader = loader(ramps_with(20, None, native), batch, Some(3), seed);
            let steps = loader.steps_per_epoch() as u64;
            let mut pixels = BTreeMap::new();
            for round in 0..3 {
                let epoch = u64::from(view) + 3 * round;
                for step in epoch * steps..(epoch + 1) * steps {
                    let batch = loader.batch(step).unwrap();
                    assert_eq!(batch.view, view);
                    for (&i, image) in batch.indices.iter().zip(batch.images.chunks(16)) {
                        let known = pixels.entry((round, i)).or_insert_with(|| image.to_vec());
                        assert_eq!(*known, image);
                    }
                }
            }
            let (all, first): (Vec<u32>, Vec<_>) = pixels.range(..(1, 0)).map(|((_, i), image)| (*i, image)).unzip();
            let again = loader.view_images(&all, view).unwrap();
            assert_eq!(again.images, first.into_iter().flatten().copied().collect::<Vec<_>>());
            pixels
        };
        let (one, two) = (pixels(batch, true), pixels(other, native));
        for (at, image) in &one {
            prop_assert!(two.get(at).is_none_or(|known| known == image));
        }
    }
}
