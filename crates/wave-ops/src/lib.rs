//! Differentiable operators that candle lacks or runs slowly.
//!
//! 1. An operator is a function of candle tensors, such as [`blocks()`], [`kronecker_sum`] or [`linear()`].
//! 2. It checks sizes, then chooses a path by device and type.
//! 3. On the CPU in `f32` it runs fused: forward and hand-written backward over plain slices, split over
//!    the threads of the surrounding rayon pool. [`Simd`] is the instruction set.
//! 4. On a GPU, in builds with the feature `cuda`, the operators of a transformer are CUDA kernels.
//! 5. Everywhere else it runs as stock candle ([`stock`]), the reference for the other two.
//! 6. [`backward`] collects gradients, [`adamw_steps`] and [`muon_step`] update the variables.
//!
//! Results are bit-identical from run to run for a fixed number of threads.
//!
//! Two templates of 2 x 2, weighted and laid side by side, are the weights of one layer:
//!
//! ```
//! use candle_core::{Device, Tensor};
//! use wave_ops::{Kronecker, kronecker_sum};
//!
//! let templates = Tensor::new(&[[[1f32, 0.], [0., 1.]], [[0., 1.], [0., 0.]]], &Device::Cpu)?;
//! let scalers = Tensor::new(&[[[[2f32, 3.]], [[10., 0.]]]], &Device::Cpu)?; // (layers, N, 1, 2)
//! let weights = kronecker_sum(&templates, &scalers, Kronecker::Tile)?;
//! assert_eq!(weights.get(0)?.to_vec2::<f32>()?, [[2., 10., 3., 0.], [0., 2., 0., 3.]]);
//! # Ok::<(), candle_core::Error>(())
//! ```

// Kernels take shapes, strides and slices as separate arguments; bundling them would hide the mathematics.
#![allow(clippy::too_many_arguments)]

mod arithmetic;
mod attention;
mod batch_norm;
mod bf16;
mod blocks;
mod buffer;
mod causal_convolution;
mod cpu;
mod depthwise;
mod fused;
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
mod order;
mod patches;
mod peak;
pub mod profile;
mod rms_norm;
mod selective_scan;
mod shape;
mod simd;
pub mod slices;
pub mod stock;
mod storage;
mod threads;

pub use arithmetic::Precision;
pub use batch_norm::{batch_norm_eval, batch_norm_train, gelu_batch_norm_train};
pub use blocks::blocks;
pub use causal_convolution::causal_convolution;
pub use cpu::{Simd, SimdError, simd};
pub use depthwise::{depthwise_conv, dilated_depthwise_conv};
pub use gelu::gelu;
#[cfg(feature = "host-kernels")]
pub use gpu::host::on_host_kernels;
pub use gradients::backward;
pub use kron::kronecker_sum;
pub use layer_norm::layer_norm;
pub use linear::{embed, linear};
pub use linear_each::linear_each;
pub use loss::soft_cross_entropy;
pub use optimiser::muon::{Matrices, muon_step};
pub use optimiser::{Moments, Move, adamw_steps, ema_update, squared_norms};
pub use order::Kronecker;
pub use patches::patchify;
pub use peak::peak;
pub use rms_norm::rms_norm;
pub use selective_scan::selective_scan;
pub use shape::{BlocksShape, Mode, misfit};
pub use simd::exp;
pub use stock::log_softmax;
