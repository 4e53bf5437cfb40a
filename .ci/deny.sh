#!/usr/bin/env bash
# Licences, advisories and sources of all dependencies, by cargo-deny and deny.toml. Needs the network: the advisories are
# those of today.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v cargo-deny >/dev/null; then
    if [ -z "${CI:-}" ]; then
        echo "deny.sh: no cargo-deny; cargo install --locked cargo-deny" >&2
        exit 2
    fi
    cargo install --locked cargo-deny
fi
cargo deny --locked check
