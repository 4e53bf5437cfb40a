#!/usr/bin/env bash
# The speedup of two ranks over one, each on a core of its own: medians of three runs in turn.
#
#   cargo build --release --features mpi && tests/ranks_speed.sh [DEPTH WIDTH BATCH]
#
# Images of 28 x 28 pixels, in f32; the batch is that of all ranks together, in both cases.
set -euo pipefail
cd "$(dirname "$0")/.."
wave=$PWD/target/release/wave
depth=${1:-6} width=${2:-192} batch=${3:-128}
place=$(mktemp -d)
trap 'rm -r "$place"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

"$wave" init timm --data shapes --depth "$depth" --width "$width" --heads 3 --patch 4 \
    --out "$place/model" >"$place/result"

speed() { # RANKS: images a second, by the log, without its first entry
    mpirun -n "$1" --map-by core --bind-to core "$wave" finetune "$place/model" --data shapes \
        --test-limit 1 --batch "$batch" --steps 80 --crop-padding 2 --flip true --threads 1 --quiet \
        --out "$place/out" --overwrite >"$place/result"
    awk -F, 'NR > 2 && $6 { sum += $6; n++ } END { print sum / n }' "$place/out/run/log.csv"
}

median() { sort -n | sed -n 2p; }

for _ in 1 2 3; do
    speed 1 >>"$place/one"
    speed 2 >>"$place/two"
done
one=$(median <"$place/one") two=$(median <"$place/two")
echo "one rank: $one images/s; two: $two; $(awk "BEGIN { print $two / $one }") times as many"
