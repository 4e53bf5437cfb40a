//! The variables and the state of a training.

use crate::{Ranks, TrainError};
use candle_core::{Device, Result, Tensor, Var};
use std::collections::BTreeMap;
use wave_ops::{Matrices, Moments};

/// Steps after which a halving of the learning rate is undone.
const RECOVERY: u64 = 100;

/// Largest number of halvings of the learning rate.
const MOST_HALVINGS: u64 = 10;

type TrainResult<T> = std::result::Result<T, TrainError>;

/// A named tensor that training changes.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name, unique among the variables.
    pub name: String,
    /// The tensor.
    pub var: Var,
    /// Factor on the learning rate. None for a tensor that is saved with the state but not updated: a frozen
    /// weight, or a buffer that the loss closure maintains itself (running statistics).
    pub rate: Option<f32>,
    /// Weight decay, multiplied by the learning rate.
    pub weight_decay: f32,
    /// The matrices that Muon updates it as; AdamW updates it if `None`.
    pub muon: Option<Matrices>,
}

/// Everything the loop remembers between two steps.
#[derive(Debug)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Steps skipped because the loss or the gradient was not finite.
    pub skipped: u64,
    /// The last skipped step, counted from 1, and the number of halvings of the learning rate at that step.
    halved: (u64, u64),
    /// Moments of each variable that is updated.
    pub(crate) moments: Vec<Option<Moments>>,
    /// EMA of the variables on their devices, if kept.
    pub(crate) average: Option<Vec<Var>>,
}

impl State {
    /// The state before the first step.
    pub fn new(variables: &[Variable], keep_average: bool) -> Result<State> {
        let copy = |v: &Variable| Var::from_tensor(&v.var.as_detached_tensor());
        let average = keep_average.then(|| variables.iter().map(copy).collect::<Result<_>>());
        let moments = |v: &Variable| match (v.rate, v.muon) {
            (None, _) => Ok(None),
            (Some(_), None) => Moments::new(&v.var).map(Some),
            (Some(_), Some(_)) => Moments::momentum(&v.var).map(Some),
        };
        let moments = variables.iter().map(moments).collect::<Result<_>>()?;
        Ok(State {
            step: 0,
            skipped: 0,
            halved: (0, 0),
            moments,
            average: average.transpose()?,
        })
    }

    /// The number of halvings of the learning rate at this step: one for each skipped step, minus one for
    /// every 100 steps since then.
    pub fn halvings(&self) -> u64 {
        let (at, times) = self.halved;
        times.saturating_sub((self.step - at.min(self.step)) / RECOVERY)
    }

    pub(crate) fn skip(&mut self) {
        self.halved = (self.step, (self.halvings() + 1).min(MOST_HALVINGS));
        self.skipped += 1;
    }

