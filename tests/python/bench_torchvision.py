"""Times wave's loading of JPEG files beside torchvision's: the same files, in turn, two cores each.

    pip install torch torchvision pillow numpy
    cargo build --release -p wave-data --example load_speed
    python tests/python/bench_torchvision.py target/release/examples/load_speed [DIR] [THREADS]

Without DIR, makes 512 files of 500 x 375 pixels, about 110 kB each, whose spectrum falls off like a
photograph's. DIR is an ImageFolder (`train/CLASS/*.jpg` and `val/`). Both do what training does:
decode, a random resized crop to 224 pixels (bicubic), mirrored half of the time, normalised, as
batches of 64. THREADS (2) are wave's threads and torchvision's worker processes.

Two measures of each, alternating over some rounds, of which the best counts: images a second by the
clock, from the first batch to the last, with torchvision behind torch's DataLoader; and processor
time an image without one, so that what passing batches between processes costs is left out.

Exit code: 0 if wave is at least 1.5 times as fast by both measures, 1 if not.
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
from torchvision import datasets
from torchvision import transforms as T

ROUNDS = 4
IMAGES = 1536  # a round
BATCH = 64


def make(directory, n=512, w=500, h=375):
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


def wave(program, directory, threads, what):
    command = [program, directory, str(IMAGES + BATCH), str(threads), what]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return result["images_per_second"], result["cpu_ms_per_image"]


def one_thread_ms(files, transform):
    start = time.process_time()
    for file in files:
        transform(Image.open(file).convert("RGB"))
    return (time.process_time() - start) * 1e3 / len(files)


def images_per_second(batches):
    """Of one pass after the first batch."""
    batches = iter(batches)
    next(batches)
    start, n = time.perf_counter(), 0
    for images, _ in batches:
        n += len(images)
    return n / (time.perf_counter() - start)


def main():
    torch.set_num_threads(1)
    program = sys.argv[1]
    directory = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    if len(sys.argv) <= 2:
        make(directory)
    crop = T.RandomResizedCrop(224, interpolation=T.InterpolationMode.BICUBIC)
    normalise = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    train = T.Compose([crop, T.RandomHorizontalFlip(), T.ToTensor(), normalise])
    folder = datasets.ImageFolder(str(Path(directory, "train")), train)
    repeated = torch.utils.data.ConcatDataset([folder] * -(-(IMAGES + BATCH) // len(folder)))
    loader = torch.utils.data.DataLoader(repeated, BATCH, shuffle=True, num_workers=threads,
                                         persistent_workers=True, drop_last=True)
    files = [file for file, _ in folder.samples][:256]

    decode, ours, theirs = [], [], []
    for _ in range(ROUNDS):
        decode.append((one_thread_ms(files, lambda image: image),
                       wave(program, directory, 1, "decode")[1]))
        ours.append(wave(program, directory, threads, "train"))
        theirs.append((images_per_second(loader), one_thread_ms(files, train)))
    their_ms, our_ms = [min(ms) for ms in zip(*decode)]
    print(f"decoding alone: torchvision {their_ms:.2f} ms, wave {our_ms:.2f} ms of processor time, "
          f"ratio {their_ms / our_ms:.2f}")
    their_ms, our_ms = min(ms for _, ms in theirs), min(ms for _, ms in ours)
    print(f"input for training: torchvision {their_ms:.2f} ms, wave {our_ms:.2f} ms of processor "
          f"time, ratio {their_ms / our_ms:.2f}")
    their_rate, our_rate = max(rate for rate, _ in theirs), max(rate for rate, _ in ours)
    print(f"input for training on {threads} cores: torchvision {their_rate:.0f} images/s, wave "
          f"{our_rate:.0f} images/s, ratio {our_rate / their_rate:.2f}")
    sys.exit(0 if min(their_ms / our_ms, our_rate / their_rate) >= 1.5 else 1)


if __name__ == "__main__":
    main()
