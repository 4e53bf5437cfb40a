//! Differentiable operators that candle lacks or is slow at.
//!
//! Every operator is a function over candle tensors. On the CPU in `f32` it runs fused: forward
//! and hand-written backward over plain slices, by the instructions that the processor turns out
//! to have ([`Simd`]), and split over the threads of the surrounding rayon pool. On a GPU, in builds
//! with the feature `cuda`, what a transformer trains with runs as kernels of our own (module `gpu`).
//! On other devices and types an operator falls back to stock candle operators with the same meaning (module [`stock`]),
//! which are also what the fused operators are tested against.
//!
//! Results are bit-identical from run to run for a fixed number of threads.

mod arithmetic;
mod attention;
mod batch_norm;
mod bf16;
mod blocks;
mod buffer;
mod causal_convolution;
mod cpu;
mod depthwise;
mod gelu;
mod gemm;
#[cfg(gpu)]
mod gpu;
mod gradients;
mod kron;
mod layer_norm;
mod linear;
mod linear_each;
mod loss;
mod optimiser;
mod patches;
mod rms_norm;
mod selective_scan;
mod simd;
pub mod slices;
pub mod stock;
mod storage;
#[cfg(test)]
mod testing;
mod threads;

pub use arithmetic::Precision;
pub use batch_norm::{batch_norm_eval, batch_norm_train, gelu_batch_norm_train};
pub use blocks::shape::{BlocksShape, Mode};
pub use blocks::{blocks, blocks_in};
pub use causal_convolution::causal_convolution;
pub use cpu::{Simd, SimdError, choose_simd, simd};
pub use depthwise::{depthwise_conv, dilated_depthwise_conv};
pub use gelu::gelu;
#[cfg(feature = "host-kernels")]
pub use gpu::host::on_host_kernels;
pub use gradients::backward;
pub use kron::kronecker_sum;
pub use kron::order::Kronecker;
pub use layer_norm::layer_norm;
pub use linear::{embed, linear};
pub use linear_each::linear_each;
pub use loss::{distillation, log_softmax, soft_cross_entropy};
pub use optimiser::{
    AdamW, Moments, Move, adamw_step, adamw_steps, ema_update, squared_norm, squared_norms,
};
pub use patches::patchify;
pub use rms_norm::rms_norm;
pub use selective_scan::selective_scan;
pub use simd::exp;
