//! Compiles the kernels of `src/gpu/kernels`: to PTX with the feature `cuda`, for the processor with the
//! feature `host-kernels`. Without either, nothing is compiled.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/gpu/kernels/all.cu";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(gpu)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/gpu/kernels");
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    let (cuda, host) = (has("CUDA"), has("HOST_KERNELS"));
    if cuda || host {
        println!("cargo::rustc-cfg=gpu");
    }
    if cuda {
        compile_for_gpus();
    }
    #[cfg(feature = "host-kernels")]
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .flag("-xc++")
        .flag("-fno-strict-aliasing")
        .flag("-Wno-unknown-pragmas")
        .flag("-Wno-unused-function")
        .file(SOURCE)
        .compile("wave_kernels");
}

/// PTX, which drivers translate for the GPU that they find: of compute capability 8.0 or later.
fn compile_for_gpus() {
    println!("cargo::rerun-if-env-changed=CUDA_HOME");
    println!("cargo::rerun-if-env-changed=NVCC");
    let nvcc = env::var_os("NVCC").map(PathBuf::from).or_else(|| {
        let home = env::var_os("CUDA_HOME").or_else(|| env::var_os("CUDA_PATH"))?;
        Some(PathBuf::from(home).join("bin/nvcc")).filter(|nvcc| nvcc.is_file())
    });
    let nvcc = nvcc.unwrap_or_else(|| "nvcc".into());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("kernels.ptx");
    let status = Command::new(&nvcc)
        .args([
            "-std=c++17",
            "-O3",
            "-arch=compute_80",
            "--ptx",
            SOURCE,
            "-o",
        ])
        .arg(&out)
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{} {SOURCE}: {status}", nvcc.display()),
        Err(e) => panic!(
            "cannot start {} ({e}); the feature `cuda` needs CUDA's compiler: set CUDA_HOME to its folder, \
             or NVCC to the compiler",
            nvcc.display()
        ),
    }
}
