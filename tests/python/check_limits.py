"""Checks `wave expand --max-params, --max-flops, --max-latency-ms` from outside.

    python tests/python/check_limits.py --wave target/release/wave [--templates DIR] [--rounds N]

For limits drawn at random between the smallest and the largest size that the templates recorded:
parameters are counted in the file, multiply-adds by hand, latencies measured again by `wave speed`. The
size chosen is compared with the best of an exhaustive search: every size within the range recorded is
expanded and tested. Needs the data that the templates were condensed on, and nothing but Python.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import tempfile


def wave(program, *arguments):
    words = [str(word) for word in (program, *arguments, "--json")]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def counted(path):
    """Values in a safetensors file, by its header alone."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    total = 0
    for name, tensor in header.items():
        if name != "__metadata__":
            n = 1
            for side in tensor["shape"]:
                n *= side
            total += n
    return total


def multiply_adds(config, depth, width):
    """Of one image: patches, q k v, both products of attention, its projection, the MLP, the head."""
    side = config["image_size"] // config["patch"]
    tokens = side * side + int(config["auxiliary"].get("class_token", False))
    hidden = int(width * config["auxiliary"]["mlp_ratio"])
    patches = side * side * config["channels"] * config["patch"] ** 2 * width
    block = tokens * (4 * width * width + 2 * width * hidden) + 2 * tokens * tokens * width
    return patches + depth * block + width * config["classes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wave", default="target/release/wave")
    parser.add_argument("--templates", default="templates/fashion-mnist", type=pathlib.Path)
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    program, templates = pathlib.Path(arguments.wave).resolve(), arguments.templates
    config = json.loads((templates / "config.json").read_text())
    recorded = config["accuracies"]
    depths = sorted({a["depth"] for a in recorded})
    widths = sorted({a["width"] for a in recorded})
    head = config["head_width"]
    sizes = [
        (depth, width)
        for depth in range(depths[0], depths[-1] + 1)
        for width in range(widths[0], widths[-1] + 1, head)
    ]
    generator = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as room:
        room = pathlib.Path(room)
        costs, accuracies = {}, {}
        for depth, width in sizes:
            out = room / f"{depth}x{width}"
            size = ("--depth", depth, "--width", width, "--steps", 0)
            wave(program, "expand", templates, *size, "--out", out)
            tested = wave(program, "eval", out, "--data", arguments.data)
            accuracies[depth, width] = tested["top1"]
            costs[depth, width] = counted(out / "model.safetensors")
        print(f"{len(sizes)} sizes: {min(accuracies.values()):.4f} to {max(accuracies.values()):.4f}")

        def latency(depth, width):
            shape = ("--depth", depth, "--width", width, "--heads", width // head)
            frame = ("--image", config["image_size"], "--channels", config["channels"])
            frame += ("--patch", config["patch"], "--classes", config["classes"])
            speed = wave(
                program, "speed", "--mode", "forward", "--batch", 1, "--steps", 201,
                "--class-token", "false", *shape, *frame,
            )  # fmt: skip
            return speed["step_ms_median"]

        slowest, fastest = latency(*sizes[-1]), latency(*sizes[0])
        worst_gap, worst_latency = 0.0, 0.0
        for round in range(arguments.rounds):
            share = generator.random()
            most = {
                "--max-params": min(costs.values()) + share * (max(costs.values()) - min(costs.values())),
                "--max-flops": multiply_adds(config, *sizes[0])
                + share * (multiply_adds(config, *sizes[-1]) - multiply_adds(config, *sizes[0])),
                "--max-latency-ms": 1.3 * fastest + share * (slowest - fastest),
            }
            for flag, limit in most.items():
                limit = round_up(limit) if flag != "--max-latency-ms" else limit
                out = room / f"{round}{flag}"
                made = wave(
                    program, "expand", templates, flag, limit, "--steps", 0, "--out", out
                )
                chosen = made["sizes"][0]
                size = (chosen["depth"], chosen["width"])
                values = counted(out / "model.safetensors")
                assert values == made["parameters"] == chosen["parameters"], (values, made)
                assert multiply_adds(config, *size) == chosen["multiply_adds"], chosen
                if flag == "--max-params":
                    assert values <= limit, (values, limit)
                    within = [s for s in sizes if costs[s] <= limit]
                elif flag == "--max-flops":
                    assert multiply_adds(config, *size) <= limit, (size, limit)
                    within = [s for s in sizes if multiply_adds(config, *s) <= limit]
                else:
                    assert chosen["latency_ms"] <= limit, (chosen, limit)
                    again = latency(*size)
                    worst_latency = max(worst_latency, abs(again / chosen["latency_ms"] - 1))
                    continue
                gap = max(accuracies[s] for s in within) - accuracies[size]
                worst_gap = max(worst_gap, gap)
        print(f"chosen sizes are at most {100 * worst_gap:.2f} points behind the best within limits")
        print(f"latencies measured again differ by at most {100 * worst_latency:.0f} %")
        assert worst_gap <= 0.01


def round_up(limit):
    return int(limit) + 1


if __name__ == "__main__":
    main()
