"""Run every command and program of the guide, in order, in a scratch directory.

    cargo build --release && apt install dataset-fashion-mnist
    pip install torch timm transformers onnxruntime pillow numpy ./crates/wave-python
    python tests/python/check_guide.py --wave target/release/wave [--photos DIR]

The guide is `crates/wave/src/guide.md`. Its blocks of `sh` and `python` are run, those of `toml` written
to the file that their first line names; blocks of `text` need the real hub and are not run. The scratch
directory has the clone's `templates/`, the pictures of DIR (synthetic ones without) as `photos/`, one of
them named flower.jpg, and a grey `shirt.png`.

Exit code: 0 all ran, 1 one failed.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "crates" / "wave" / "src" / "guide.md"


def blocks():
    """Language and text of each block."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text(), re.M | re.S)


def furnish(folder, photos):
    (folder / "templates").symlink_to(ROOT / "templates")
    rng = np.random.default_rng(0)
    if photos:
        shutil.copytree(photos, folder / "photos")
    else:
        (folder / "photos").mkdir()
        for i in range(39):  # a plan for minutes needs a few steps of images
            coarse = Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8))
            coarse.resize((320, 240)).save(folder / "photos" / f"{i}.jpg")
    flower = folder / "photos" / "flower.jpg"
    if not flower.exists():
        shutil.copy(min(flower.parent.iterdir()), flower)
    shirt = rng.integers(0, 256, (7, 7), dtype=np.uint8)
    Image.fromarray(shirt).resize((28, 28)).save(folder / "shirt.png")


def run(language, text, folder, environment):
    if language == "toml":
        name, _, rest = text.removeprefix("# ").partition("\n")
        (folder / name).write_text(rest)
    elif language == "python":
        subprocess.run([sys.executable, "-c", text], cwd=folder, env=environment, check=True)
    else:
        manifest = f"cargo run --manifest-path {ROOT / 'Cargo.toml'} "
        script = "set -ex\n" + text.replace("cargo run ", manifest)
        subprocess.run(["bash", "-c", script], cwd=folder, env=environment, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", default="wave", help="the executable (default: wave on PATH)")
    parser.add_argument("--photos", type=Path, metavar="DIR")
    args = parser.parse_args()
    wave = Path(shutil.which(args.wave) or args.wave).resolve()
    environment = {**os.environ, "PATH": f"{wave.parent}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    with tempfile.TemporaryDirectory() as scratch:
        furnish(Path(scratch), args.photos)
        for language, text in blocks():
            if language not in ("sh", "python", "toml"):
                continue
            began = time.monotonic()
            try:
                run(language, text, Path(scratch), environment)
            except subprocess.CalledProcessError as error:
                print(f"failed, exit code {error.returncode}:\n{text}", file=sys.stderr)
                return 1
            ran += 1
            print(f"-- {language} block {ran}: {time.monotonic() - began:.1f} s", flush=True)
    print(f"{ran} blocks ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())
