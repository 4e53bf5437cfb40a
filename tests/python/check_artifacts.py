"""Check what wave wrote to disk with tools that share none of its code.

    pip install torch timm safetensors numpy transformers tensorboard

    python tests/python/check_artifacts.py kron TEMPLATES_DIR MODEL_DIR
    python tests/python/check_artifacts.py logits MODEL_DIR IMAGE... --wave target/release/wave
    python tests/python/check_artifacts.py log OUT_DIR

`kron` recomposes every layer of an expanded model from its scalers S and the shared templates T,

    W = sum_n kron(S_n, T_n)     "kronecker": "tile"
    W = sum_n kron(T_n, S_n)     "kronecker": "interleave"

crops it where the template size does not divide the width, and compares it with the stored weight.
Weights written with `--dtype f16` or `bf16` are rounded: give a `--tolerance` of 1e-3 or 1e-2.

`logits` loads the model directory in timm (`--format timm` and `onnx`) or in transformers
(`--format transformers`), preprocesses the images as the directory says, and compares the logits
with those of `wave predict --json`. Resizing may differ by one grey level between libraries, so
give images of the model's own size (and `crop_pct` 1) for a strict test.

`log` reads the events of OUT_DIR/run/ as TensorBoard does, and compares them and `log.csv` with
`log.jsonl`, entry by entry.

Exit code: 0 all equal, 1 a difference or an unreadable file, 2 wrong usage. Written for
Python 3.10 or later, torch 2.x and timm 1.x.
"""

import argparse
import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

# The composed weights of a block, by their names in wave's scalers and in timm.
PARTS = {
    "qkv": "attn.qkv.weight",
    "proj": "attn.proj.weight",
    "fc1": "mlp.fc1.weight",
    "fc2": "mlp.fc2.weight",
}


class Mismatch(Exception):
    """A file that breaks the format, or a number that differs."""


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Mismatch(f"{path}: {error}") from error


