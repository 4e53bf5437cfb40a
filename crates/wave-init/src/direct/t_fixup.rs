//! T-Fixup: Xavier, with the matrices that write to the residual stream scaled down by depth.
//!
//! ```text
//! V, proj, fc1, fc2  *=  0.67 L^(-1/4)        L: number of blocks
//! ```
//!
//! (Huang et al. 2020, section 3.2, for an encoder.) T-Fixup trains without layer norm and warm-up. The
//! comparison in the thesis (section 3.2.4) mentions only attention and MLP. Our interpretation: only the
//! initialisation changes, so norms stay, at 1 and 0, and the embeddings are not scaled.

use crate::choices::DirectMethod;
use crate::error::Result;
use crate::fill::fill;
use crate::start::{Request, Start, StartMethod};
use candle_core::Tensor;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "t-fixup",
    description: "Xavier with V, proj and the MLP scaled by 0.67 L^(-1/4) (Huang et al. 2020, \
                  section 3.2)",
    donor: false,
    images: false,
    run: start,
};

fn start(request: &Request) -> Result<Start> {
    let scale = 0.67 * (request.shape.depth as f64).powf(-0.25);
    let mut weights = fill(request, DirectMethod::Xavier)?;
    for (name, tensor) in &mut weights {
        let ends = |matrix: &str| name.ends_with(&format!("{matrix}.weight"));
        if ends("attn.qkv") {
            let d = request.shape.width;
            let qk = tensor.narrow(0, 0, 2 * d)?; // (2d, d)
            let v = (tensor.narrow(0, 2 * d, d)? * scale)?; // (d, d)
            *tensor = Tensor::cat(&[qk, v], 0)?; // (3d, d)
        } else if ends("attn.proj") || ends("mlp.fc1") || ends("mlp.fc2") {
            *tensor = (&*tensor * scale)?;
        }
    }
    Ok(Start::untrained(weights))
}

#[cfg(test)]
#[path = "t_fixup_tests.rs"]
mod tests;
