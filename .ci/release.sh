#!/usr/bin/env bash
# Makes the archive of a release for this machine: the command, completions and licences, with its SHA-256.
#
#   .ci/release.sh [vVERSION]     dist/release/wave-VERSION-TARGET.tar.gz and .sha256
#
# A tag that is not the version of Cargo.toml, or a version without a dated section in CHANGELOG.md, is refused.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
if [ "${1:-v$version}" != "v$version" ]; then
    echo "release.sh: the tag is $1, the version in Cargo.toml $version" >&2
    exit 2
fi
if ! grep -qE "^## ${version//./\\.}, [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md; then
    echo "release.sh: CHANGELOG.md has no section \"## $version, YEAR-MONTH-DAY\"" >&2
    exit 2
fi
target=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --locked -p wave-templates --bin wave
built=${CARGO_TARGET_DIR:-target}/release/wave
[ -e "$built" ] || built+=.exe

name=wave-$version-$target
rm -rf "dist/$name" && mkdir -p "dist/$name/completions" dist/release
cp "$built" README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "dist/$name"
for shell in bash elvish fish powershell zsh; do
    "$built" completions "$shell" >"dist/$name/completions/wave.$shell"
done
# The packed command runs alone: the shipped templates are in it.
"dist/$name/$(basename "$built")" --quiet expand --depth 2 --width 64 --out "dist/$name.tried"
rm -r "dist/$name.tried"

cd dist
tar czf "release/$name.tar.gz" "$name"
rm -r "$name"
cd release
if command -v sha256sum >/dev/null; then
    sha256sum "$name.tar.gz" >"$name.tar.gz.sha256"
else
    shasum -a 256 "$name.tar.gz" >"$name.tar.gz.sha256"
fi
cat "$name.tar.gz.sha256"
