//! ZerO: identities and Hadamard matrices instead of random numbers.
//!
//! ```text
//! W (m, n)  =  I                   if m <= n         the first m inputs
//!              c H[..m, ..n]       otherwise         c = 2^(-q/2), q = ceil(log2 m)
//! ```
//!
//! with ones on the diagonal of I, and H the Hadamard matrix of size 2^q, H_ij = (-1)^popcount(i & j) (Zhao
//! et al. 2022, algorithm 1). Versions of the algorithm disagree on c; this one makes the columns orthonormal
//! if m is a power of two.
//!
//! The thesis applies it to the attention only (section 3.2.5), with W_Q = 0 and W_K = I
//! ([`ZeroScope::Attention`]). Our interpretation of the rest: algorithm 1 fills V and, in
//! [`ZeroScope::Blocks`], fc1. The last matrix of each residual branch (proj and fc2) is 0, as in residual
//! networks, so that the branch starts as 0. Patch embedding, positions and head start as
//! [`Choices::rest`](crate::Choices::rest): an identity patch embedding would read only its first d inputs.

use crate::choices::ZeroScope;
use crate::fill::fill;
use crate::start::{Request, Start, StartMethod};
use candle_core::{DType, Device, Result, Tensor};

pub(crate) const METHOD: StartMethod = StartMethod {
    name: "zero",
    description: "ZerO: identity and Hadamard matrices instead of random weights in the attention, \
                  or in whole blocks (--zero; Zhao et al. 2022, algorithm 1; thesis, section \
                  3.2.5)",
    donor: false,
    images: false,
    run: start,
};

fn start(request: &Request) -> crate::Result<Start> {
    let choices = request.choices;
    let mut weights = fill(request, choices.rest)?;
    let (d, hidden) = (request.shape.width, request.shape.hidden());
    let zeros = |rows, cols| Tensor::zeros((rows, cols), DType::F32, &Device::Cpu);
    for layer in 0..request.shape.depth {
        let name = |matrix: &str| format!("blocks.{layer}.{matrix}.weight");
        let mut rows = vec![zeros(d, d)?, algorithm_1(d, d)?];
        match choices.zero {
            ZeroScope::QueryKey => rows.push(weights[&name("attn.qkv")].narrow(0, 2 * d, d)?),
            ZeroScope::Attention | ZeroScope::Blocks => {
                rows.push(algorithm_1(d, d)?);
                weights.insert(name("attn.proj"), zeros(d, d)?);
            }
        }
        if choices.zero == ZeroScope::Blocks {
            weights.insert(name("mlp.fc1"), algorithm_1(hidden, d)?);
            weights.insert(name("mlp.fc2"), zeros(d, hidden)?);
        }
        weights.insert(name("attn.qkv"), Tensor::cat(&rows, 0)?); // (3d, d)
    }
    Ok(Start::untrained(weights))
}

/// The ZerO matrix of shape (m, n), (outputs, inputs).
pub(crate) fn algorithm_1(m: usize, n: usize) -> Result<Tensor> {
    let q = m.next_power_of_two().trailing_zeros();
    let c = 0.5f32.powf(q as f32 / 2.0);
    let entry = |i: usize, j: usize| match (m <= n, (i & j).count_ones() % 2) {
        (true, _) => f32::from(u8::from(i == j)),
        (false, 0) => c,
        (false, _) => -c,
    };
    let values: Vec<f32> = (0..m * n).map(|k| entry(k / n, k % n)).collect();
    Tensor::from_vec(values, (m, n), &Device::Cpu)
}

#[cfg(test)]
#[path = "zero_tests.rs"]
mod tests;