def read_tensors(path):
    """All tensors of a safetensors file, in f64."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:  # torch also reads bf16, which numpy lacks
            return {name: file.get_tensor(name).double().numpy() for name in file.keys()}
    except (OSError, SafetensorError) as error:
        raise Mismatch(f"{path}: {error}") from error


def pick(tensors, name, path):
    if name not in tensors:
        raise Mismatch(f"{path}: no tensor `{name}`")
    return tensors[name]


def compose(scalers, templates, order):
    """Sum over n of the Kronecker products: (n, r, c) and (n, t, t) give (r t, c t)."""
    if scalers.ndim != 3 or templates.ndim != 3 or len(scalers) != len(templates):
        raise Mismatch(
            f"scalers {scalers.shape} and templates {templates.shape}: "
            "expected (N, rows, columns) and (N, t, t) with the same N"
        )
    if order == "tile":
        return sum(np.kron(s, t) for s, t in zip(scalers, templates))
    return sum(np.kron(t, s) for s, t in zip(scalers, templates))


def crop(composed, shape, segments):
    """Keep the leading columns, and the leading rows of each of `segments` equal runs of rows."""
    rows, columns = shape
    if composed.shape[0] % segments or composed.shape[0] < rows or composed.shape[1] < columns:
        raise Mismatch(f"composed {composed.shape} cannot be cropped to {shape}")
    runs = np.split(composed, segments)  # each (composed rows / segments, composed columns)
    return np.concatenate([run[: rows // segments, :columns] for run in runs])


def check_kron(args):
    config_path = args.templates / "config.json"
    templates_path = args.templates / "templates.safetensors"
    model_path = args.model / "model.safetensors"
    scalers_path = args.model / "scalers.safetensors"

    config = read_json(config_path)
    order = config.get("kronecker")
    if order not in ("tile", "interleave"):
        raise Mismatch(f"{config_path}: `kronecker` is {order!r}, expected 'tile' or 'interleave'")
    sets = config.get("sets")
    if not isinstance(sets, dict) or not all(part in sets for part in PARTS):
        raise Mismatch(f"{config_path}: `sets` is {sets!r}, expected a set for each of {list(PARTS)}")
    templates, model, scalers = map(read_tensors, (templates_path, model_path, scalers_path))

    layers = sorted({int(m[1]) for name in model if (m := re.match(r"blocks\.(\d+)\.", name))})
    if not layers or layers != list(range(len(layers))):
        raise Mismatch(f"{model_path}: blocks {layers}, expected 0, 1, ... without gaps")
    strangers = set(scalers) - {f"scalers.{layer}.{part}" for layer in layers for part in PARTS}
    if strangers:
        raise Mismatch(f"{scalers_path}: scalers without a layer: {sorted(strangers)}")

    worst, cropped, failures = 0.0, 0, []
    for layer in layers:
        for part, suffix in PARTS.items():
            name = f"blocks.{layer}.{suffix}"
            weight = pick(model, name, model_path)
            s = pick(scalers, f"scalers.{layer}.{part}", scalers_path)
            t = pick(templates, f"templates.{sets[part]}", templates_path)
            try:
                composed = compose(s, t, order)
                expected = crop(composed, weight.shape, segments=3 if part == "qkv" else 1)
            except Mismatch as mismatch:
                raise Mismatch(f"{name}: {mismatch}") from mismatch
            difference = np.abs(weight - expected).max()
            worst = max(worst, difference)
            cropped += composed.shape != weight.shape
            if not difference <= args.tolerance:  # also catches NaN
                failures.append(f"{name}: differs by up to {difference:.3e}")
    for failure in failures:
        print(failure, file=sys.stderr)
    total = len(layers) * len(PARTS)
    print(f"kron ({order}): {total} weights, {cropped} cropped, maximum difference {worst:.3e}")
    if failures:
        raise Mismatch(f"{len(failures)} of {total} weights differ by more than {args.tolerance:g}")


def predict(wave, model, images):
    """The `predictions` of `wave predict --json`, one per image and in their order."""
    command = [str(wave), "predict", str(model), *map(str, images), "--json"]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Mismatch(f"{wave}: {error}") from error
    if done.returncode:
        raise Mismatch(f"{' '.join(command)}: exit code {done.returncode}")
    try:
        predictions = json.loads(done.stdout)["predictions"]
    except (ValueError, KeyError) as error:
        raise Mismatch(f"stdout is not one JSON object with `predictions`: {error!r}") from error
    named = [Path(prediction["image"]) for prediction in predictions]
    if named != list(images):
        raise Mismatch(f"predictions for {named}, expected one for each of {list(images)}")
    return predictions


def timm_logits(directory, images):
    import timm
    import torch
    from PIL import Image

    model = timm.create_model(f"local-dir:{directory}", pretrained=True).eval()
    settings = timm.data.resolve_data_config(pretrained_cfg=model.pretrained_cfg, model=model)
    mode = {1: "L", 3: "RGB"}.get(settings["input_size"][0])
    if mode is None:
        raise Mismatch(f"{directory}: input_size {settings['input_size']}, expected 1 or 3 channels")
    transform = timm.data.create_transform(**settings)
    batch = torch.stack([transform(Image.open(image).convert(mode)) for image in images])
    with torch.inference_mode():
        return model(batch).double().numpy()  # (images, classes)


def transformers_logits(directory, images):
    import torch
    from PIL import Image
    from transformers import AutoImageProcessor, ViTForImageClassification

    processor = AutoImageProcessor.from_pretrained(directory)
    model, report = ViTForImageClassification.from_pretrained(directory, output_loading_info=True)
    wrong = {key: list(names) for key, names in report.items() if names}
    if wrong:
        raise Mismatch(f"{directory}: {wrong}")
    mode = "RGB" if model.config.num_channels == 3 else "L"
    batch = torch.cat(
        [
            processor(grey_as_array(Image.open(image).convert(mode)), return_tensors="pt")[
                "pixel_values"
            ]
            for image in images
        ]
    )
    with torch.inference_mode():
        return model.eval().float()(batch).logits.double().numpy()  # (images, classes)


def grey_as_array(image):
    """transformers takes grey images as arrays (1, height, width) only."""
    return np.asarray(image)[None] if image.mode == "L" else image


def check_logits(args):
    config = read_json(args.model / "config.json")
    label_names = config.get("label_names")
    predictions = predict(args.wave, args.model, args.images)
    if "architecture" in config:
        reference = timm_logits(args.model, args.images)
    else:
        reference = transformers_logits(args.model, args.images)
        label_names = [config["id2label"][str(i)] for i in range(len(config["id2label"]))]

    worst, failures = 0.0, []
    for prediction, expected in zip(predictions, reference):
        image = prediction["image"]
        logits = np.array(prediction["logits"], dtype=float)
        if logits.shape != expected.shape:
            raise Mismatch(f"{image}: {logits.size} logits, expected {expected.size}")
        difference = np.abs(logits - expected).max()
        worst = max(worst, difference)
        if not difference <= args.tolerance:
            failures.append(f"{image}: logits differ by up to {difference:.3e}")
        index = prediction["index"]
        if index != logits.argmax():
            failures.append(f"{image}: index {index}, but the largest logit is {logits.argmax()}")
        elif label_names and prediction["label"] != label_names[index]:
            failures.append(f"{image}: label {prediction['label']!r}, not {label_names[index]!r}")
        probability = 1 / np.exp(logits - logits.max()).sum()
        if not abs(prediction["probability"] - probability) <= args.tolerance:
            failures.append(f"{image}: probability {prediction['probability']}, not {probability:.6f}")
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"logits: {len(predictions)} images, maximum difference {worst:.3e}")
    if failures:
        raise Mismatch(f"{len(failures)} differences (tolerance {args.tolerance:g})")


# Keys of the log, and TensorBoard's tags.
TAGS = {
    "epoch": "epoch",
    "loss": "train/loss",
    "learning_rate": "train/learning_rate",
    "gradient_norm": "train/gradient_norm",
    "images_per_second": "train/images_per_second",
    "top1": "test/top1",
    "top5": "test/top5",
    "test_loss": "test/loss",
}


def check_log(args):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = args.out / "run"
    try:
        lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
        entries = [json.loads(line) for line in lines]
        with open(run / "log.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, ValueError) as error:
        raise Mismatch(f"{run}: {error}") from error
    table = [{key: float(cell) for key, cell in row.items() if cell} for row in rows]
    plain = [{key: value for key, value in e.items() if value is not None} for e in entries]
    if table != plain:
        raise Mismatch(f"{run}: log.csv and log.jsonl differ")

    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    logged = set(events.Tags()["scalars"])
    for key, tag in TAGS.items():
        expected = [(e["step"], np.float32(e[key])) for e in plain if key in e]
        found = [(s.step, np.float32(s.value)) for s in events.Scalars(tag)] if tag in logged else []
        if found != expected:
            raise Mismatch(f"{run}: {tag} has {len(found)} values, not the {len(expected)} of {key}")
    if logged - set(TAGS.values()):
        raise Mismatch(f"{run}: tags {sorted(logged - set(TAGS.values()))} are not in the log")
    print(f"log: {len(plain)} entries, {len(logged)} tags")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    kron = commands.add_parser("kron", help="weights equal the sum of Kronecker products")
    kron.add_argument("templates", type=Path, metavar="TEMPLATES_DIR")
    kron.add_argument("model", type=Path, metavar="MODEL_DIR")
    kron.add_argument("--tolerance", type=float, default=1e-6)
    kron.set_defaults(check=check_kron)

    log = commands.add_parser("log", help="log.jsonl, log.csv and TensorBoard's events agree")
    log.add_argument("out", type=Path, metavar="OUT_DIR")
    log.set_defaults(check=check_log)

    logits = commands.add_parser(
        "logits", help="wave predict and timm or transformers give the same logits"
    )
    logits.add_argument("model", type=Path, metavar="MODEL_DIR")
    logits.add_argument("images", type=Path, nargs="+", metavar="IMAGE")
    logits.add_argument("--wave", default="wave", help="the executable (default: wave on PATH)")
    logits.add_argument("--tolerance", type=float, default=1e-4)
    logits.set_defaults(check=check_logits)

    args = parser.parse_args()
    try:
        args.check(args)
    except Mismatch as mismatch:
        print(f"error: {mismatch}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
