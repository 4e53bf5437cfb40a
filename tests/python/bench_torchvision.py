"""Times wave's loading of JPEG files beside torchvision's, on the same files, in turn, a thread each.

    pip install torch torchvision pillow numpy
    cargo build --release -p wave-data --example decode_speed
    python tests/python/bench_torchvision.py target/release/examples/decode_speed [DIR]

Without DIR, makes 64 files of 500 x 375 pixels, about 115 kB each, whose spectrum falls off like a
photograph's. DIR is an ImageFolder (`train/CLASS/*.jpg` and `val/`). Both do what training does:
decode, a random resized crop to 224 pixels (bicubic), mirrored half of the time, normalised. Prints
the fastest of the rounds in milliseconds an image, and torchvision's time divided by wave's.

Exit code: 0 if the ratio is at least 1.5, 1 if not.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T

ROUNDS = 6


def make(directory, n=64, w=500, h=375):
    rng = np.random.default_rng(0)
    frequency = np.hypot(np.fft.fftfreq(h)[:, None], np.fft.rfftfreq(w)[None])
    frequency[0, 0] = np.inf
    for i in range(n):
        noise = [np.fft.irfft2(np.fft.rfft2(rng.standard_normal((h, w))) / frequency, (h, w))
                 for _ in range(3)]
        grey, one, two = [x / x.std() for x in noise]
        image = np.stack([grey + 0.3 * one, grey, grey + 0.3 * two], -1) * 50 + 120
        for part in ("train", "val"):
            folder = Path(directory, part, "noise")
            folder.mkdir(parents=True, exist_ok=True)
            if part == "train" or i == 0:
                pixels = image.clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{i:03}.jpg", quality=90)


def torchvision_ms(files, transform):
    start = time.perf_counter()
    for file in files:
        transform(Image.open(file).convert("RGB"))
    return (time.perf_counter() - start) * 1e3 / len(files)


def main():
    torch.set_num_threads(1)
    program = sys.argv[1]
    directory = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    if len(sys.argv) <= 2:
        make(directory)
    files = sorted(Path(directory, "train").glob("*/*"))
    crop = T.RandomResizedCrop(224, interpolation=T.InterpolationMode.BICUBIC)
    normalise = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    train = T.Compose([crop, T.RandomHorizontalFlip(), T.ToTensor(), normalise])
    theirs, ours = {"decode_ms": [], "train_ms": []}, {"decode_ms": [], "train_ms": []}
    for _ in range(ROUNDS):
        theirs["decode_ms"].append(torchvision_ms(files, lambda image: image))
        theirs["train_ms"].append(torchvision_ms(files, train))
        out = subprocess.run([program, directory, "1"], check=True, capture_output=True, text=True)
        for name, ms in json.loads(out.stdout).items():
            ours[name].append(ms)
    for name in theirs:
        a, b = min(theirs[name]), min(ours[name])
        print(f"{name}: torchvision {a:.2f}, wave {b:.2f}, ratio {a / b:.2f}")
    sys.exit(0 if min(theirs["train_ms"]) >= 1.5 * min(ours["train_ms"]) else 1)


if __name__ == "__main__":
    main()