    /// The counters of a saved state, stored in addition to [`State::to_weights`].
    pub fn counts(&self) -> [(&'static str, u64); 4] {
        [
            ("step", self.step),
            ("skipped", self.skipped),
            ("halved_at", self.halved.0),
            ("halvings", self.halved.1),
        ]
    }

    /// The EMA of the variables by name, copied on their devices, if kept.
    pub fn averages(&self, variables: &[Variable]) -> Result<Option<BTreeMap<String, Tensor>>> {
        let Some(average) = &self.average else {
            return Ok(None);
        };
        let own = |(v, a): (&Variable, &Var)| Ok((v.name.clone(), a.as_detached_tensor().copy()?));
        let averages = variables.iter().zip(average).map(own);
        averages.collect::<Result<_>>().map(Some)
    }

    /// Variables, moments and averages as one weight map, copied, to be saved with [`State::counts`].
    pub fn to_weights(&self, variables: &[Variable]) -> Result<BTreeMap<String, Tensor>> {
        let mut out = BTreeMap::new();
        for (i, v) in variables.iter().enumerate() {
            let value = v.var.as_detached_tensor().copy()?;
            let value = value.to_device(&Device::Cpu)?;
            out.insert(format!("variable.{}", v.name), value);
            if let Some(moments) = &self.moments[i] {
                let [first, second] = moments.to_tensors()?;
                out.insert(format!("first_moment.{}", v.name), first);
                if v.muon.is_none() {
                    out.insert(format!("second_moment.{}", v.name), second);
                }
            }
            if let Some(average) = &self.average {
                let t = average[i].as_detached_tensor().copy()?.flatten_all()?;
                out.insert(format!("average.{}", v.name), t.to_device(&Device::Cpu)?);
            }
        }
        Ok(out)
    }

    /// Broadcasts the first rank's state and variables to every rank. Fails with [`TrainError::Apart`] if the ranks
    /// have variables of different sizes.
    pub fn of_first(self, variables: &[Variable], ranks: &dyn Ranks) -> TrainResult<State> {
        if ranks.size() == 1 {
            return Ok(self);
        }
        let mut weights = self.to_weights(variables)?;
        let values: usize = weights.values().map(Tensor::elem_count).sum();
        self.agree(values as f64, ranks)?;
        for t in weights.values_mut() {
            let mut values = t.flatten_all()?.to_vec1::<f32>()?;
            ranks.broadcast(&mut values);
            *t = Tensor::from_vec(values, t.shape(), &Device::Cpu)?;
        }
        let counts = self.counts();
        let counts = BTreeMap::from(counts.map(|(key, n)| (key, ranks.of_first(n as f64) as u64)));
        State::restore(variables, &weights, |key| counts.get(key).copied())
    }

    /// Checks that all ranks hold the same variables, bit by bit. If not, all ranks fail with [`TrainError::Apart`].
    pub fn check(&self, variables: &[Variable], ranks: &dyn Ranks) -> TrainResult<()> {
        if ranks.size() == 1 {
            return Ok(());
        }
        let bits = |value: f32| u64::from(value.to_bits());
        let hash = |v: &Variable| {
            let values = v.var.flatten_all()?.to_vec1::<f32>()?;
            Ok(fnv1a(values.into_iter().map(bits)))
        };
        let hashes = variables.iter().map(hash).collect::<Result<Vec<u64>>>()?;
        self.agree((fnv1a(hashes) >> 12) as f64, ranks) // 52 bits are exact
    }

    fn agree(&self, own: f64, ranks: &dyn Ranks) -> TrainResult<()> {
        let differs = ranks.of_first(own) != own;
        match ranks.any(differs) {
            true => Err(TrainError::Apart { step: self.step }),
            false => Ok(()),
        }
    }

    /// Restores the output of [`State::to_weights`] and [`State::counts`], including the variables. Fails if a tensor
    /// or a count is missing or has another size, as in the state of another run.
    pub fn restore(
        variables: &[Variable],
        weights: &BTreeMap<String, Tensor>,
        count: impl Fn(&str) -> Option<u64>,
    ) -> TrainResult<State> {
        let count = |key: &str| {
            count(key).ok_or_else(|| TrainError::Mismatch(format!("it has no number {key}")))
        };
        let take = |kind: &str, v: &Variable| -> TrainResult<Tensor> {
            let name = format!("{kind}.{}", v.name);
            match weights.get(&name) {
                Some(t) if t.elem_count() == v.var.elem_count() => Ok(t.clone()),
                Some(t) => Err(TrainError::Mismatch(format!(
                    "{name} has shape {:?}, expected {:?}",
                    t.shape(),
                    v.var.shape()
                ))),
                None => Err(TrainError::Mismatch(format!("{name} is missing"))),
            }
        };
        let averaged = weights.keys().any(|name| name.starts_with("average."));
        let mut state = State {
            step: count("step")?,
            skipped: count("skipped")?,
            halved: (count("halved_at")?, count("halvings")?),
            moments: Vec::new(),
            average: averaged.then(Vec::new),
        };
        for v in variables {
            let value = take("variable", v)?.reshape(v.var.shape())?;
            v.var.set(&value.to_device(v.var.device())?)?;
            state.moments.push(if v.rate.is_none() {
                None
            } else {
                let first = take("first_moment", v)?;
                Some(match v.muon {
                    Some(_) => Moments::restore_momentum(&v.var, &first)?,
                    None => Moments::restore(&v.var, [&first, &take("second_moment", v)?])?,
                })
            });
            if let Some(average) = &mut state.average {
                let value = take("average", v)?.reshape(v.var.shape())?;
                average.push(Var::from_tensor(&value.to_device(v.var.device())?)?);
            }
        }
        Ok(state)
    }
}

/// The FNV-1a hash of bytes, or in the same way of larger words.
pub fn fnv1a(words: impl IntoIterator<Item = u64>) -> u64 {
    let next = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the test vectors of Fowler, Noll and Vo.
    #[test]
    fn hashes_are_published_ones() {
        let of = |text: &str| fnv1a(text.bytes().map(u64::from));
        assert_eq!(of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(of("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn averages_are_saved_and_restored_as_copies() {
        let ones = Var::ones((2, 3), candle_core::DType::F32, &Device::Cpu).unwrap();
        let variables = [Variable {
            name: "w".into(),
            var: ones.clone(),
            rate: Some(1.0),
            weight_decay: 0.0,
            muon: None,
        }];
        let values = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let averages = |state: &State| state.averages(&variables).unwrap().unwrap();
        let state = State::new(&variables, true).unwrap();
        let fives = (ones.as_detached_tensor() * 5.0).unwrap();
        ones.set(&fives).unwrap();
        let (early, saved) = (averages(&state), state.to_weights(&variables).unwrap());
        assert_eq!(saved["average.w"].dims(), [6]);
        let average = &state.average.as_ref().unwrap()[0];
        wave_ops::ema_update(average, &ones, 0.75).unwrap();
        assert_eq!(values(&averages(&state)["w"]), [2.0; 6]);
        assert_eq!(values(&early["w"]), [1.0; 6]);

        let counts: BTreeMap<&str, u64> = state.counts().into();
        let count = |key: &str| counts.get(key).copied();
        let restored = State::restore(&variables, &saved, count).unwrap();
        let average = &restored.average.as_ref().unwrap()[0];
        assert_eq!(average.dims(), [2, 3]);
        wave_ops::ema_update(average, &ones, 0.75).unwrap();
        assert_eq!(values(&averages(&restored)["w"]), [2.0; 6]);
        assert_eq!(values(&saved["average.w"]), [1.0; 6]);
    }

    #[test]
    fn skipped_steps_halve_the_learning_rate_for_a_while() {
        let mut state = State::new(&[], false).unwrap();
        for step in [1, 2, 3] {
            state.step = step;
            state.skip();
        }
        let halvings = |state: &mut State, step| {
            state.step = step;
            state.halvings()
        };
        let after = [3, 102, 103, 202, 203, 303, 10_000].map(|step| halvings(&mut state, step));
        assert_eq!(after, [3, 3, 2, 2, 1, 0, 0]);
        // One more skipped step, while one halving is still in effect.
        state.step = 203;
        state.skip();
        assert_eq!((state.halvings(), state.skipped), (2, 4));

        let counts: BTreeMap<&str, u64> = state.counts().into();
        let restored = State::restore(&[], &BTreeMap::new(), |key| counts.get(key).copied());
        assert_eq!(restored.unwrap().counts(), state.counts());
    }
}
