"""PyTorch data sets as tar shards."""

from __future__ import annotations

import io
import json
import os
import tarfile
from typing import Any

from ._images import png


def pack(
    out: str | os.PathLike[str], train: Any, test: Any = None, *, class_names: list[str] | None = None
) -> dict[str, int]:
    """Writes map-style PyTorch data sets to the directory ``out``, in a form that every ``data`` accepts.

    Items are ``(image, label)``, or images alone; an image is a PIL image or a uint8 array (height, width) or
    (height, width, channels), and is stored without loss. wave resizes, crops and flips itself, so ``transform``
    of the data set should be ``None``. ``class_names`` defaults to ``train.classes``, if it exists.
    Returns the number of images of each split.
    """
    os.makedirs(out, exist_ok=True)
    info = os.path.join(out, "_info.json")
    if os.path.exists(info):
        raise ValueError(f"{os.fspath(out)} already holds a packed data set (_info.json); choose another directory")
    incomplete = os.path.join(out, "_incomplete")
    with open(incomplete, "w") as file:
        file.write("not all shards are written\n")
    counts, splits = {}, {}
    for prefix, split, dataset in [("train", "train", train), ("val", "validation", test)]:
        if dataset is None:
            continue
        name = f"{prefix}-00000.tar"
        with tarfile.open(os.path.join(out, name), "w") as shard:
            for i in range(len(dataset)):
                for ending, content in _members(dataset[i], f"{split} item {i}"):
                    member = tarfile.TarInfo(f"{i:08d}.{ending}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))
        counts[split] = len(dataset)
        splits[split] = {"name": split, "filenames": [name], "shard_lengths": [len(dataset)]}
    names = class_names or getattr(train, "classes", None)
    about = {"splits": splits, **({"class_names": [str(name) for name in names]} if names else {})}
    with open(f"{info}.part", "w") as file:
        json.dump(about, file)
    os.replace(f"{info}.part", info)
    os.remove(incomplete)
    return counts


def _members(item: Any, place: str) -> list[tuple[str, bytes]]:
    """The files of an item: a PNG, and the label if there is one."""
    image, label = item if isinstance(item, (tuple, list)) and len(item) == 2 else (item, None)
    members = [("png", png(image, place))]
    if label is not None:
        members.append(("cls", str(int(label)).encode()))
    return members
