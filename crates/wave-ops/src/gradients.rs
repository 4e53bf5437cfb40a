//! Gradients of many large tensors from one operator.
//!
//! candle's operators take three arguments at most, and whatever gradient they return is added to
//! fresh zeros. The blocks have thirteen arguments whose gradients are as large as the model:
//! joining the arguments, cutting up the gradient and those additions would move several times the
//! memory of the whole optimiser step. So the operator takes a [`Bundle`] instead, a single value
//! that stands for all parameters; and [`backward`] collects the gradients of variables as they
//! are.

use crate::storage::tensor;
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

thread_local! {
    /// Variables and their gradients, while [`backward`] runs on this thread.
    static COLLECTED: RefCell<Option<Vec<(Tensor, Tensor)>>> = const { RefCell::new(None) };
}

/// The gradients of `loss`, as `loss.backward()` computes them, without a copy of those of the
/// blocks' parameters.
///
/// # Errors
/// Those of the operators.
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    let outer = COLLECTED.replace(Some(Vec::new()));
    let gradients = loss.backward();
    let collected = COLLECTED.replace(outer).unwrap_or_default();
    let mut gradients = gradients?;
    for (variable, gradient) in collected {
        let gradient = match gradients.remove(&variable) {
            Some(other) => (other + gradient)?,
            None => gradient,
        };
        gradients.insert(&variable, gradient);
    }
    Ok(gradients)
}

/// Tensors that go into one operator.
pub(crate) struct Bundle {
    /// One value, an argument through which gradients flow to all members.
    pub(crate) token: Tensor,
    /// Where the operator leaves the members' gradients, in their order.
    pub(crate) gradients: Gradients,
}

/// The members' gradients, between the operator and the members.
pub(crate) type Gradients = Arc<Mutex<Vec<Option<Tensor>>>>;

impl Bundle {
    /// Ties the members to a token. The operator that takes the token must hold the members
    /// itself, fill `gradients` in its backward pass, and return [`Bundle::seed`] for the token.
    pub(crate) fn new(members: &[Tensor]) -> Result<Bundle> {
        let gradients = Gradients::default();
        let mut token = tensor(vec![0.0], 1)?;
        for (i, member) in members.iter().enumerate() {
            let gradients = gradients.clone();
            token = token.apply_op2(member, Member { i, gradients })?;
        }
        Ok(Bundle { token, gradients })
    }

    /// The gradient of a token, of no meaning: it makes candle visit the members.
    pub(crate) fn seed() -> Result<Tensor> {
        tensor(vec![0.0], 1)
    }
}

/// A link from token to token that passes one member's gradient on.
struct Member {
    i: usize,
    gradients: Gradients,
}

impl CustomOp2 for Member {
    fn name(&self) -> &'static str {
        "member"
    }

    fn cpu_fwd(
        &self,
        _token: &CpuStorage,
        layout: &Layout,
        _member: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0]), layout.shape().clone()))
    }

    fn bwd(
        &self,
        _token: &Tensor,
        member: &Tensor,
        _: &Tensor,
        _: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = {
            let mut gradients = self.gradients.lock().expect("nothing panics with the lock");
            gradients.get_mut(self.i).and_then(Option::take)
        };
        let gradient = match gradient {
            Some(gradient) if member.is_variable() => COLLECTED.with_borrow_mut(|all| match all {
                Some(all) => {
                    all.push((member.clone(), gradient));
                    None
                }
                None => Some(gradient),
            }),
            Some(gradient) if member.track_op() => Some(gradient),
            _ => None,
        };
        Ok((Some(Bundle::seed()?), gradient))
    }
}
