"""Check, from end to end, that other libraries give the logits of `wave predict`.

    cargo build --release
    pip install torch timm transformers onnxruntime safetensors numpy pillow
    python tests/python/check_exchange.py --wave target/release/wave

1. `templates/fashion-mnist` (28 x 28 grey, no class token) is expanded to 7 layers of width 320.
2. timm writes a DeiT-Tiny (3 x 224 x 224, seeded random weights, 12 classes). `wave condense` distils
   it for a few steps, on pictures without labels, into templates with a class token. Those are
   expanded to 7 layers of width 320, too.

Each expansion is written in every format that has a place for it and loaded by timm, by transformers
(timm's directory through its wrapper, and the native layout where there is a class token) and by an
ONNX runtime. Each reads the same image files, prepares them as the directory itself says, and has to
give the logits of `wave predict --json`: within 1e-4 for pictures of the model's own size; within
what one grey level of noise does for pictures that are resized first, since libraries differ by so
much there.

Exit code: 0 all agree, 1 a difference or a failed command. Written for Python 3.10 or later, torch
2.x, timm 1.x, transformers 5.x and onnxruntime 1.x.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import timm
import torch
from check_artifacts import Mismatch, grey_as_array, predict
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 1e-4
DEPTH, WIDTH = 7, 320

RECIPE = """
batch = 8

[condense]
depths = [2, 4]
widths = [128, 192]
template_size = 64
steps = 4
lr = 1e-3

