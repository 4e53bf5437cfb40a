//! Instruction sets of this CPU, and the one that the operators use.
//!
//! One binary contains all paths. The fastest that the CPU supports is used, unless the environment
//! variable `WAVE_SIMD` names another.

#[cfg(target_arch = "x86_64")]
mod amx;

use pulp::Arch;
use std::fmt;
use std::sync::LazyLock;

/// An instruction set of the operators, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simd {
    /// 512 bits, with bf16 products in tiles (Sapphire Rapids and later, on Linux).
    Amx,
    /// 512 bits, with products of bf16 pairs (Zen 4).
    Avx512Bf16,
    /// 512 bits.
    Avx512,
    /// 256 bits with fused multiply-add (Haswell, Zen).
    Avx2,
    /// 128 bits on 64-bit ARM.
    Neon,
    /// Plain Rust, compiled for the baseline of the architecture.
    Portable,
}

impl Simd {
    /// All paths, fastest first.
    pub const ALL: [Simd; 6] = [
        Simd::Amx,
        Simd::Avx512Bf16,
        Simd::Avx512,
        Simd::Avx2,
        Simd::Neon,
        Simd::Portable,
    ];

    /// The name in `WAVE_SIMD` and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Simd::Amx => "amx",
            Simd::Avx512Bf16 => "avx512bf16",
            Simd::Avx512 => "avx512",
            Simd::Avx2 => "avx2",
            Simd::Neon => "neon",
            Simd::Portable => "portable",
        }
    }

    /// True if this CPU supports it.
    pub fn supported(self) -> bool {
        let elementwise = !matches!(self.arch(), Arch::Scalar);
        match self {
            Simd::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Simd::Amx => Simd::Avx512Bf16.supported() && amx::available(),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512Bf16 => elementwise && is_x86_feature_detected!("avx512bf16"),
            _ => elementwise,
        }
    }

    /// The fastest path of this CPU.
    pub fn best() -> Simd {
        Simd::ALL
            .into_iter()
            .find(|s| s.supported())
            .unwrap_or(Simd::Portable)
    }

    /// True if it multiplies bf16 faster than `f32`.
    pub fn has_bf16(self) -> bool {
        matches!(self, Simd::Amx | Simd::Avx512Bf16)
    }

    /// The widest instruction set of this path that all elementwise kernels are compiled for; the
    /// portable one if the CPU lacks it.
    #[inline]
    pub(crate) fn arch(self) -> Arch {
        #[cfg(target_arch = "x86_64")]
        match self {
            Simd::Amx | Simd::Avx512Bf16 | Simd::Avx512 => {
                if let Some(v4) = pulp::x86::V4::try_new() {
                    return Arch::V4(v4);
                }
            }
            Simd::Avx2 => {
                if let Some(v3) = pulp::x86::V3::try_new() {
                    return Arch::V3(v3);
                }
            }
            Simd::Neon | Simd::Portable => {}
        }
        #[cfg(target_arch = "aarch64")]
        if self == Simd::Neon
            && let Some(neon) = pulp::aarch64::Neon::try_new()
        {
            return Arch::Neon(neon);
        }
        Arch::Scalar
    }
}

impl fmt::Display for Simd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The reason why a path cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SimdError {
    /// No path has this name.
    #[error(
        "unknown instruction set \"{0}\"; expected one of amx, avx512bf16, avx512, avx2, neon, \
         portable (WAVE_SIMD; unset it for the fastest)"
    )]
    Unknown(String),
    /// The CPU lacks it.
    #[error(
        "this processor lacks {0}; the fastest one it has is {best} (WAVE_SIMD; unset it for the fastest)",
        best = Simd::best()
    )]
    Unsupported(Simd),
}

static FROM_ENVIRONMENT: LazyLock<Result<Simd, SimdError>> =
    LazyLock::new(|| match std::env::var_os("WAVE_SIMD") {
        Some(word) if !word.is_empty() => named(&word.to_string_lossy()),
        _ => Ok(Simd::best()),
    });

/// The path that the operators use: the value of `WAVE_SIMD` at the first call, else the fastest of this
/// CPU.
///
/// # Errors
/// If `WAVE_SIMD` names no path, or one that the CPU lacks. Every fused operator then fails with
/// the same error.
pub fn simd() -> Result<Simd, SimdError> {
    FROM_ENVIRONMENT.clone()
}

/// The path to use, the fastest if [`simd`] fails.
#[inline]
pub(crate) fn current() -> Simd {
    match &*FROM_ENVIRONMENT {
        Ok(simd) => *simd,
        Err(_) => Simd::best(),
    }
}

/// The path of this name, if the CPU supports it.
fn named(word: &str) -> Result<Simd, SimdError> {
    match Simd::ALL.into_iter().find(|s| s.name() == word) {
        None => Err(SimdError::Unknown(word.to_owned())),
        Some(simd) if simd.supported() => Ok(simd),
        Some(wanted) => Err(SimdError::Unsupported(wanted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for simd in Simd::ALL.into_iter().filter(|simd| simd.supported()) {
            assert_eq!(named(&simd.to_string()), Ok(simd));
        }
        let error = named("sse9").unwrap_err().to_string();
        assert!(
            error.contains("sse9") && error.contains("portable"),
            "{error}"
        );
    }

    #[test]
    fn a_path_the_processor_lacks_is_an_error() {
        let foreign = if cfg!(target_arch = "aarch64") {
            Simd::Avx2
        } else {
            Simd::Neon
        };
        let error = named(foreign.name()).unwrap_err().to_string();
        assert!(error.contains("lacks") && error.contains(Simd::best().name()));
        assert!(Simd::best().supported() && Simd::Portable.supported());
    }
}
