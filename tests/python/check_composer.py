#!/usr/bin/env python3
"""The page of a template directory makes and runs in the browser the models that `wave expand` makes.

    python3 tests/python/check_composer.py --wave target/release/wave

Runs the page's own script in Node.js (`node` on the path), for both Kronecker orders, narrower and wider models
than the auxiliary, widths that the template size does not divide, and more and fewer layers than anchors; then whole
models of the shipped sets on a picture, whose class scores are those of `wave predict`.
"""

import argparse
import json
import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

RECIPE = """
data = "shapes"
train_limit = 64
test_limit = 32
batch = 32
[condense]
depths = [1, 3]
widths = [32, 64]
template_size = {template}
kronecker = "{order}"
steps = 2
kl_weight = 0
[condense.auxiliary]
depth = 3
width = 64
head_width = 16
patch = 7
image_size = 28
"""

SIZES = [(1, 16), (2, 32), (3, 64), (5, 48), (6, 80), (4, 128)]

# A page's data and code, run by Node, which then prints a value of the code.
HARNESS = """
const elements = {elements};
globalThis.document = {{ getElementById: (id) => elements[id] }};
{code}
console.log(JSON.stringify({value}));
"""

# The weights of one part in all layers.
WEIGHTS = "Array.from({{ length: {depth} }}, (_, l) => Array.from(composed('{part}', l, {depth}, {width})))"
SHIPPED = ["cifar-10", "fashion-mnist"]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parts(page):
    """The data and the code of a page."""
    data = re.search(r'<script type="application/json" id="composer-data">(.*?)</script>', page, re.S)
    code = re.search(r"<script>\n(.*?)</script>", page, re.S)
    return data.group(1), code.group(1)


def computed(page, place, value):
    data, code = parts(page)
    elements = json.dumps({"composer-data": {"textContent": data}})
    program = place / "page.js"
    program.write_text(HARNESS.format(elements=elements, code=code, value=value))
    return np.array(json.loads(run("node", str(program))))


def check_shipped(wave, place, name):
    """Class scores of models of a shipped set; returns how many models."""
    templates = Path(__file__).parents[2] / "templates" / name
    config = json.loads((templates / "config.json").read_text())
    side, channels = config["image_size"], config["channels"]
    # A portable grey or colour map of noise at the models' own size: nothing is resized.
    image = np.random.default_rng(0).integers(0, 256, (side, side, channels), dtype=np.uint8)
    picture = place / "noise.pnm"
    picture.write_bytes(b"P%d %d %d 255\n" % (6 if channels == 3 else 5, side, side) + image.tobytes())
    pixels = (image / 255 - config["mean"]) / config["std"]
    pixels = pixels.transpose(2, 0, 1).ravel().round(7).tolist()
    page = place / f"{name}.html"
    run(wave, "inspect", str(templates), "--html", str(page))
    sizes = [(2, 64), (5, 96), (3, 160)]
    for depth, width in sizes:
        model = place / f"{name}-{depth}x{width}"
        run(wave, "expand", str(templates), "--depth", str(depth), "--width", str(width), "--out", str(model))
        said = json.loads(run(wave, "predict", str(model), str(picture), "--json"))
        logits = said["predictions"][0]["logits"]
        got = computed(page.read_text(), place, f"Array.from(logits(model({depth}, {width}), {pixels}))")
        np.testing.assert_allclose(got, logits, rtol=1e-3, atol=1e-3, err_msg=f"{name} {depth} x {width}")
    return len(sizes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wave", required=True, type=Path)
    wave = str(parser.parse_args().wave.resolve())
    names = {"qkv": "attn.qkv", "proj": "attn.proj", "fc1": "mlp.fc1", "fc2": "mlp.fc2"}
    checked = 0
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        for order in ["tile", "interleave"]:
            for template in [16, 32]:
                recipe = place / "r.toml"
                recipe.write_text(RECIPE.format(order=order, template=template))
                small = place / f"{order}-{template}"
                run(wave, "condense", str(recipe), "--depths", "1,2", "--widths", "32", "--out", str(small))
                # Models of two levels, which use other numbers of templates.
                grown = place / f"{order}-{template}-grown"
                run(wave, "condense", str(recipe), "--grow", str(small), "--out", str(grown))
                for templates in [small, grown]:
                    page = place / "page.html"
                    run(wave, "inspect", str(templates), "--html", str(page))
                    for depth, width in SIZES:
                        model = place / f"{templates.name}-{depth}x{width}"
                        size = ["--depth", str(depth), "--width", str(width), "--out", str(model)]
                        run(wave, "expand", str(templates), *size)
                        weights = load_file(model / "model.safetensors")
                        for part, name in names.items():
                            want = [weights[f"blocks.{l}.{name}.weight"].ravel() for l in range(depth)]
                            value = WEIGHTS.format(part=part, depth=depth, width=width)
                            got = computed(page.read_text(), place, value)
                            label = f"{model.name} {part}"
                            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=label)
                            checked += depth
        models = sum(check_shipped(wave, place, name) for name in SHIPPED)
    print(f"{checked} weights are composed as by wave expand, {models} models run as by wave predict")


if __name__ == "__main__":
    main()
