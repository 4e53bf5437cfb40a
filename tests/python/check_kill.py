"""Kill `wave condense`, `expand` and `finetune` again and again, at random moments, and resume.

    cargo build --release
    python tests/python/check_kill.py --wave target/release/wave

A round starts a stage afresh and sends it SIGKILL after a random time, then resumes it, and kills that
too, until it comes to its end. The files it ends with have to be those of a run that nobody
disturbed, byte for byte; what a run says of itself (OUT/run/) differs in times and is left out. Rounds
take turns among the stages.

With `--full DIR`, a directory on a small file system such as

    mount -t tmpfs -o size=1m tmpfs DIR

the disk also fills up while a condensation runs: it has to stop with exit code 1 and words, keep its
last state, and come to the same bytes after room was made.

Exit code: 0 all as it should be, 1 otherwise. Written for Python 3.10 or later; needs nothing else.
"""

import argparse
import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECIPE = Path(__file__).parents[2] / "recipes" / "smoke.toml"

SHAPES = "--data shapes --train-limit 256 --test-limit 64 --batch 32"


def files(directory):
    """Every file's bytes but those of OUT/run/."""
    return {
        str(p.relative_to(directory)): p.read_bytes()
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.relative_to(directory).parts[0] != "run"
    }


def disturbed(command, out, longest, rng):
    """Runs a command with `--out`, killed and resumed until it ends by itself; returns the kills."""
    kills = 0
    resume = []
    while True:
        child = subprocess.Popen(
            [*command, "--out", str(out), *resume],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            # Now and then a run is left alone, or none would ever end.
            timeout = None if rng.random() < 0.2 else rng.uniform(0, longest)
            _, stderr = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            kills += 1
            # Killed before it had made its directory, there is nothing to resume.
            resume = ["--resume"] if out.exists() else []
            continue
        if child.returncode != 0:
            sys.exit(f"{' '.join(command)} {resume}: {stderr.decode()}")
        return kills


def full_disk(command, directory, whole):
    """Fills `directory` while a condensation runs in it."""
    out, filler = directory / "o", directory / "filler"
    shutil.rmtree(out, ignore_errors=True)
    command = [*command, "--out", str(out), "-q"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    checkpoint = out / "run" / "checkpoint.safetensors"
    while child.poll() is None and not checkpoint.exists():
        time.sleep(0.001)
    # Until nothing fits, not even the file's name.
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as f:
        while True:
            f.write(b"\0" * 4096)
    _, stderr = child.communicate()
    filler.unlink(missing_ok=True)
    if child.returncode == 0:
        return "the condensation ended before the disk was full; take more --steps"
    if child.returncode != 1 or b"No space left" not in stderr or b"--resume" not in stderr:
        return f"full disk: exit {child.returncode}: {stderr.decode()}"
    resumed = subprocess.run([*command, "--resume"], capture_output=True)
    if resumed.returncode != 0:
        return f"after room was made: {resumed.stderr.decode()}"
    return None if files(out) == whole else "after room was made: other bytes"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", type=Path, help="a directory on a file system of a megabyte")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    wave = args.wave.resolve()

    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        model = f"init timm --data shapes --depth 3 --width 32 --heads 2 --patch 7 --out {place}/m"
        subprocess.run([str(wave), *model.split()], check=True, capture_output=True)
        steps = f"--steps {args.steps} --checkpoint-steps 2"
        stages = {
            "condense": f"condense {RECIPE} --kl-weight 0 {steps}",
            "expand": f"expand {place}/condense --depth 4 --width 32 {steps} {SHAPES}",
            "finetune": f"finetune {place}/m {steps} --ema 0.9 --drop-path 0.1 {SHAPES}",
        }
        whole, seconds = {}, {}
        for name, line in stages.items():
            began = time.monotonic()
            command = [str(wave), *line.split(), "--out", str(place / name), "-q"]
            subprocess.run(command, check=True, capture_output=True)
            seconds[name] = time.monotonic() - began
            whole[name] = files(place / name)

        failures = []
        kills = 0
        for round_ in range(args.rounds):
            name = list(stages)[round_ % len(stages)]
            out = place / f"round-{round_}"
            kills += disturbed([str(wave), *stages[name].split(), "-q"], out, seconds[name], rng)
            if files(out) != whole[name]:
                failures.append(f"round {round_}: {name} ended in other bytes")
            shutil.rmtree(out)
        print(f"{args.rounds} rounds, {kills} kills, {len(failures)} ended in other bytes")
        if args.full:
            command = [str(wave), *stages["condense"].split()]
            failure = full_disk(command, args.full, whole["condense"])
            print("full disk:", failure or "stopped with words, resumed, same bytes")
            failures += [failure] if failure else []
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
