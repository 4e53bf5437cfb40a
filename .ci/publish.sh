#!/usr/bin/env bash
# Makes a release of what release.sh and wheel.sh left in FOLDER, for a tag that exists. Needs gh and its GH_TOKEN.
#
#   .ci/publish.sh vVERSION FOLDER
#
# Checksums are checked again, those of wheels are added, and the notes are the version's section of CHANGELOG.md.
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:?usage: .ci/publish.sh vVERSION FOLDER}
folder=${2:?usage: .ci/publish.sh vVERSION FOLDER}
notes=$(mktemp)
trap 'rm "$notes"' EXIT
awk -v head="## ${tag#v}, " 'index($0, "## ") == 1 { inside = index($0, head) == 1; next } inside' CHANGELOG.md >"$notes"
if ! grep -q . "$notes"; then
    echo "publish.sh: CHANGELOG.md has no section of ${tag#v}" >&2
    exit 2
fi
(
    cd "$folder"
    sha256sum --check ./*.tar.gz.sha256
    for wheel in *.whl; do
        sha256sum "$wheel" >"$wheel.sha256"
    done
)
gh release create "$tag" --verify-tag --title "wave ${tag#v}" --notes-file "$notes" \
    "$folder"/*.tar.gz "$folder"/*.whl "$folder"/*.sha256
