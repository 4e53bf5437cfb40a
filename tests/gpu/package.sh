#!/usr/bin/env bash
# Packs what measures wave on a machine with a GPU: the command and the parity check, built with CUDA, and
# the scripts. Needs CUDA's toolkit (nvcc, headers, libraries to link), but no GPU.
#
#   tests/gpu/package.sh OUT.tar.gz
#   (there)  tar xzf OUT.tar.gz && gpu/measure.sh
set -euo pipefail
out=$(realpath -m "${1:?usage: tests/gpu/package.sh OUT.tar.gz}")
cd "$(dirname "$0")/../.."
nvcc=${NVCC:-${CUDA_HOME:+$CUDA_HOME/bin/}nvcc}
if ! command -v "$nvcc" >/dev/null; then
    echo "package.sh: no $nvcc; install CUDA's toolkit, or set CUDA_HOME to its folder" >&2
    exit 2
fi
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-80}
cargo build --release --locked -p wave-templates --features cuda
cargo build --release --locked -p wave-ops --features cuda --example gpu_parity
target=${CARGO_TARGET_DIR:-target}/release
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
mkdir "$place/gpu"
cp "$target/wave" "$target/examples/gpu_parity" tests/gpu/measure.sh tests/gpu/pytorch_step.py "$place/gpu"
strip "$place/gpu/wave" "$place/gpu/gpu_parity"
tar czf "$out" -C "$place" gpu
echo "$out: $(du -h "$out" | cut -f1)"