[condense.auxiliary]
depth = 4
width = 192
head_width = 64
patch = 16
image_size = 224
class_token = true
"""


def run(wave, words):
    command = [str(wave), *map(str, words), "--quiet"]
    print("  $", " ".join(["wave", *map(str, words)]), flush=True)
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Mismatch(f"exit code {done.returncode}")


def picture(rng, mode, width, height):
    """Smooth shapes with some noise on them."""
    channels = 3 if mode == "RGB" else 1
    coarse = rng.integers(0, 256, (9, 9, channels), dtype=np.uint8)
    layers = [Image.fromarray(coarse[..., c]).resize((width, height)) for c in range(channels)]
    smooth = np.stack([np.asarray(layer, dtype=int) for layer in layers], -1)
    noisy = smooth + rng.integers(-20, 21, smooth.shape)
    values = noisy.clip(0, 255).astype(np.uint8)
    return Image.fromarray(values if channels == 3 else values[..., 0])


def pictures(folder, mode, side):
    """Files of the model's own size first; then some that have to be resized and cropped."""
    rng = np.random.default_rng(side)
    # Margins of the crop that every library halves alike; see crates/FORMATS.md.
    sizes = [(side, side)] * 3 + [(side * 3 // 2, side), (side // 2, side // 4 * 3)]
    paths = []
    for i, size in enumerate(sizes):
        paths.append(folder / f"{mode}-{i}.png")
        picture(rng, mode, *size).save(paths[-1])
    return paths, 3


def deit(folder):
    """A checkpoint under DeiT's name, as timm's users have them."""
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = timm.create_model("deit_tiny_patch16_224", num_classes=12).eval()
    with torch.no_grad():  # as initialised, all images have nearly the same logits
        model.head.weight.normal_(std=0.2)
    folder.mkdir()
    save_file(model.state_dict(), folder / "model.safetensors", {"format": "pt"})
    config = {
        "architecture": "deit_tiny_patch16_224",
        "num_classes": 12,
        "num_features": 192,
        "pretrained_cfg": {**model.pretrained_cfg, "num_classes": 12},
    }
    (folder / "config.json").write_text(json.dumps(config))


class Timm:
    """timm, which also stands for PyTorch's view of the pixels elsewhere."""

    def __init__(self, folder):
        self.model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        settings = timm.data.resolve_data_config(
            pretrained_cfg=self.model.pretrained_cfg, model=self.model
        )
        self.transform = timm.data.create_transform(**settings)
        self.mode = {1: "L", 3: "RGB"}[settings["input_size"][0]]
        self.level = 1 / 255 / torch.tensor(settings["std"]).reshape(1, -1, 1, 1)

    def images(self, paths):
        return torch.stack([self.transform(Image.open(p).convert(self.mode)) for p in paths])

    def logits(self, paths):
        with torch.inference_mode():
            return self.model(self.images(paths)).numpy()

    def noise(self, paths):
        """By how much one grey level, up or down at random, changes a logit."""
        generator = torch.Generator().manual_seed(0)
        images, worst = self.images(paths), 0.0
        with torch.inference_mode():
            plain = self.model(images)
            for _ in range(4):
                signs = torch.randint(0, 2, images.shape, generator=generator) * 2 - 1
                moved = self.model(images + signs * self.level)
                worst = max(worst, (moved - plain).abs().max().item())
        return worst


def transformers_logits(folder, paths, mode):
    from transformers import AutoImageProcessor, AutoModelForImageClassification

    processor = AutoImageProcessor.from_pretrained(folder)
    model, report = AutoModelForImageClassification.from_pretrained(
        folder, output_loading_info=True
    )
    wrong = {key: list(names) for key, names in report.items() if names}
    if wrong:
        raise Mismatch(f"{folder}: {wrong}")
    wrapped = "Timm" in type(model).__name__
    images = [Image.open(path).convert(mode) for path in paths]
    if not wrapped:
        images = [grey_as_array(image) for image in images]
    rows = [processor(image, return_tensors="pt")["pixel_values"] for image in images]
    with torch.inference_mode():
        return type(model).__name__, model.eval()(torch.cat(rows)).logits.numpy()


def onnx_logits(folder, paths):
    """By an ONNX runtime, which takes the steps of preparation from the file itself."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        folder / "model.onnx", providers=["CPUExecutionProvider"]
    )
    said = session.get_modelmeta().custom_metadata_map
    _, channels, side, _ = session.get_inputs()[0].shape
    transform = timm.data.create_transform(
        (channels, side, side),
        interpolation=json.loads(said["interpolation"]),
        mean=ast.literal_eval(said["mean"]),
        std=ast.literal_eval(said["std"]),
        crop_pct=float(said["crop_pct"]),
    )
    mode = {1: "L", 3: "RGB"}[channels]
    images = np.stack([transform(Image.open(path).convert(mode)).numpy() for path in paths])
    return session.run(None, {"images": images})[0]


def compare(wave, name, folder, templates, files, native):
    """Expands to every format and compares each with every library that reads it."""
    paths, own = files
    size = ["--depth", DEPTH, "--width", WIDTH, "--steps", 0]
    for form in ["timm", "onnx", *(["transformers"] if native else [])]:
        out = folder / f"{name}-{form}"
        run(wave, ["expand", templates, *size, "--format", form, "--out", out])
    directory = {form: folder / f"{name}-{form}" for form in ("timm", "onnx", "transformers")}
    reference = Timm(directory["timm"])
    limit = max(reference.noise(paths[own:]), TOLERANCE)

    found = [("timm", "timm", reference.logits(paths))]
    wrapped = transformers_logits(directory["timm"], paths, reference.mode)
    found.append(("timm", f"transformers, {wrapped[0]}", wrapped[1]))
    if native:
        loaded = transformers_logits(directory["transformers"], paths, reference.mode)
        found.append(("transformers", f"transformers, {loaded[0]}", loaded[1]))
    found.append(("onnx", "onnxruntime", onnx_logits(directory["onnx"], paths)))

    equal = True
    for form, library, logits in found:
        ours = predict(wave, directory[form], paths)
        ours = np.array([prediction["logits"] for prediction in ours])
        differences = np.abs(ours - logits).max(axis=1)
        exact, resized = differences[:own].max(), differences[own:].max()
        good = exact <= TOLERANCE and resized <= limit
        equal &= bool(good)
        print(
            f"{name}, {library}: {exact:.1e} (limit {TOLERANCE:g}), "
            f"resized {resized:.1e} (limit {limit:.1e}): {'ok' if good else 'DIFFERS'}",
            flush=True,
        )
    return equal


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", default="wave", help="the executable (default: wave on PATH)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        try:
            grey = pictures(folder, "L", 28)
            templates = ROOT / "templates" / "fashion-mnist"
            equal = compare(args.wave, "fashion-mnist", folder, templates, grey, native=False)

            deit(folder / "deit")
            (folder / "images").mkdir()
            rng = np.random.default_rng(0)
            for i in range(32):
                picture(rng, "RGB", 250, 230).save(folder / "images" / f"{i}.png")
            (folder / "recipe.toml").write_text(RECIPE)
            condense = ["condense", folder / "recipe.toml", "--ancestor", folder / "deit"]
            condense += ["--data", folder / "images", "--ce-weight", 0, "--out", folder / "t"]
            run(args.wave, condense)
            colour = pictures(folder, "RGB", 224)
            equal &= compare(args.wave, "deit", folder, folder / "t", colour, native=True)
        except Mismatch as mismatch:
            print(f"error: {mismatch}", file=sys.stderr)
            return 1
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
