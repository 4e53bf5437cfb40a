//! What training changes, and what it needs to go on.

use crate::{Ranks, TrainError};
use candle_core::{Device, Result, Tensor, Var};
use std::collections::BTreeMap;
use wave_ops::Moments;

/// A named tensor that training changes.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name, unique among the variables.
    pub name: String,
    /// The tensor.
    pub var: Var,
    /// Factors on the learning rate: one, or one for each row of the leading dimension. Empty for
    /// a buffer that the loss closure maintains itself (running statistics), and for what stays as it
    /// is: it is saved with the state but not stepped.
    pub rate: Vec<f32>,
    /// Weight decay, times the learning rate.
    pub weight_decay: f32,
}

/// Everything the loop remembers between two steps.
#[derive(Clone, Debug)]
pub struct State {
    /// Steps done.
    pub step: u64,
    /// Steps left out because the loss or the gradient was not finite.
    pub skipped: u64,
    /// First and second moments of each variable that is stepped.
    pub(crate) moments: Vec<Option<Moments>>,
    /// Moving averages of the variables, if kept.
    pub(crate) average: Option<Vec<Vec<f32>>>,
}

impl State {
    /// The state before the first step.
    pub fn new(variables: &[Variable], keep_average: bool) -> Result<State> {
        let average = if keep_average {
            let values = |v: &Variable| v.var.flatten_all()?.to_vec1::<f32>();
            Some(variables.iter().map(values).collect::<Result<_>>()?)
        } else {
            None
        };
        let moments = |v: &Variable| match v.rate.is_empty() {
            true => Ok(None),
            false => Moments::new(&v.var).map(Some),
        };
        let moments = variables.iter().map(moments).collect::<Result<_>>()?;
        Ok(State {
            step: 0,
            skipped: 0,
            moments,
            average,
        })
    }

    /// The moving averages by name, if kept.
    pub fn averages(&self, variables: &[Variable]) -> Result<Option<BTreeMap<String, Tensor>>> {
        let Some(average) = &self.average else {
            return Ok(None);
        };
        variables
            .iter()
            .zip(average)
            .map(|(v, a)| {
                Ok((
                    v.name.clone(),
                    Tensor::from_slice(a, v.var.shape(), &Device::Cpu)?,
                ))
            })
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Variables, moments and averages as one weight map, to be saved beside [`State::step`] and
    /// [`State::skipped`].
    pub fn to_weights(&self, variables: &[Variable]) -> Result<BTreeMap<String, Tensor>> {
        let mut out = BTreeMap::new();
        for (i, v) in variables.iter().enumerate() {
            let value = v.var.as_detached_tensor().copy()?;
            out.insert(
                format!("variable.{}", v.name),
                value.to_device(&Device::Cpu)?,
            );
            if let Some(moments) = &self.moments[i] {
                let [first, second] = moments.to_tensors()?;
                out.insert(format!("first_moment.{}", v.name), first);
                out.insert(format!("second_moment.{}", v.name), second);
            }
            if let Some(average) = &self.average {
                let values = &average[i];
                let t = Tensor::from_slice(values, values.len(), &Device::Cpu)?;
                out.insert(format!("average.{}", v.name), t);
            }
        }
        Ok(out)
    }

    /// The first rank's state on every rank, and its variables with it.
    ///
    /// # Errors
    /// [`TrainError::Apart`] if the ranks have other variables.
    pub fn of_first(
        self,
        variables: &[Variable],
        ranks: &dyn Ranks,
    ) -> std::result::Result<State, TrainError> {
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
        let step = ranks.of_first(self.step as f64) as u64;
        let skipped = ranks.of_first(self.skipped as f64) as u64;
        State::restore(variables, &weights, step, skipped)
    }

    /// Checks that all ranks hold the same variables, bit by bit.
    ///
    /// # Errors
    /// [`TrainError::Apart`] on all of them if not.
    pub fn check(
        &self,
        variables: &[Variable],
        ranks: &dyn Ranks,
    ) -> std::result::Result<(), TrainError> {
        if ranks.size() == 1 {
            return Ok(());
        }
        let mut hash = 0xcbf2_9ce4_8422_2325_u64; // FNV-1a, a value at a time
        for v in variables {
            for value in v.var.flatten_all()?.to_vec1::<f32>()? {
                hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
            }
        }
        self.agree((hash >> 12) as f64, ranks) // 52 bits are exact
    }

    fn agree(&self, own: f64, ranks: &dyn Ranks) -> std::result::Result<(), TrainError> {
        let differs = ranks.of_first(own) != own;
        match ranks.any(differs) {
            true => Err(TrainError::Apart { step: self.step }),
            false => Ok(()),
        }
    }

    /// Restores what [`State::to_weights`] saved, into the variables too.
    ///
    /// # Errors
    /// If a tensor is missing or of another size: the state of another run.
    pub fn restore(
        variables: &[Variable],
        weights: &BTreeMap<String, Tensor>,
        step: u64,
        skipped: u64,
    ) -> std::result::Result<State, TrainError> {
        let take = |kind: &str, v: &Variable| -> std::result::Result<Tensor, TrainError> {
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
        let values = |t: Tensor| t.flatten_all()?.to_vec1::<f32>();
        let mut state = State {
            step,
            skipped,
            moments: Vec::new(),
            average: None,
        };
        let averaged = weights.keys().any(|name| name.starts_with("average."));
        let mut average = Vec::new();
        for v in variables {
            let value = take("variable", v)?.reshape(v.var.shape())?;
            v.var.set(&value.to_device(v.var.device())?)?;
            state.moments.push(match v.rate.is_empty() {
                true => None,
                false => {
                    let saved = [&take("first_moment", v)?, &take("second_moment", v)?];
                    Some(Moments::restore(&v.var, saved)?)
                }
            });
            if averaged {
                average.push(values(take("average", v)?)?);
            }
        }
        state.average = averaged.then_some(average);
        Ok(state)
    }
}
