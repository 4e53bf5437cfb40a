#!/usr/bin/env python3
"""wave's frozen LeViT against timm's in PyTorch eager, in turn on the same machine, as a ratio.

    cargo build --release -p wave-models --example ancestor_speed
    python tests/python/compare_ancestors.py [--models levit_384,levit_128s] [--threads 2]
        [--batches 8,16] [--rounds 5] [--repeats 10]

Needs torch, timm and safetensors. timm makes the weights, seeded and random, the running statistics
of the batch norms included, and writes them to a file that wave reads. In each round wave and
PyTorch run one after the other, each in a process of its own; a round counts with its median and
its least, the table has the medians of both over all rounds. A ratio above 1 means that wave is
faster; `processor` is the ratio of processor times, which other programs disturb less.

Both take the same images. The script fails, with exit code 1, where logits differ by more than
1e-4 of the largest logit or of 1.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SEED = 0
TOLERANCE = 1e-4


def make(name):
    """timm's model with seeded random weights, no batch norm left as it was initialised."""
    import timm
    import torch

    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    model = timm.create_model(name).eval()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)):
                n = module.num_features
                module.running_mean.copy_(0.1 * torch.randn(n, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(n, generator=generator))
                module.weight.copy_(0.5 + torch.rand(n, generator=generator))
                module.bias.copy_(0.1 * torch.randn(n, generator=generator))
            if hasattr(module, "attention_biases"):
                shape = module.attention_biases.shape
                module.attention_biases.copy_(torch.randn(shape, generator=generator))
            if isinstance(module, torch.nn.Linear) and module.out_features == 1000:
                module.weight.copy_(0.1 * torch.randn(module.weight.shape, generator=generator))
    return model


def torch_worker(job):
    """Times PyTorch in this process; prints one JSON object."""
    import torch

    torch.set_num_threads(job["threads"])
    model = make(job["model"])
    size = model.default_cfg["input_size"]
    n = job["batch"] * size[0] * size[1] * size[2]
    values = (torch.arange(n) * 7919 % 1009).double() / 504.5 - 1
    images = values.float().reshape(job["batch"], *size)
    wall, processor = [], []
    with torch.inference_mode():
        logits = model(images)[0].tolist()
        for _ in range(job["repeats"]):
            began, before = time.perf_counter(), time.process_time()
            model(images)
            wall.append(1e3 * (time.perf_counter() - began))
            processor.append(1e3 * (time.process_time() - before))
    print(json.dumps({"ms": wall, "processor_ms": processor, "logits": logits}))


def run_torch(job):
    command = [sys.executable, __file__, "--worker", json.dumps(job)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(out.stdout.splitlines()[-1])


def run_wave(binary, weights, job):
    command = [str(binary), str(weights), str(job["batch"]), str(job["repeats"])]
    environment = {**os.environ, "RAYON_NUM_THREADS": str(job["threads"])}
    out = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(out.stdout)


def middle(runs, key, of=statistics.median):
    return statistics.median(of(run[key]) for run in runs)


def compare(binary, weights, job, rounds):
    """Prints a line of the table; tells whether the logits agree."""
    wave, torch = [], []
    for _ in range(rounds):
        wave.append(run_wave(binary, weights, job))
        torch.append(run_torch(job))
    expected = torch[0]["logits"]
    difference = max(abs(a - b) for a, b in zip(wave[0]["logits"], expected, strict=True))
    limit = TOLERANCE * max(1.0, *(abs(z) for z in expected))
    ours, theirs = middle(wave, "ms"), middle(torch, "ms")
    least = middle(torch, "ms", min) / middle(wave, "ms", min)
    processor = middle(torch, "processor_ms", min) / middle(wave, "processor_ms", min)
    rate = 1e3 * job["batch"] / ours
    print(
        f"| {job['model']} | {job['batch']} | {ours:.1f} | {theirs:.1f} | {theirs / ours:.2f} "
        f"| {least:.2f} | {processor:.2f} | {rate:.1f} | {difference:.1e} |",
        flush=True,
    )
    return difference <= limit


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--models", default="levit_384,levit_128s")
    parser.add_argument("--batches", default="8,16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=10)
    args = parser.parse_args()
    if args.worker:
        return torch_worker(json.loads(args.worker))

    from safetensors.torch import save_file

    root = Path(__file__).resolve().parents[2]
    binary = root / "target" / "release" / "examples" / "ancestor_speed"
    print("| model | batch | wave ms | PyTorch ms | ratio | of least | processor | wave images/s "
          "| logits differ by |")
    print("|---|---|---|---|---|---|---|---|---|")
    equal = True
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.models.split(","):
            weights = Path(scratch) / f"{name}.safetensors"
            save_file(make(name).state_dict(), weights)
            for batch in map(int, args.batches.split(",")):
                job = dict(model=name, batch=batch, threads=args.threads, repeats=args.repeats)
                equal &= compare(binary, weights, job, args.rounds)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
