//! Gradients of many large tensors from one operator.
//!
//! candle's operators take at most three arguments, and every gradient is added to fresh zeros. The blocks
//! have thirteen arguments, as large as the model. Concatenating them, splitting their gradient and adding
//! zeros would move several times the memory of an optimiser step. So the operator takes a [`Bundle`], one
//! value that stands for all parameters, and [`backward`] collects gradients without a copy.

use crate::fused::{Custom, Gradients, Stored, custom};
use crate::kron;
use crate::order::Kronecker;
use candle_core::backend::BackendStorage;
use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CudaStorage, DType, Device, Layout, Result, Tensor};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

thread_local! {
    /// Variables and their gradients, while [`backward`] runs on this thread.
    static COLLECTED: RefCell<Option<Vec<(Tensor, Tensor)>>> = const { RefCell::new(None) };
}

/// The gradients of `loss`, as computed by `loss.backward()`, but without copying the gradients of
/// the blocks' parameters.
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

/// Tensors that are passed to one operator together.
pub(crate) struct Bundle {
    /// One value, an argument through which gradients flow to all members.
    pub(crate) token: Tensor,
    /// The members' gradients, in order, stored by the operator.
    pub(crate) gradients: OfMembers,
}

/// The members' gradients, passed from the operator to the members.
pub(crate) type OfMembers = Arc<Mutex<Vec<Option<Tensor>>>>;

impl Bundle {
    /// Ties the members to a token. The operator that takes the token must hold the members
    /// itself, fill `gradients` in its backward pass, and return [`Bundle::seed`] for the token.
    pub(crate) fn new(members: &[Tensor]) -> Result<Bundle> {
        let gradients = OfMembers::default();
        let device = members.first().map_or(&Device::Cpu, Tensor::device);
        let mut token = Bundle::seed(device)?;
        for (i, member) in members.iter().enumerate() {
            let (gradients, origin) = (gradients.clone(), kron::origin(member));
            let order = origin.as_ref().map(|origin| origin.order);
            let [a, b] = match &origin {
                None => [member; 2],
                Some(origin) => [&origin.templates, &origin.scalers],
            };
            let link = Member {
                i,
                gradients,
                order,
            };
            token = custom(link, [&token, a, b])?;
        }
        Ok(Bundle { token, gradients })
    }

    /// A placeholder gradient for a token, which makes candle visit the members.
    pub(crate) fn seed(device: &Device) -> Result<Tensor> {
        Tensor::zeros(1, DType::F32, device)
    }
}

/// A link between tokens that passes one member's gradient on: to the member, or to the templates and scalers that
/// it is composed of, whose gradients are a fraction of its size.
struct Member {
    i: usize,
    gradients: OfMembers,
    /// The order of the Kronecker product, for a composed member.
    order: Option<Kronecker>,
}

impl Custom<3> for Member {
    fn name(&self) -> &'static str {
        "member"
    }

    fn on_cpu(&self, _: [&CpuStorage; 3], layouts: [&Layout; 3]) -> Stored<CpuStorage> {
        Ok((CpuStorage::F32(vec![0.0]), layouts[0].shape().clone()))
    }

    fn on_cuda(&self, all: [&CudaStorage; 3], layouts: [&Layout; 3]) -> Stored<CudaStorage> {
        Ok((all[0].try_clone(layouts[0])?, layouts[0].shape().clone()))
    }

    fn gradients(&self, [token, a, b]: [&Tensor; 3], _: &Tensor) -> Gradients<3> {
        let seed = Some(Bundle::seed(token.device())?);
        let mut gradients = self.gradients.lock().expect("nothing panics with the lock");
        let Some(gradient) = gradients.get_mut(self.i).and_then(Option::take) else {
            return Ok([seed, None, None]);
        };
        drop(gradients);
        let Some(order) = self.order else {
            return Ok([seed, passed_on(a, gradient), None]);
        };
        let (d_templates, d_scalers) = kron::gradients([a, b], &gradient, order)?;
        let d_templates = d_templates.and_then(|d| passed_on(a, d));
        Ok([seed, d_templates, passed_on(b, d_scalers)])
    }
}

/// Stores the gradient of a variable for [`backward`], if that is running; otherwise returns it for candle, if tracked.
fn passed_on(of: &Tensor, gradient: Tensor) -> Option<Tensor> {
    if !of.is_variable() {
        return of.track_op().then_some(gradient);
    }
    COLLECTED.with_borrow_mut(|all| match all {
        Some(all) => {
            all.push((of.clone(), gradient));
            None
        }
        None => Some(gradient),
    })
}
