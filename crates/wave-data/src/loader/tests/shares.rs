//! Shares of a batch, and threads: together they make the same batches.

use super::*;

#[test]
fn the_number_of_threads_changes_nothing() {
    let (_dir, source) = files(24);
    let batches = |threads: usize| -> (Vec<Batch>, Vec<BrokenImage>) {
        let loader = of_files(&source, everything(), 6, 12);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let made = |step| loader.batch(step).unwrap();
        let batches = pool.unwrap().install(|| (0..12).map(made).collect());
        (batches, loader.broken())
    };
    let alone = batches(1);
    assert!(!alone.1.is_empty());
    let mix = alone.0[0].mix.as_ref().unwrap();
    assert_eq!(mix.partners, [5, 4, 3, 2, 1, 0]);
    for threads in [2, 5] {
        assert_eq!(batches(threads), alone);
    }
}

#[test]
fn shares_put_together_are_the_batch() {
    let (_dir, source) = files(24);
    for augment in [VARIED, everything()] {
        let mixed = augment.mixing.is_some();
        let whole = of_files(&source, augment, 12, 12);
        let len = 3 * 8 * 8;
        for (size, step) in [(1, 0), (2, 1), (3, 2), (6, 3)] {
            let batch = whole.batch(step).unwrap();
            let mut seen = Vec::new();
            for rank in 0..size {
                let share = whole.share(rank, size).unwrap();
                assert_eq!(share.steps_per_epoch(), whole.steps_per_epoch());
                assert_eq!(share.batch_size(), 12);
                let part = share.batch(step).unwrap();
                assert_eq!((part.size, part.view), (12 / size, batch.view));
                for (k, &row) in share.rows().iter().enumerate() {
                    let pixels = |b: &Batch, at: usize| b.images[at * len..(at + 1) * len].to_vec();
                    assert_eq!(pixels(&part, k), pixels(&batch, row), "{rank} of {size}");
                    assert_eq!(part.labels[k], batch.labels[row]);
                    assert_eq!(part.indices[k], batch.indices[row]);
                    assert_eq!(part.mix.is_some(), mixed);
                    if let (Some(own), Some(all)) = (&part.mix, &batch.mix) {
                        assert_eq!(own.weight, all.weight);
                        let partner = share.rows()[own.partners[k] as usize];
                        assert_eq!(partner, all.partners[row] as usize);
                    }
                }
                seen.extend_from_slice(share.rows());
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..12).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_share_reads_its_own_images_alone() {
    let source = ramps(23);
    let loader = loader(source.clone(), 6, None, 1);
    loader.share(1, 3).unwrap().batch(0).unwrap();
    assert_eq!(source.served.load(Ordering::SeqCst), 2);
    let parts = ["6 images", "4 ranks", "multiple of 4"];
    check_refused(loader.share(0, 4), &parts);
}
