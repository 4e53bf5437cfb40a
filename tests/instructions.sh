#!/usr/bin/env bash
# Counts the instructions of a small training step, plain and through templates (composition, projection and Muon), and of the
# images that the loader crops, flips and resizes for one, under valgrind, and compares with tests/instructions.txt: a guard
# against slow code that needs no clock.
#
#   tests/instructions.sh              counts target/debug/wave
#   tests/instructions.sh --update     after a change that is meant to cost or save
#
# AVX2 is the widest set that valgrind knows. Counts may differ by a few per cent between compilers, and an incremental build
# has 7 per cent fewer than the gate's.
set -euo pipefail
cd "$(dirname "$0")/.."
expected=tests/instructions.txt
binary=target/debug/wave
update=${1:-}

place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
"$binary" --quiet init timm --depth 1 --width 8 --heads 1 --patch 28 --image-size 28 --channels 1 --classes 8 \
    --out "$place/model" >/dev/null

steps() { # MODE STEPS: instructions of a command with so many steps
    local command=(speed --mode "$1" --image 28 --channels 1 --patch 7 --width 96 --depth 2 --heads 3 --classes 10 --batch 4)
    if [ "$1" = load ]; then
        command=(finetune "$place/model" --data shapes --train-limit 512 --test-limit 1 --test-epochs 0 --batch 128
            --resized-crop 0.35 --flip true --overwrite --out "$place/tuned")
    fi
    WAVE_SIMD=avx2 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" --quiet "${command[@]}" \
        --threads 1 --steps "$2" 2>&1 >/dev/null | sed -n 's/.*Collected : //p'
}

failed=
found=
for mode in train condense load; do
    # One more step, start-up subtracted.
    now=$(($(steps "$mode" 2) - $(steps "$mode" 1)))
    found+="$mode $now"$'\n'
    before=$(sed -n "s/^$mode //p" "$expected" 2>/dev/null || true)
    echo "$mode: $now instructions a step, ${before:-none} expected"
    if [ -z "$update" ] && ! ((now * 100 <= ${before:-0} * 110)); then
        failed=1
    fi
done
if [ -n "$update" ]; then
    printf %s "$found" >"$expected"
elif [ -n "$failed" ]; then
    echo "more than a tenth above $expected: find out why, or run $0 --update and say so" >&2
    exit 1
fi
