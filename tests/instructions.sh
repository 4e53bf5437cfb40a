#!/usr/bin/env bash
# Counts the instructions of a small training step, plain and through templates, under valgrind, and
# compares with tests/instructions.txt: a guard against slow code that needs no clock.
#
#   tests/instructions.sh              counts target/debug/wave
#   tests/instructions.sh --update     after a change that is meant to cost or save
#
# AVX2 is the widest set that valgrind knows. Counts may differ by a few per cent between compilers.
set -euo pipefail
cd "$(dirname "$0")/.."
expected=tests/instructions.txt
binary=target/debug/wave
update=${1:-}

count() { # MODE: instructions of one more step, start-up subtracted
    local steps n=()
    for steps in 1 2; do
        n+=("$(WAVE_SIMD=avx2 valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" \
            speed --quiet --mode "$1" --image 28 --channels 1 --patch 7 --width 96 --depth 2 \
            --heads 3 --classes 10 --batch 4 --threads 1 --steps "$steps" 2>&1 >/dev/null |
            sed -n 's/.*Collected : //p')")
    done
    echo $((n[1] - n[0]))
}

failed=
found=
for mode in train condense; do
    now=$(count "$mode")
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
