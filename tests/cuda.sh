#!/usr/bin/env bash
# Compiles wave with its features for GPUs, with warnings denied, on a machine that has neither a GPU nor
# CUDA: the compiler and headers come from PyPI (1.5 GB), into DIR. Takes ten minutes, and longer the first
# time. Nothing is linked or run.
#
#   tests/cuda.sh DIR
set -euo pipefail
cd "$(dirname "$0")/.."
place=${1:?usage: tests/cuda.sh DIR}
version=13.0
if [ ! -d "$place" ]; then
    python3 -m venv "$place"
    packages=()
    for part in cuda-nvcc cuda-crt cuda-cccl cuda-runtime cuda-nvrtc nvvm cublas; do
        packages+=("nvidia-$part==$version.*")
    done
    "$place/bin/pip" install --quiet "${packages[@]}" nvidia-curand
fi
cuda=$(echo "$(cd "$place" && pwd)"/lib/python3*/site-packages/nvidia/cu13)
ln -sfn lib "$cuda/lib64"
export CUDA_HOME=$cuda CUDA_PATH=$cuda CUDA_ROOT=$cuda PATH=$cuda/bin:$PATH
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90} CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/cuda}
features=cuda
if command -v mpicc >/dev/null; then
    features+=,mpi
fi
cargo clippy -p wave-templates --locked --features "$features" -- -D warnings
