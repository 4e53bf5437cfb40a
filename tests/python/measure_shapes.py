"""Accuracy, without any training, of models that templates were not condensed for.

    python tests/python/measure_shapes.py --wave target/release/wave > shapes.md

One thing differs from a model in the middle of the range at a time: depth, width, heads, the MLP's
ratio, the image's side, the patch's side. Prints a table in Markdown for each, what was trained marked.
Needs the data that the templates were condensed on, and nothing but Python.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile


def wave(program, *arguments):
    words = [str(word) for word in (program, *arguments, "--json")]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wave", default="target/release/wave")
    parser.add_argument("--templates", default="templates/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--data", default="fashion-mnist")
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.wave).resolve()
    config = json.loads((arguments.templates / "config.json").read_text())
    least, most = config["provenance"]["depths"]
    widths = config["provenance"]["widths"]
    head, patch, side = config["head_width"], config["patch"], config["image_size"]
    depth, width = (least + most) // 2, widths[len(widths) // 2]
    ratio = config["auxiliary"]["mlp_ratio"]
    base = {"--depth": depth, "--width": width}
    # Each varied size: its flag, its values, those that were trained.
    axes = [
        ("depth", "--depth", [1, *range(least, most + 1, 2), most + 2, most + 4, 2 * most],
         range(least, most + 1)),
        ("width", "--width", range(head, 2 * widths[-1] + 1, head), widths),
        ("heads", "--heads", [h for h in range(1, width + 1) if width % h == 0 and h <= 16],
         [width // head]),
        ("MLP ratio", "--mlp-ratio", [0.5, 1, 2, 3, ratio, 5, 6, 8], [ratio]),
        ("image's side, patches as they are", "--image-size",
         [patch * g for g in range(2, 2 * side // patch + 1)], [side]),
        ("patch's side, images as they are", "--patch",
         [p for p in range(2, side + 1) if side % p == 0], [patch]),
    ]  # fmt: skip
    print(f"Of models of {depth} x {width}, but for one thing, without training or data.")
    with tempfile.TemporaryDirectory() as room:
        for title, flag, values, trained in axes:
            print(f"\n| {title} | top-1 | |\n|---|---|---|")
            for value in values:
                out = pathlib.Path(room) / "model"
                sizes = [word for pair in {**base, flag: value}.items() for word in pair]
                wave(program, "expand", arguments.templates, *sizes, "--steps", 0, "--out", out, "--overwrite")
                tested = wave(program, "eval", out, "--data", arguments.data)
                mark = "trained" if value in trained else ""
                print(f"| {value} | {100 * tested['top1']:.2f} | {mark} |", flush=True)


if __name__ == "__main__":
    main()
