#!/usr/bin/env bash
# The scripts that package.sh packs, run on a machine with a GPU of compute capability 8.0 or later, in under eight
# minutes: parity of every kernel with the processor's operators, training steps beside PyTorch's, memory, a
# short condensation. Where a part fails, it says so and the next begins.
#
#   ./measure.sh [RESULTS]      writes RESULTS/*.log too (default: results)
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
results=${1:-results}
mkdir -p "$results"
results=$(cd "$results" && pwd)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# CUDA's libraries: the system's, else those that PyTorch brought.
python=$(command -v python3 || true)
site=
if [ -n "$python" ]; then
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
    for place in "$site"/nvidia/*/lib; do
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$place
    done
    export LD_LIBRARY_PATH
fi
has_torch=$([ -n "$python" ] && "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && echo yes)

echo "== machine"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if ldd "$here/wave" | grep 'not found'; then
    echo "libraries of CUDA are missing; set LD_LIBRARY_PATH to where they are"
fi

echo "== parity with the processor's operators"
timeout 90 "$here/gpu_parity" cuda 2>&1 | tee "$results/parity.log"

# Runs a command; leaves its output in $work/out, and prints the most memory of the first GPU meanwhile.
watched() { # SECONDS COMMAND...
    local seconds=$1 most=0 now
    shift
    timeout "$seconds" "$@" >"$work/out" 2>"$work/err" &
    local process=$!
    while kill -0 "$process" 2>/dev/null; do
        now=$(nvidia-smi --id=0 --query-gpu=memory.used --format=csv,noheader,nounits)
        [ "${now:-0}" -gt "$most" ] && most=$now
        sleep 0.5
    done
    wait "$process" || { tail -3 "$work/err" >&2; return 1; }
    echo "$most"
}

number() { # KEY: a number of the JSON object in $work/out
    sed -nE "s/.*\"$1\": ?([0-9.]+).*/\1/p" "$work/out" | head -1
}

echo "== training steps, bf16 (memory of the whole GPU, its context included)"
printf '%-8s %6s %-16s %10s %10s\n' model batch by ms/step MiB | tee "$results/speed.log"
row() { printf '%-8s %6s %-16s %10.1f %10.0f\n' "$@" | tee -a "$results/speed.log"; }
while read -r name width heads batch image patch; do
    for how in false true; do
        by=wave
        [ "$how" = true ] && by=wave-recompute
        if memory=$(watched 40 "$here/wave" speed --json --device cuda --precision bf16 --width "$width" \
            --heads "$heads" --batch "$batch" --image "$image" --patch "$patch" --steps 20 --recompute "$how"); then
            row "$name" "$batch" "$by" "$(number step_ms_median)" "$memory"
        fi
    done
    [ -n "$has_torch" ] || continue
    for flag in "" --compile; do
        if memory=$(watched 75 "$python" "$here/pytorch_step.py" --width "$width" --heads "$heads" \
            --batch "$batch" --image "$image" --patch "$patch" $flag); then
            row "$name" "$batch" "torch${flag/--/-}" "$(number ms)" "$memory"
        fi
    done
done <<SHAPES
DeiT-Ti 192 3 256 224 16
DeiT-S 384 6 128 224 16
DeiT-B 768 12 64 224 16
12x128 128 2 128 32 4
SHAPES
[ -n "$has_torch" ] || echo "no PyTorch with CUDA here: its rows are left out"

echo "== a short condensation on built-in images"
model() { # OUT
    "$here/wave" init timm --data shapes --depth 6 --width 192 --heads 3 --patch 4 --quiet --out "$1"
}
model "$work/ancestor" >"$work/out" 2>&1
cat >"$work/condense.toml" <<'RECIPE'
name = "gpu"
data = "shapes"
batch = 128

[condense]
template_size = 64
steps = 100

[condense.auxiliary]
depth = 6
width = 192
patch = 4
image_size = 28
RECIPE
for device in cuda cpu; do
    began=$(date +%s.%N)
    timeout 60 "$here/wave" condense "$work/condense.toml" --ancestor "$work/ancestor" --device "$device" \
        --test-limit 256 --quiet --out "$work/$device" >"$work/out" 2>&1 || tail -3 "$work/out"
    echo "$device: $(echo "$(date +%s.%N) $began" | awk '{ print $1 - $2 }') s; last entries of the log:"
    tail -2 "$work/$device/run/log.csv" 2>/dev/null
done | tee "$results/condense.log"
