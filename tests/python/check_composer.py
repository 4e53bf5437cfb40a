#!/usr/bin/env python3
"""The page of a template directory composes in the browser what `wave expand` composes.

    python3 tests/python/check_composer.py --wave target/release/wave

Runs the page's own script in Node.js (`node` on the path), for both Kronecker orders, narrower and wider models
than the auxiliary, widths that the template size does not divide, and more and fewer layers than anchors.
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

# What the script asks of a page, and then the weights of one part in all layers.
HARNESS = """
const elements = {elements};
globalThis.document = {{ getElementById: (id) => elements[id] }};
{code}
const weights = [];
for (let l = 0; l < {depth}; l++) weights.push(Array.from(composed("{part}", l, {depth}, {width})));
console.log(JSON.stringify(weights));
"""


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parts(page):
    """The data and the code of a page."""
    data = re.search(r'<script type="application/json" id="composer-data">(.*?)</script>', page, re.S)
    code = re.search(r"<script>\n(.*?)</script>", page, re.S)
    return data.group(1), code.group(1)


def composed(page, place, part, depth, width):
    data, code = parts(page)
    elements = json.dumps({"composer-data": {"textContent": data}})
    program = place / "page.js"
    program.write_text(HARNESS.format(elements=elements, code=code, part=part, depth=depth, width=width))
    return np.array(json.loads(run("node", str(program))))


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
                            got = composed(page.read_text(), place, part, depth, width)
                            label = f"{model.name} {part}"
                            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=label)
                            checked += depth
    print(f"{checked} weights are composed as by wave expand")


if __name__ == "__main__":
    main()
