#!/usr/bin/env python3
"""`expand.py` of a template directory makes what `wave expand` makes, and timm loads it.

    pip install numpy safetensors    # and, to load the models: torch timm
    python3 tests/python/check_expand.py --wave target/debug/wave

Both shipped sets are tried at sizes inside and outside those condensed, and small sets in both Kronecker orders, with
template sizes that do not divide the widths, with one and with two levels, in f32, f16 and bf16.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [(1, 64), (2, 64), (3, 96), (4, 96), (5, 128), (7, 32), (12, 128), (13, 160), (6, 192), (15, 576)]
SMALL = [(1, 16), (2, 32), (3, 64), (5, 48), (6, 80), (4, 128)]

RECIPE = """
data = "shapes"
train_limit = 64
test_limit = 32
batch = 32
[condense]
depths = [1, 3]
widths = [32, 64]
template_size = {template}
kronecker = "{order}"
dtype = "{dtype}"
steps = 2
kl_weight = 0
[condense.auxiliary]
depth = 3
width = 64
head_width = 16
patch = 7
image_size = 28
{more}
"""


def run(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def check(wave, templates, sizes, place):
    """Both ways to the same weights and, but for provenance, to the same configuration."""
    worst = 0.0
    for depth, width in sizes:
        ours, theirs = (place / f"{templates.name}-{depth}x{width}-{by}" for by in ("py", "wave"))
        run(sys.executable, templates / "expand.py", depth, width, ours)
        run(wave, "expand", templates, "--depth", depth, "--width", width, "--out", theirs)
        got, want = (load_file(out / "model.safetensors") for out in (ours, theirs))
        assert got.keys() == want.keys(), got.keys() ^ want.keys()
        for name, x in want.items():
            assert got[name].dtype == x.dtype and got[name].shape == x.shape, (name, got[name].shape, x.shape)
            worst = max(worst, np.abs(got[name] - x).max())
            np.testing.assert_allclose(got[name], x, rtol=0, atol=1e-6, err_msg=f"{theirs.name} {name}")
        told, wanted = (json.loads((out / "config.json").read_text()) for out in (ours, theirs))
        for key in ("wave", "digests"):
            wanted.pop(key, None)
        for key in ("tag", "custom_load"):  # a name for people, and timm's default
            wanted["pretrained_cfg"].pop(key, None)
        wanted["pretrained_cfg"] = {k: v for k, v in wanted["pretrained_cfg"].items() if v is not None}
        assert told == wanted, (told, wanted)
    print(f"{templates.name}: {len(sizes)} sizes, largest difference {worst:.1e}")
    return ours, theirs


def check_digest(templates, place):
    """A flipped bit is not expanded."""
    torn = Path(shutil.copytree(templates, place / "torn"))
    weights = torn / "templates.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    command = [sys.executable, torn / "expand.py", "2", "32", place / "none"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 1 and "is damaged" in refused.stderr, refused
    assert not (place / "none").exists()


def check_timm(ours, theirs):
    """timm loads both, and they give the same logits."""
    import timm
    import torch

    models = [timm.create_model(f"local-dir:{out}", pretrained=True).eval() for out in (ours, theirs)]
    images = torch.rand(2, *models[0].pretrained_cfg["input_size"], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        a, b = (model(images) for model in models)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", required=True, type=Path)
    wave = str(parser.parse_args().wave.resolve())
    source = ROOT / "crates/wave-hub/src/templates/expand.py"
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        for name in ["cifar-10", "fashion-mnist"]:
            templates = ROOT / "templates" / name
            assert (templates / "expand.py").read_bytes() == source.read_bytes(), f"copy {source} to {templates}"
            pair = check(wave, templates, SHIPPED, place)
            try:
                check_timm(*pair)
            except ModuleNotFoundError as missing:
                print(f"{missing}: no model was loaded")
        for order, template, dtype, token in [("tile", 16, "f32", False), ("tile", 32, "bf16", True),
                                              ("interleave", 32, "f32", True), ("tile", 24, "f16", False)]:
            recipe = place / "r.toml"
            more = "class_token = true" if token else ""
            recipe.write_text(RECIPE.format(order=order, template=template, dtype=dtype, more=more))
            small = place / f"{order}-{template}"
            run(wave, "condense", recipe, "--depths", "1,2", "--widths", "32", "--out", small)
            grown = place / f"{order}-{template}-grown"
            run(wave, "condense", recipe, "--grow", small, "--out", grown)
            for templates in [small, grown]:
                check(wave, templates, SMALL, place)
        check_digest(small, place)


if __name__ == "__main__":
    main()
