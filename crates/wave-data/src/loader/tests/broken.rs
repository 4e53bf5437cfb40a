//! Broken images: left out in evaluation, replaced in training; too many are an error.

use super::*;

#[test]
fn evaluation_leaves_broken_images_out_and_notes_them() {
    let (_dir, source) = files(24);
    let evaluate = |indices: &[u32]| {
        let broken = Arc::new(BrokenImages::new(indices.len()));
        let batches = evaluation_batches(&source, indices, &colour_input(8), 2, &broken);
        let batches: Result<Vec<Batch>, DataError> = batches.collect();
        (batches, broken.list())
    };
    let indices: Vec<u32> = (0..20).rev().filter(|i| *i != 19).collect();
    let (batches, broken) = evaluate(&indices);
    let batches = batches.unwrap_err(); // 3 and 11 are two of 19
    assert!(batches.to_string().contains("2 of 19"), "{batches}");
    assert_eq!(broken.len(), 2);

    let indices: Vec<u32> = (0..12).rev().filter(|i| *i != 11).chain([3, 3]).collect();
    let (batches, broken) = evaluate(&indices);
    let batches = batches.unwrap();
    let seen: Vec<u32> = batches.iter().flat_map(|b| b.indices.clone()).collect();
    assert_eq!(seen, [10, 9, 8, 7, 6, 5, 4, 2, 1, 0]);
    let sizes: Vec<usize> = batches.iter().map(|b| b.size).collect();
    assert_eq!(sizes, [2, 2, 2, 1, 2, 1]); // that of 3 alone is left out whole
    let pixels: usize = batches.iter().map(|b| b.images.len()).sum();
    assert_eq!(pixels, 10 * 3 * 8 * 8);
    assert!(batches.iter().all(|b| b.labels.len() == b.size));
    assert_eq!(broken.len(), 1);
    assert!(broken[0].path.ends_with("003.jpg"), "{broken:?}");
    // Without its only image nothing is left.
    assert!(evaluate(&[3]).0.is_err());
}

#[test]
fn the_normalisation_is_that_of_the_sound_images() {
    let (_dir, source) = files(24);
    let measure = |indices: &[u32]| crate::measure_normalisation(&*source, indices, 8, 3);
    let sound: Vec<u32> = (0..20).filter(|i| i % 8 != 3).collect();
    let one_broken: Vec<u32> = (0..20).filter(|i| ![11, 19].contains(i)).collect();
    assert_eq!(measure(&one_broken).unwrap(), measure(&sound).unwrap());
    assert!(measure(&[3, 11, 19]).unwrap_err().is_request());
}

#[test]
fn a_broken_image_is_an_error_of_its_batch() {
    for native in [true, false] {
        let source = Arc::new(Ramps {
            len: 8,
            broken: Some(5),
            served: AtomicUsize::new(0),
            native,
        });
        let loader = tolerating(loader(source, 4, None, 3), 0);
        let results: Vec<_> = loader.prefetch(0, 2).collect();
        assert_eq!(results.iter().filter(|r| r.is_err()).count(), 1);
        let error = results.into_iter().find_map(Result::err);
        assert_eq!(error.unwrap().to_string(), "5.jpg: broken");
    }
}

#[test]
fn broken_images_are_replaced_named_and_counted() {
    let (_dir, source) = files(24);
    let loader = |allowed| {
        let indices = (0..24).collect();
        let none = Augment::NONE;
        let loader = Loader::train(source.clone(), indices, colour_input(8), none, 24, None, 5);
        tolerating(loader.unwrap(), allowed)
    };
    let tolerant = loader(3);
    let batch = tolerant.batch(0).unwrap();
    assert!(
        batch.indices.iter().all(|i| i % 8 != 3),
        "{:?}",
        batch.indices
    );
    let broken: Vec<u32> = tolerant.broken().iter().map(|image| image.index).collect();
    assert_eq!(broken, [3, 11, 19]);
    assert!(tolerant.broken()[0].path.ends_with("003.jpg"));
    assert_eq!(tolerant.batch(0).unwrap(), batch);

    let parts = ["3 of 24 images are broken", "the 2 allowed", "019.jpg"];
    check_refused(loader(2).batch(0), &parts);
    check_refused(loader(2).batch(0), &["003.jpg: not an image"]);
    check_refused(loader(0).batch(0), &["not an image"]);
}
