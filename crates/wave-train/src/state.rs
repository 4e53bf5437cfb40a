//! What training changes, and what it needs to go on.

use crate::TrainError;
use candle_core::{Device, Result, Tensor, Var};
use std::collections::BTreeMap;

/// A named tensor that training changes.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name, unique among the variables.
    pub name: String,
    /// The tensor.
    pub var: Var,
    /// Factors on the learning rate: one, or one for each row of the leading dimension. Empty for
    /// a buffer that the loss closure maintains itself (running statistics): it is saved with the
    /// state but not stepped.
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
    /// First and second moments of each variable.
    pub(crate) moments: Vec<(Vec<f32>, Vec<f32>)>,
    /// Moving averages of the variables, if kept.
    pub(crate) average: Option<Vec<Vec<f32>>>,
}

impl State {
    /// The state before the first step.
    pub fn new(variables: &[Variable], keep_average: bool) -> Result<State> {
        let zeros = |v: &Variable| {
            vec![
                0.0;
                if v.rate.is_empty() {
                    0
                } else {
                    v.var.elem_count()
                }
            ]
        };
        let average = if keep_average {
            let values = |v: &Variable| v.var.flatten_all()?.to_vec1::<f32>();
            Some(variables.iter().map(values).collect::<Result<_>>()?)
        } else {
            None
        };
        let moments = variables.iter().map(|v| (zeros(v), zeros(v))).collect();
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
            out.insert(
                format!("variable.{}", v.name),
                v.var.as_detached_tensor().copy()?,
            );
            let mut put = |kind: &str, values: &[f32]| -> Result<()> {
                let n = values.len();
                out.insert(
                    format!("{kind}.{}", v.name),
                    Tensor::from_slice(values, n, &Device::Cpu)?,
                );
                Ok(())
            };
            if !v.rate.is_empty() {
                put("first_moment", &self.moments[i].0)?;
                put("second_moment", &self.moments[i].1)?;
            }
            if let Some(average) = &self.average {
                put("average", &average[i])?;
            }
        }
        Ok(out)
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
            v.var.set(&take("variable", v)?.reshape(v.var.shape())?)?;
            state.moments.push(if v.rate.is_empty() {
                (Vec::new(), Vec::new())
            } else {
                (
                    values(take("first_moment", v)?)?,
                    values(take("second_moment", v)?)?,
                )
            });
            if averaged {
                average.push(values(take("average", v)?)?);
            }
        }
        state.average = averaged.then_some(average);
        Ok(state)
    }
}
