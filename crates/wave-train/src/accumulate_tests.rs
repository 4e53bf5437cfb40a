use candle_core::{DType, Device, Tensor, Var};
use wave_data::{Augment, Loader, Mixing, Transform};
use wave_ops::soft_cross_entropy;

use super::*;
use crate::ranks::tests::Thread;
use crate::{Alone, Flow, Schedule, State, TrainError, batch_targets, fit};

const SIDE: usize = 8;
const CLASSES: usize = 8;

fn loader(batch: usize, mixing: Option<Mixing>) -> Loader {
    let data = wave_data::open("shapes").unwrap();
    let channels = data.train.native_size().unwrap().0;
    let transform = Transform {
        image_size: SIDE,
        channels,
        mean: vec![0.5; channels],
        std: vec![0.25; channels],
        crop_pct: 1.0,
    };
    let augment = Augment {
        flip: true,
        mixing,
        ..Augment::NONE
    };
    let indices = (0..48).collect();
    Loader::train(data.train, indices, transform, augment, batch, None, 3).unwrap()
}

fn train(batch: usize, parts: usize, mixing: Option<Mixing>) -> Result<Vec<f64>, TrainError> {
    train_on(&Alone, batch, parts, mixing)
}

/// Losses of a few steps of a linear classifier, each image weighed by a number drawn for it, and
/// the weights that they end in.
fn train_on(
    ranks: &dyn Ranks,
    batch: usize,
    parts: usize,
    mixing: Option<Mixing>,
) -> Result<Vec<f64>, TrainError> {
    let loader = loader(batch, mixing);
    let inputs = loader.batch(0)?.images.len() / batch;
    let zeros = Tensor::zeros((inputs, CLASSES), DType::F32, &Device::Cpu)?;
    let variables = [Variable {
        name: "head.weight".into(),
        var: Var::from_tensor(&zeros)?,
        rate: vec![1.0],
        weight_decay: 0.1,
    }];
    let mut state = State::new(&variables, true)?;
    let schedule = Schedule {
        peak: 1e-2,
        steps: 6,
        warmup: 1,
        floor: 0.1,
    };
    let mut found = Vec::new();
    let mut seen = 0;
    let loss = |batch: &Batch, images: &Tensor, part: &Part| {
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
    let (clip, decay) = (Some(0.5), Some(0.9));
    fit(
        &loader,
        ranks,
        schedule,
        clip,
        decay,
        parts,
        &variables,
        &mut state,
        loss,
        |p, _| {
            found.extend([p.loss, p.gradient_norm]);
            Ok(Flow::Continue)
        },
    )?;
    assert_eq!(seen, 6 * batch / ranks.size());
    state.check(&variables, ranks)?;
    let weights = variables[0].var.flatten_all()?.to_vec1::<f32>()?;
    found.extend(weights.into_iter().map(f64::from));
    Ok(found)
}

#[test]
fn a_step_is_the_same_in_however_many_parts() {
    for mixing in [None, Some(Mixing::default())] {
        let whole = train(12, 1, mixing).unwrap();
        for parts in [2, 3, 6] {
            let found = train(12, parts, mixing).unwrap();
            for (a, b) in whole.iter().zip(found) {
                assert!((a - b).abs() < 2e-4 * (1.0 + a.abs()), "{parts}: {a} {b}");
            }
        }
    }
    let single = train(12, 12, None).unwrap();
    assert_eq!(single.len(), train(12, 1, None).unwrap().len());
}

#[test]
fn a_step_is_the_same_on_however_many_ranks() {
    for mixing in [None, Some(Mixing::default())] {
        let whole = train(12, 1, mixing).unwrap();
        for (size, parts) in [(2, 1), (2, 3), (3, 1), (3, 2), (6, 1)] {
            if mixing.is_some() && 12 / size / parts % 2 == 1 {
                continue;
            }
            let found = Thread::each(size, |rank| train_on(rank, 12, parts, mixing).unwrap());
            assert!(found.iter().all(|other| *other == found[0]), "{size}");
            for (a, b) in whole.iter().zip(&found[0]) {
                assert!((a - b).abs() < 2e-4 * (1.0 + a.abs()), "{size}: {a} {b}");
            }
        }
    }
}

#[test]
fn unequal_shares_are_refused() {
    for (size, mixing, needle) in [
        (5, None, "12 images in equal shares of 5"),
        (4, Some(Mixing::default()), "even"),
    ] {
        let errors = Thread::each(size, |rank| {
            train_on(rank, 12, 1, mixing).unwrap_err().to_string()
        });
        assert!(
            errors.iter().all(|error| error.contains(needle)),
            "{errors:?}"
        );
    }
}

#[test]
fn unequal_parts_and_parted_pairs_are_refused() {
    for (parts, mixing, needle) in [
        (5, None, "divisor"),
        (0, None, "divisor"),
        (4, Some(Mixing::default()), "even number"),
    ] {
        let error = train(12, parts, mixing).unwrap_err();
        assert!(error.to_string().contains(needle), "{error}");
    }
}

#[test]
fn parts_of_a_mixed_batch_have_the_targets_of_the_whole() {
    let batch = loader(12, Some(Mixing::default())).batch(1).unwrap();
    let whole = batch.soft_targets(CLASSES, 0.1);
    let mut seen = Vec::new();
    for rows in split(&batch, 3).unwrap() {
        let part = select(&batch, &rows);
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
