//! Ranks that are threads of one process.

use std::sync::{Arc, Barrier, Mutex};

use super::*;
use crate::{State, TrainError, Variable};
use candle_core::{Device, Var};

/// A rank that is a thread.
pub(crate) struct Thread {
    rank: usize,
    said: Arc<Mutex<Vec<Vec<f64>>>>,
    barrier: Arc<Barrier>,
}

impl Thread {
    /// Results of `work` on each of `size` ranks.
    pub(crate) fn each<T: Send>(size: usize, work: impl Fn(&Thread) -> T + Sync) -> Vec<T> {
        let said = Arc::new(Mutex::new(vec![Vec::new(); size]));
        let barrier = Arc::new(Barrier::new(size));
        let work = &work;
        std::thread::scope(|scope| {
            let start = |rank| {
                let (said, barrier) = (said.clone(), barrier.clone());
                let rank = Thread {
                    rank,
                    said,
                    barrier,
                };
                scope.spawn(move || work(&rank))
            };
            let threads: Vec<_> = (0..size).map(start).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    /// Values of every rank, in rank order.
    fn exchange(&self, values: &[impl Copy + Into<f64>]) -> Vec<Vec<f64>> {
        let values = values.iter().map(|v| (*v).into()).collect();
        self.said.lock().unwrap()[self.rank] = values;
        self.barrier.wait();
        let all = self.said.lock().unwrap().clone();
        self.barrier.wait();
        all
    }
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.said.lock().unwrap().len()
    }

    fn sum(&self, values: &mut [f32]) {
        let all = self.exchange(values);
        for (i, value) in values.iter_mut().enumerate() {
            *value = all.iter().map(|said| said[i] as f32).sum();
        }
    }

    fn sum_f64(&self, values: &mut [f64]) {
        let all = self.exchange(values);
        for (i, value) in values.iter_mut().enumerate() {
            *value = all.iter().map(|said| said[i]).sum();
        }
    }

    fn broadcast(&self, values: &mut [f32]) {
        let all = self.exchange(values);
        for (value, first) in values.iter_mut().zip(&all[0]) {
            *value = *first as f32;
        }
    }
}

fn variables(values: &[f32]) -> Vec<Variable> {
    let tensor = Tensor::new(values, &Device::Cpu).unwrap();
    vec![Variable {
        name: "w".into(),
        var: Var::from_tensor(&tensor).unwrap(),
        rate: Some(1.0),
        weight_decay: 0.0,
        muon: None,
    }]
}

fn values(variables: &[Variable]) -> Vec<f32> {
    variables[0].var.to_vec1().unwrap()
}

#[test]
fn tensors_of_several_shapes_are_summed_in_their_places() {
    let sums = Thread::each(3, |ranks| {
        let k = ranks.rank() as f32;
        let a = Tensor::new(&[[k, 1.0], [2.0, 3.0]], &Device::Cpu).unwrap();
        let b = Tensor::new(&[10.0 * k], &Device::Cpu).unwrap();
        let sums = sum_over(ranks, &[&a.t().unwrap(), &b]).unwrap();
        assert_eq!(sums[1].to_vec1::<f32>().unwrap(), [30.0]);
        sums[0].to_vec2::<f32>().unwrap()
    });
    for sum in sums {
        assert_eq!(sum, [[3.0, 6.0], [3.0, 9.0]]);
    }
}

#[test]
fn all_ranks_go_on_from_the_state_of_the_first() {
    let found = Thread::each(2, |ranks| {
        let k = ranks.rank() as f32;
        let variables = variables(&[k + 0.5, -0.0, k]);
        let mut state = State::new(&variables, true).unwrap();
        state.step = 7 + ranks.rank() as u64;
        assert!(state.check(&variables, ranks).is_err());
        let state = state.of_first(&variables, ranks).unwrap();
        state.check(&variables, ranks).unwrap();
        let average = state.averages(&variables).unwrap().unwrap();
        let average = average["w"].to_vec1::<f32>().unwrap();
        assert_eq!(average, values(&variables));
        (state.step, values(&variables))
    });
    for found in found {
        assert_eq!(found, (7, vec![0.5, -0.0, 0.0]));
    }
}

#[test]
fn other_variables_on_another_rank_are_refused() {
    let errors = Thread::each(2, |ranks| {
        let variables = variables(&vec![1.0; 2 + ranks.rank()]);
        let state = State::new(&variables, false).unwrap();
        state.of_first(&variables, ranks).unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, TrainError::Apart { step: 0 }), "{error}");
    }
}
