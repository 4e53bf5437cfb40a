#!/usr/bin/env bash
# Makes the pages of the documentation in target/doc: all crates with the guide, and the page of the shipped templates.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
pages=${CARGO_TARGET_DIR:-target}/doc
cargo run --release --locked -p wave-templates --bin wave -- --quiet inspect templates/cifar-10 --html "$pages/cifar-10.html"
cat >"$pages/index.html" <<'HTML'
<!DOCTYPE html>
<meta charset="utf-8">
<title>wave</title>
<meta http-equiv="refresh" content="0; url=wave/guide/index.html">
<p><a href="wave/guide/index.html">Guide</a>, <a href="wave/index.html">crates</a>,
<a href="cifar-10.html">the templates of CIFAR-10</a>.</p>
HTML
echo "$pages/index.html"
