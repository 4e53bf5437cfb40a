use candle_core::{DType, Device, Tensor, Var};
use std::ops::ControlFlow;
use wave_data::{Augment, Batch, Loader, Mixing, Transform};
use wave_ops::soft_cross_entropy;

use super::*;
use crate::ranks::tests::Thread;
use crate::{
    Alone, Curve, Hyperparameters, Progress, Schedule, State, TrainError, batch_targets, fit,
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
    let transform = Transform::new(SIDE, vec![0.5; channels], vec![0.25; channels]);
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
    let first = loader.batch(0)?;
    let inputs = first.images.len() / batch;
    let zeros = Tensor::zeros((inputs, CLASSES), DType::F32, &Device::Cpu)?;
    let variables = [Variable {
        name: "head.weight".into(),
        var: Var::from_tensor(&zeros)?,
        rate: Some(1.0),
        weight_decay: 0.1,
        muon: None,
    }];
    let mut state = State::new(&variables, true)?;
    let mut found = Vec::new();
    let mut seen = 0;
    let loss = |batch: &Batch, images: &Tensor, part: &MicroBatch| {
        assert_eq!((part.rows.len(), images.dim(0)?), (batch.size, batch.size));
        seen += batch.size;
        if part.step == 0 {
            let indices = part.rows.iter().map(|row| first.indices[*row]);
            assert!(indices.eq(batch.indices.iter().copied()));
        }
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
        schedule: Schedule {
            peak: 1e-2,
            steps: 6,
            curve: Curve::Triangular,
        },
        clip: Some(0.5),
        ema_decay: Some(0.9),
        micro_batches,
    };
    let observe = |p: &Progress, _: &State| {
        found.extend([p.loss, p.gradient_norm]);
        Ok(ControlFlow::Continue(()))
    };
    fit(
        loader,
        ranks,
        hyperparameters,
        &variables,
        &mut state,
        loss,
        observe,
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
        let one = [(1, 2), (1, 3), (1, 6)];
        let several = [(2, 1), (2, 3), (3, 1), (3, 2), (6, 1)];
        for (size, parts) in one.into_iter().chain(several) {
            let found = Thread::each(size, |rank| train(rank, &loader, parts).unwrap());
            assert!(found.iter().all(|other| *other == found[0]), "{size} ranks");
            for (a, b) in whole.iter().zip(&found[0]) {
                let close = (a - b).abs() < 2e-4 * (1.0 + a.abs());
                assert!(close, "{size} ranks, {parts} parts: {a} {b}");
            }
        }
    }
    train(&Alone, &loader(12, None), 12).unwrap();
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
        for error in Thread::each(size, |rank| train(rank, loader, parts).unwrap_err()) {
            assert!(error.to_string().contains(needle), "{error}");
        }
    }
}
