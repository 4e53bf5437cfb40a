"""Checks that transformers reads wave's state space models as its own, and finds them as good.

    pip install torch transformers safetensors
    cargo build --release
    python tests/python/check_sequence.py --wave target/release/wave

Trains a small Mamba-2 and a small Mamba to copy, loads both with `AutoModelForCausalLM`, and measures
them on strings drawn here: the share of right tokens has to be what `wave eval` tells, up to the
deviation that 256 other strings make. Takes about a minute. Written with transformers 5.23.0.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

LENGTH, SYMBOLS, FIRST = 8, 8, 3


def accuracy(model, length):
    generator = torch.Generator().manual_seed(0)
    string = torch.randint(FIRST, FIRST + SYMBOLS, (256, length), generator=generator)
    token = lambda which: torch.full((256, 1), which)
    tokens = torch.cat([token(0), string, token(1), string, token(2)], 1)
    with torch.no_grad():
        logits = model(tokens[:, :-1], use_cache=False).logits
    right = logits.argmax(-1)[:, length + 1 :] == tokens[:, length + 2 :]
    return right.float().mean().item()


def check(wave, folder, arch):
    def run(command):
        text = subprocess.run(
            [wave, *command.split(), "--json", "-q"], cwd=folder, check=True, capture_output=True
        ).stdout
        return json.loads(text)

    data = f"copy:length=4..{LENGTH},symbols={SYMBOLS}"
    run(f"init mimetic --arch {arch} --depth 2 --width 32 --state 32 --data {data} --out {arch}-start")
    trained = run(f"finetune {arch}-start --steps 400 --lr 1e-2 --batch 16 --out {arch}")
    model, loading = AutoModelForCausalLM.from_pretrained(
        str(folder / arch), output_loading_info=True
    )
    assert not any(loading.values()), loading
    for told in trained["lengths"]:
        found = accuracy(model.eval(), told["length"])
        print(f"{arch}, length {told['length']}: {found:.3f}, wave tells {told['top1']:.3f}")
        assert abs(found - told["top1"]) < 0.03
    assert trained["lengths"][0]["top1"] > 0.4  # it has learned something to be compared


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wave", required=True, type=Path)
    wave = parser.parse_args().wave.resolve()
    with tempfile.TemporaryDirectory() as folder:
        for arch in ("mamba2", "mamba"):
            check(wave, Path(folder), arch)


if __name__ == "__main__":
    main()
