"""An ancestor for small images: a ResNet trained on labelled tar shards, or a pretrained network fine-tuned on them, as a
model directory.

    pip install torch timm pillow safetensors
    python recipes/resnet.py data/cifar-10 ancestors/cifar-10 --layers 1 1 1 1 --channels 32 64 128 256 --epochs 8
    python recipes/resnet.py data/cifar-10 ancestors/cifar-10 --pretrained ancestors/efficientnet-lite0 --resize 2 3 --epochs 2

The ResNet's first convolution has 3 x 3 pixels and keeps the side, and no pooling follows, as usual for images of 32 pixels.
With `--resize 2` it is timm's own ResNet and sees images enlarged to twice their size, as wave enlarges them (bicubic). With
`--resize 0.75 1` or `--resize 1.5 2` the first half of the training, which then takes less time, sees smaller ones.

The ResNet's filters train by Muon and keep their norm, since a batch norm follows each; all other parameters, and a
pretrained network, which begins with a classifier of zeros, train by AdamW. Rates fall to 0 linearly. Images are shifted and
mirrored, and some batches are mixed by CutMix. Weights are stored in f16, statistics of batch norms in f32; accuracy is that of
the stored weights. wave takes the directory as an ancestor, and with `--resize 2` or `--pretrained` timm loads it
(`timm.create_model("local-dir:DIR", pretrained=True)`). Without, timm's model needs the other beginning:

    model = timm.create_model("local-dir:DIR")
    model.conv1, model.maxpool = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False), torch.nn.Identity()
    model.load_state_dict(safetensors.torch.load_file("DIR/model.safetensors"), strict=False)
"""

import argparse
import io
import json
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import timm
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save_file


def decode(encoded):
    return np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"))


