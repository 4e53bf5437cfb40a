//! T-Fixup: Xavier, with the matrices that write to the residual stream scaled down by depth.
//!
//! ```text
//! V, proj, fc1, fc2  *=  0.67 L^(-1/4)        L: number of blocks
//! ```
//!
//! (Huang et al. 2020, section 3.2, for an encoder.) T-Fixup trains without layer norm and warm-up. The
//! comparison in the thesis (section 3.2.4) mentions only attention and MLP. Our interpretation: only the
//! initialisation changes, so norms stay, at 1 and 0, and the embeddings are not scaled.

use crate::options::DirectMethod;
use crate::start::{Request, Start, StartMethod};
use candle_core::{Result, Tensor};
use wave_models::NetworkError;

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "t-fixup",
    description: "Xavier with V, proj and the MLP scaled by 0.67 L^(-1/4) (Huang et al. 2020, \
                  section 3.2)",
    donors: 0,
    images: false,
    run: start,
};

fn start(request: &Request) -> std::result::Result<Start, NetworkError> {
    let scale = 0.67 * (request.shape.depth as f64).powf(-0.25);
    let mut weights = request.closed_form(DirectMethod::Xavier)?;
    for (name, tensor) in &mut weights {
        if name.ends_with("attn.qkv.weight") {
            *tensor = scale_value(tensor, scale)?;
        } else if ["attn.proj.weight", "mlp.fc1.weight", "mlp.fc2.weight"]
            .iter()
            .any(|end| name.ends_with(end))
        {
            *tensor = (&*tensor * scale)?;
        }
    }
    Ok(Start::untrained(weights))
}

/// Scales the value rows of a qkv matrix (3d, d).
fn scale_value(qkv: &Tensor, scale: f64) -> Result<Tensor> {
    let d = qkv.dim(1)?;
    let qk = qkv.narrow(0, 0, 2 * d)?; // (2d, d)
    let v = (qkv.narrow(0, 2 * d, d)? * scale)?; // (d, d)
    Tensor::cat(&[qk, v], 0) // (3d, d)
}

#[cfg(test)]
#[path = "t_fixup_tests.rs"]
mod tests;
