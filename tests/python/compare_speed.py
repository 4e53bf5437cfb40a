#!/usr/bin/env python3
"""wave against PyTorch (timm's VisionTransformer), in turn on the same machine, as a ratio.

    python tests/python/compare_speed.py [--threads 2] [--rounds 3] [--shapes A,B,C]
        [--modes train,forward] [--precisions f32,bf16] [--compile] [--simd avx2]

Needs torch and timm, and a release build (cargo build --release). Each round runs wave, PyTorch
eager and, with --compile, torch.compile, each in a process of its own; the table gives medians of
the rounds' medians, and the ratio to the faster of PyTorch's two. A ratio above 1 means that wave
is faster. The peak is that of the processor's multiply-adds on as many threads, measured in the same
minute (wave speed --peak). Memory is the largest of the process.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

SHAPES = {
    "A": dict(image=28, channels=1, patch=4, width=192, depth=6, heads=3, batch=128),
    "B": dict(image=224, channels=3, patch=16, width=192, depth=6, heads=3, batch=16),
    "C": dict(image=224, channels=3, patch=16, width=384, depth=12, heads=6, batch=8),
    # Odd on purpose: nothing is a multiple of 16.
    "D": dict(image=60, channels=3, patch=6, width=120, depth=5, heads=5, batch=24),
    # Small images, and the two odd sizes of the README's first sentence.
    "E": dict(image=32, channels=3, patch=4, width=256, depth=8, heads=4, batch=64),
    "F": dict(image=224, channels=3, patch=16, width=576, depth=6, heads=9, batch=4),
    "G": dict(image=96, channels=3, patch=8, width=320, depth=10, heads=5, batch=8),
    # Few tokens, and narrow.
    "H": dict(image=32, channels=3, patch=8, width=96, depth=12, heads=3, batch=128),
    "I": dict(image=32, channels=3, patch=4, width=160, depth=9, heads=5, batch=64),
}
CLASSES = 10
WARM_UP = 4


def torch_worker(job):
    """Times PyTorch in this process; prints one JSON object."""
    import contextlib
    import warnings

    warnings.filterwarnings("ignore")
    import torch
    from timm.models.vision_transformer import VisionTransformer

    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    s = job["shape"]
    model = VisionTransformer(
        img_size=s["image"], patch_size=s["patch"], in_chans=s["channels"],
        embed_dim=s["width"], depth=s["depth"], num_heads=s["heads"], num_classes=CLASSES,
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05, fused=True)
    if job["compile"]:
        model = torch.compile(model)
    x = torch.randn(s["batch"], s["channels"], s["image"], s["image"])
    y = torch.arange(s["batch"]) % CLASSES
    bf16 = job["precision"] == "bf16"

    def cast():
        return torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else contextlib.nullcontext()

    seconds = []
    for step in range(WARM_UP + job["steps"]):
        began = time.perf_counter()
        if job["mode"] == "forward":
            with torch.no_grad(), cast():
                model(x).sum().item()
        else:
            with cast():
                loss = torch.nn.functional.cross_entropy(model(x), y)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            loss.item()
        if step >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"ms": 1e3 * statistics.median(seconds), "rss": memory}))


def run_torch(job, compiled):
    job = json.dumps({**job, "compile": compiled})
    out = subprocess.run(
        [sys.executable, __file__, "--worker", job], check=True, capture_output=True, text=True
    )
    return json.loads(out.stdout.splitlines()[-1])


def run_wave(binary, job, simd):
    flags = [f"--{key}={value}" for key, value in job["shape"].items()]
    command = [
        str(binary), "speed", "--json", f"--mode={job['mode']}", f"--steps={job['steps']}",
        f"--classes={CLASSES}", f"--threads={job['threads']}",
        f"--precision={job['precision']}", "--peak", *flags,
    ]
    environment = {**os.environ, **({"WAVE_SIMD": simd} if simd else {})}
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found = json.loads(out.stdout)
    return {"ms": found["step_ms_median"], "rss": found["peak_rss_bytes"], **found}


def machine():
    """The processor, as Linux describes it."""
    lines = (line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line)
    first = {}
    for key, value in lines:
        first.setdefault(key.strip(), value.strip())
    return f"{first['model name']}, family {first['cpu family']} model {first['model']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--shapes", default="A,B,C")
    parser.add_argument("--modes", default="train,forward")
    parser.add_argument("--precisions", default="f32,bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--simd", help="force wave's instruction set")
    args = parser.parse_args()
    if args.worker:
        return torch_worker(json.loads(args.worker))
    binary = Path(__file__).resolve().parents[2] / "target" / "release" / "wave"
    print(f"{machine()}; {args.threads} threads, PyTorch {version('torch')}, timm {version('timm')}\n")
    print("| shape | mode | precision | wave ms | PyTorch ms | ratio | wave GFLOP/s | of the peak "
          "| wave MiB | PyTorch MiB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name in args.shapes.split(","):
        for mode in args.modes.split(","):
            for precision in args.precisions.split(","):
                job = dict(shape=SHAPES[name], mode=mode, precision=precision,
                           threads=args.threads, steps=args.steps)
                wave, eager, compiled = [], [], []
                for _ in range(args.rounds):
                    wave.append(run_wave(binary, job, args.simd))
                    eager.append(run_torch(job, False))
                    if args.compile:
                        compiled.append(run_torch(job, True))

                def median(runs, key):
                    return statistics.median(run[key] for run in runs)

                torch = min((eager, compiled or eager), key=lambda runs: median(runs, "ms"))
                label = "compile" if torch is compiled else "eager"
                ours, theirs = median(wave, "ms"), median(torch, "ms")
                print(f"| {name} | {mode} | {precision} | {ours:.1f} | {theirs:.1f} ({label}) "
                      f"| {theirs / ours:.2f} | {median(wave, 'gflops'):.0f} "
                      f"| {100 * median(wave, 'share_of_peak'):.0f} % "
                      f"| {median(wave, 'rss') / 2**20:.0f} | {median(torch, 'rss') / 2**20:.0f} |",
                      flush=True)


if __name__ == "__main__":
    main()
