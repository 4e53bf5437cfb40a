use candle_core::{DType, Device, Tensor, Var};
use std::ops::ControlFlow;
use wave_data::{Augment, Batch, Loader, Mixing, Transform};
use wave_ops::soft_cross_entropy;

use super::*;
use crate::ranks::tests::Thread;
use crate::{
    Alone, Curve, Examples, Hyperparameters, Schedule, State, TrainError, batch_targets, fit,
};

const SIDE: usize = 8;
const CLASSES: usize = 8;

const MIXING: Mixing = Mixing {
    mixup: 0.8,
    cutmix: 1.0,
};

fn loader(batch: usize, mixing: Option<Mixing>) -> Loader {
    let data = wave_data::open("shapes").unwrap();
    let channels = data.train.native_size().unwrap().0;
    let transform = Transform {
        image_size: SIDE,
        channels,
        mean: vec![0.5; channels],
        std: vec![0.25; channels],
        crop_pct: 1.0,
        interpolation: wave_data::Interpolation::default(),
        crop_mode: wave_data::CropMode::default(),
        crop_offset: wave_data::CropOffset::default(),
    };
    let augment = Augment {
        flip: true,
        mixing,
        ..Augment::NONE
    };
    let indices = (0..48).collect();
    Loader::train(data.train, indices, transform, augment, batch, None, 3).unwrap()
}

/// Losses of a few steps of a linear classifier, each image weighted by a random number, followed
/// by the final weights.
fn train(ranks: &dyn Ranks, loader: &Loader, micro_batches: usize) -> Result<Vec<f64>, TrainError> {
    let batch = loader.batch_size();
    let inputs = loader.batch(0)?.images.len() / batch;
    let zeros = Tensor::zeros((inputs, CLASSES), DType::F32, &Device::Cpu)?;
    let variables = [Variable {
        name: "head.weight".into(),
        var: Var::from_tensor(&zeros)?,
        rate: Some(1.0),
        weight_decay: 0.1,
        muon: None,
    }];
    let mut state = State::new(&variables, true)?;
    let schedule = Schedule {
        peak: 1e-2,
        steps: 6,
        curve: Curve::Cosine {
            warmup: 1,
            floor: 0.1,
        },
    };
    let mut found = Vec::new();
    let mut seen = 0;
    let loss = |batch: &Batch, images: &Tensor, part: &MicroBatch| {
        assert_eq!((part.rows.len(), images.dim(0)?), (batch.size, batch.size));
        seen += batch.size;
        let drawn = (0..part.batch).map(|i| 1.0 + (i as f32 + part.step as f32).sin());
        let weights = part.of(drawn.collect());
        let weights = Tensor::from_vec(weights, (batch.size, 1), &Device::Cpu)?;
        let logits = images
            .flatten_from(1)?
            .matmul(variables[0].var.as_tensor())?;
        let logits = logits.broadcast_mul(&weights)?;
        soft_cross_entropy(&logits, &batch_targets(batch, CLASSES, 0.1)?)
    };
    let hyperparameters = Hyperparameters {
        schedule,
        clip: Some(0.5),
        ema_decay: Some(0.9),
        micro_batches,
    };
    fit(
        loader,
        ranks,
        hyperparameters,
        &variables,
        &mut state,
        loss,
        |p, _| {
            found.extend([p.loss, p.gradient_norm]);
            Ok(ControlFlow::Continue(()))
        },
    )?;
    assert_eq!(seen, 6 * batch / ranks.size());
    state.check(&variables, ranks)?;
    let weights = variables[0].var.flatten_all()?.to_vec1::<f32>()?;
    found.extend(weights.into_iter().map(f64::from));
    Ok(found)
}

#[test]
fn a_step_is_the_same_in_however_many_micro_batches_and_on_however_many_ranks() {
    for mixing in [None, Some(MIXING)] {
        let loader = loader(12, mixing);
        let whole = train(&Alone, &loader, 1).unwrap();
        for (size, parts) in [
            (1, 2),
            (1, 3),
            (1, 6),
            (2, 1),
            (2, 3),
            (3, 1),
            (3, 2),
            (6, 1),
        ] {
            let found = Thread::each(size, |rank| train(rank, &loader, parts).unwrap());
            assert!(found.iter().all(|other| *other == found[0]), "{size} ranks");
            for (a, b) in whole.iter().zip(&found[0]) {
                let close = (a - b).abs() < 2e-4 * (1.0 + a.abs());
                assert!(close, "{size} ranks, {parts} parts: {a} {b}");
            }
        }
    }
    let single = train(&Alone, &loader(12, None), 12).unwrap();
    assert_eq!(
        single.len(),
        train(&Alone, &loader(12, None), 1).unwrap().len()
    );
}

#[test]
fn unequal_micro_batches_and_parted_pairs_are_refused() {
    let mixed = loader(12, Some(MIXING));
    let plain = loader(12, None);
    for (size, parts, loader, needle) in [
        (1, 5, &plain, "divisor"),
        (1, 0, &plain, "divisor"),
        (1, 4, &mixed, "even number"),
        (2, 4, &plain, "divisor"),
        (5, 1, &plain, "12 images does not divide equally among 5"),
        (4, 1, &mixed, "even number"),
    ] {
        let errors = Thread::each(size, |rank| {
            train(rank, loader, parts).unwrap_err().to_string()
        });
        assert!(
            errors.iter().all(|error| error.contains(needle)),
            "{errors:?}"
        );
    }
}

#[test]
fn micro_batches_of_a_mixed_batch_have_the_targets_of_the_whole() {
    let batch = loader(12, Some(MIXING)).batch(1).unwrap();
    let whole = batch.soft_targets(CLASSES, 0.1);
    let mut seen = Vec::new();
    for rows in batch.split(3).unwrap() {
        let part = batch.select(&rows);
        let targets = part.soft_targets(CLASSES, 0.1);
        let len = part.images.len() / part.size;
        for (k, row) in rows.iter().enumerate() {
            let own = |values: &[f32], n: usize, at: usize| values[at * n..(at + 1) * n].to_vec();
            assert_eq!(own(&targets, CLASSES, k), own(&whole, CLASSES, *row));
            assert_eq!(own(&part.images, len, k), own(&batch.images, len, *row));
            assert_eq!(part.indices[k], batch.indices[*row]);
        }
        seen.extend(rows);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..12).collect::<Vec<_>>());
}
