#!/usr/bin/env bash
# Compares what two builds of wave write, byte by byte: a change that moves code changes no weights.
#
#   tests/compare_builds.sh OLD_BINARY NEW_BINARY [RUN_FLAGS...]
#
# Runs with each: the quickstart (RUN_FLAGS go to it: `--set train_limit=2000` makes it short), ten
# expansions of templates/fashion-mnist without data, and a fine-tuning that is killed and resumed.
# Compares every safetensors file. Ten minutes on two cores with the whole quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n 2,9p "$0"; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
shift 2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

make_all() { # BINARY OUT FLAGS...
    local wave=$1 out=$2
    shift 2
    "$wave" run recipes/quickstart.toml --out "$out/quickstart" -q "$@"
    local size
    for size in 1x64 2x64 3x96 4x128 5x64 6x192 7x160 9x256 12x64 16x96; do
        "$wave" expand templates/fashion-mnist --depth "${size%x*}" --width "${size#*x}" \
            --steps 0 --out "$out/$size" -q >/dev/null
    done
    local tune=("$wave" finetune "$out/3x96" --data shapes --train-limit 512 --batch 32 --steps 60
        --new-head true --checkpoint-steps 1 --seed 7 -q --out "$out/resumed")
    "${tune[@]}" >/dev/null &
    local process=$!
    until [ -e "$out/resumed/run/checkpoint.safetensors" ]; do sleep 0.01; done
    kill -9 $process 2>/dev/null || true
    wait $process 2>/dev/null || true
    "${tune[@]}" --resume >/dev/null
    (cd "$out" && find . -name '*.safetensors' -not -path '*/run/*' -print0 | sort -z |
        xargs -0 sha256sum) >"$out.sums"
}

make_all "$old" "$place/old" "$@"
make_all "$new" "$place/new" "$@"
diff "$place/old.sums" "$place/new.sums"
echo "$(wc -l <"$place/new.sums") files of weights are the same"
