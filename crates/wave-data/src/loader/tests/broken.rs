//! Broken images: left out in evaluation, replaced in training; too many are an error.

use super::*;

#[test]
fn evaluation_leaves_broken_images_out_and_notes_them() {
    let (_dir, source) = files(24);
    let evaluate = |indices: &[u32]| {
        let (batches, broken) = evaluate(&source, indices, &colour_input(8), 2);
        let batches: Result<Vec<Batch>, DataError> = batches.into_iter().collect();
        (batches, broken)
    };
    let indices: Vec<u32> = (0..20).rev().filter(|i| *i != 19).collect();
    let (batches, broken) = evaluate(&indices);
    check_refused(batches, &["2 of 19"]); // 3 and 11
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
        let source = ramps_with(8, Some(5), native);
        let loader = tolerating(loader(source, 4, None, 3), 0);
        let errors = loader.prefetch(0, 2).filter_map(Result::err);
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        assert_eq!(errors, ["5.jpg: broken"]);
    }
}

#[test]
fn broken_images_are_replaced_named_and_counted() {
    let (_dir, source) = files(24);
    let loader = |allowed| of_files(&source, Augment::NONE, 24, allowed);
    let tolerant = loader(3);
    let batch = tolerant.batch(0).unwrap();
    let indices = &batch.indices;
    assert!(indices.iter().all(|i| i % 8 != 3), "{indices:?}");
    let broken: Vec<u32> = tolerant.broken().iter().map(|image| image.index).collect();
    assert_eq!(broken, [3, 11, 19]);
    assert!(tolerant.broken()[0].path.ends_with("003.jpg"));
    assert_eq!(tolerant.batch(0).unwrap(), batch);

    check_refused(loader(2).batch(0), &["3 of 24 images", "the 2 allowed"]);
    let listed = ["003.jpg: not an image", "019.jpg"];
    check_refused(loader(2).batch(0), &listed);
    check_refused(loader(0).batch(0), &["not an image"]);
}
