#!/usr/bin/env python3
"""A vision transformer of any depth and width from the weight templates beside this file, without wave:

    pip install numpy safetensors
    python expand.py DEPTH WIDTH OUT

timm.create_model("local-dir:OUT", pretrained=True) loads it. `wave expand . --depth DEPTH --width WIDTH` makes
the same. SPDX-License-Identifier: MIT OR Apache-2.0
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save_file

# Each composed weight: timm's name, how many matrices it stacks, and the kinds of its rows and columns.
PARTS = {
    "qkv": ("attn.qkv", 3, "width", "width"),
    "proj": ("attn.proj", 1, "width", "width"),
    "fc1": ("mlp.fc1", 1, "hidden", "width"),
    "fc2": ("mlp.fc2", 1, "width", "hidden"),
}


def read(data):
    """All tensors of a file's content, in f64."""
    def values(t):
        if t["dtype"] == "BF16":  # the upper half of an f32
            return (np.frombuffer(t["data"], "<u2").astype("<u4") << 16).view("<f4")
        return np.frombuffer(t["data"], {"F16": "<f2", "F32": "<f4"}[t["dtype"]])
    return {name: values(t).astype(float).reshape(t["shape"]) for name, t in deserialize(data)}


def resize(x, axis, old, new, runs=1, inputs=False):
    """The first `new` entries of each run of an axis, or its `old` ones again and again. Inputs are added up, so
    copies of one are divided by their number."""
    index = np.arange(new) % old
    x = np.take(x, np.concatenate([run * old + index for run in range(runs)]), axis)
    return np.moveaxis(np.moveaxis(x, axis, -1) / np.bincount(index)[index], -1, axis) if inputs else x


def expand(depth, width, source=Path(__file__).resolve().parent):
    """timm's `config.json`, and the weights by timm's names."""
    config, data = json.loads((source / "config.json").read_text()), (source / "templates.safetensors").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if config.get("digests", {}).get("templates.safetensors", digest) != digest:
        sys.exit("templates.safetensors is damaged, or belongs to another config.json: copy both again")
    tensors = read(data)
    t, tile, anchors, a = config["template_size"], config["kronecker"] == "tile", config["anchors"], config["auxiliary"]
    if depth < 1 or width < 1 or width % config["head_width"]:
        sys.exit(f"{depth} x {width}: expected 1 layer or more, and a width that {config['head_width']} divides")
    # Models up to the size of a level are made of values of its own.
    levels = enumerate(config.get("levels", [])[:-1])
    levels = [(f"levels.{i}.", v["width"]) for i, v in levels if depth <= v["depth"] and width <= v["width"]]
    prefix, old = (levels + [("", a["width"])])[0]
    old, new = ({"width": w, "hidden": int(w * a["mlp_ratio"])} for w in (old, width))
    # Every layer lies between two anchors.
    steps = depth if config.get("depth_rule") == "l/L" else max(depth - 1, 1)
    below, rest = np.divmod(np.arange(depth) * (anchors - 1), steps)
    mix = np.zeros((depth, anchors))
    mix[range(depth), below] = 1 - rest / steps
    mix[range(depth), np.minimum(below + 1, anchors - 1)] += rest / steps
    layers = lambda name: np.tensordot(mix, [tensors[prefix + name.format(k)] for k in range(anchors)], 1)

    weights = {}
    for part, (module, runs, rows, columns) in PARTS.items():
        high, wide, known = -(-new[rows] // t), -(-new[columns] // t), -(-old[columns] // t)  # in blocks
        scalers = resize(layers("bank.{}." + part), 2, -(-old[rows] // t), high, runs)  # (L, N, r, c)
        # A copy of a block that would be cropped is not read.
        whole = new[columns] // t
        read_to = whole if tile and old[columns] % t == 0 and known <= whole else wide
        scalers = np.pad(resize(scalers, 3, known, read_to, inputs=True), [(0, 0)] * 3 + [(0, wide - read_to)])
        w = np.tensordot(scalers, tensors[f"{prefix}templates.{config['sets'][part]}"], (1, 0))  # (L, r, c, t, t)
        w = w.transpose((0, 1, 3, 2, 4) if tile else (0, 3, 1, 4, 2)).reshape(depth, runs, high * t, wide * t)
        w = w[:, :, : new[rows], : new[columns]].reshape(depth, -1, new[columns])
        weights |= {f"blocks.{layer}.{module}.weight": w[layer] for layer in range(depth)}
    for name in [n.removeprefix(prefix + "auxiliary.") for n in tensors if n.startswith(prefix + "auxiliary.")]:
        x, module = tensors[f"{prefix}auxiliary.{name}"], name.removeprefix("blocks.0.")
        if module != name:
            kind, runs = "hidden" if module == "mlp.fc1.bias" else "width", 3 if module == "attn.qkv.bias" else 1
            x = resize(layers("auxiliary.blocks.{}." + module), 1, old[kind], new[kind], runs)
            weights |= {f"blocks.{layer}.{module}": x[layer] for layer in range(depth)}
        elif name.startswith("head"):
            weights[name] = x if x.ndim == 1 else resize(x, 1, old["width"], width, inputs=True)
        elif not name.startswith("blocks."):
            axis = 2 if name in ("cls_token", "dist_token", "pos_embed") else 0
            weights[name] = resize(x, axis, old["width"], width)

    distilled, token, size = a.get("distilled", False), a.get("class_token", False), config["image_size"]
    pool, classes = "token" if token else "avg", config["classes"]
    args = dict(img_size=size, patch_size=config["patch"], in_chans=config["channels"], embed_dim=width, depth=depth,
                num_heads=width // config["head_width"], mlp_ratio=a["mlp_ratio"], class_token=token, global_pool=pool)
    images = dict(input_size=[config["channels"], size, size], fixed_input_size=True, num_classes=classes,
                  interpolation=config.get("interpolation", "bicubic"), crop_mode=config.get("crop_mode", "center"),
                  crop_pct=config["crop_pct"], mean=config["mean"], std=config["std"],
                  first_conv="patch_embed.proj", classifier="head")
    model = dict(architecture="deit_tiny_distilled_patch16_224" if distilled else "vit_tiny_patch16_224",
                 num_classes=classes, num_features=width, global_pool=pool, model_args=args, pretrained_cfg=images)
    if config["label_names"]:
        model["label_names"] = config["label_names"]
    if "crop_offset" in config:
        model["crop_offset"] = config["crop_offset"]
    if a.get("norm_eps", 1e-6) != 1e-6:
        model["layer_norm_eps"] = a["norm_eps"]
    return model, {name: x.astype(np.float32) for name, x in weights.items()}


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    model, weights = expand(int(sys.argv[1]), int(sys.argv[2]))
    out = Path(sys.argv[3])
    out.mkdir(parents=True)
    save_file(weights, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(model, indent=2) + "\n")
