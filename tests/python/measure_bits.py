"""Accuracy, without any training, of models made from templates that are kept in fewer bits.

    python tests/python/measure_bits.py --wave target/release/wave > bits.md

Every value of a template directory is rounded to f16, or every template to whole numbers of so many bits times
a scale of its own; models of three sizes are expanded from the result and tested. Prints a table in Markdown.
Needs numpy, safetensors and the data that the templates were condensed on.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

import numpy
from safetensors.numpy import load_file, save_file

SIZES = [(6, 64), (6, 96), (12, 128)]  # depth, width


def whole_numbers(x, bits):
    """The nearest of 2^bits - 1 evenly spaced values around 0, up to each template's largest."""
    largest = numpy.abs(x).max(axis=tuple(range(1, x.ndim)), keepdims=True)
    scale = numpy.where(largest == 0, 1, largest) / (2 ** (bits - 1) - 1)
    return (numpy.round(x / scale) * scale).astype(numpy.float32)


def half(x):
    """The nearest f16 values."""
    return x.astype(numpy.float16).astype(numpy.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wave", default="target/release/wave")
    parser.add_argument("--templates", default="templates/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--data", default="fashion-mnist")
    arguments = parser.parse_args()
    tensors = load_file(arguments.templates / "templates.safetensors")
    composing = sum(x.size for name, x in tensors.items() if name.startswith("templates."))
    others = sum(x.size for x in tensors.values()) - composing

    def wave(*words):
        run = [arguments.wave, *map(str, words), "--json", "--quiet"]
        return json.loads(subprocess.run(run, check=True, stdout=subprocess.PIPE).stdout)

    def measure(label, kilobytes, change):
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            shutil.copy(arguments.templates / "config.json", place)
            changed = {name: numpy.ascontiguousarray(change(name, x)) for name, x in tensors.items()}
            save_file(changed, place / "templates.safetensors", {"format": "pt"})
            top1 = []
            for depth, width in SIZES:
                out = place / f"{depth}x{width}"
                wave("expand", place, "--depth", depth, "--width", width, "--steps", 0, "--out", out)
                top1.append(wave("eval", out, "--data", arguments.data)["top1"])
        cells = " | ".join(f"{100 * x:.2f}" for x in top1)
        print(f"| {label} | {kilobytes:.0f} | {cells} |", flush=True)

    print("| stored as | kB | " + " | ".join(f"{depth} x {width}" for depth, width in SIZES) + " |")
    print("|---" * (2 + len(SIZES)) + "|")
    measure("f32", (composing + others) * 4 / 1e3, lambda name, x: x)
    measure("f16", (composing + others) * 2 / 1e3, lambda name, x: half(x))
    for bits in [8, 6, 5, 4, 3]:

        def change(name, x):
            return whole_numbers(x, bits) if name.startswith("templates.") else half(x)

        kilobytes = (composing * bits / 8 + others * 2) / 1e3
        measure(f"templates in {bits} bits, the rest in f16", kilobytes, change)


if __name__ == "__main__":
    main()
