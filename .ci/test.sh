#!/usr/bin/env bash
# Tests on the system at hand: the whole gate on Linux, elsewhere the parts of it that need no package manager.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "$(uname -s)" = Linux ]; then
    exec .ci/run
fi
export CARGO_INCREMENTAL=0
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked -- -D warnings
cargo test --workspace --locked