def load(data, split):
    """Images (n, 3, h, w) of u8 and labels of all shards of a split."""
    images, labels = {}, {}
    for shard in sorted(Path(data).glob(f"{split}-*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                key, _, kind = member.name.partition(".")
                content = tar.extractfile(member).read()
                if kind == "cls":
                    labels[shard.name, key] = int(content)
                else:
                    images[shard.name, key] = content
    if not images:
        raise SystemExit(f"{data} has no {split}-*.tar")
    with ProcessPoolExecutor() as pool:
        pixels = np.stack(list(pool.map(decode, images.values(), chunksize=1000)))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.tensor([labels[key] for key in images])


def augment(images, shift):
    """Shifts every image by up to `shift` pixels on black, and mirrors half of them."""
    n, _, side, _ = images.shape
    device = images.device
    padded = F.pad(images, (shift,) * 4)
    y, x = torch.randint(0, 2 * shift + 1, (2, n, 1), device=device) + torch.arange(side, device=device)
    mirrored = torch.rand(n, 1, device=device) < 0.5
    x = torch.where(mirrored, x.flip(1), x)
    rows = torch.arange(n, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[rows, y[:, :, None], x[:, None, :]].permute(0, 3, 1, 2)


def orthogonal(matrices):
    """The nearest matrices with singular values of about 1, by five steps of Newton and Schulz."""
    tall = matrices.shape[0] > matrices.shape[1]
    x = matrices.T if tall else matrices
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov's momentum for convolutions that a batch norm follows: each is rescaled to its initial norm."""

    def __init__(self, filters, lr, momentum=0.6):
        super().__init__(filters, {"lr": lr, "momentum": momentum})
        for p in self.param_groups[0]["params"]:
            self.state[p] = {"mean": torch.zeros_like(p), "norm": p.detach().norm()}

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        for p in group["params"]:
            mean, norm = self.state[p]["mean"], self.state[p]["norm"]
            mean.mul_(group["momentum"]).add_(p.grad)
            update = orthogonal((p.grad + group["momentum"] * mean).flatten(1)).view_as(p)
            p.mul_(norm / p.norm()).sub_(update * norm / update.norm(), alpha=group["lr"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--pretrained", type=Path, help="directory of a timm model to fine-tune, in place of a new ResNet")
    parser.add_argument("--layers", type=int, nargs=4, help="blocks of each stage (default: 2 2 2 2)")
    parser.add_argument("--channels", type=int, nargs=4, help="of each stage (default: 64 128 256 512)")
    parser.add_argument("--resize", type=float, nargs="+", default=[1], help="factors of the side, for equal parts")
    parser.add_argument("--shift", type=int, help="pixels (default: an eighth of the side)")
    parser.add_argument("--epochs", type=float, default=16)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--lr", type=float, help="Muon: length of a step over the filter's (default: 0.12); pretrained: 2e-3")
    parser.add_argument("--cutmix", type=float, default=0.0, help="fraction of the batches")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="training images, drawn at random")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.pretrained and (args.layers or args.channels):
        parser.error("--layers and --channels are of a new ResNet, not of a --pretrained network")
    layers, channels = args.layers or [2, 2, 2, 2], args.channels or [64, 128, 256, 512]
    lr = args.lr or (2e-3 if args.pretrained else 0.12)

    began = time.time()
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    device = torch.device(args.device)
    names = json.loads((Path(args.data) / "_info.json").read_text())["class_names"]
    train, labels, test, truth = (part.to(device) for part in load(args.data, "train") + load(args.data, "val"))
    kept = torch.randperm(len(train), device=device)[: args.limit]
    train, labels = train[kept], labels[kept]
    side = train.shape[-1]
    sides = [int(factor * side) for factor in args.resize]
    small = args.resize[-1] == 1 and not args.pretrained
    shift = side // 8 if args.shift is None else args.shift

    if args.pretrained:
        config = json.loads((args.pretrained / "config.json").read_text())
        model = timm.create_model(f"local-dir:{args.pretrained}", pretrained=True, num_classes=len(names))
        torch.nn.init.zeros_(model.get_classifier().weight)
        mean, std = (torch.tensor(config["pretrained_cfg"][key]) for key in ("mean", "std"))
    else:
        sample = train[:: max(1, len(train) // 10000)].float() / 255
        mean, std = (f(sample, dim=(0, 2, 3)).cpu().double().round(decimals=4).float() for f in (torch.mean, torch.std))
        config = {
            "architecture": "resnet18",
            "num_features": channels[-1],
            "global_pool": "avg",
            "model_args": {"layers": layers, "channels": channels},
            "pretrained_cfg": {
                "custom_load": False,
                "fixed_input_size": False,
                "pool_size": [sides[-1] // (8 if small else 32)] * 2,
                "first_conv": "conv1",
                "classifier": "fc",
            },
        }
        model = timm.create_model("resnet18", num_classes=len(names), zero_init_last=False, **config["model_args"])
    if small:
        model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    model = model.to(device, memory_format=torch.channels_last)
    if args.pretrained:
        optimisers = [torch.optim.AdamW(model.parameters(), lr, weight_decay=0.0)]
    else:
        filters = [p for p in model.parameters() if p.ndim == 4]
        others = [p for p in model.parameters() if p.ndim < 4]
        optimisers = [Muon(filters, lr), torch.optim.AdamW(others, 2e-3, weight_decay=0.0)]
    an_epoch = max(1, len(train) // args.batch)
    steps = max(1, int(args.epochs * an_epoch))
    rate = lambda step: 1 - step / steps
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimiser, rate) for optimiser in optimisers]

    def logits(images, size):
        images = (images.float() / 255 - mean.to(device)[:, None, None]) / std.to(device)[:, None, None]
        if size != side:
            images = F.interpolate(images, size=size, mode="bicubic", antialias=True)
        return model(images.contiguous(memory_format=torch.channels_last))

    capabilities = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of PyTorch lack it
    depthwise = any(getattr(module, "groups", 1) > 1 for module in model.modules())  # slower in bf16 on a processor
    fast = device.type == "cuda" or not depthwise and any(capabilities.get(unit) for unit in ("amx_tile", "avx512_bf16"))
    precision = torch.autocast(device.type, torch.bfloat16, enabled=fast)
    for step in range(steps):
        if step % an_epoch == 0:
            order = torch.randperm(len(train), device=device)
        of = order[step % an_epoch * args.batch :][: args.batch]
        images, target = augment(train[of], shift), labels[of]
        other, share = target, 1.0
        if torch.rand(()) < args.cutmix:
            cut = int(side * (1 - torch.rand(()).item()) ** 0.5)
            top, left = torch.randint(0, side - cut + 1, (2,)).tolist()
            images[:, :, top : top + cut, left : left + cut] = images.flip(0)[:, :, top : top + cut, left : left + cut]
            other, share = target.flip(0), 1 - (cut / side) ** 2
        with precision:
            scores = logits(images, sides[step * len(sides) // steps]).float()
        loss = share * F.cross_entropy(scores, target) + (1 - share) * F.cross_entropy(scores, other)
        model.zero_grad(set_to_none=True)
        loss.backward()
        for each in optimisers + schedules:
            each.step()
        if (step + 1) % an_epoch == 0:
            print(f"epoch {(step + 1) // an_epoch}, loss {loss.item():.3f}, {time.time() - began:.0f} s", flush=True)

    stored = {name: t.cpu().contiguous() for name, t in model.state_dict().items() if t.is_floating_point()}
    statistic = lambda name: name.endswith(("running_mean", "running_var"))
    stored = {name: t if statistic(name) else t.half() for name, t in stored.items()}
    model.load_state_dict({name: t.float() for name, t in stored.items()}, strict=False)
    model.eval()
    with torch.no_grad():
        right = sum((logits(x, sides[-1]).argmax(1) == y).sum().item() for x, y in zip(test.split(500), truth.split(500)))
    top1 = right / len(test)
    print(f"top-1 {top1:.4f} of {len(test)} test images, {time.time() - began:.0f} s")

    config |= {"num_classes": len(names), "label_names": names, "top1": top1}
    config["pretrained_cfg"] |= {
        "input_size": [3, sides[-1], sides[-1]],
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "mean": [round(x, 4) for x in mean.tolist()],
        "std": [round(x, 4) for x in std.tolist()],
        "num_classes": len(names),
    }
    args.out.mkdir(parents=True, exist_ok=True)
    save_file(stored, args.out / "model.safetensors", metadata={"format": "pt"})
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    main()
