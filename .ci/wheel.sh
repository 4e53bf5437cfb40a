#!/usr/bin/env bash
# Makes the Python wheel for this machine in dist/, and tries it. One wheel serves every Python from 3.9 on (abi3).
# On Linux it runs wherever the C library is no older than the one here, so the oldest system that is at hand makes it.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if ! "$python" -m maturin --version >/dev/null 2>&1; then
    if [ -z "${CI:-}" ]; then
        echo "wheel.sh: $python has no maturin; $python -m pip install 'maturin>=1.7,<2'" >&2
        exit 2
    fi
    "$python" -m pip install 'maturin>=1.7,<2'
fi
rm -rf dist/wheel
"$python" -m maturin build --release --locked --manifest-path crates/wave-python/Cargo.toml --out dist/wheel

# From a folder of its own, so that nothing of the clone is imported.
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
"$python" -m pip install --quiet --target "$place/installed" dist/wheel/*.whl
cp crates/wave-python/tests/wheel.py "$place"
PYTHONPATH="$place/installed" "$python" "$place/wheel.py"
ls -l dist/wheel
