"""Accuracy, without training or data, of random shapes made from templates, and after an epoch of fine-tuning.

    python tests/python/measure_random_shapes.py --wave target/release/wave --templates DIR --out rows.json

Draws shapes of depth 1 to 24, width 32 to 256 in steps of 16, MLP ratio 1 to 8, heads of 16 to 64 channels,
images of 28 to 56 pixels and patches of 4 to 14 that divide them; the same shapes for every template set. The
--tuned cheapest of them are also fine-tuned for an epoch. Prints quartiles, and means over each property, in
Markdown; with --plot FILE draws accuracy over each property (needs matplotlib). Rows that --out already holds
are not measured again. Needs the data that the templates were condensed on.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

PROPERTIES = ["depth", "width", "mlp_ratio", "head_width", "image_size", "patch"]


def draw(rng):
    width = rng.randrange(32, 257, 16)
    heads = [head for head in range(16, 65) if width % head == 0]
    sides = [(image, patch) for image in range(28, 57) for patch in range(4, 15) if image % patch == 0]
    image_size, patch = rng.choice(sides)
    return {
        "depth": rng.randint(1, 24),
        "width": width,
        "mlp_ratio": rng.choice([1, 1.5, 2, 3, 4, 5, 6, 8]),
        "head_width": rng.choice(heads),
        "image_size": image_size,
        "patch": patch,
    }


def cost(shape):
    """Multiply-adds, nearly."""
    tokens = (shape["image_size"] // shape["patch"]) ** 2
    return shape["depth"] * tokens * shape["width"] * (shape["width"] * (4 + 2 * shape["mlp_ratio"]) + 2 * tokens)


def wave(program, *arguments):
    words = [str(word) for word in (program, *arguments, "--json")]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def measure(program, arguments, shape, room, tune):
    made, tuned = pathlib.Path(room) / "made", pathlib.Path(room) / "tuned"
    sizes = [
        "--depth", shape["depth"], "--width", shape["width"], "--heads", shape["width"] // shape["head_width"],
        "--mlp-ratio", shape["mlp_ratio"], "--image-size", shape["image_size"], "--patch", shape["patch"],
    ]  # fmt: skip
    common = ["--data", arguments.data, "--test-limit", arguments.test_limit, "--threads", arguments.threads]
    expanded = wave(program, "expand", arguments.templates, *sizes, "--out", made, "--overwrite")
    row = {**shape, "top1": wave(program, "eval", made, *common)["top1"]}
    row["expected"] = expanded.get("expected_top1")
    if tune:
        flags = ["--epochs", 1, "--lr", arguments.lr, "--crop-padding", 2, "--flip", "true", "--weight-decay", 0.05]
        done = wave(program, "finetune", made, *common, *flags, "--out", tuned, "--overwrite")
        row["tuned"] = done["top1"]
    return row


def report(rows):
    found = sorted(100 * row["top1"] for row in rows)
    at = lambda share: found[round(share * (len(found) - 1))]
    print(f"{len(found)} shapes, top-1 in %: worst {found[0]:.1f}, lower quartile {at(0.25):.1f}, median "
          f"{at(0.5):.1f}, upper quartile {at(0.75):.1f}, best {found[-1]:.1f}.\n")  # fmt: skip
    for name in PROPERTIES:
        values = sorted({row[name] for row in rows})
        thirds = [values[len(values) * i // 3] for i in range(3)] if len(values) > 8 else values
        print(f"| {name} | shapes | mean | worst |\n|---|---|---|---|")
        for low, high in zip(thirds, [*thirds[1:], float("inf")]):
            inside = [100 * row["top1"] for row in rows if low <= row[name] < high]
            above = f" to below {high}" if high != float("inf") else " and more"
            label = low if len(values) <= 8 else f"{low}{above}"
            print(f"| {label} | {len(inside)} | {statistics.mean(inside):.1f} | {min(inside):.1f} |")
        print()
    estimated = [abs(row["expected"] - row["top1"]) for row in rows if row.get("expected") is not None]
    if estimated:
        print(f"`wave expand` estimated {len(estimated)} of them, {100 * statistics.mean(estimated):.1f} points off "
              "in the mean.\n")  # fmt: skip
    tuned = [row for row in rows if "tuned" in row]
    if tuned:
        print("| shape | made | after an epoch |\n|---|---|---|")
    for row in tuned:
        shape = ", ".join(f"{name} {row[name]}" for name in PROPERTIES)
        print(f"| {shape} | {100 * row['top1']:.1f} | {100 * row['tuned']:.1f} |")


def plot(rows, file):
    import matplotlib.pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharey=True)
    for axis, name in zip(axes.flat, PROPERTIES):
        axis.plot([row[name] for row in rows], [100 * row["top1"] for row in rows], ".", alpha=0.5, rasterized=True)
        axis.set_xlabel(name.replace("_", " "))
    for axis in axes[:, 0]:
        axis.set_ylabel("top-1 in %")
    figure.tight_layout()
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wave", default="target/release/wave")
    parser.add_argument("--templates", default="templates/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--shapes", default=200, type=int)
    parser.add_argument("--tuned", default=0, type=int)
    parser.add_argument("--test-limit", default=1000)
    parser.add_argument("--lr", default=1e-3)
    parser.add_argument("--threads", default=1)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--plot", type=pathlib.Path)
    arguments = parser.parse_args()
    program = pathlib.Path(arguments.wave).resolve()
    rng = random.Random(0)
    shapes = [draw(rng) for _ in range(arguments.shapes)]
    cheapest = sorted(shapes, key=cost)[: arguments.tuned]
    rows = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    known = {tuple(row[name] for name in PROPERTIES) for row in rows}
    for shape in shapes:
        if tuple(shape.values()) in known:
            continue
        with tempfile.TemporaryDirectory() as room:
            rows.append(measure(program, arguments, shape, room, shape in cheapest))
        arguments.out.write_text(json.dumps(rows, indent=0) + "\n")
    report(rows)
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
