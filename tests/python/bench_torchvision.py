"""Times wave's loading of JPEG files beside torchvision's, on the same files, in turn, a thread each.

    pip install torch torchvision pillow numpy
    cargo build --release -p wave-data --example decode_speed
    python tests/python/bench_torchvision.py target/release/examples/decode_speed [DIR]

Without DIR, makes 64 files of 500 x 375 pixels, about 115 kB each, whose spectrum falls off like a
photograph's. DIR is an ImageFolder (`train/CLASS/*.jpg` and `val/`). Both do what training does:
decode, a random resized crop to 224 pixels (bicubic), mirrored half of the time, normalised. Prints
milliseconds of processor time an image, the fastest of the rounds, and torchvision's divided by
wave's: processor time, so that other programs on the machine do not matter much.

Exit code: 0 if the ratio is at least 1.5, 1 if not.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T

ROUNDS = 8


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
    start = time.process_time()
    for file in files:
        transform(Image.open(file).convert("RGB"))
    return (time.process_time() - start) * 1e3 / len(files)


def children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wave_ms(program, directory, files, what, repeats=5):
    start = children()
    subprocess.run([program, directory, str(repeats), what], check=True, capture_output=True)
    return (children() - start) * 1e3 / len(files) / repeats


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
    ratio = 0.0
    for what, transform in (("decode", lambda image: image), ("train", train)):
        theirs, ours = [], []
        for _ in range(ROUNDS):
            theirs.append(torchvision_ms(files, transform))
            ours.append(wave_ms(program, directory, files, what))
        ratio = min(theirs) / min(ours)
        print(f"{what}: torchvision {min(theirs):.2f} ms, wave {min(ours):.2f} ms, ratio {ratio:.2f}")
    sys.exit(0 if ratio >= 1.5 else 1)


if __name__ == "__main__":
    main()
